"""Natural-language inference made by rule: small, balanced, and solvable only by reading who did what to whom.

A meaning says, for each question it speaks about, which answers remain possible: did the baker thank the pilot (yes,
no); how many of the bakers danced (none, few, most, all); how tall is the baker next to the pilot (less, same, more).
Premise and hypothesis are rendered from meanings, and one function, `relation`, derives every label.

Three things keep shortcuts out. The hypothesis is drawn before the label has any influence, so it tells nothing about
the label. The premise arranges the same few words in another way, so overlap tells little. Nouns, names, verbs and
adjectives of the evaluation split never occur in training.

Readings are logical: "some" is at least one, perhaps all; "most" is more than half; a group that is mentioned has
members; different nouns and names are different people; "everyone" and "nobody" speak of other people.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice, permutations, product
from types import MappingProxyType
from typing import NamedTuple

LABELS = ("entailment", "neutral", "contradiction")

Question = tuple[str, ...]
Answers = frozenset[str]
Meaning = Mapping[Question, Answers]

YES, NO = frozenset({"yes"}), frozenset({"no"})
LESS, SAME, MORE = "less", "same", "more"
SOMEBODY = "somebody"
MAX_REPEATS = 1000
SHARES = dict.fromkeys(("roles", "coordination", "passive", "only", "only+passive", "relative+passive", "transitivity"), 1)


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


class Verb(NamedTuple):
    """Three forms of a verb: "did not feed", "fed", "was fed"."""

    base: str
    past: str
    participle: str


class Scale(NamedTuple):
    """An adjective, its comparative and the comparative of its opposite."""

    adjective: str
    more: str
    less: str


class Clause(NamedTuple):
    """What is said about a subject yet to be named, and the meaning once it is."""

    text: str
    meaning: Callable[[str], Meaning]


@dataclass(frozen=True)
class Words:
    """The content words of one split."""

    nouns: tuple[str, ...]
    names: tuple[str, ...]
    verbs: tuple[Verb, ...]
    acts: tuple[Verb, ...]
    scales: tuple[Scale, ...]
    adjectives: tuple[str, ...]


@dataclass(frozen=True)
class Cast:
    """The words of one example. Its hypothesis speaks of the first ones, its premise of any of them."""

    people: tuple[str, ...]
    verbs: tuple[Verb, ...]
    groups: tuple[str, ...]
    acts: tuple[Verb, ...]
    scale: Scale
    adjective: str


Builder = Callable[[Cast, random.Random], Statement]
ClauseBuilder = Callable[[Verb, str, random.Random], Clause]


def generate(split: str, count: int, seed: int = 0) -> list[Example]:
    """Makes `count` different examples, with equally many of each label and phenomenon (within 1).

    Args:
        split: "train" or "eval"; the two share no content word, hence no example.
        count: how many examples.
        seed: another seed gives other examples; the same one gives the same list.
    """
    if split not in WORDS:
        raise ValueError(f"`split` must be one of {', '.join(map(repr, WORDS))}; got {split!r}.")
    if count < 0:
        raise ValueError(f"`count` must be 0 or more; got {count}.")
    rng = random.Random(f"{split} {seed}")
    slots = list(islice(cycle(product([p for p in PHENOMENA for _ in range(SHARES.get(p, 3))], LABELS)), count))
    rng.shuffle(slots)
    examples: dict[tuple[str, str], Example] = {}
    for phenomenon, label in slots:
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


def _new_example(
    phenomenon: str, label: str, words: Words, rng: random.Random, taken: Mapping[tuple[str, str], Example]
) -> Example:
    for _ in range(MAX_REPEATS):
        example = _example(phenomenon, label, words, rng)
        if (example.premise, example.hypothesis) not in taken:
            return example
    raise ValueError(f"`count` is too large: no new example of {phenomenon!r} was found after {len(taken)} examples.")


def _example(phenomenon: str, label: str, words: Words, rng: random.Random) -> Example:
    """Draws a hypothesis, then premises until the label fits: given the label, the hypothesis stays as it was."""
    build_premise, build_hypothesis = _BUILDERS[phenomenon]
    cast = _draw_cast(words, rng)
    hypothesis = build_hypothesis(cast, rng)
    premise = build_premise(cast, rng)
    while relation(premise.meaning, hypothesis.meaning) != label:
        premise = build_premise(cast, rng)
    return Example(_sentence(premise.text), _sentence(hypothesis.text), label, phenomenon)


def _draw_cast(words: Words, rng: random.Random) -> Cast:
    people = [f"the {noun}" for noun in rng.sample(words.nouns, 4)] + rng.sample(words.names, 2)
    return Cast(
        people=tuple(rng.sample(people, 4)),
        verbs=tuple(rng.sample(words.verbs, 2)),
        groups=tuple(rng.sample(words.nouns, 2)),
        acts=tuple(rng.sample(words.acts, 2)),
        scale=rng.choice(words.scales),
        adjective=rng.choice(words.adjectives),
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


# Events: who did what to whom.


def _fact(verb: Verb, agent: str, patient: str, answers: Answers | None) -> Meaning:
    return {} if answers is None else {(verb.base, agent, patient): answers}


def _active(verb: Verb, agent: str, patient: str, answers: Answers) -> Statement:
    return Statement(f"{agent} {_did(verb, answers)} {patient}", _fact(verb, agent, patient, answers))


def _passive(verb: Verb, agent: str, patient: str, answers: Answers) -> Statement:
    return Statement(f"{patient} {_was_done(verb, answers)} by {agent}", _fact(verb, agent, patient, answers))


def _did(verb: Verb, answers: Answers) -> str:
    return verb.past if answers == YES else f"did not {verb.base}"


def _was_done(verb: Verb, answers: Answers) -> str:
    return f"was {verb.participle}" if answers == YES else f"was not {verb.participle}"


def _yes_or_no(rng: random.Random) -> Answers:
    return rng.choice((YES, NO))


def _people(cast: Cast, count: int, rng: random.Random) -> list[str]:
    return rng.sample(cast.people[:count], count)


def _both(first: Statement, second: Statement, conjunction: str = "and") -> Statement:
    return Statement(f"{first.text}, {conjunction} {second.text}", {**first.meaning, **second.meaning})


def _fact_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _active(cast.verbs[0], *cast.people[:2], _yes_or_no(rng))


def _voiced_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return rng.choice((_active, _passive))(cast.verbs[0], *cast.people[:2], _yes_or_no(rng))


def _negation(cast: Cast, rng: random.Random) -> Statement:
    """One event, certain or not, under no, one or two negations."""
    (verb, _), (agent, patient), inner = cast.verbs, cast.people[:2], _yes_or_no(rng)
    text = _active(verb, agent, patient, inner).text
    words, outer = rng.choice(CERTAINTIES)
    answers = None if outer is None else YES if inner == outer else NO
    return Statement(f"{words} {text}".strip(), _fact(verb, agent, patient, answers))


CERTAINTIES: tuple[tuple[str, Answers | None], ...] = (
    ("", YES),
    ("it is true that", YES),
    ("it is not true that", NO),
    ("it is false that", NO),
    ("it is possible that", None),
    ("it is not certain that", None),
)


def _roles(cast: Cast, rng: random.Random) -> Statement:
    """One event: only the order of the words tells who did it to whom."""
    return _active(cast.verbs[0], *_people(cast, 2, rng), _yes_or_no(rng))


def _coordination(cast: Cast, rng: random.Random) -> Statement:
    """Two events with the same verb among three people."""
    first, second = rng.sample(list(permutations(cast.people[:3], 2)), 2)
    one, other = _yes_or_no(rng), _yes_or_no(rng)
    verb = cast.verbs[0]
    return _both(_active(verb, *first, one), _active(verb, *second, other), "and" if one == other else "but")


def _passives(cast: Cast, rng: random.Random) -> Statement:
    text, meaning = rng.choice((_one_agent, _agent_but_not_another, _two_agents, _anybody))(cast, rng)
    somebody = {(verb, SOMEBODY, patient): YES for (verb, _, patient), answers in meaning.items() if answers == YES}
    return Statement(text, {**meaning, **somebody})


def _one_agent(cast: Cast, rng: random.Random) -> Statement:
    return rng.choice((_active, _passive))(cast.verbs[0], *_people(cast, 2, rng), _yes_or_no(rng))


def _agent_but_not_another(cast: Cast, rng: random.Random) -> Statement:
    patient, agent, other = _people(cast, 3, rng)
    verb = cast.verbs[0]
    meaning = {**_fact(verb, agent, patient, YES), **_fact(verb, other, patient, NO)}
    return Statement(f"{patient} was {verb.participle} by {agent} but not by {other}", meaning)


def _two_agents(cast: Cast, rng: random.Random) -> Statement:
    patient, agent, other = _people(cast, 3, rng)
    verb, second = rng.sample(cast.verbs, 2)
    meaning = {**_fact(verb, agent, patient, YES), **_fact(second, other, patient, YES)}
    return Statement(f"{patient} was {verb.participle} by {agent} and {second.participle} by {other}", meaning)


def _anybody(cast: Cast, rng: random.Random) -> Statement:
    verb, patient = cast.verbs[0], rng.choice(cast.people[:2])
    if _yes_or_no(rng) == YES:
        return Statement(f"somebody {verb.past} {patient}", {(verb.base, SOMEBODY, patient): YES})
    meaning = {(verb.base, agent, patient): NO for agent in (SOMEBODY, *cast.people) if agent != patient}
    return Statement(f"nobody {verb.past} {patient}", meaning)


def _passives_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    verb, patient, answers = cast.verbs[0], cast.people[1], _yes_or_no(rng)
    if rng.random() < 0.25:
        return Statement(f"{patient} {_was_done(verb, answers)}", {(verb.base, SOMEBODY, patient): answers})
    return _voiced_hypothesis(cast, rng)


def _only(cast: Cast, rng: random.Random) -> Statement:
    agent, patient, _ = _people(cast, 3, rng)
    did = cast.verbs[0].past
    agents, patients = _excluding_agents(cast, agent, patient), _excluding_patients(cast, agent, patient)
    return rng.choice(
        (
            Statement(f"only {agent} {did} {patient}", agents(YES)),
            Statement(f"nobody except {agent} {did} {patient}", agents(YES)),
            Statement(f"everyone except {agent} {did} {patient}", agents(NO)),
            Statement(f"{agent} {did} only {patient}", patients(YES)),
            Statement(f"{agent} {did} nobody except {patient}", patients(YES)),
            Statement(f"{agent} {did} everyone except {patient}", patients(NO)),
        )
    )


def _only_passive(cast: Cast, rng: random.Random) -> Statement:
    agent, patient, _ = _people(cast, 3, rng)
    was_done = f"was {cast.verbs[0].participle}"
    agents, patients = _excluding_agents(cast, agent, patient), _excluding_patients(cast, agent, patient)
    return rng.choice(
        (
            Statement(f"{patient} {was_done} only by {agent}", agents(YES)),
            Statement(f"{patient} {was_done} by everyone except {agent}", agents(NO)),
            Statement(f"only {patient} {was_done} by {agent}", patients(YES)),
            Statement(f"everyone except {patient} {was_done} by {agent}", patients(NO)),
        )
    )


def _excluding_agents(cast: Cast, agent: str, patient: str) -> Callable[[Answers], Meaning]:
    """The meaning in which the agent's answer differs from that of every other agent."""
    verb, others = cast.verbs[0], [person for person in cast.people if person not in (agent, patient)]
    return lambda answers: _merged(
        _fact(verb, agent, patient, answers), *(_fact(verb, other, patient, _opposite(answers)) for other in others)
    )


def _excluding_patients(cast: Cast, agent: str, patient: str) -> Callable[[Answers], Meaning]:
    verb, others = cast.verbs[0], [person for person in cast.people if person not in (agent, patient)]
    return lambda answers: _merged(
        _fact(verb, agent, patient, answers), *(_fact(verb, agent, other, _opposite(answers)) for other in others)
    )


def _opposite(answers: Answers) -> Answers:
    return NO if answers == YES else YES


def _merged(*meanings: Meaning) -> Meaning:
    return {question: answers for meaning in meanings for question, answers in meaning.items()}


# Distractors: a second event in a clause of its own.


def _while(cast: Cast, rng: random.Random) -> Statement:
    (first_verb, second_verb), (a, b, c, d) = cast.verbs, cast.people
    one, two = _plain(first_verb, b, rng), _plain(second_verb, d, rng)
    while list(one.meaning("").values()) == list(two.meaning("").values()): two = _plain(second_verb, d, rng)
    first, second = Statement(f"{a} {one.text}", one.meaning(a)), Statement(f"{c} {two.text}", two.meaning(c))
    return _during(*rng.sample((first, second), 2), rng)


def _during(first: Statement, second: Statement, rng: random.Random) -> Statement:
    text = rng.choice((f"while {first.text}, {second.text}", f"{first.text}, while {second.text}"))
    return Statement(text, {**first.meaning, **second.meaning})


def _relative(cast: Cast, rng: random.Random) -> Statement:
    return _with_relative(cast, rng, rng.choice((_who, _whom)), _plain)


def _relative_passive(cast: Cast, rng: random.Random) -> Statement:
    return _with_relative(cast, rng, *rng.choice(((_who, _undergone), (_who_underwent, _plain))))


def _relative_implicatives(cast: Cast, rng: random.Random) -> Statement:
    return _with_relative(cast, rng, _who_operated, _operated)


def _implicatives(cast: Cast, rng: random.Random) -> Statement:
    """One or two intentions of a subject: some are carried out, some are not, some stay open."""
    subject, other, another, _ = cast.people
    one, two = _operated(cast.verbs[0], other, rng), _operated(cast.verbs[1], another, rng)
    while list(one.meaning("").values()) == list(two.meaning("").values()): two = _operated(cast.verbs[1], another, rng)
    if rng.random() < 0.3:
        return Statement(f"{subject} {one.text}", one.meaning(subject))
    first, second = rng.sample((one, two), 2)
    return Statement(f"{subject} {first.text} and {second.text}", {**one.meaning(subject), **two.meaning(subject)})


def _with_relative(cast: Cast, rng: random.Random, inner: ClauseBuilder, outer: ClauseBuilder) -> Statement:
    """Says two things about a subject; the hypothesis speaks of either."""
    subject, other, another, _ = cast.people
    if inner is _whom:
        subject, other = other, subject
    (verb, person), (second_verb, second_person) = (cast.verbs[0], other), (cast.verbs[1], another)
    if inner is not _whom and rng.random() < 0.5:
        verb, person, second_verb, second_person = second_verb, second_person, verb, person
    relative, main = inner(verb, person, rng), outer(second_verb, second_person, rng)
    while list(relative.meaning("").values()) == list(main.meaning("").values()): main = outer(second_verb, second_person, rng)
    comma = "" if subject.startswith("the ") else ","
    text = f"{subject}{comma} {relative.text}{comma} {main.text}"
    return Statement(text, {**relative.meaning(subject), **main.meaning(subject)})


def _plain(verb: Verb, other: str, rng: random.Random) -> Clause:
    words, answers = rng.choice(
        ((verb.past, YES), (f"did not {verb.base}", NO), (f"may have {verb.participle}", None))
    )
    return Clause(f"{words} {other}", lambda subject: _fact(verb, subject, other, answers))


def _undergone(verb: Verb, other: str, rng: random.Random) -> Clause:
    answers = _yes_or_no(rng)
    return Clause(f"{_was_done(verb, answers)} by {other}", lambda subject: _fact(verb, other, subject, answers))


def _whom(verb: Verb, other: str, rng: random.Random) -> Clause:
    words, answers = rng.choice(
        ((verb.past, YES), (f"did not {verb.base}", NO), (f"may have {verb.participle}", None))
    )
    return Clause(f"whom {other} {words}", lambda subject: _fact(verb, other, subject, answers))


def _operated(verb: Verb, other: str, rng: random.Random) -> Clause:
    words, answers = rng.choice(OPERATORS)
    return Clause(f"{words} {verb.base} {other}", lambda subject: _fact(verb, subject, other, answers))


def _who(verb: Verb, other: str, rng: random.Random) -> Clause:
    return _after_who(_plain(verb, other, rng))


def _who_underwent(verb: Verb, other: str, rng: random.Random) -> Clause:
    return _after_who(_undergone(verb, other, rng))


def _who_operated(verb: Verb, other: str, rng: random.Random) -> Clause:
    return _after_who(_operated(verb, other, rng))


def _after_who(clause: Clause) -> Clause:
    return Clause(f"who {clause.text}", clause.meaning)


# The words before an infinitive, and what they say about it: it happened, it did not, or nothing.
OPERATORS: tuple[tuple[str, Answers | None], ...] = (
    ("managed to", YES),
    ("remembered to", YES),
    ("did not forget to", YES),
    ("failed to", NO),
    ("forgot to", NO),
    ("refused to", NO),
    ("wanted to", None),
    ("promised to", None),
    ("did not plan to", None),
)


# Quantifiers: how many members of a group did it.

NONE, FEW, HALF, MOST, ALL = "none", "few", "half", "most", "all"
LEVELS = frozenset({NONE, FEW, HALF, MOST, ALL})
OTHERS = {NONE: ALL, FEW: MOST, HALF: HALF, MOST: FEW, ALL: NONE}
QUANTIFIERS: tuple[tuple[str, Answers], ...] = (
    ("all of the {one}s", frozenset({ALL})),
    ("every {one}", frozenset({ALL})),
    ("none of the {one}s", frozenset({NONE})),
    ("no {one}", frozenset({NONE})),
    ("some of the {one}s", LEVELS - {NONE}),
    ("at least one of the {one}s", LEVELS - {NONE}),
    ("not all of the {one}s", LEVELS - {ALL}),
    ("not every {one}", LEVELS - {ALL}),
    ("most of the {one}s", frozenset({MOST, ALL})),
    ("only some of the {one}s", frozenset({FEW, HALF, MOST})),
)
ABOUT_A_PART = {NONE: {NONE}, FEW: LEVELS, HALF: LEVELS, MOST: LEVELS, ALL: {ALL}}
ABOUT_THE_WHOLE = {NONE: LEVELS - {ALL}, ALL: LEVELS - {NONE}} | dict.fromkeys((FEW, HALF, MOST), LEVELS - {NONE, ALL})


def _quantified(group: str, act: Verb, rng: random.Random) -> Statement:
    words, levels = rng.choice(QUANTIFIERS)
    answers = _yes_or_no(rng)
    did = act.past if answers == YES else f"failed to {act.base}"
    if answers == NO:
        levels = frozenset(OTHERS[level] for level in levels)
    return Statement(f"{words.format(one=group)} {did}", {(act.base, group): levels})


def _denied_or_not(group: str, act: Verb, rng: random.Random) -> Statement:
    text, meaning = _quantified(group, act, rng)
    words, answers = rng.choice((("", YES), ("it is true that", YES), ("it is not true that", NO), ("it is false that", NO)))
    if answers == NO:
        meaning = {question: LEVELS - levels for question, levels in meaning.items()}
    return Statement(f"{words} {text}".strip(), meaning)


def _quantifiers_negation(cast: Cast, rng: random.Random) -> Statement:
    return _denied_or_not(cast.groups[0], cast.acts[0], rng)


def _quantified_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _quantified(cast.groups[0], cast.acts[0], rng)


def _quantifiers(cast: Cast, rng: random.Random) -> Statement:
    return _quantified(cast.groups[0], cast.acts[0], rng)


def _while_quantifiers(cast: Cast, rng: random.Random) -> Statement:
    statements = [_quantified(group, act, rng) for group, act in zip(cast.groups, cast.acts, strict=True)]
    return _during(*rng.sample(statements, 2), rng)


def _adjectives(cast: Cast, rng: random.Random) -> Statement:
    """A statement about a whole group or about a part of it, with what it says about the other one."""
    whole, part = cast.groups[0], f"{cast.adjective} {cast.groups[0]}"
    named, other, table = rng.choice(((whole, part, ABOUT_A_PART), (part, whole, ABOUT_THE_WHOLE)))
    text, meaning = _quantified(named, cast.acts[0], rng)
    ((question, levels),) = meaning.items()
    return Statement(text, {question: levels, (cast.acts[0].base, other): _union(table[level] for level in levels)})


def _adjectives_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    group = rng.choice((cast.groups[0], f"{cast.adjective} {cast.groups[0]}"))
    return _quantified(group, cast.acts[0], rng)


def _union(sets: Iterable[Iterable[str]]) -> Answers:
    return frozenset().union(*sets)


# Comparatives: where two people stand on a scale.

OTHER_WAY = {LESS: MORE, SAME: SAME, MORE: LESS}


def _compared(scale: Scale, first: str, second: str, negated: bool, rng: random.Random) -> Statement:
    answer, than = rng.choice(
        ((MORE, f"{scale.more} than"), (LESS, f"{scale.less} than"), (SAME, f"exactly as {scale.adjective} as"))
    )
    answers = frozenset({LESS, SAME, MORE} - {answer}) if negated else frozenset({answer})
    return Statement(f"{first} is {'not ' if negated else ''}{than} {second}", {(first, second): answers})


def _two_comparisons(cast: Cast, rng: random.Random, negate: Callable[[], bool]) -> Statement:
    """Compares two people with a third, and states what follows about the two."""
    left, middle, right = _people(cast, 3, rng)
    first = _compared(cast.scale, *rng.sample((left, middle), 2), negate(), rng)
    second = _compared(cast.scale, *rng.sample((middle, right), 2), negate(), rng)
    text, meaning = _both(first, second)
    known = _both_ways(meaning)
    follows = _union(_composed(one, two) for one, two in product(known[left, middle], known[middle, right]))
    return Statement(text, {**known, **_both_ways({(left, right): follows})})


def _both_ways(comparisons: Meaning) -> Meaning:
    other_way = {
        (second, first): frozenset(OTHER_WAY[answer] for answer in answers)
        for (first, second), answers in comparisons.items()
    }
    return {**comparisons, **other_way}


def _composed(first: str, second: str) -> set[str]:
    """What two steps along a scale amount to."""
    if first == second or second == SAME:
        return {first}
    return {second} if first == SAME else {LESS, SAME, MORE}


def _comparatives(cast: Cast, rng: random.Random) -> Statement:
    first, second, _ = _people(cast, 3, rng)
    text, meaning = _compared(cast.scale, first, second, False, rng)
    return Statement(text, _both_ways(meaning))


def _comparatives_negation(cast: Cast, rng: random.Random) -> Statement:
    text, meaning = _compared(cast.scale, *_people(cast, 2, rng), rng.random() < 0.5, rng)
    return Statement(text, _both_ways(meaning))


def _transitivity(cast: Cast, rng: random.Random) -> Statement:
    return _two_comparisons(cast, rng, lambda: False)


def _comparatives_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _compared(cast.scale, *cast.people[:2], False, rng)


def _comparatives_negation_hypothesis(cast: Cast, rng: random.Random) -> Statement:
    return _compared(cast.scale, *cast.people[:2], rng.random() < 0.5, rng)


_BUILDERS: Mapping[str, tuple[Builder, Builder]] = MappingProxyType(
    {
        "negation": (_negation, _fact_hypothesis),
        "roles": (_roles, _fact_hypothesis),
        "coordination": (_coordination, _fact_hypothesis),
        "passive": (_passives, _passives_hypothesis),
        "only": (_only, _fact_hypothesis),
        "only+passive": (_only_passive, _voiced_hypothesis),
        "while": (_while, _fact_hypothesis),
        "relative": (_relative, _fact_hypothesis),
        "relative+passive": (_relative_passive, _voiced_hypothesis),
        "implicatives": (_implicatives, _fact_hypothesis),
        "relative+implicatives": (_relative_implicatives, _fact_hypothesis),
        "quantifiers": (_quantifiers, _quantified_hypothesis),
        "quantifiers+negation": (_quantifiers_negation, _quantifiers_negation),
        "while+quantifiers": (_while_quantifiers, _quantified_hypothesis),
        "adjectives": (_adjectives, _adjectives_hypothesis),
        "transitivity": (_transitivity, _comparatives_hypothesis),
        "comparatives+negation": (_comparatives_negation, _comparatives_negation_hypothesis),
    }
)
PHENOMENA: tuple[str, ...] = tuple(_BUILDERS)


def _verbs(text: str) -> tuple[Verb, ...]:
    """Reads entries like "thank" (regular) and "feed/fed"."""
    return tuple(_verb(*entry.split("/")) for entry in text.split())


def _verb(base: str, past: str = "") -> Verb:
    past = past or (base + "d" if base.endswith("e") else base + "ed")
    return Verb(base, past, past)


def _scales(text: str) -> tuple[Scale, ...]:
    return tuple(Scale(*entry.split("/")) for entry in text.split())


# No noun includes another; no verb implies, excludes or reverses another of its split.
WORDS: Mapping[str, Words] = MappingProxyType(
    {
        "train": Words(
            nouns=tuple(
                ["baker", "pilot", "nurse", "lawyer", "farmer", "waiter", "driver", "painter", "judge", "soldier", "writer", "banker", "plumber", "tailor", "sailor", "butcher", "doctor", "actor", "clerk", "guard", "hunter", "miller"]
            ),
            names=tuple(
                ["Anna", "Peter", "Laura", "Daniel", "Maria", "Thomas", "Julia", "Simon", "Helen", "Martin", "Emma", "David", "Alice", "Paul", "Rosa", "Kevin"]
            ),
            verbs=_verbs(
                "thank visit invite follow warn pay/paid interview photograph help phone feed/fed find/found blame pull"
            ),
            acts=_verbs("dance sleep/slept laugh sing/sang leave/left cry/cried jump pray argue resign"),
            scales=_scales("tall/taller/shorter old/older/younger rich/richer/poorer loud/louder/quieter"),
            adjectives=tuple(["French", "German", "Spanish", "tired", "hungry", "famous"]),
        ),
        "eval": Words(
            nouns=tuple(
                ["chef", "gardener", "dentist", "engineer", "poet", "priest", "barber", "carpenter", "mechanic", "surgeon", "editor", "trainer", "journalist", "senator", "miner"]
            ),
            names=tuple(["Clara", "Oscar", "Nina", "Felix", "Diana", "Victor", "Irene", "Hugo", "Marta", "Leon", "Sofia", "Brian"]),
            verbs=_verbs("praise hire greet chase interrupt push sketch rescue bribe arrest defend tease"),
            acts=_verbs("swim/swam vote wait smile travel/traveled work shout kneel/knelt complain"),
            scales=_scales("strong/stronger/weaker fast/faster/slower heavy/heavier/lighter"),
            adjectives=tuple(["Italian", "Dutch", "Greek", "busy", "lucky", "angry"]),
        ),
    }
)
