"""What short training runs of tests share: rows, training arguments, a model without dropout."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments


def data(family: str, count: int = 12) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index in range(count):
        ids = torch.randint(4, 60, (6,), generator=generator)
        row = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        row["labels"] = torch.tensor(index % 3) if family == "bert" else torch.randint(4, 60, (5,), generator=generator)
        rows.append(row)
    return rows


def arguments(folder: Path, seed: int = 0, **changes: Any) -> TrainingArguments:
    settings = {
        "output_dir": str(folder),
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": seed,
        "use_cpu": True,
        "logging_steps": 2,
    }
    return TrainingArguments(**{**settings, **changes})


def without_dropout(model: Any) -> Any:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model
