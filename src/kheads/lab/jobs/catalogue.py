"""The tasks by name, and what each reads. No library is loaded here, so that the command line can list them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from kheads.blocks.fields import Count, OneOf, Part, Range, Seed, Text, Whole, check_fields
from kheads.lab.options import build

# Names of files by the name of their evaluation set, or of columns by what they hold.
Names = Mapping[str, Text]
# Labels by the outputs of a model.
Words = Sequence[Text]


@dataclass(frozen=True)
class Data:
    """What a task reads: a record whose fields are what they say they are, whoever makes it."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class LabelledFiles(Data):
    """Labelled texts in files.

    Attributes:
        train: Training file; jsonl, csv, tsv or parquet, also .gz; a model that is trained for the task needs no labels
            in it, and then it may be .txt, too; for image a folder.
        eval: Evaluation files by name; without labels in the training file they need none, and may be left out.
        columns: Names of the columns: text, text_pair, label.
        labels: Label words in the order of the model's outputs, such as no,yes; by default what the model calls them.
        metric: The headline metric; by default pearson for scores, and otherwise accuracy.
    """

    train: str | None = None
    eval: Names = field(default_factory=dict)
    columns: Names = field(default_factory=dict)
    labels: Words | None = None
    metric: Annotated[str, OneOf(("accuracy", "f1", "matthews", "pearson"))] | None = None


@dataclass(frozen=True)
class Glue(Data):
    """A GLUE task; its name says what it reads.

    Attributes:
        labels: GLUE's words in the order of the model's outputs; by default what the model calls them.
    """

    labels: Words | None = None


@dataclass(frozen=True)
class TextFiles(Data):
    """Plain text.

    Attributes:
        train: Training file.
        eval: Evaluation files by name.
    """

    train: str | None = None
    eval: Names = field(default_factory=dict)


@dataclass(frozen=True)
class MaskedText(Data):
    """Plain text, of which some tokens are hidden.

    Attributes:
        train: Training file.
        eval: Evaluation files by name.
        masked: Share of the tokens that are hidden, and have to be told.
    """

    train: str | None = None
    eval: Names = field(default_factory=dict)
    masked: Part = 0.15


@dataclass(frozen=True)
class TaggedFiles(Data):
    """Words and their tags.

    Attributes:
        train: Training file; a word and its tag on each line and a blank line after each sentence, or jsonl of words
            and tags; also .gz; a model that is trained for the task needs no tags in it.
        eval: Evaluation files by name.
        columns: Columns of words and tags; their names in jsonl, otherwise their numbers, from 1.
        labels: Tags in the order of the model's outputs, such as O,B-PER,I-PER; by default what the model calls them.
    """

    train: str | None = None
    eval: Names = field(default_factory=dict)
    columns: Names = field(default_factory=dict)
    labels: Words | None = None


@dataclass(frozen=True)
class Questions(Data):
    """Questions whose answers stand in a context.

    Attributes:
        train: Training file; json as in SQuAD, or jsonl with context, question and answers; also .gz; a model that is
            trained for the task needs no answers in it.
        eval: Evaluation files by name.
        stride: Tokens that two windows of a long context share, by default a third of max_length; never more than half
            of what the question leaves.
        max_answer: Tokens of an answer, at most.
    """

    train: str | None = None
    eval: Names = field(default_factory=dict)
    stride: Whole | None = None
    max_answer: Count = 30


@dataclass(frozen=True)
class ImageFolders(Data):
    """Images, in one folder for each class.

    Attributes:
        train: Training folder.
        eval: Evaluation folders by name.
        labels: Classes in the order of the model's outputs, such as cat,dog; by default what the model calls them.
    """

    train: str | None = None
    eval: Names = field(default_factory=dict)
    labels: Words | None = None


@dataclass(frozen=True)
class MadeNli(Data):
    """The embedded task: inference by rule, made when it is needed.

    Attributes:
        train_rows: Training rows to make.
        eval_rows: Evaluation rows to make, with words that training does not show.
        data_seed: Seed of the data, which is not the run's.
        labels: The three labels in the order of the model's outputs; by default what the model calls them.
    """

    train_rows: Count = 8000
    eval_rows: Count = 1000
    data_seed: Seed = 0
    labels: Words | None = None


@dataclass(frozen=True)
class Translation(Data):
    """Pairs of sentences.

    Attributes:
        train_source: Sentences to translate, one a line; also .gz.
        train_target: Their translations, line by line.
        eval_source: Sentences of the evaluation sets: files by name.
        eval_target: Their references, under the same names.
        train: Instead: a file with two columns.
        eval: Evaluation files with two columns, by name.
        columns: Names of the columns: source, target.
        dataset: Instead: a data set of the hub, NAME or NAME:CONFIG; or numbers (embedded).
        clean: Leave out training pairs that are too long or too uneven.
        tokenized: The texts are Moses tokens already.
        source_lang: Source language, as the model's tokenizer calls it.
        target_lang: Target language.
        vocab_size: Size of a new model's joint BPE, in which every byte and three special tokens are.
        batch_tokens: Tokens per optimizer step, padding included.
        label_smoothing: Share of label smoothing.
        beams: Width of the beam search.
    """

    train_source: str | None = None
    train_target: str | None = None
    eval_source: Names = field(default_factory=dict)
    eval_target: Names = field(default_factory=dict)
    train: str | None = None
    eval: Names = field(default_factory=dict)
    columns: Names = field(default_factory=dict)
    dataset: str | None = None
    clean: bool = True
    tokenized: bool = False
    source_lang: str | None = None
    target_lang: str | None = None
    vocab_size: Annotated[int, Range(least=259)] | None = None
    batch_tokens: Count = 4096
    label_smoothing: Annotated[float, Range(least=0, below=1)] = 0.1
    beams: Count = 5


@dataclass(frozen=True)
class Sentences(Data):
    """Texts to embed; no labels are needed.

    Attributes:
        train: Training file: .txt with one text a line, or jsonl, csv, tsv or parquet with one or two of them a row.
        eval: Evaluation files by name; pairs may have scores. By default a part of the training texts is held out.
        columns: Names of the columns: text, text_pair, score.
        pooling: How token vectors become one: mean or cls; a sentence-transformers folder says it itself.
        normalise: Whether embeddings get unit length; a sentence-transformers folder says it itself.
        distance: How the embeddings of the smaller model are compared with the original's in training: cosine, mse,
            similarity (of all pairs in a batch), or both (cosine and similarity).
        original: The model whose embeddings count, by default the one that is given; for eval a folder or hub name.
    """

    train: str | None = None
    eval: Names = field(default_factory=dict)
    columns: Names = field(default_factory=dict)
    pooling: Annotated[str, OneOf(("mean", "cls"))] | None = None
    normalise: bool | None = None
    distance: Annotated[str, OneOf(("cosine", "mse", "similarity", "both"))] = "cosine"
    original: Text | None = None


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        what: What it is, in a few words.
        data: The record of what it reads.
        module: Where it is made ready for a model.
        unused: Fields of a job that mean nothing to it, and what to use instead.
    """

    what: str
    data: type
    module: str
    unused: Mapping[str, str] = field(default_factory=dict)


FILES = Task("labelled texts in files", LabelledFiles, "kheads.lab.jobs.classification")
GLUE = Task("a GLUE task, from the hub", Glue, "kheads.lab.jobs.classification")
TASKS: dict[str, Task] = {
    "clm": Task("language modelling on text files", TextFiles, "kheads.lab.jobs.language_modelling"),
    "embed": Task(
        "embeddings that follow the original's, no labels",
        Sentences,
        "kheads.lab.jobs.embedding",
        {"fresh": "", "baseline": "", "distil": ""},
    ),
    "image": Task(
        "image classification on folders", ImageFolders, "kheads.lab.jobs.image_classification", {"max_length": ""}
    ),
    "made-nli": Task("inference by rule (embedded)", MadeNli, "kheads.lab.jobs.made_nli"),
    "mlm": Task("masked language modelling on text files", MaskedText, "kheads.lab.jobs.masked_modelling"),
    "qa": Task("questions answered from a context", Questions, "kheads.lab.jobs.question_answering"),
    "tags": Task("a tag for each word: entities, parts of speech", TaggedFiles, "kheads.lab.jobs.tagging"),
    "translation": Task(
        "translation by an encoder-decoder", Translation, "kheads.lab.jobs.translation", {"batch_size": "batch_tokens"}
    ),
}
GLUE_NAMES = ("mnli", "sst2", "qnli", "rte", "mrpc", "cola", "qqp", "stsb")


def task_of(name: str | None) -> Task:
    """The task of that name; files with labels where none is named."""
    if name is None:
        return FILES
    if name in TASKS:
        return TASKS[name]
    if name in GLUE_NAMES:
        return GLUE
    raise ValueError(f"The task must be one of {', '.join([*TASKS, *GLUE_NAMES])}; got {name!r}.")


def data_of(name: str | None, given: Mapping[str, Any]) -> Any:
    """The record of a task's data from what a user gave; empty values are not given."""
    task, label = task_of(name), name or "labelled files"
    values = {key: value for key, value in given.items() if value not in (None, {}, [], "")}
    return build(task.data, values, f"the task {label}")
