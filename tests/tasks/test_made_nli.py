"""The embedded task: right by construction, balanced, and not solvable by counting words."""

import re
from collections import Counter

import pytest
import torch

from kheads.tasks.made_nli import LABELS, PHENOMENA, Example, generate, relation
from kheads.tasks.made_nli.words import WORDS

TRAIN, EVAL = generate("train", 6000), generate("eval", 1500)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def test_labels_follow_from_meanings() -> None:
    """What a premise leaves possible, against what a hypothesis allows."""
    question = ("thank", "a", "b")
    yes, no, either = frozenset({"yes"}), frozenset({"no"}), frozenset({"yes", "no"})
    assert relation({question: yes}, {question: yes}) == "entailment"
    assert relation({question: no}, {question: yes}) == "contradiction"
    assert relation({question: either}, {question: yes}) == "neutral"
    assert relation({("thank", "b", "a"): yes}, {question: yes}) == "neutral"


def test_the_same_seed_gives_the_same_list() -> None:
    assert generate("eval", 50, seed=3) == generate("eval", 50, seed=3) != generate("eval", 50, seed=4)


def test_labels_are_balanced_and_pairs_differ() -> None:
    for examples in (TRAIN, EVAL):
        counts = Counter(example.label for example in examples)
        assert set(counts) == set(LABELS) and max(counts.values()) - min(counts.values()) <= 1
        assert len({(example.premise, example.hypothesis) for example in examples}) == len(examples)
        by_phenomenon = Counter((example.phenomenon, example.label) for example in examples)
        for phenomenon in PHENOMENA:
            shares = [by_phenomenon[phenomenon, label] for label in LABELS]
            assert max(shares) - min(shares) <= 1 + 0.1 * sum(shares)


def test_evaluation_uses_unseen_content_words() -> None:
    """Nouns, names, verbs and adjectives of the two splits are disjoint, in the lists and in the sentences."""
    seen = {word for example in TRAIN for word in words(example.premise + " " + example.hypothesis)}
    for kind in ("nouns", "names", "adjectives"):
        assert not set(getattr(WORDS["train"], kind)) & set(getattr(WORDS["eval"], kind))
        assert not {word.lower() for word in getattr(WORDS["eval"], kind)} & seen
    for kind in ("verbs", "acts"):
        assert not {verb.base for verb in getattr(WORDS["eval"], kind)} & seen


def test_sentences_are_sentences() -> None:
    for example in EVAL:
        for text in (example.premise, example.hypothesis):
            assert text[0].isupper() and text.endswith(".") and "  " not in text and "{" not in text


def _features(example: Example, pair: bool, vocabulary: dict[str, int]) -> torch.Tensor:
    """Words of the hypothesis; with `pair`, which words are shared and which stand on one side only."""
    premise, hypothesis = set(words(example.premise)), set(words(example.hypothesis))
    groups = [hypothesis] if not pair else [premise & hypothesis, premise - hypothesis, hypothesis - premise]
    vector = torch.zeros(len(groups) * (len(vocabulary) + 1))
    for index, group in enumerate(groups):
        for word in group & vocabulary.keys():
            vector[index * (len(vocabulary) + 1) + vocabulary[word]] = 1
        vector[index * (len(vocabulary) + 1) + len(vocabulary)] = len(group) / 10
    return vector


def _encoded(part: list[Example], pair: bool, vocabulary: dict[str, int]) -> tuple[torch.Tensor, torch.Tensor]:
    features = torch.stack([_features(example, pair, vocabulary) for example in part])
    return features, torch.tensor([LABELS.index(example.label) for example in part])


@pytest.mark.parametrize(("pair", "ceiling"), [(False, 0.45), (True, 0.60)])
def test_counting_words_is_not_enough(pair: bool, ceiling: float) -> None:
    """A linear classifier of words stays near chance on the hypothesis alone, and far from solving the pair."""
    known = sorted({word for example in EVAL for word in words(example.premise + " " + example.hypothesis)})
    vocabulary = {word: index for index, word in enumerate(known)}
    (train, train_labels), (test, test_labels) = (_encoded(part, pair, vocabulary) for part in (TRAIN, EVAL))
    torch.manual_seed(0)
    model = torch.nn.Linear(train.shape[1], 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=1e-4)
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(model(train), train_labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    assert (model(test).argmax(-1) == test_labels).float().mean() < ceiling


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="`split` must be one of 'train', 'eval'; got 'test'"):
        generate("test", 3)
    with pytest.raises(ValueError, match="`count` must be 0 or more; got -1"):
        generate("eval", -1)


def test_phenomena_can_be_chosen() -> None:
    chosen = ("roles", "while")
    assert {example.phenomenon for example in generate("train", 60, phenomena=chosen)} == set(chosen)
    with pytest.raises(ValueError, match=r"`phenomena` must be names from negation, .*; got 'sarcasm'"):
        generate("train", 6, phenomena=("sarcasm",))
