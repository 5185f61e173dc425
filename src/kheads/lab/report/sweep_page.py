"""The page of a sweep: what was found, every figure of the paper that its results have data for, and the claims."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from kheads.lab.report.budget_quality import budget_figures, budget_table, kept_figure
from kheads.lab.report.claims import all_claims
from kheads.lab.report.comparison import comparison_table
from kheads.lab.report.contents import Page, Section
from kheads.lab.report.distribution import agreement_figure, distribution_figure
from kheads.lab.report.drawing import Figure, Table
from kheads.lab.report.dynamics import dynamics_figures
from kheads.lab.report.efficiency import efficiency_items, tradeoff_figure
from kheads.lab.report.findings import findings
from kheads.lab.report.penalty import penalty_figure
from kheads.lab.report.quality import quality_figure, quality_table
from kheads.lab.report.results import Results
from kheads.lab.report.setting import machines, setting
from kheads.measuring.statistics import DECIDES

CLAIMS_TEXT = (
    "What the paper says, one claim of our own, and what these results say of them. Each verdict is computed from the "
    "runs: confirmed where the whole 95 % interval over seeds is on the claim's side, not confirmed where it is not, "
    f"not enough data where there is nothing to compare or fewer than {DECIDES} seeds."
)


def sweep_page(results: Results) -> Page:
    """Everything that a results folder has to show."""
    sections = [
        Section(
            "quality", "Quality", _there(quality_figure(results), quality_table(results), comparison_table(results))
        ),
        Section("budgets", "Budgets", _there(*budget_figures(results), budget_table(results), kept_figure(results))),
        Section("penalty", "Control over K", _there(penalty_figure(results))),
        Section("efficiency", "Speed and size", _there(*efficiency_items(results), tradeoff_figure(results))),
        Section("heads", "Which heads", _there(distribution_figure(results), agreement_figure(results))),
        Section("dynamics", "Training dynamics", _there(*dynamics_figures(results))),
        # The claims are about numbers of heads; a sweep of budgets alone says nothing of any.
        Section("claims", "Claims", [] if _only_budgets(results) else [all_claims(results)], CLAIMS_TEXT),
        Section("failed", "Failed runs", _there(_failures(results.failed))),
    ]
    name = str(results.sweep.get("name", results.folder.name))
    return Page(name, _lead(results), findings(results), facts(results), sections)


def _only_budgets(results: Results) -> bool:
    return bool(results.budgeted) and not results.compared


def _there(*items: Figure | Table | None) -> list[Figure | Table]:
    return [item for item in items if item is not None]


def _lead(results: Results) -> str:
    count = f"{len(results.finished)} run{'s'[: len(results.finished) != 1]}"
    failed = f", {len(results.failed)} failed" if results.failed else ""
    return f"{count}{failed}: {setting(results)}" if results.finished else "Measurements of speed and size."


def _failures(failed: Sequence[Mapping[str, Any]]) -> Table | None:
    if not failed:
        return None
    rows = [[str(run.get(key, "")) for key in ("id", "reason")] for run in failed]
    return Table("failed", "Runs that did not finish", ("Run", "Reason"), rows)


def facts(results: Results) -> list[tuple[str, str]]:
    """What was run, with which versions, on what."""
    sweep = results.sweep
    command = sweep.get("command")
    records = [run.record for run in results.finished] or list(results.efficiency)
    versions = sorted({_versions(record) for record in records if record.get("versions")})
    found = [
        ("Command", shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")),
        ("Runs", setting(results)),
        ("Axes", _axes(sweep.get("axes"))),
        ("Reported set", results.evaluation),
        ("Versions", "; ".join(versions)),
        ("Machine", machines(records)),
        ("Intervals", "95 % bootstrap over seeds, each seed's mean taken first; two seeds: their range."),
    ]
    return [(name, value) for name, value in found if value]


def _versions(record: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in record["versions"].items())


def _axes(axes: Any) -> str:
    named = axes.items() if isinstance(axes, Mapping) else ()
    return "; ".join(f"{name}: {_values(values)}" for name, values in named)


def _values(values: Any) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list) else str(values)
