"""`kheads eval` on ONNX files: the metric is that of the model they were written from, in every task of encoders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import kheads
import word_tasks
from command import call
from kheads.storage import onnx_model, sources
from sentence_folders import CHAIN, sentence_folder, texts

LIBRARY: Any = transformers
TASKS = {  # what is evaluated, on what, and how
    "classes": ("SequenceClassification", ["no", "yes"], "classes.jsonl", ()),
    "scores": ("SequenceClassification", 1, "scores.jsonl", ()),
    "tags": ("TokenClassification", word_tasks.TAGS, "dev.conll", ("--task", "tags", "--max-length", "8")),
    "qa": ("QuestionAnswering", 2, "dev.json", ("--task", "qa", "--max-length", "14")),
    "mlm": ("MaskedLM", 2, "dev.txt", ("--task", "mlm", "--max-length", "16")),
}


class Named:
    def __init__(self, name: str):
        self.name = name


class Session:
    """What onnxruntime would be, computed by the model itself: writing real files takes seconds each."""

    def __init__(self, model: Any, inputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids")):
        self.model, self.names = model.eval(), inputs

    def get_inputs(self) -> list[Named]:
        return [Named(name) for name in self.names]

    def get_outputs(self) -> list[Named]:
        ids = torch.ones((1, 2), dtype=torch.long)
        return [Named(name) for name, value in self.model(ids).items() if isinstance(value, torch.Tensor)]

    def run(self, names: list[str], given: dict[str, Any]) -> list[Any]:
        found = self.model(**{name: torch.from_numpy(value) for name, value in given.items()})
        return [found[name].numpy() for name in names]


def evaluated(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capfd.readouterr()
    assert call(monkeypatch, "eval", *words, "--json") == 0
    return dict(json.loads(capfd.readouterr().out))


def as_onnx(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder with an ONNX file in place of its weights."""
    model = sources.model(folder)
    monkeypatch.setattr(onnx_model, "_session", lambda file: Session(model))
    (folder / "model.safetensors").unlink()
    (folder / "model.onnx").touch()
    return folder


def close(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        found.keys() == other[name].keys() and np.allclose(list(found.values()), list(other[name].values()))
        for name, found in one.items()
    )


def furnish(place: Path, task: str) -> tuple[str, ...]:
    """A model of a task and what to evaluate it on; returns the words of the command."""
    kind, labels, data, words = TASKS[task]
    word_tasks.furnish(place)
    word_tasks.save_model(place / "model", kind, labels, initializer_range=0.5)  # type: ignore[arg-type]
    sentences = [" ".join(word_tasks.LETTERS[: 1 + index % 8]) for index in range(16)]
    for name, marks in (("classes", ["no", "yes"]), ("scores", [0.5, 2.5, 3.0])):
        rows = [{"text": text, "label": marks[index % len(marks)]} for index, text in enumerate(sentences)]
        word_tasks.write_lines(place / f"{name}.jsonl", rows)
    return ("--eval", str(place / data), *words)


@pytest.mark.parametrize("task", TASKS)
def test_a_file_has_the_metrics_of_its_model(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = furnish(tmp_path, task)
    before = evaluated(monkeypatch, capfd, str(tmp_path / "model"), *words)
    after = evaluated(monkeypatch, capfd, str(as_onnx(tmp_path / "model", monkeypatch)), *words)
    assert before["eval"] and close(before, after)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_embedder_has_the_metrics_of_its_model(
    pooling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The original may be an ONNX file, too."""
    folder = sentence_folder(tmp_path / "model", pooling=pooling, kinds=CHAIN[:2])
    rows = [
        {"sentence1": one, "sentence2": two, "score": len(one)} for one, two in zip(texts(9), texts(9, 5), strict=True)
    ]
    words = ("--task", "embed", "--eval", word_tasks.write_lines(tmp_path / "sts.jsonl", rows))
    before = evaluated(monkeypatch, capfd, str(folder), *words, "--set", f"original={folder}")
    as_onnx(folder, monkeypatch)
    after = evaluated(monkeypatch, capfd, f"{folder}/model.onnx", *words, "--set", f"original={folder}")
    assert after["eval"].keys() == {"cosine", "spearman"} and close(before, after)


def test_what_a_folder_cannot_be_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = furnish(tmp_path, "classes")
    folder = as_onnx(tmp_path / "model", monkeypatch)

    def refusal(*given: str) -> str:
        capfd.readouterr()
        assert call(monkeypatch, *given) == 2
        return capfd.readouterr().err

    tags = ("--task", "tags", "--eval", str(tmp_path / "dev.conll"))
    assert "which is not a model for TokenClassification" in refusal("eval", str(folder), *tags)
    assert "There is no file" in refusal("eval", str(folder / "other.onnx"), *words)
    learning = ("-k", "2", "--train", words[1], *words, "-o", str(tmp_path / "out"))
    for command in (("heads", str(folder)), ("measure", str(folder)), ("prune", str(folder), *learning)):
        assert "has ONNX files, which `kheads eval` takes, but no weights" in refusal(*command)
    monkeypatch.setattr(sources, "has_runtime", lambda: False)
    assert "needs onnxruntime; install it with `pip install 'kheads[onnx]'`" in refusal("eval", str(folder), *words)


@pytest.mark.parametrize(("name", "file"), [("gpt2", "model.onnx"), ("bart", "encoder_model.onnx")])
@pytest.mark.parametrize("task", [None, "clm", "translation"])
def test_what_writes_text_is_refused_by_name(
    task: str | None, name: str, file: str, fresh: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fresh(name)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(tmp_path)
    (tmp_path / file).touch()
    load: Any = {
        None: sources.trained_classifier,
        "clm": sources.language_model,
        "translation": sources.encoder_decoder,
    }
    with pytest.raises(sources.SourceError, match=f"{type(model).__name__}, which writes text, .*exported from"):
        load[task](tmp_path)


def test_a_folder_with_weights_is_a_model_like_others(tmp_path: Path) -> None:
    word_tasks.save_model(tmp_path, "SequenceClassification")
    (tmp_path / "model.onnx").touch()
    assert not onnx_model.onnx_files(tmp_path) and sources.trained_classifier(tmp_path)


# ------------------------------------------------------------------------------------------------------------- slow


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_real_files_have_the_metrics_of_their_model(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = furnish(tmp_path, task)
    model = sources.model(tmp_path / "model")
    kheads.remove(model, kheads.Kept.from_dict({"bert.encoder.layer.0.attention": [1, 2]}))
    kheads.save(model, tmp_path / "small", word_tasks.tokenizer())
    kheads.export(tmp_path / "small", tmp_path / "onnx", to="onnx", int8=True, say=lambda sentence: None)
    before = evaluated(monkeypatch, capfd, str(tmp_path / "small"), *words)
    assert close(before, evaluated(monkeypatch, capfd, str(tmp_path / "onnx"), *words))
    assert evaluated(monkeypatch, capfd, str(tmp_path / "onnx" / "model_int8.onnx"), *words).keys() == before.keys()
