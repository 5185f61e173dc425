"""Extractive question answering: data, windows over long contexts, and the answers put together from them.

A context that does not fit is read in windows that share some tokens. In training, a window without the answer is told
that it has none, at its first token ([CLS]). The answer to a question is the best span of all its windows. Where a set
has questions without an answer, none is the answer if it is better than every span.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kheads.tasks.answers import exact_match, f1
from kheads.tasks.files import DataError
from kheads.tasks.outputs import NO_LABELS
from kheads.tasks.question_files import Question, read_questions
from kheads.tasks.sampling import check_limits, draw
from kheads.tasks.special_tokens import check_window
from kheads.tasks.tokens import CHARACTERS_AT_ONCE, token_ids
from kheads.training.progress import progress
from kheads.training.set_trainer import check_order

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import EvalPrediction

METRIC = "f1"
METRICS = (METRIC, "exact_match")
CANDIDATES = 20  # starts and ends of a window that may be those of the answer
OUTSIDE = -1  # the characters of a token that is not of the context


@dataclass(frozen=True)
class Windows:
    """How contexts are read.

    Attributes:
        tokenizer: the model's, a fast one.
        length: tokens of a window, those of the question included.
        stride: tokens that two windows share, at most half of what the question leaves.
    """

    tokenizer: Any
    length: int
    stride: int


@dataclass(frozen=True)
class QuestionTask:
    """Questions to train and evaluate on.

    Attributes:
        train: training questions; None to evaluate only.
        evals: evaluation sets by name.
        max_answer: tokens of an answer, at most.
        totals: how many questions each set had before `sample`.
        seed: what `sample` drew with; None if it was not called.
    """

    train: list[Question] | None
    evals: dict[str, list[Question]]
    max_answer: int = 30
    totals: dict[str, int] = field(default_factory=dict)
    seed: int | None = None

    @property
    def labelled(self) -> bool:
        """Whether the training data has answers."""
        return self.train is None or all(question.labelled for question in self.train)

    @property
    def sets(self) -> dict[str, list[Question]]:
        """All sets by name."""
        return self.evals if self.train is None else {"train": self.train, **self.evals}

    def sample(self, max_train: int | None = None, max_eval: int | None = None, seed: int = 0) -> QuestionTask:
        """Returns the task with random subsets of its questions; the same seed gives the same ones."""
        check_limits(max_train, max_eval)
        train = None if self.train is None else _drawn(self.train, max_train, seed)
        evals = {name: _drawn(found, max_eval, seed) for name, found in self.evals.items()}
        return replace(self, train=train, evals=evals, seed=seed)

    def notes(self, encoded: Mapping[str, Dataset]) -> tuple[str, ...]:
        """What was done to the data, in sentences for the user."""
        notes = [] if self.labelled else [NO_LABELS]
        for name, found in self.sets.items():
            if len(found) < self.totals[name]:
                notes.append(
                    f"{name}: {len(found)} of {self.totals[name]} questions, drawn at random with seed {self.seed}."
                )
            without = sum(question.labelled and not question.answers for question in found)
            told = f", of which {without} have no answer" if without else ""
            notes.append(f"{name}: {len(found)} questions{told}, read in {len(encoded[name])} windows.")
        return tuple(notes)

    def tokenize(self, windows: Windows) -> dict[str, Dataset]:
        """Turns the sets into windows of token ids, with the place of the answer.

        Besides what the model takes, evaluation data has `example`, the number of the question in its set, `begins` and
        `ends`, the characters of each token in the context, `null`, the token that says that there is no answer; and
        `set`, the number of the evaluation set.
        """
        encoded = {} if self.train is None else {"train": _encoded(self.train, windows, None)}
        return encoded | {
            name: _encoded(found, windows, number) for number, (name, found) in enumerate(self.evals.items())
        }

    def compute_metrics(self, prediction: EvalPrediction, data: Any) -> dict[str, float]:
        """F1 and exact match of the answers; a model that has diverged has neither.

        Args:
            prediction: what the model said of every token of the data.
            data: the evaluation set, as `tokenize` made it.
        """
        for labels, name in zip(prediction.label_ids, ("start_positions", "end_positions"), strict=True):
            check_order(labels, data[name])
        starts, ends = (np.asarray(side) for side in prediction.predictions[:2])
        if np.isnan(starts).any() or np.isnan(ends).any():
            return dict.fromkeys(METRICS, float("nan"))
        questions = list(self.evals.values())[data[0]["set"]]
        found = answers(starts, ends, data, questions, self.max_answer)
        pairs = [(found[number], question.answers) for number, question in enumerate(questions)]
        return {
            METRIC: float(np.mean([f1(*pair) for pair in pairs])),
            "exact_match": float(np.mean([exact_match(*pair) for pair in pairs])),
        }


def from_question_files(
    train: str | Path | None, evals: Mapping[str, str | Path], max_answer: int = 30
) -> QuestionTask:
    """Reads questions from files.

    Args:
        train: the training file, which may have no answers; None to evaluate only.
        evals: evaluation files by name.
        max_answer: tokens of an answer, at most.
    """
    if not evals:
        raise ValueError("There is no evaluation set; give at least one.")
    if "train" in evals:
        raise ValueError("An evaluation set cannot be called 'train'; give it another name.")
    sets = {name: read_questions(path) for name, path in evals.items()}
    learned = None if train is None else read_questions(train, labelled=False)
    totals = {name: len(found) for name, found in sets.items()} | ({} if learned is None else {"train": len(learned)})
    return QuestionTask(learned, sets, max_answer, totals)


def _drawn(questions: list[Question], count: int | None, seed: int) -> list[Question]:
    return [questions[place] for place in draw(len(questions), count, seed)]


# ------------------------------------------------------------------------------------------------------------- answers


def answers(
    starts: np.ndarray, ends: np.ndarray, data: Any, questions: Sequence[Question], max_answer: int
) -> dict[int, str]:
    """The answer to each question; empty where there is none.

    Args:
        starts: the score of every token of every window to begin the answer, (N, L).
        ends: the same for its end.
        data: the windows.
        questions: what they are of.
        max_answer: tokens of an answer, at most.
    """
    best: dict[int, tuple[float, str]] = {}
    nothing: dict[int, float] = {}
    columns = (data[name] for name in ("example", "begins", "ends", "null"))
    for start, end, example, begins, stops, null in zip(starts, ends, *columns, strict=True):
        score, first, last = best_span(start, end, np.asarray(begins) != OUTSIDE, max_answer)
        text = questions[example].context[begins[first] : stops[last]] if score > -np.inf else ""
        best[example] = max(best.get(example, (-np.inf, "")), (score, text), key=lambda pair: pair[0])
        nothing[example] = min(nothing.get(example, np.inf), float(start[null] + end[null]))
    unanswered = any(not question.answers for question in questions)
    return {example: "" if unanswered and nothing[example] > score else text for example, (score, text) in best.items()}


def best_span(start: np.ndarray, end: np.ndarray, inside: np.ndarray, max_answer: int) -> tuple[float, int, int]:
    """The score of the best span of a window, and its first and last token; -inf if there is none.

    Args:
        start: the score of each token to be the first, (L,); what is beyond `inside` is padding.
        end: the same for the last.
        inside: whether a token is of the context, (T,).
        max_answer: tokens of a span, at most.
    """
    firsts, lasts = (_candidates(scores[: len(inside)], inside) for scores in (start, end))
    lengths = lasts[None, :] - firsts[:, None] + 1
    scores = start[firsts].astype(np.float64)[:, None] + end[lasts].astype(np.float64)[None, :]
    scores = np.where((lengths >= 1) & (lengths <= max_answer), scores, -np.inf)
    if not scores.size or not np.isfinite(scores).any():
        return -np.inf, 0, 0
    first, last = np.unravel_index(int(scores.argmax()), scores.shape)
    return float(scores[first, last]), int(firsts[first]), int(lasts[last])


def _candidates(scores: np.ndarray, inside: np.ndarray) -> np.ndarray:
    places = np.flatnonzero(inside)
    return places[np.argsort(-scores[places], kind="stable")[:CANDIDATES]]


# ------------------------------------------------------------------------------------------------------------- windows


def _encoded(questions: Sequence[Question], windows: Windows, number: int | None) -> Dataset:
    """All windows of the questions; `number` is that of an evaluation set."""
    from datasets import Dataset, concatenate_datasets

    room = _rooms(questions, windows)
    parts = []
    for examples, stride in progress(list(_groups(questions, room, windows.stride)), "reading questions"):
        rows = list(_rows(questions, examples, windows, stride, number))
        parts.append(Dataset.from_dict({name: [row[name] for row in rows] for name in rows[0]}))
    whole = concatenate_datasets(parts)
    if number is None:
        return whole
    # The windows of a question stand together, whatever was read with them.
    return whole.select(np.argsort(np.asarray(whole["example"]), kind="stable"))


def _rooms(questions: Sequence[Question], windows: Windows) -> list[int]:
    """How many tokens of a window each question leaves for its context."""
    special = windows.tokenizer.num_special_tokens_to_add(pair=True)
    check_window(windows.length, windows.tokenizer, special + 2)
    ids = token_ids(windows.tokenizer, [question.question for question in questions], add_special_tokens=False)
    rooms = [windows.length - special - len(question) for question in ids]
    for question, tokens, room in zip(questions, ids, rooms, strict=True):
        if room < 1:
            raise DataError(
                f"{question.place}: the question has {len(tokens)} tokens and leaves none of {windows.length} for its "
                "context; raise --max-length, or remove it."
            )
    return rooms


def _groups(questions: Sequence[Question], rooms: Sequence[int], stride: int) -> Iterator[tuple[list[int], int]]:
    """Questions that are tokenized together: their windows share as much, and their contexts are not too long."""
    shared = [min(stride, room // 2) for room in rooms]
    for value in sorted(set(shared)):
        group: list[int] = []
        size = 0
        for example, question in enumerate(questions):
            if shared[example] != value:
                continue
            if group and size + len(question.context) > CHARACTERS_AT_ONCE:
                yield group, value
                group, size = [], 0
            group.append(example)
            size += len(question.context)
        yield group, value


def _rows(
    questions: Sequence[Question], examples: Sequence[int], windows: Windows, stride: int, number: int | None
) -> Iterator[dict[str, Any]]:
    tokenizer = windows.tokenizer
    encoded = tokenizer(
        [questions[example].question for example in examples],
        [questions[example].context for example in examples],
        truncation="only_second",
        max_length=windows.length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    own = [name for name in tokenizer.model_input_names if name in encoded]
    for row, place in enumerate(encoded["overflow_to_sample_mapping"]):
        example = examples[place]
        ids = encoded["input_ids"][row]
        null = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0
        inside = np.asarray([side == 1 for side in encoded.sequence_ids(row)])
        characters = np.where(inside[:, None], np.asarray(encoded["offset_mapping"][row]), OUTSIDE)
        found = {name: encoded[name][row] for name in own} | {"length": len(ids)}
        if questions[example].labelled:
            first, last = span_in(characters, questions[example]) or (null, null)
            found |= {"start_positions": first, "end_positions": last}
        if number is not None:
            found |= {"begins": characters[:, 0], "ends": characters[:, 1]}
            found |= {"null": null, "example": example, "set": number}
        yield found


def span_in(characters: np.ndarray, question: Question) -> tuple[int, int] | None:
    """The first and last token of the answer, the first of several; None if the window does not have all of it.

    Args:
        characters: the first character of each token in the context, and the one after its last; -1 outside, (T, 2).
        question: with its answers.
    """
    if not question.answers:
        return None
    answer, begin = question.answers[0], question.starts[0]
    begin, end = begin + len(answer) - len(answer.lstrip()), begin + len(answer.rstrip())
    real = np.flatnonzero(characters[:, 1] > characters[:, 0])
    if not len(real) or begin < characters[real[0], 0] or end > characters[real[-1], 1]:
        return None
    touched = real[(characters[real, 0] < end) & (characters[real, 1] > begin)]
    return (int(touched[0]), int(touched[-1])) if len(touched) else None
