"""The committed results are complete, and the report that `make figures` builds from them has every figure."""

import json
from collections import Counter
from pathlib import Path

import pytest

from kheads.lab.report.claims import Claims, all_claims
from kheads.lab.report.comparison import comparison_table
from kheads.lab.report.drawing import Figure
from kheads.lab.report.results import NONE, Results, read
from kheads.lab.report.sweep_page import sweep_page
from kheads.lab.report.verdicts import TOO_LITTLE

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
KS = {48, 24, 12, 6, 3, 1}
RUNS = {
    "made_nli": 230,
    "language_model/results": 3,
    "embedding/results": 9,
    "budgets/results": 107,
    "few_heads/results": 20,
    "few_heads/mnli": 6,
    "few_heads/mnli_half": 3,
    "mnli_minilm": 39,
    "mnli_minilm/results": 18,
    "multi30k_small/results": 16,
    "trained/results": 57,
    "trained/mnli": 45,
    "trained/fresh": 16,
}


@pytest.fixture(scope="module")
def results() -> Results:
    packed = EXPERIMENTS / "made_nli.jsonl.gz"
    return read(packed, efficiency=[EXPERIMENTS / "efficiency", EXPERIMENTS / "efficiency_minilm"])


@pytest.mark.parametrize("name", RUNS)
def test_every_packed_file_is_whole_and_speaks_the_names_of_today(name: str) -> None:
    results = read(EXPERIMENTS / f"{name}.jsonl.gz")
    runs = (*results.runs, *results.budgeted)
    assert len(runs) == RUNS[name] and not results.failed
    for run in runs:
        assert set(run.record["look"]) == {"key", "label", "slot", "colour", "marker", "dash", "rank"}
        assert {"extra_gradients", *(["trains_model"] if run.key != NONE else [])} <= set(run.report)
        assert all("count" in site for site in run.record["before"].get("sites", []))
        assert not {"lr", "lr_schedule", "start", "end", "lambda"} & {
            *run.record["method"],
            *run.settings["method_options"],
            *run.report.get("method", {}),
        }


def test_every_method_ran_at_every_k_with_two_seeds(results: Results) -> None:
    assert not results.failed
    plain = [run for run in results.runs if not run.about["axes"]]
    found = Counter((run.key, run.k) for run in plain)
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
    without = [found.claim.says for found in claims.without_data]
    assert len(claims.with_data) == 15 and len(without) == 2, without  # those two are about encoder-decoders
    # Two seeds decide none of the claims about methods; those about speed do not depend on a seed.
    judged = [found.claim for found in claims.findings if found.verdict != TOO_LITTLE]
    assert len(judged) == 2 and not any(claim.series for claim in judged)


def test_the_numbers_behind_the_claims_are_those_in_the_log(results: Results) -> None:
    told = {found.claim.says.partition(" is better")[0]: found.ours for found in all_claims(results).findings}
    assert told["Pipelined DSP"] == "\u22121.68 points"
    assert told["With less than 1/6 of the heads, joint DSP"] in ("+8.97 points", "+11.93 points")
    table = comparison_table(results)
    assert table and {row[0]: row[1:3] for row in table.rows}["Prune and retrain"] == ["512", "\u221216.0"]
