"""The card of an exported model says what is known and nothing else; a folder is uploaded once it is in its place."""

import json
from pathlib import Path
from typing import Any, ClassVar

import huggingface_hub
import pytest
import yaml

import kheads
from kheads import Kept, remove
from kheads.storage.export import hub, upload
from kheads.storage.export.card import model_card
from kheads.storage.export.target import ExportError
from zoo.cases import build

RECORD: dict[str, Any] = {
    "settings": {"model": "someone/a-model", "task": "mnli", "speedup": 2.0, "method": "mine", "k": None},
    "metric": "accuracy",
    "metrics": {
        "unpruned": {"dev": {"accuracy": 0.9512, "loss": 0.2}},
        "pruned": {"dev": {"accuracy": 0.9, "loss": 0.3}, "test": {"accuracy": 0.89}},
        "recovered": {"dev": {"accuracy": 0.94}, "test": {"accuracy": 0.93}},
    },
    "before": {"parameters": 2000},
    "after": {"parameters": 1500},
    "report": {
        "budget": {
            "asked": {"speedup": 2.0, "at": [8, 128], "threads": 1},
            "speedup": {"ratio": 2.013, "low": 1.98, "high": 2.05},
        }
    },
}


@pytest.fixture
def model() -> Any:
    model = build("bert")
    return remove(model, Kept.from_dict({"bert.encoder.layer.0.attention": [1, 2]}))


def card(model: Any, folder: Path, record: Any) -> str:
    (folder / "result.json").write_text(json.dumps(record))
    return model_card(model, folder, "loading")


def test_a_card_tells_the_run(model: Any, tmp_path: Path) -> None:
    text = card(model, tmp_path, RECORD)
    header = yaml.safe_load(text.split("---")[1])
    assert header["base_model"] == "someone/a-model" and header["library_name"] == "transformers"
    assert "- Base model: `someone/a-model`\n- Task: `mnli`" in text
    assert "- Parameters: 2,000 before, 1,500 after (-25.0 %)" in text
    assert "2.01 times the original's (95 % interval 1.98 to 2.05) at batches of 8 x 128 on 1 thread" in text
    assert "`kheads prune someone/a-model --speedup 2 --method mine --task mnli`" in text
    assert "| evaluation set | `accuracy` before | after |\n|---|---|---|\n| `dev` | 0.9512 | 0.94 |" in text
    assert "| `test` | not measured | 0.93 |" in text
    assert "| bert.encoder.layer.0.attention | 2 of 4 | 1, 2 |" in text


def test_a_card_without_a_record_has_what_is_known(model: Any, tmp_path: Path) -> None:
    text = model_card(model, tmp_path, "loading")
    assert "2 of 8 attention heads" in text and "Base model" not in text and "before" not in text


def test_paths_of_a_machine_stay_there(model: Any, tmp_path: Path) -> None:
    text = card(model, tmp_path, {"settings": {"model": "/home/someone/secret/mine", "k": 12}})
    assert "- Base model: `mine`" in text and "someone" not in text and "base_model" not in text
    assert "`kheads prune mine -k 12`" in text


@pytest.mark.parametrize(
    "record",
    [
        {"settings": {"model": 'x"\n---\n# <script>|`', "task": "`a`|<b>\n# title", "method": "$(rm)"}},
        {"settings": [], "metrics": 3, "report": {"budget": "fast"}, "before": None, "metric": {}},
        {"metric": "a|b`\n#", "metrics": {"pruned": {"x|`\n# y": {"a|b`\n#": 1.0}, "z": 3}}},
        {"before": {"parameters": True}, "after": {"parameters": float("nan")}},
        [1, 2],
    ],
)
def test_a_record_cannot_write_the_card(model: Any, tmp_path: Path, record: Any) -> None:
    """No line, heading, cell or key of the header comes from it."""
    text = card(model, tmp_path, record)
    header = yaml.safe_load(text.split("---")[1])
    assert set(header) <= {"library_name", "tags", "pipeline_tag"}
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# BertForSequenceClassification with 2 of 8 attention heads"
    ]
    outside = "".join(part for index, part in enumerate(text.split("`")) if index % 2 == 0)
    assert "<" not in outside and "$(rm)" not in text


class FakeApi:
    """What the hub would be told."""

    calls: ClassVar[list[tuple[str, Any]]] = []
    fails = False

    def create_repo(self, name: str, exist_ok: bool) -> str:
        self.calls.append(("create", name))
        return f"https://huggingface.co/{name}"

    def upload_folder(self, repo_id: str, folder_path: Path, **_: Any) -> None:
        if self.fails:
            raise OSError("403 Forbidden.\nmore")
        self.calls.append((repo_id, sorted(path.name for path in Path(folder_path).iterdir())))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> type[FakeApi]:
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeApi)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "a token")
    monkeypatch.setattr(FakeApi, "calls", [])
    monkeypatch.setattr(hub, "rehearse", lambda *_: "compared")  # it has tests of its own, and takes seconds
    return FakeApi


def test_push_uploads_what_lies_in_its_place(model: Any, tmp_path: Path, api: type[FakeApi]) -> None:
    kheads.save(model, tmp_path / "model")
    said: list[str] = []
    out = kheads.export(tmp_path / "model", tmp_path / "out", say=said.append, push="me/small-bert")
    files = sorted(path.name for path in out.iterdir())
    assert api.calls == [("create", "me/small-bert"), ("me/small-bert", files)]
    assert said == ["Uploaded to https://huggingface.co/me/small-bert."]


def test_what_is_uploaded_names_no_place_of_the_machine(model: Any, tmp_path: Path, api: type[FakeApi]) -> None:
    """Neither in the record of the run nor in what the tokenizer remembers; names of files and of the hub stay."""
    place = tmp_path / "my data"
    kheads.save(model, tmp_path / "model")
    remark = f"{place}/train.jsonl, line 3: a label; {tmp_path}/other.txt has 1/2 of it (https://hf.co/a/b)."
    data = {
        "train": f"{place}/train.jsonl",
        "eval": {"dev": "data/dev.jsonl", "up": "../x/up.jsonl", "w": "C:\\a\\w.csv"},
    }
    settings = {**RECORD["settings"], "model": str(place / "my bert"), "data": {**data, "original": "someone/a-model"}}
    (tmp_path / "model" / "result.json").write_text(json.dumps({**RECORD, "settings": settings, "remarks": [remark]}))
    template = "{{ '</a></b> /c/d' }}"
    known = {"name_or_path": str(place), "vocab_file": f"{place}/vocab.txt", "chat_template": template}
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(known))
    out = kheads.export(tmp_path / "model", tmp_path / "out", say=lambda sentence: None, push="me/small-bert")
    for path in out.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path.name
    record = json.loads((out / "result.json").read_text())
    assert record["settings"]["model"] == "my bert" and record["metrics"] == RECORD["metrics"]
    told = {"train": "train.jsonl", "eval": {"dev": "data/dev.jsonl", "up": "up.jsonl", "w": "w.csv"}}
    assert record["settings"]["data"] == {**told, "original": "someone/a-model"}
    assert record["remarks"] == ["train.jsonl, line 3: a label; other.txt has 1/2 of it (https://hf.co/a/b)."]
    config = json.loads((out / "tokenizer_config.json").read_text())
    assert config == {"name_or_path": "my data", "vocab_file": "vocab.txt", "chat_template": template}


def test_nothing_is_uploaded_that_was_not_verified(
    model: Any, tmp_path: Path, api: type[FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> str:
        raise ExportError("other outputs")

    monkeypatch.setattr(hub, "rehearse", fail)
    kheads.save(model, tmp_path / "model")
    with pytest.raises(ExportError, match="other outputs"):
        kheads.export(tmp_path / "model", tmp_path / "out", push="me/small-bert")
    assert api.calls == [] and not (tmp_path / "out").exists()


def test_a_push_that_cannot_work_is_refused_before_any_work(
    tmp_path: Path, api: type[FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("small-bert", "a/b/c", "../x", "me/ x", ""):
        with pytest.raises(ValueError, match="`push` must be USER/NAME"):
            kheads.export(tmp_path / "none", tmp_path / "out", push=name)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(ValueError, match="needs a login at the Hugging Face hub; run `hf auth login`"):
        kheads.export(tmp_path / "none", tmp_path / "out", push="me/small-bert")


def test_a_failed_upload_leaves_the_folder(tmp_path: Path, api: type[FakeApi]) -> None:
    api.fails = True
    try:
        with pytest.raises(ExportError, match="is complete, but could not be uploaded to me/x: 403 Forbidden"):
            upload.upload(tmp_path, "me/x")
    finally:
        api.fails = False
