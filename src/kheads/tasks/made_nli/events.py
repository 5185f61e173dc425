"""Premises and hypotheses on one event or two: denied, swapped, passive, excluded, or told in a clause of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations

from kheads.tasks.made_nli.language import (
    NO,
    OPEN,
    YES,
    Answers,
    Cast,
    Event,
    Meaning,
    Question,
    Statement,
    active,
    both,
    did,
    during,
    either_voice,
    event_or_near_miss,
    fact,
    opposite,
    predicate,
    was_done,
    yes_or_no,
)

SOMEBODY = "somebody"


def fact_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    """The event, or that it was not; active."""
    return active(cast.event, yes_or_no(rng))


def voiced_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    """The same, active or passive."""
    return either_voice(cast.event, yes_or_no(rng), rng)


# What "it is ... that" makes of the sentence after it: it stands, it is denied, or it stays open.
CERTAINTIES = (
    ("it is true that", YES),
    ("it is not true that", NO),
    ("it is false that", NO),
    ("it is possible that", OPEN),
    ("it is not certain that", OPEN),
)


def negation(cast: Cast, rng: random.Random) -> Statement:
    """One event under no, one or two negations, or uncertain."""
    event, inner = event_or_near_miss(cast, rng), yes_or_no(rng)
    text, meaning = active(event, inner)
    if rng.random() < 0.4:
        return Statement(text, meaning)
    words, outer = rng.choice(CERTAINTIES)
    return Statement(f"{words} {text}", fact(event, outer if inner == YES else opposite(outer)))


def roles(cast: Cast, rng: random.Random) -> Statement:
    """One event among two people: only the order of the words tells who did it to whom."""
    event, answers = Event(cast.verbs[0], *rng.sample(cast.people[:2], 2)), yes_or_no(rng)
    done = did(event.verb, answers)
    text = rng.choice((f"{event.agent} who {done} {event.patient}", f"{event.patient} whom {event.agent} {done}"))
    return Statement(f"it was {text}", fact(event, answers))


def coordination(cast: Cast, rng: random.Random) -> Statement:
    """Two events with the same verb among three people."""
    pairs = rng.sample(list(permutations(cast.people[:3], 2)), 2)
    first, second = (active(Event(cast.verbs[0], *pair), yes_or_no(rng)) for pair in pairs)
    same = set(first.meaning.values()) == set(second.meaning.values())
    return both(first, second, "{}, and {}" if same else "{}, but {}")


def passives(cast: Cast, rng: random.Random) -> Statement:
    """Who suffered it, from whom, or from anybody at all."""
    text, meaning = rng.choice((_one_agent, _agent_but_not_another, _two_agents, _anybody))(cast, rng)
    somebody: dict[Question, Answers] = {
        (verb, SOMEBODY, patient): YES for (verb, _, patient), answers in meaning.items() if answers == YES
    }
    return Statement(text, {**meaning, **somebody})


def _one_agent(cast: Cast, rng: random.Random) -> Statement:
    return either_voice(event_or_near_miss(cast, rng), yes_or_no(rng), rng)


def _agent_but_not_another(cast: Cast, rng: random.Random) -> Statement:
    verb, agent, patient = event_or_near_miss(cast, rng)
    one, other = rng.sample((agent, cast.people[2]), 2)
    meaning = {**fact(Event(verb, one, patient), YES), **fact(Event(verb, other, patient), NO)}
    return Statement(f"{patient} was {verb.past} by {one} but not by {other}", meaning)


def _two_agents(cast: Cast, rng: random.Random) -> Statement:
    event = event_or_near_miss(cast, rng)
    one, other = rng.sample((event, Event(cast.verbs[1], cast.people[2], event.patient)), 2)
    text = f"{event.patient} was {one.verb.past} by {one.agent} and {other.verb.past} by {other.agent}"
    return Statement(text, {**fact(one, YES), **fact(other, YES)})


def _anybody(cast: Cast, rng: random.Random) -> Statement:
    verb, _, patient = event_or_near_miss(cast, rng)
    if rng.random() < 0.5:
        return Statement(f"somebody {verb.past} {patient}", {(verb.base, SOMEBODY, patient): YES})
    meaning: Meaning = {(verb.base, agent, patient): NO for agent in (SOMEBODY, *cast.people) if agent != patient}
    return Statement(f"nobody {verb.past} {patient}", meaning)


def passives_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    """The event in either voice, or without its agent."""
    if rng.random() < 0.75:
        return voiced_hypothesis(cast, rng)
    (verb, _, patient), answers = cast.event, yes_or_no(rng)
    return Statement(f"{patient} {was_done(verb, answers)}", {(verb.base, SOMEBODY, patient): answers})


# Exclusion: a pattern, whose answer it singles out, and that answer; all others have the opposite answer.
ONLY_ACTIVE = (
    ("only {agent} {did} {patient}", "agent", YES),
    ("nobody except {agent} {did} {patient}", "agent", YES),
    ("everyone except {agent} {did} {patient}", "agent", NO),
    ("{agent} {did} only {patient}", "patient", YES),
    ("{agent} {did} nobody except {patient}", "patient", YES),
    ("{agent} {did} everyone except {patient}", "patient", NO),
)
ONLY_PASSIVE = (
    ("{patient} was {did} only by {agent}", "agent", YES),
    ("{patient} was {did} by everyone except {agent}", "agent", NO),
    ("only {patient} was {did} by {agent}", "patient", YES),
    ("everyone except {patient} was {did} by {agent}", "patient", NO),
)


def only(cast: Cast, rng: random.Random) -> Statement:
    """One person alone did it or suffered it, or all but one."""
    return _exclusion(cast, rng, ONLY_ACTIVE)


def only_passive(cast: Cast, rng: random.Random) -> Statement:
    """The same in the passive."""
    return _exclusion(cast, rng, ONLY_PASSIVE)


def _exclusion(cast: Cast, rng: random.Random, patterns: tuple[tuple[str, str, Answers], ...]) -> Statement:
    pattern, role, answers = rng.choice(patterns)
    event = Event(cast.verbs[0], *rng.sample(cast.people[:3], 2))
    others = [_with_role(event, role, person) for person in cast.people if person not in event]
    meaning = {question: opposite(answers) for other in others for question in fact(other, answers)}
    text = pattern.format(agent=event.agent, did=event.verb.past, patient=event.patient)
    return Statement(text, {**meaning, **fact(event, answers)})


def _with_role(event: Event, role: str, person: str) -> Event:
    return event._replace(agent=person) if role == "agent" else event._replace(patient=person)


# Distractors: a second event in a clause of its own.


def meanwhile(cast: Cast, rng: random.Random) -> Statement:
    """One event beside another of two other people."""
    one = active(event_or_near_miss(cast, rng), yes_or_no(rng))
    other = active(Event(cast.verbs[1], *cast.people[2:4]), yes_or_no(rng))
    return during(one, other, rng)


def relative(cast: Cast, rng: random.Random) -> Statement:
    """Two active clauses about one person, who is object of the relative clause or subject of both."""
    event, answers, other_answers = event_or_near_miss(cast, rng), yes_or_no(rng), yes_or_no(rng)
    subject = rng.choice((event.agent, event.patient))
    other = Event(cast.verbs[1], subject, cast.people[2])
    meaning = {**fact(event, answers), **fact(other, other_answers)}
    main = predicate(other, subject, other_answers)
    if subject == event.patient:
        return Statement(_about(subject, f"whom {event.agent} {did(event.verb, answers)}", main), meaning)
    relative, main = rng.sample((predicate(event, subject, answers), main), 2)
    return Statement(_about(subject, f"who {relative}", main), meaning)


def relative_passive(cast: Cast, rng: random.Random) -> Statement:
    """One active and one passive clause about one person."""
    event, answers, other_answers = event_or_near_miss(cast, rng), yes_or_no(rng), yes_or_no(rng)
    subject, person, verb = rng.choice((event.agent, event.patient)), cast.people[2], cast.verbs[1]
    other = Event(verb, person, subject) if subject == event.agent else Event(verb, subject, person)
    relative, main = rng.sample((predicate(event, subject, answers), predicate(other, subject, other_answers)), 2)
    return Statement(_about(subject, f"who {relative}", main), {**fact(event, answers), **fact(other, other_answers)})


def _about(subject: str, relative: str, main: str) -> str:
    return f"{subject} {relative} {main}" if subject.startswith("the ") else f"{subject}, {relative}, {main}"


# The words before an infinitive, and what they say about it: it happened, it did not, or it stays open.
OPERATORS = (
    ("managed to", YES),
    ("remembered to", YES),
    ("failed to", NO),
    ("forgot to", NO),
    ("refused to", NO),
    ("wanted to", OPEN),
    ("promised to", OPEN),
    ("did not plan to", OPEN),
)


def implicatives(cast: Cast, rng: random.Random) -> Statement:
    """One or two intentions of a person."""
    if rng.random() < 0.5:
        return _two_intentions(cast, rng, lambda subject, first, second: f"{subject} {first} and {second}")
    event, (words, answers) = event_or_near_miss(cast, rng), rng.choice(OPERATORS)
    return Statement(f"{event.agent} {words} {event.verb.base} {event.patient}", fact(event, answers))


def relative_implicatives(cast: Cast, rng: random.Random) -> Statement:
    """Two intentions, one of them in a relative clause."""
    return _two_intentions(cast, rng, lambda subject, first, second: _about(subject, f"who {first}", second))


def _two_intentions(cast: Cast, rng: random.Random, render: Callable[[str, str, str], str]) -> Statement:
    """Two intentions with different outcomes, so that the words alone do not tell which event happened."""
    event = event_or_near_miss(cast, rng)
    other = Event(cast.verbs[1], event.agent, cast.people[2])
    words, answers = rng.choice(OPERATORS)
    other_words, other_answers = rng.choice([operator for operator in OPERATORS if operator[1] != answers])
    first, second = rng.sample(
        (f"{words} {event.verb.base} {event.patient}", f"{other_words} {other.verb.base} {other.patient}"), 2
    )
    return Statement(render(event.agent, first, second), {**fact(event, answers), **fact(other, other_answers)})
