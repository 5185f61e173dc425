"""A rehearsal: an exported folder is loaded in a new process, as its user will load it, and compared with the model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kheads.storage.export.target import ExportError, run_alone
from kheads.storage.export.trial import given_inputs
from kheads.storage.probe import probe_inputs, probe_outputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Batch = Mapping[str, Tensor]

TOLERANCE = 1e-5
SHAPES = ((3, 11), (1, 5))  # batch and length, besides those of the first batch
PADDING = 3  # tokens of the last text that are padding

# Runs where kheads cannot be imported, so the folder has to stand on its own.
CHILD = """
import glob, os, torch, transformers
from safetensors.torch import load_file, save_file
folder, cls, trusted, scratch = sys.argv[1:]
code = {"trust_remote_code": True} if trusted == "trusted" else {}
model = getattr(transformers, cls).from_pretrained(folder, local_files_only=True, **code).eval()
for path in glob.glob(os.path.join(scratch, "inputs-*")):
    given = load_file(path)
    torch.manual_seed(0)
    with torch.no_grad():
        result = {"forward": model(**given)[0].float()}
        if model.can_generate():
            prompt = {name: value for name, value in given.items() if not name.startswith("decoder_")}
            result["generate"] = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    save_file({name: value.contiguous() for name, value in result.items()}, path.replace("inputs-", "outputs-"))
"""


def batches(model: PreTrainedModel, inputs: Batch | None) -> list[Batch]:
    """What to compare on: the user's batch and its first example alone, or several that are made up.

    Those differ in number and length, and one has padding.
    """
    first = given_inputs(model, inputs)
    if inputs is not None:
        return [first, {name: value[:1] for name, value in first.items()}]
    return [first, *(_padded(probe_inputs(model, batch, length)) for batch, length in SHAPES)]


def _padded(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with padding on the left of its last text, where generation needs it; a single one stays whole."""
    mask = batch.get("attention_mask")
    if mask is not None and len(mask) > 1:
        mask[-1, :PADDING] = 0
    return batch


def rehearse(model: PreTrainedModel, folder: Path, cls: str, trusted: bool, given: Sequence[Batch]) -> str:
    """Compares what the folder gives in a new process with what the model gives.

    Args:
        model: the pruned model.
        folder: what was exported.
        cls: the class of transformers that loads it.
        trusted: whether it is loaded with `trust_remote_code`.
        given: the batches to compare on.

    Returns:
        What was compared, and how far apart it was.
    """
    with tempfile.TemporaryDirectory() as scratch:
        for place, batch in enumerate(given):
            inputs = {name: value.contiguous() for name, value in batch.items()}
            save_file(inputs, Path(scratch) / f"inputs-{place}.safetensors")
        arguments = [str(folder.resolve()), cls, "trusted" if trusted else "", scratch]
        run_alone(CHILD, arguments, "The exported folder does not load", {"HF_MODULES_CACHE": scratch})
        found = [load_file(Path(scratch) / f"outputs-{place}.safetensors") for place in range(len(given))]
    pairs = zip(given, found, strict=True)
    apart = max(compare(probe_outputs(model, dict(batch)), theirs) for batch, theirs in pairs)
    return _told(apart, given, "generate" in found[0])


def compare(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """How far apart the outputs are.

    Raises:
        ExportError: they are too far apart, or other tokens are generated.
    """
    difference = (ours["forward"] - theirs["forward"]).abs().max().item()
    if not torch.allclose(ours["forward"], theirs["forward"], rtol=TOLERANCE, atol=TOLERANCE):
        raise ExportError(f"The exported model's outputs differ from the model's by {difference:.1e}.")
    if "generate" in ours and not torch.equal(ours["generate"], theirs["generate"]):
        raise ExportError("The exported model generates other tokens than the model.")
    return difference


def _told(apart: float, given: Sequence[Batch], generates: bool) -> str:
    shapes = ", ".join("x".join(map(str, next(iter(batch.values())).shape)) for batch in given)
    padded = any("attention_mask" in batch and not batch["attention_mask"].all() for batch in given)
    tokens = ", and it generates the same tokens" if generates else ""
    return (
        f"on inputs of {shapes}{', with padding,' if padded else ''} its outputs differ by {apart:.1e} at most{tokens}"
    )
