"""Tokenizers and image processors: where they come from, and whether they fit the model beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers
from torch import nn

from kheads.storage.onnx_model import OnnxModel
from kheads.storage.sources import NO_CODE, SourceError, resolve

FEWEST_WORDS = 2


def image_processor(source: str | Path) -> Any:
    """Loads the image processor beside a model."""
    auto: Any = transformers.AutoImageProcessor
    try:
        return auto.from_pretrained(resolve(source), **NO_CODE)
    except Exception as error:  # as for models
        raise SourceError(
            f"{source} has no image processor that transformers can load; put its preprocessor_config.json beside "
            "the model."
        ) from error


def tokenizer(source: str | Path) -> Any:
    """Loads the tokenizer beside a model; the only place where one is loaded.

    Where a folder has none, transformers makes up one that knows no words, and every text is the same to the model.
    """
    try:
        found = transformers.AutoTokenizer.from_pretrained(resolve(source), **NO_CODE)
        words = _words_of(found)
    except Exception as error:  # as for models
        raise SourceError(
            f"{source} has no tokenizer that transformers can load; put its files beside the model."
        ) from error
    if len(words) < FEWEST_WORDS:
        raise SourceError(f"{source} has no tokenizer, or one that knows no words; put its files beside the model.")
    if isinstance(found.model_max_length, bool) or not isinstance(found.model_max_length, (int, float)):
        raise SourceError(f"{source} has a tokenizer_config.json whose `model_max_length` is not a number; correct it.")
    return found


def fitting_tokenizer(source: str | Path, model: Any) -> Any:
    """Loads the tokenizer beside a model that is loaded already; all its words must have an embedding.

    Tokens that were added to it may lie beyond, as long as no text has them.
    """
    found = tokenizer(source)
    check_embeddings(source, model, found)
    return found


def check_embeddings(source: str | Path, model: Any, tokenizer: Any) -> None:
    """Raises if a word of the tokenizer lies beyond the model's table of embeddings."""
    largest, rows = max(_words_of(tokenizer).values()), embeddings_of(model)
    if rows is not None and largest >= rows:
        raise SourceError(
            f"The tokenizer of {source} has tokens up to {largest}, and the model knows {rows}; put the model's own "
            "tokenizer beside it."
        )


def embeddings_of(model: Any) -> int | None:
    """How many tokens a model knows; None where it has no table of them."""
    try:
        return int(_with_parts(model).get_input_embeddings().num_embeddings)
    except (AttributeError, NotImplementedError):  # transformers raises this for models without words
        return None


def positions_of(model: Any) -> int | None:
    """How many positions a model has a table for; None where it goes without one, and takes texts of any length."""
    most = getattr(model.config, "max_position_embeddings", None)
    tables = (part for part in _with_parts(model).modules() if isinstance(part, nn.Embedding))
    return most if any(table.num_embeddings == most for table in tables) else None


def _with_parts(model: Any) -> Any:
    """The model, or what says of an ONNX file how large its parts are."""
    return model.skeleton if isinstance(model, OnnxModel) else model


def _words_of(tokenizer: Any) -> dict[str, int]:
    """The vocabulary without special and added tokens, and without the mark for a space."""
    apart = {*tokenizer.all_special_tokens, *tokenizer.added_tokens_encoder, "\u2581", "\u0120"}
    return {word: index for word, index in tokenizer.get_vocab().items() if word not in apart}
