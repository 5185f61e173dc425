"""Verdicts on the claims follow from the results, and turn with them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kheads.lab.report.claims import TESTS, all_claims
from kheads.lab.report.results import Results, Run
from kheads.lab.report.verdicts import CONFIRMED, NO_NUMBER, NOT_CONFIRMED, TOO_LITTLE, VERDICTS, Finding
from kheads.methods.claims import CLAIMS
from report_results import changed, figures_of, only
from synthetic_results import Maker


def finding(results: Results, beginning: str) -> Finding:
    (found,) = [found for found in all_claims(results).findings if found.claim.says.startswith(beginning)]
    return found


def verdict(results: Results, beginning: str) -> str:
    return finding(results, beginning).verdict


def test_every_claim_gets_a_verdict(sweep: Results, translation: Results) -> None:
    for results in (sweep, translation):
        claims = all_claims(results)
        assert len(claims.findings) == 17 and {found.verdict for found in claims.findings} <= set(VERDICTS)
        assert sum(count for _, count in claims.counts()) == 17
        assert all(found.why.endswith(".") for found in claims.findings)


def test_sixteen_claims_are_the_papers_and_one_is_ours() -> None:
    assert [claim.says for claim in CLAIMS if claim.source == "ours"] == [
        "Joint DSP is better than prune-and-retrain in as many steps."
    ]
    assert all(claim.source.startswith("the paper, §5.") for claim in CLAIMS if claim.source != "ours")
    assert {claim.test for claim in CLAIMS} == set(TESTS)


def test_claims_without_data_are_kept_apart(sweep: Results) -> None:
    claims = all_claims(sweep)
    assert {found.ours for found in claims.without_data} == {NO_NUMBER} and len(claims.without_data) == 2
    assert len(claims.with_data) + len(claims.without_data) == len(claims.findings)
    assert {(row[1], row[4]) for row in claims.table().rows} >= {("ours", CONFIRMED), ("the paper, §5.5", TOO_LITTLE)}


QUALITY_CLAIMS = {
    "Pipelined DSP is better than Michel": ("dsp-pipelined", "michel"),
    "Joint DSP is better than pipelined DSP": ("dsp", "dsp-pipelined"),
    "With less than 1/6 of the heads, joint DSP is better than Voita": ("dsp", "voita"),
    "With less than 1/6 of the heads, joint DSP is better than STE": ("dsp", "ste"),
    "Joint DSP is better than prune-and-retrain": ("dsp", "retrain"),
}


@pytest.mark.parametrize("claim", QUALITY_CLAIMS)
def test_a_claim_of_quality_turns_with_the_numbers(sweep: Results, claim: str) -> None:
    better, worse = QUALITY_CLAIMS[claim]
    assert verdict(sweep, claim) == CONFIRMED

    def lift(record: dict[str, Any]) -> None:
        if record["look"]["key"] == worse:
            for found in record["metrics"]["pruned"].values():
                found["accuracy"] += 0.5

    assert verdict(changed(sweep, lift), claim) == NOT_CONFIRMED
    assert verdict(only(sweep, lambda run: run.key != better), claim) == TOO_LITTLE
    assert verdict(only(sweep, lambda run: run.k == 6 and run.seed < 2), claim) == TOO_LITTLE


def test_two_seeds_decide_nothing_however_many_k_they_have(sweep: Results) -> None:
    """Twelve pairs of K and seed are two seeds, and their numbers are a range."""
    two = only(sweep, lambda run: run.seed < 2)
    by_seeds = [found for found in all_claims(two).findings if found.claim.series and found.has_data]
    assert len(by_seeds) > 10 and {found.verdict for found in by_seeds} == {TOO_LITTLE}
    found = finding(two, "Joint DSP is better than pipelined DSP")
    assert found.interval.endswith("(range of two)") and "Two seeds decide nothing." in found.why
    three = finding(sweep, "Joint DSP is better than pipelined DSP")
    assert three.verdict == CONFIRMED and "narrower than 95 %" in three.why and "range" not in three.interval


def test_seeds_that_disagree_confirm_nothing(sweep: Results) -> None:
    """One seed of three in which every K says the opposite is enough; by single runs it would be outvoted."""

    def turn(record: dict[str, Any]) -> None:
        if record["look"]["key"] == "dsp" and record["settings"]["seed"] == 0:
            for found in record["metrics"]["pruned"].values():
                found["accuracy"] -= 0.3

    assert verdict(changed(sweep, turn), "Joint DSP is better than pipelined DSP") == NOT_CONFIRMED


def test_where_less_is_better_the_comparison_turns(sweep: Results) -> None:
    def perplexity(record: dict[str, Any]) -> None:
        record["metric"] = "perplexity"
        for stage in record["metrics"].values():
            for found in stage.values():
                found["perplexity"] = 1 / found["accuracy"]

    assert verdict(changed(sweep, perplexity), "Joint DSP is better than pipelined DSP") == CONFIRMED


def test_joint_above_pipelined_needs_all_methods(sweep: Results) -> None:
    assert verdict(sweep, "Joint methods") == CONFIRMED
    assert verdict(only(sweep, lambda run: run.key != "ste"), "Joint methods") == TOO_LITTLE


def staircase(heads: list[int], seeds: int = 3) -> Results:
    """Voita's own numbers of heads at rising lambda, the same with every seed."""
    maker = Maker()
    powers = range(len(heads), 0, -1)
    records = [maker.record("voita", 12, seed, weight=10.0**-power) for seed in range(seeds) for power in powers]
    for record, count in zip(records, heads * seeds, strict=True):
        record["report"]["method"]["natural_heads"] = count
    return Results(Path("made"), {}, tuple(Run(record) for record in records), (), (), "mismatched")


@pytest.mark.parametrize(
    ("heads", "monotone", "bound"),
    [
        ([60, 60, 40, 42, 10], CONFIRMED, CONFIRMED),
        ([60, 60, 40, 30, 10], NOT_CONFIRMED, CONFIRMED),
        ([72, 72, 40, 30, 10], NOT_CONFIRMED, NOT_CONFIRMED),
        ([70, 50, 40, 30, 10], NOT_CONFIRMED, TOO_LITTLE),
        ([60, 40, 10], TOO_LITTLE, TOO_LITTLE),
    ],
)
def test_the_staircase_is_judged_by_its_steps(heads: list[int], monotone: str, bound: str) -> None:
    results = staircase(heads)
    assert verdict(results, "The number of heads does not fall") == monotone
    assert verdict(results, "However small") == bound
    fewer = staircase(heads, seeds=2)
    assert {verdict(fewer, claim) for claim in ("The number of heads does not", "However small")} == {TOO_LITTLE}


def test_where_heads_go_first_is_judged_by_layer_or_by_kind(sweep: Results, translation: Results) -> None:
    assert verdict(sweep, "The top layers") == CONFIRMED and verdict(sweep, "The middle layers") == CONFIRMED
    assert verdict(sweep, "Cross-attention") == TOO_LITTLE
    assert verdict(translation, "The top layers") == TOO_LITTLE and verdict(translation, "Cross-attention") == CONFIRMED

    def turned(record: dict[str, Any]) -> None:
        names, heads = list(record["kept"]), list(record["kept"].values())
        record["kept"] = dict(zip(names, heads[3:] + heads[:3], strict=True))

    assert verdict(changed(sweep, turned), "The top layers") == NOT_CONFIRMED


def test_no_encoder_head_with_few_heads(translation: Results) -> None:
    claim = "With less than 16 of 72 heads, no self-attention head"

    def emptied(record: dict[str, Any]) -> None:
        record["kept"] = {name: [] if name.startswith("encoder") else heads for name, heads in record["kept"].items()}

    def full(record: dict[str, Any]) -> None:
        record["kept"]["encoder.layer.0.attention"] = [0]

    assert verdict(changed(translation, emptied), claim) == CONFIRMED
    assert verdict(changed(translation, full), claim) == NOT_CONFIRMED


def test_annealing_is_judged_by_the_last_third_of_training(sweep: Results) -> None:
    assert verdict(sweep, "With annealing") == CONFIRMED and verdict(sweep, "Without annealing") == CONFIRMED
    assert verdict(only(sweep, lambda run: run.annealed), "Without annealing") == TOO_LITTLE

    def restless(record: dict[str, Any]) -> None:
        entries = [entry for entry in record["history"].get("gates", []) if "kept" in entry]
        if entries:
            last = list(record["kept"])[-1]
            entries[-2]["kept"] = {last: list(range(12))}

    assert verdict(changed(sweep, restless), "With annealing") == NOT_CONFIRMED


def with_speed(results: Results, change: Callable[[dict[str, Any]], float]) -> Results:
    rows = [{**row, "speedup": change(row)} for row in results.efficiency[0]["rows"]]
    return dataclasses.replace(results, efficiency=({**results.efficiency[0], "rows": rows},))


def test_speed_claims_turn_with_the_measurements(sweep: Results) -> None:
    assert verdict(sweep, "Inference gets faster") == CONFIRMED and verdict(sweep, "Speed hardly depends") == CONFIRMED
    slower = with_speed(sweep, lambda row: 1.0 if row["k"] == 12 else row["speedup"])
    assert verdict(slower, "Inference gets faster") == NOT_CONFIRMED
    uneven = with_speed(sweep, lambda row: row["speedup"] * (1.2 if row["placement"] == "concentrated" else 1))
    assert verdict(uneven, "Speed hardly depends") == NOT_CONFIRMED


def test_overhead_is_judged_by_seconds_a_step(sweep: Results) -> None:
    """Seeds are what is independent: runs of one seed share its unpruned training."""
    again = [{**run.record, "run": {**run.record["run"], "seed": run.seed + 3}} for run in sweep.runs]
    six = dataclasses.replace(sweep, runs=(*sweep.runs, *map(Run, again)))
    assert verdict(only(sweep, lambda run: run.seed < 2), "Learning the gates jointly") == TOO_LITTLE
    assert {verdict(results, "Learning the gates jointly") for results in (sweep, six)} == {CONFIRMED}

    def slow(record: dict[str, Any]) -> None:
        if "gates" in record["report"]["seconds"]:
            record["report"]["seconds"]["gates"] *= 1.3

    assert verdict(changed(six, slow), "Learning the gates jointly") == NOT_CONFIRMED


def test_without_runs_nothing_is_claimed_of_them(sweep: Results) -> None:
    """An efficiency experiment alone still makes a page."""
    results = Results(sweep.folder, {"name": "speed"}, (), (), sweep.efficiency, "")
    assert sum(found.verdict != TOO_LITTLE for found in all_claims(results).findings) == 2
    assert [figure.key for figure in figures_of(results)] == ["efficiency"]
