"""Training with gates: a mixin over Hugging Face's Trainer (and Seq2SeqTrainer).

It adds what gates need and mends what they would suffer from: their own parameter group, schedule and clipping; the
method's penalty; a loss that does not depend on how a batch is split; one draw per optimizer step, the same after a
resume and on every process; evaluation on the hard K-subset, which the gates themselves see to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import DistributedType
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers import (
    EarlyStoppingCallback,
    PreTrainedModel,
    PrinterCallback,
    ProgressCallback,
    Seq2SeqTrainer,
    Trainer,
    TrainerCallback,
    TrainerState,
)
from transformers.trainer_utils import TrainOutput

from kheads.blocks.kept import Kept
from kheads.blocks.site import part
from kheads.storage.disk import told
from kheads.training.asked import refuse_other
from kheads.training.batching import TokenBatches
from kheads.training.callbacks import Doubts, ProgressLines
from kheads.training.checkpoints import (
    PREFIX,
    CheckpointsError,
    choose,
    fault,
    newest_checkpoint,
    read_seal,
    rotate,
    seal,
    set_aside,
)
from kheads.training.distillation import Teacher
from kheads.training.drawn_labels import drawn_loss
from kheads.training.dropout import dropout_off
from kheads.training.hooks import check_hooks
from kheads.training.learned_gates import LearnedGates, schedule
from kheads.training.progress import say, shows_bars

STATE = "trainer_state.json"
OPTIMIZER, SCHEDULER = "optimizer.pt", "scheduler.pt"

# A mixin has no base of its own; the type checker should know whose methods it extends.
if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object


class TrainingStoppedError(RuntimeError):
    """Training cannot go on; the last good checkpoint is still there."""


class GatedTrainerMixin(_Base):
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
        self._order: LengthGroups | TokenBatches | None = None  # the sampler, if its order depends on the epoch
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
        _refuse_backends(self)

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

    # ---------------------------------------------------------------------------------------- a run taken up again

    def train(self, resume_from_checkpoint: str | Path | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Trains; from a checkpoint of a training that is finished, only loads what it came to."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = self.newest() or True
        if isinstance(resume_from_checkpoint, str | Path):
            self._remember(Path(resume_from_checkpoint))
            resume_from_checkpoint = str(resume_from_checkpoint)
            state = TrainerState.load_from_json(str(Path(resume_from_checkpoint) / STATE))
            if self._is_finished(state):
                return self._take_up(resume_from_checkpoint, state)
            self._check_states(Path(resume_from_checkpoint))
        student: Any = self.model
        follows = self.teacher is not None and self.teacher.distillation.stream > 0
        with dropout_off(student) if follows else nullcontext():  # noise only blurs what is to be followed
            return super().train(resume_from_checkpoint, *args, **kwargs)

    def newest(self) -> str | None:
        """The newest whole checkpoint of this training; those after it are set aside, and it is said why."""
        chosen, faults = choose(self.args.output_dir or ".")
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            for path, found in faults.items():
                start = "the beginning" if chosen is None else chosen.name
                say(f"{path} cannot be used, because {found}; going on from {start}.")
                set_aside(path)
        self.accelerator.wait_for_everyone()
        return None if chosen is None else str(chosen)

    def _remember(self, checkpoint: Path) -> None:
        """Takes up what the checkpoint knows of its training; refuses one that is damaged, or another run's."""
        sealed = read_seal(checkpoint)
        if sealed is None:
            return  # another Trainer's, perhaps
        if found := fault(checkpoint):
            raise CheckpointsError(f"{checkpoint} cannot be used, because {found}; give another checkpoint.")
        if self.asked:
            refuse_other(str(checkpoint), sealed.get("asked", {}), self.asked, "give another output_dir")
        self.remarks = list(sealed.get("remarks", ()))
        self._doubts.restore(sealed.get("losses"))

    def _check_states(self, checkpoint: Path) -> None:
        """Without the state of the optimizer or of random numbers training would go on, to another result."""
        here = "" if self.args.world_size <= 1 else f"_{self.args.process_index}"
        for name in (OPTIMIZER, SCHEDULER, f"rng_state{here}.pth"):
            if not (checkpoint / name).is_file():
                raise CheckpointsError(
                    f"{checkpoint} has no {name}, without which the run would come to another result; go on with as "
                    "many processes as it was begun with, or give another checkpoint."
                )

    def total_steps(self) -> int:
        """How many optimizer steps the training has, from its beginning to its end."""
        if self.args.max_steps > 0:
            return self.args.max_steps
        per_epoch = math.ceil(len(self.get_train_dataloader()) / self.args.gradient_accumulation_steps)
        return max(1, math.ceil(per_epoch * self.args.num_train_epochs))

    def _is_finished(self, state: TrainerState) -> bool:
        stopping = (cb for cb in self.callback_handler.callbacks if isinstance(cb, EarlyStoppingCallback))
        return state.global_step >= self.total_steps() or any(_ran_out(callback, state) for callback in stopping)

    def _take_up(self, checkpoint: str, state: TrainerState) -> TrainOutput:
        """Loads weights and history. Trainer itself would train one more step, or log its end once more."""
        self._load_from_checkpoint(checkpoint)
        state.is_local_process_zero = self.is_local_process_zero()
        state.is_world_process_zero = self.is_world_process_zero()
        self.state = state
        best = state.best_model_checkpoint
        if self.args.load_best_model_at_end and best is not None and Path(best).is_dir():
            self._load_best_model()
        return TrainOutput(state.global_step, 0.0, {})

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

    # ---------------------------------------------------------------------------------------- data order

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Length grouping whose order depends on seed and epoch alone, so that a resumed run sees the same batches."""
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        lengths = _lengths(dataset, self.args.length_column_name)
        batch = self.args.train_batch_size * self.args.gradient_accumulation_steps
        self._order = LengthGroups(lengths, batch, self._data_seed)
        return self._order

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches by tokens where that was asked for; each process reads its own, so nothing shards them again."""
        if self.batch_tokens is None:
            return super().get_train_dataloader()
        lengths = _side_lengths(self.train_dataset)
        here = self.args.process_index, self.args.world_size
        self._order = TokenBatches(lengths, self.batch_tokens, self._data_seed, *here)
        data: Any = self.train_dataset
        return DataLoader(
            self._remove_unused_columns(data, description="training") if hasattr(data, "column_names") else data,
            batch_sampler=self._order,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )

    @property
    def _data_seed(self) -> int:
        return self.args.data_seed if self.args.data_seed is not None else self.args.seed

    def before_epoch(self) -> None:
        """Tells the sampler its epoch; when a run of several processes resumes, Trainer's own way does not reach it.

        A collator that does something else in every epoch, such as hiding tokens, has a `set_epoch`, too.
        """
        epoch = int(self.state.epoch or 0)
        if self._order is not None:
            self._order.set_epoch(epoch)
        self._tell_collator(epoch)

    def after_training(self) -> None:
        """What is looked at afterwards, to score or to repair, does not depend on how long training was."""
        self._tell_collator(0)

    def _tell_collator(self, epoch: int) -> None:
        if hasattr(self.data_collator, "set_epoch"):
            self.data_collator.set_epoch(epoch)

    # ---------------------------------------------------------------------------------------- logs and checkpoints

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

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Writes a checkpoint, seals it, and only then lets older ones go."""
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX}{self.state.global_step}"
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            with told(folder):
                super()._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()  # each process writes the state of its random numbers
                if self.args.should_save:
                    seal(folder, {"asked": self.asked, "remarks": self.remarks, "losses": self._doubts.losses()})
        finally:
            self.args.save_total_limit = limit
        if self.args.should_save:
            rotate(folder.parent, limit, (folder, self.state.best_model_checkpoint))

    def _save(self, *args: Any, **kwargs: Any) -> None:
        """Writes the parameters under the names they have in the model.

        `save_pretrained` by itself writes some architectures (ViT, for one) under the names of their older checkpoints,
        and Trainer resumes by plain names.
        """
        model = self.accelerator.unwrap_model(self.model)
        if isinstance(model, PreTrainedModel):
            vars(model)["save_pretrained"] = partial(model.save_pretrained, save_original_format=False)
        try:
            super()._save(*args, **kwargs)
        finally:
            vars(model).pop("save_pretrained", None)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """A checkpoint that does not fit is an error here, not a warning."""
        tied = set(getattr(self.model, "all_tied_weights_keys", None) or {})
        unsaved = set(getattr(self.model, "_keys_to_ignore_on_save", None) or ())  # sinusoids, which are made again
        missing = [name for name in load_result.missing_keys if name not in tied | unsaved]
        if missing or load_result.unexpected_keys:
            name = (missing or load_result.unexpected_keys)[0]
            raise ValueError(
                f"The checkpoint does not fit the model (first difference: {name}); start without --resume."
            )


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


class LengthGroups(Sampler[int]):
    """Random batches of examples of similar length; the order is a function of seed and epoch."""

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int):
        self.lengths = torch.as_tensor(lengths)
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the data loader before every epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator)
        pools = torch.split(order, self.batch_size * 50)
        batches = [batch for pool in pools for batch in torch.split(self._sorted(pool), self.batch_size)]
        whole = [batch for batch in batches if len(batch) == self.batch_size]
        rest = [batch for batch in batches if len(batch) < self.batch_size]  # short batches come last, as one pool
        shuffled = [whole[index] for index in torch.randperm(len(whole), generator=generator).tolist()]
        return iter(torch.cat([*shuffled, *rest]).tolist())

    def _sorted(self, pool: Tensor) -> Tensor:
        return pool[self.lengths[pool].argsort(descending=True, stable=True)]


def items_per_example(batch: Any, shifted: bool = False) -> Tensor:
    """How many labels of each example count in a mean loss, (B,): tokens that are not -100, or one label."""
    labels: Tensor | None = batch.get("labels") if hasattr(batch, "get") else None
    if labels is None:
        size = next((len(value) for value in batch.values() if isinstance(value, Tensor) and value.dim()), 1)
        return torch.ones(size)
    if labels.is_floating_point() or labels.dim() < 2:
        return torch.ones(len(labels))
    labels = labels[..., 1:] if shifted else labels
    return (labels != -100).flatten(1).sum(1)


def _lengths(dataset: Any, column: str) -> list[int]:
    if column in getattr(dataset, "column_names", ()):
        return list(dataset[column])
    return [len(example["input_ids"]) for example in dataset]


def _side_lengths(dataset: Any) -> list[tuple[int, int]]:
    """Tokens of source and target of each example."""
    if hasattr(dataset, "column_names"):  # whole columns are read faster than rows
        columns = (dataset["input_ids"], dataset["labels"])
        return list(zip(*([len(ids) for ids in column] for column in columns), strict=True))
    return [(len(example["input_ids"]), len(example["labels"])) for example in dataset]


def _ran_out(stopping: EarlyStoppingCallback, state: TrainerState) -> bool:
    """Whether the run whose state it is has waited for an improvement as long as this callback waits."""
    stored: Any = state.stateful_callbacks or {}  # as read from a file
    found = stored.get(type(stopping).__name__, [])
    entries = found if isinstance(found, list) else [found]
    waited = [entry["attributes"]["early_stopping_patience_counter"] for entry in entries]
    return any(count >= stopping.early_stopping_patience for count in waited)


def _beyond_mixin(cls: type) -> tuple[type, ...]:
    order = cls.__mro__
    return order[order.index(GatedTrainerMixin) + 1 :]


def _refuse_backends(trainer: Any) -> None:
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
