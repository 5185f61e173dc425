"""What `prune` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from kheads.blocks.kept import Kept
from kheads.methods.base import Method
from kheads.storage.model_folder import save
from kheads.storage.new_folder import new_folder
from kheads.training import recording


@dataclass(frozen=True, repr=False)
class PruneResult:
    """What `prune` returns.

    Attributes:
        model: the model with exactly K heads, in eval mode.
        kept: the heads that stay.
        scores: one per head, (H,); empty where nothing was chosen.
        metrics: by stage and evaluation set: `pruned`; `masked`, the same before removal; `unpruned`, the
            model with all heads, where it was measured; `recovered`, after further training. Where the method itself
            trains on after its cut, `whole` and `cut` are right before and after that, and `pruned` is the end.
        history: the log of every phase, with the hard subset of every log step.
        report: what the method says of itself, what it cost, ghosts, durations, remarks.
        method: how the heads were chosen; None where all stay.
        before: heads, parameters and bytes of the model that was given.
        processor: the tokenizer or processor that was given for the trainer.
        embedder: how the model gives embeddings, if it was trained for these; sentence-transformers reads it.
    """

    model: Any  # a PreTrainedModel, of the class that was given
    kept: Kept
    scores: Tensor
    metrics: dict[str, dict[str, Any]]
    history: dict[str, list[dict[str, Any]]]
    report: dict[str, Any]
    method: Method | None
    before: dict[str, Any]
    processor: Any = None
    embedder: Any = None

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Writes the model, its tokenizer or processor and result.json to a folder that `kheads.load` reads.

        Args:
            folder: the folder to make; written whole or not at all.
            overwrite: replace a folder that kheads made.
        """
        return self.save_as(folder, self.record(), overwrite)

    def save_as(self, folder: str | Path, record: Mapping[str, Any], overwrite: bool = False) -> Path:
        """The same with a record that says more."""
        with new_folder(folder, overwrite) as made:
            save(self.model, made, tokenizer=self.processor, embedder=self.embedder)
            recording.write(record, made)
        return Path(folder)

    def record(self, settings: Mapping[str, Any] | None = None, metric: str | None = None) -> dict[str, Any]:
        """Everything about the run that another reader needs, as plain data.

        Args:
            settings: what the user asked for.
            metric: the headline metric of the task; the first that was measured if not given.
        """
        return {
            "method": recording.describe_method(self.method),
            "look": recording.describe_look(self.method, bool((settings or {}).get("pipelined"))),
            "settings": dict(settings or {}),
            "metric": metric or self._metric(),
            "metrics": self.metrics,
            "kept": self.kept.to_dict(),
            "scores": self.scores.tolist(),
            "before": self.before,
            "after": {**recording.describe_kept(self.kept, self.before), **recording.size_of(self.model)},
            "report": self.report,
            "history": self.history,
            "versions": recording.versions(),
            "machine": recording.machine(),
        }

    def __repr__(self) -> str:
        """Five lines: heads, parameters, quality before and after, and what to do next."""
        after = recording.size_of(self.model)["parameters"]
        before = self.before["parameters"]
        method = recording.describe_method(self.method)["name"]
        kept = recording.describe_kept(self.kept, self.before)
        stays = " and ".join(f"{number:,} of {self.before[name]:,} {name}" for name, number in kept.items())
        return "\n".join(
            (
                f"PruneResult: {stays} kept, chosen by {method}",
                f"  parameters: {before:,} before, {after:,} after ({100 * (after / before - 1):+.1f} %)",
                f"  unpruned:   {self._shown('unpruned') or 'not measured; baseline=True trains it as long'}",
                f"  pruned:     {self._shown('recovered') or self._shown('pruned') or 'no evaluation data'}",
                '  next:       result.save("folder"), result.model, result.metrics',
            )
        )

    def _shown(self, stage: str) -> str:
        return "; ".join(
            f"{name} " + ", ".join(f"{key} {value:.4g}" for key, value in found.items() if isinstance(value, float))
            for name, found in self.metrics.get(stage, {}).items()
        )

    def _metric(self) -> str:
        names = [name for found in self.metrics.get("pruned", {}).values() for name in found]
        return next((name for name in names if name != "loss"), "loss")
