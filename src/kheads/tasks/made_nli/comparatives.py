"""Premises and hypotheses on where two people stand on a scale."""

from __future__ import annotations

import random
from itertools import product

from kheads.tasks.made_nli.language import Answers, Cast, Meaning, Question, Statement, both, union
from kheads.tasks.made_nli.words import Scale

LESS, SAME, MORE = "less", "same", "more"
OTHER_WAY = {LESS: MORE, SAME: SAME, MORE: LESS}


def _compared(scale: Scale, first: str, second: str, negated: bool, rng: random.Random) -> Statement:
    answer, than = rng.choice(
        ((MORE, f"{scale.more} than"), (LESS, f"{scale.less} than"), (SAME, f"exactly as {scale.adjective} as"))
    )
    answers = frozenset({LESS, SAME, MORE} - {answer}) if negated else frozenset({answer})
    return Statement(f"{first} is {'not ' if negated else ''}{than} {second}", {(first, second): answers})


def _both_ways(comparisons: Meaning) -> Meaning:
    other_way: dict[Question, Answers] = {
        (second, first): frozenset(OTHER_WAY[answer] for answer in answers)
        for (first, second), answers in comparisons.items()
    }
    return {**comparisons, **other_way}


def comparatives(cast: Cast, rng: random.Random) -> Statement:
    """Two of three people compared."""
    first, second = rng.sample(cast.people[:3], 2)
    text, meaning = _compared(cast.scale, first, second, False, rng)
    return Statement(text, _both_ways(meaning))


def comparatives_negation(cast: Cast, rng: random.Random) -> Statement:
    """Two people compared, or the comparison denied."""
    first, second = rng.sample(cast.people[:2], 2)
    text, meaning = _compared(cast.scale, first, second, rng.random() < 0.5, rng)
    return Statement(text, _both_ways(meaning))


def transitivity(cast: Cast, rng: random.Random) -> Statement:
    """Compares two people with a third, and says what follows about the two."""
    left, middle, right = rng.sample(cast.people[:3], 3)
    first, second = (_in_some_order(cast.scale, *pair, rng) for pair in ((left, middle), (middle, right)))
    text, meaning = both(first, second, "{}, and {}")
    known = _both_ways(meaning)
    follows = union(_composed(one, two) for one, two in product(known[left, middle], known[middle, right]))
    return Statement(text, {**known, **_both_ways({(left, right): follows})})


def _in_some_order(scale: Scale, one: str, other: str, rng: random.Random) -> Statement:
    first, second = rng.sample((one, other), 2)
    return _compared(scale, first, second, False, rng)


def _composed(first: str, second: str) -> set[str]:
    """What two steps along a scale amount to."""
    if SAME in (first, second):
        return {first, second} - {SAME} or {SAME}
    return {first} if first == second else {LESS, SAME, MORE}


def comparatives_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    """The first two people compared."""
    return _compared(cast.scale, cast.people[0], cast.people[1], False, rng)


def comparatives_negation_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    """The same, or its denial."""
    return _compared(cast.scale, cast.people[0], cast.people[1], rng.random() < 0.5, rng)
