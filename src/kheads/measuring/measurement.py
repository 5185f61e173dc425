"""What a model costs: parameters, bytes, FLOPs, memory, and time next to another model.

Times are only ever compared within one run: all models take turns, after a warm-up, in an order that alternates, with a
fixed number of threads and the device synchronised. What counts is the median of the ratios of neighbours, with a
bootstrap interval. The limits stand beside it: the same model with no attention heads, and with no neurons either.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from kheads.anatomy import UnsupportedModelError, locate
from kheads.blocks.fields import Count, Whole, check_value
from kheads.blocks.kept import Kept
from kheads.measuring.live_memory import LiveMemory, tensor_bytes
from kheads.measuring.timing import REPEATS, WARMUP, Ratio, interleaved, speedup
from kheads.surgery.removal import remove

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Speed:
    """The time of one batch.

    Attributes:
        batch: examples.
        length: tokens per example; 1 where inputs are not tokens. For generation, the length of the prompt.
        ms: median milliseconds.
        tokens_per_second: tokens in, or for generation new tokens out.
        against_ms: median milliseconds of the model compared with; None where there is none.
        speedup: how many times as fast as that model; None where there is none.
    """

    batch: int
    length: int
    ms: float
    tokens_per_second: float
    against_ms: float | None = None
    speedup: Ratio | None = None

    def to_dict(self) -> dict[str, Any]:
        """Flat plain data: the fields of `speedup` stand beside the others, as None where there is none."""
        flat = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "speedup"}
        ratio = dataclasses.asdict(self.speedup) if self.speedup else dict.fromkeys(("ratio", "low", "high"))
        return {**flat, **ratio}


@dataclass(frozen=True)
class Cost:
    """What one model costs.

    Attributes:
        parameters: how many there are; shared ones count once.
        bytes: of the weights on disk, without the file's header.
        flops: floating-point operations of one forward pass on the largest batch, a multiplication and an addition
            counting as two.
        peak_memory: bytes of weights, inputs and intermediate results at the worst moment of that pass; on CUDA as its
            allocator says, elsewhere the tensors that are alive.
        grid: the time of each batch.
        generation: the time of generating from the first batch with the key-value cache; None if it was not asked for
            or the model does not generate.
    """

    parameters: int
    bytes: int
    flops: int
    peak_memory: int
    grid: tuple[Speed, ...]
    generation: Speed | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = {name: getattr(self, name) for name in ("parameters", "bytes", "flops", "peak_memory")}
        generation = self.generation.to_dict() if self.generation else None
        return {**plain, "grid": [speed.to_dict() for speed in self.grid], "generation": generation}


@dataclass(frozen=True)
class Measurement:
    """What `measure` returns.

    Attributes:
        model: the cost of the model; its speed is compared with `against` where that is given.
        against: the cost of the model compared with; None without one.
        no_attention: the cost of the same model without any heads, compared with `against`, or with the model itself
            without one. No choice of heads can be faster.
        settings: rounds, warm-up, threads, device, new tokens.
        no_blocks: like `no_attention`, without any neuron either; None where the feed-forwards are not known. No choice
            of heads and neurons can be faster.
    """

    model: Cost
    against: Cost | None
    no_attention: Cost
    settings: dict[str, Any]
    no_blocks: Cost | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, flat: `{"parameters", "bytes", "flops", "peak_memory", "grid", "generation"}` of the model.

        `grid` is a list of `{"batch", "length", "ms", "against_ms", "ratio", "low", "high", "tokens_per_second"}` and
        `generation` one such entry or None. `against`, `no_attention` and `no_blocks` hold the same of the other
        models, or None, and `settings` how it was measured. Ratios are how many times as fast as `against`; without it
        they are None, and those of `no_attention` and `no_blocks` are relative to the model.
        """
        others = {name: getattr(self, name) for name in ("against", "no_attention", "no_blocks")}
        plain = {name: cost.to_dict() if cost else None for name, cost in others.items()}
        return {**self.model.to_dict(), **plain, "settings": self.settings}


def measure(
    model: nn.Module,
    inputs: Batch | Sequence[Batch],
    against: nn.Module | None = None,
    *,
    repeats: int = REPEATS,
    threads: int | None = None,
    new_tokens: int = 0,
) -> Measurement:
    """Measures what a model costs, next to another one, to itself without heads, and without heads and neurons.

    Args:
        model: a supported model, pruned or not; it is left as it was.
        inputs: a batch that `forward` takes, or several: the grid.
        against: the model to compare with, usually the unpruned one, on the same device.
        repeats: rounds of timing after the warm-up; in each, every model runs once.
        threads: threads of the CPU; as many as torch uses now if not given.
        new_tokens: generate so many tokens too, if the model generates.
    """
    grid = [inputs] if isinstance(inputs, Mapping) else list(inputs)
    if not grid:
        raise ValueError("`inputs` must hold at least one batch; got none.")
    check_value(Count, repeats, "repeats")
    check_value(Count | None, threads, "threads")
    check_value(Whole, new_tokens, "new_tokens")
    device = _device(model, against)
    models = {"model": model, "no_attention": without_heads(model)}
    if known_parts(model) == "all":
        models["no_blocks"] = without_blocks(model)
    if against is not None:
        models["against"] = against
    grid = [{name: value.to(device) for name, value in batch.items()} for batch in grid]
    threads = threads or torch.get_num_threads()
    with ready(models.values(), threads):
        costs = _measured(models, grid, repeats, new_tokens)
    settings: dict[str, Any] = {"repeats": repeats, "warmup": WARMUP, "threads": threads, "new_tokens": new_tokens}
    settings["device"] = str(device)
    return Measurement(
        costs["model"], costs.get("against"), costs["no_attention"], settings, no_blocks=costs.get("no_blocks")
    )


def without_heads(model: nn.Module) -> nn.Module:
    """The same model with every head removed; it shares all other weights."""
    return remove(shared_copy(model), Kept.from_dict({}))


def without_blocks(model: nn.Module) -> nn.Module:
    """The same model with every head and every neuron removed; it shares all other weights."""
    return cut_copy(model, Kept(tuple((found.site.name, ()) for found in locate(model, parts="all"))))


def cut_copy(model: nn.Module, kept: Kept) -> nn.Module:
    """A copy with no other blocks than these; it shares all other weights."""
    return remove(shared_copy(model), kept)


def known_parts(model: nn.Module) -> str:
    """Which parts of a model kheads knows, as `discover` names them: "all", or "heads" where neurons are refused."""
    try:
        locate(model, parts="all")
    except UnsupportedModelError:
        return "heads"
    return "all"


def shared_copy(model: nn.Module) -> nn.Module:
    """A copy with its own modules and the same tensors, so that heads can be removed from it alone."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def weightless_copy(model: nn.Module) -> nn.Module:
    """A copy without memory: its tensors have shapes only. What is shared stays so."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): _shape_of(tensor) for tensor in tensors})


def _shape_of(tensor: Tensor) -> Tensor:
    shape = tensor.detach().to("meta")
    return nn.Parameter(shape, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else shape


def size(model: nn.Module) -> dict[str, int]:
    """Parameters, and bytes of all tensors that are saved; what is shared counts once."""
    unique = {id(parameter): parameter for parameter in model.parameters()}.values()
    return {
        "parameters": sum(parameter.numel() for parameter in unique),
        "bytes": tensor_bytes(model.state_dict().values()),
    }


def flops(model: nn.Module, batch: Batch) -> int:
    """Floating-point operations of one forward pass, under eager attention: torch does not see them in other ones."""
    with counting(model) as counter:
        model(**batch)
    return int(counter.get_total_flops())


def peak_memory(model: nn.Module, batch: Batch) -> int:
    """Bytes at the worst moment of one forward pass: weights, inputs and what is computed."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        return _allocated(model, batch, device)
    with torch.no_grad(), LiveMemory([*model.parameters(), *model.buffers(), *batch.values()]) as memory:
        model(**batch)
    return memory.peak


def _allocated(model: nn.Module, batch: Batch, device: torch.device) -> int:
    """What the allocator saw, without the other models that lie in the same memory."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    with torch.inference_mode():
        model(**batch)
    torch.cuda.synchronize(device)
    own = tensor_bytes([*model.parameters(), *model.buffers(), *batch.values()])
    return torch.cuda.max_memory_allocated(device) - before + own


def _measured(models: Mapping[str, Any], grid: list[Batch], repeats: int, new_tokens: int) -> dict[str, Cost]:
    largest = max(grid, key=lambda batch: next(iter(batch.values())).numel())
    speeds: dict[str, list[Speed]] = {name: [] for name in models}
    for batch in grid:
        for name, speed in _forward_speeds(models, batch, repeats).items():
            speeds[name].append(speed)
    generated = _generation_speeds(models, grid[0], repeats, new_tokens)
    return {
        name: Cost(
            **size(model),
            flops=flops(model, largest),
            peak_memory=peak_memory(model, largest),
            grid=tuple(speeds[name]),
            generation=generated.get(name),
        )
        for name, model in models.items()
    }


def _forward_speeds(models: Mapping[str, Any], batch: Batch, repeats: int) -> dict[str, Speed]:
    def call(model: Any) -> Callable[[], Any]:
        return lambda: model(**batch)

    rows, length = _shape(batch)
    times = _times({name: call(model) for name, model in models.items()}, models, repeats)
    return _speeds(times, rows, length, rows * length)


def _generation_speeds(models: Mapping[str, Any], batch: Batch, repeats: int, new_tokens: int) -> dict[str, Speed]:
    if new_tokens < 1 or not getattr(models["model"], "can_generate", lambda: False)():
        return {}
    prompt = {name: value for name, value in batch.items() if not name.startswith("decoder_")}
    exactly = {"min_new_tokens": new_tokens, "max_new_tokens": new_tokens, "do_sample": False, "use_cache": True}

    def call(model: Any) -> Callable[[], Any]:
        return lambda: model.generate(**prompt, **exactly)

    rows, length = _shape(batch)
    times = _times({name: call(model) for name, model in models.items()}, models, repeats)
    return _speeds(times, rows, length, rows * new_tokens)


def _times(calls: dict[str, Callable[[], Any]], models: Mapping[str, Any], repeats: int) -> dict[str, Tensor]:
    device = next(models["model"].parameters()).device
    with torch.inference_mode():
        times = interleaved(list(calls.values()), repeats, device)
    return dict(zip(calls, times, strict=True))


def _speeds(times: dict[str, Tensor], rows: int, length: int, tokens: int) -> dict[str, Speed]:
    base = "against" if "against" in times else "model"
    found = {}
    for name, seconds in times.items():
        middle = float(seconds.quantile(0.5))
        speed = Speed(rows, length, 1e3 * middle, tokens / middle)
        if name != base:
            against_ms = 1e3 * float(times[base].quantile(0.5))
            speed = dataclasses.replace(speed, against_ms=against_ms, speedup=speedup(times[base], seconds))
        found[name] = speed
    return found


def _shape(batch: Batch) -> tuple[int, int]:
    first = next(iter(batch.values()))
    return first.shape[0], first.shape[1] if first.dim() == 2 else 1


def _device(model: nn.Module, against: nn.Module | None) -> torch.device:
    device = next(model.parameters()).device
    other = device if against is None else next(against.parameters()).device
    if device != other:
        raise ValueError(f"Both models must be on one device; got {device} and {other}. Move one with `.to(...)`.")
    return device


@contextmanager
def ready(models: Any, threads: int) -> Iterator[None]:
    """Eval mode and a fixed number of threads, both undone afterwards."""
    training = [(model, model.training) for model in models]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for model, _ in training:
            model.eval()
        yield
    finally:
        torch.set_num_threads(before)
        for model, mode in training:
            model.train(mode)


@contextmanager
def counting(model: nn.Module) -> Iterator[FlopCounterMode]:
    """Counts the FLOPs of forward passes, without gradients and under eager attention."""
    with _frozen(model), torch.inference_mode(), _eager(model), FlopCounterMode(display=False) as counter:
        yield counter


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """No parameter asks for gradients: torch's counter looks for the graph of one that is handed to a module."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


@contextmanager
def _eager(model: nn.Module) -> Iterator[None]:
    """Attention as plain matrix products, in every part of the model that has a config of its own."""
    configs = {id(config): config for module in model.modules() if (config := getattr(module, "config", None))}
    with ExitStack() as undo:
        for config in configs.values():
            if hasattr(config, "_attn_implementation"):
                undo.callback(setattr, config, "_attn_implementation", config._attn_implementation)
        for config in configs.values():
            if hasattr(config, "_attn_implementation"):
                config._attn_implementation = "eager"
        yield
