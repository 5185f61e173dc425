"""A preview over budgets: heads alone beside all parts, which budget to take, and how it is shown."""

import dataclasses
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

import kheads
from command import Fresh, call, place
from kheads import Budget, Kept
from kheads.lab import budget_preview
from kheads.lab import preview as previews
from kheads.lab.budget_preview import BudgetPoint, BudgetPreview, BudgetRequest, Limit, preview_budgets, shares
from kheads.lab.budget_words import advise, columns, limits, options, rows, timing
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.running import run
from kheads.lab.report import page
from kheads.lab.report.budget_preview_page import budget_preview_page
from kheads.lab.report.drawing import Figure
from kheads.training.bench import Bench
from kheads.training.run import Run
from made_previews import measured, metrics, silent

__all__ = ["place"]

DATA: dict[str, Any] = {"train": "train.jsonl", "eval": {"dev": "dev.jsonl"}}
WORDS = ("--train", "train.jsonl", "--eval", "dev=dev.jsonl", "--batch-size", "4")


# What is computed


def test_each_budget_is_what_a_run_of_its_own_without_training_comes_to(place: Path) -> None:
    job = Job("tiny", data=DATA, batch_size=4, seed=3)
    found = preview_budgets(*previews.ready(job), BudgetRequest(timed=False), silent)
    assert found.parts == ("heads", "all") and len(found.budgets) == 10
    for point in (found.points[1], found.points[-1]):
        asked = dataclasses.replace(job, smaller=1 - point.budget.amount, parts=point.parts, no_training=True)
        alone = run(asked, place / point.parts, quiet=True).record
        for stage in ("cut", "repaired"):
            assert getattr(point, stage)["dev"] == pytest.approx(alone["metrics"][stage]["dev"])
        assert point.parameters == alone["after"]["parameters"] and point.heads == alone["after"]["heads"]
        assert point.neurons == alone["after"].get("neurons")


def test_scores_are_computed_once_for_each_of_the_parts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def note(cls: Any, name: str) -> None:
        inner = getattr(cls, name)

        def call(self: Any) -> Any:
            calls.append(name)
            return inner(self)

        monkeypatch.setattr(cls, name, call)

    note(Bench, "evaluate")
    note(Run, "estimate")
    monkeypatch.setattr(budget_preview, "WITHIN", 1)
    monkeypatch.setattr(budget_preview, "BEYOND", 1)
    told: list[tuple[int, int]] = []
    request = BudgetRequest("flops", timed=False, at=(2, 6))
    found = preview_budgets(*previews.ready(Job("tiny", data=DATA)), request, lambda _, *n: told.append(n))
    assert [(budget.name, budget.batch) for budget in found.budgets] == [("flops", (2, 6))] * 2
    assert [(point.parts, found.budgets.index(point.budget)) for point in found.points] == [
        ("heads", 0),
        ("all", 0),
        ("all", 1),
    ]
    assert calls.count("estimate") == 2 and calls.count("evaluate") == 1 + 2 * 3
    assert told[-1] == (2, 3) and told == sorted(told)


def test_speed_and_the_limits_are_measured(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_preview, "WITHIN", 1)
    monkeypatch.setattr(budget_preview, "BEYOND", 0)
    found = preview_budgets(*previews.ready(Job("tiny", data=DATA)), BudgetRequest(parts="ffn", at=(2, 4)), silent)
    (point,) = found.points
    assert point.speedup and point.heads == found.heads == 12 and (point.neurons or 0) < 120 == found.neurons
    assert found.limits[0].speedup and found.limits[0].parameters < point.parameters < found.parameters
    assert found.timing and (found.timing["batch"], found.timing["length"]) == (2, 4)
    plain = found.to_dict()
    assert json.dumps(plain) and plain["points"][0]["budget"] == {"params": point.budget.amount}


@given(st.lists(st.floats(0.001, 0.99), min_size=1, max_size=2))
def test_the_budgets_rise_and_can_be_met(limits: list[float]) -> None:
    found = shares(limits)
    assert 1 <= len(found) <= 10 and found == sorted(set(found)) and found[0] > 0 and found[-1] < max(limits)
    few, many = min(limits), max(limits)
    if few > 0.05 and 0.9 * many > few:
        assert len(found) == 10 and sum(share < few for share in found) >= 4


def test_whole_percent_where_they_tell_budgets_apart() -> None:
    assert shares([0.156, 0.47]) == [0.03, 0.07, 0.11, 0.14, 0.2, 0.25, 0.3, 0.34, 0.39, 0.44]


@pytest.mark.parametrize(("family", "parts"), [("llama", "heads"), ("llama", "all"), ("bert", "heads"), ("t5", "all")])
def test_what_can_go_leaves_what_has_to_stay(family: str, parts: str, fresh: Fresh) -> None:
    goal = budget_preview.goal_for(Job("any"), fresh(family), Budget(params=0.5), parts)
    most = budget_preview.removable(goal)
    assert budget_preview.reachable(goal, Budget(params=1 - most + 1e-6)) is not None
    assert budget_preview.reachable(goal, Budget(params=1 - most - 1e-6)) is None


@pytest.mark.parametrize("words", [(), ("--budgets", "flops"), ("--budgets", "speedup", "--at", "2x4"), ("-k", "1")])
def test_nothing_to_remove_is_said(
    words: tuple[str, ...],
    place: Path,
    fresh: Fresh,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = fresh("bert")
    kheads.remove(model, Kept(tuple((site.name, ()) for site in kheads.discover(model, parts="all"))))
    kheads.save(model, place / "hollow", tokenizer=transformers.AutoTokenizer.from_pretrained(place / "tiny"))
    assert call(monkeypatch, "preview", "hollow", *WORDS, "--no-speed", *words) == 2
    assert "kheads: There is nothing to " in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_model_without_heads_has_ten_budgets_of_neurons(place: Path, fresh: Fresh) -> None:
    model = fresh("bert")
    kheads.remove(model, Kept.from_dict({}))
    kheads.save(model, place / "headless", tokenizer=transformers.AutoTokenizer.from_pretrained(place / "tiny"))
    job = Job("headless", data=DATA, batch_size=4)
    found = preview_budgets(*previews.ready(job), BudgetRequest(timed=False), silent)
    assert len(found.budgets) == len(found.points) == 10 and {point.parts for point in found.points} == {"all"}


# What is said


def made_up(qualities: dict[tuple[str, float], float], whole: float = 0.9, timed: bool = True) -> BudgetPreview:
    points = tuple(
        BudgetPoint(
            Budget(params=1 - share),
            parts,
            8,
            None if parts == "heads" else 100,
            int(1000 * (1 - share)),
            metrics(value / 2),
            metrics(value),
            measured(1 + share) if timed else None,
        )
        for (parts, share), value in qualities.items()
    )
    budgets = tuple(Budget(params=1 - share) for share in sorted({share for _, share in qualities}))
    limits = tuple(Limit(parts, 400, None) for parts in dict.fromkeys(parts for parts, _ in qualities))
    how = {"batch": 8, "length": 16, "repeats": 10, "threads": 1, "device": "cpu"} if timed else None
    about = ("accuracy", False, "dev", 200, metrics(whole), budgets, points, limits, how)
    return BudgetPreview("models/mine", "own", 12, 200, 1000, *about, 61.0, ("A remark.",))


FOUND = {("heads", 0.1): 0.897, ("heads", 0.2): 0.7, ("all", 0.1): 0.899, ("all", 0.2): 0.895, ("all", 0.4): 0.88}


def test_the_smallest_that_holds_the_limit_is_named_with_its_command() -> None:
    found = made_up(FOUND)
    asked = advise(found, 1.0)
    assert asked.holds and asked.why.startswith("The smallest budget here that is at most 1 point worse")
    assert "20 % smaller (heads and neurons), accuracy 89.5 %, 0.50 points below" in asked.why
    assert options(asked.point) == ["--smaller", "20%"]
    assert advise(found).why.startswith("A suggestion: the smallest budget")
    assert options(advise(made_up({("heads", 0.1): 0.9}), 0.1).point) == ["--smaller", "10%", "--parts", "heads"]
    unsteady = made_up({("all", 0.1): 0.9, ("all", 0.2): 0.8, ("heads", 0.2): 0.7, ("all", 0.4): 0.9})
    assert "Careful: larger ones that are not are 20 %." in advise(unsteady, 0.5).why
    none = advise(made_up({("all", 0.1): math.nan, ("all", 0.2): 0.85}), 1.0)
    assert not none.holds and "No budget here is" in none.why and "the nearest is 20 % smaller" in none.why
    speed = dataclasses.replace(asked.point, budget=Budget(speedup=1.25, at=(8, 64)))
    assert options(speed) == ["--speedup", "1.25", "--at", "8x64"]


def test_the_table_has_both_parts_side_by_side_the_unpruned_model_and_the_limits() -> None:
    found = made_up(FOUND)
    names, table = columns(found), rows(found)
    assert names == ("smaller", *(f"{part}: {name}" for part in ("heads", "all") for name in NAMES))
    assert {len(row) for row in table} == {len(names)} and len(table) == 2 + 3
    assert table[0] == ("unpruned", "1.0k", "90.0 %", "1x", "1.0k", "90.0 %", "1x")
    assert table[1] == ("10 %", "900", "89.7 %", "1.10x ?", "900", "89.9 %", "1.10x ?")
    assert table[3] == ("40 %", "-", "-", "-", "600", "88.0 %", "1.40x") and table[-1][0] == "limit"
    assert {len(row) for row in rows(found, digits=True)} == {len(columns(found, digits=True))}
    assert "batches of 8 x 16 tokens" in timing(found) and timing(made_up(FOUND, timed=False)) == ""


NAMES = ("size", "repaired", "speed-up")


def test_the_limits_are_those_of_the_parts_that_are_shown() -> None:
    both = made_up({("heads", 0.1): 0.9, ("all", 0.1): 0.9})
    assert limits(both).startswith("The limits are the model without any head, and without any head or neuron: ")
    one = dataclasses.replace(both, limits=(Limit("ffn", 100),))
    assert limits(one).startswith("The limit is the model without any neuron: ")


@pytest.mark.parametrize("timed", [True, False])
def test_the_page_is_whole(tmp_path: Path, timed: bool) -> None:
    found = made_up({**FOUND, ("all", 0.5): math.nan}, timed=timed)
    built = budget_preview_page(found, advise(found), "kheads prune models/mine --smaller 20% -o small")
    shown = {section.key: section for section in built.shown()}
    assert list(shown) == (["quality", "speed"] if timed else ["quality"])
    figure = shown["quality"].items[0]
    assert isinstance(figure, Figure) and {look.label for look in figure.legend()} >= {"Heads, repaired", "Unpruned"}
    html = page.write(built, tmp_path / "page.html")[0].read_text()
    for text in ("Preview of mine", "kheads prune models/mine --smaller 20%", "A remark."):
        assert text in html
    assert "NaN" not in html.partition("<script>")[0]


# What users type


def test_everything_at_once_and_the_command_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("preview", "tiny", *WORDS, "--no-speed", "--at-most", "100")
    assert call(monkeypatch, *words, "--json", "-o", "page.html") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["budgets"]) == 10 and {point["parts"] for point in found["points"]} == {"heads", "all"}
    chosen = found["chosen"]
    assert chosen["holds"] and chosen["parts"] == "all" and found["page"] == "page.html"
    assert chosen["command"].startswith("kheads prune tiny --smaller ") and "--parts" not in chosen["command"]
    assert call(monkeypatch, *shlex.split(chosen["command"])[1:], "--max-steps", "2") == 0
    assert " of 120 neurons" in capsys.readouterr().out and (place / "small" / "result.json").exists()


def test_a_table_a_figure_and_the_command_last(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(budget_preview, "WITHIN", 1)
    monkeypatch.setattr(budget_preview, "BEYOND", 2)
    assert call(monkeypatch, "preview", "tiny", *WORDS, "--no-speed") == 0
    told = capsys.readouterr().out
    assert "unpruned" in told and "limit" in told and "● heads and neurons" in told and "╌" in told
    assert max(len(line) for line in told.splitlines() if line.startswith(("┃", "│"))) <= 80
    assert told.strip().splitlines()[-1].startswith("kheads prune tiny --smaller ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-k", "3", "--parts", "all"), "`-k` counts heads, and `--parts` is for budgets; give one of them."),
        (("-k", "3", "--budgets", "flops"), "`-k` counts heads, and `--budgets` is for budgets"),
        (("--budgets", "ms"), "`--budgets` must be one of 'params', 'flops', 'speedup'; got 'ms'."),
        (("--parts", "layers"), "`--parts` must be one of 'heads', 'ffn', 'all'"),
        (("--set", "smaller=0.3"), "`--smaller` has no effect here: a preview is of several budgets; leave it out."),
    ],
)
def test_refusals_come_before_the_work(
    words: tuple[str, ...],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(previews.Bench, "evaluate", None)
    assert call(monkeypatch, "preview", "tiny", *WORDS, *words) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
