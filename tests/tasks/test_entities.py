"""Entities of tags: the rules of CoNLL, whatever the scheme, and the same numbers as seqeval."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kheads.tasks.entities import entities, entity_scores, names_entities

TAG = st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC", "O"))])
SENTENCES = st.lists(
    st.lists(st.tuples(TAG, TAG), min_size=1, max_size=8).map(lambda pairs: list(map(list, zip(*pairs, strict=True)))),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O O", set()),
        ("B-A I-A O B-B", {("A", 0, 2), ("B", 3, 4)}),
        ("I-A I-A O I-A", {("A", 0, 2), ("A", 3, 4)}),  # IOB1
        ("I-A B-A I-A", {("A", 0, 1), ("A", 1, 3)}),
        ("I-A I-B", {("A", 0, 1), ("B", 1, 2)}),  # I- without its B-
        ("B-A E-A S-A O", {("A", 0, 2), ("A", 2, 3)}),  # BIOES
        ("B-A L-A U-A U-A", {("A", 0, 2), ("A", 2, 3), ("A", 3, 4)}),  # BILOU
        ("E-A I-A", {("A", 0, 1), ("A", 1, 2)}),
        ("B-a-b I-a-b", {("a-b", 0, 2)}),
        ("B-O I-O O", {("O", 0, 2)}),
    ],
)
def test_entities_are_found_in_any_scheme(tags: str, found: set[Any]) -> None:
    assert entities(tags.split()) == found


@settings(deadline=None)  # the first call loads scikit-learn
@given(SENTENCES)
def test_scores_are_those_of_seqeval(sentences: list[Any]) -> None:
    """Also where tags break their scheme. seqeval warns of what it cannot divide; the score is 0 there."""
    metrics = pytest.importorskip("seqeval.metrics")
    guess, truth = zip(*sentences, strict=True)
    expected = {
        name: getattr(metrics, f"{name}_score")(list(truth), list(guess), zero_division=0)
        for name in ("f1", "precision", "recall")
    }
    assert entity_scores(sentences) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tags", "are"), [(("O", "B-X", "I-X"), True), (("S-X", "O"), True), (("NN", "VB"), False), (("O",), False)]
)
def test_only_tags_with_prefixes_name_entities(tags: tuple[str, ...], are: bool) -> None:
    assert names_entities(tags) is are and names_entities([*tags, "PLAIN"]) is False
