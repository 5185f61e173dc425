"""Inputs that are made up to trace a model and to try its files."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kheads.storage.export.target import ExportError

SPARE = 12  # places that some models do not use, and those of the tokens that are written


def tokens(model: Any, batch: int, length: int, seed: int = 0) -> Tensor:
    """Random tokens from the upper half of the vocabulary, where no special tokens are."""
    size = model.get_input_embeddings().num_embeddings
    return torch.randint(size // 2, size, (batch, length), generator=torch.Generator().manual_seed(seed))


def longest(model: Any, wanted: int) -> int:
    """A length up to the wanted one that the model has positions for."""
    config = model.config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "max_seq_len")
    places = next((found for name in names if (found := getattr(config, name, None))), None)
    return min(wanted, places - SPARE) if places and places > SPARE else wanted


def padded(model: Any, ids: Tensor, left: bool) -> dict[str, Tensor]:
    """The tokens, of which every example but the first is shorter than the one before, and a mask that says so."""
    config = model.config.get_text_config()
    fill = getattr(config, "pad_token_id", None)
    mask = torch.ones_like(ids)
    for row in range(1, len(ids)):
        gap = max(1, row * ids.shape[1] // (len(ids) + 1))
        mask[row, slice(gap) if left else slice(ids.shape[1] - gap, None)] = 0
    return {"input_ids": ids.masked_fill(mask == 0, fill or 0), "attention_mask": mask}


def fitting(given: Any, names: tuple[str, ...], model: Any) -> dict[str, Tensor]:
    """The user's batch as the files take it; a mask and types that it lacks are those of whole single sentences."""
    unknown = sorted(set(given) - set(names) - {"labels"})
    if names[0] not in given or unknown:
        what = f"has {', '.join(unknown)}" if unknown else f"lacks {names[0]}"
        raise ExportError(
            f"`inputs` {what}; the ONNX file of {type(model).__name__} takes {', '.join(names)}. Give these, or use "
            '`to="hub"`.'
        )
    absent = {"attention_mask": torch.ones_like, "token_type_ids": torch.zeros_like}
    return {name: given[name] if name in given else absent[name](given[names[0]]) for name in names}


def size_of(batch: Tensor, note: str = "") -> str:
    """Such as 3 x 37."""
    return f"{len(batch)} x {batch.shape[1]}{note}" if batch.dim() == 2 else f"batch {len(batch)}"
