"""What a single run says of its K, where there is no other to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kheads.lab.report.results import LOWER_IS_BETTER, NAME, Run, reported_set
from kheads.lab.terminal import metric as written

STAGES = ("recovered", "pruned")  # the last one that was reached is what was saved


@dataclass(frozen=True)
class Alone:
    """One K with what it gives.

    Attributes:
        k: the number of heads kept.
        total: the number there were.
        method: its name.
        parameters: of the pruned model.
        metric: the headline metric.
        evaluation: the set it was measured on.
        before: the unpruned model's; None where none was measured.
        after: the pruned model's; None where nothing was evaluated.
    """

    k: int
    total: int
    method: str
    parameters: float
    metric: str
    evaluation: str
    before: float | None
    after: float | None

    def told(self) -> str:
        """The run in two sentences."""
        return (
            f"{self.method} kept {self.k} of {self.total} heads: {self.parameters:,.0f} parameters. {self._quality()}"
        )

    def _quality(self) -> str:
        if self.after is None:
            return "Nothing was evaluated."
        before = (
            "the unpruned model was not measured"
            if self.before is None
            else f"the unpruned model has {written(self.metric, self.before)}"
        )
        return f"Its {self.metric} on {self.evaluation} is {written(self.metric, self.after)}; {before}."


def alone(run: Run, evaluation: str | None = None) -> Alone:
    """Reads one run.

    Args:
        run: the run.
        evaluation: the evaluation set that counts; the usual one if not given.
    """
    metrics = run.record["metrics"]
    stage = next((stage for stage in STAGES if metrics.get(stage)), STAGES[-1])
    names = list(metrics.get(stage, {}))
    if evaluation is not None and evaluation not in names:
        raise ValueError(f"`--set` must be one of {', '.join(names) or '(none)'}; got {evaluation!r}.")
    name = evaluation or (reported_set(names) if names else "")
    size, metric = float(run.record["after"]["parameters"]), str(run.record["metric"])
    before, after = run.quality(name, "unpruned"), run.quality(name, stage)
    return Alone(len(run.kept), run.total, run.look.label, size, metric, name, before, after)


def reaches(found: Alone, quality: float) -> bool | None:
    """Whether its quality is good enough; None where it is not known."""
    sign = -1 if found.metric in LOWER_IS_BETTER else 1
    return None if found.after is None else sign * found.after >= sign * quality


def how_to_choose(run: Run, folder: Path, option: str) -> str:
    """What it takes to choose a K.

    Args:
        run: the run that is there.
        folder: where it is.
        option: what was asked for, as an option of the command.
    """
    ks = sorted({k for k in (2 * run.k, run.k, run.k // 2) if 0 < k < run.total}, reverse=True)
    grid = f'[grid] with methods = ["none", "{run.record["method"]["name"]}"], k = {ks} and seeds = [0, 1, 2]'
    return (
        "One run is nothing to choose from. To compare several K, write a config with the settings of "
        f"{folder / NAME} under [job] and {grid}; then run `kheads sweep CONFIG.toml -o RESULTS` and "
        f"`kheads choose RESULTS {option}`."
    )
