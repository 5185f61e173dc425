"""The made NLI data: right labels, held-out words, and no way round reading the sentences."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
import torch

from kheads.tasks.made_nli import LABELS, PHENOMENA, WORDS, Example, generate, relation

World = dict[Any, Any]
Formula = Callable[[World], bool]
Feature = dict[str, float]


@pytest.fixture(scope="module")
def train() -> list[Example]:
    return generate("train", 20_000)


@pytest.fixture(scope="module")
def evaluation() -> list[Example]:
    return generate("eval", 2_000)


# A reader of its own: it parses the English of both sentences and enumerates small worlds. It shares the lists of
# words with the generator, and nothing else.

PERSON = r"(?:the \w+|[A-Z]\w+)"
ARGUMENT = rf"(?:(?:only|nobody except|everyone except) {PERSON}|{PERSON}|somebody|nobody)"
OPERATOR = r"(?:managed|remembered|failed|forgot|refused|wanted|promised|did not plan) to"
PREDICATE = rf"(?:{OPERATOR} \w+|did not \w+|was (?:not )?\w+ by|\w+) {PERSON}"
QUANTIFIERS: dict[str, Callable[[int, int], bool]] = {
    r"all of the (.+)s": lambda k, n: k == n,
    r"every (.+)": lambda k, n: k == n,
    r"none of the (.+)s": lambda k, n: k == 0,
    r"no (.+)": lambda k, n: k == 0,
    r"some of the (.+)s": lambda k, n: k > 0,
    r"at least one (.+)": lambda k, n: k > 0,
    r"not all of the (.+)s": lambda k, n: k < n,
    r"not every (.+)": lambda k, n: k < n,
    r"most of the (.+)s": lambda k, n: 2 * k > n,
    r"more than half of the (.+)s": lambda k, n: 2 * k > n,
    r"fewer than half of the (.+)s": lambda k, n: 2 * k < n,
    r"only some of the (.+)s": lambda k, n: 0 < k < n,
    r"some but not all of the (.+)s": lambda k, n: 0 < k < n,
}
FREQUENCIES: dict[str, Callable[[int, int], bool]] = {
    r"(P) always (\w+) (P)": QUANTIFIERS[r"every (.+)"],
    r"(P) (\w+) (P) every time": QUANTIFIERS[r"every (.+)"],
    r"(P) never (\w+) (P)": QUANTIFIERS[r"no (.+)"],
    r"(P) did not (\w+) (P) even once": QUANTIFIERS[r"no (.+)"],
    r"(P) sometimes (\w+) (P)": QUANTIFIERS[r"at least one (.+)"],
    r"(P) (\w+) (P) at least once": QUANTIFIERS[r"at least one (.+)"],
    r"(P) did not always (\w+) (P)": QUANTIFIERS[r"not every (.+)"],
    r"sometimes (P) did not (\w+) (P)": QUANTIFIERS[r"not every (.+)"],
    r"(P) usually (\w+) (P)": QUANTIFIERS[r"most of the (.+)s"],
    r"(P) (\w+) (P) most of the time": QUANTIFIERS[r"most of the (.+)s"],
    r"(P) usually did not (\w+) (P)": QUANTIFIERS[r"fewer than half of the (.+)s"],
    r"most of the time, (P) did not (\w+) (P)": QUANTIFIERS[r"fewer than half of the (.+)s"],
    r"(P) only sometimes (\w+) (P)": QUANTIFIERS[r"only some of the (.+)s"],
    r"(P) (\w+) (P) sometimes but not always": QUANTIFIERS[r"only some of the (.+)s"],
}
BASES = {form: verb.base for words in WORDS.values() for verb in (*words.verbs, *words.acts) for form in verb}
NAMES = {name for words in WORDS.values() for name in words.names}
NOUNS = {noun for words in WORDS.values() for noun in words.nouns}
ADJECTIVES = {adjective for words in WORDS.values() for adjective in words.adjectives}
DIRECTIONS = {
    word: (scale.adjective, sign)
    for words in WORDS.values()
    for scale in words.scales
    for word, sign in ((scale.more, 1), (scale.less, -1))
}


class Reader:
    """Turns sentences into truth conditions, and notes which facts of a world they depend on."""

    def __init__(self, *sentences: str) -> None:
        texts = [self.opened(sentence) for sentence in sentences]
        found = {person for text in texts for person in re.findall(PERSON, text)}
        self.people = [person for person in found if person in NAMES or person.removeprefix("the ") in NOUNS]
        self.people.append("a stranger")
        self.divided = any(word in ADJECTIVES for text in texts for word in text.split())
        self.facts: dict[Any, list[Any]] = {}
        self.formulas = [self.read(text) for text in texts]

    @staticmethod
    def opened(sentence: str) -> str:
        text = sentence.removesuffix(".")
        keep = re.match(r"\w+", text)
        return text if keep and keep.group() in NAMES else text[0].lower() + text[1:]

    def label(self) -> str:
        premise, hypothesis = self.formulas
        worlds = (dict(zip(self.facts, values, strict=True)) for values in product(*self.facts.values()))
        verdicts = {hypothesis(world) for world in worlds if premise(world)}
        assert verdicts, "the premise holds in no world"
        return {(True,): "entailment", (False,): "contradiction"}.get(tuple(verdicts), "neutral")

    def read(self, text: str) -> Formula:
        for pattern, readers in (
            (r"it is (true|not true|false|possible|not certain) that (.+)", self.certainty),
            (rf"it was ({PERSON}) who (.+)", self.clause),
            (rf"it was ({PERSON}) whom ({PERSON}) (.+)", lambda patient, agent, did: self.read(f"{agent} {did} {patient}")),
            (r"while (.+), (.+)", self.conjunction),
            (r"(.+), while (.+)", self.conjunction),
            (r"(.+), (?:and|but) (.+)", self.conjunction),
            (rf"({PERSON}),? who ({PREDICATE}),? ({PREDICATE})", self.two_clauses),
            (rf"({PERSON}),? whom ({PERSON}) (did not \w+|\w+),? ({PREDICATE})", self.object_relative),
            (rf"({PERSON}) ({PREDICATE}) and ({PREDICATE})", self.two_clauses),
            (rf"({PERSON}) was (\w+) by ({PERSON}) but not by ({PERSON})", self.but_not_by),
            (rf"({PERSON}) was (\w+) by ({PERSON}) and (\w+) by ({PERSON})", self.and_by),
            (rf"({PERSON}) is (not )?(?:(\w+) than|exactly as (\w+) as) ({PERSON})", self.comparison),
            (rf"({PERSON}) ({PREDICATE})", self.clause),
            (rf"({PERSON}) was (not )?(\w+)", self.agentless),
            (rf"({ARGUMENT}) (\w+) ({ARGUMENT})", self.arguments),
            (rf"({ARGUMENT}) was (\w+) (?:by ({ARGUMENT})|(only) by ({PERSON}))", self.passive_arguments),
        ):
            match = re.fullmatch(pattern, text)
            if match and (formula := readers(*match.groups())):
                return formula
        return self.frequency(text) or self.quantified(text)
