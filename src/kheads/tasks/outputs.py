"""What the outputs of a trained model stand for in the data of a task: its labels, or a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kheads.tasks.files import DataError, listed, quoted
from kheads.tasks.glue_data import GLUE

SHOWN = 8  # labels, of which there may be thousands
NAMED = "name a label for each output, in their order (--set labels=...)"
# Whose words labels are, as errors name them.
DATA = "the labels of the training file"
MODEL = "the model's labels"
USER = "`labels`"
NO_LABELS = "train: there are no labels; what the model says itself stands in for them."  # a note
COMPARED = "{}: there are no labels; each model is compared with what the whole one says."  # a note
NEW_PART = "a part of it is new"


@dataclass(frozen=True)
class Meaning:
    """What each output of a model stands for.

    Attributes:
        labels: the label words in the order of the outputs; none for a score.
        able: whether a trained model gives these already; otherwise they have to be learned.
        whose: whose words the labels are: `DATA`, `MODEL` or `USER`.
        note: what was taken for granted, or why the model has to learn, in a sentence for the user; may be empty.
    """

    labels: tuple[str, ...]
    able: bool
    whose: str = DATA
    note: str = ""

    def place(self, word: str) -> int | None:
        """The output for a word of the data, which may write words not its own in another case, or as numbers."""
        numbered = not any(label.isdecimal() for label in self.labels)
        spellings = [
            (word, list(self.labels)),
            (word.lower(), [label.lower() for label in self.labels]),
            (word, [str(index) for index in range(len(self.labels))] if numbered else []),
        ]
        usable = spellings[:1] if self.whose == DATA else spellings
        return next((known.index(spelled) for spelled, known in usable if spelled in known), None)


def score(outputs: Sequence[str], labels: Sequence[str] | None = None) -> Meaning:
    """What a model's outputs stand for in data with scores, where the user can have no words for them."""
    if labels:
        raise ValueError(f"`labels` cannot be given for scores, which have no labels; got {listed(labels)}.")
    able = len(outputs) == 1
    return Meaning((), able, note="" if able else _to_learn(outputs, "scores"))


def classes(
    words: Sequence[str], outputs: Sequence[str], labels: Sequence[str] | None = None, every: bool = True
) -> Meaning:
    """What a model's outputs stand for in data with these labels.

    Args:
        words: the labels of the data.
        outputs: what the model calls its outputs, in their order; nothing if no model is asked.
        labels: the user's words for the outputs, which win.
        every: whether these are all labels of the data, because it is there to learn from. Otherwise a few rows need
            not show each of them, and the model's count.
    """
    if labels is not None:
        return _different(_of_user([str(label) for label in labels], outputs))
    own = Meaning(tuple(outputs), True, MODEL, _by_number(words, outputs))
    places = {own.place(word) for word in words}
    if None not in places and (not every or len(places) == len(words) == len(outputs)):
        return _different(own)
    found = ordered(words)
    if _are_nameless(outputs) and len(found) == len(outputs):
        return Meaning(found, True, note=_taken("The model's outputs have no names", outputs, found))
    hint = f"; to use it as it is, {NAMED}" if len(found) <= len(outputs) else ""
    counted, whose = (found, DATA) if every else (tuple(outputs), MODEL)
    return Meaning(counted, False, whose, _to_learn(outputs, listed(found) + hint))


def ordered(words: Sequence[str]) -> tuple[str, ...]:
    """GLUE's words in GLUE's order, numbers by value, other words sorted."""
    for task in GLUE.values():
        if sorted(task.labels) == sorted(word.lower() for word in words):
            return tuple(sorted(words, key=lambda word: task.labels.index(word.lower())))
    if all(word.removeprefix("-").isdecimal() for word in words):
        return tuple(sorted(words, key=int))
    return tuple(sorted(words))


def needs_labels(origin: str, why: str, way: str = "name their column with `columns`, add them") -> DataError:
    """What is said of training data without labels for a model that is not trained for the task.

    Args:
        origin: the data.
        why: why the model has to be trained.
        way: how the data can have labels.
    """
    return DataError(
        f"{origin} has no labels, and the model has to be trained, which needs them: {why}; {way}, or give a model "
        "that is trained for this task."
    )


def unlike(outputs: Sequence[str], what: str) -> str:
    """Why a model cannot do the task as it is: what it has, and what the data has."""
    return f"its outputs are {listed(outputs)}, and the data has {what}"


def _of_user(labels: Sequence[str], outputs: Sequence[str]) -> Meaning:
    able = len(labels) == len(outputs)
    return Meaning(tuple(labels), able, USER, "" if able else _to_learn(outputs, listed(labels)))


def _different(found: Meaning) -> Meaning:
    """The same, if no two outputs have one name; the data's own words are different anyway."""
    if len(set(found.labels)) != len(found.labels) or len(found.labels) < 2:
        raise ValueError(f"{found.whose} must be two or more different words; got {listed(found.labels)}.")
    return found


def _are_nameless(outputs: Sequence[str]) -> bool:
    """Whether outputs are called as transformers calls them by itself, or by their numbers."""
    return any(list(outputs) == [f"{prefix}{index}" for index in range(len(outputs))] for prefix in ("LABEL_", ""))


def _by_number(words: Sequence[str], outputs: Sequence[str]) -> str:
    """What to say where the data has numbers and the model has names."""
    numbers = [str(index) for index in range(len(outputs))]
    if _are_nameless(outputs) or not set(words) & set(numbers) - set(outputs):
        return ""
    return _taken("The data has numbers for labels", numbers, outputs)


def _taken(what: str, names: Sequence[str], labels: Sequence[str]) -> str:
    pairs = [f"{name} as {quoted(label)}" for name, label in zip(names, labels, strict=True)]
    more = [f"and {len(pairs) - SHOWN} more in that order"] if len(pairs) > SHOWN else []
    return f"{what}: kheads takes {', '.join([*pairs[:SHOWN], *more])}; if that is wrong, {NAMED}."


def _to_learn(outputs: Sequence[str], what: str) -> str:
    return f"The model has to be trained for this task: {unlike(outputs, what)}." if outputs else ""
