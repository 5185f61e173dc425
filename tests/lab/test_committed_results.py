"""The committed results are complete, and the report that `make figures` builds from them has every figure."""

import json
from collections import Counter
from pathlib import Path

import pytest

from kheads.lab.report.claims import Claims
from kheads.lab.report.drawing import Figure
from kheads.lab.report.results import Results, read
from kheads.lab.report.sweep_page import sweep_page
from kheads.lab.report.verdicts import TOO_LITTLE

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
KS = {48, 24, 12, 6, 3, 1}


@pytest.fixture(scope="module")
def results() -> Results:
    return read(EXPERIMENTS / "made_nli", efficiency=[EXPERIMENTS / "efficiency", EXPERIMENTS / "efficiency_minilm"])


def test_every_method_ran_at_every_k_with_two_seeds(results: Results) -> None:
    assert not results.failed
    plain = [run for run in results.runs if not run.about["axes"]]
    found = Counter((run.variant.key, run.k) for run in plain)
    methods = ("dsp", "dsp-pipelined", "ste", "voita", "michel", "retrain", "random")
    assert found == {**{(method, k): 2 for method in methods for k in KS}, ("none", 72): 2}
    assert all(len(run.kept) == run.k for run in results.runs)


def test_the_staircase_and_the_dynamics_are_there(results: Results) -> None:
    staircase = [run.own_heads for run in results.runs if "weight" in str(run.about["axes"])]
    assert len({own[0] for own in staircase if own}) >= 8
    shown = Counter((run.k, run.annealed) for run in results.runs if "eval_steps" in str(run.about["axes"]))
    assert shown == {(k, annealed): 2 for k in (24, 12, 6) for annealed in (True, False)}


def test_the_efficiency_experiment_reaches_what_heads_can_give() -> None:
    """BERT-base geometry at K = 12 of 144: 23.7 % fewer parameters, and 95 % of the most that speed can gain."""
    measured = json.loads((EXPERIMENTS / "efficiency" / "efficiency.json").read_text())
    masks = [row for row in measured["rows"] if row["k"] == 12 and row["placement"] == "random"]
    assert len({row["k"] for row in measured["rows"]}) >= 8 and len(masks) == 10
    assert {round(100 * row["shrinkage"], 1) for row in masks} == {23.7}
    assert sum(row["speedup"] / row["limit"] for row in masks) / len(masks) >= 0.95


def test_the_page_has_every_figure_of_the_paper(results: Results) -> None:
    items = [item for section in sweep_page(results).sections for item in section.items]
    drawn = [item.key for item in items if isinstance(item, Figure)]
    assert drawn == [
        "quality",
        "penalty",
        "efficiency-1",
        "efficiency-2",
        "tradeoff",
        "distribution",
        "agreement",
        *[f"dynamics-{k}-preset-paper" for k in (6, 12, 24)],
    ]
    claims = next(item for item in items if isinstance(item, Claims))
    judged = [claim.paper for claim in claims.claims if claim.verdict != TOO_LITTLE]
    assert len(judged) >= 12, judged  # two more are about encoder-decoders
