"""Folders made to harm: no code of theirs runs, no record reaches past its heads, no config gets what it asks for."""

import importlib.util
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from fuzzing import edit_config
from safetensors.torch import load_file, save_file
from torch import nn

import kheads
from families import inputs, logits
from kheads import CheckpointError, Kept, remove
from kheads.storage.export.hub import CODE, _write_hub_folder
from zoo import ZOO

Fresh = Callable[[str], Any]
Change = Callable[[dict[str, Any]], object]
LAYER = "bert.encoder.layer.0"
SITE = f"{LAYER}.attention"
WEIGHTS = "model.safetensors"


def pruned(fresh: Fresh, name: str = "bert", parts: str = "heads") -> Any:
    model = fresh(name)
    blocks = {site.name: [0, 2] for site in kheads.discover(model, parts=parts)}
    return remove(model, Kept.from_dict(blocks))


@pytest.fixture
def both(fresh: Fresh, tmp_path: Path) -> Path:
    """Heads and neurons are gone."""
    return kheads.save(pruned(fresh, parts="all"), tmp_path / "both")


@pytest.fixture
def folder(fresh: Fresh, tmp_path: Path) -> Path:
    return kheads.save(pruned(fresh), tmp_path / "folder")


def unseal(folder: Path) -> None:
    """As a folder of an early version, or of someone who wants no checksum compared."""
    edit_config(folder, lambda config: config["kheads"].pop("checksum"))


def test_export_runs_no_code_and_takes_nothing_private_along(fresh: Fresh, tmp_path: Path) -> None:
    source, mark = kheads.save(pruned(fresh, "gpt2"), tmp_path / "model"), tmp_path / "mark"
    code = f"open({str(mark)!r}, 'w')\ndef generate(model, **kwargs):\n    return model.generate(**kwargs)\n"
    (source / "custom_generate").mkdir()
    (source / "custom_generate" / "generate.py").write_text(code)
    (source / "evil.py").write_text(code)
    (tmp_path / "secret").write_text("private")
    (source / "vocab.txt").symlink_to(tmp_path / "secret")
    (source / "notes.md").symlink_to(tmp_path / "secret")
    (source / "chat_template.jinja").write_text("{{ messages }}")
    tokenizer = {"tokenizer_class": "GPT2Tokenizer", "auto_map": {"AutoTokenizer": ["evil.T", None]}}
    (source / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    edit_config(source, lambda config: config.update(auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"}))
    said: list[str] = []
    out = kheads.export(source, tmp_path / "hub", say=said.append)
    assert not mark.exists()
    assert {path.name for path in out.rglob("*.py")} == {CODE}
    for path in out.rglob("*"):
        assert not path.is_symlink() and b"private" not in path.read_bytes() and b"evil" not in path.read_bytes()
    assert (out / "chat_template.jinja").read_text() == "{{ messages }}"
    for part in ("custom_generate/", "evil.py", "vocab.txt (a link", "notes.md", "auto_map of tokenizer_config.json"):
        assert part in said[0]
    assert kheads.load(out).config.kheads == kheads.load(source).config.kheads


def test_links_lead_nowhere_but_into_the_hubs_cache(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(folder)
    kheads.load(tmp_path / "alias")
    cache = tmp_path / "models--a--b"
    for name in (path.name for path in folder.iterdir()):
        (cache / "blobs").mkdir(parents=True, exist_ok=True)
        (cache / "snapshots" / "1").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, cache / "blobs" / f"blob-{name}")
        (cache / "snapshots" / "1" / name).symlink_to(f"../../blobs/blob-{name}")
    kheads.load(cache / "snapshots" / "1")
    for name in ("config.json", WEIGHTS):
        other = tmp_path / f"linked-{name}"
        shutil.copytree(folder, other)
        (other / name).unlink()
        (other / name).symlink_to(folder / name)
        with pytest.raises(CheckpointError, match="is a link to a place outside the folder"):
            kheads.load(other)


RECORDS: dict[str, Change] = {
    "a class": lambda record: record["attributes"].update({"classifier.__class__.forward": 7}),
    "a class in a site": lambda record: record["attributes"].update({f"{SITE}.self.__class__.forward": 7}),
    "scaling": lambda record: record["attributes"].update({f"{SITE}.self.scaling": 3}),
    "layer": lambda record: record["attributes"].update({f"{SITE}.self.layer_idx": 1}),
    "epsilon": lambda record: record["attributes"].update({f"{SITE}.output.LayerNorm.eps": 1}),
    "a shared config": lambda record: record["attributes"].update({f"{SITE}.self.config.hidden_size": 7}),
    "a norm": lambda record: record["selected"].update(
        {f"{SITE}.output.LayerNorm": {"features": list(range(32))[::-1], "of": 32}}
    ),
    "silence": lambda record: record["silent"].append("classifier"),
    "silence in a site": lambda record: record["silent"].append(f"{SITE}.output.dense"),
    "an argument": lambda record: record["arguments"].update(
        {SITE: {"names": {"hidden_states": 0}, "axis": 0, "heads": [0, 0], "of": 4, "fused": False}}
    ),
    "a table": lambda record: record["tables"].update({SITE: {"forward": [4, 2]}}),
    "a list": lambda record: record["lists"].update({"bert.encoder.layer": 1}),
    "a tensor": lambda record: record["tensors"].update({"classifier.weight": [1, 32]}),
    "opened": lambda record: record["opened"].append("bert.pooler"),
    "a neuron's silence": lambda record: record["silent"].append(f"{LAYER}.output.dense"),
    "chunks": lambda record: record["attributes"].update({f"{LAYER}.chunk_size_feed_forward": 1}),
    "an axis": lambda record: record["attributes"].update({f"{LAYER}.seq_len_dim": 0}),
    "a layer's epsilon": lambda record: record["attributes"].update({f"{LAYER}.output.LayerNorm.eps": 1}),
    "neurons of nothing": lambda record: record["neurons"].update({"bert.nothing": record["neurons"][LAYER]}),
    "neurons of an attention": lambda record: record["neurons"].update({SITE: record["neurons"][LAYER]}),
    "far more neurons": lambda record: record["neurons"][LAYER].update(of=10**15),
    "no neurons": lambda record: record["neurons"][LAYER].update(of=0, mask=""),
    "no mask": lambda record: record["neurons"].update({LAYER: {"of": 40, "ghost": False}}),
    "a mask that is none": lambda record: record["neurons"][LAYER].update(mask="\N{PILE OF POO}"),
    "a longer mask": lambda record: record["neurons"][LAYER].update(mask="BQAAAAAA"),
    "spaces in a mask": lambda record: record["neurons"][LAYER].update(mask=" BQAAAAA="),
    "a list of neurons": lambda record: record["neurons"][LAYER].update(mask=[0, 2]),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_reaches_nothing_but_its_heads_and_neurons(
    name: str, both: Path, fresh: Fresh, tmp_path: Path
) -> None:
    """Neither through `load`, nor through the code of an exported folder, sealed or not."""
    forward = nn.Linear.forward
    (tmp_path / "hub").mkdir()
    _write_hub_folder(pruned(fresh, parts="all"), tmp_path / "hub")
    for place in (both, tmp_path / "hub"):
        unseal(place)
        edit_config(place, lambda config: RECORDS[name](config["kheads"]))
    with pytest.raises(CheckpointError):
        kheads.load(both)
    code = code_of(tmp_path / "hub")
    with pytest.raises(ValueError, match="not the one that was exported with this code"):
        code.BertForSequenceClassification.from_pretrained(tmp_path / "hub")
    code.SEAL = ""
    with pytest.raises(ValueError, match="The record of heads"):
        code.BertForSequenceClassification.from_pretrained(tmp_path / "hub")
    assert nn.Linear.forward is forward


def code_of(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("exported_code", folder / CODE)
    assert spec is not None and spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    return code


def test_a_layout_is_believed_only_if_the_parts_suggest_it(folder: Path) -> None:
    layout = {"o": "output.dense", "rows": {"self.query": "q"}, "width": "self.layer_idx", "counts": {}, "empty": True}
    edit_config(folder, lambda config: config["kheads"]["layouts"].update({SITE: layout}))
    with pytest.raises(CheckpointError, match=r"none that `kheads.adopt` could have found"):
        kheads.load(folder)


NEURONS: dict[str, tuple[Change, str]] = {
    "another layer": (
        lambda record: record["neurons"].update({"bert.pooler": record["neurons"][LAYER]}),
        "neurons, bert.pooler is not what heads leave behind",
    ),
    "fewer": (
        lambda record: record["neurons"][LAYER].update(mask="AQAAAAA="),
        r"intermediate.dense.weight is \[2, 32\], where its heads give \[1, 32\]",
    ),
    "unsaid": (
        lambda record: record["neurons"].update({LAYER: None}),
        f"does not say which neurons '{LAYER}' keeps",
    ),
    "unheard of": (
        lambda record: record["neurons"][LAYER].update(of=39),
        f"'{LAYER}' does not have the neurons that its record lists",
    ),
    "silent": (
        lambda record: record["neurons"][LAYER].update(ghost=True, mask="AQAAAAA="),
        f"'{LAYER}' cannot have the silent neuron that its record lists",
    ),
    "forgotten": (lambda record: record.pop("neurons"), "is not what heads leave behind"),
    "a list": (lambda record: record.update(neurons=[]), "incomplete record of heads"),
}


@pytest.mark.parametrize("name", NEURONS)
def test_a_record_of_neurons_is_refused_in_one_sentence(name: str, both: Path) -> None:
    change, message = NEURONS[name]
    unseal(both)
    edit_config(both, lambda config: change(config["kheads"]))
    with pytest.raises(CheckpointError, match=message) as error:
        kheads.load(both)
    assert "\n" not in str(error.value)


def test_no_record_cuts_experts(tmp_path: Path) -> None:
    folder = kheads.save(ZOO["mixtral"].build(), tmp_path / "folder")
    neurons = {"model.layers.0.mlp": {"mask": "AQAAAAA=", "of": 40, "ghost": False}}
    unseal(folder)
    edit_config(folder, lambda config: config["kheads"].update(neurons=neurons))
    with pytest.raises(CheckpointError, match="whose neurons kheads cannot remove"):
        kheads.load(folder)


def test_early_records_still_load(folder: Path) -> None:
    def age(config: dict[str, Any]) -> None:
        for key in ("checksum", "selected", "layouts", "opened"):
            del config["kheads"][key]

    model = kheads.load(folder)
    edit_config(folder, age)
    with torch.no_grad():
        assert torch.equal(logits(kheads.load(folder), inputs("bert")), logits(model, inputs("bert")))


def change_weights(folder: Path, change: Change) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def test_weights_that_are_not_those_saved_are_refused(folder: Path) -> None:
    change_weights(folder, lambda tensors: tensors["classifier.bias"].add_(1e-6))
    with pytest.raises(CheckpointError, match=r"the weights are not what was saved .*pass `verify=False`"):
        kheads.load(folder)
    kheads.load(folder, verify=False)
    unseal(folder)
    kheads.load(folder)
    change_weights(folder, lambda tensors: tensors["classifier.bias"].fill_(float("nan")))
    with pytest.raises(CheckpointError, match=r"classifier.bias has numbers that are not finite"):
        kheads.load(folder)


def test_another_config_is_refused(fresh: Fresh, tmp_path: Path) -> None:
    folder = kheads.save(pruned(fresh, "gpt2"), tmp_path / "folder")
    generation = (folder / "generation_config.json").read_bytes()
    (folder / "generation_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"generation_config.json is not what was saved"):
        kheads.load(folder)
    (folder / "generation_config.json").write_bytes(generation)
    edit_config(folder, lambda config: config.update(transformers_version="9"))
    kheads.load(folder)
    edit_config(folder, lambda config: config.update(layer_norm_epsilon=1e-3))
    with pytest.raises(CheckpointError, match=r"config.json is not what was saved"):
        kheads.load(folder)


def test_models_that_are_not_finite_are_not_saved(fresh: Fresh, tmp_path: Path) -> None:
    model = fresh("bert")
    model.classifier.weight.data[0, 0] = float("inf")
    with pytest.raises(ValueError, match=r"classifier.weight has numbers that are not finite"):
        kheads.save(model, tmp_path / "never")
    assert list(tmp_path.iterdir()) == []


def shard(folder: Path, model: Any) -> dict[str, Any]:
    """Puts the same weights into several files."""
    config = (folder / "config.json").read_bytes()
    (folder / WEIGHTS).unlink()
    model.save_pretrained(folder, save_original_format=False, max_shard_size="20KB")
    (folder / "config.json").write_bytes(config)
    index: dict[str, Any] = json.loads((folder / f"{WEIGHTS}.index.json").read_text())
    return index


def test_shards_have_the_same_checksum_and_stay_in_the_folder(folder: Path, fresh: Fresh, tmp_path: Path) -> None:
    index = shard(folder, pruned(fresh))
    assert len(set(index["weight_map"].values())) > 2
    kheads.load(folder)
    first = min(index["weight_map"].values())
    shutil.copyfile(folder / first, tmp_path / "outside.safetensors")
    for name in ("../outside.safetensors", str(tmp_path / "outside.safetensors"), "missing.safetensors", 7):
        other = {key: name if file == first else file for key, file in index["weight_map"].items()}
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({**index, "weight_map": other}))
        with pytest.raises(CheckpointError, match=r"index\.json"):
            kheads.load(folder)


CONFIGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a kernel": ("bert", {"_attn_implementation": "kernels-community/flash-attn"}, "not transformers' own"),
    "a kernel for a part": ("bert", {"attn_implementation": {"": "./kernel"}}, "not transformers' own"),
    "a kernel inside": ("bert", {"text_config": {"_attn_implementation": "a/b:c"}}, "not transformers' own"),
    "quantised": ("bert", {"quantization_config": {"quant_method": "bitsandbytes"}}, "has a quantization_config"),
    "deep": ("bert", {"num_hidden_layers": 200_000}, "num_hidden_layers = 200000, which its weights cannot have"),
    "less deep": ("bert", {"num_hidden_layers": 1000}, "far larger model"),
    "deep inside": ("bert2bert", {"encoder": {"model_type": "bert", "num_hidden_layers": 10**9}}, "cannot have"),
    "wide": ("bert", {"vocab_size": 300_000, "hidden_size": 10_000}, "where its heads give"),
    "long": ("bert", {"vocab_size": 2**31 - 1}, "has shape"),
    "labels": ("bert", {"num_labels": 10**9}, "cannot have"),
    "positions": ("marian", {"max_position_embeddings": 10**9}, "numbers that the weights do not have"),
    "a number": ("bert", {"max_position_embeddings": 10**40}, "cannot have"),
    "another type": ("bert", {"model_type": "gpt2"}, "is not that of BertForSequenceClassification"),
    "no type": ("bert", {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C"}}, "none that transformers knows"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_does_not_get_what_its_weights_do_not_bear_out(case: str, fresh: Fresh, tmp_path: Path) -> None:
    name, fields, message = CONFIGS[case]
    folder = kheads.save(pruned(fresh, name), tmp_path / "folder")
    unseal(folder)
    edit_config(folder, lambda config: config.update(fields))
    begin = time.monotonic()
    with pytest.raises(CheckpointError, match=message) as error:
        kheads.load(folder)
    assert "\n" not in str(error.value) and time.monotonic() - begin < 20


def test_other_files_of_the_folder_are_not_read(folder: Path, fresh: Fresh, tmp_path: Path) -> None:
    """An adapter's config would send transformers to another model, and a pickle would run."""
    other = transformers.BertForSequenceClassification(fresh("bert").config)
    other.save_pretrained(tmp_path / "other")
    adapter = {"base_model_name_or_path": str(tmp_path / "other"), "peft_type": "LORA"}
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    (folder / "pytorch_model.bin").write_bytes(b"no pickle")
    edit_config(folder, lambda config: config.update(transformers_weights="../other/model.safetensors"))
    unseal(folder)
    with torch.no_grad():
        assert torch.equal(logits(kheads.load(folder), inputs("bert")), logits(pruned(fresh), inputs("bert")))


@pytest.mark.parametrize("site", ["attn", "mlp"])
def test_ghosts_are_silent(site: str, fresh: Fresh, tmp_path: Path) -> None:
    model = remove(fresh("gpt2"), Kept.from_dict({f"transformer.h.{layer}.{site}": [] for layer in range(3)}))
    folder = kheads.save(model, tmp_path / "folder")
    unseal(folder)
    change_weights(folder, lambda tensors: tensors[f"transformer.h.0.{site}.c_proj.weight"].fill_(1))
    with pytest.raises(CheckpointError, match="its record says that it is silent"):
        kheads.load(folder)
