"""Inputs that cannot be used, of every kind that a command reads, and the file or option that a refusal must name."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What of Python, or of a library's inside, must not reach a user.
INTERNALS = re.compile(
    r"Traceback|object (is|has|of)|has no (len|attribute)|NoneType|'(int|str|list|dict|float|bool|bytes)'|"
    r"\b(int|str|list|dict|float|bool|tuple)\(|not subscriptable|unhashable|unsupported operand|not iterable|"
    r"positional argument|unexpected keyword|__\w+__|Errno|\w+Error\b|list indices|codec can't|0x[0-9a-f]{8}"
)


@dataclass(frozen=True)
class Bad:
    """One input that cannot be used.

    Attributes:
        name: what it is.
        words: the command.
        says: one of these must stand in the refusal: the file or the option.
        files: what lies in the folder, beside good data, the model "tiny" and "able", which knows the data's labels.
        model: changes "broken", a copy of "able", for cases about a model's folder.
    """

    name: str
    words: tuple[str, ...]
    says: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    model: Callable[[Path], None] | None = None

    def put(self, place: Path) -> None:
        """Writes its files."""
        for name, content in self.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)


def verdict(bad: Bad, code: int, said: str) -> str:
    """How a command took it: refused, refused "unclear"-ly, or "accepted"."""
    if code == 0:
        return "accepted"
    lines = [line for line in said.strip().splitlines() if line.startswith("kheads: ")]
    if code != 2 or len(lines) != 1:
        return "unclear"
    clear = any(word in lines[0] for word in bad.says) and not INTERNALS.search(lines[0])
    return "refused" if clear else "unclear"


SHORT = ("--max-steps", "1", "--batch-size", "4")
PRUNE = ("prune", "tiny", "-k", "3", "-o", "x")
EVALUATED = ("--eval", "dev.jsonl")
TRAINED = ("--train", "train.jsonl", *EVALUATED)
GOOD = {"premise": "a b", "hypothesis": "c", "label": "neutral"}
LABELS = ("entailment", "neutral", "contradiction")
WRONG: dict[str, Any] = {
    "null": None,
    "int": 3,
    "huge": 10**30,
    "float": 0.5,
    "nan": float("nan"),
    "bool": True,
    "list": ["a"],
    "table": {"a": 1},
    "text": "word",
    "empty": "",
}


def every() -> list[Bad]:
    """All cases."""
    parts = (_rows, _encodings, _tables, _texts, _tags, _questions, _pairs, _images, _flags, _sets, _configs, _records)
    return [bad for part in (*parts, _sweeps, _constraints, _results, _models, _measures) for bad in part()]


def _lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _data(name: str, file: str, content: bytes) -> Iterator[Bad]:
    yield Bad(f"train {name}", (*PRUNE, *SHORT, "--train", file, *EVALUATED), (file,), {file: content})
    yield Bad(f"eval {name}", ("eval", "able", "--eval", file), (file,), {file: content})


def _rows() -> Iterator[Bad]:
    good = [{**GOOD, "label": label} for label in LABELS]
    for key in GOOD:
        for kind, value in WRONG.items():
            if key != "label" and kind == "text":
                continue
            if kind == "huge" and key == "label":
                continue
            yield from _data(f"jsonl {key} {kind}", "bad.jsonl", _lines(*good, {**GOOD, key: value}))
        yield from _data(
            f"jsonl without {key}", "bad.jsonl", _lines(*good, {k: v for k, v in GOOD.items() if k != key})
        )
    for kind, value in WRONG.items():
        yield from _data(f"jsonl of {kind}", "bad.jsonl", _lines(value, value))
    yield from _data(
        "jsonl huge label",
        "bad.jsonl",
        _lines(*good) + b'{"premise": "a", "hypothesis": "b", "label": ' + b"9" * 5000 + b"}\n",
    )
    yield from _data("jsonl one array", "bad.json", json.dumps([*good]).encode())
    yield from _data("jsonl mixed labels", "bad.jsonl", _lines(*good, {**GOOD, "label": 7}))
    yield from _data("jsonl deep", "bad.jsonl", b"[" * 100_000 + b"\n")
    yield from _data(
        "jsonl duplicate keys",
        "bad.jsonl",
        b'{"premise": "a", "premise": "b", "hypothesis": "c", "label": "neutral"}\n' + _lines(*good),
    )
    yield from _data(
        "jsonl NUL", "bad.jsonl", _lines({**GOOD, "premise": "a\x00b"}, *good).replace(b"\\u0000", b"\x00")
    )
    yield from _data("jsonl unclosed", "bad.jsonl", b'{"premise": "a"')
    yield from _data("jsonl unknown extension", "bad.data", _lines(*good))


def _encodings() -> Iterator[Bad]:
    text = "premise,hypothesis,label\nä,ö,neutral\n"
    for file in ("bad.csv", "bad.tsv", "bad.jsonl"):
        for encoding in ("latin-1", "utf-16", "utf-32"):
            yield from _data(f"{file} {encoding}", file, text.encode(encoding))
        for kind, content in {
            "empty": b"",
            "blank": b"\n\n\n",
            "binary": bytes(range(256)) * 4,
            "bom only": b"\xef\xbb\xbf",
        }.items():
            yield from _data(f"{file} {kind}", file, content)
        yield from _data(f"{file}.gz not gzip", f"{file}.gz", text.encode())
        yield from _data(f"{file}.gz truncated", f"{file}.gz", gzip.compress(text.encode() * 99)[:40])
        yield from _data(f"{file}.gz empty", f"{file}.gz", b"")


def _tables() -> Iterator[Bad]:
    head = "premise,hypothesis,label\n"
    for name, text in {
        "header only": head,
        "duplicate columns": "premise,premise,hypothesis,label\na,b,c,neutral\n",
        "too few cells": head + "a,b\n",
        "too many cells": head + "a,b,neutral,d\n",
        "open quote": head + '"a,b,neutral\n',
        "empty label": head + "a,b,\n",
        "nan label": head + "a,b,neutral\na,b,nan\n",
        "no columns": "a,b,c\nd,e,f\n",
        "empty names": ",,\na,b,c\n",
        "empty text": head + ",b,neutral\n",
    }.items():
        yield from _data(f"csv {name}", "bad.csv", text.encode())
        if name != "open quote":
            yield from _data(f"tsv {name}", "bad.tsv", text.replace(",", "\t").encode())
    tables: dict[str, dict[str, Any]] = {
        "numbers": {"premise": [1], "hypothesis": [2], "label": [0]},
        "null": {"premise": [None], "hypothesis": ["a"], "label": ["neutral"]},
        "null label": {"premise": ["a"], "hypothesis": ["a"], "label": [None]},
        "nan label": {"premise": ["a"], "hypothesis": ["a"], "label": [float("nan")]},
        "bytes": {"premise": [b"\xff"], "hypothesis": [b"a"], "label": ["neutral"]},
        "lists": {"premise": [["a"]], "hypothesis": [["a"]], "label": ["neutral"]},
        "no rows": {"premise": [], "hypothesis": [], "label": []},
        "no columns": {},
    }
    for name, columns in tables.items():
        yield from _data(f"parquet {name}", "bad.parquet", _parquet(columns))
    for name, content in {"empty": b"", "binary": bytes(range(256)), "cut": _parquet({"premise": ["a"]})[:40]}.items():
        yield from _data(f"parquet {name}", "bad.parquet", content)
    for word in ("x=y", "text", "label=", "=a", "text_pair=premise", "text=nothing"):
        yield Bad(f"column {word}", (*PRUNE, *SHORT, *TRAINED, "--column", word), ("--column", "columns"))


def _parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(columns)), out)
    return out.getvalue()


def _texts() -> Iterator[Bad]:
    """Plain text, for language modelling."""
    clm = ("prune", "tiny", "--task", "clm", "-k", "3", "-o", "x", *SHORT, "--set", "max_length=8")
    for name, content in {
        "empty": b"",
        "blank": b"\n\n",
        "latin-1": "ä".encode("latin-1") * 99,
        "binary": b"\xff" * 99,
    }.items():
        yield Bad(
            f"text {name}",
            (*clm, "--train", "bad.txt", "--eval", "dev.txt"),
            ("bad.txt",),
            {"bad.txt": content, "dev.txt": b"a b c " * 99},
        )
    yield Bad("text rows", (*clm, "--train", "train.jsonl", "--eval", "dev.jsonl"), ("train.jsonl",))
    yield Bad("text folder", (*clm, "--train", "tiny", "--eval", "dev.jsonl"), ("tiny is a folder",))


def _tags() -> Iterator[Bad]:
    """Words and tags."""
    good = {"words": ["a", "b"], "tags": ["O", "B-X"]}
    cases = {f"{key} {kind}": _lines(good, {**good, key: value}) for key in good for kind, value in WRONG.items()}
    cases |= {
        f"{key} of {kind}": _lines(good, {**good, key: ["a", value]}) for key in good for kind, value in WRONG.items()
    }
    del cases["words of text"], cases["tags of int"], cases["tags of huge"], cases["tags of text"]
    for name, content in cases.items():
        yield _of("tags", name, "bad.jsonl", content, {"dev.jsonl": _lines(good)})
    for name, text in {
        "one column": "a\n",
        "uneven": "a O\nb B-X O\n",
        "empty": "",
        "blank": "\n\n",
        "NUL": "a\x00 O\n",
    }.items():
        yield _of("tags", name, "bad.conll", text.encode(), {"dev.jsonl": _lines(good)})
    for name, content in {"latin-1": "ä O\n".encode("latin-1"), "binary": bytes(range(256))}.items():
        yield _of("tags", name, "bad.conll", content, {"dev.jsonl": _lines(good)})
    for column in ("x=y", "words=0", "words=99999999999999999999", "tags=x", "words="):
        files = {"bad.conll": b"a O\nb B-X\n", "dev.conll": b"a O\nb B-X\n"}
        words = (*WORD_TASK, "tags", "--train", "bad.conll", "--eval", "dev.conll", "--column", column)
        yield Bad(f"tags column {column}", words, ("--column", "columns"), files)


def _questions() -> Iterator[Bad]:
    """Questions and contexts."""
    answer = {"text": "b", "answer_start": 2}
    good = {"context": "a b", "question": "c", "answers": [answer]}
    for key in good:
        for kind, value in WRONG.items():
            if (key, kind) not in {("question", "text"), ("answers", "empty")}:
                yield _of("qa", f"{key} {kind}", "bad.jsonl", _lines({**good, key: value}), {"dev.jsonl": _lines(good)})
    for key in answer:
        for kind, value in WRONG.items():
            row = {**good, "answers": [{**answer, key: value}]}
            yield _of("qa", f"answer {key} {kind}", "bad.jsonl", _lines(row), {"dev.jsonl": _lines(good)})
    for kind, value in WRONG.items():
        for name, document in {"data": {"data": value}, "articles": {"data": [value]}, "whole": value}.items():
            content = json.dumps(document).encode()
            yield _of("qa", f"{name} {kind}", "bad.json", content, {"dev.jsonl": _lines(good)})
    for name, content in {"deep": b"[" * 100_000, "latin-1": b'{"data": "\xe4"}', "cut": b'{"data": [{'}.items():
        yield _of("qa", name, "bad.json", content, {"dev.jsonl": _lines(good)})


WORD_TASK = ("prune", "tiny", "-k", "3", "-o", "x", *SHORT, "--task")


def _of(task: str, name: str, file: str, content: bytes, beside: Mapping[str, bytes]) -> Bad:
    words = (*WORD_TASK, task, "--train", file, "--eval", "dev.jsonl")
    return Bad(f"{task} {name}", words, (file,), {file: content, **beside})


def _pairs() -> Iterator[Bad]:
    """Translation pairs."""
    command = ("prune", "tiny", "--task", "translation", "-k", "3", "-o", "x", "--max-steps", "1")
    dev = {"dev.tsv": b"a b\tc d\n"}
    for name, file, content in (
        ("ints", "bad.jsonl", _lines(1, 2)),
        ("null", "bad.jsonl", _lines(None)),
        ("numbers", "bad.jsonl", _lines({"source": 1, "target": 2})),
        ("one side", "bad.jsonl", _lines({"source": "a"})),
        ("nested", "bad.jsonl", _lines({"translation": [1]})),
        ("nested numbers", "bad.jsonl", _lines({"translation": {"de": 1, "en": 2}})),
        ("empty", "bad.jsonl", b""),
        ("one cell", "bad.tsv", b"a\n"),
        ("three cells", "bad.tsv", b"a\tb\tc\n"),
        ("binary", "bad.tsv", bytes(range(256))),
        ("empty sides", "bad.tsv", b"\t\n"),
    ):
        yield Bad(f"pairs {name}", (*command, "--train", file, "--eval", "dev.tsv"), (file,), {file: content, **dev})
    yield Bad("pairs no data", command, ("--train", "train_source"))
    for file, content in {"empty": b"", "short": b"a\n", "binary": b"\xff\xfe\n\n"}.items():
        sets = (
            "--set",
            "train_source=bad.de",
            "--set",
            "train_target=good.en",
            "--set",
            "eval_source=d=good.en",
            "--set",
            "eval_target=d=good.en",
        )
        yield Bad(f"parallel {file}", (*command, *sets), ("bad.de",), {"bad.de": content, "good.en": b"a\nb\n"})
    yield Bad("translate binary", ("translate", "tiny", "bad.txt"), ("bad.txt", "tiny"), {"bad.txt": b"\xff\n"})


def _images() -> Iterator[Bad]:
    command = ("prune", "tiny", "--task", "image", "-k", "3", "-o", "x", *SHORT)
    yield Bad("image a file", (*command, "--train", "train.jsonl", "--eval", "dev.jsonl"), ("train.jsonl", "dev.jsonl"))
    yield Bad("image no classes", (*command, "--train", "i", "--eval", "i"), ("i/a.png",), {"i/a.png": b"x"})


NUMBERS = {
    "--max-train": ("0", "-1", "x", "nan", "1.5"),
    "--max-eval": ("0", "-1", "x"),
    "--max-length": ("0", "-1", "1", "x", "100000000000000000000"),
    "--epochs": ("0", "-1", "nan", "inf", "x"),
    "--max-steps": ("0", "-2", "x", "1.5"),
    "--batch-size": ("0", "-1", "x"),
    "--lr": ("0", "-1", "nan", "inf", "x"),
    "--seed": ("-1", "x", "99999999999999999999"),
    "--recover-steps": ("-1", "x"),
    "--min-per-site": ("-1", "x", "99"),
    "-k": ("0", "-3", "99", "x", "1.5"),
}


def _flags() -> Iterator[Bad]:
    for option, values in NUMBERS.items():
        for value in values:
            words = tuple(word for word in (*PRUNE, *SHORT, *TRAINED))
            yield Bad(f"flag {option} {value}", (*words, option, value), (option,))
    for option in ("--max-eval", "--max-length", "--batch-size"):
        for value in ("0", "-1", "x"):
            yield Bad(f"eval {option} {value}", ("eval", "able", *EVALUATED, option, value), (option,))
    for option, value in (
        ("--unit", "layer"),
        ("--method", "best"),
        ("--method", "a:b"),
        ("--task", "ner"),
        ("--method", ":"),
    ):
        yield Bad(
            f"flag {option} {value}", (*PRUNE, *SHORT, *TRAINED, option, value), (option, "The method", "The task")
        )


# Fields that --set reaches, by method; each with values that cannot be.
SETTINGS = {
    "dsp": {
        "accumulate": ("0", "-1", "true", "1.5", "'x'"),
        "save_steps": ("0", "-1"),
        "logging_steps": ("0", "-1"),
        "eval_steps": ("0", "-1"),
        "warmup_steps": ("-1", "x"),
        "lr_schedule": ("sideways",),
        "report_to": ("nobody",),
        "tau_start": ("0", "-1", "nan", "inf", "true", "x"),
        "tau_end": ("0", "-1", "nan", "inf"),
        "cooldown": ("-1", "1.5", "nan", "inf", "true"),
        "noise_cooldown": ("-1", "2.0", "nan"),
        "warmup": ("-1", "1.5", "nan"),
        "budget_cooldown": ("-0.1", "nan"),
        "gate_lr": ("0", "-1", "nan", "inf"),
        "gate_lr_schedule": ("cubic",),
        "noise": ("-1", "nan", "inf"),
        "relaxation": ("hard", "1"),
        "annealed": ("1", "maybe"),
        "preset": ("tall",),
    },
    "ste": {"gate_lr": ("0", "nan", "inf", "-1"), "gate_lr_schedule": ("cubic",)},
    "voita": {
        "weight": ("-1", "nan", "inf"),
        "beta": ("0", "-1", "nan", "inf"),
        "gate_start": ("nan", "inf"),
        "search": ("-1", "1.5", "true"),
        "search_steps": ("-1", "nan", "1.5"),
    },
    "michel": {"per_round": ("0", "-1", "1.5", "true"), "normalised": ("3",), "estimate_examples": ("-1", "1.5")},
    "retrain": {"before_cut": ("-1", "nan", "1.5"), "estimate_examples": ("-2", "many")},
}


def _sets() -> Iterator[Bad]:
    for method, options in SETTINGS.items():
        for option, values in options.items():
            for value in values:
                words = (*PRUNE, *SHORT, *TRAINED, "--method", method, "--set", f"{option}={value}")
                yield Bad(f"set {method} {option}={value}", words, (option,))
    for value in ("0", "-1"):
        frozen = (*PRUNE, *SHORT, *TRAINED, "--pipelined", "--set", f"gate_steps={value}")
        yield Bad(f"set gate_steps={value}", frozen, ("gate_steps",))
    made = ("prune", "tiny", "--task", "made-nli", "-k", "3", "-o", "x", *SHORT)
    for option in ("train_rows", "eval_rows", "data_seed"):
        for value in ("0", "-1", "true") if option != "data_seed" else ("-1", "x"):
            yield Bad(f"set {option}={value}", (*made, "--set", f"{option}={value}"), (option,))
    new = (
        "prune",
        "tiny",
        "--task",
        "translation",
        "-k",
        "3",
        "-o",
        "x",
        "--max-steps",
        "1",
        "--set",
        "dataset=numbers",
    )
    for option, values in {
        "beams": ("0", "-1", "1.5"),
        "batch_tokens": ("0", "-1"),
        "label_smoothing": ("-0.1", "1.5", "nan"),
        "vocab_size": ("0", "-1", "10"),
    }.items():
        for value in values:
            yield Bad(f"set {option}={value}", (*new, "--set", f"{option}={value}"), (option,))


JOB: dict[str, Any] = {
    "model": "tiny",
    "k": 3,
    "max_steps": 1,
    "batch_size": 4,
    "data": {"train": "train.jsonl", "eval": {"d": "dev.jsonl"}},
}
FIELDS: dict[str, tuple[str, ...]] = {
    "model": ("null", "int", "list", "table", "bool", "empty"),
    "k": ("float", "nan", "bool", "list", "table", "text"),
    "method": ("null", "int", "list", "table", "text", "empty"),
    "method_options": ("int", "text", "list", "bool"),
    "pipelined": ("int", "text", "null"),
    "task": ("int", "list", "text"),
    "data": ("int", "text", "list"),
    "max_train": ("bool", "float", "text", "list", "table"),
    "max_length": ("bool", "null", "text", "table"),
    "epochs": ("bool", "nan", "text", "list"),
    "max_steps": ("bool", "null", "float", "text"),
    "batch_size": ("bool", "null", "float", "text"),
    "accumulate": ("bool", "null", "text"),
    "lr": ("bool", "nan", "text", "list"),
    "lr_schedule": ("int", "list", "text"),
    "warmup_steps": ("bool", "text"),
    "seed": ("bool", "null", "text", "huge"),
    "trained": ("int", "null", "text"),
    "save_steps": ("bool", "null", "text"),
    "eval_steps": ("bool", "text"),
    "constraints": ("int", "text", "list"),
    "unit": ("int", "null", "text"),
    "report_to": ("int", "null", "text"),
}


def _toml(job: Mapping[str, Any]) -> bytes:
    return "".join(f"{key} = {_toml_value(value)}\n" for key, value in job.items()).encode()


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value).replace("NaN", "nan")


def _configs() -> Iterator[Bad]:
    start = ("prune", "--config", "job.toml", "-o", "x")
    for name, kinds in FIELDS.items():
        for kind in kinds:
            if kind == "null" or (name, kind) in {("k", "huge")}:
                continue
            yield Bad(
                f"toml {name} {kind}",
                start,
                ("job.toml", f"`{name}", f"--{name.replace('_', '-')}", "The method", "The task", f"{name}="),
                {"job.toml": _toml({**JOB, name: WRONG[kind]})},
            )
    wrong_data: dict[str, dict[str, Any]] = {
        "train int": {"train": 3},
        "eval text": {"eval": "dev.jsonl"},
        "eval int": {"eval": {"d": 3}},
        "columns list": {"columns": ["a"]},
        "columns int": {"columns": {"text": 1}},
        "unknown": {"trian": "x"},
    }
    for name, data in wrong_data.items():
        yield Bad(
            f"toml data {name}",
            start,
            ("job.toml", "`data", *(f"`{key}" for key in data), "--train", "--eval", "--column"),
            {"job.toml": _toml({**JOB, "data": {**JOB["data"], **data}})},
        )
    wrong_options: dict[str, dict[str, Any]] = {
        "gate_lr text": {"gate_lr": "x"},
        "gate_lr bool": {"gate_lr": True},
        "unknown": {"gatelr": 1},
        "preset int": {"preset": 3},
        "noise list": {"noise": [1]},
        "cooldown text": {"cooldown": "x"},
        "tau nan": {"tau_start": float("nan")},
    }
    for name, options in wrong_options.items():
        yield Bad(f"toml method {name}", start, tuple(options), {"job.toml": _toml({**JOB, "method_options": options})})
    for name, limits in _LIMITS.items():
        yield Bad(
            f"toml constraints {name}",
            start,
            (*limits, *_FLAGGED, "site", "Site"),
            {"job.toml": _toml({**JOB, "constraints": limits})},
        )
    for name, content in {
        "empty": b"",
        "binary": b"\xff\xfe",
        "not toml": b"a b c",
        "a list": b"[[job]]\nk = 1\n",
        "job int": b"job = 3\n",
        "sweep": b"[grid]\nk = [1]\n",
    }.items():
        yield Bad(f"toml {name}", start, ("job.toml", "MODEL"), {"job.toml": content})
    yield Bad("toml a folder", ("prune", "--config", "tiny", "-o", "x"), ("tiny",))


_FLAGGED = ("--min-per-site", "--protect", "--quota", "--uniform")
_LIMITS: dict[str, dict[str, Any]] = {
    "min_per_site text": {"min_per_site": "x"},
    "min_per_site bool": {"min_per_site": True},
    "min_per_site negative": {"min_per_site": -1},
    "uniform int": {"uniform": 1},
    "uniform text": {"uniform": "yes"},
    "protected list": {"protected": [1]},
    "protected int": {"protected": {"bert.encoder.layer.0.attention": 1}},
    "protected texts": {"protected": {"bert.encoder.layer.0.attention": ["a"]}},
    "protected unknown": {"protected": {"nowhere": [1]}},
    "protected beyond": {"protected": {"bert.encoder.layer.0.attention": [99]}},
    "quotas list": {"quotas": [1]},
    "quotas text": {"quotas": {"encoder": "x"}},
    "quotas unknown": {"quotas": {"nowhere": 1}},
    "unknown": {"max_per_site": 1},
}


def _records() -> Iterator[Bad]:
    start = ("prune", "--config", "result.json", "-o", "x")
    for name, kinds in FIELDS.items():
        for kind in kinds:
            record = {"settings": {**JOB, name: WRONG[kind]}}
            yield Bad(
                f"result.json {name} {kind}",
                start,
                ("result.json", f"`{name}", f"--{name.replace('_', '-')}", "The method", "The task", f"{name}="),
                {"result.json": json.dumps(record).encode()},
            )
    for kind, value in WRONG.items():
        yield Bad(f"result.json {kind}", start, ("result.json",), {"result.json": json.dumps(value).encode()})
        yield Bad(
            f"result.json settings {kind}",
            start,
            ("result.json", "MODEL"),
            {"result.json": json.dumps({"settings": value}).encode()},
        )
    yield Bad("result.json empty file", start, ("result.json",), {"result.json": b""})
    yield Bad("result.json deep", start, ("result.json",), {"result.json": b"[" * 100_000})
    yield Bad("result.json binary", start, ("result.json",), {"result.json": b"\xff\xfe\x00"})


GRID: dict[str, Any] = {"methods": ["ste"], "k": [3], "seeds": [0]}


def _sweeps() -> Iterator[Bad]:
    start = ("sweep", "s.toml", "--dry-run")
    shared = {name: value for name, value in JOB.items() if name != "k"}

    def sweep(name: str, config: Mapping[str, Any], *says: str) -> Bad:
        return Bad(f"sweep {name}", start, ("s.toml", *says), {"s.toml": _toml(config)})

    whole = {"job": shared, "grid": GRID}
    for kind, value in WRONG.items():
        if kind == "null":
            continue
        for table in ("job", "grid", "methods", "name", "keep_models"):
            if (table, kind) in {("name", "text"), ("name", "empty"), ("keep_models", "bool"), ("methods", "table")}:
                continue
            yield sweep(f"{table} {kind}", {**whole, table: value})
        for axis in GRID:
            if kind in ("list",):
                continue
            yield sweep(f"grid {axis} {kind}", {**whole, "grid": {**GRID, axis: value}})
            if (axis, kind) not in {("k", "int"), ("seeds", "int"), ("k", "huge")}:
                yield sweep(f"grid {axis} of {kind}", {**whole, "grid": {**GRID, axis: [value]}})
        if kind not in ("int", "float", "huge"):
            yield sweep(f"grid lr {kind}", {**whole, "grid": {**GRID, "lr": [value]}})
        yield sweep(f"methods.ste {kind}", {**whole, "methods": {"ste": value}})
    for axis, value in (
        ("lr", -1.0),
        ("k", 0),
        ("k", -3),
        ("seeds", -1),
        ("batch_size", 0),
        ("gate_lr", -1.0),
        ("max_steps", 0),
    ):
        yield sweep(f"grid {axis} {value}", {**whole, "grid": {**GRID, axis: [value]}})
    yield sweep("job lr nan", {**whole, "job": {**shared, "lr": float("nan")}})
    yield sweep("job epochs -1", {**whole, "job": {**shared, "epochs": -1}})
    yield sweep("ste gate_lr nan", {**whole, "methods": {"ste": {"gate_lr": float("nan")}}})
    for name, content in {"empty": b"", "binary": b"\xff\xfe", "not toml": b"a b"}.items():
        yield Bad(f"sweep {name}", start, ("s.toml",), {"s.toml": content})
    yield Bad("sweep workers 0", ("sweep", "s.toml", "--workers", "0"), ("--workers",), {"s.toml": _toml(whole)})
    for option in ("--cpus", "--gpus"):
        for value in ("-1", "nan"):
            yield Bad(
                f"sweep {option} {value}",
                ("sweep", "s.toml", "--ray", "local", option, value),
                (option,),
                {"s.toml": _toml(whole)},
            )


def _constraints() -> Iterator[Bad]:
    site = "bert.encoder.layer.0.attention"
    for word in (
        "",
        ":",
        "3",
        f"{site}",
        f"{site}:",
        f"{site}:x",
        f"{site}:-1",
        f"{site}:99",
        "nowhere:1",
        f"{site}:1.5",
        f"{site}:²",
        f"{site}:{'9' * 5000}",
    ):
        yield Bad(
            f"protect {word[:40]!r}", (*PRUNE, *SHORT, *TRAINED, "--protect", word), ("--protect", "site", "Site")
        )
    for word in (
        "",
        "=",
        "encoder",
        "encoder=",
        "encoder=x",
        "encoder=-1",
        "encoder=99",
        "nowhere=1",
        "encoder=1.5",
        "encoder=²",
        "=3",
    ):
        yield Bad(
            f"quota {word!r}", (*PRUNE, *SHORT, *TRAINED, "--quota", word), ("--quota", "encoder", "--set quotas")
        )
    for text in (
        "protected={a=1}",
        "protected=3",
        "quotas={encoder='x'}",
        "quotas=3",
        "quotas={encoder=true}",
        "protected={",
        "uniform=3",
        "min_per_site=-1",
        "min_per_site=nan",
    ):
        yield Bad(
            f"set {text}",
            (*PRUNE, *SHORT, *TRAINED, "--set", text),
            ("--protect", "--quota", "--uniform", "--min-per-site", text.partition("=")[0]),
        )
    for text in (
        "",
        "=",
        "=3",
        "k",
        "k=",
        "model=",
        "data.train",
        "eval=",
        "data.eval={d=3}",
        "method.gate_lr=[1]",
        "a.b.c=1",
    ):
        yield Bad(f"set {text!r}", (*PRUNE, *SHORT, *TRAINED, "--set", text), ("--set", "-k", "--eval", "model", "`k`"))


RUN: dict[str, Any] = {
    "method": {"name": "dsp"},
    "metric": "accuracy",
    "metrics": {"pruned": {"d": {"accuracy": 0.5}}},
    "kept": {"a": [0]},
    "before": {"heads": 12, "parameters": 100, "sites": [{"name": "a", "kind": "encoder", "count": 12}]},
    "after": {"heads": 1, "parameters": 90},
    "settings": {"k": 1, "seed": 0, "method": "dsp"},
    "run": {
        "id": "dsp-k1-s0",
        "state": "done",
        "k": 1,
        "seed": 0,
        "axes": {},
        "seconds": 1.0,
        "method": "dsp",
        "pipelined": False,
    },
}


def _results() -> Iterator[Bad]:
    """Damaged, foreign and empty files in a results folder."""
    report, choose = ("report", "r", "-o", "page.html"), ("choose", "r", "--at-least", "0.1")
    bad = "r/runs/bad.json"

    def each(name: str, content: bytes, file: str = bad, *says: str) -> Iterator[Bad]:
        files = {"r/runs/good.json": json.dumps(RUN).encode(), file: content}
        yield Bad(f"report {name}", report, (Path(file).name, *says), files)
        yield Bad(f"choose {name}", choose, (Path(file).name, *says), files)

    for name, content in {
        "empty": b"",
        "binary": b"\xff",
        "cut": json.dumps(RUN).encode()[:99],
        "deep": b"[" * 100_000,
    }.items():
        yield from each(f"{name} run", content)
    for kind, value in WRONG.items():
        yield from each(f"{kind} run", json.dumps(value).encode())
        if kind != "table":
            yield from each(f"{kind} sweep", json.dumps(value).encode(), "r/sweep.json")
        for key in RUN:
            if (key, kind) not in {("metric", "text"), ("metric", "empty"), ("settings", "table"), ("run", "table")}:
                yield from each(f"run {key} {kind}", json.dumps({**RUN, key: value}).encode())
        for key in ("state", "k", "seed", "axes"):
            if (key, kind) in {
                ("k", "int"),
                ("seed", "int"),
                ("k", "null"),
                ("seed", "null"),
                ("axes", "table"),
                ("k", "huge"),
                ("seed", "huge"),
            }:
                continue
            yield from each(f"run.{key} {kind}", json.dumps({**RUN, "run": {**RUN["run"], key: value}}).encode())
    yield from each("foreign", json.dumps({"hello": 1}).encode())
    yield from each("efficiency int", b"3", "r/efficiency.json")
    yield from each("efficiency foreign", b"{}", "r/efficiency.json")
    yield from each(
        "efficiency rows",
        json.dumps({"heads": 12, "batch": 1, "length": 1, "rows": [{"k": 1, "placement": "x", "ms": "fast"}]}).encode(),
        "r/efficiency.json",
    )
    for name, content in {
        "not packed": b"hello",
        "empty": b"",
        "gzip": gzip.compress(b"3\n"),
        "cut": gzip.compress(b"{}" * 99)[:20],
    }.items():
        yield Bad(
            f"report packed {name}",
            ("report", "p.jsonl.gz", "-o", "page.html"),
            ("p.jsonl.gz",),
            {"p.jsonl.gz": content},
        )
        yield Bad(
            f"choose packed {name}",
            ("choose", "p.jsonl.gz", "--at-least", "0.1"),
            ("p.jsonl.gz",),
            {"p.jsonl.gz": content},
        )
    good = {"r/runs/good.json": json.dumps(RUN).encode()}
    for option, values in {
        "--at-least": ("nan", "x", "inf"),
        "--max-ms": ("-1", "0", "nan", "x"),
        "--max-params": ("x", "-1", "nan", "", "0"),
    }.items():
        for value in values:
            yield Bad(f"choose {option} {value}", ("choose", "r", option, value), (option,), good)
    yield Bad("choose --set", ("choose", "r", "--at-least", "0.1", "--set", "x"), ("--set",), good)
    yield Bad("choose nowhere", ("choose", "nowhere", "--at-least", "0.1"), ("nowhere",))
    for command in ("report", "choose"):
        tail = ("--at-least", "0.1") if command == "choose" else ("-o", "page.html")
        for name, content in {"empty": b"", "int": b"3", "foreign": b"{}", "binary": b"\xff"}.items():
            yield Bad(
                f"{command} alone {name}", (command, "one", *tail), ("result.json",), {"one/result.json": content}
            )
    sweep = {"s.toml": _toml({"job": {n: v for n, v in JOB.items() if n != "k"}, "grid": GRID})}
    for name, content in {
        "empty": b"",
        "int": b"3",
        "foreign": b"{}",
        "binary": b"\xff",
        "null run": b'{"run": null}',
        "no settings": b'{"run": {"state": "done"}}',
    }.items():
        yield Bad(
            f"sweep over {name}",
            ("sweep", "s.toml", "-o", "r"),
            ("ste-k3-s0.json",),
            {**sweep, "r/runs/ste-k3-s0.json": content},
        )


def _edit(file: str, **changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / file
        found = json.loads(path.read_text())
        path.write_text(json.dumps({**found, **changes}))

    return change


def _replace(file: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / file).write_bytes(content)

    return change


def _without(*patterns: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for pattern in patterns:
            for path in folder.glob(pattern):
                path.unlink()

    return change


def _models() -> Iterator[Bad]:
    """Folders of models that are damaged or not whole."""
    prune = ("prune", "broken", "-k", "3", "-o", "x", *SHORT, *TRAINED)
    evaluate = ("eval", "broken", *EVALUATED)

    def each(
        name: str, change: Callable[[Path], None], *says: str, commands: tuple[tuple[str, ...], ...] = (prune, evaluate)
    ) -> Iterator[Bad]:
        for words in commands:
            yield Bad(f"{words[0]} model {name}", words, ("broken", "BertForSequenceClassification", *says), {}, change)

    looks = (
        prune,
        evaluate,
        ("heads", "broken"),
        ("measure", "broken", "--repeats", "1", "--batch", "1", "--length", "4"),
    )
    for name, content in {
        "empty": b"",
        "int": b"3",
        "list": b"[]",
        "null": b"null",
        "binary": b"\xff",
        "no type": b"{}",
    }.items():
        yield from each(f"config {name}", _replace("config.json", content), commands=looks)
        if name != "no type":  # with a whole tokenizer.json it says enough
            yield from each(f"tokenizer_config {name}", _replace("tokenizer_config.json", content))
        yield from each(f"tokenizer {name}", _replace("tokenizer.json", content))
    for key, values in {
        "id2label": (
            {0: "a", 2: "b"},
            {"x": "a"},
            ["a", "b"],
            3,
            {0: 1, 1: 2, 2: 3},
            {0: "neutral", 5: "entailment", 9: "contradiction"},
        ),
        "hidden_size": ("x", 0, -1, None, [1], 1.5),
        "num_attention_heads": ("x", 0, None, 7),
        "vocab_size": ("x", -1, None),
        "model_type": (3, "nothing", None, ["bert"]),
        "kheads": (3, None, [], {}, {"format": 1}),
        "num_hidden_layers": ("x", -1, 10**9),
    }.items():
        for value in values:
            yield from each(f"config {key} {str(value)[:30]}", _edit("config.json", **{key: value}))
    for value in (3, [3], "x", ["os.system"]):
        change = _edit("config.json", architectures=value, num_hidden_layers="x")
        yield from each(f"config architectures {value}", change, commands=looks[2:])
    yield from each("without tokenizer", _without("tokenizer*", "vocab*", "special*"))
    yield from each("without config", _without("config.json"), commands=looks)
    yield from each("without weights", _without("*.safetensors"))
    yield from each("cut weights", _cut("model.safetensors"))
    yield from each("empty weights", _replace("model.safetensors", b""))
    settings: tuple[dict[str, Any], ...] = ({"model_max_length": "x"}, {"tokenizer_class": 3}, {"unk_token": 3})
    for setting in settings:
        yield from each(f"tokenizer_config {setting}", _edit("tokenizer_config.json", **setting))


def _cut(file: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / file).write_bytes((folder / file).read_bytes()[:1000])

    return change


def _measures() -> Iterator[Bad]:
    start = ("measure", "tiny", "--repeats", "1", "--batch", "1", "--length", "4")
    for option, values in {
        "--repeats": ("0", "-1", "x"),
        "--batch": ("0", "-1"),
        "--length": ("0", "-1", "99999"),
        "--threads": ("0", "-1"),
        "--new-tokens": ("-1", "x"),
        "--device": ("moon",),
    }.items():
        for value in values:
            yield Bad(f"measure {option} {value}", (*start, option, value), (option,))
    for option in ("--beams", "--batch-tokens"):
        for value in ("0", "-1", "x"):
            yield Bad(f"translate {option} {value}", ("translate", "tiny", option, value), (option,))
    yield Bad("demo --seed -1", ("demo", "--seed", "-1"), ("--seed",))
    yield Bad("demo --task x", ("demo", "--task", "x"), ("--task",))
    yield Bad("export --to moon", ("export", "tiny", "-o", "x", "--to", "moon"), ("--to", "tiny"))
    yield Bad("methods x", ("methods", "x"), ("method",))
    yield Bad("tasks x", ("tasks", "x"), ("task",))
    yield Bad("pack a file", ("pack", "train.jsonl"), ("train.jsonl",))
    yield Bad("data iwslt14", ("data", "iwslt14", "train.jsonl", "-o", "x"), ("train.jsonl",))
