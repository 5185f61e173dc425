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
        neurons: kept, and how many there were; None where only heads were chosen from.
        budget: what was asked for and what was reached, in words; None where heads were counted.
    """

    k: int
    total: int
    method: str
    parameters: float
    metric: str
    evaluation: str
    before: float | None
    after: float | None
    neurons: tuple[int, int] | None = None
    budget: str | None = None

    def told(self) -> str:
        """The run in two sentences."""
        kept = f"{self.k} of {self.total} heads"
        if self.neurons is not None:
            kept += f" and {self.neurons[0]:,} of {self.neurons[1]:,} neurons"
        asked = f" {self.budget}" if self.budget else ""
        return f"{self.method} kept {kept}: {self.parameters:,.0f} parameters.{asked} {self._quality()}"

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
    heads = len(run.kept) if run.columns else int(run.record["after"]["heads"])
    budget = f"Asked for: {run.budget.asked}; reached: {run.budget.reached}." if run.budget else None
    return Alone(heads, run.total, run.look.label, size, metric, name, before, after, _neurons(run), budget)


def _neurons(run: Run) -> tuple[int, int] | None:
    if not run.feeds:
        return None
    kept = sum(len(run.record["kept"].get(column.site, ())) for column in run.feeds)
    return kept, sum(column.heads for column in run.feeds)


def reaches(found: Alone, quality: float) -> bool | None:
    """Whether its quality is good enough; None where it is not known."""
    sign = -1 if found.metric in LOWER_IS_BETTER else 1
    return None if found.after is None else sign * found.after >= sign * quality


def how_to_choose(run: Run, folder: Path, option: str) -> str:
    """What it takes to choose a K, or a budget.

    Args:
        run: the run that is there.
        folder: where it is.
        option: what was asked for, as an option of the command.
    """
    what = "budgets" if run.budget else "K"
    grid = f'[grid] with methods = ["none", "{run.record["method"]["name"]}"], {_several(run)} and seeds = [0, 1, 2]'
    return (
        f"One run is nothing to choose from. To compare several {what}, write a config with the settings of "
        f"{folder / NAME} under [job] and {grid}; then run `kheads sweep CONFIG.toml -o RESULTS` and "
        f"`kheads choose RESULTS {option}`."
    )


def _several(run: Run) -> str:
    """More of what was asked for, as a sweep's config has it: k = [24, 12, 6], or smaller = [0.15, 0.3]."""
    if run.budget is None:
        ks = sorted({k for k in (2 * run.k, run.k, run.k // 2) if 0 < k < run.total}, reverse=True)
        return f"k = {ks}"
    name, amount = run.budget.name, run.budget.amount
    milder = {
        "speedup": (1 + amount) / 2,
        "smaller": amount / 2,
        "flops": (1 + amount) / 2 if amount < 1 else 2 * amount,
        "max_ms": 2 * amount,
    }[name]
    return f"{name} = [{milder:.4g}, {amount:.4g}]"
