"""Ways of training on many devices that gates cannot go along with."""

from __future__ import annotations

import math
from typing import Any

from accelerate import DistributedType


def refuse_backends(trainer: Any) -> None:
    """Raises, naming it, if a trainer shards what gates need whole, or leaves processes on their own."""
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        name = "DeepSpeed" if trainer.is_deepspeed_enabled else "FSDP"
        raise ValueError(
            f"{name} is not supported: it shards the gates' weights. Use DistributedDataParallel (torchrun)."
        )
    if trainer.args.n_gpu > 1:
        raise ValueError(
            "Several GPUs in one process (DataParallel) are not supported; start one process per GPU (torchrun)."
        )
    if trainer.accelerator.num_processes > 1 and trainer.accelerator.distributed_type == DistributedType.NO:
        raise ValueError(
            f"The {trainer.accelerator.num_processes} processes would train apart from each other; on machines without "
            "a GPU give TrainingArguments(use_cpu=True)."
        )
    if not math.isfinite(trainer.args.max_grad_norm or 0):
        raise ValueError("`max_grad_norm` must be finite; 0 switches clipping of the model off.")
