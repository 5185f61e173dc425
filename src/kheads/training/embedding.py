"""Training an encoder whose outputs are embeddings: it learns to give the original's, and no labels are needed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Trainer

from kheads.anatomy import unwrap
from kheads.storage.embedder import Embedder
from kheads.training.distillation import example_keys
from kheads.training.trainer import GatedTrainerMixin

MOST_KEPT = 2**28  # numbers; a gigabyte

# What an evaluation knows of a text besides its tokens: which pair it belongs to, and how alike people find the two.
PAIR, SCORE = "pair", "score"


def cosine(own: Tensor, theirs: Tensor) -> Tensor:
    """One minus the mean cosine of each embedding, (B, W), and the original's."""
    return 1 - functional.cosine_similarity(own, theirs, dim=-1).mean()


def mean_square(own: Tensor, theirs: Tensor) -> Tensor:
    """The mean squared distance of each embedding, (B, W), and the original's."""
    return (own - theirs).square().sum(-1).mean()


def similarity(own: Tensor, theirs: Tensor) -> Tensor:
    """The mean squared difference of the cosines of all pairs in a batch, (B, W), and what the original says of them.

    Leaves open where the embeddings lie: any rotation of them has the same cosines.
    """
    ours, original = (functional.normalize(found, dim=-1) for found in (own, theirs))
    apart = ~torch.eye(len(own), dtype=torch.bool, device=own.device)
    difference = (ours @ ours.T - original @ original.T)[apart]
    return difference.square().sum() / max(len(difference), 1)


def both(own: Tensor, theirs: Tensor) -> Tensor:
    """Where the embeddings lie, and how alike those of a batch are."""
    return cosine(own, theirs) + similarity(own, theirs)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": cosine,
    "mse": mean_square,
    "similarity": similarity,
    "both": both,
}


class Original:
    """The model as it was given: its embeddings are what a smaller one is to give.

    What it says of a text is kept, so a second epoch and a further evaluation compute nothing anew.

    Args:
        model: a bare encoder. The original is a copy, and never changes.
        embedder: how it gives embeddings.
    """

    def __init__(self, model: nn.Module, embedder: Embedder):
        self.model: Any = copy.deepcopy(unwrap(model)).eval().requires_grad_(False)
        self.embedder = embedder
        self._kept: dict[bytes, np.ndarray[Any, Any]] = {}

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The embeddings of a batch of tokens, (B, W), of which only new ones are computed."""
        keys = example_keys(inputs)
        new = [index for index, key in enumerate(keys) if key not in self._kept]
        if new:
            found = self._ask({name: value[new] for name, value in inputs.items()})
            if len(self._kept) * found.shape[1] > MOST_KEPT:
                self._kept = {key: self._kept[key] for key in keys if key in self._kept}
            self._kept.update(zip((keys[index] for index in new), found, strict=True))
        device = next(iter(inputs.values())).device
        return torch.from_numpy(np.stack([self._kept[key] for key in keys])).to(device)

    @torch.no_grad()
    def _ask(self, inputs: Mapping[str, Tensor]) -> np.ndarray[Any, Any]:
        device = next(iter(inputs.values())).device
        if next(self.model.parameters()).device != device:
            self.model.to(device)
        return self.embedder.of(self.model, inputs).float().cpu().numpy()


class _ByEmbeddings(Trainer):
    """Trainer whose loss is the distance from the original's embeddings.

    Args:
        *args: as for Trainer.
        embedder: how the model gives embeddings.
        original: whose embeddings it is to give; without one there is no distance, and no training.
        distance: a key of `LOSSES`.
        **kwargs: as for Trainer.
    """

    def __init__(
        self, *args: Any, embedder: Embedder, original: Original | None = None, distance: str = "cosine", **kwargs: Any
    ):
        if distance not in LOSSES:
            raise ValueError(f"`distance` must be one of {', '.join(map(repr, LOSSES))}; got {distance!r}.")
        self.embedder, self.original, self.distance = embedder, original, LOSSES[distance]
        super().__init__(*args, **kwargs)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The distance, and the embeddings of the model and of the original, where there is one."""
        given = _tokens(inputs)
        own = self.embedder.of(model, given).float()
        if self.original is None:
            loss, outputs = own.new_full((), torch.nan), {"embedding": own}
        else:
            theirs = self.original(given)
            loss, outputs = self.distance(own, theirs), {"embedding": own, "original": theirs}
        return (loss, outputs) if return_outputs else loss


class EmbeddingTrainer(GatedTrainerMixin, _ByEmbeddings):
    """Trainer with gates for a bare encoder that gives embeddings: `embedder` says how, `original` which.

    Data are texts in tokens; those of evaluations also have `pair` and `score`.
    """

    needs_labels = False

    def drawn_loss(self, model: nn.Module, inputs: Mapping[str, Any], generator: torch.Generator) -> Tensor:
        """What blocks are chosen by: the distance from embeddings drawn around the model's own.

        The distance from the model's own embeddings says nothing while all blocks are there: it is zero, and so is its
        gradient. How much an embedding e depends on a block is in the Jacobian J of e. If J is taken times a random
        direction of unit variance, the mean square of what comes out is the square of J; it is the Fisher information
        of a Gaussian around e, as `drawn_labels` has it for classes. The squared distance from e plus such noise has
        that gradient, up to a factor that is the same for all blocks. Its directions are those of the embedding with
        unit length: lengths do not count in cosines.
        """
        own = functional.normalize(self.embedder.of(model, _tokens(inputs)).float(), dim=-1)
        noise = torch.randn(own.shape, generator=generator).to(own)
        return (own - own.detach() - noise).square().sum(-1).mean()


def _tokens(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What the model reads of a batch."""
    return {name: value for name, value in inputs.items() if name not in (PAIR, SCORE)}
