"""The inputs on which an export is compared with its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from kheads.storage.export.target import ExportError
from kheads.storage.probe import probe_inputs, probe_outputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def given_inputs(model: PreTrainedModel, inputs: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
    """The user's batch, or one made up that the model takes."""
    if inputs is not None:
        return inputs
    try:
        made = probe_inputs(model)
        probe_outputs(model, made)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ExportError(
            f"kheads cannot make up inputs for {type(model).__name__}; pass a batch as `inputs` to `kheads.export`."
        ) from error
    return made
