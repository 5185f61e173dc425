"""From token vectors to one embedding for each text: how they are pooled, and whether they get unit length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional

from kheads.blocks.fields import Count, OneOf, Text, check_fields

POOLINGS = ("mean", "cls")
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
Pooling = Annotated[str, OneOf(POOLINGS)]


@dataclass(frozen=True)
class Embedder:
    """How a bare encoder gives embeddings, as the files of a sentence-transformers folder say it.

    Attributes:
        pooling: "mean" of the token vectors, or the first one, "cls".
        normalise: whether embeddings get unit length.
        max_length: the most tokens of a text; None leaves it to the tokenizer.
        lower: whether texts are put into lower case first.
        prompts: words that may be put before a text, by name.
        default_prompt: the name of those that always are; None for none.
        similarity: how embeddings are compared; None where nothing says it.
    """

    pooling: Pooling = "mean"
    normalise: bool = False
    max_length: Count | None = None
    lower: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: Text | None = None
    similarity: Annotated[str, OneOf(SIMILARITIES)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.default_prompt is not None and self.default_prompt not in self.prompts:
            raise ValueError(f"`default_prompt` must be one of the prompts; got {self.default_prompt!r}.")

    def text(self, text: str) -> str:
        """A text as the tokenizer gets it."""
        prompt = "" if self.default_prompt is None else self.prompts[self.default_prompt]
        return f"{prompt}{text}".lower() if self.lower else f"{prompt}{text}"

    def pooled(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Token vectors, (B, T, W), to embeddings, (B, W); a mask, (B, T), says which tokens are there."""
        mask = torch.ones(hidden.shape[:2], device=hidden.device) if mask is None else mask
        if self.pooling == "cls":
            first = mask.int().argmax(1)  # padding may stand in front
            found = hidden[torch.arange(len(hidden), device=hidden.device), first]
        else:
            weights = mask.to(hidden.dtype).unsqueeze(-1)
            found = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
        return functional.normalize(found, dim=-1) if self.normalise else found

    def of(self, model: Any, inputs: Mapping[str, Any]) -> Tensor:
        """The embeddings that a bare encoder gives for a batch of tokens, (B, W)."""
        return self.pooled(model(**inputs).last_hidden_state, inputs.get("attention_mask"))

    def tokens(self, tokenizer: Any, texts: list[str]) -> Any:
        """A batch of tokens, padded and cut as the embedder says."""
        most = min(self.max_length or tokenizer.model_max_length, tokenizer.model_max_length)
        given = [self.text(text) for text in texts]
        return tokenizer(given, padding=True, truncation=True, max_length=int(min(most, 2**20)), return_tensors="pt")
