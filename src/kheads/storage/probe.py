"""Inputs made up for any supported model, to compare what two models compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def probe_inputs(model: PreTrainedModel, batch: int = 2, length: int = 8) -> dict[str, Tensor]:
    """Returns random inputs that the model's `forward` takes; the same ones at every call."""
    generator = torch.Generator().manual_seed(0)
    name = model.main_input_name
    if name == "pixel_values":
        config: Any = model.config
        size = config.image_size if isinstance(config.image_size, (tuple, list)) else (config.image_size,) * 2
        return {name: torch.randn((batch, config.num_channels, *size), generator=generator)}
    if name == "input_values" and not hasattr(model.config, "num_mel_bins"):
        return {name: torch.randn((batch, 4000), generator=generator)}  # a quarter of a second
    if name != "input_ids":
        raise ValueError(f"kheads cannot make up inputs for {type(model).__name__}, whose main input is {name!r}.")
    given = {name: _tokens(model.get_input_embeddings(), batch, length, generator)}
    given["attention_mask"] = torch.ones_like(given[name])
    if model.config.is_encoder_decoder:
        untyped: Any = model
        given["decoder_input_ids"] = _tokens(untyped.get_decoder().get_input_embeddings(), batch, length, generator)
    return given


def probe_outputs(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns what the model computes from the inputs: its main output, and the tokens it generates if it can."""
    training = model.training
    model.eval()
    given = {name: value.to(model.device) for name, value in inputs.items()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)  # some classes mask patches at random, also in eval mode
        outputs = {"forward": model(**given)[0].float().cpu()}
        if model.can_generate():
            prompt = {name: value for name, value in given.items() if not name.startswith("decoder_")}
            outputs["generate"] = model.generate(**prompt, max_new_tokens=4, do_sample=False).cpu()
    model.train(training)
    return outputs


def _tokens(embedding: Any, batch: int, length: int, generator: torch.Generator) -> Tensor:
    """Random tokens from the upper half of the vocabulary, where no special tokens are."""
    size = embedding.num_embeddings
    return torch.randint(size // 2, size, (batch, length), generator=generator)
