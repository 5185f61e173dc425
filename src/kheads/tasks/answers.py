"""Answers beside the true ones, as SQuAD compares them: case, punctuation, articles and white space do not count."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normal(answer: str) -> str:
    """What of an answer counts."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(guess: str, answers: Sequence[str]) -> float:
    """1 if the guess is one of the answers, else 0; no answers are answered by an empty guess."""
    return float(any(normal(guess) == normal(answer) for answer in answers or ("",)))


def f1(guess: str, answers: Sequence[str]) -> float:
    """The largest F1 of the guess's words and those of an answer."""
    return max(_f1(normal(guess).split(), normal(answer).split()) for answer in answers or ("",))


def _f1(guess: Sequence[str], answer: Sequence[str]) -> float:
    if not guess or not answer:
        return float(guess == answer)
    return 2 * sum((Counter(guess) & Counter(answer)).values()) / (len(guess) + len(answer))
