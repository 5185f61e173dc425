"""Natural-language inference made by rule: small, balanced, and solvable only by reading who did what to whom.

A meaning says, for each question it speaks about, which answers remain possible: did the baker thank the pilot (yes,
no); how many of the bakers danced (none, few, half, most, all); how tall is the baker next to the pilot (less, same,
more). Premise and hypothesis are rendered from meanings, and one function, `relation`, derives every label.

Three things keep shortcuts out. The hypothesis is drawn before the label has any influence, so it tells nothing about
the label. The premise arranges nearly the same words in another way, so overlap tells little. Nouns, names, verbs and
adjectives of the evaluation split never occur in training.

Readings are logical: "some" is at least one, perhaps all; "most" is more than half; a group that is mentioned has
members; different nouns and names are different people; "everyone" and "nobody" speak of other people.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, permutations, product
from types import MappingProxyType
from typing import NamedTuple

from kheads.tasks.made_nli_words import WORDS, Scale, Verb, Words

LABELS = ("entailment", "neutral", "contradiction")

Question = tuple[str, ...]
Answers = frozenset[str]
Meaning = Mapping[Question, Answers]

YES, NO, OPEN = frozenset({"yes"}), frozenset({"no"}), frozenset({"yes", "no"})
SOMEBODY = "somebody"
MAX_REPEATS = 1000


@dataclass(frozen=True)
class Example:
    """A premise, a hypothesis, their label (one of `LABELS`) and what the pair tests (one of `PHENOMENA`)."""

    premise: str
    hypothesis: str
    label: str
    phenomenon: str


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


Builder = Callable[[Cast, random.Random], Statement]


class Phenomenon(NamedTuple):
    """How premises and hypotheses are made, and how often, compared with other phenomena."""

    premise: Builder
    hypothesis: Builder
    share: int


def generate(split: str, count: int, seed: int = 0, phenomena: Sequence[str] | None = None) -> list[Example]:
    """Makes `count` different examples, with equally many of each label (within 1).

    Args:
        split: "train" or "eval"; the two share no content word, hence no example.
        count: how many examples.
        seed: another seed gives other examples; the same one gives the same list.
        phenomena: names from `PHENOMENA` to draw from; all of them if not given.
    """
    unknown = [name for name in phenomena or () if name not in _PHENOMENA]
    if unknown:
        raise ValueError(f"`phenomena` must be names from {', '.join(PHENOMENA)}; got {unknown[0]!r}.")
    if split not in WORDS:
        raise ValueError(f"`split` must be one of {', '.join(map(repr, WORDS))}; got {split!r}.")
    if count < 0:
        raise ValueError(f"`count` must be 0 or more; got {count}.")
    rng = random.Random(f"{split} {seed}")
    examples: dict[tuple[str, str], Example] = {}
    for phenomenon, label in _slots(count, rng, phenomena or PHENOMENA):
        example = _new_example(phenomenon, label, WORDS[split], rng, examples)
        examples[example.premise, example.hypothesis] = example
    return list(examples.values())


def relation(premise: Meaning, hypothesis: Meaning) -> str:
    """Returns the label: what the premise leaves possible, against what the hypothesis allows.

    Args:
        premise: a meaning with everything that follows from it written out.
        hypothesis: a meaning that speaks of exactly one question and leaves at least one of its answers out.
    """
    ((question, allowed),) = hypothesis.items()
    possible = premise.get(question)
    if possible is None:
        return "neutral"
    if possible <= allowed:
        return "entailment"
    return "neutral" if possible & allowed else "contradiction"


def _slots(count: int, rng: random.Random, phenomena: Sequence[str]) -> list[tuple[str, str]]:
    """A phenomenon and a label for each example, in random order; every phenomenon takes the labels in turn."""
    names = [name for name in phenomena for _ in range(_PHENOMENA[name].share)]
    rng.shuffle(names)
    slots = list(islice(cycle(product(names, LABELS)), count))
    rng.shuffle(slots)
    return slots


def _new_example(
    phenomenon: str, label: str, words: Words, rng: random.Random, taken: Mapping[tuple[str, str], Example]
) -> Example:
    for _ in range(MAX_REPEATS):
        example = _example(phenomenon, label, words, rng)
        if (example.premise, example.hypothesis) not in taken:
            return example
    raise ValueError(f"`count` is too large: no new example of {phenomenon!r} was found after {len(taken)} examples.")


def _example(phenomenon: str, label: str, words: Words, rng: random.Random) -> Example:
    """Draws a hypothesis, then premises until the label fits, so that the label does not show in the hypothesis."""
    build_premise, build_hypothesis, _ = _PHENOMENA[phenomenon]
    cast = _draw_cast(words, rng)
    hypothesis = build_hypothesis(cast, rng)
    premise = build_premise(cast, rng)
    while premise.text == hypothesis.text or relation(premise.meaning, hypothesis.meaning) != label:
        premise = build_premise(cast, rng)
    return Example(_sentence(premise.text), _sentence(hypothesis.text), label, phenomenon)


def _draw_cast(words: Words, rng: random.Random) -> Cast:
    nouns = rng.sample(words.nouns, 7)
    people = [f"the {noun}" for noun in nouns[:5]] + rng.sample(words.names, 5)
    return Cast(
        people=tuple(rng.sample(people, 5)),
        verbs=tuple(rng.sample(words.verbs, 3)),
        groups=tuple(nouns[5:]),
        acts=tuple(rng.sample(words.acts, 2)),
        scale=rng.choice(words.scales),
        adjective=rng.choice(words.adjectives),
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


# Events: who did what to whom.


def _fact(event: Event, answers: Answers) -> Meaning:
    return {(event.verb.base, event.agent, event.patient): answers}


def _did(verb: Verb, answers: Answers) -> str:
    return verb.past if answers == YES else f"did not {verb.base}"


def _was_done(verb: Verb, answers: Answers) -> str:
    return f"was {verb.past}" if answers == YES else f"was not {verb.past}"


def _active(event: Event, answers: Answers) -> Statement:
    return Statement(f"{event.agent} {_predicate(event, event.agent, answers)}", _fact(event, answers))


def _passive(event: Event, answers: Answers) -> Statement:
    return Statement(f"{event.patient} {_predicate(event, event.patient, answers)}", _fact(event, answers))


def _predicate(event: Event, subject: str, answers: Answers) -> str:
    if subject == event.agent:
        return f"{_did(event.verb, answers)} {event.patient}"
    return f"{_was_done(event.verb, answers)} by {event.agent}"


def _either_voice(event: Event, answers: Answers, rng: random.Random) -> Statement:
    return _active(event, answers) if rng.random() < 0.5 else _passive(event, answers)


def _yes_or_no(rng: random.Random) -> Answers:
    return YES if rng.random() < 0.5 else NO


def _opposite(answers: Answers) -> Answers:
    return {YES: NO, NO: YES}.get(answers, OPEN)


def _both(first: Statement, second: Statement, pattern: str) -> Statement:
    return Statement(pattern.format(first.text, second.text), {**first.meaning, **second.meaning})


def _event_or_near_miss(cast: Cast, rng: random.Random) -> Event:
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


def _fact_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _active(cast.event, _yes_or_no(rng))


def _voiced_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _either_voice(cast.event, _yes_or_no(rng), rng)


# What "it is ... that" makes of the sentence after it: it stands, it is denied, or it stays open.
CERTAINTIES = (
    ("it is true that", YES),
    ("it is not true that", NO),
    ("it is false that", NO),
    ("it is possible that", OPEN),
    ("it is not certain that", OPEN),
)


def _negation(cast: Cast, rng: random.Random) -> Statement:
    """One event under no, one or two negations, or uncertain."""
    event, inner = _event_or_near_miss(cast, rng), _yes_or_no(rng)
    text, meaning = _active(event, inner)
    if rng.random() < 0.4:
        return Statement(text, meaning)
    words, outer = rng.choice(CERTAINTIES)
    return Statement(f"{words} {text}", _fact(event, outer if inner == YES else _opposite(outer)))


def _roles(cast: Cast, rng: random.Random) -> Statement:
    """One event among two people: only the order of the words tells who did it to whom."""
    event, answers = Event(cast.verbs[0], *rng.sample(cast.people[:2], 2)), _yes_or_no(rng)
    did = _did(event.verb, answers)
    text = rng.choice((f"{event.agent} who {did} {event.patient}", f"{event.patient} whom {event.agent} {did}"))
    return Statement(f"it was {text}", _fact(event, answers))


def _coordination(cast: Cast, rng: random.Random) -> Statement:
    """Two events with the same verb among three people."""
    pairs = rng.sample(list(permutations(cast.people[:3], 2)), 2)
    first, second = (_active(Event(cast.verbs[0], *pair), _yes_or_no(rng)) for pair in pairs)
    same = set(first.meaning.values()) == set(second.meaning.values())
    return _both(first, second, "{}, and {}" if same else "{}, but {}")


def _passives(cast: Cast, rng: random.Random) -> Statement:
    text, meaning = rng.choice((_one_agent, _agent_but_not_another, _two_agents, _anybody))(cast, rng)
    somebody: dict[Question, Answers] = {
        (verb, SOMEBODY, patient): YES for (verb, _, patient), answers in meaning.items() if answers == YES
    }
    return Statement(text, {**meaning, **somebody})


def _one_agent(cast: Cast, rng: random.Random) -> Statement:
    return _either_voice(_event_or_near_miss(cast, rng), _yes_or_no(rng), rng)


def _agent_but_not_another(cast: Cast, rng: random.Random) -> Statement:
    verb, agent, patient = _event_or_near_miss(cast, rng)
    one, other = rng.sample((agent, cast.people[2]), 2)
    meaning = {**_fact(Event(verb, one, patient), YES), **_fact(Event(verb, other, patient), NO)}
    return Statement(f"{patient} was {verb.past} by {one} but not by {other}", meaning)


def _two_agents(cast: Cast, rng: random.Random) -> Statement:
    event = _event_or_near_miss(cast, rng)
    one, other = rng.sample((event, Event(cast.verbs[1], cast.people[2], event.patient)), 2)
    text = f"{event.patient} was {one.verb.past} by {one.agent} and {other.verb.past} by {other.agent}"
    return Statement(text, {**_fact(one, YES), **_fact(other, YES)})


def _anybody(cast: Cast, rng: random.Random) -> Statement:
    verb, _, patient = _event_or_near_miss(cast, rng)
    if rng.random() < 0.5:
        return Statement(f"somebody {verb.past} {patient}", {(verb.base, SOMEBODY, patient): YES})
    meaning: Meaning = {(verb.base, agent, patient): NO for agent in (SOMEBODY, *cast.people) if agent != patient}
    return Statement(f"nobody {verb.past} {patient}", meaning)


def _passives_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    if rng.random() < 0.75:
        return _voiced_hypothesis(cast, rng)
    (verb, _, patient), answers = cast.event, _yes_or_no(rng)
    return Statement(f"{patient} {_was_done(verb, answers)}", {(verb.base, SOMEBODY, patient): answers})


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


def _only(cast: Cast, rng: random.Random) -> Statement:
    return _exclusion(cast, rng, ONLY_ACTIVE)


def _only_passive(cast: Cast, rng: random.Random) -> Statement:
    return _exclusion(cast, rng, ONLY_PASSIVE)


def _exclusion(cast: Cast, rng: random.Random, patterns: tuple[tuple[str, str, Answers], ...]) -> Statement:
    pattern, role, answers = rng.choice(patterns)
    event = Event(cast.verbs[0], *rng.sample(cast.people[:3], 2))
    others = [_with_role(event, role, person) for person in cast.people if person not in event]
    meaning = {question: _opposite(answers) for other in others for question in _fact(other, answers)}
    text = pattern.format(agent=event.agent, did=event.verb.past, patient=event.patient)
    return Statement(text, {**meaning, **_fact(event, answers)})


def _with_role(event: Event, role: str, person: str) -> Event:
    return event._replace(agent=person) if role == "agent" else event._replace(patient=person)


# Distractors: a second event in a clause of its own.


def _while(cast: Cast, rng: random.Random) -> Statement:
    one = _active(_event_or_near_miss(cast, rng), _yes_or_no(rng))
    other = _active(Event(cast.verbs[1], *cast.people[2:4]), _yes_or_no(rng))
    return _during(one, other, rng)


def _during(one: Statement, other: Statement, rng: random.Random) -> Statement:
    first, second = rng.sample((one, other), 2)
    return _both(first, second, rng.choice(("while {}, {}", "{}, while {}")))


def _relative(cast: Cast, rng: random.Random) -> Statement:
    """Two active clauses about one person, who is object of the relative clause or subject of both."""
    event, answers, other_answers = _event_or_near_miss(cast, rng), _yes_or_no(rng), _yes_or_no(rng)
    subject = rng.choice((event.agent, event.patient))
    other = Event(cast.verbs[1], subject, cast.people[2])
    meaning = {**_fact(event, answers), **_fact(other, other_answers)}
    main = _predicate(other, subject, other_answers)
    if subject == event.patient:
        return Statement(_about(subject, f"whom {event.agent} {_did(event.verb, answers)}", main), meaning)
    relative, main = rng.sample((_predicate(event, subject, answers), main), 2)
    return Statement(_about(subject, f"who {relative}", main), meaning)


def _relative_passive(cast: Cast, rng: random.Random) -> Statement:
    """One active and one passive clause about one person."""
    event, answers, other_answers = _event_or_near_miss(cast, rng), _yes_or_no(rng), _yes_or_no(rng)
    subject, person, verb = rng.choice((event.agent, event.patient)), cast.people[2], cast.verbs[1]
    other = Event(verb, person, subject) if subject == event.agent else Event(verb, subject, person)
    relative, main = rng.sample((_predicate(event, subject, answers), _predicate(other, subject, other_answers)), 2)
    return Statement(_about(subject, f"who {relative}", main), {**_fact(event, answers), **_fact(other, other_answers)})


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


def _implicatives(cast: Cast, rng: random.Random) -> Statement:
    """One or two intentions of a person."""
    if rng.random() < 0.5:
        return _two_intentions(cast, rng, lambda subject, first, second: f"{subject} {first} and {second}")
    event, (words, answers) = _event_or_near_miss(cast, rng), rng.choice(OPERATORS)
    return Statement(f"{event.agent} {words} {event.verb.base} {event.patient}", _fact(event, answers))


def _relative_implicatives(cast: Cast, rng: random.Random) -> Statement:
    return _two_intentions(cast, rng, lambda subject, first, second: _about(subject, f"who {first}", second))


def _two_intentions(cast: Cast, rng: random.Random, render: Callable[[str, str, str], str]) -> Statement:
    """Two intentions with different outcomes, so that the words alone do not tell which event happened."""
    event = _event_or_near_miss(cast, rng)
    other = Event(cast.verbs[1], event.agent, cast.people[2])
    words, answers = rng.choice(OPERATORS)
    other_words, other_answers = rng.choice([operator for operator in OPERATORS if operator[1] != answers])
    first, second = rng.sample(
        (f"{words} {event.verb.base} {event.patient}", f"{other_words} {other.verb.base} {other.patient}"), 2
    )
    return Statement(render(event.agent, first, second), {**_fact(event, answers), **_fact(other, other_answers)})


# Quantifiers: how many members of a group did it.

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
    return Statement(f"{quantifier.format(group)} {_did(act, answers)}", {(act.base, group): levels})


def _quantified_agents(cast: Cast, rng: random.Random) -> Statement:
    """A group does something to a person; what starts with "not" or is negated has no clear passive."""
    (verb, _, patient), group = cast.event, cast.groups[0]
    levels, wordings = rng.choice(QUANTIFIERS)
    quantifier, answers = rng.choice(wordings)
    agents = quantifier.format(group)
    if answers == NO or agents.startswith("not ") or rng.random() < 0.5:
        return Statement(f"{agents} {_did(verb, answers)} {patient}", {(verb.base, group, patient): levels})
    return Statement(f"{patient} was {verb.past} by {agents}", {(verb.base, group, patient): levels})


def _frequency(cast: Cast, rng: random.Random) -> Statement:
    return _frequent(_event_or_near_miss(cast, rng), rng)


def _frequency_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _frequent(cast.event, rng)


def _frequent(event: Event, rng: random.Random) -> Statement:
    levels, wordings = rng.choice(FREQUENCIES)
    text = rng.choice(wordings).format(agent=event.agent, patient=event.patient, **event.verb._asdict())
    return Statement(text, _fact(event, levels))


def _quantifiers(cast: Cast, rng: random.Random) -> Statement:
    return _quantified(cast.groups[0], cast.acts[0], rng)


def _quantifiers_negation(cast: Cast, rng: random.Random) -> Statement:
    text, meaning = _quantifiers(cast, rng)
    words, answers = rng.choice(CERTAINTIES[:3])
    if answers == NO:
        meaning = {question: LEVELS - levels for question, levels in meaning.items()}
    return Statement(f"{words} {text}", meaning)


def _while_quantifiers(cast: Cast, rng: random.Random) -> Statement:
    first, second = (_quantified(group, act, rng) for group, act in zip(cast.groups, cast.acts, strict=True))
    return _during(first, second, rng)


def _adjectives(cast: Cast, rng: random.Random) -> Statement:
    """A statement about a whole group or about a part of it, and what it says about the other one."""
    whole, part, act = cast.groups[0], f"{cast.adjective} {cast.groups[0]}", cast.acts[0]
    named, other, table = rng.choice(((whole, part, OF_A_PART), (part, whole, OF_THE_WHOLE)))
    text, meaning = _quantified(named, act, rng)
    follows = _union(table[level] for level in meaning[act.base, named])
    return Statement(text, {**meaning, (act.base, other): follows})


def _adjectives_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _quantified(rng.choice((cast.groups[0], f"{cast.adjective} {cast.groups[0]}")), cast.acts[0], rng)


def _union(sets: Iterable[Iterable[str]]) -> Answers:
    return frozenset().union(*sets)


# Comparatives: where two people stand on a scale.

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


def _comparatives(cast: Cast, rng: random.Random) -> Statement:
    first, second = rng.sample(cast.people[:3], 2)
    text, meaning = _compared(cast.scale, first, second, False, rng)
    return Statement(text, _both_ways(meaning))


def _comparatives_negation(cast: Cast, rng: random.Random) -> Statement:
    first, second = rng.sample(cast.people[:2], 2)
    text, meaning = _compared(cast.scale, first, second, rng.random() < 0.5, rng)
    return Statement(text, _both_ways(meaning))


def _transitivity(cast: Cast, rng: random.Random) -> Statement:
    """Compares two people with a third, and says what follows about the two."""
    left, middle, right = rng.sample(cast.people[:3], 3)
    first, second = (_in_some_order(cast.scale, *pair, rng) for pair in ((left, middle), (middle, right)))
    text, meaning = _both(first, second, "{}, and {}")
    known = _both_ways(meaning)
    follows = _union(_composed(one, two) for one, two in product(known[left, middle], known[middle, right]))
    return Statement(text, {**known, **_both_ways({(left, right): follows})})


def _in_some_order(scale: Scale, one: str, other: str, rng: random.Random) -> Statement:
    first, second = rng.sample((one, other), 2)
    return _compared(scale, first, second, False, rng)


def _composed(first: str, second: str) -> set[str]:
    """What two steps along a scale amount to."""
    if SAME in (first, second):
        return {first, second} - {SAME} or {SAME}
    return {first} if first == second else {LESS, SAME, MORE}


def _comparatives_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _compared(cast.scale, cast.people[0], cast.people[1], False, rng)


def _comparatives_negation_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _compared(cast.scale, cast.people[0], cast.people[1], rng.random() < 0.5, rng)


_PHENOMENA: Mapping[str, Phenomenon] = MappingProxyType(
    {
        "negation": Phenomenon(_negation, _fact_hypothesis, 6),
        "frequency": Phenomenon(_frequency, _frequency_hypothesis, 6),
        "quantifiers": Phenomenon(_quantifiers, _quantifiers, 6),
        "quantifiers+passive": Phenomenon(_quantified_agents, _quantified_agents, 6),
        "adjectives": Phenomenon(_adjectives, _adjectives_hypothesis, 6),
        "passive": Phenomenon(_passives, _passives_hypothesis, 4),
        "implicatives": Phenomenon(_implicatives, _fact_hypothesis, 4),
        "quantifiers+negation": Phenomenon(_quantifiers_negation, _quantifiers, 2),
        "roles": Phenomenon(_roles, _fact_hypothesis, 1),
        "coordination": Phenomenon(_coordination, _fact_hypothesis, 1),
        "only": Phenomenon(_only, _fact_hypothesis, 1),
        "only+passive": Phenomenon(_only_passive, _voiced_hypothesis, 1),
        "while": Phenomenon(_while, _fact_hypothesis, 1),
        "relative": Phenomenon(_relative, _fact_hypothesis, 1),
        "relative+passive": Phenomenon(_relative_passive, _voiced_hypothesis, 1),
        "relative+implicatives": Phenomenon(_relative_implicatives, _fact_hypothesis, 1),
        "while+quantifiers": Phenomenon(_while_quantifiers, _quantifiers, 1),
        "comparatives": Phenomenon(_comparatives, _comparatives_hypothesis, 1),
        "comparatives+negation": Phenomenon(_comparatives_negation, _comparatives_negation_hypothesis, 1),
        "transitivity": Phenomenon(_transitivity, _comparatives_hypothesis, 1),
    }
)
PHENOMENA: tuple[str, ...] = tuple(_PHENOMENA)
