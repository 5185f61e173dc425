"""A tiny model of a real class: how to build it, what to feed it, what it gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import kheads

VOCAB = 61
PAD = 0


def text(length: int = 6) -> dict[str, Tensor]:
    """Two sentences, one of them padded on the right, so that no position sees only padding."""
    ids = torch.randint(4, VOCAB, (2, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    ids[1, -2:], mask[1, -2:] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask}


def pair() -> dict[str, Tensor]:
    """A source and a target."""
    target = torch.randint(4, VOCAB, (2, 5), generator=torch.Generator().manual_seed(2))
    return {**text(), "decoder_input_ids": target}


def noise(name: str, *shape: int) -> Callable[[], dict[str, Tensor]]:
    """Random numbers under that name."""
    return lambda: {name: torch.randn(shape, generator=torch.Generator().manual_seed(3))}


images = noise("pixel_values", 2, 3, 8, 8)


@dataclass(frozen=True)
class Tiny:
    """One entry: the model class, the fields of its config, and its inputs."""

    model: str
    fields: Mapping[str, Any]
    inputs: Callable[[], dict[str, Tensor]] = text
    opened: bool = False  # whether its `nn.MultiheadAttention` has to be replaced
    generates: bool = True  # if its class can
    static: bool = True  # whether its class generates with a static cache
    scale: float = 1.0  # of the weights, where no norm holds the activations

    def build(self, seed: int = 0) -> Any:
        """The model in eval mode, with every parameter random."""
        cls: Any = getattr(transformers, self.model)
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = cls(cls.config_class(**self.fields))
        randomise(model, seed, self.scale).eval()
        return kheads.open_attention(model) if self.opened else model

    def switch(self, model: Any, backend: str) -> bool:
        """Sets the attention backend; False where the class has only its own."""
        if backend == "sdpa" and not model._supports_sdpa:
            return False
        alone = hasattr(model.config, "backbone_config")  # a convolutional backbone refuses to be asked
        model.set_attn_implementation({"": backend} if alone else backend)
        return True


def prompt(entry: Tiny) -> dict[str, Tensor]:
    """What the model continues: the inputs without the decoder's, padded on the left as generation needs it."""
    given = {name: value for name, value in entry.inputs().items() if not name.startswith("decoder_")}
    return {name: value.flip(1) if name in ("input_ids", "attention_mask") else value for name, value in given.items()}


def randomise(model: Any, seed: int = 0, scale: float = 1.0) -> Any:
    """Gives every parameter random values, norms and biases included, large enough that no head is idle."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if not parameter.requires_grad:  # fixed sinusoidal positions, which are not saved
                continue
            values = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                large = "relative_attention_bias" in path or "embed" in path
                parameter.copy_(values * scale * (0.8 if large else 1.2 / parameter.shape[-1] ** 0.5))
            else:
                parameter.copy_(values * 0.3 + ("norm" in path.lower() and path.endswith("weight")))
        for module in model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx].zero_()
    return model


def outputs(model: Any, given: Mapping[str, Tensor]) -> Tensor:
    """Everything the model says, as one vector."""
    torch.manual_seed(0)  # some embeddings choose patches at random, also in eval mode
    out = model(**given)
    tensors = [value for value in out.values() if isinstance(value, Tensor) and value.is_floating_point()]
    return torch.cat([value.flatten() for value in tensors])
