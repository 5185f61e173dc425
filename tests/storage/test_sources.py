"""Where a model comes from: folders before sizes, the hub by name, heads that are trained or refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.utils._paths import filter_repo_objects

import kheads
from families import inputs, logits, tiny
from kheads import CheckpointError, Kept, discover, remove
from kheads.storage import processors, sources
from kheads.storage.sizes import SIZES

Fresh = Callable[[str], Any]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory in which nothing has been said or asked yet."""
    sources._tell_once.cache_clear()
    sources._is_pruned_on_hub.cache_clear()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pruned(folder: Path) -> Path:
    model = tiny("bert")
    remove(model, Kept.from_dict({site.name: [0] for site in discover(model)}))
    return kheads.save(model, folder)


def hub_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Makes the folder the hub's only repository, `me/small-bert`; returns what is asked of it."""
    asked: list[dict[str, Any]] = []

    def snapshot(name: str, **options: Any) -> str:
        asked.append({"name": name, **options})
        if name != "me/small-bert":
            raise huggingface_hub.errors.LocalEntryNotFoundError("No such repository. Set HF_TOKEN.\nMore.")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda name, file: snapshot(name) + "/" + file)
    return asked


def test_a_hub_name_loads_as_a_folder_does(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pruned(place / "elsewhere")
    asked = hub_of(folder, monkeypatch)
    with torch.no_grad():
        expected = logits(kheads.load(folder), inputs("bert"))
        assert torch.equal(logits(kheads.load("me/small-bert"), inputs("bert")), expected)
    (request,) = asked
    names = ["config.json", "model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.json", "vocab.txt"]
    unwanted = [
        "kheads_architecture.py",
        "pytorch_model.bin",
        "model.pt",
        "model.pth",
        "weights.pkl",
        "onnx/model.json",
    ]
    patterns = {key: request[f"{key}_patterns"] for key in ("allow", "ignore")}
    wanted = filter_repo_objects(
        [*names, *unwanted], allow_patterns=patterns["allow"], ignore_patterns=patterns["ignore"]
    )
    assert list(wanted) == names


def test_a_folder_comes_before_the_hub(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub_of(place, monkeypatch)
    pruned(place / "me" / "small-bert")
    kheads.load("me/small-bert")
    sources.model("me/small-bert")
    assert asked == []


@pytest.mark.parametrize("name", ["me/nothing", "nothing"])
def test_a_name_that_is_nowhere_gets_one_sentence(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_of(place, monkeypatch)
    with pytest.raises(CheckpointError) as error:
        kheads.load(name)
    assert str(error.value) == (
        f"There is no folder {name}, and the Hugging Face hub gave no model of that name (No such repository); check "
        "the name, or go online."
    )


@pytest.mark.parametrize("path", ["/no/such/folder", "./pruned", "a/b/c", "../pruned"])
def test_what_can_only_be_a_path_is_never_looked_up(path: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub_of(place, monkeypatch)
    with pytest.raises(CheckpointError, match=r"has no config\.json; give a folder that `kheads.save` wrote"):
        kheads.load(path)
    assert asked == []


def test_every_loader_takes_a_pruned_model_of_the_hub(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pruned(place / "elsewhere")
    hub_of(folder, monkeypatch)

    def classifier(source: str) -> Any:
        return sources.classifier(source)[0]

    for load in (sources.model, classifier, sources.trained_classifier, sources.skeleton):
        assert sum(site.count for site in discover(load("me/small-bert"))) == 3
    assert sources.resolve("bert-base-uncased") == "bert-base-uncased"
    assert sources.resolve("other/model") == "other/model"


@pytest.mark.parametrize("name", list(SIZES))
def test_a_folder_in_the_way_of_a_size_is_used_and_said_once(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / name).mkdir()  # nothing in it: the size is meant
    assert sources.is_size(name) and sources.skeleton(name).config.model_type == "marian"
    assert capsys.readouterr().err == ""
    pruned(place / name)
    for _ in range(2):
        assert not sources.is_size(name) and sources.skeleton(name).config.model_type == "bert"
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"`{name}` is taken as the folder ./{name}, not as the size" in told
    assert "rename the folder" in told
    assert not sources.is_size(f"./{name}") and capsys.readouterr().err == ""


def test_a_folder_named_like_the_embedded_model_is_mentioned(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pruned(place / "minilm")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(sources.SourceError, match="pip install"):
        sources.resolve("minilm")
    assert (
        capsys.readouterr().err == "`minilm` is the embedded model; to use the folder of that name, write ./minilm.\n"
    )
    assert sources.resolve("./minilm") == "./minilm"


def test_a_trained_classifier_has_the_labels_it_has(fresh: Fresh, place: Path) -> None:
    model = fresh("bert")
    model.config.id2label = {0: "no", 1: "perhaps", 2: "yes"}
    model.save_pretrained(place / "whole")
    remove(model, Kept.from_dict({site.name: [1, 2] for site in discover(model)}))
    kheads.save(model, place / "pruned")
    for name in ("whole", "pruned"):
        loaded: Any = sources.trained_classifier(name)
        assert type(loaded) is type(model) and list(loaded.config.id2label.values()) == ["no", "perhaps", "yes"]
        assert torch.equal(loaded.classifier.weight, model.classifier.weight)


@pytest.mark.parametrize("family", ["bert-bare", "gpt2"])
def test_a_model_without_a_trained_head_is_refused(family: str, fresh: Fresh, place: Path) -> None:
    model = fresh(family)
    model.save_pretrained(place / "headless")
    with pytest.raises(sources.SourceError, match=r"headless has no weights for \S+; .* trained for classification\.$"):
        sources.trained_classifier("headless")
    kheads.save(model, place / "pruned")
    with pytest.raises(sources.SourceError, match=r"which is not a model for SequenceClassification\.$"):
        sources.trained_classifier("pruned")


LIGHT = [
    "kheads.storage.sources",
    "kheads.storage.export.exporting",
    "kheads.storage.export.target",
    "kheads.tasks",
    "kheads.tasks.classification",
]
HEAVY = ["transformers.trainer", "transformers.modeling_utils", "torch._dynamo", "datasets", "pandas", "sacrebleu"]
IMPORTS = """
import importlib, json, sys, types
package = types.ModuleType("kheads")  # as it is while no name of it was touched
package.__path__ = [sys.argv[1]]
sys.modules["kheads"] = package
for name in json.loads(sys.argv[2]):
    importlib.import_module(name)
print(json.dumps(sorted(set(json.loads(sys.argv[3])) & set(sys.modules))))
"""


def test_what_takes_long_is_imported_when_it_is_used() -> None:
    folder = str(Path(kheads.__file__).parent)
    command = [sys.executable, "-c", IMPORTS, folder, json.dumps(LIGHT), json.dumps(HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_weights_of_layers_that_the_config_does_not_have_are_refused(fresh: Any, tmp_path: Path) -> None:
    """transformers leaves them out, and another model than the one that was trained would be evaluated."""
    fresh("bert").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    with pytest.raises(sources.SourceError, match=r"a layer that its config\.json does not have: bert\.encoder"):
        sources.trained_classifier(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**9}))
    with pytest.raises(sources.SourceError, match=r"claims 1000000000 layers \(`num_hidden_layers`\)"):
        sources.trained_classifier(tmp_path)


def test_labels_with_gaps_are_refused(fresh: Any, tmp_path: Path) -> None:
    fresh("bert").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": {"0": "a", "2": "b", "3": "c"}}))
    with pytest.raises(sources.SourceError, match="must give a word to each number from 0 to 2"):
        sources.labels(tmp_path)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation", "_experts_implementation"])
def test_an_attention_of_somebody_else_is_refused(key: str, fresh: Any, tmp_path: Path) -> None:
    """transformers would fetch it from the hub and run it."""
    fresh("bert").save_pretrained(tmp_path / "model")
    _edit(tmp_path / "model", {key: "somebody/attention"})
    for loader in (sources.trained_classifier, sources.model, sources.skeleton):
        with pytest.raises(sources.SourceError, match=r"somebody/attention.*not transformers' own"):
            loader(tmp_path / "model")


def test_the_code_of_a_folder_never_runs_and_nobody_is_asked(
    fresh: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh("bert").save_pretrained(tmp_path / "model")
    names = {f"Auto{what}": "mine.Mine" for what in ("Config", "Model", "ModelForSequenceClassification")}
    _edit(tmp_path / "model", {"model_type": "mine", "auto_map": names})
    (tmp_path / "model" / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("the user was asked"))
    for loader in (sources.trained_classifier, sources.model, processors.tokenizer, sources.skeleton):
        with pytest.raises(sources.SourceError):
            loader(tmp_path / "model")
    assert not (tmp_path / "ran").exists()


def _edit(folder: Path, changes: dict[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
