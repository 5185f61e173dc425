"""Entities in sequences of tags, by the rules of the CoNLL shared tasks, and how many of them were found.

One rule reads IOB1, IOB2, BIOES and BILOU: an entity begins where a tag says so, where its type changes, and after
whatever ended before it. A sequence that breaks its scheme, such as I- after O, still has its entities. seqeval reads
tags in the same way; it needs scikit-learn, and has had no release since 2020.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

OUTSIDE = "O"
BEGINS, ENDS = frozenset("BSU"), frozenset("ESLU")  # prefixes that begin an entity anywhere, and that end one
_PREFIXED = re.compile(r"[BIESLUM]-.+", re.DOTALL)

Entity = tuple[str, int, int]  # its type, its first word, and the one after its last
Sentence = tuple[Sequence[str], Sequence[str]]  # the tags that were guessed, and the true ones


def names_entities(tags: Iterable[str]) -> bool:
    """Whether tags say where entities begin and end; those of parts of speech, for one, do not."""
    inside = [tag for tag in tags if tag != OUTSIDE]
    return bool(inside) and all(_PREFIXED.fullmatch(tag) for tag in inside)


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities of a sentence."""
    found: set[Entity] = set()
    start, kind, ended = 0, OUTSIDE, True  # outside of everything, the kind is O
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, name = tag.partition("-")
        name = OUTSIDE if tag == OUTSIDE else f"-{name}"  # a type may be called O
        if name != kind or ended or prefix in BEGINS:
            if kind != OUTSIDE:
                found.add((kind[1:], start, place))
            start, kind = place, name
        ended = prefix in ENDS
    return found


def entity_scores(sentences: Iterable[Sentence]) -> dict[str, float]:
    """F1, precision and recall over all entities; one counts as found if its words and its type are right."""
    both = guessed = true = 0
    for guess, truth in sentences:
        one, other = entities(guess), entities(truth)
        both, guessed, true = both + len(one & other), guessed + len(one), true + len(other)
    return {
        "f1": 2 * both / (guessed + true) if guessed + true else 0.0,
        "precision": both / guessed if guessed else 0.0,
        "recall": both / true if true else 0.0,
    }
