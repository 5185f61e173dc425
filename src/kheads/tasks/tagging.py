"""Token classification: a tag for every word. Data, labels, and entity F1; for tags without entities, accuracy.

The words of a sentence, with blanks between, are one text to the tokenizer, as they are when the model is used. A
word's tag stands on its first token. A sentence of more than `max_length` tokens is read in pieces, cut between words,
and put together again before entities are counted. So every word is trained on and every word is judged; one of which
the tokenizer makes nothing counts as outside of entities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kheads.tasks.entities import OUTSIDE, entity_scores, names_entities
from kheads.tasks.files import DataError, listed, quoted
from kheads.tasks.outputs import DATA, NO_LABELS, Meaning, classes, needs_labels, unlike
from kheads.tasks.sampling import check_limits, draw
from kheads.tasks.special_tokens import Frame, check_window, frame_of, nothing_read
from kheads.tasks.tag_files import Sentences, read_sentences
from kheads.tasks.tokens import parts
from kheads.training.progress import progress
from kheads.training.set_trainer import check_order

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import EvalPrediction

IGNORED = -100  # the label of what has no tag

Piece = list[tuple[int, list[int]]]  # words by their place in the sentence, each with its tokens


@dataclass(frozen=True)
class TagTask:
    """Sentences to train and evaluate on.

    Attributes:
        train: training sentences; None to evaluate only.
        evals: evaluation sets by name.
        meaning: what the outputs of the model stand for.
        totals: how many sentences each set had before `sample`.
        seed: what `sample` drew with; None if it was not called.
        remarks: what was noticed about the data, in sentences for the user.
    """

    train: Sentences | None
    evals: dict[str, Sentences]
    meaning: Meaning
    totals: dict[str, int] = field(default_factory=dict)
    seed: int | None = None
    remarks: tuple[str, ...] = ()

    @property
    def labelled(self) -> bool:
        """Whether the training data has tags."""
        return self.train is None or self.train.labelled

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags in the order of the outputs."""
        return self.meaning.labels

    @property
    def metric(self) -> str:
        """The headline metric: F1 of entities, where tags name some."""
        return "f1" if names_entities(self.labels) else "accuracy"

    @property
    def model_kwargs(self) -> dict[str, Any]:
        """What `AutoModelForTokenClassification.from_pretrained` needs to know of the task."""
        return {
            "num_labels": len(self.labels),
            "id2label": dict(enumerate(self.labels)),
            "label2id": {word: index for index, word in enumerate(self.labels)},
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the data, in sentences for the user."""
        plain = (f"The tags name no entities ({listed(self.labels, 3)}): accuracy counts, and there is no F1.",)
        drawn = [
            f"{name}: {len(found)} of {self.totals[name]} sentences, drawn at random with seed {self.seed}."
            for name, found in self.sets.items()
            if len(found) < self.totals[name]
        ]
        bare = () if self.labelled else (NO_LABELS,)
        return (*(() if self.metric == "f1" else plain), *self.remarks, *drawn, *bare)

    @property
    def sets(self) -> dict[str, Sentences]:
        """All sets by name."""
        return self.evals if self.train is None else {"train": self.train, **self.evals}

    def sample(self, max_train: int | None = None, max_eval: int | None = None, seed: int = 0) -> TagTask:
        """Returns the task with random subsets of its sentences; the same seed gives the same ones."""
        check_limits(max_train, max_eval)
        train = None if self.train is None else self.train.select(draw(len(self.train), max_train, seed))
        evals = {name: found.select(draw(len(found), max_eval, seed)) for name, found in self.evals.items()}
        return replace(self, train=train, evals=evals, seed=seed)

    def tokenize(self, tokenizer: Any, max_length: int = 128) -> tuple[dict[str, Dataset], tuple[str, ...]]:
        """Turns the sets into token ids and labels; says how many sentences are read in pieces.

        Besides what the model takes, evaluation data has `sentence`, `places`, the words that have a label, and
        `truth`, the labels of all words; `compute_metrics` puts sentences together by them.

        Args:
            tokenizer: the model's, a fast one.
            max_length: tokens of a piece.
        """
        frame = frame_of(tokenizer)
        check_window(max_length, tokenizer, len(frame[0]) + len(frame[1]) + 1)
        encoded, notes = {}, []
        for name, found in self.sets.items():
            cut = _Cut(tokenizer, frame, max_length)
            encoded[name] = cut.encoded(found, self._numbers(found))
            if cut.long:
                notes.append(
                    f"{name}: {cut.long} sentences have more than {max_length} tokens and are read in pieces, cut "
                    "between words."
                )
        return encoded, tuple(notes)

    def _numbers(self, found: Sentences) -> list[list[int]]:
        places = {tag: self.meaning.place(tag) for tag in found.first_seen}
        for tag, place in places.items():
            if place is None:
                raise DataError(
                    f"{found.where(tag)}: the tag {quoted(tag)} is not one of {self.meaning.whose}: "
                    f"{listed(self.labels)}; correct it, or pass the right `labels`."
                )
        return [[int(places[tag] or 0) for tag in tags] for tags in found.tags]

    def compute_metrics(self, prediction: EvalPrediction, data: Any) -> dict[str, float]:
        """Returns the task's metrics, the headline first; a model that has diverged has none.

        Args:
            prediction: what the model said of every token of the data.
            data: the evaluation set, as `tokenize` made it.
        """
        scores = prediction.predictions
        scores = np.asarray(scores[0] if isinstance(scores, tuple) else scores)
        labels = np.asarray(prediction.label_ids)
        check_order(
            labels[labels != IGNORED], [number for row in data["labels"] for number in row if number != IGNORED]
        )
        names = ("f1", "precision", "recall", "accuracy") if self.metric == "f1" else ("accuracy",)
        real = labels != IGNORED
        if np.isnan(scores[real]).any():
            return dict.fromkeys(names, float("nan"))
        sentences = list(_sentences(scores.argmax(-1), real, data, self.labels))
        pairs = [pair for guess, truth in sentences for pair in zip(guess, truth, strict=True)]
        right = {"accuracy": sum(one == other for one, other in pairs) / len(pairs)}
        return {**entity_scores(sentences), **right} if self.metric == "f1" else right


def _sentences(
    guesses: np.ndarray, real: np.ndarray, data: Any, labels: Sequence[str]
) -> Iterator[tuple[list[str], list[str]]]:
    """The tags of each sentence, as they were guessed and as they are; of words without tokens the guess is O."""
    whole: dict[int, tuple[list[str], list[str]]] = {}
    columns = (data[name] for name in ("sentence", "places", "truth"))
    for row, here, sentence, places, truth in zip(guesses, real, *columns, strict=True):
        if sentence not in whole:
            whole[sentence] = [OUTSIDE] * len(truth), [labels[number] for number in truth]
        for place, number in zip(places, row[here], strict=True):
            whole[sentence][0][place] = labels[number]
    return iter(whole.values())


def from_tag_files(
    train: str | Path | None,
    evals: Mapping[str, str | Path],
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
    outputs: Sequence[str] = (),
) -> TagTask:
    """Reads words and tags from files.

    Args:
        train: the training file; None to evaluate only.
        evals: evaluation files by name.
        columns: as for `read_sentences`.
        labels: the tags in the order of the model's outputs.
        outputs: what a trained model calls its outputs, in their order. If they are all tags of the data, and maybe
            more, the model is taken as it is: a file need not show every tag, and the training file need have none.
    """
    if not evals:
        raise ValueError("There is no evaluation set; give at least one.")
    if "train" in evals:
        raise ValueError("An evaluation set cannot be called 'train'; give it another name.")
    paths = evals if train is None else {"train": train, **evals}
    sets = {name: read_sentences(path, columns, name != "train" or not outputs) for name, path in paths.items()}
    found = _meaning(sets, labels, outputs)
    rest = dict(sets)
    totals = {name: len(one) for name, one in sets.items()}
    return TagTask(rest.pop("train", None), rest, found, totals, remarks=_unseen(sets, found))


def _meaning(sets: Mapping[str, Sentences], labels: Sequence[str] | None, outputs: Sequence[str]) -> Meaning:
    words = list(dict.fromkeys(tag for found in sets.values() for tag in found.first_seen))
    meaning = classes(words, outputs, labels, every=False)
    if not meaning.able and "train" in sets:
        if not sets["train"].labelled:
            raise needs_labels(sets["train"].origin, unlike(outputs, listed(words)))
        meaning = classes(words, outputs, labels)
    if meaning.whose == DATA and all(word.isdecimal() for word in words):
        first = next(found for found in sets.values() if found.labelled)
        raise DataError(
            f"{first.where(next(iter(first.first_seen)))}: the tags are numbers, and nobody says what they stand for; "
            "name them in their order (--set labels=...), or give a model that does."
        )
    if len(meaning.labels) < 2:
        raise DataError(f"{next(iter(sets.values())).origin} must have two or more tags; got {listed(meaning.labels)}.")
    return meaning


def _unseen(sets: Mapping[str, Sentences], found: Meaning) -> tuple[str, ...]:
    """Tags that nothing teaches may be mistakes."""
    if "train" not in sets or found.able:
        return ()
    known = sets["train"].first_seen
    return tuple(
        f"{one.where(tag)}: the tag {quoted(tag)} is in no training sentence."
        for name, one in sets.items()
        for tag in one.first_seen
        if name != "train" and tag not in known
    )


# -------------------------------------------------------------------------------------------------------------- tokens


class _Cut:
    """Sentences as tokens, in pieces where they are long; counts those."""

    def __init__(self, tokenizer: Any, frame: Frame, max_length: int):
        self.tokenizer, self.frame = tokenizer, frame
        self.room = max_length - len(frame[0]) - len(frame[1])
        self.long = 0

    def encoded(self, found: Sentences, numbers: Sequence[Sequence[int]]) -> Dataset:
        from datasets import Dataset

        rows = [
            self._row(piece, sentence, numbers[sentence])
            for sentence, pieces in enumerate(self._pieces(found))
            for piece in pieces
        ]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return Dataset.from_dict(columns)

    def _pieces(self, found: Sentences) -> Iterator[list[Piece]]:
        texts, number = [" ".join(words) for words in found.words], 0
        for part in progress(parts(texts), "reading sentences"):
            encoded = self.tokenizer(part, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
                words = by_word(ids, offsets, found.words[number])
                if not words:
                    raise nothing_read(found.origin, found.lines[number])
                pieces = cut_between_words(words, self.room)
                self.long += len(pieces) > 1
                yield pieces
                number += 1

    def _row(self, piece: Piece, sentence: int, truth: Sequence[int]) -> dict[str, Any]:
        before, behind = self.frame
        ids, labels = list(before), [IGNORED] * len(before)
        for place, tokens in piece:
            ids += tokens
            labels += [truth[place] if truth else IGNORED, *[IGNORED] * (len(tokens) - 1)]
        ids, labels = [*ids, *behind], [*labels, *[IGNORED] * len(behind)]
        told = {"labels": labels} if truth else {}
        types = {"token_type_ids": [0] * len(ids)} if "token_type_ids" in self.tokenizer.model_input_names else {}
        places = [place for place, _ in piece]
        own = {"length": len(ids), "sentence": sentence, "places": places, "truth": list(truth)}
        return {"input_ids": ids, "attention_mask": [1] * len(ids), **types, **told, **own}


def by_word(ids: Sequence[int], offsets: Sequence[tuple[int, int]], words: Sequence[str]) -> Piece:
    """The tokens of each word that has some.

    Args:
        ids: tokens of the words with a blank between each two.
        offsets: the first character of each token, and the one after its last.
        words: the words.
    """
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    found: dict[int, list[int]] = {}
    place = 0
    for token, (begin, end) in zip(ids, offsets, strict=True):
        while place < len(words) - 1 and begin >= ends[place] and end > begin:
            place += 1
        found.setdefault(place, []).append(token)
    return list(found.items())


def cut_between_words(words: Piece, room: int) -> list[Piece]:
    """Pieces of at most so many tokens, as few as there can be; a word that is longer loses its end."""
    pieces: list[Piece] = [[]]
    size = 0
    for place, tokens in words:
        tokens = tokens[:room]
        if size + len(tokens) > room:
            pieces.append([])
            size = 0
        pieces[-1].append((place, tokens))
        size += len(tokens)
    return pieces
