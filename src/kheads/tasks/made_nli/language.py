"""Sentences with their meanings, and the ways to say who did what to whom."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kheads.tasks.made_nli.words import Scale, Verb

Question = tuple[str, ...]
Answers = frozenset[str]
Meaning = Mapping[Question, Answers]

YES, NO, OPEN = frozenset({"yes"}), frozenset({"no"}), frozenset({"yes", "no"})


class Statement(NamedTuple):
    """A sentence, without capital and full stop, and its meaning."""

    text: str
    meaning: Meaning


class Event(NamedTuple):
    """Somebody does something to somebody else."""

    verb: Verb
    agent: str
    patient: str


@dataclass(frozen=True)
class Cast:
    """The words of one example. Its hypothesis speaks of the first ones, its premise of any of them."""

    people: tuple[str, ...]
    verbs: tuple[Verb, ...]
    groups: tuple[str, ...]
    acts: tuple[Verb, ...]
    scale: Scale
    adjective: str

    @property
    def event(self) -> Event:
        """What the hypothesis is about."""
        return Event(self.verbs[0], *self.people[:2])


def fact(event: Event, answers: Answers) -> Meaning:
    """The meaning of a sentence on one event."""
    return {(event.verb.base, event.agent, event.patient): answers}


def did(verb: Verb, answers: Answers) -> str:
    """The verb in the active voice."""
    return verb.past if answers == YES else f"did not {verb.base}"


def was_done(verb: Verb, answers: Answers) -> str:
    """The verb in the passive voice, without its agent."""
    return f"was {verb.past}" if answers == YES else f"was not {verb.past}"


def active(event: Event, answers: Answers) -> Statement:
    """The event, told of its agent."""
    return Statement(f"{event.agent} {predicate(event, event.agent, answers)}", fact(event, answers))


def _passive(event: Event, answers: Answers) -> Statement:
    return Statement(f"{event.patient} {predicate(event, event.patient, answers)}", fact(event, answers))


def predicate(event: Event, subject: str, answers: Answers) -> str:
    """The event without its subject."""
    if subject == event.agent:
        return f"{did(event.verb, answers)} {event.patient}"
    return f"{was_done(event.verb, answers)} by {event.agent}"


def either_voice(event: Event, answers: Answers, rng: random.Random) -> Statement:
    """The event, active or passive."""
    return active(event, answers) if rng.random() < 0.5 else _passive(event, answers)


def yes_or_no(rng: random.Random) -> Answers:
    """That it was so, or that it was not."""
    return YES if rng.random() < 0.5 else NO


def opposite(answers: Answers) -> Answers:
    """What a denial leaves possible."""
    return {YES: NO, NO: YES}.get(answers, OPEN)


def both(first: Statement, second: Statement, pattern: str) -> Statement:
    """Two statements in one sentence."""
    return Statement(pattern.format(first.text, second.text), {**first.meaning, **second.meaning})


def event_or_near_miss(cast: Cast, rng: random.Random) -> Event:
    """What the hypothesis is about, or the same with another verb, another person or the roles swapped."""
    verb, agent, patient = cast.event
    if rng.random() < 0.5:
        return cast.event
    other_verb, other_person = cast.verbs[-1], cast.people[-1]
    return rng.choice(
        (
            Event(other_verb, agent, patient),
            Event(verb, other_person, patient),
            Event(verb, agent, other_person),
            Event(verb, patient, agent),
        )
    )


def during(one: Statement, other: Statement, rng: random.Random) -> Statement:
    """Two statements, one of them in a clause of its own."""
    first, second = rng.sample((one, other), 2)
    return both(first, second, rng.choice(("while {}, {}", "{}, while {}")))


def union(sets: Iterable[Iterable[str]]) -> Answers:
    """Every answer that one of the sets leaves possible."""
    return frozenset().union(*sets)
