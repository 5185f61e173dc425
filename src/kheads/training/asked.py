"""What a run was asked to do, kept beside its checkpoints, so that no other run goes on from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from transformers import TrainingArguments

CONTENT = "content"  # of an input that is known by what is in it, wherever it lies
# The training arguments that a result depends on.
DECIDING = (
    *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "max_steps", "num_train_epochs"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "train_sampling_strategy", "dataloader_drop_last"),
    *("optim", "optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("seed", "data_seed", "bf16", "fp16", "label_smoothing_factor", "neftune_noise_alpha"),
)


class OtherRunError(ValueError):
    """Checkpoints of a run that was asked for differently."""


def plain(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return json.loads(json.dumps(value, default=str))


def deciding(args: TrainingArguments) -> dict[str, Any]:
    """The training arguments that a result depends on."""
    return {name: getattr(args, name, None) for name in DECIDING}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Every option with another value, with both."""
    then, here = plain(before), plain(now)
    names = [*then, *(name for name in here if name not in then)]
    return {name: (then.get(name), here.get(name)) for name in names if not _same(then.get(name), here.get(name))}


def refuse_other(place: str, before: Mapping[str, Any], now: Mapping[str, Any], remedy: str) -> None:
    """Raises, naming each option and both of its values, if they are not one run.

    Args:
        place: what holds the work of the earlier run.
        before: what that run was asked to do.
        now: what this one is asked to do.
        remedy: what to do, besides asking for the same.
    """
    found = differences(before, now)
    if not found:
        return
    told = "; ".join(_told(name, then, here) for name, (then, here) in found.items())
    raise OtherRunError(f"{place} belongs to another run: {told}. Give what it was begun with, or {remedy}.")


def _same(then: Any, here: Any) -> bool:
    if _is_input(then) and _is_input(here):
        return bool(then[CONTENT] == here[CONTENT])
    return bool(then == here)


def _told(name: str, then: Any, here: Any) -> str:
    key, _, part = name.partition(" ")
    of = f"`{key}`{f' ({part})' if part else ''}"
    if _is_input(then) and _is_input(here) and then["given"] == here["given"]:
        return f"{of} is {here['given']}, whose content has changed"
    return f"{of} was {_shown(then)} and is {_shown(here)}"


def _is_input(value: Any) -> bool:
    return isinstance(value, dict) and CONTENT in value


def _shown(value: Any) -> str:
    if value is None:
        return "not given"
    return str(value["given"]) if _is_input(value) else json.dumps(value, ensure_ascii=False).strip('"')
