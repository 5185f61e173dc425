"""What is said and drawn of a preview: which budget to take, the table, the figure of a terminal, the page."""

import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kheads import Budget
from kheads.lab import terminal
from kheads.lab.chart import chart
from kheads.lab.preview.advice import advise
from kheads.lab.preview.amounts import options
from kheads.lab.preview.found import Limit, Preview
from kheads.lab.preview.table import columns, limits, rows, timing
from kheads.lab.report import page
from kheads.lab.report.drawing import Figure, Panel
from kheads.lab.report.preview_page import preview_page
from kheads.measuring.timing import Ratio
from made_previews import over_budgets, over_heads

FOUND = {("heads", 0.1): 0.897, ("heads", 0.2): 0.7, ("all", 0.1): 0.899, ("all", 0.2): 0.895, ("all", 0.4): 0.88}


# What is said


def test_the_smallest_k_that_holds_the_limit_is_named() -> None:
    found = over_heads({48: 0.895, 24: 0.89, 12: 0.7})
    assert [round(found.worse(point), 6) for point in found.points] == [0.5, 1.0, 20.0]
    asked = advise(found, 1.0)
    assert (asked.point.heads, asked.holds) == (24, True)
    assert asked.why.startswith("The smallest K here that is at most 1 point ")
    assert "K = 24, accuracy 89.0 %, 1.00 points below" in asked.why and "Training on" in asked.why
    assert options(asked.point.budget, asked.point.parts) == ["-k", "24"]
    assert advise(found).point.heads == 24 and advise(found).why.startswith("A suggestion: the smallest K here")
    assert advise(found, 0.7).point.heads == 48 and advise(found, 20.5).point.heads == 12


def test_the_smallest_budget_that_holds_the_limit_is_named() -> None:
    found = over_budgets(FOUND)
    asked = advise(found, 1.0)
    assert asked.holds and asked.why.startswith("The smallest budget here that is at most 1 point worse")
    assert "20 % smaller (heads and neurons), accuracy 89.5 %, 0.50 points below" in asked.why
    assert options(asked.point.budget, asked.point.parts) == ["--smaller", "20%"]
    assert advise(found).why.startswith("A suggestion: the smallest budget")


def test_where_none_holds_the_limit_the_nearest_is_named() -> None:
    advice = advise(over_heads({48: 0.87, 24: 0.88, 12: math.nan}), 0.5)
    assert (advice.point.heads, advice.holds) == (24, False)
    assert advice.why.startswith("No K here is at most 0.5 points worse") and "the nearest is K = 24" in advice.why
    none = advise(over_budgets({("all", 0.1): math.nan, ("all", 0.2): 0.85}), 1.0)
    assert not none.holds and "No budget here is at most" in none.why and "the nearest is 20 % smaller" in none.why


def test_a_curve_that_goes_up_and_down_is_said_to() -> None:
    assert "Careful: larger ones that are not are K = 24." in advise(over_heads({48: 0.9, 24: 0.8, 12: 0.91}), 0.5).why
    unsteady = over_budgets({("all", 0.1): 0.9, ("all", 0.2): 0.8, ("heads", 0.2): 0.7, ("all", 0.4): 0.9})
    assert "Careful: larger ones that are not are 20 %." in advise(unsteady, 0.5).why


@pytest.mark.parametrize(
    ("budget", "parts", "words"),
    [
        (Budget(heads=12), "heads", ["-k", "12"]),
        (Budget(params=0.9), "heads", ["--smaller", "10%", "--parts", "heads"]),
        (Budget(flops=0.5, at=(8, 64)), "ffn", ["--flops", "50%", "--parts", "ffn", "--at", "8x64"]),
        (Budget(speedup=1.25, at=(8, 64)), "all", ["--speedup", "1.25", "--at", "8x64"]),
    ],
)
def test_a_budget_has_its_words_for_prune(budget: Budget, parts: str, words: list[str]) -> None:
    assert options(budget, parts) == words


def test_where_lower_is_better_worse_is_percent() -> None:
    found = over_heads({48: 20.1, 24: 22.0}, whole=20.0, name="perplexity", lower=True)
    assert [round(found.worse(point), 6) for point in found.points] == [0.5, 10.0]
    assert "at most 1 % worse" in advise(found).why and "20.10, 0.50 % worse" in advise(found).why
    assert "% worse" in columns(found) and rows(found)[1][5] == "0.50"


def test_points_of_bleu_are_not_percent() -> None:
    found = over_heads({48: 29.5}, whole=30.0, name="bleu")
    assert found.worse(found.points[0]) == pytest.approx(0.5)


def test_the_table_begins_with_the_unpruned_model_and_ends_with_the_limit() -> None:
    found = over_heads({48: 0.895, 24: 0.89})
    assert columns(found) == ("K", "heads", "parameters", "cut", "repaired", "points below", "speed-up")
    first, one, _, last = rows(found)
    assert first == ("100 (all)", "100 %", "1.0k", "-", "90.0 %", "-", "1x")
    assert one == ("48", "48 %", "740 (-26 %)", "44.8 %", "89.5 %", "0.50", "1.02x ?")
    assert last == ("0 (limit)", "0 %", "500 (-50 %)", "-", "-", "-", "1.60x")
    assert "batches of 8 x 16 tokens, 10 rounds, 1 thread, cpu. A question mark" in timing(found)
    untimed = over_heads({48: 0.895}, timed=False)
    assert timing(untimed) == "" and {row[-1] for row in rows(untimed)} == {"-"}


def test_the_table_has_both_parts_side_by_side_the_unpruned_model_and_the_limits() -> None:
    found = over_budgets(FOUND)
    names, table = columns(found), rows(found)
    each = ("size", "repaired", "speed-up")
    assert names == ("smaller", *(f"{part}: {name}" for part in ("heads", "all") for name in each))
    assert {len(row) for row in table} == {len(names)} and len(table) == 2 + 3
    assert table[0] == ("unpruned", "1.0k", "90.0 %", "1x", "1.0k", "90.0 %", "1x")
    assert table[1] == ("10 %", "900", "89.7 %", "1.10x ?", "900", "89.9 %", "1.10x ?")
    assert table[3] == ("40 %", "-", "-", "-", "600", "88.0 %", "1.40x")
    assert table[-1] == ("limit", "500", "-", "1.60x", "500", "-", "1.60x")
    assert "batches of 8 x 16 tokens" in timing(found) and timing(over_budgets(FOUND, timed=False)) == ""
    names, table = columns(found, digits=True), rows(found, digits=True)
    assert {len(row) for row in table} == {len(names)} == {1 + 2 * 5} and "heads only: points below" in names
    assert table[1][1:6] == ("900 (-10.0 %)", "44.9 %", "89.7 %", "0.30", "1.10x (1.00 to 1.20) ?")


def test_one_of_the_parts_alone_has_room_for_everything() -> None:
    neurons = over_budgets({("ffn", 0.1): 0.897, ("ffn", 0.2): 0.7})
    assert columns(neurons) == ("smaller", "neurons", "parameters", "cut", "repaired", "points below", "speed-up")
    assert rows(neurons)[1] == ("10 %", "50 %", "900 (-10 %)", "44.9 %", "89.7 %", "0.30", "1.10x ?")
    assert rows(neurons)[-1] == ("limit", "0 %", "500 (-50 %)", "-", "-", "-", "1.60x")
    both = over_budgets({("all", 0.1): 0.897})
    assert columns(both)[1:] == columns(neurons)[2:]


def test_the_limits_are_those_of_the_parts_that_are_shown() -> None:
    both = over_budgets({("heads", 0.1): 0.9, ("all", 0.1): 0.9})
    assert limits(both).startswith("The limits are the model without any head, and without any head or neuron: ")
    one = dataclasses.replace(both, limits=(Limit("ffn", 100),))
    assert limits(one).startswith("The limit is the model without any neuron: ")
    assert limits(over_heads({3: 0.5})) == "The limit is the model without any head: but for noise, no K gives more."


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


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (over_heads({48: 0.8, 12: math.nan}), 3),
        (over_heads({9: 3.0}, 2.0, name="perplexity", lower=True, timed=False), 3),
        (over_budgets({**FOUND, ("all", 0.5): math.nan}), 5),
        (over_budgets({**FOUND, ("all", 0.5): math.nan}, timed=False), 5),
    ],
)
def test_the_page_is_whole(found: Preview, lines: int, tmp_path: Path) -> None:
    built = preview_page(found, advise(found), "kheads prune models/mine -k 48 -o small")
    shown = {section.key: section for section in built.shown()}
    assert list(shown) == (["quality", "speed"] if found.timing else ["quality"])
    figure = shown["quality"].items[0]
    assert isinstance(figure, Figure) and isinstance(figure.panels[0], Panel)
    assert len(figure.panels[0].series) == lines
    assert {look.label for look in figure.legend()} >= {"Heads, cut", "Heads, repaired", "Unpruned"}
    last = "0 (limit)" if found.kind == "heads" else ">limit<"
    html = page.write(built, tmp_path / "page.html")[0].read_text()
    for text in ("Preview of mine", "kheads prune models/mine -k 48", last, limits(found), "A remark."):
        assert text in html
    assert "NaN" not in html.partition("<script>")[0]


def test_a_limit_far_above_the_others_is_not_drawn() -> None:
    found = over_budgets(FOUND)
    found = dataclasses.replace(found, limits=(found.limits[0], Limit("all", 100, Ratio(36.0, 35.0, 37.0))))
    figure = preview_page(found, advise(found), "").sections[1].items[0]
    assert isinstance(figure, Figure)
    assert [look.label for look in figure.legend()] == ["Heads", "Both", "Heads, limit", "Unpruned"]


def test_how_far_it_is_is_said_without_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(terminal, "EVERY", 0.01)
    said = tmp_path / "said.txt"
    with said.open("w") as file, terminal.counting(Console(file=file)) as tell:
        tell("K = 3: repairing", 1, 8)
        while "repairing" not in said.read_text():
            file.flush()
    assert "K = 3: repairing, 1 of 8 done (0 s)" in said.read_text()
