"""The files that make a model folder one of sentence-transformers: read and written as data, without that library.

A folder names its modules by class, and the library imports what is named. So a folder is taken only if it names the
library's own Transformer, Pooling and Normalize, and what kheads writes is made anew from what it understood.

Both layouts are read: `pooling_mode_mean_tokens: true` and the like, and `pooling_mode: mean`, which 6.x writes. The
first one is written, because every version reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kheads.storage.contents import CheckpointError, own_file, read_json
from kheads.storage.embedder import POOLINGS, SIMILARITIES, Embedder

MODULES = "modules.json"
TRANSFORMER = "sentence_bert_config.json"
SETTINGS = "config_sentence_transformers.json"
POOLING, NORMALISE = "1_Pooling", "2_Normalize"
WRITTEN = (MODULES, TRANSFORMER, SETTINGS, POOLING, NORMALISE)
# Earlier versions called the first module's file after the model's type.
TRANSFORMERS = (
    TRANSFORMER,
    *(f"sentence_{kind}_config.json" for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta")),
    "sentence_xlnet_config.json",
)
LARGEST = 2**20  # bytes of modules.json; it has a few lines
OWN = re.compile(r"sentence_transformers(\.\w+)*\.(?P<kind>\w+)")
ORDERS = (("Transformer", "Pooling"), ("Transformer", "Pooling", "Normalize"))
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# What a first module may say, besides its length; anything else there would change its vectors.
PLAIN: dict[str, tuple[Any, ...]] = {
    "transformer_task": (None, "feature-extraction"),
    "module_output_name": (None, "token_embeddings"),
    "modality_config": (None, {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}),
    **{f"{what}_{how}": (None, {}) for what in ("model", "tokenizer", "config") for how in ("args", "kwargs")},
    "processor_kwargs": (None, {}),
}


@dataclass(frozen=True)
class SentenceFolder:
    """What a sentence-transformers folder says.

    Attributes:
        embedder: how token vectors become embeddings.
        place: where in the folder the transformer lies; empty for the folder itself.
    """

    embedder: Embedder
    place: str = ""


def read_sentence_folder(folder: Path) -> SentenceFolder | None:
    """What the folder says; None if it is not one of sentence-transformers.

    Raises:
        CheckpointError: it is one that kheads cannot follow, with the reason in one sentence.
    """
    path = own_file(folder, MODULES)
    if path is None:
        return None
    modules = _modules(path)
    kinds = tuple(kind for kind, _ in modules)
    if kinds not in ORDERS:
        raise CheckpointError(
            f"{path} lists the modules {', '.join(kinds) or 'of none'}; kheads follows Transformer, Pooling and, if "
            "it is there, Normalize. Take the others out, or prune the transformer alone."
        )
    (_, place), (_, pooling) = modules[:2]
    if len(modules) > 2:
        _check_normalise(folder, modules[2][1])
    settings = _json(folder, SETTINGS)
    prompts = _prompts(folder, settings)
    first = _first(folder, place)
    try:
        embedder = Embedder(
            pooling=_pooling(folder, pooling, any(prompts.values())),
            normalise=len(modules) > 2,
            max_length=first.get("max_seq_length"),
            lower=first.get("do_lower_case") or False,
            prompts=prompts,
            default_prompt=settings.get("default_prompt_name"),
            similarity=_similarity(folder, settings),
        )
    except ValueError as error:
        raise CheckpointError(f"{folder} says what kheads cannot follow: {error}") from error
    return SentenceFolder(embedder, place)


def write_sentence_folder(embedder: Embedder, width: int, folder: Path) -> None:
    """Writes the files beside a model whose token vectors have this width."""
    kinds = ("Transformer", "Pooling", "Normalize") if embedder.normalise else ("Transformer", "Pooling")
    places = dict(zip(("Transformer", "Pooling", "Normalize"), ("", POOLING, NORMALISE), strict=True))
    modules = [
        {"idx": number, "name": str(number), "path": places[kind], "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    pooling = {name: mode == embedder.pooling for name, mode in MODES.items()}
    first = {"max_seq_length": embedder.max_length, "do_lower_case": embedder.lower}
    _write(folder / MODULES, modules)
    _write(folder / TRANSFORMER, first)
    _write(folder / POOLING / "config.json", {"word_embedding_dimension": width, **pooling, "include_prompt": True})
    if embedder.normalise:  # a folder without files is lost in many stores
        _write(folder / NORMALISE / "config.json", {})
    settings = {
        "prompts": dict(embedder.prompts),
        "default_prompt_name": embedder.default_prompt,
        **({"similarity_fn_name": embedder.similarity} if embedder.similarity else {}),
    }
    _write(folder / SETTINGS, settings)


def _modules(path: Path) -> list[tuple[str, str]]:
    """The kind and the place of each module, if all of them are the library's own."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= LARGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(module, dict) for module in found):
        raise CheckpointError(f"{path} is not a list of modules; the folder is damaged.")
    return [(_kind(path, module.get("type")), _place(path, module.get("path"))) for module in found]


def _kind(path: Path, name: Any) -> str:
    own = OWN.fullmatch(name) if isinstance(name, str) else None
    if own is None:
        raise CheckpointError(
            f"{path} names the code {str(name)[:80]!r}, which is not sentence-transformers' own; it is not run."
        )
    return own["kind"]


def _place(path: Path, name: Any) -> str:
    inside = PurePosixPath(name) if isinstance(name, str) else None
    if inside is None or inside.is_absolute() or ".." in inside.parts or "\\" in str(name):
        raise CheckpointError(f"{path} names the place {str(name)[:80]!r}, which is not in the folder; it is damaged.")
    return "" if str(inside) == "." else str(inside)


def _json(folder: Path, name: str) -> dict[str, Any]:
    path = own_file(folder, name)
    return {} if path is None else read_json(path)


def _pooling(folder: Path, place: str, prompted: bool) -> str:
    name = f"{place}/config.json"
    config = _json(folder, name)
    if not config:
        raise CheckpointError(f"{folder / name} is missing, which says how token vectors are pooled.")
    found = config.get("pooling_mode", [mode for key, mode in MODES.items() if config.get(key)] or "mean")
    modes = [found] if isinstance(found, str) else found
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS:
        said = " and ".join(map(str, modes)) if isinstance(modes, list) else str(modes)
        raise CheckpointError(f"{folder / name} asks for {said[:80]} pooling; kheads follows {' or '.join(POOLINGS)}.")
    if prompted and not config.get("include_prompt", True):
        raise CheckpointError(f"{folder / name} leaves prompts out of the pooling, which kheads does not follow.")
    return str(modes[0])


def _check_normalise(folder: Path, place: str) -> None:
    config = _json(folder, f"{place}/config.json")
    for name in ("module_input_name", "module_output_name"):
        if config.get(name, "sentence_embedding") != "sentence_embedding":
            raise CheckpointError(f"{folder / place} normalises {str(config[name])[:80]!r}, not the embedding.")


def _first(folder: Path, place: str) -> dict[str, Any]:
    """The settings of the transformer."""
    names = [f"{place}/{name}" if place else name for name in TRANSFORMERS]
    name = next((name for name in names if own_file(folder, name) is not None), names[0])
    found = _json(folder, name)
    for key, allowed in PLAIN.items():
        if found.get(key) not in allowed:
            raise CheckpointError(f"{folder / name} sets `{key}`, which kheads does not follow; take it out.")
    return found


def _prompts(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    found = settings.get("prompts") or {}
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise CheckpointError(f"{folder / SETTINGS} has prompts that are not texts; the folder is damaged.")
    return found


def _similarity(folder: Path, settings: Mapping[str, Any]) -> str | None:
    found = settings.get("similarity_fn_name")
    if found is not None and found not in SIMILARITIES:
        raise CheckpointError(
            f"{folder / SETTINGS} names the similarity {str(found)[:80]!r}, which kheads does not know."
        )
    return found


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
