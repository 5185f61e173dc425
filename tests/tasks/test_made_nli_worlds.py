"""Labels of the made NLI data, checked by a reader of its own.

It parses the English of both sentences and enumerates small worlds; of the generator it knows only the word lists.
"""

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from kheads.tasks.made_nli import PHENOMENA, Example, generate
from kheads.tasks.made_nli.words import WORDS

World = dict[Any, int]
Formula = Callable[[World], bool]
Count = Callable[[int, int], bool]

BASES = {form: verb.base for words in WORDS.values() for verb in (*words.verbs, *words.acts) for form in verb}
NAMES = {name for words in WORDS.values() for name in words.names}
NOUNS = {noun for words in WORDS.values() for noun in words.nouns}
PEOPLE = NAMES | {f"the {noun}" for noun in NOUNS}
ADJECTIVES = {adjective for words in WORDS.values() for adjective in words.adjectives}
SCALES = [scale for words in WORDS.values() for scale in words.scales]
SIGNS = {scale.more: 1 for scale in SCALES} | {scale.less: -1 for scale in SCALES}

ANYONE = "|".join(sorted(PEOPLE))
P = rf"({ANYONE})"
TO = r"(?:managed|remembered|failed|forgot|refused|wanted|promised|did not plan) to"
PREDICATE = rf"((?:{TO} \w+|did not \w+|was (?:not )?\w+ by|\w+) (?:{ANYONE}))"
OTHERS = rf"(only|nobody except|everyone except) {P}"
OUTCOMES = {"managed": True, "remembered": True, "failed": False, "forgot": False, "refused": False}


def every(k: int, n: int) -> bool:
    return k == n


def none(k: int, n: int) -> bool:
    return k == 0


def some(k: int, n: int) -> bool:
    return k > 0


def not_all(k: int, n: int) -> bool:
    return k < n


def most(k: int, n: int) -> bool:
    return 2 * k > n


def fewer_than_half(k: int, n: int) -> bool:
    return 2 * k < n


def part(k: int, n: int) -> bool:
    return 0 < k < n


# The longer wording first: "some but not all of the" is not "some of the".
GROUP = rf"((?:(?:{'|'.join(sorted(ADJECTIVES))}) )?(?:{'|'.join(sorted(NOUNS))}))"
QUANTIFIERS: tuple[tuple[str, Count], ...] = (
    (rf"some but not all of the {GROUP}s", part),
    (rf"only some of the {GROUP}s", part),
    (rf"not all of the {GROUP}s", not_all),
    (rf"not every {GROUP}", not_all),
    (rf"more than half of the {GROUP}s", most),
    (rf"fewer than half of the {GROUP}s", fewer_than_half),
    (rf"most of the {GROUP}s", most),
    (rf"all of the {GROUP}s", every),
    (rf"every {GROUP}", every),
    (rf"none of the {GROUP}s", none),
    (rf"no {GROUP}", none),
    (rf"some of the {GROUP}s", some),
    (rf"at least one {GROUP}", some),
)
FREQUENCIES: tuple[tuple[str, Count], ...] = (
    (rf"{P} always (\w+) {P}", every),
    (rf"{P} (\w+) {P} every time", every),
    (rf"{P} never (\w+) {P}", none),
    (rf"{P} did not (\w+) {P} even once", none),
    (rf"{P} sometimes (\w+) {P}", some),
    (rf"{P} (\w+) {P} at least once", some),
    (rf"{P} did not always (\w+) {P}", not_all),
    (rf"sometimes {P} did not (\w+) {P}", not_all),
    (rf"{P} usually (\w+) {P}", most),
    (rf"{P} (\w+) {P} most of the time", most),
    (rf"{P} usually did not (\w+) {P}", fewer_than_half),
    (rf"most of the time, {P} did not (\w+) {P}", fewer_than_half),
    (rf"{P} only sometimes (\w+) {P}", part),
    (rf"{P} (\w+) {P} sometimes but not always", part),
)
OCCASIONS = 4
UNDIVIDED = [(hits, 4, 0, 0) for hits in range(5)]
# A group that an adjective divides: (did it, members) among those it fits, then among the rest, who may be nobody.
DIVIDED = [
    (hits, size, other_hits, other_size)
    for size, other_size in product(range(1, 5), range(5))
    for hits, other_hits in product(range(size + 1), range(other_size + 1))
]


class Reader:
    """Truth conditions of sentences, and the facts of a world they depend on, each with its possible values."""

    def __init__(self, *sentences: str) -> None:
        texts = [_uncapitalised(sentence) for sentence in sentences]
        self.people = ["a stranger", *sorted({person for text in texts for person in re.findall(P, text)})]
        self.members = DIVIDED if any(word in ADJECTIVES for text in texts for word in text.split()) else UNDIVIDED
        self.facts: dict[Any, range] = {}
        self.formulas = [self.read(text) for text in texts]

    def label(self) -> str:
        premise, hypothesis = self.formulas
        worlds = (dict(zip(self.facts, values, strict=True)) for values in product(*self.facts.values()))
        verdicts = {hypothesis(world) for world in worlds if premise(world)}
        assert verdicts, "no world fits the premise"
        return "neutral" if len(verdicts) == 2 else "entailment" if True in verdicts else "contradiction"

    def read(self, text: str) -> Formula:
        for pattern, count in FREQUENCIES:
            if match := re.fullmatch(pattern, text):
                return self.frequency(count, *match.groups())
        for pattern, rule in self.rules():
            if match := re.fullmatch(pattern, text):
                return rule(*match.groups())
        return self.quantified(text)

    def rules(self) -> tuple[tuple[str, Callable[..., Formula]], ...]:
        return (
            (r"it is (true|not true|false|possible|not certain) that (.+)", self.certainty),
            (rf"it was {P} who {PREDICATE}", self.predicate),
            (rf"it was {P} whom {P} (did not \w+|\w+)", self.object_of),
            (r"while (.+), (.+)", self.conjunction),
            (r"(.+), while (.+)", self.conjunction),
            (r"(.+), (?:and|but) (.+)", self.conjunction),
            (rf"{P},? who {PREDICATE},? {PREDICATE}", self.two_predicates),
            (rf"{P} {PREDICATE} and {PREDICATE}", self.two_predicates),
            (rf"{P},? whom {P} (did not \w+|\w+),? {PREDICATE}", self.whom),
            (rf"{P} was (\w+) by {P} but not by {P}", self.but_not_by),
            (rf"{P} was (\w+) by {P} and (\w+) by {P}", self.and_by),
            (rf"{P} {PREDICATE}", self.predicate),
            (rf"{P} was (not )?(\w+)", self.agentless),
            (rf"(somebody|nobody) (\w+) {P}", self.anybody),
            (rf"{OTHERS} (\w+) {P}", self.except_agent),
            (rf"{P} (\w+) {OTHERS}", lambda agent, verb, words, one: self.except_patient(words, one, verb, agent)),
            (rf"{P} was (\w+) only by {P}", lambda patient, verb, one: self.except_agent("only", one, verb, patient)),
            (
                rf"{P} was (\w+) by {OTHERS}",
                lambda patient, verb, words, one: self.except_agent(words, one, verb, patient),
            ),
            (rf"{OTHERS} was (\w+) by {P}", self.except_patient),
            (rf"{P} is (not )?(\w+) than {P}", self.more_or_less),
            (rf"{P} is (not )?exactly as \w+ as {P}", self.as_much),
        )

    def event(self, verb: str, agent: str, patient: str, happened: bool = True) -> Formula:
        key = (BASES[verb], agent, patient)
        self.facts[key] = range(2)
        return lambda world: bool(world[key]) == happened

    def frequency(self, count: Count, agent: str, verb: str, patient: str) -> Formula:
        key = ("how often", BASES[verb], agent, patient)
        self.facts[key] = range(OCCASIONS + 1)
        return lambda world: count(world[key], OCCASIONS)

    def certainty(self, word: str, text: str) -> Formula:
        inner = self.read(text)
        if word == "true":
            return inner
        return (lambda world: True) if word in ("possible", "not certain") else (lambda world: not inner(world))

    def conjunction(self, first: str, second: str) -> Formula:
        return _all(self.read(first), self.read(second))

    def two_predicates(self, subject: str, first: str, second: str) -> Formula:
        return _all(self.predicate(subject, first), self.predicate(subject, second))

    def predicate(self, subject: str, text: str) -> Formula:
        match = re.fullmatch(rf"(?:({TO}) |(did not) |(was not|was) )?(\w+) (?:by )?{P}", text)
        assert match, text
        operator, negated, passive, verb, other = match.groups()
        if passive:
            return self.event(verb, other, subject, passive == "was")
        outcome = OUTCOMES.get(operator.removesuffix(" to")) if operator else not negated
        event = self.event(verb, subject, other, bool(outcome))
        return event if outcome is not None else lambda world: True

    def object_of(self, patient: str, agent: str, did: str) -> Formula:
        return self.event(did.split()[-1], agent, patient, not did.startswith("did not"))

    def whom(self, patient: str, agent: str, did: str, text: str) -> Formula:
        return _all(self.object_of(patient, agent, did), self.predicate(patient, text))

    def but_not_by(self, patient: str, verb: str, agent: str, other: str) -> Formula:
        return _all(self.event(verb, agent, patient), self.event(verb, other, patient, False))

    def and_by(self, patient: str, verb: str, agent: str, second_verb: str, other: str) -> Formula:
        return _all(self.event(verb, agent, patient), self.event(second_verb, other, patient))

    def agentless(self, patient: str, negated: str | None, verb: str) -> Formula:
        return self.anybody("nobody" if negated else "somebody", verb, patient)

    def anybody(self, word: str, verb: str, patient: str) -> Formula:
        events = [self.event(verb, agent, patient) for agent in self.people if agent != patient]
        return lambda world: any(event(world) for event in events) == (word == "somebody")

    def except_agent(self, words: str, one: str, verb: str, patient: str) -> Formula:
        did, others = words != "everyone except", [x for x in self.people if x not in (one, patient)]
        return _all(self.event(verb, one, patient, did), *(self.event(verb, x, patient, not did) for x in others))

    def except_patient(self, words: str, one: str, verb: str, agent: str) -> Formula:
        did, others = words != "everyone except", [x for x in self.people if x not in (one, agent)]
        return _all(self.event(verb, agent, one, did), *(self.event(verb, agent, x, not did) for x in others))

    def size(self, person: str) -> tuple[str, str]:
        self.facts["size", person] = range(3)
        return "size", person

    def more_or_less(self, first: str, negated: str | None, word: str, second: str) -> Formula:
        one, other = self.size(first), self.size(second)
        return lambda world: ((world[one] - world[other]) * SIGNS[word] > 0) != bool(negated)

    def as_much(self, first: str, negated: str | None, second: str) -> Formula:
        one, other = self.size(first), self.size(second)
        return lambda world: (world[one] == world[other]) != bool(negated)

    def quantified(self, text: str) -> Formula:
        for pattern, count in QUANTIFIERS:
            if match := re.fullmatch(rf"{P} was (\w+) by {pattern}", text):
                patient, verb, group = match.groups()
                return self.tally(count, group, (verb, patient), True)
            if match := re.fullmatch(rf"{pattern} (did not )?(\w+)(?: {P})?", text):
                group, negated, verb, patient = match.groups()
                return self.tally(count, group, (verb, patient or ""), not negated)
        raise AssertionError(f"cannot read {text!r}")

    def tally(self, count: Count, group: str, act: tuple[str, str], did: bool) -> Formula:
        *adjective, noun = group.split()
        key, members = (noun, BASES[act[0]], act[1]), self.members
        self.facts[key] = range(len(members))

        def holds(world: World) -> bool:
            hits, size, other_hits, other_size = members[world[key]]
            if not adjective:
                hits, size = hits + other_hits, size + other_size
            return count(hits if did else size - hits, size)

        return holds


def _all(*formulas: Formula) -> Formula:
    return lambda world: all(formula(world) for formula in formulas)


def _uncapitalised(sentence: str) -> str:
    text = sentence.removesuffix(".")
    return text if re.split(r"\W", text)[0] in NAMES else text[0].lower() + text[1:]


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return generate("eval", 4000, seed=5) + generate("train", 4000, seed=5)


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_labels_hold_in_every_small_world(phenomenon: str, examples: list[Example]) -> None:
    for example in [example for example in examples if example.phenomenon == phenomenon][:200]:
        assert Reader(example.premise, example.hypothesis).label() == example.label, example


def test_the_reader_tells_order_scope_and_attachment_apart() -> None:
    """Otherwise the test above would prove nothing."""
    assert Reader("Anna thanked Peter.", "Peter thanked Anna.").label() == "neutral"
    assert Reader("Only Anna thanked Peter.", "Rosa thanked Peter.").label() == "contradiction"
    assert Reader("Anna thanked only Peter.", "Rosa thanked Peter.").label() == "neutral"
    assert Reader("None of the bakers sang.", "None of the tired bakers sang.").label() == "entailment"
    assert Reader("None of the tired bakers sang.", "None of the bakers sang.").label() == "neutral"
    assert Reader("Anna, who did not thank Peter, warned Rosa.", "Anna warned Rosa.").label() == "entailment"
