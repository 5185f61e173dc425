"""Labelled texts: what is read is what stands in the file, and what cannot be used is named with file and line."""

import csv
import gzip
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pytest
import scipy.stats
import sklearn.metrics
import torch
from datasets import ClassLabel, Dataset, Features, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)

from kheads.lab.jobs.classification import load
from kheads.lab.jobs.job import Job
from kheads.tasks import GLUE, METRICS, ClassificationTask, DataError, from_files, from_rows, glue
from kheads.tasks.files import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, read_table

FORMATS = (
    "rows.jsonl",
    "rows.json",
    "rows.jsonl.gz",
    "rows.csv",
    "rows.CSV.GZ",
    "rows.tsv",
    "rows.tsv.gz",
    "r.parquet",
)
Row = dict[str, Any]


def write(path: Path, rows: list[Row]) -> Path:
    """Writes rows in the format of the extension."""
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        if kind == "csv":
            csv.writer(file).writerows([list(rows[0]), *(row.values() for row in rows)])
        elif kind == "tsv":
            file.writelines("\t".join(map(str, cells)) + "\n" for cells in [list(rows[0]), *(r.values() for r in rows)])
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def rows_of(labels: list[Any], pair: bool = True) -> list[Row]:
    return [
        {"text": f"a {'b ' * (index % 7)}c"} | ({"text_pair": "b c"} if pair else {}) | {"label": label}
        for index, label in enumerate(labels)
    ]


def task_of(values: list[Any], **kwargs: Any) -> ClassificationTask:
    return from_rows("made", rows_of(values), {"dev": rows_of(values)}, **kwargs)


def message_of(call: Callable[[], Any]) -> str:
    """The text of the DataError that the call raises, which is one sentence in one line."""
    with pytest.raises(DataError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".") and ". " not in message
    return message


@pytest.fixture
def tokenizer() -> BertTokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    return BertTokenizer(vocab={word: index for index, word in enumerate(words)})


# Reading


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda text: not text.isspace())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS, st.sampled_from(["yes", "no", "7"])), min_size=1, max_size=5))
def test_every_format_gives_back_what_was_written(cells: list[tuple[str, str, str]]) -> None:
    """Quotes, commas and characters of any script included; a tab or a line end would be no cell of a tsv."""
    rows = [dict(zip(("premise", "hypothesis", "label"), row, strict=True)) for row in cells]
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMATS:
            table = read_table(write(Path(folder) / name, rows))
            assert list(zip(table.texts, table.pairs or (), table.labels, strict=True)) == cells, name


@pytest.mark.parametrize("label", LABEL_NAMES)
@pytest.mark.parametrize("texts", [*PAIR_NAMES, *((name,) for name in TEXT_NAMES)], ids="/".join)
def test_usual_names_are_found_in_any_case(texts: tuple[str, ...], label: str, tmp_path: Path) -> None:
    row = {"id": 7, **{name.title(): f"the {name}" for name in texts}, label.upper(): 1}
    table = read_table(write(tmp_path / "rows.jsonl", [row]))
    assert [table.texts[0], *(table.pairs or [])] == [f"the {name}" for name in texts]
    assert table.labels == ["1"]


def test_named_columns_win_over_usual_names(tmp_path: Path) -> None:
    row = {"premise": "p", "hypothesis": "h", "label": "wrong", "Review": "r", "Title": "t", "stars": 4}
    path = write(tmp_path / "rows.csv", [row])
    both = read_table(path, {"text": "Review", "text_pair": "title", "label": "STARS"})
    assert (both.texts, both.pairs, both.labels) == (["r"], ["t"], ["4"])
    one = read_table(path, {"text": "Review"})
    assert (one.texts, one.pairs, one.labels) == (["r"], None, ["wrong"])
    label = read_table(path, {"label": "stars"})
    assert (label.texts, label.pairs, label.labels) == (["p"], ["h"], ["4"])


def test_wrong_names_in_columns_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [{"text": "a", "label": 1}])
    with pytest.raises(ValueError, match=r"`columns` may name 'text', 'text_pair', 'label'; got 'sentence'"):
        read_table(path, {"sentence": "text"})
    with pytest.raises(ValueError, match="name both"):
        read_table(path, {"text_pair": "text"})


def test_marks_line_ends_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    """A byte order mark, carriage returns and empty lines, as Windows programs leave them."""
    for name, content in {
        "a.csv": '\ufefftext,label\r\n"two\r\nlines",x\r\n\r\n',
        "a.tsv": '\ufefftext\tlabel\r\n\r\nsay "hi\tx\r\n',
        "a.jsonl": '\ufeff\r\n{"text": "a\u2028b", "label": "y"}\r\n\r\n{"text": "a", "label": "x"}'.replace(
            "\u2028", "b"
        ),
    }.items():
        (tmp_path / name).write_bytes(content.encode())
    assert read_table(tmp_path / "a.csv").texts == ["two\r\nlines"]
    assert read_table(tmp_path / "a.tsv").texts == ['say "hi']
    assert read_table(tmp_path / "a.jsonl").first_seen == {"y": 2, "x": 4}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b"", "a.jsonl has no rows"),
        ("a.csv", b"text,label\n", "a.csv has no rows"),
        ("a.parquet", b"", "a.parquet, row 1: not a whole parquet file"),
        ("a.parquet", b"PAR1 and then nothing of it", "a.parquet, row 1: not a whole parquet file"),
        ("a.txt", b"text\n", "must have the extension .jsonl, .json, .ndjson, .csv, .tsv, .parquet (or .gz"),
        ("a", b"text\n", "got 'none'"),
        ("a.gz", b"text\n", "got '.gz'"),
        ("a.parquet.gz", b"", "got '.parquet.gz'"),
        ("a.jsonl.gz", b"not gzip", "a.jsonl.gz, line 1: not a whole gzip file"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a", "label": 1}\n' * 9, mtime=0)[:-12], "not a whole gzip file"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": "a", \n', "a.jsonl, line 2: broken JSON (Expecting property"),
        ("a.json", b'[\n{"text": "a", "label": 1}\n]', "a.json, line 1: broken JSON"),
        ("a.json", b'[{"text": "a", "label": 1}]', "a.json, line 1: a row must map column names to values; got [{"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n7\n', "a.jsonl, line 2: a row must map column names to values; got 7"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl, line 1: JSON that cannot be read"),
        (
            "a.jsonl",
            b'{"text": "a", "label": 1}\n{"text": "\xe9", "label": 1}\n',
            "a.jsonl, line 2: not UTF-8 (byte 0xe9)",
        ),
        ("a.csv", "text,label\na,1\n".encode("utf-16"), "a.csv, line 1: not UTF-8"),
        ("a.jsonl", rb'{"text": "\ud83d", "label": 1}', "a.jsonl, line 1: column 'text' holds half of a character"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n\n{"label": 1}\n', "a.jsonl, line 3: column 'text' is missing"),
        ("a.jsonl", b'{"text": 5, "label": 1}\n', "a.jsonl, line 1: column 'text' must be a text; got 5"),
        ("a.csv", b'text,label\n"a\nb",1\n  ,1\n', "a.csv, line 4: column 'text' is empty"),
        ("a.tsv", b"sentence1\tsentence2\tlabel\na\t\t1\n", "a.tsv, line 2: column 'sentence2' is empty"),
        ("a.csv", b"text,label\na,\n", "a.csv, line 2: column 'label' has no label"),
        ("a.jsonl", b'{"text": "a", "label": null}', "a.jsonl, line 1: column 'label' has no label"),
        (
            "a.jsonl",
            b'{"text": "a", "label": [1]}',
            "a.jsonl, line 1: column 'label' must hold a word or a number; got [1]",
        ),
        (
            "a.jsonl",
            b'{"text": "a", "label": NaN}',
            "a.jsonl, line 1: column 'label' must hold a word or a number; got nan",
        ),
        ("a.csv", b"text,label\na,1\na,b,1\n", "a.csv, line 3: a row must have 2 cells, as the header has; got 3"),
        ("a.csv", b'text,label\na,1\n"a,1\na,1\n', "a.csv, line 3: broken csv"),
        ("a.tsv", b"text\ttext\tlabel\na\tb\t1\n", "a.tsv, line 1: two columns are called 'text'"),
        ("a.csv", b"review,label\na,1\n", "a.csv, line 1: no text column; the columns are 'review', 'label'"),
        ("a.csv", b"premise,label\na,1\n", "a.csv, line 1: no text column; the columns are 'premise', 'label'"),
        ("a.csv", b"text,class\na,1\n", "a.csv, line 1: no label column; the columns are 'text', 'class'"),
        ("a.csv", b"text,sentence,label\na,b,1\n", "a.csv, line 1: the texts may be sentence or text; say which"),
    ],
)
def test_bad_files_are_named_with_the_line(name: str, content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = message_of(lambda: read_table(path))
    assert expected in message and str(path) in message


def test_bad_rows_of_parquet_are_named_by_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [{"text": "a", "label": 1}, {"text": None, "label": 1}])
    assert f"{path}, row 2: column 'text' must be a text; got None" in message_of(lambda: read_table(path))


def test_missing_files_and_columns_say_what_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [{"text": "a", "label": 1}])
    assert "does not exist" in message_of(lambda: read_table(tmp_path / "none.csv"))
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in message_of(lambda: read_table(tmp_path / "folder.csv"))
    message = message_of(lambda: read_table(path, {"label": "class"}))
    assert "line 1: no column 'class' for `label`; the columns are 'text', 'label'" in message


# Labels


@pytest.mark.parametrize(
    ("values", "words", "numbers"),
    [
        (["neutral", "entailment", "contradiction"], ("entailment", "neutral", "contradiction"), [1, 0, 2]),
        (["Neutral", "Entailment", "Contradiction"], ("Entailment", "Neutral", "Contradiction"), [1, 0, 2]),
        (["duplicate", "not_duplicate"], ("not_duplicate", "duplicate"), [1, 0]),
        (["tea", "milk", "coffee"], ("coffee", "milk", "tea"), [2, 1, 0]),
        ([1, 0, 2], ("0", "1", "2"), [1, 0, 2]),
        (["10", "9", "08"], ("8", "9", "10"), [2, 1, 0]),
        ([1.0, 0.0], ("0", "1"), [1, 0]),
        (["1.0", "+0", 1, "0."], ("0", "1"), [1, 0, 1, 0]),
        ([0, -2, 1], ("-2", "0", "1"), [1, 0, 2]),
        ([True, False], ("False", "True"), [1, 0]),
    ],
    ids=str,
)
def test_label_words_have_an_order(values: list[Any], words: tuple[str, ...], numbers: list[int]) -> None:
    """GLUE's words have GLUE's order, numbers go by value, other words by the alphabet."""
    task = task_of(values)
    assert task.labels == words and task.train["label"][:] == numbers
    assert task.model_kwargs["id2label"] == dict(enumerate(words))


def test_given_labels_win() -> None:
    """A model's own order holds, whether the file writes its words, in another case, or their numbers."""
    labels = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
    task = task_of(["entailment", "NEUTRAL", 0, "2"], labels=labels)
    assert task.labels == labels and task.train["label"][:] == [2, 1, 0, 2]
    assert task_of(["1", "2"], labels=("2", "1")).train["label"][:] == [1, 0]
    assert task_of(["b"], labels=("a", "b")).train["label"][:] == [1]
    for wrong in ((), ("a",), ("a", "a")):
        with pytest.raises(ValueError, match="`labels` must be two or more different words"):
            task_of(["a", "b"], labels=wrong)


def test_rows_without_a_label_are_left_out_and_counted() -> None:
    """Hidden labels (-1) and undecided ones (-), but not a -1 that is a score or one of the given labels."""
    task = task_of(["yes", "-", "no", -1, "-1"])
    assert len(task.train) == len(task.evals["dev"]) == 2
    assert task.dropped == {"train": 3, "dev": 3}
    assert task.notes == tuple(f"{name}: 3 rows without a label were left out." for name in ("train", "dev"))
    assert task_of([-1, 0, 1], metric="pearson").train["label"][:] == [-1, 0, 1]
    assert task_of([-1, 1], labels=("-1", "1")).train["label"][:] == [0, 1]
    assert "made train must have rows of two or more labels; got '1' (rows" in message_of(lambda: task_of([-1, 1]))
    assert "made dev has no row with a label" in message_of(
        lambda: from_rows("made", rows_of(["a", "b"]), {"dev": rows_of(["-"])}, labels=("a", "b"))
    )


@pytest.mark.parametrize(
    ("train", "dev", "kwargs", "expected"),
    [
        ("aab", "abx", {}, "made dev, row 3: label 'x' is not one of the labels of the training file: 'a', 'b'"),
        ("abbx", "ab", {}, "made train, row 4: label 'x' is in no evaluation set"),
        ("abx", "ab", {"labels": "ab"}, "made train, row 3: label 'x' is not one of `labels`: 'a', 'b'"),
        ("ab", "aA", {}, "made train, row 2: label 'b' is in no evaluation set"),
        ("ab", "ab0", {}, "made dev, row 3: label '0' is not one of"),
        ("aa", "aa", {}, "made train must have rows of two or more labels; got 'a'"),
        ([0, 0.5], [0, 1], {}, "made train, row 2: label 0.5 is not a whole number"),
        ([0.5, "x"], [1], {"metric": "pearson"}, "made train, row 2: score 'x' is not a number"),
        ([0.5], ["inf"], {"metric": "pearson"}, "made dev, row 1: score 'inf' is not a number"),
    ],
)
def test_labels_that_do_not_fit_are_named(train: Any, dev: Any, kwargs: dict[str, Any], expected: str) -> None:
    message = message_of(lambda: from_rows("made", rows_of(train), {"dev": rows_of(dev)}, **kwargs))
    assert expected in message


def test_given_labels_need_not_all_appear() -> None:
    task = from_rows("made", rows_of(["a", "b"]), {"dev": rows_of(["a"])}, labels=("a", "b", "c"))
    assert task.model_kwargs["num_labels"] == 3


# Tasks


def test_several_evaluation_files_have_names(tmp_path: Path) -> None:
    train = write(tmp_path / "my.train.jsonl.gz", rows_of(["a", "b", "b"]))
    dev, other = write(tmp_path / "dev.tsv", rows_of(["b", "a"])), write(tmp_path / "o.parquet", rows_of(["b"]))
    task = from_files(train, {"near": dev, "far": str(other)})
    assert task.name == "my.train" and task.metric == "accuracy" and not task.notes
    assert task.train["label"][:] == [0, 1, 1]
    assert {name: rows["label"][:] for name, rows in task.evals.items()} == {"near": [1, 0], "far": [1]}
    assert list(from_files(train, dev).evals) == ["validation"]
    for wrong, reason in (({}, "is missing"), ({"train": dev}, "cannot be called 'train'")):
        with pytest.raises(ValueError, match=reason):
            from_files(train, wrong)


def test_evaluation_alone_needs_the_labels(tmp_path: Path, tokenizer: BertTokenizer) -> None:
    """Without a training file the task has an empty training set of the same columns."""
    dev = write(tmp_path / "dev.jsonl", rows_of(["b", "a"]))
    task = from_files(None, dev, labels=("b", "a"))
    assert len(task.train) == 0 and task.evals["validation"]["label"][:] == [0, 1] and not task.notes
    encoded = task.sample(max_eval=1).tokenize(tokenizer)
    assert len(encoded.train) == 0 and encoded.train.column_names == encoded.evals["validation"].column_names
    with pytest.raises(ValueError, match="`labels` must be given"):
        from_files(None, dev)


def test_training_and_evaluation_have_as_many_texts(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", rows_of(["a", "b"]))
    dev = write(tmp_path / "dev.jsonl", rows_of(["a", "b"], pair=False))
    message = message_of(lambda: from_files(train, dev))
    assert (
        f"{dev}, line 1: each row must have two texts (text, text_pair), as in {train}; got one text (text)" in message
    )


def test_scores_make_a_regression(tmp_path: Path) -> None:
    """By the column's name, unless labels or a metric say otherwise."""
    path = write(
        tmp_path / "sts.csv", [{"sentence1": "a", "sentence2": "b", "score": s} for s in ("5.000", "3.8", "-1")]
    )
    task = from_files(path, path)
    assert task.is_regression and task.labels == () and task.metric == "pearson" and not any(task.dropped.values())
    assert task.model_kwargs == {"num_labels": 1, "problem_type": "regression"}
    assert task.train.features["label"] == Value("float32")
    assert task.train["label"][:] == pytest.approx([5, 3.8, -1])
    stars = write(tmp_path / "stars.csv", [{"text": "a", "score": s} for s in (1, 5)])
    assert from_files(stars, stars, metric="accuracy").labels == from_files(stars, stars, labels=("1", "5")).labels
    with pytest.raises(ValueError, match="scores, which have no labels"):
        from_files(path, path, labels=("a", "b"), metric="pearson")


def test_a_metric_must_exist_and_fit() -> None:
    with pytest.raises(ValueError, match="`metric` must be one of accuracy, f1, matthews, pearson; got 'bleu'"):
        task_of(["a", "b"], metric="bleu")
    with pytest.raises(ValueError, match=r"`metric` 'f1' needs two labels; got 3 \('a', 'b', 'c'\)"):
        task_of(["a", "b", "c"], metric="f1")


@settings(max_examples=20, deadline=None)
@given(total=st.integers(1, 40), small=st.integers(1, 40), more=st.integers(0, 10), seed=st.integers(0, 2**32))
def test_samples_are_drawn_without_repeats_in_order(total: int, small: int, more: int, seed: int) -> None:
    """The same seed gives the same rows, and more of them hold the fewer."""
    rows = [{"text": str(index), "label": index % 2} for index in range(total)]
    task = from_rows("made", rows, {"dev": rows}, labels=("0", "1"))
    drawn = [list(map(int, task.sample(count, count, seed).train["text"])) for count in (small, small, small + more)]
    assert drawn[0] == drawn[1] == sorted(set(drawn[0])) and len(drawn[0]) == min(small, total)
    assert set(drawn[0]) <= set(drawn[2])


def test_samples_are_stated_and_differ_by_seed() -> None:
    task = task_of(["a", "b"] * 50)
    sample = task.sample(max_train=10, max_eval=200, seed=5)
    assert sample.notes == ("train: 10 of 100 rows, drawn at random with seed 5.",)
    assert len(sample.evals["dev"]) == 100 and len(task.train) == 100
    numbered = from_rows("made", [{"text": str(i), "label": i % 2} for i in range(99)], {"dev": rows_of([0, 1], False)})
    assert numbered.sample(9, seed=0).train["text"][:] != numbered.sample(9, seed=1).train["text"][:]
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="`max_train` must be an integer from 1 up"):
            task.sample(wrong)  # type: ignore[arg-type]


# Token ids


@pytest.mark.parametrize("pair", [True, False])
def test_texts_become_token_ids_of_limited_length(pair: bool, tokenizer: BertTokenizer) -> None:
    rows = rows_of(["x", "y"] * 8, pair)
    task = from_rows("made", rows, {"dev": rows})
    encoded = task.tokenize(tokenizer, max_length=8)
    for split in (encoded.train, encoded.evals["dev"]):
        assert set(split.column_names) == {"input_ids", "token_type_ids", "attention_mask", "labels", "length"}
        assert split["labels"][:] == [0, 1] * 8
        assert split["length"][:] == [len(ids) for ids in split["input_ids"]]
        assert max(split["length"]) == 8 and min(split["length"]) < 8
        assert any(1 in types for types in split["token_type_ids"]) == pair
    assert max(task.tokenize(tokenizer).train["length"]) == (13 if pair else 10)


def test_a_length_that_cannot_be_kept_is_refused(tokenizer: BertTokenizer) -> None:
    task = task_of(["a", "b"])
    for wrong in (4, 0, True, 7.5):
        with pytest.raises(ValueError, match=r"`max_length` must be 5 or more; got"):
            task.tokenize(tokenizer, wrong)  # type: ignore[arg-type]
    tokenizer.model_max_length = 64
    with pytest.raises(ValueError, match=r"`max_length` must be between 5 and 64 \(the tokenizer's limit\); got 128"):
        task.tokenize(tokenizer)


@pytest.mark.parametrize("metric", ["accuracy", "pearson"])
def test_the_trainer_takes_it_as_it_is(metric: str, tokenizer: BertTokenizer, tmp_path: Path) -> None:
    """Model, collator, length groups, several evaluation sets and metrics fit together."""
    rows = rows_of([0, 1, 2] * 4)
    task = from_rows("made", rows, {"near": rows, "far": rows[:6]}, metric=metric)
    encoded = task.tokenize(tokenizer)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        **task.model_kwargs,
    )
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        train_sampling_strategy="group_by_length",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    model: Any = BertForSequenceClassification
    trainer = Trainer(
        model(config),
        arguments,
        train_dataset=encoded.train,
        eval_dataset=encoded.evals,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=task.compute_metrics,
    )
    trainer.train()
    results = trainer.evaluate()
    assert {f"eval_{name}_{part}" for name in task.evals for part in METRICS[metric]} <= set(results)


# Metrics


def measured(task: ClassificationTask, outputs: Any, truth: Any) -> dict[str, float]:
    return task.compute_metrics(EvalPrediction(predictions=outputs, label_ids=np.asarray(truth)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
def test_metrics_of_two_classes_agree_with_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    guesses, truth = map(np.array, zip(*pairs, strict=True))
    outputs = np.eye(2)[guesses] * 3 - 1
    task = task_of([0, 1], metric="f1")
    found = measured(task, outputs, truth) | measured(replace(task, metric="matthews"), outputs, truth)
    assert found["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(truth, guesses))
    assert found["f1"] == pytest.approx(sklearn.metrics.f1_score(truth, guesses, zero_division=0))
    constant = len(set(truth)) == 1 or len(set(guesses)) == 1
    expected = 0 if constant else sklearn.metrics.matthews_corrcoef(truth, guesses)
    assert found["matthews"] == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=30))
def test_matthews_of_several_classes_agrees_with_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    guesses, truth = map(np.array, zip(*pairs, strict=True))
    found = measured(task_of([0, 1, 2, 3], metric="matthews"), np.eye(4)[guesses], truth)["matthews"]
    constant = len(set(truth)) == 1 or len(set(guesses)) == 1
    assert found == pytest.approx(0 if constant else sklearn.metrics.matthews_corrcoef(truth, guesses))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 5)), min_size=2, max_size=30))
def test_correlations_agree_with_scipy(pairs: list[tuple[int, int]]) -> None:
    """With ties; a constant side has correlation 0."""
    guesses, truth = (np.array(side, np.float32) / 3 for side in zip(*pairs, strict=True))
    found = measured(task_of([0.5, 1], metric="pearson"), guesses[:, None], truth)
    constant = len(set(truth)) == 1 or len(set(guesses)) == 1
    for name, function in (("pearson", scipy.stats.pearsonr), ("spearman", scipy.stats.spearmanr)):
        expected = 0 if constant else function(guesses.astype(float), truth.astype(float)).statistic
        assert found[name] == pytest.approx(expected, abs=1e-9), name


def test_a_constant_model_has_no_correlation() -> None:
    """Rounding in the mean of equal values must not look like a signal."""
    outputs = np.full((1001, 1), 0.1)
    assert measured(task_of([0.5], metric="pearson"), outputs, np.arange(1001.0)) == {"pearson": 0, "spearman": 0}


def test_outputs_are_checked() -> None:
    """Hidden states beside the logits are ignored, NaN gives NaN, and a model of other labels is refused."""
    task = task_of(["a", "b"])
    logits = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert measured(task, (logits, np.zeros((2, 5, 3))), [0, 0]) == {"accuracy": 0.5}
    assert math.isnan(measured(task, np.full((2, 2), np.nan), [0, 0])["accuracy"])
    with pytest.raises(ValueError, match=r"must have shape \(rows, 2\) for this task; got \(2, 3\)"):
        measured(task, np.zeros((2, 3)), [0, 0])


# GLUE


def glue_split(name: str, hidden: int = 0) -> Dataset:
    """A split as the hub has it, made up: its columns, its features, and rows whose label is hidden."""
    task = GLUE[name]
    labels = [0.5, 5.0, 3.25] if name == "stsb" else [*range(len(task.labels)), 0]
    rows = {text: [f"{text} {index}" for index in range(len(labels) + hidden)] for text in task.texts}
    kind = Value("float32") if name == "stsb" else ClassLabel(names=list(task.labels))
    features = Features({text: Value("string") for text in task.texts} | {"label": kind, "idx": Value("int32")})
    columns = rows | {"label": [*labels, *[-1] * hidden], "idx": list(range(len(labels) + hidden))}
    return Dataset.from_dict(columns, features=features)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: str, name: str) -> dict[str, Dataset]:
        assert path == "nyu-mll/glue"
        splits = ("validation_matched", "validation_mismatched") if name == "mnli" else ("validation",)
        return {"train": glue_split(name), **{split: glue_split(name, hidden=2) for split in splits}}

    monkeypatch.setattr(datasets, "load_dataset", load)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", GLUE)
def test_glue_has_its_labels_sets_and_metric(name: str, tokenizer: BertTokenizer) -> None:
    metrics = {
        "mrpc": {"accuracy", "f1"},
        "qqp": {"accuracy", "f1"},
        "cola": {"matthews"},
        "stsb": {"pearson", "spearman"},
    }
    task = glue(name)
    assert task.labels == GLUE[name].labels
    assert list(task.evals) == (["matched", "mismatched"] if name == "mnli" else ["validation"])
    assert task.dropped == {"train": 0, **dict.fromkeys(task.evals, 2)}
    assert task.train["text"][0] == f"{GLUE[name].texts[0]} 0"
    encoded = task.sample(max_train=2).tokenize(tokenizer)
    assert len(encoded.train) == 2 and -1 not in encoded.evals[next(iter(task.evals))]["labels"][:]
    truth = task.train["label"][:]
    outputs = np.array(truth)[:, None] if task.is_regression else np.eye(len(task.labels))[truth]
    perfect = measured(task, outputs, truth)
    assert set(perfect) == metrics.get(name, {"accuracy"}) and next(iter(perfect)) == task.metric
    assert all(value == pytest.approx(1) for value in perfect.values())
    assert task.model_kwargs["num_labels"] == max(1, len(task.labels))


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", GLUE)
def test_glue_written_to_files_is_the_same_task(name: str, tmp_path: Path) -> None:
    """Words in files get the numbers that GLUE gives them."""
    rows = glue_split(name).remove_columns("idx").to_list()
    words = [{**row, "label": GLUE[name].labels[row["label"]]} if GLUE[name].labels else row for row in rows]
    task = from_files(write(tmp_path / "a.tsv", words), write(tmp_path / "b.csv", words), metric=GLUE[name].metric)
    assert (task.labels, task.train["label"][:]) == (glue(name).labels, glue(name).train["label"][:])


@pytest.mark.usefixtures("hub")
def test_a_models_own_order_holds_for_glue() -> None:
    """Some published models number the labels of MNLI the other way round."""
    task = glue("mnli", labels=("CONTRADICTION", "NEUTRAL", "ENTAILMENT"))
    assert task.labels[0] == "CONTRADICTION" and task.dropped["matched"] == 2
    for rows, plain in ((task.train, glue("mnli").train), (task.evals["matched"], glue("mnli").evals["matched"])):
        assert rows["label"][:] == [2 - number for number in plain["label"]] and rows["text"][:] == plain["text"][:]
    with pytest.raises(
        ValueError, match="`labels` must be 'entailment', 'neutral', 'contradiction' in some order; got"
    ):
        glue("mnli", labels=("LABEL_0", "LABEL_1", "LABEL_2"))


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "outputs", "given", "able", "labels"),
    [
        ("sst2", ("POSITIVE", "NEGATIVE"), None, True, ("POSITIVE", "NEGATIVE")),
        ("sst2", ("LABEL_0", "LABEL_1"), None, True, ("negative", "positive")),
        ("sst2", ("LABEL_0", "LABEL_1"), ["positive", "negative"], True, ("positive", "negative")),
        ("sst2", ("no", "yes"), None, False, ("negative", "positive")),
        ("stsb", ("LABEL_0",), None, True, ()),
        ("stsb", ("LABEL_0", "LABEL_1"), None, False, ()),
    ],
)
def test_a_trained_model_meets_glue(name: str, outputs: Any, given: Any, able: bool, labels: tuple[str, ...]) -> None:
    task = load(Job("model", task=name, data={"labels": given}), outputs)
    assert (task.able, task.labels) == (able, labels)
    assert bool(task.remark) == (not able or (given is None and labels == ("negative", "positive")))


def test_glue_without_the_hub_says_how_to_use_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: str, name: str) -> None:
        raise ConnectionError(f"Couldn't reach {path!r} on the Hub. Try again.\nLater.")

    monkeypatch.setattr(datasets, "load_dataset", load)
    message = message_of(lambda: glue("mnli"))
    assert (
        "GLUE's mnli could not be loaded from the Hugging Face hub (Couldn't reach 'nyu-mll/glue' on the Hub)"
        in message
    )
    assert "from_files(train, evals)" in message and "--train FILE --eval FILE" in message


def test_other_names_are_no_glue_tasks() -> None:
    with pytest.raises(ValueError, match=r"`name` must be one of mnli, sst2, .*; got 'wnli'"):
        glue("wnli")


def test_reading_leaves_random_numbers_alone() -> None:
    state = torch.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"].tolist()
    task_of(["a", "b"] * 9).sample(3, 3)
    assert torch.equal(state[0], torch.get_rng_state())
    assert state[1] == np.random.get_state(legacy=False)["state"]["key"].tolist()
