"""An exported folder loads where kheads does not exist, and gives what the model gives."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import kheads
from conftest import subsets
from families import FAMILIES, inputs, logits, tiny
from kheads import Kept, discover, remove
from kheads.storage.export import rehearsal
from kheads.storage.export.hub import CODE, ExportError, _write_hub_folder
from kheads.storage.probe import probe_inputs, probe_outputs
from zoo import ZOO

Fresh = Callable[[str], Any]
LIBRARY: Any = transformers

# One process loads them all, to keep the tests quick; `export` itself starts one for each folder.
RELOAD = """
import json, sys
sys.modules["kheads"] = None
import torch, transformers
from pathlib import Path
from safetensors.torch import load_file, save_file
transformers.utils.logging.set_verbosity_error()
for folder in sorted(Path(sys.argv[1]).iterdir()):
    auto = getattr(transformers, (folder / "auto_class").read_text())
    model = auto.from_pretrained(folder / "hub", trust_remote_code=True).eval()
    given = load_file(folder / "inputs.safetensors")
    with torch.no_grad():
        out = model(**given)
        result = {"logits": (out.logits if "logits" in out else out.last_hidden_state).contiguous()}
        if model.can_generate():
            prompt = {name: value for name, value in given.items() if not name.startswith("decoder")}
            result["tokens"] = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    save_file(result, folder / "child.safetensors")
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    scratch = tmp_path_factory.mktemp("modules")
    for name in FAMILIES:
        model, given, folder = tiny(name), inputs(name), root / name
        sites = discover(model, parts="all")
        kept = Kept.from_mask(subsets(sites)[3].mask(sites) * subsets(sites)[2].mask(sites), sites)
        remove(model, kept)
        (folder / "hub").mkdir(parents=True)
        (folder / "auto_class").write_text(_write_hub_folder(model, folder / "hub"))
        save_file(given, folder / "inputs.safetensors")
        with torch.no_grad():
            expected = {"logits": logits(model, given).contiguous()}
            if model.can_generate():
                prompt = {key: value for key, value in given.items() if not key.startswith("decoder")}
                expected["tokens"] = model.generate(**prompt, max_new_tokens=4, do_sample=False)
        save_file(expected, folder / "parent.safetensors")
    environment = {**os.environ, "HF_MODULES_CACHE": str(scratch)}
    subprocess.run([sys.executable, "-I", "-c", RELOAD, str(root)], check=True, capture_output=True, env=environment)
    return root


def test_exported_models_give_the_same_without_kheads(family: str, exported: Path) -> None:
    parent, child = (load_file(exported / family / f"{who}.safetensors") for who in ("parent", "child"))
    assert parent.keys() == child.keys()
    assert torch.allclose(parent["logits"], child["logits"], atol=1e-6)
    assert "tokens" not in parent or torch.equal(parent["tokens"], child["tokens"])


def test_export_verifies_and_writes_a_model_card(fresh: Fresh, tmp_path: Path) -> None:
    model = fresh("bert")
    remove(model, Kept.from_dict({"bert.encoder.layer.0.attention": [1, 2]}))
    kheads.save(model, tmp_path / "model")
    out = kheads.export(tmp_path / "model", tmp_path / "hub", to="hub")
    card = (out / "README.md").read_text()
    assert "BertForSequenceClassification with 2 of 12 attention heads" in card
    assert "| bert.encoder.layer.0.attention | 2 of 4 | 1, 2 |" in card and "layer.1.attention | 0 of 4 | - |" in card
    assert "AutoModelForSequenceClassification.from_pretrained" in card and "neurons" not in card
    config = json.loads((out / "config.json").read_text())
    assert config["auto_map"]["AutoModel"] == f"{CODE.removesuffix('.py')}.BertModel"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hub", "model"]


def test_the_card_counts_neurons(fresh: Fresh, tmp_path: Path) -> None:
    """Not which: they are too many."""
    model = fresh("gpt2")
    sites = discover(model, parts="all")
    _write_hub_folder(remove(model, subsets(sites)[2]), tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "GPT2LMHeadModel with 8 of 12 attention heads and 256 of 384 neurons" in card
    assert "The other heads and neurons were removed for real" in card
    assert "| transformer.h.0.mlp | 0 of 128 |\n| transformer.h.1.mlp | 128 of 128 |" in card


def test_a_folder_that_does_not_load_is_not_exported(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: with the shapes left alone the new process cannot load the weights."""
    model = fresh("bert")
    remove(model, Kept.from_dict({"bert.encoder.layer.0.attention": [1, 2]}))
    kheads.save(model, tmp_path / "model")
    source = Path(kheads.surgery.rebuild.__file__).read_text().replace("rebuild(self, record)", "pass")
    (tmp_path / "broken.py").write_text(source)
    monkeypatch.setattr(kheads.surgery.rebuild, "__file__", str(tmp_path / "broken.py"))
    with pytest.raises(ExportError, match="does not load in a new process"):
        kheads.export(tmp_path / "model", tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


def test_a_causal_model_says_its_layers_in_the_config(tmp_path: Path) -> None:
    """As the weights have them; what is loaded with the folder's code says them again when it is saved."""
    model = ZOO["llama"].build()
    first, second = discover(model)
    remove(model, Kept.from_dict({first.name: [0, 2, 3], second.name: [1]}))
    kheads.save(model, tmp_path / "model")
    told: list[str] = []
    out = kheads.export(tmp_path / "model", tmp_path / "hub", tell=told.append)
    config = json.loads((out / "config.json").read_text())
    assert config["allow_global_per_layer_attribute_access"] is True and config["num_attention_heads"] == 8
    assert config["per_layer_config"] == {
        "0": {"num_attention_heads": 6, "num_key_value_heads": 3},
        "1": {"num_attention_heads": 2, "num_key_value_heads": 1},
    }
    settings = LIBRARY.LlamaConfig.from_dict(config)
    assert [layer.num_key_value_heads for layer in settings.per_layer_config] == [3, 1]
    again = tmp_path / "again"
    settings.save_pretrained(again)
    assert set(json.loads((again / "config.json").read_text())["per_layer_config"]) == {"0", "1"}
    assert "differ by 0.0e+00 at most, and it generates the same tokens" in told[0]
    assert torch.equal(logits(kheads.load(out).eval(), probe_inputs(model)), logits(model, probe_inputs(model)))


def test_models_with_other_inputs_need_a_batch(tmp_path: Path) -> None:
    """kheads makes up text, images and waves; anything else is compared on the user's batch."""
    model, given = ZOO["clip"].build(), ZOO["clip"].inputs()
    remove(model, Kept.from_dict({}))
    kheads.save(model, tmp_path / "model")
    with pytest.raises(ExportError, match="cannot make up inputs for CLIPModel; pass a batch as `inputs`"):
        kheads.export(tmp_path / "model", tmp_path / "hub")
    assert not (tmp_path / "hub").exists()
    assert (kheads.export(tmp_path / "model", tmp_path / "hub", inputs=given) / CODE).exists()
    assert probe_outputs(ZOO["hubert"].build(), probe_inputs(ZOO["hubert"].build()))["forward"].isfinite().all()


def test_other_outputs_are_noticed() -> None:
    same = {"forward": torch.zeros(2), "generate": torch.zeros(2)}
    with pytest.raises(ExportError, match=r"differ from the model's by 1.0e\+00"):
        rehearsal.compare(same, {**same, "forward": torch.ones(2)})
    with pytest.raises(ExportError, match="other tokens"):
        rehearsal.compare(same, {**same, "generate": torch.ones(2)})


def test_unknown_flavours_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`to` must be one of 'hub', .*; got 'tflite'"):
        kheads.export(tmp_path, tmp_path / "out", to="tflite")
