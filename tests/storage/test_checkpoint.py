"""What is saved comes back bit for bit, in a new process too; what is damaged says so in one sentence."""

import json
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
from kheads import CheckpointError, Kept, discover, remove

Fresh = Callable[[str], Any]

RELOAD = """
import sys, torch
from pathlib import Path
from safetensors.torch import load_file, save_file
import kheads
for folder in sorted(Path(sys.argv[1]).iterdir()):
    model = kheads.load(folder / "model").eval()
    with torch.no_grad():
        out = model(**load_file(folder / "inputs.safetensors"))
    logits = out.logits if "logits" in out else out.last_hidden_state
    save_file({"logits": logits.contiguous()}, folder / "child.safetensors")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every family, heads and neurons cut, the first site of each kind emptied, saved; reloaded by one new process."""
    root = tmp_path_factory.mktemp("saved")
    for name in FAMILIES:
        model, given = tiny(name), inputs(name)
        sites = discover(model, parts="all")
        kept = Kept.from_mask(subsets(sites)[3].mask(sites) * subsets(sites)[2].mask(sites), sites)
        remove(model, kept)
        kheads.save(model, root / name / "model")
        save_file(given, root / name / "inputs.safetensors")
        with torch.no_grad():
            save_file({"logits": logits(model, given).contiguous()}, root / name / "parent.safetensors")
    subprocess.run([sys.executable, "-c", RELOAD, str(root)], check=True, capture_output=True, text=True)
    return root


def test_logits_are_identical_in_a_new_process(family: str, saved: Path) -> None:
    parent, child = (load_file(saved / family / f"{who}.safetensors")["logits"] for who in ("parent", "child"))
    assert torch.equal(parent, child)


def test_the_class_and_the_record_come_back(family: str, saved: Path) -> None:
    model = kheads.load(saved / family / "model")
    assert type(model) is type(tiny(family))
    assert [path.name for path in (saved / family / "model").iterdir() if path.name.startswith(".")] == []
    record = json.loads((saved / family / "model" / "config.json").read_text())["kheads"]
    assert record.pop("checksum").keys() == {"weights", "config", "generation"}
    assert record["format"] == 1 and kheads.surgery.removal.architecture(model) == record


def test_plain_transformers_fails_loudly(family: str, saved: Path) -> None:
    with pytest.raises(RuntimeError):
        type(tiny(family)).from_pretrained(saved / family / "model")


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_plain_transformers_fails_loudly_where_sites_are_full_or_empty(name: str, fresh: Fresh, tmp_path: Path) -> None:
    model = fresh(name)
    emptied = discover(model)[1].name
    heads = {site.name: [] if site.name == emptied else list(range(site.count)) for site in discover(model)}
    kheads.save(remove(model, Kept.from_dict(heads)), tmp_path / "out")
    with pytest.raises(RuntimeError):
        type(model).from_pretrained(tmp_path / "out")


def test_pruning_goes_on_after_loading(fresh: Fresh, tmp_path: Path) -> None:
    model = fresh("t5")
    sites = discover(model, parts="all")
    remove(model, subsets(sites)[3])
    kheads.save(model, tmp_path / "one")
    loaded = kheads.load(tmp_path / "one")
    less = Kept.from_dict({site.name: list(range(site.count))[1:3] for site in discover(model, parts="all")})
    with torch.no_grad():
        expected = logits(remove(model, less), inputs("t5"))
        assert torch.equal(logits(remove(loaded, less), inputs("t5")), expected)
    assert loaded.config.kheads == model.config.kheads


@pytest.mark.parametrize("what", ["head", "neuron"])
def test_a_silent_head_or_neuron_survives_training(what: str, saved: Path) -> None:
    """Training a loaded model cannot wake one that counts as removed."""
    model = kheads.load(saved / "gpt2" / "model").train()
    ghosts = dict(zip(("head", "neuron"), kheads.ghosts(model), strict=True))
    output = model.get_submodule(ghosts[what]).c_proj
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    bias = output.bias.detach().clone()
    torch.autograd.backward(logits(model, inputs("gpt2")).square().mean())
    optimizer.step()
    assert not output.weight.any() and not torch.equal(output.bias, bias)
    output.weight.data.fill_(1)
    with pytest.raises(ValueError, match=rf"silent {what} of the emptied site .* has weights"):
        kheads.save(model, saved / "never")


def test_an_unpruned_model_round_trips(fresh: Fresh, tmp_path: Path) -> None:
    model = fresh("bert")
    kheads.save(model, tmp_path / "whole")
    with torch.no_grad():
        expected = logits(model, inputs("bert"))
        assert torch.equal(logits(kheads.load(tmp_path / "whole"), inputs("bert")), expected)
        plain = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "whole")
        assert torch.equal(logits(plain, inputs("bert")), expected)


def test_a_second_model_of_the_same_config_is_not_taken_for_pruned(fresh: Fresh) -> None:
    model = fresh("bert")
    remove(model, Kept.from_dict({}))
    twin = type(model)(model.config)
    assert sum(site.count for site in discover(twin)) == 12
    remove(twin, Kept.from_dict({"bert.encoder.layer.0.attention": [3]}))
    assert twin.config.kheads["sites"]["bert.encoder.layer.0.attention"]["query"] == [3]


def test_dtype_and_tokenizer_are_carried(fresh: Fresh, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    kheads.save(fresh("bert").to(torch.bfloat16), tmp_path / "out", tokenizer=tokenizer)
    assert kheads.load(tmp_path / "out").dtype == torch.bfloat16
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "out")("a")["input_ids"] == [2, 5, 3]


def test_nothing_is_overwritten_or_half_written(fresh: Fresh, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "precious").write_text("x")
    with pytest.raises(FileExistsError, match="is not empty; give another folder, or pass overwrite=True"):
        kheads.save(fresh("bert"), target)

    with pytest.raises(FileExistsError, match="was not made by kheads, which replaces only what it made"):
        kheads.save(fresh("bert"), target, overwrite=True)
    (target / "precious").unlink()
    kheads.save(fresh("bert"), target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}

    class Broken:
        def save_pretrained(self, folder: Path) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        kheads.save(fresh("bert"), target, tokenizer=Broken(), overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    kheads.save(fresh("bert"), target, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError, match="is a file"):
        kheads.save(fresh("bert"), tmp_path / "file")


def test_what_cannot_be_saved_says_so(fresh: Fresh, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="needs a transformers model; got Linear"):
        kheads.save(torch.nn.Linear(1, 1), tmp_path / "x")
    with kheads.gated(model := fresh("bert"), torch.ones(12)), pytest.raises(RuntimeError, match="gated"):
        kheads.save(model, tmp_path / "x")
    own = type("OwnBert", (transformers.BertModel,), {})(fresh("bert-bare").config)
    with pytest.raises(ValueError, match="OwnBert is not a class of transformers"):
        kheads.save(own, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def folder(fresh: Fresh, tmp_path: Path) -> Path:
    model = fresh("bert")
    remove(model, Kept.from_dict({"bert.encoder.layer.0.attention": [1, 2], "bert.encoder.layer.1.attention": [0]}))
    return kheads.save(model, tmp_path / "folder")


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


QUERY = "bert.encoder.layer.0.attention.self.query.weight"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda f: (f / "config.json").unlink(), "has no config.json; give a folder that `kheads.save` wrote"),
    "not json": (lambda f: (f / "config.json").write_text("{"), "is not valid JSON"),
    "foreign": (lambda f: edit(f, lambda c: c.pop("kheads")), "was not written by kheads"),
    "newer": (
        lambda f: edit(f, lambda c: c["kheads"].update(format=99)),
        "has format 99, and this kheads reads up to 1",
    ),
    "incomplete": (lambda f: edit(f, lambda c: c["kheads"].pop("tensors")), "incomplete record of heads"),
    "class": (
        lambda f: edit(f, lambda c: c.update(architectures=["os"])),
        "saved from 'os', which is not a model class",
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no safetensors file"),
    "truncated": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:5000]),
        "is truncated or not a safetensors file",
    ),
    "tampered record": (
        lambda f: edit(f, lambda c: c["kheads"]["tensors"].update({QUERY: [8, 32]})),
        r"query.weight is \[8, 32\], where its heads give \[16, 32\]",
    ),
    "record without a shape": (
        lambda f: edit(f, lambda c: c["kheads"]["tensors"].pop(QUERY)),
        "does not fit its own record of heads",
    ),
    "tampered list of heads": (
        lambda f: edit(f, lambda c: c["kheads"]["sites"]["bert.encoder.layer.0.attention"].update(query=[1])),
        "does not have the heads that its record lists",
    ),
    "unknown site": (
        lambda f: edit(f, lambda c: c["kheads"]["tensors"].update({"bert.nothing.weight": [1]})),
        "bert.nothing.weight is not what heads leave behind",
    ),
    "tampered weights": (
        lambda f: save_file(
            {**load_file(f / "model.safetensors"), QUERY: torch.zeros(24, 32)},
            f / "model.safetensors",
            {"format": "pt"},
        ),
        r"has shape \[24, 32\], but its record",
    ),
    "missing weights": (
        lambda f: save_file(
            {k: v for k, v in load_file(f / "model.safetensors").items() if k != "classifier.weight"},
            f / "model.safetensors",
            {"format": "pt"},
        ),
        "missing classifier.weight",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folders_are_refused_in_one_sentence(damage: str, folder: Path) -> None:
    inflict, message = DAMAGES[damage]
    inflict(folder)
    with pytest.raises(CheckpointError, match=message) as error:
        kheads.load(folder)
    assert "\n" not in str(error.value)


def test_weights_are_never_unpickled(folder: Path) -> None:
    """A pickle beside a missing safetensors file is not a way in."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="kheads reads weights from nothing else"):
        kheads.load(folder)
