"""Folders damaged at random: what a case does to a folder follows from its number alone."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import kheads
from kheads import Kept, discover, remove
from zoo import ZOO, outputs

# Plain, one projection with a silent head, shared keys, tables of positions, three kinds of attention, a bias made
# elsewhere, norms over all heads, torch's own attention. Feed-forwards: a whole layer, one with a silent neuron, gated.
TYPES = ("bert", "gpt2", "llama", "t5", "marian", "bloom", "olmo2", "siglip2")
WEIGHTS = "model.safetensors"
HOSTILE: tuple[Any, ...] = (None, True, -1, 0, 1, 7, 10**12, 0.5, "", "x", [], [0], [[]], {}, {"x": 1}, float("nan"))


@dataclass(frozen=True)
class Saved:
    """A pruned model on disk, another one of its type, and what the first computes."""

    folder: Path
    other: Path
    given: dict[str, Tensor]
    expected: Tensor


def save_all(root: Path) -> dict[str, Saved]:
    """Saves two models of every type, with uneven heads and neurons, the first and the last site emptied."""
    return {name: _save(name, root / name) for name in TYPES}


def _save(name: str, root: Path) -> Saved:
    entry = ZOO[name]
    models = [entry.build(seed) for seed in (0, 1)]
    for number, model in enumerate(models):
        sites = discover(model, parts="all")
        blocks = {site.name: list(range(site.count))[number::2] for site in sites[1:-1]}
        kheads.save(remove(model, Kept.from_dict(blocks)), root / str(number))
    with torch.no_grad():
        return Saved(root / "0", root / "1", entry.inputs(), outputs(models[0], entry.inputs()))


def outcome(folder: Path, saved: Saved) -> str:
    """What loading the folder and asking the model ends in: "same", "refused", or what went wrong."""
    try:
        model = kheads.load(folder).eval()
    except kheads.CheckpointError:
        return "refused"
    except Exception as error:  # what it is called is what the test is about
        return f"{type(error).__name__}: {str(error)[:200]}"
    try:
        with torch.no_grad():
            return "same" if torch.equal(outputs(model, saved.given), saved.expected) else "other logits"
    except Exception as error:
        return f"loads, and fails with {type(error).__name__}: {str(error)[:200]}"


def damaged(saved: dict[str, Saved], case: int, folder: Path) -> tuple[Saved, str]:
    """Makes `folder` a damaged copy of a saved one; returns what it was and what was done."""
    random = Random(case)
    name, damage = random.choice(TYPES), random.choice(DAMAGES)
    shutil.copytree(saved[name].folder, folder)
    return saved[name], f"{name}: {damage(random, folder, saved[name])}"


def edit_config(folder: Path, change: Callable[[Any], object]) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested dicts and lists, the inner ones too."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in children:
        yield (*path, key)
        yield from places(inner, (*path, key))


def at(root: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        root = root[key]
    return root


def _truncate(random: Random, folder: Path, saved: Saved) -> str:
    file = random.choice(_files(folder))
    content = file.read_bytes()
    file.write_bytes(content[: random.randrange(len(content))])
    return f"{file.name} truncated to {file.stat().st_size}"


def _flip(file: Path, place: int, bit: int) -> str:
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)
    return f"bit {bit} of byte {place} of {file.name} flipped"


def _flip_json(random: Random, folder: Path, saved: Saved) -> str:
    file = random.choice([file for file in _files(folder) if file.suffix == ".json"])
    return _flip(file, random.randrange(file.stat().st_size), random.randrange(8))


def _flip_header(random: Random, folder: Path, saved: Saved) -> str:
    return _flip(folder / WEIGHTS, random.randrange(_start(folder)), random.randrange(8))


def _flip_body(random: Random, folder: Path, saved: Saved) -> str:
    file = folder / WEIGHTS
    return _flip(file, random.randrange(_start(folder), file.stat().st_size), random.randrange(8))


def _drop(random: Random, folder: Path, saved: Saved) -> str:
    file = random.choice(_files(folder))
    file.unlink()
    return f"{file.name} missing"


def _swap(random: Random, folder: Path, saved: Saved) -> str:
    file = random.choice(_files(folder))
    source = random.choice([saved.other / file.name, *_files(folder)])
    shutil.copyfile(source, folder / "new")
    (folder / "new").replace(file)
    return f"{file.name} replaced by {source.parent.name}/{source.name}"


def _edit(random: Random, folder: Path, section: str | None) -> str:
    """Replaces, removes or copies a value of the config, or of the record in it."""
    done = []

    def change(config: Any) -> None:
        root = config[section] if section else {key: value for key, value in config.items() if key != "kheads"}
        path = random.choice(list(places(root)))
        owner = at(config[section] if section else config, path[:-1])
        if random.random() < 0.2:
            done.append(f"{section or 'config'} {path} removed")
            del owner[path[-1]]
            return
        values = [*HOSTILE, at(root, random.choice(list(places(root))))]
        owner[path[-1]] = value = copy.deepcopy(random.choice(values))
        done.append(f"{section or 'config'} {path} = {str(value)[:60]}")

    edit_config(folder, change)
    return done[0]


def _edit_config(random: Random, folder: Path, saved: Saved) -> str:
    return _edit(random, folder, None)


def _edit_record(random: Random, folder: Path, saved: Saved) -> str:
    return _edit(random, folder, "kheads")


def _edit_weights(random: Random, folder: Path, saved: Saved) -> str:
    tensors = load_file(folder / WEIGHTS)
    name = random.choice(sorted(tensors))
    what = random.choice(["nan", "inf", "half", "double", "missing", "longer", "transposed", "renamed", "rolled"])
    tensor = tensors[name]
    if what in ("missing", "renamed"):
        del tensors[name]
    if what == "renamed":
        tensors[f"{name}x"] = tensor
    changed = {
        "nan": lambda: torch.full_like(tensor, float("nan")),
        "inf": lambda: torch.full_like(tensor, float("inf")),
        "half": tensor.half,
        "double": tensor.double,
        "longer": lambda: torch.cat([tensor, tensor]),
        "transposed": lambda: tensor.movedim(0, -1).contiguous(),
        "rolled": lambda: tensor.roll(1),
    }
    if what in changed:
        tensors[name] = changed[what]()
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    return f"{name} {what}"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def _start(folder: Path) -> int:
    """Where the numbers begin in a safetensors file."""
    with (folder / WEIGHTS).open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


DAMAGES = (
    _truncate,
    _flip_json,
    _flip_header,
    _flip_body,
    _drop,
    _swap,
    _edit_config,
    _edit_record,
    _edit_record,
    _edit_weights,
)
