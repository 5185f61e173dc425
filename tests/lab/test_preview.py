"""A preview: what each K gives by choose, cut and repair alone, which K to take, and how it is shown."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from command import place
from kheads.lab import preview as previews
from kheads.lab import terminal
from kheads.lab.chart import chart
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.running import run
from kheads.lab.preview import Point, Preview, Request
from kheads.lab.preview_words import LIMIT, advise, columns, rows, timing
from kheads.lab.report import page
from kheads.lab.report.drawing import Figure, Panel
from kheads.lab.report.preview_page import preview_page
from kheads.training.bench import Bench
from kheads.training.run import Run
from made_previews import measured, metrics, silent

__all__ = ["place"]

DATA: dict[str, Any] = {"train": "train.jsonl", "eval": {"dev": "dev.jsonl"}}


def looked(job: Job, *ks: int, at: tuple[int, int] | None = None) -> Preview:
    return previews.preview(*previews.ready(job), Request(ks, at is not None, at), silent)


# What is computed


def test_each_k_is_what_a_run_of_its_own_without_training_comes_to(place: Path) -> None:
    job = Job("tiny", data=DATA, batch_size=4, seed=3)
    for point in looked(job, 3, 8).points:
        alone = run(dataclasses.replace(job, k=point.k, no_training=True), place / f"k{point.k}", quiet=True).record
        for stage in ("cut", "repaired"):
            assert getattr(point, stage)["dev"] == pytest.approx(alone["metrics"][stage]["dev"])
        assert point.parameters == alone["after"]["parameters"]


def test_heads_are_scored_once_and_the_unpruned_model_is_measured_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    told: list[tuple[int, int]] = []

    def noted(cls: Any, name: str) -> None:
        inner = getattr(cls, name)

        def call(self: Any) -> Any:
            calls.append(name)
            return inner(self)

        monkeypatch.setattr(cls, name, call)

    noted(Bench, "evaluate")
    noted(Run, "estimate")
    job, prepared = previews.ready(Job("tiny", data=DATA))
    before = {name: value.clone() for name, value in prepared.model.state_dict().items()}
    found = previews.preview(job, prepared, Request((2, 7, 4, 7), timed=False), lambda _, *n: told.append(n))
    assert [point.k for point in found.points] == [7, 4, 2]
    assert calls.count("estimate") == 1 and calls.count("evaluate") == 1 + 2 * 3
    assert told[0] == (0, 3) and told[-1] == (2, 3) and told == sorted(told)
    after = prepared.model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_labels_of_the_training_data_are_not_needed(place: Path) -> None:
    rows = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    bare = [{name: row[name] for name in ("premise", "hypothesis")} for row in rows]
    (place / "bare.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in bare))
    found = looked(Job("tiny", data={**DATA, "train": "bare.jsonl"}), 6)
    assert math.isfinite(found.worse(found.points[0]))


def test_speed_is_measured_next_to_the_unpruned_model_and_to_the_limit(place: Path) -> None:
    found = looked(Job("tiny", data=DATA), 9, 3, at=(2, 4))
    told = found.timing
    assert told and (told["batch"], told["length"], told["repeats"]) == (2, 4, previews.ROUNDS)
    assert all(point.speedup and point.speedup.ratio > 0 for point in found.points) and found.limit
    sizes = [found.parameters, *(point.parameters for point in found.points), found.least]
    assert sizes == sorted(sizes, reverse=True)
    plain = found.to_dict()
    assert plain["limit"]["speedup"].keys() == {"ratio", "low", "high"} and json.dumps(plain)


@given(st.integers(2, 2000))
def test_the_usual_k_are_few_and_fall(heads: int) -> None:
    ks = previews.grid(heads)
    assert 1 <= len(ks) <= 8 and ks == sorted(set(ks), reverse=True)
    assert ks[-1] >= 1 and ks[0] < heads and previews.grid(72) == [54, 36, 24, 18, 12, 9, 6, 3]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "dsp"}, "must score heads once for every K, as .*surgeon.* do; got 'dsp'"),
        ({"method": "none"}, "must score heads once for every K"),
        ({"constraints": {"min_per_site": 1}}, "`min_per_site` has no effect here: a preview goes by K alone"),
        ({"fresh": True}, "`fresh` has no effect here"),
        ({"repair": False}, "`repair` has no effect here"),
        ({"distil_weight": 0.1}, "`distil_weight` has no effect here"),
        ({"k": 3}, "with -k"),
    ],
)
def test_what_cannot_be_previewed_is_refused_before_anything_is_loaded(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        previews.ready(Job("nowhere", data=DATA, **fields))


# What is said


def made_up(
    qualities: dict[int, float], whole: float = 0.9, name: str = "accuracy", lower: bool = False, timed: bool = True
) -> Preview:
    points = tuple(
        Point(
            k, 500 + 5 * k, metrics(value / 2, name), metrics(value, name), measured(1.5 - k / 100) if timed else None
        )
        for k, value in qualities.items()
    )
    return Preview(
        "models/mine",
        "own",
        100,
        1000,
        500,
        name,
        lower,
        "dev",
        200,
        metrics(whole, name),
        points,
        61.0,
        ("A remark.",),
    )


def test_the_smallest_k_that_holds_the_limit_is_named() -> None:
    found = made_up({48: 0.895, 24: 0.89, 12: 0.7})
    assert [round(found.worse(point), 6) for point in found.points] == [0.5, 1.0, 20.0]
    asked = advise(found, 1.0)
    assert (asked.k, asked.holds) == (24, True) and asked.why.startswith("The smallest K here that is at most 1 point ")
    assert "K = 24, accuracy 89.0 %, 1.00 points below" in asked.why and "Training on" in asked.why
    assert advise(found).k == 24 and advise(found).why.startswith("A suggestion: the smallest K here")
    assert advise(found, 0.7).k == 48 and advise(found, 20.5).k == 12


def test_where_no_k_holds_the_limit_the_nearest_is_named() -> None:
    advice = advise(made_up({48: 0.87, 24: 0.88, 12: math.nan}), 0.5)
    assert (advice.k, advice.holds) == (24, False)
    assert advice.why.startswith("No K here is at most 0.5 points worse") and "the nearest is K = 24" in advice.why


def test_a_curve_that_goes_up_and_down_is_said_to() -> None:
    assert "Careful: larger ones that are not are K = 24." in advise(made_up({48: 0.9, 24: 0.8, 12: 0.91}), 0.5).why


def test_where_lower_is_better_worse_is_percent() -> None:
    found = made_up({48: 20.1, 24: 22.0}, whole=20.0, name="perplexity", lower=True)
    assert [round(found.worse(point), 6) for point in found.points] == [0.5, 10.0]
    assert "at most 1 % worse" in advise(found).why and "20.10, 0.50 % worse" in advise(found).why
    assert "% worse" in columns(found)


def test_points_of_bleu_are_not_percent() -> None:
    found = made_up({48: 29.5}, whole=30.0, name="bleu")
    assert found.worse(found.points[0]) == pytest.approx(0.5)


def test_the_table_begins_with_the_unpruned_model_and_ends_with_the_limit() -> None:
    found = made_up({48: 0.895, 24: 0.89})
    first, one, _, last = rows(found)
    assert first == ("100 (all)", "100 %", "1.0k", "-", "90.0 %", "-", "1x")
    assert one == ("48", "48 %", "740 (-26 %)", "44.8 %", "89.5 %", "0.50", "1.02x ?")
    assert last == ("0 (limit)", "0 %", "500 (-50 %)", "-", "-", "-", "1.60x")
    assert "batches of 8 x 16 tokens, 10 rounds, 1 thread, cpu. A question mark" in timing(found)
    untimed = made_up({48: 0.895}, timed=False)
    assert timing(untimed) == "" and {row[-1] for row in rows(untimed)} == {"-"}


# What is drawn


@given(
    st.lists(st.floats(0.01, 1e6) | st.just(math.nan) | st.just(math.inf), min_size=1, max_size=60),
    st.floats(0.01, 1e6),
    st.booleans(),
)
def test_any_values_fit_into_a_terminal(values: list[float], line: float, log: bool) -> None:
    labels = [str(index) for index in range(len(values))]
    drawn = chart(labels, {"o": values}, line, lambda value: f"{value:.4g}", log)
    assert all(len(text) <= 80 for text in drawn.splitlines()) and labels[0] in drawn.splitlines()[-1]
    assert ("o" in drawn) == any(map(math.isfinite, values))


def test_the_figure_has_high_values_above_low_ones_and_the_line_behind_both() -> None:
    drawn = chart(["3", "24"], {"○": [0.0, 5.0], "●": [5.0, 10.0]}, 10.0, str).splitlines()
    assert drawn[0].startswith("10.0 ┤╌") and drawn[0].rstrip("╌").endswith("●")
    assert drawn[5].count("●") == drawn[5].count("○") == 1 and drawn[10].startswith(" 0.0 ┤") and "○" in drawn[10]
    assert drawn[-1].split() == ["3", "24"] and drawn[10].index("○") == drawn[-1].index("3")


def test_equal_values_are_on_the_line_and_read_once() -> None:
    drawn = chart(["1", "2"], {"●": [0.5, 0.5]}, 0.5, lambda value: f"{value:.1f}")
    assert drawn.startswith("0.5 ┤") and drawn.count("0.5") == 1 and drawn.splitlines()[0].count("●") == 2


@pytest.mark.parametrize("found", [made_up({48: 0.8, 12: math.nan}), made_up({9: 3.0}, 2.0, "perplexity", True, False)])
def test_the_page_is_whole(found: Preview, tmp_path: Path) -> None:
    built = preview_page(found, advise(found), "kheads prune models/mine -k 48 -o small")
    shown = {section.key: section for section in built.shown()}
    assert list(shown) == (["quality", "speed"] if found.limit else ["quality"])
    figure = shown["quality"].items[0]
    assert isinstance(figure, Figure) and isinstance(figure.panels[0], Panel) and len(figure.panels[0].series) == 3
    html = page.write(built, tmp_path / "page.html")[0].read_text()
    for text in ("Preview of mine", "kheads prune models/mine -k 48", "0 (limit)", LIMIT, "A remark."):
        assert text in html
    assert "NaN" not in html.partition("<script>")[0]


def test_how_far_it_is_is_said_without_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(terminal, "EVERY", 0.01)
    said = tmp_path / "said.txt"
    with said.open("w") as file, terminal.counting(Console(file=file)) as tell:
        tell("K = 3: repairing", 1, 8)
        while "repairing" not in said.read_text():
            file.flush()
    assert "K = 3: repairing, 1 of 8 done (0 s)" in said.read_text()
