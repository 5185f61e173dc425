"""Save and load: one folder with safetensors, the config with its record of heads, and what belongs to them."""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers
from torch import Tensor

from kheads.anatomy import is_gated, unwrap
from kheads.storage.blueprint import build_blueprint, check_config, check_sizes, settings_of
from kheads.storage.contents import CheckpointError, own_file, read_json, write_json
from kheads.storage.embedder import Embedder
from kheads.storage.new_folder import new_folder
from kheads.storage.old_heads import ENTRY as PRUNED_BEFORE
from kheads.storage.old_heads import cut_old, is_old
from kheads.storage.sentence_folder import MODULES, write_sentence_folder
from kheads.storage.sentence_transformer import is_sentence_transformer, taken_apart
from kheads.storage.weights import Header, checksum, not_finite, read_headers, read_tensors, weight_files
from kheads.surgery.rebuild import FORMAT, pruned_class
from kheads.surgery.removal import architecture
from kheads.surgery.replay import LATER, replay

if TYPE_CHECKING:  # by name it would be slow to import; `transformers.X` is loaded when it is used
    from transformers import PretrainedConfig, PreTrainedModel

CONFIG = "config.json"
GENERATION = "generation_config.json"
_SECTIONS = {"sites": dict, "tensors": dict, "attributes": dict, "lists": dict, "tables": dict, "arguments": dict}
# Said by an export for servers that read no record of heads; it follows from the record, and is none of the config's.
PER_LAYER = ("per_layer_config", "allow_global_per_layer_attribute_access")
_NOT_SEALED = ("auto_map", "transformers_version", "_name_or_path")  # change nothing that is computed

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
# All that a model, its tokenizer and its processor are made of; never code, never pickles.
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]


def save(
    model: PreTrainedModel | Any,
    directory: str | Path,
    tokenizer: Any = None,
    overwrite: bool = False,
    embedder: Embedder | None = None,
) -> Path:
    """Writes the model to a folder that `load` reads back with identical weights.

    Args:
        model: a transformers model, pruned or not; or a SentenceTransformer, whose tokenizer and pooling go along. Its
            own `save` writes a folder that it cannot load once heads are gone.
        directory: the folder to make; written whole or not at all.
        tokenizer: a tokenizer or processor to put beside the weights.
        overwrite: replace a folder that kheads made; any other with something in it is refused.
        embedder: how the model gives embeddings, which the files of sentence-transformers then say.
    """
    if is_sentence_transformer(model):
        whole = taken_apart(model)
        model, tokenizer, embedder = whole.model, tokenizer or whole.tokenizer, embedder or whole.embedder
    model = _saveable(model)
    with new_folder(directory, overwrite) as folder:
        write_model(model, folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        if embedder is not None:
            write_sentence_folder(embedder, model.config.hidden_size, folder)
    return Path(directory)


def write_model(model: PreTrainedModel, folder: Path) -> None:
    """Writes the weights, the config and the generation config, and seals them with a checksum."""
    model.config.kheads = architecture(model)
    # Today's parameter names, which the record uses, not those of older checkpoints of the same architecture.
    model.save_pretrained(folder, save_original_format=False)
    files = weight_files(folder)
    _check_file(folder, read_headers(files), model.config.kheads)
    config = read_json(folder / CONFIG)
    config["kheads"]["checksum"] = {"weights": checksum(read_tensors(files)), **_sums(folder, config)}
    write_json(folder / CONFIG, config)


def load(directory: str | Path, verify: bool = True, **kwargs: Any) -> PreTrainedModel:
    """Loads what `save` wrote, as the transformers class it was saved from. No code of the folder is run.

    Folders whose heads transformers 4 has pruned (`pruned_heads` in config.json) are read, too; `save` writes them in
    today's form.

    Args:
        directory: the folder, or a name on the Hugging Face hub if there is no such folder.
        verify: compare the weights and the configs with the checksums that `save` wrote, if it did.
        **kwargs: passed to `from_pretrained`, such as `dtype`, `device_map` or `attn_implementation`.
    """
    folder = fetch(directory)
    config = _read_config(folder)
    cls = _resolve_class(folder, config)
    files = weight_files(folder)
    headers = read_headers(files)
    settings = _planned(folder, cls, config, headers)
    tensors = read_tensors(files)
    with ThreadPoolExecutor(1) as aside:  # most of the time that a checksum takes, others are waited for
        verdict = aside.submit(_verdict, folder, config, tensors) if verify else None
        model = _filled(folder, cls, settings, tensors, kwargs)
        if verdict and (reason := verdict.result()):
            raise CheckpointError(
                f"{folder}: {reason}; get the folder again, or pass `verify=False` to load it as it is."
            )
    model.__class__ = cls  # the subclass was needed to build it, not to use it
    return model


def fetch(source: str | Path) -> Path:
    """The folder itself, or a copy of the hub's: weights, config and tokenizer, no code."""
    if Path(source).exists() or not _HUB_NAME.fullmatch(str(source)):
        return Path(source)
    from huggingface_hub import snapshot_download

    try:
        folder = Path(str(snapshot_download(str(source), allow_patterns=_HUB_FILES, ignore_patterns="*/*")))
        if (folder / MODULES).is_file():  # of sentence-transformers, which keeps its pooling in a folder of its own
            snapshot_download(str(source), allow_patterns="[0-9]_*/config.json")
        return folder
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
    if name := not_finite(model.state_dict()):
        raise ValueError(f"{name} has numbers that are not finite (NaN or infinity), so the model is not saved.")
    return model


def _read_config(folder: Path) -> dict[str, Any]:
    path = own_file(folder, CONFIG)
    if path is None:
        raise CheckpointError(f"{folder} has no config.json; give a folder that `kheads.save` wrote.")
    config = {key: value for key, value in read_json(path).items() if key not in PER_LAYER}
    if is_old(config):
        return config
    record = config.get("kheads")
    if not isinstance(record, dict):
        raise CheckpointError(
            f"{folder} was not written by kheads (its config records no heads); load it with transformers."
        )
    if not isinstance(record.get("format"), int) or record["format"] > FORMAT:
        raise CheckpointError(
            f"{folder} has format {record.get('format')!r}, and this kheads reads up to {FORMAT}; update kheads."
        )
    there = {**{key: kind() for key, kind in LATER.items()}, **record}
    kinds = {**_SECTIONS, **LATER, "silent": list}
    if any(not isinstance(there.get(key), kind) for key, kind in kinds.items()):
        raise CheckpointError(f"{path} has an incomplete record of heads; the folder is damaged.")
    return config


def _resolve_class(folder: Path, config: dict[str, Any]) -> type[PreTrainedModel]:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    cls = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
    if not (isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)):
        raise CheckpointError(f"{folder} was saved from {name!r}, which is not a model class of transformers.")
    return cls


def _planned(
    folder: Path, cls: type[PreTrainedModel], config: dict[str, Any], headers: dict[str, Header]
) -> PretrainedConfig:
    """The config with the record that its heads give, after the whole plan was tried without memory."""
    record = {key: value for key, value in config.get("kheads", {}).items() if key != "checksum"}
    try:
        check_config(config, headers)
        settings = settings_of(cls, {key: value for key, value in config.items() if key != PRUNED_BEFORE})
        blueprint = build_blueprint(cls, settings, len(headers))
        settings.kheads = replay(blueprint, record) if record else cut_old(blueprint, config)
        check_sizes(blueprint, headers)
    except Exception as error:  # what a damaged config breaks in transformers may raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        what = "does not fit its own record of heads" if record else "cannot be loaded as an old folder"
        raise CheckpointError(f"{folder} {what}: {reason}.") from error
    if record:  # transformers 4 had other names for some parts; whether all are there, loading tells
        _check_file(folder, headers, settings.kheads)
    return settings


def _filled(
    folder: Path, cls: type[PreTrainedModel], settings: PretrainedConfig, tensors: dict[str, Tensor], options: Any
) -> PreTrainedModel:
    """The model with its weights. transformers gets these alone and never sees the folder, nor what else is in it."""
    path = own_file(folder, GENERATION)
    try:
        if path is not None:
            options.setdefault("generation_config", transformers.GenerationConfig.from_dict(read_json(path)))
        model, report = pruned_class(cls).from_pretrained(
            None, config=settings, state_dict=tensors, output_loading_info=True, **options
        )
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{folder} does not fit its own record of heads: {reason}") from error
    model.config.name_or_path = str(folder)
    _check_loaded(folder, model, report)
    filled: PreTrainedModel = model
    return filled


def _sums(folder: Path, config: dict[str, Any]) -> dict[str, str | None]:
    """Checksums of the configs: what the model computes follows from them as much as from its weights."""
    record = {key: value for key, value in config["kheads"].items() if key != "checksum"}
    generation = own_file(folder, GENERATION)
    return {
        "config": _sum({**config, "kheads": record}),
        "generation": _sum(read_json(generation)) if generation else None,
    }


def _sum(config: dict[str, Any]) -> str:
    sealed = {key: value for key, value in config.items() if key not in _NOT_SEALED}
    return hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()


def _verdict(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> str | None:
    """What is wrong with the content, if anything. Folders of earlier versions have no checksum."""
    if "checksum" not in config.get("kheads", {}):
        name = not_finite(tensors)
        return f"{name} has numbers that are not finite" if name else None
    sealed = config["kheads"]["checksum"]
    found = {"weights": checksum(tensors), **_sums(folder, config)}
    for what, value in found.items():
        if not isinstance(sealed, dict) or sealed.get(what) != value:
            said = {"weights": "the weights are", "config": f"{CONFIG} is", "generation": f"{GENERATION} is"}
            return f"{said[what]} not what was saved (the checksum differs)"
    return None


def _check_file(folder: Path, headers: dict[str, Header], record: dict[str, Any]) -> None:
    """Every tensor of the record is in the file with its shape, those of emptied sites too.

    Without them plain transformers would not notice that something is missing and fill it at random.
    """
    for name, shape in record["tensors"].items():
        if name not in headers or headers[name].shape != shape:
            found = f"has shape {headers[name].shape}" if name in headers else "is missing"
            raise CheckpointError(f"{folder}: {name} {found}, but its record of heads says {shape}.")


def _check_loaded(folder: Path, model: PreTrainedModel, report: dict[str, Any]) -> None:
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(key):
            what = key.removesuffix("_keys")
            raise CheckpointError(f"{folder} does not fit {type(model).__name__}: {what} {sorted(report[key])[0]}.")
    untyped: Any = model
    for path in untyped.config.kheads["silent"]:
        weight = untyped.get_submodule(path).weight
        if not weight.is_meta and weight.any():
            raise CheckpointError(f"{folder}: {path} has weights, but its record says that it is silent.")
