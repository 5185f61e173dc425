"""What kheads expects of transformers' Trainer besides its documented interface, checked when a trainer is made.

An override of a method that Trainer no longer calls would raise nothing: training would go on and be wrong. So the code
of Trainer itself is asked whether it still uses every name that kheads relies on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from inspect import unwrap
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import transformers
from packaging.version import Version
from transformers import Trainer, TrainingArguments

# What Trainer calls or reads, and what kheads does there.
USED = {
    "_clip_grad_norm": "clip the gates apart from the model",
    "_get_eval_sampler": "keep evaluation data in their order",
    "_get_train_sampler": "show a resumed run the same batches",
    "_issue_warnings_after_load": "refuse a checkpoint that does not fit",
    "_save": "write checkpoints that can be resumed",
    "_save_checkpoint": "seal checkpoints",
    "compute_loss": "add the method's penalty",
    "create_optimizer": "give the gates a learning rate of their own",
    "create_scheduler": "give the gates a schedule of their own",
    "current_gradient_accumulation_steps": "weight micro-batches",
    "get_batch_samples": "count the labels of a step",
    "get_train_dataloader": "make batches by tokens",
    "log": "log the gates",
    "loss_is_scaled_for_ga": "weight micro-batches",
    "on_epoch_begin": "order the batches of an epoch",
    "on_pre_optimizer_step": "clip the gates",
    "training_step": "draw the gates of a step",
}
# What kheads itself calls.
THERE = {
    "_get_output_dir": "seal checkpoints",
    "_load_best_model": "take up a finished run",
    "_load_from_checkpoint": "take up a finished run",
    "_prepare_inputs": "estimate scores",
    "_remove_unused_columns": "make batches by tokens",
}
# Earlier versions of transformers do without.
SINCE = {"loss_is_scaled_for_ga": Version("5.19")}
# The argument that trades time for memory; transformers 5.23 gave it a new name and warns about the old one.
CHECKPOINTING = (
    "activation_checkpointing"
    if "activation_checkpointing" in TrainingArguments.__dataclass_fields__
    else "gradient_checkpointing"
)


# A class that extends Trainer from beside it has no base; the type checker should know whose methods it extends.
if TYPE_CHECKING:
    Extension = Trainer
else:
    Extension = object


class UnknownTrainerError(RuntimeError):
    """This version of transformers has a Trainer that kheads does not know how to extend."""


@cache
def check_hooks(classes: tuple[type, ...]) -> None:
    """Raises, naming the first one, if something that kheads relies on is gone.

    Args:
        classes: Trainer and what it is made of, most derived first.
    """
    own = [cls for cls in classes if cls.__module__.partition(".")[0] == "transformers"]
    used = {name for cls in own for name in _names(cls)}
    for name, purpose in USED.items():
        if name not in used and _is_due(name):
            raise UnknownTrainerError(_sentence("uses", name, purpose))
    for name, purpose in THERE.items():
        if not any(name in vars(cls) for cls in own):
            raise UnknownTrainerError(_sentence("has", name, purpose))


def _is_due(name: str) -> bool:
    return name not in SINCE or Version(transformers.__version__) >= SINCE[name]


def _sentence(verb: str, name: str, purpose: str) -> str:
    version = transformers.__version__
    return (
        f"transformers {version} no longer {verb} Trainer.{name}, where kheads has to {purpose}; update kheads, or "
        f'install an earlier one: pip install "transformers<{version}".'
    )


def _names(cls: type) -> Iterator[str]:
    """What the methods of a class call or read; that a method calls itself in its base class does not count."""
    for method, value in vars(cls).items():
        function = _function(value)
        if function is not None:
            yield from {name for code in _codes(function.__code__) for name in code.co_names} - {method}


def _function(value: Any) -> FunctionType | None:
    inner = getattr(value, "fget", None) or getattr(value, "__func__", value)  # of a property, of a static method
    inner = unwrap(inner) if callable(inner) else inner
    return inner if isinstance(inner, FunctionType) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
