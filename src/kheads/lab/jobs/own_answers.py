"""What the whole model says of data that nobody has labelled, for smaller ones to be compared with."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Value
from transformers import DataCollator, PreTrainedModel, TrainingArguments

from kheads.training.trainer import GatedTrainer


def answered(model: PreTrainedModel, rows: Dataset, collator: DataCollator, scores: bool) -> Dataset:
    """The rows with the model's answers as labels: its only output, or the place of the largest one."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            report_to="none",
            per_device_eval_batch_size=32,
            use_cpu=not torch.accelerator.is_available(),
            dataloader_pin_memory=torch.cuda.is_available(),
        )
        trainer = GatedTrainer(model=model, args=arguments, data_collator=collator)
        found: Any = trainer.predict(rows).predictions
    outputs = np.asarray(found[0] if isinstance(found, tuple) else found)
    labels, kind = (outputs[:, 0], "float32") if scores else (outputs.argmax(axis=1), "int64")
    return rows.add_column("labels", labels.tolist(), feature=Value(kind))
