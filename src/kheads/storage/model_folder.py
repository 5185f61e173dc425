"""Save and load: one folder with safetensors, the config with its record of heads, and what belongs to them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers
from safetensors import SafetensorError, safe_open

from kheads.anatomy import is_gated, locate, unwrap
from kheads.storage.new_folder import new_folder
from kheads.surgery.rebuild import FORMAT, pruned_class
from kheads.surgery.removal import architecture

if TYPE_CHECKING:  # by name it would be slow to import; `transformers.X` is loaded when it is used
    from transformers import PreTrainedModel

_SECTIONS = {"sites": dict, "tensors": dict, "attributes": dict, "lists": dict, "tables": dict, "arguments": dict}
_LATER_SECTIONS = {"selected": dict, "layouts": dict, "opened": list}  # records of early versions lack them

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
# All that a model, its tokenizer and its processor are made of; never code, never pickles.
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]


class CheckpointError(ValueError):
    """A folder that cannot be loaded, with the reason in one sentence."""


def save(model: PreTrainedModel, directory: str | Path, tokenizer: Any = None, overwrite: bool = False) -> Path:
    """Writes the model to a folder that `load` reads back with identical weights.

    Args:
        model: a transformers model, pruned or not.
        directory: the folder to make; written whole or not at all.
        tokenizer: a tokenizer or processor to put beside the weights.
        overwrite: replace what is in the folder; otherwise a folder with something in it is refused.
    """
    model = _saveable(model)
    with new_folder(directory, overwrite) as folder:
        model.config.kheads = architecture(model)
        # Today's parameter names, which the record uses, not those of older checkpoints of the same architecture.
        model.save_pretrained(folder, save_original_format=False)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        _check_file(folder, model.config.kheads)
    return Path(directory)


def load(directory: str | Path, **kwargs: Any) -> PreTrainedModel:
    """Loads what `save` wrote, as the transformers class it was saved from.

    Args:
        directory: the folder, or a name on the Hugging Face hub if there is no such folder.
        **kwargs: passed to `from_pretrained`, such as `dtype`, `device_map` or `attn_implementation`.
    """
    folder = fetch(directory)
    config = _read_config(folder)
    cls = _resolve_class(folder, config)
    record = config["kheads"]
    _check_file(folder, record)
    try:
        model, report = pruned_class(cls).from_pretrained(
            folder,
            config=transformers.AutoConfig.from_pretrained(folder),
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **kwargs,
        )
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{folder} does not fit its own record of heads: {reason}") from error
    _check_loaded(folder, model, report, record)
    model.__class__ = cls  # the subclass was needed to build it, not to use it
    loaded: PreTrainedModel = model
    return loaded


def fetch(source: str | Path) -> Path:
    """The folder itself, or a copy of the hub's: weights, config and tokenizer, no code."""
    if Path(source).exists() or not _HUB_NAME.fullmatch(str(source)):
        return Path(source)
    from huggingface_hub import snapshot_download

    try:
        return Path(str(snapshot_download(str(source), allow_patterns=_HUB_FILES, ignore_patterns="*/*")))
    except (OSError, ValueError) as error:  # the hub's own errors are of these
        reason = re.split(r"\.\s|\n", str(error).strip())[0].rstrip(".")
        raise CheckpointError(
            f"There is no folder {source}, and the Hugging Face hub gave no model of that name ({reason}); check the "
            "name, or go online."
        ) from error


def _saveable(model: PreTrainedModel) -> PreTrainedModel:
    model = unwrap(model)
    if not isinstance(model, transformers.PreTrainedModel):
        raise TypeError(
            f"`save` needs a transformers model; got {type(model).__name__}. "
            "docs/your-own-model.md shows how to save others."
        )
    if is_gated(model):
        raise RuntimeError("The model is gated; `detach` its gates, or `remove` the heads, before saving it.")
    if not isinstance(getattr(transformers, type(model).__name__, None), type):
        raise ValueError(f"{type(model).__name__} is not a class of transformers, so `load` could not find it again.")
    return model


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} has no config.json; give a folder that `kheads.save` wrote.")
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); the folder is damaged.") from error
    record = config.get("kheads") if isinstance(config, dict) else None
    if not isinstance(record, dict):
        raise CheckpointError(
            f"{folder} was not written by kheads (its config records no heads); load it with transformers."
        )
    if not isinstance(record.get("format"), int) or record["format"] > FORMAT:
        raise CheckpointError(
            f"{folder} has format {record.get('format')!r}, and this kheads reads up to {FORMAT}; update kheads."
        )
    there = {**{key: kind() for key, kind in _LATER_SECTIONS.items()}, **record}
    kinds = {**_SECTIONS, **_LATER_SECTIONS, "silent": list}
    if any(not isinstance(there.get(key), kind) for key, kind in kinds.items()):
        raise CheckpointError(f"{path} has an incomplete record of heads; the folder is damaged.")
    return config


def _resolve_class(folder: Path, config: dict[str, Any]) -> type[PreTrainedModel]:
    name = (config.get("architectures") or [None])[0]
    cls = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
    if not (isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)):
        raise CheckpointError(f"{folder} was saved from {name!r}, which is not a model class of transformers.")
    return cls


def _shapes(folder: Path) -> dict[str, list[int]]:
    """Shapes of all tensors in the folder's safetensors files, from their headers."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder} has no safetensors file; kheads reads weights from nothing else.")
    shapes: dict[str, list[int]] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                shapes |= {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is truncated or not a safetensors file ({error}).") from error
    return shapes


def _check_file(folder: Path, record: dict[str, Any]) -> None:
    """Every tensor of the record is in the file with its shape, those of emptied sites too.

    Without them plain transformers would not notice that something is missing and fill it at random.
    """
    shapes = _shapes(folder)
    for name, shape in record["tensors"].items():
        if shapes.get(name) != shape:
            found = f"has shape {shapes[name]}" if name in shapes else "is missing"
            raise CheckpointError(f"{folder}: {name} {found}, but its record of heads says {shape}.")


def _check_loaded(folder: Path, model: PreTrainedModel, report: dict[str, Any], record: dict[str, Any]) -> None:
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(key):
            what = key.removesuffix("_keys")
            raise CheckpointError(f"{folder} does not fit {type(model).__name__}: {what} {sorted(report[key])[0]}.")
    for found in locate(model):
        state = record["sites"].get(found.site.name)
        if state is None or [len(state["query"]), len(state["kv"])] != [found.heads, found.kv]:
            raise CheckpointError(f"{folder}: site {found.site.name!r} does not have the heads that its record lists.")
