"""Folders that transformers 4 pruned load with the weights they have, and are saved in today's form."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import kheads
from kheads import Kept, discover, remove
from kheads.storage import sources
from kheads.storage.contents import CheckpointError
from zoo import ZOO, outputs
from zoo.cases import build

GONE = {"0": [0, 3], "1": [1, 2, 3]}


def old_folder(name: str, folder: Path, **entries: Any) -> Any:
    """Writes what transformers 4 wrote: a config that names the heads that are gone, and the weights of the others."""
    model = build(name)
    sites = discover(model)
    for site, gone in zip(sites, GONE.values(), strict=True):
        assert site.count == 4, gone
    kept = {site.name: sorted(set(range(4)) - set(gone)) for site, gone in zip(sites, GONE.values(), strict=True)}
    remove(model, Kept.from_dict(kept))
    config = {key: value for key, value in model.config.to_dict().items() if key != "kheads"}
    config |= {"pruned_heads": GONE, "architectures": [type(model).__name__], "transformers_version": "4.57.3"}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config, **entries}))
    shared: dict[int, str] = {}
    weights = {
        path: value for path, value in model.state_dict().items() if shared.setdefault(value.data_ptr(), path) == path
    }
    save_file({path: value.contiguous() for path, value in weights.items()}, folder / "model.safetensors")
    return model


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "distilbert", "gpt2", "xlm-roberta"])
def test_an_old_folder_becomes_one_of_today(name: str, tmp_path: Path) -> None:
    model = old_folder(name, tmp_path / "old")
    loaded = kheads.load(tmp_path / "old").eval()
    again = kheads.load(kheads.save(loaded, tmp_path / "new")).eval()
    assert [site.count for site in discover(loaded)] == [2, 1]
    assert loaded.config.kheads["sites"] == model.config.kheads["sites"]
    assert "pruned_heads" not in json.loads((tmp_path / "new" / "config.json").read_text())
    with torch.no_grad():
        ours, theirs, third = (outputs(one, ZOO[name].inputs()) for one in (model, loaded, again))
    assert torch.equal(ours, theirs) and torch.equal(ours, third)


def test_every_door_knows_old_folders(tmp_path: Path) -> None:
    old_folder("bert", tmp_path / "old")
    assert sources.is_pruned(tmp_path / "old")
    assert [site.count for site in discover(sources.model(tmp_path / "old"))] == [2, 1]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"0": [4]}, "layer '0' does not have"),
        ({"2": [0]}, "layer '2' does not have"),
        ({"-1": [0]}, "layer '-1' does not have"),
        ({"0": [True]}, "layer '0' does not have"),
        ({"0": "all"}, "layer '0' does not have"),
        ([0], "names heads"),
        ({"0": [0]}, "shape"),
        ({"0": [0, 1], "1": [1, 2, 3], "x": [0]}, "layer 'x' does not have"),
    ],
)
def test_heads_that_are_not_what_the_weights_lack_are_refused(entry: Any, reason: str, tmp_path: Path) -> None:
    old_folder("bert", tmp_path / "old", pruned_heads=entry)
    with pytest.raises(CheckpointError, match=reason):
        kheads.load(tmp_path / "old")


def test_types_that_nobody_has_tried_are_refused(tmp_path: Path) -> None:
    old_folder("deberta", tmp_path / "old")
    with pytest.raises(CheckpointError, match=r"pruned heads of its type 'deberta', and kheads knows .* for bert, "):
        kheads.load(tmp_path / "old")


def test_pickles_are_refused_by_name(tmp_path: Path) -> None:
    old_folder("bert", tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").rename(tmp_path / "old" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin is a pickle, .*safe_serialization=True"):
        kheads.load(tmp_path / "old")


def test_missing_weights_are_noticed(tmp_path: Path) -> None:
    """transformers alone would fill them at random."""
    from safetensors.torch import load_file

    old_folder("bert", tmp_path / "old")
    path = tmp_path / "old" / "model.safetensors"
    save_file(
        {name: value for name, value in load_file(path).items() if "layer.1.attention.self.key" not in name}, path
    )
    with pytest.raises(CheckpointError, match=r"missing bert.encoder.layer.1.attention.self.key"):
        kheads.load(tmp_path / "old")
