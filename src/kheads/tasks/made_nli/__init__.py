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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, product

from kheads.tasks.made_nli.language import Cast, Meaning
from kheads.tasks.made_nli.phenomena import PHENOMENA
from kheads.tasks.made_nli.words import WORDS, Words

LABELS = ("entailment", "neutral", "contradiction")
MAX_REPEATS = 1000


@dataclass(frozen=True)
class Example:
    """A premise, a hypothesis, their label (one of `LABELS`) and what the pair tests (one of `PHENOMENA`)."""

    premise: str
    hypothesis: str
    label: str
    phenomenon: str


def generate(split: str, count: int, seed: int = 0, phenomena: Sequence[str] | None = None) -> list[Example]:
    """Makes `count` different examples, with equally many of each label (within 1).

    Args:
        split: "train" or "eval"; the two share no content word, hence no example.
        count: how many examples.
        seed: another seed gives other examples; the same one gives the same list.
        phenomena: names from `PHENOMENA` to draw from; all of them if not given.
    """
    unknown = [name for name in phenomena or () if name not in PHENOMENA]
    if unknown:
        raise ValueError(f"`phenomena` must be names from {', '.join(PHENOMENA)}; got {unknown[0]!r}.")
    if split not in WORDS:
        raise ValueError(f"`split` must be one of {', '.join(map(repr, WORDS))}; got {split!r}.")
    if count < 0:
        raise ValueError(f"`count` must be 0 or more; got {count}.")
    rng = random.Random(f"{split} {seed}")
    examples: dict[tuple[str, str], Example] = {}
    for phenomenon, label in _slots(count, rng, phenomena or tuple(PHENOMENA)):
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
    names = [name for name in phenomena for _ in range(PHENOMENA[name].share)]
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
    build_premise, build_hypothesis, _ = PHENOMENA[phenomenon]
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
