"""Sweeps over budgets: their runs, their report, and what to take."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from command import call, place
from kheads.lab.report import page
from kheads.lab.report.budget_quality import budget_figures, budget_table, spots
from kheads.lab.report.choosing import at_least, options, within
from kheads.lab.report.drawing import Heat, Panel
from kheads.lab.report.efficiency import tradeoff_figure
from kheads.lab.report.findings import findings
from kheads.lab.report.results import Results, read
from kheads.lab.report.sweep_page import sweep_page
from kheads.lab.sweep import Here, drive, expand
from report_results import figures_of, series
from synthetic_results import Maker, write_sweep

__all__ = ["place"]

JOB = {"model": "minilm", "task": "made-nli", "max_steps": 3}


def runs(grid: Any, **job: Any) -> dict[str, Any]:
    return {run.id: run for run in expand({"job": {**JOB, **job}, "grid": grid}).runs}


# Plans


def test_a_budget_is_an_axis_and_the_unpruned_model_has_none() -> None:
    found = runs({"methods": ["none", "surgeon"], "speedup": [1.5, 2], "seeds": [0, 1]}, at="8x64")
    assert list(found) == [
        *("none-s0", "surgeon-speedup1.5-s0", "surgeon-speedup2-s0"),
        *("none-s1", "surgeon-speedup1.5-s1", "surgeon-speedup2-s1"),
    ]
    assert found["surgeon-speedup2-s0"].job.speedup == 2.0 and found["surgeon-speedup2-s0"].job.at == "8x64"
    assert found["none-s0"].job.budget is None and found["none-s0"].job.at is None
    sizes = runs({"methods": ["surgeon"], "smaller": [0.25], "parts": ["heads", "all"]}, trained=True)
    assert list(sizes) == ["surgeon-smaller0.25-s0-parts_heads", "surgeon-smaller0.25-s0-parts_all"]


def test_scores_of_a_budget_are_its_own() -> None:
    """What a block is worth goes by what it costs; only numbers of heads share a run."""
    budgets = runs({"methods": ["surgeon", "michel"], "smaller": [0.2, 0.4], "seeds": [0]}, trained=True)
    assert all(run.scores_from is None for run in budgets.values()) and len(budgets) == 4
    both = expand(
        {
            "job": {**JOB, "trained": True},
            "grid": [{"methods": ["surgeon"], "k": [3, 6]}, {"methods": ["surgeon"], "smaller": [0.2]}],
        }
    )
    served = {run.id: run.scores_from for run in both.runs}
    assert served == {"surgeon-k3-s0": None, "surgeon-smaller0.2-s0": None, "surgeon-k6-s0": "surgeon-k3-s0"}
    assert both.describe()["axes"]["smaller"] == [0.2] and both.describe()["axes"]["k"] == [3, 6]


def test_grids_of_heads_and_of_speed_share_a_job() -> None:
    """What the time is measured at is for those that ask for time."""
    grids = [{"methods": ["surgeon"], "k": [3]}, {"methods": ["surgeon"], "speedup": [2]}]
    found = runs(grids, trained=True, at="8x64", threads=2)
    assert [(name, run.job.at, run.job.threads) for name, run in found.items()] == [
        ("surgeon-k3-s0", None, None),
        ("surgeon-speedup2-s0", "8x64", 2),
    ]


@pytest.mark.parametrize(
    ("grid", "job", "message"),
    [
        ({"methods": ["surgeon"], "k": [3]}, {"at": "8x64"}, "`at` in .job. is for budgets of FLOPs or time"),
        ({"methods": ["none"]}, {"threads": 2}, "`threads` in .job. is for budgets of FLOPs or time"),
        ({"methods": ["surgeon"], "k": [3], "at": ["8x64"]}, {}, "`at` is for budgets of FLOPs or time; `k` counts"),
        ({"methods": ["surgeon"], "k": [3], "speedup": [2]}, {}, "`k` and `speedup` in one .grid. each say how much"),
        ({"methods": ["surgeon"], "speedup": [0.5]}, {}, "must be a number above 1, or none; got 0.5"),
        ({"methods": ["surgeon"], "smaller": ["30%"]}, {}, "`smaller in .grid.` must be"),
        ({"methods": ["surgeon"], "k": [3]}, {"speedup": 2.0}, "`speedup` does not belong in .job.; give `speedup` in"),
        ({"methods": ["surgeon"], "smaller": [0.2]}, {"at": "8x64"}, "`at` is for `flops`, `speedup` and `ms`"),
    ],
)
def test_what_cannot_be_is_refused(grid: Any, job: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runs(grid, **job)


# Runs


def test_from_a_config_to_its_page(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "job": {"model": "tiny", "trained": True, "batch_size": 4, "no_training": True, "data": DATA},
        "grid": {"methods": ["surgeon"], "smaller": [0.1, 0.2], "parts": ["all"]},
    }
    plan = expand(config)
    status = drive(plan, place / "results", Here())
    assert status.count("done") == 2, status.reasons
    again = drive(plan, place / "results", Here())
    assert again.count("done") == 2
    results = read(place / "results")
    assert len(results.budgeted) == 2 and not results.runs
    for run in results.budgeted:
        assert (
            run.budget
            and run.record["after"]["parameters"] <= (1 - run.budget.amount) * run.record["before"]["parameters"]
        )
    figures = {figure.key: figure for figure in figures_of(results)}
    assert "budgets-size" in figures and "quality" not in figures
    heat = figures["budgets-kept"].panels[0]
    assert isinstance(heat, Heat) and heat.groups == [("encoder", 3), ("ffn", 3)]
    assert list(heat.rows) == ["10 % smaller", "20 % smaller"]
    assert all(value is not None and 0 <= value <= 100 for row in heat.values for value in row)
    assert call(monkeypatch, "choose", "results", "--at-least", "0") == 0
    assert "20 % smaller" in capsys.readouterr().out.splitlines()[0]
    assert call(monkeypatch, "report", "results", "-o", "page.html") == 0
    assert "Quality against parameters" in (place / "page.html").read_text()


DATA = {"train": "train.jsonl", "eval": {"dev": "dev.jsonl"}}


# Reports


def with_budgets(folder: Path, counted: bool) -> Results:
    """Made-up runs at four speed-ups and two sizes; `counted` adds those of the usual sweep."""
    maker = Maker(3)
    where = write_sweep(folder) if counted else folder
    (where / "runs").mkdir(parents=True, exist_ok=True)
    for seed in range(3):
        for name, amount in (("speedup", 1.5), ("speedup", 3.0), ("smaller", 0.3)):
            record = copy.deepcopy(maker.record("dsp", 12, seed))
            record["settings"] |= {"k": None, name: amount}
            record["run"] |= {"k": None, "id": f"dsp-{name}{amount}-s{seed}"}
            left = 0.7 if name == "smaller" else 1 / amount
            record["after"] |= {"parameters": int(22_700_000 * left), "neurons": int(9216 * left)}
            record["before"]["neurons"] = 9216
            record["metrics"]["pruned"]["mismatched"]["accuracy"] = 0.8 * left**0.1
            if name == "speedup":
                reached = {"value": amount + 0.01, "low": amount - 0.01, "high": amount + 0.02}
                ratio = {"ratio": reached["value"], "low": reached["low"], "high": reached["high"]}
                record["report"]["budget"] = {"asked": {name: amount}, "reached": reached, "speedup": ratio}
            (where / "runs" / f"{record['run']['id']}.json").write_text(json.dumps(record))
    return read(where)


def test_quality_is_drawn_against_parameters_and_against_speed(tmp_path: Path) -> None:
    results = with_budgets(tmp_path / "only", counted=False)
    figures = {figure.key: figure for figure in budget_figures(results)}
    size, speed = (series(figures[key], "Joint DSP") for key in ("budgets-size", "budgets-speed"))
    assert list(size.x) == sorted(size.x) and len(size.x) == 3 and list(speed.x) == pytest.approx([1.51, 3.01])
    table = budget_table(results)
    assert table and [row[1] for row in table.rows] == ["30 % smaller", "1.5 times as fast", "3 times as fast"]
    assert table.rows[-1][5].endswith("3.01") and "." not in table.rows[0][5]
    assert "3 times as fast, with 33 % of the parameters" in findings(results)[0]
    written = page.write(sweep_page(results), tmp_path / "page.html")
    text = written[0].read_text().partition("<script>")[0]
    assert "Quality against speed" in text and 'id="claims"' not in text and "9 runs" in text


def test_beside_budgets_sweeps_of_k_stay_as_they_are(tmp_path: Path, sweep: Results) -> None:
    both = with_budgets(tmp_path / "both", counted=True)
    alone = {figure.key for figure in figures_of(sweep)}
    assert {figure.key for figure in figures_of(both)} == alone | {"budgets-size", "budgets-speed", "budgets-kept"}
    assert not budget_figures(sweep) and budget_table(sweep) is None and not spots(sweep)
    labels = {spot.look.label for spot in spots(both)}
    assert {"Joint DSP", "Joint DSP (K)", "Michel (K)"} <= labels
    assert [run.k for run in both.runs] == [run.k for run in sweep.runs]


def test_what_budgets_save_stands_beside_what_heads_alone_save(tmp_path: Path, sweep: Results) -> None:
    both = with_budgets(tmp_path / "both", counted=True)
    speed, size = (figure := tradeoff_figure(both) or pytest.fail("no figure")).panels
    within, alone = "Joint DSP, within a budget", "Joint DSP"
    assert isinstance(speed, Panel) and isinstance(size, Panel) and "every point is a budget" in figure.caption
    timed, sized = ({line.look.label: line for line in panel.series} for panel in (speed, size))
    assert list(timed[within].y) == pytest.approx([3.01, 1.51]) and all((y or 9) < 1.7 for y in timed[alone].y)
    assert list(sized[within].y) == pytest.approx([66.7, 33.3, 30], abs=0.1)
    assert list(sized[within].notes) == ["3 times as fast", "1.5 times as fast", "30 % smaller"]
    before = tradeoff_figure(sweep)
    assert before and within not in {look.label for look in before.legend()} and "budget" not in before.caption


def test_the_smallest_model_that_is_good_enough_and_the_largest_that_fits(tmp_path: Path) -> None:
    results = with_budgets(tmp_path / "only", counted=False)
    assert [option.budget for option in options(results)] == ["3 times as fast", "1.5 times as fast", "30 % smaller"]
    good = at_least(results, 0.75)
    assert good.option.budget == "1.5 times as fast" and "The smallest model whose mean accuracy" in good.why
    assert "The next smaller one does not: 3 times as fast, Joint DSP" in good.why
    fits = within(results, 10_000_000, "parameters")
    assert fits.option.budget == "3 times as fast" and fits.to_dict()["chosen"]["budget"] == "3 times as fast"
    with pytest.raises(ValueError, match=r"No model fits into 1,000 parameters; the least is .* at 3 times as fast"):
        within(results, 1000, "parameters")
    with pytest.raises(ValueError, match="`--method` must be one of dsp; got 'michel'"):
        options(results, "michel")


@pytest.mark.parametrize("damage", [{"reached": 3}, {"reached": {"low": 1.0}}, {"asked": 2}])
def test_a_damaged_budget_is_refused_in_a_sentence(tmp_path: Path, damage: dict[str, Any]) -> None:
    results = with_budgets(tmp_path / "only", counted=False)
    path = next((tmp_path / "only" / "runs").glob("dsp-speedup3*"))
    record = json.loads(path.read_text())
    record["report"]["budget"] = damage
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"is damaged, or of another version of kheads: report\.budget\."):
        read(results.folder)
