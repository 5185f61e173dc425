"""Premises and hypotheses on how many of a group did it, and how often."""

from __future__ import annotations

import random
from collections.abc import Mapping

from kheads.tasks.made_nli.events import CERTAINTIES
from kheads.tasks.made_nli.language import (
    NO,
    YES,
    Answers,
    Cast,
    Event,
    Statement,
    did,
    during,
    event_or_near_miss,
    fact,
    union,
)
from kheads.tasks.made_nli.words import Verb

# "few" is at least one but less than half, "most" more than half but not all.
NONE, FEW, HALF, MOST, ALL = "none", "few", "half", "most", "all"
LEVELS = frozenset({NONE, FEW, HALF, MOST, ALL})
AT_LEAST_ONE, NOT_ALL, PART = LEVELS - {NONE}, LEVELS - {ALL}, LEVELS - {NONE, ALL}
MAJORITY, MINORITY = frozenset({MOST, ALL}), frozenset({NONE, FEW})
# By meaning: what is said of the group, and whether they did it or did not.
QUANTIFIERS = (
    (frozenset({ALL}), (("all of the {}s", YES), ("every {}", YES))),
    (frozenset({NONE}), (("none of the {}s", YES), ("no {}", YES))),
    (AT_LEAST_ONE, (("some of the {}s", YES), ("at least one {}", YES))),
    (NOT_ALL, (("not all of the {}s", YES), ("not every {}", YES), ("some of the {}s", NO), ("at least one {}", NO))),
    (MAJORITY, (("most of the {}s", YES), ("more than half of the {}s", YES))),
    (MINORITY, (("fewer than half of the {}s", YES), ("most of the {}s", NO))),
    (PART, (("only some of the {}s", YES), ("some but not all of the {}s", YES))),
)
FREQUENCIES = (
    (frozenset({ALL}), ("{agent} always {past} {patient}", "{agent} {past} {patient} every time")),
    (frozenset({NONE}), ("{agent} never {past} {patient}", "{agent} did not {base} {patient} even once")),
    (AT_LEAST_ONE, ("{agent} sometimes {past} {patient}", "{agent} {past} {patient} at least once")),
    (NOT_ALL, ("{agent} did not always {base} {patient}", "sometimes {agent} did not {base} {patient}")),
    (MAJORITY, ("{agent} usually {past} {patient}", "{agent} {past} {patient} most of the time")),
    (MINORITY, ("{agent} usually did not {base} {patient}", "most of the time, {agent} did not {base} {patient}")),
    (PART, ("{agent} only sometimes {past} {patient}", "{agent} {past} {patient} sometimes but not always")),
)
OF_A_PART: Mapping[str, Answers] = {
    level: LEVELS if level in (FEW, HALF, MOST) else frozenset({level}) for level in LEVELS
}
OF_THE_WHOLE: Mapping[str, Answers] = {
    NONE: LEVELS - {ALL},
    ALL: LEVELS - {NONE},
    **dict.fromkeys((FEW, HALF, MOST), LEVELS - {NONE, ALL}),
}


def _quantified(group: str, act: Verb, rng: random.Random) -> Statement:
    levels, wordings = rng.choice(QUANTIFIERS)
    quantifier, answers = rng.choice(wordings)
    return Statement(f"{quantifier.format(group)} {did(act, answers)}", {(act.base, group): levels})


def quantified_agents(cast: Cast, rng: random.Random) -> Statement:
    """A group does something to a person; what starts with "not" or is negated has no clear passive."""
    (verb, _, patient), group = cast.event, cast.groups[0]
    levels, wordings = rng.choice(QUANTIFIERS)
    quantifier, answers = rng.choice(wordings)
    agents = quantifier.format(group)
    if answers == NO or agents.startswith("not ") or rng.random() < 0.5:
        return Statement(f"{agents} {did(verb, answers)} {patient}", {(verb.base, group, patient): levels})
    return Statement(f"{patient} was {verb.past} by {agents}", {(verb.base, group, patient): levels})


def frequency(cast: Cast, rng: random.Random) -> Statement:
    """How often it happened, or something like it."""
    return _frequent(event_or_near_miss(cast, rng), rng)


def frequency_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    """How often it happened."""
    return _frequent(cast.event, rng)


def _frequent(event: Event, rng: random.Random) -> Statement:
    levels, wordings = rng.choice(FREQUENCIES)
    text = rng.choice(wordings).format(agent=event.agent, patient=event.patient, **event.verb._asdict())
    return Statement(text, fact(event, levels))


def quantifiers(cast: Cast, rng: random.Random) -> Statement:
    """How many of a group did it."""
    return _quantified(cast.groups[0], cast.acts[0], rng)


def quantifiers_negation(cast: Cast, rng: random.Random) -> Statement:
    """The same, affirmed or denied."""
    text, meaning = quantifiers(cast, rng)
    words, answers = rng.choice(CERTAINTIES[:3])
    if answers == NO:
        meaning = {question: LEVELS - levels for question, levels in meaning.items()}
    return Statement(f"{words} {text}", meaning)


def while_quantifiers(cast: Cast, rng: random.Random) -> Statement:
    """How many of one group did one thing, while so many of another did another."""
    first, second = (_quantified(group, act, rng) for group, act in zip(cast.groups, cast.acts, strict=True))
    return during(first, second, rng)


def adjectives(cast: Cast, rng: random.Random) -> Statement:
    """A statement about a whole group or about a part of it, and what it says about the other one."""
    whole, part, act = cast.groups[0], f"{cast.adjective} {cast.groups[0]}", cast.acts[0]
    named, other, table = rng.choice(((whole, part, OF_A_PART), (part, whole, OF_THE_WHOLE)))
    text, meaning = _quantified(named, act, rng)
    follows = union(table[level] for level in meaning[act.base, named])
    return Statement(text, {**meaning, (act.base, other): follows})


def adjectives_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    """How many of a group, or of a part of it, did it."""
    return _quantified(rng.choice((cast.groups[0], f"{cast.adjective} {cast.groups[0]}")), cast.acts[0], rng)
