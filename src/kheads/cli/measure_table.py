"""What `kheads measure` does and shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Group, RenderableType
from torch import Tensor
from transformers import PreTrainedModel

from kheads.anatomy import discover
from kheads.blocks.site import total
from kheads.lab import terminal
from kheads.measuring import measurement
from kheads.measuring.measurement import Cost, Measurement
from kheads.storage import sources, strict_json
from kheads.storage.probe import probe_inputs

BATCHES, LENGTHS = (1, 8), (32, 128)
NO_HEADS, NO_BLOCKS = "no attention (the limit)", "no heads, no neurons (the limit)"


@dataclass(frozen=True)
class Request:
    """What to measure: sizes of batches, new tokens, how often, on what."""

    batches: list[int] | None
    lengths: list[int] | None
    new_tokens: int
    repeats: int
    threads: int | None
    device: str | None


def show(model: str, against: str | None, asked: Request, as_json: bool) -> None:
    """Measures and prints."""
    place = _device(asked.device)
    built = _moved(sources.model(model), place)
    other = None if against is None else _moved(sources.model(against, like=built), place)
    inputs = _grid(built, asked.batches or list(BATCHES), asked.lengths)
    tokens = _fitting(built, inputs[0], asked.new_tokens)
    with terminal.waiting("measuring"):
        found = measurement.measure(
            built, inputs, other, repeats=asked.repeats, threads=asked.threads, new_tokens=tokens
        )
    blocks = _blocks(built)
    if as_json:
        print(strict_json.dumps({**found.to_dict(), **blocks}))
        return
    counts: dict[str, dict[str, int | None]] = {
        model: blocks,
        NO_HEADS: {**blocks, "heads": 0},
        NO_BLOCKS: {"heads": 0, "neurons": 0},
    }
    if other is not None and against is not None:
        counts[against] = _blocks(other)
    terminal.console().print(_shown(found, model, against, counts))


def _blocks(model: PreTrainedModel) -> dict[str, int | None]:
    """How many heads and neurons a model has; None where kheads does not know its feed-forward layers."""
    known = measurement.known_parts(model) == "all"
    return {"heads": total(discover(model)), "neurons": total(discover(model, parts="ffn")) if known else None}


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch's, for devices it does not have
        raise ValueError(
            f"`--device` must name a device of this machine, such as cpu or cuda; got {name!r}."
        ) from error
    return device


def _moved(model: Any, device: torch.device) -> Any:
    return model.to(device)


def _grid(model: PreTrainedModel, batches: list[int], lengths: list[int] | None) -> list[dict[str, Tensor]]:
    """Inputs of every size; by default those that the model has positions for."""
    if model.main_input_name != "input_ids":
        lengths = [1]  # images have one size
    lengths = lengths or [length for length in LENGTHS if length <= _positions(model)] or [int(_positions(model))]
    for length in lengths:
        _try(model, length)
    return [probe_inputs(model, rows, length) for rows in batches for length in lengths]


def _try(model: Any, length: int) -> None:
    given = {name: value.to(model.device) for name, value in probe_inputs(model, 1, length).items()}
    try:
        with torch.inference_mode():
            model.eval()(**given)
    except (IndexError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"The model does not run on {length} tokens ({reason}); give other sizes with --length."
        ) from error


def _positions(model: PreTrainedModel) -> float:
    return getattr(model.config, "max_position_embeddings", None) or torch.inf


def _fitting(model: PreTrainedModel, prompt: dict[str, Tensor], new_tokens: int) -> int:
    """So many new tokens as there are positions for."""
    used = next(iter(prompt.values())).shape[1]
    return int(max(0, min(new_tokens, _positions(model) - used)))


def _shown(
    found: Measurement, model: str, against: str | None, counts: Mapping[str, Mapping[str, int | None]]
) -> RenderableType:
    costs = {model: found.model, NO_HEADS: found.no_attention}
    if found.no_blocks is not None:
        costs[NO_BLOCKS] = found.no_blocks
    if found.against is not None and against is not None:
        costs = {against: found.against, **costs}
    sizes = terminal.rows_table(
        "size",
        ("", "heads", "neurons", "parameters", "weights", "FLOPs", "peak memory"),
        [(name, *_counts(counts[name]), *_size_row(cost)) for name, cost in costs.items()],
    )
    speeds = [row for name, cost in costs.items() for row in _speed_rows(name, cost, found.settings["new_tokens"])]
    base = against or model
    times = terminal.rows_table(
        f"time, and how many times as fast as {base}", ("", "batch", "ms", "tokens/s", "speed-up"), speeds
    )
    how = "{repeats} rounds after {warmup} of warm-up, {threads} threads, {device}".format(**found.settings)
    note = f"FLOPs and memory are those of the largest batch. Times: {how}; medians, with 95 % intervals of the ratios."
    return Group(sizes, times, note)


def _counts(blocks: Mapping[str, int | None]) -> tuple[str, ...]:
    return tuple("-" if count is None else f"{count:,}" for count in blocks.values())


def _size_row(cost: Cost) -> tuple[str, ...]:
    memory, weights = cost.peak_memory / 1e6, cost.bytes / 1e6
    return (f"{cost.parameters:,}", f"{weights:.1f} MB", f"{cost.flops / 1e9:.2f} G", f"{memory:.1f} MB")


def _speed_rows(name: str, cost: Cost, new_tokens: int) -> list[tuple[str, ...]]:
    rows = [(f"{speed.batch} x {speed.length}", speed) for speed in cost.grid]
    if cost.generation is not None:
        rows.append((f"{cost.generation.batch} x {cost.generation.length} + {new_tokens} new", cost.generation))
    return [
        (name, size, f"{speed.ms:.2f}", f"{speed.tokens_per_second:,.0f}", str(speed.speedup or "-"))
        for size, speed in rows
    ]
