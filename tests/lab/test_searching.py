"""prune --at-most: the smallest model that is good enough, which data decided, and what else judges it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command import call, place
from kheads import Budget, Goal, discover, load
from kheads.blocks.costs import parameters
from kheads.lab import searching
from kheads.lab.jobs.job import Job
from kheads.lab.preview.ready import ready
from kheads.lab.searching import MORE, Jury, Try, _settle, search
from kheads.training.run import Run

__all__ = ["place"]

DATA: dict[str, Any] = {"train": "train.jsonl", "eval": {"dev": "dev.jsonl", "test": "dev.jsonl"}}
WORDS = ("--train", "train.jsonl", "--eval", "dev=dev.jsonl", "--eval", "test=dev.jsonl", "--batch-size", "4")


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Quality falls with the blocks that go, by one point for ten; gives how many each model kept."""
    seen: list[int] = []
    whole = 132  # heads and neurons

    def cut(run: Any, kept: Any, tell: Any) -> Any:
        seen.append(len(kept))
        found = {name: {"accuracy": 1 / 3 - 0.001 * (whole - len(kept))} for name in ("dev", "test")}
        return found, found

    monkeypatch.setattr(searching, "cut_and_repaired", cut)
    return seen


def test_halving_finds_the_smallest_that_holds_and_scores_once(
    place: Path, graded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    inner = Run.estimate

    def estimate(self: Run) -> None:
        calls.append(1)
        inner(self)

    monkeypatch.setattr(Run, "estimate", estimate)
    job = Job("tiny", data=DATA, batch_size=4, at_most=5.0, no_training=True)
    made = search(job, place / "small", quiet=True)
    said = made.record["report"]["at_most"]
    repaired = [tried for tried in said["tried"][:-1] if tried["stage"] == "repaired"]
    assert 4 <= len(repaired) <= 6 and len(calls) == 2  # for the search, and for the run that makes the model
    good = [tried["budget"]["params"] for tried in repaired if tried["holds"]]
    bad = [tried["budget"]["params"] for tried in repaired if not tried["holds"]]
    assert all(tried["holds"] == (tried["worse"] <= 5) for tried in repaired) and min(good) > max(bad)
    assert made.record["settings"]["smaller"] == pytest.approx(1 - min(good))
    sizes = [made.record[when]["parameters"] for when in ("before", "after")]
    assert sizes[1] <= min(good) * sizes[0]
    assert (said["limit"], said["unit"], said["decided_by"], list(said["judged_by"])) == (5, "points", "dev", ["test"])
    assert json.loads((place / "small" / "result.json").read_text())["report"]["at_most"] == json.loads(
        json.dumps(said)
    )
    assert load(place / "small").num_parameters() == sizes[1]
    assert sorted(path.name for path in place.iterdir() if path.name.startswith((".small", "small"))) == ["small"]


@given(
    st.integers(0, 9), st.lists(st.floats(0, 3), min_size=10, max_size=10), st.sampled_from([0, MORE]), st.floats(0, 3)
)
def test_smaller_ones_are_tried_while_they_hold_and_larger_ones_if_the_first_does_not(
    start: int, worse: list[float], more: int, limit: float
) -> None:
    seen: list[int] = []

    def attempt(at: int) -> Any:
        seen.append(at)
        return Try(None, "all", "trained", 0.0, worse[at], worse[at] <= limit), at  # type: ignore[arg-type]

    best, at, made = _settle(attempt, start, 10, more)
    assert at == made and best.worse == worse[at] and len(seen) <= 1 + more and seen[0] == start
    held = [place for place in seen if worse[place] <= limit]
    assert best.holds == bool(held)
    if worse[start] <= limit:
        assert at == max(held) and seen == list(range(start, start + len(seen)))
    elif not held:
        assert best.worse == min(worse[place] for place in seen)


def test_each_step_is_a_line_and_the_result_says_who_decided(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(searching, "STEPS", 4)
    words = ("prune", "tiny", *WORDS, "--at-most", "40", "--parts", "ffn", "--max-steps", "2", "-o", "small")
    assert call(monkeypatch, *words) == 0
    told = capsys.readouterr()
    assert "looking for the smallest model at most 40 points worse on dev" in told.err
    assert "smaller, repaired: accuracy" in told.err and "smaller, trained: accuracy" in told.err
    assert "on dev, which decided." in told.out and "test, which had no say: " in told.out
    assert "accuracy, test" in told.out and " of 120 neurons" in told.out
    assert call(monkeypatch, *words) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_without_training_what_cannot_be_reached_is_refused(place: Path, graded: list[int]) -> None:
    job = Job("tiny", data=DATA, batch_size=4, at_most=0.0, no_training=True)
    with pytest.raises(ValueError, match=r"`at_most` 0 cannot be reached without training: the nearest is .* smaller"):
        search(job, place / "small", quiet=True)
    assert not (place / "small").exists()


def test_with_a_batch_the_smallest_is_the_fastest_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made_up(job: Job, model: Any, budget: Budget, parts: str) -> Goal:
        sites = discover(model, parts=parts)
        return Goal(budget, sites, costs=replace(parameters(sites), currency="ms"))

    monkeypatch.setattr(searching, "goal_for", made_up)
    job = Job("tiny", data=DATA, at_most=1.0, at="2x6")
    settled, prepared = ready(Job("tiny", data=DATA))
    goals = searching._goals(job, settled, prepared)
    budgets = [goal.budget for goal in goals]
    assert all(isinstance(budget, Budget) and (budget.name, budget.at) == ("speedup", (2, 6)) for budget in budgets)
    amounts = [budget.amount for budget in budgets if isinstance(budget, Budget)]
    assert amounts == sorted(set(amounts)) and amounts[0] > 1 and {goal.parts for goal in goals} == {"all"}
    found = searching._job(job, settled, goals[3])
    assert (found.speedup, found.at, found.at_most, found.parts) == (amounts[3], "2x6", None, "all")
    assert found.budget == budgets[3]


def test_where_lower_is_better_the_limit_is_in_percent() -> None:
    jury = Jury("perplexity", True, "dev", 10, {"dev": {"perplexity": 20.0}}, 5.0)
    assert jury.loss({"dev": {"perplexity": 21.0}}) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--at-most", "1", "-k", "3"), "`-k` and `--at-most` each say how much may stay; give one of them."),
        (("--at-most", "1", "--speedup", "2"), "`--speedup` and `--at-most` each say how much may stay"),
        (("--at-most", "-1"), "`--at-most` must be a number from 0 up, or none; got -1.0."),
        (("--at-most", "1", "--resume"), "`--at-most` looks for a size anew each time; leave out --resume."),
        (("--at-most", "1", "--fresh"), "`--fresh` has no effect here: a size is looked for by cutting"),
        (("--at-most", "1", "--no-repair"), "`--no-repair` has no effect here: a size is looked for by repairing"),
        (("--at-most", "1", "--min-per-site", "1"), "`--min-per-site` does not go with `--at-most`"),
        (("--at-most", "1", "--method", "dsp"), "must score heads once for every K"),
        (("--at-most", "1", "--at", "8"), "must be BATCHxTOKENS, such as 8x128"),
    ],
)
def test_what_does_not_go_with_it_is_refused_before_the_work(
    words: tuple[str, ...],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(searching, "_repaired", None)
    assert call(monkeypatch, "prune", "tiny", *WORDS, *words, "-o", "small") == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (place / "small").exists()


def test_a_sweep_names_its_sizes(place: Path) -> None:
    from kheads.lab.sweep import expand

    with pytest.raises(ValueError, match=r"\[job\] has no `at_most`"):
        expand({"job": {"model": "tiny", "at_most": 1.0}, "grid": {"methods": ["surgeon"], "k": [3]}})
