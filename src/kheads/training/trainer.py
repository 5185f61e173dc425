"""Training with gates: a mixin over Hugging Face's Trainer (and Seq2SeqTrainer).

It adds what gates need and mends what they would suffer from: their own parameter group, schedule and clipping; the
method's penalty; a loss that does not depend on how a batch is split; one draw per optimizer step, the same after a
resume and on every process; evaluation on the hard K-subset, which the gates themselves see to.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PrinterCallback, ProgressCallback, Seq2SeqTrainer, Trainer, TrainerCallback
from transformers.trainer_utils import TrainOutput

from kheads.blocks.kept import Kept
from kheads.blocks.site import part
from kheads.training.backends import refuse_backends
from kheads.training.callbacks import Doubts, ProgressLines
from kheads.training.checkpoints import newest_checkpoint
from kheads.training.data_order import DataOrder
from kheads.training.distillation import Teacher
from kheads.training.drawn_labels import drawn_loss
from kheads.training.dropout import dropout_off
from kheads.training.hooks import check_hooks
from kheads.training.labels_counted import items_per_example
from kheads.training.learned_gates import LearnedGates, schedule
from kheads.training.progress import say, shows_bars
from kheads.training.resuming import Resuming
from kheads.training.short_attention import short_attention


class TrainingStoppedError(RuntimeError):
    """Training cannot go on; the last good checkpoint is still there."""


class GatedTrainerMixin(Resuming, DataOrder):
    """Put before `Trainer` or `Seq2SeqTrainer` in the bases; works on any model, gates attached or not.

    Args:
        *args: as for Trainer.
        gates: gates that are attached to the model.
        batch_tokens: make training batches of at most so many tokens, instead of so many examples.
        teacher: what the model learns from besides the labels, or instead of them.
        quiet: do not print remarks about a training that cannot work; `remarks` has them either way.
        **kwargs: as for Trainer. With `disable_tqdm` in `args` nothing shows how far it is; otherwise a bar does, or a
            line now and then where there is no terminal.

    Attributes:
        remarks: what was wrong with the training, a sentence each.
        asked: what the run was asked to do; checkpoints carry it, and one that carries something else is refused.
    """

    # Trainer divides by the number of micro-batches for some classes and not for others, by their signature. Here it
    # always divides, and `_share` undoes that.
    loss_is_scaled_for_ga: bool | None = False
    # Whether the loss goes by labels; a trainer that has another measure of its own says no.
    needs_labels: bool = True

    def __init__(
        self,
        *args: Any,
        gates: LearnedGates | None = None,
        batch_tokens: int | None = None,
        teacher: Teacher | None = None,
        quiet: bool = False,
        **kwargs: Any,
    ):
        check_hooks(_beyond_mixin(type(self)))
        super().__init__(*args, **kwargs)
        # A model that another trainer has evaluated counts as prepared, and every process would train it on its own.
        vars(self.model).pop("_is_accelerate_prepared", None)
        self.gates, self.batch_tokens, self.teacher = gates, batch_tokens, teacher
        self.model_accepts_loss_kwargs = False
        self._items = 0.0
        self._logged: Kept | None = None
        self.quiet = quiet
        self.remarks: list[str] = []
        self.asked: Mapping[str, Any] = {}
        self._doubts = Doubts(self._remark, getattr(getattr(self.model, "config", None), "num_labels", None))
        self.add_callback(_BeforeStep(self))
        self.add_callback(self._doubts)
        self._choose_progress()
        refuse_backends(self)

    # ---------------------------------------------------------------------------------------- what is said

    def _choose_progress(self) -> None:
        """Nothing if Trainer would print its logs instead of a bar; lines instead of a bar that nobody would see."""
        self.pop_callback(PrinterCallback)
        if not shows_bars() and self.pop_callback(ProgressCallback) is not None:
            self.add_callback(ProgressLines())

    def _remark(self, sentence: str) -> None:
        if sentence not in self.remarks:  # a training that goes on begins with those it had
            self.remarks.append(sentence)
        if self.is_world_process_zero() and not self.quiet:
            say(sentence)

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """Trains; without dropout where the model follows a teacher's stream, since noise would only blur that."""
        student: Any = self.model
        follows = self.teacher is not None and self.teacher.distillation.stream > 0
        with dropout_off(student) if follows else nullcontext():
            return super().train(*args, **kwargs)

    # ---------------------------------------------------------------------------------------- loss and gradients

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Any]:
        """Counts the items of the whole optimizer step, over all micro-batches and processes."""
        batches, _ = super().get_batch_samples(*args, **kwargs)
        counts = [float(items_per_example(batch, self._shifts_labels).sum()) for batch in batches]
        self._items = self._sum_over_processes(sum(counts))
        return batches, None

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """One micro-batch at the moment of its optimizer step."""
        if self.gates is not None:
            self.gates.set_moment(self.state.global_step, self.state.max_steps)
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss):
            raise TrainingStoppedError(self._stopped(f"the loss became {loss.item()}"))
        return loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """In training: the micro-batch's share of the step's mean loss, and of the penalty."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs)
        share, given = self._share(inputs), dict(inputs)  # Trainer may take the labels out of the inputs
        if self.teacher is not None:
            inputs = self.teacher.asking(self.accelerator.unwrap_model(model), inputs)
        with short_attention(inputs) if self._in_16_bits else nullcontext():
            loss, outputs = self._loss_of_labels(model, inputs)
        self._doubts.see(loss, given.get("labels"), self.state)
        if self.teacher is not None:
            with self.accelerator.autocast():  # the student has it in its forward
                loss = self.teacher.loss(given, outputs, loss, self._shifts_labels)
        penalty = self.gates.penalty() if self.gates is not None else None
        if penalty is not None:
            loss = loss + penalty.to(loss.device, loss.dtype)
        if not loss.requires_grad:  # settled gates on a frozen model: nothing is left to learn, and nothing to move
            loss = loss + torch.zeros_like(loss, requires_grad=True)
        loss = loss * share
        return (loss, outputs) if return_outputs else loss

    def drawn_loss(self, model: nn.Module, inputs: Mapping[str, Any], generator: torch.Generator) -> Tensor:
        """What blocks are chosen by where there are no labels."""
        return drawn_loss(model, inputs, generator)

    def _loss_of_labels(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """The mean loss, and what the model answered; with a teacher there need not be labels."""
        if self.teacher is not None and all(inputs.get(name) is None for name in ("labels", *self.label_names)):
            return None, model(**inputs)
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
        return loss, outputs

    def _share(self, inputs: dict[str, Any]) -> float:
        # Processes average their gradients, so each counts as many times as there are processes.
        if not self._items:
            return 1.0
        items = float(items_per_example(inputs, self._shifts_labels).sum())
        processes: int = self.accelerator.num_processes
        return items / self._items * processes * self._divisor

    @property
    def _divisor(self) -> int:
        """By what Trainer divides the loss of a micro-batch. Before 5.19 it left losses of the user's own alone."""
        if self.compute_loss_func is not None and not hasattr(Trainer, "loss_is_scaled_for_ga"):
            return 1
        return self.current_gradient_accumulation_steps

    @property
    def _shifts_labels(self) -> bool:
        """Whether the loss leaves out the first label, as causal language models do."""
        config = getattr(self.accelerator.unwrap_model(self.model), "config", None)
        name = type(self.accelerator.unwrap_model(self.model)).__name__
        return "CausalLM" in name or ("LMHead" in name and not getattr(config, "is_encoder_decoder", False))

    @property
    def _in_16_bits(self) -> bool:
        """Whether activations are so; not where they are made a second time on the way back."""
        return (self.args.bf16 or self.args.fp16) and not self.args.gradient_checkpointing

    def _sum_over_processes(self, value: float) -> float:
        if self.accelerator.num_processes == 1:
            return value
        everyone = self.accelerator.gather(torch.tensor([value], dtype=torch.float64, device=self.args.device))
        return float(everyone.sum())

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clips the model alone: a spike in the gates never scales the model's update."""
        w = self.gates.w if self.gates is not None else None
        return self.accelerator.clip_grad_norm_([p for p in model.parameters() if p is not w], self.args.max_grad_norm)

    def before_step(self) -> None:
        """Clips the gates on their own, also where the model is not clipped, and stops on what is not finite."""
        if self.gates is None or self.gates.w.grad is None:
            return
        self.accelerator.unscale_gradients()
        try:
            self.gates.clip()
        except FloatingPointError as error:
            raise TrainingStoppedError(self._stopped(str(error))) from error

    def _stopped(self, what: str) -> str:
        newest = newest_checkpoint(self.args.output_dir or ".")
        where = f"the last good checkpoint is {newest}" if newest else "there is no checkpoint yet"
        return f"At step {self.state.global_step + 1} {what}; {where}. Lower the learning rate or check the data."

    # ---------------------------------------------------------------------------------------- optimizer and schedule

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """Gives w a group of its own: its learning rate, no weight decay."""
        if self.gates is None or self.optimizer is not None:
            return super().create_optimizer(*args, **kwargs)
        self.gates.w.requires_grad_(False)
        optimizer = super().create_optimizer(*args, **kwargs)
        self.gates.w.requires_grad_(True)
        optimizer.add_param_group({"params": [self.gates.w], "lr": self.gates.method.gate_lr, "weight_decay": 0.0})
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Gives w a schedule of its own."""
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if self.gates is None:
            return scheduler
        if not hasattr(scheduler, "lr_lambdas"):
            raise ValueError(
                f"lr_scheduler_type={self.args.lr_scheduler_type} cannot give the gates a schedule of their own; "
                "use linear, cosine, constant, constant_with_warmup, polynomial or inverse_sqrt."
            )
        scheduler.lr_lambdas[-1] = partial(schedule, self.gates.method.gate_lr_schedule, num_training_steps)
        scheduler.optimizer.param_groups[-1]["lr"] = scheduler.base_lrs[-1]
        return scheduler

    # ---------------------------------------------------------------------------------------- logs

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Adds the state of the gates; the hard subset goes into the history, which trackers need not understand.

        Of heads alone: neurons are thousands, and the record has those that stay in the end.
        """
        if self.gates is None or "loss" not in logs:
            super().log(logs, *args, **kwargs)
            return
        blocks = self.gates.kept().to_dict()
        kept = Kept.from_dict({site.name: blocks[site.name] for site in self.gates.sites if part(site) == "heads"})
        before = self._logged or self._last_logged() or kept
        changed = len(set(kept) - set(before))
        super().log({**logs, **self.gates.status(), "heads_changed": changed}, *args, **kwargs)
        self._history[-1]["kept"] = kept.to_dict()
        self._logged = kept

    def _last_logged(self) -> Kept | None:
        entries = [entry["kept"] for entry in self._history if "kept" in entry]
        return Kept.from_dict(entries[-1]) if entries else None

    @property
    def _history(self) -> list[dict[str, Any]]:
        return self.state.log_history


class GatedTrainer(GatedTrainerMixin, Trainer):
    """Trainer with gates."""


class GatedSeq2SeqTrainer(GatedTrainerMixin, Seq2SeqTrainer):
    """Seq2SeqTrainer with gates."""


class _BeforeStep(TrainerCallback):
    def __init__(self, trainer: GatedTrainerMixin):
        self.trainer = trainer

    def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
        self.trainer.before_epoch()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self.trainer.after_training()

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.trainer.before_step()


def _beyond_mixin(cls: type) -> tuple[type, ...]:
    order = cls.__mro__
    return order[order.index(GatedTrainerMixin) + 1 :]
