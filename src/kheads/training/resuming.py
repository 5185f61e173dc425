"""A training taken up again: checkpoints that are sealed, and read back into the training that wrote them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
from transformers import EarlyStoppingCallback, PreTrainedModel, TrainerState
from transformers.trainer_utils import TrainOutput

from kheads.storage.disk import told
from kheads.training.asked import refuse_other
from kheads.training.callbacks import Doubts
from kheads.training.checkpoints import (
    PREFIX,
    CheckpointsError,
    choose,
    fault,
    read_seal,
    rotate,
    seal,
    set_aside,
)
from kheads.training.hooks import Extension
from kheads.training.progress import say

STATE = "trainer_state.json"
OPTIMIZER, SCHEDULER = "optimizer.pt", "scheduler.pt"


class Resuming(Extension):
    """The part of a gated trainer that writes checkpoints and goes on from them.

    Attributes:
        asked: what the run was asked to do; checkpoints carry it, and one that carries something else is refused.
        remarks: what was wrong with the training, a sentence each.
    """

    asked: Mapping[str, Any]
    remarks: list[str]
    _doubts: Doubts

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


def _ran_out(stopping: EarlyStoppingCallback, state: TrainerState) -> bool:
    """Whether the run whose state it is has waited for an improvement as long as this callback waits."""
    stored: Any = state.stateful_callbacks or {}  # as read from a file
    found = stored.get(type(stopping).__name__, [])
    entries = found if isinstance(found, list) else [found]
    waited = [entry["attributes"]["early_stopping_patience_counter"] for entry in entries]
    return any(count >= stopping.early_stopping_patience for count in waited)
