"""What people see of neurons: the map in the terminal, the table of a run, and its page."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from command import TRAIN, call, place
from kheads import Kept, Site, discover
from kheads.lab import terminal
from kheads.lab.report import run_page
from kheads.lab.report.budgets import budget_of
from kheads.lab.report.drawing import Figure, Heat
from kheads.lab.report.results import read_run

__all__ = ["place"]


def drawn(sites: tuple[Site, ...], kept: Kept | None = None) -> str:
    file = StringIO()
    Console(file=file, width=120).print(terminal.head_map(sites, kept))
    return file.getvalue()


@given(st.integers(1, 5000).flatmap(lambda total: st.tuples(st.just(total), st.integers(0, total))))
def test_a_bar_is_full_or_empty_only_where_all_or_none_stay(counts: tuple[int, int]) -> None:
    total, kept = counts
    site = Site("ffn", "ffn", total, 1, "neuron")
    told = drawn((site,), Kept.from_dict({"ffn": list(range(kept))}))
    assert (terminal.CLOSED not in told) == (kept == total) and (terminal.FULL not in told) == (kept == 0)
    assert told.splitlines()[-1].strip() == f"{kept:,} of {total:,} neurons"


def test_heads_are_dots_and_neurons_a_bar_in_one_map(fresh: Any) -> None:
    for name in ("bert", "bart"):
        sites = discover(fresh(name), parts="all")
        told = drawn(sites)
        heads, neurons = (sum(s.count for s in sites if (s.kind == "ffn") == ffn) for ffn in (False, True))
        assert f"{heads} of {heads} heads, {neurons} of {neurons} neurons" in told
        assert all(site.name in told for site in sites)  # each has a line of its own


def test_what_was_reached_is_in_the_words_of_what_was_asked() -> None:
    sizes = {"before": {"parameters": 100}, "after": {"parameters": 70}}
    found = {"reached": {"value": 497_000, "low": 497_000, "high": 497_000}, "whole": 1_000_000}
    asked = budget_of({"settings": {"flops": 0.5, "at": "2x8"}, "report": {"budget": found}, **sizes})
    assert asked and (asked.asked, asked.reached) == ("50 % of the FLOPs at 2x8", "49.7 % of the FLOPs (497,000)")
    short = {"reached": {"value": 0.042, "low": 0.041, "high": 0.043}}
    asked = budget_of({"settings": {"max_ms": 0.05}, "report": {"budget": short}, **sizes})
    assert asked and asked.reached == "0.04 ms (0.04 to 0.04)"


def test_a_run_within_a_budget_is_shown_from_the_terminal_to_its_page(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "prune", "tiny", *TRAIN, "--smaller", "20%", "-o", "out") == 0
    told = capsys.readouterr().out
    record = json.loads((place / "out" / "result.json").read_text())
    heads, neurons = record["after"]["heads"], record["after"]["neurons"]
    counts = f"{heads} of 12 heads, {neurons} of 120 neurons"
    assert counts in told and "20 % smaller" in told and terminal.FULL in told
    assert call(monkeypatch, "heads", "out") == 0
    assert counts in capsys.readouterr().out  # all, because neurons are gone
    assert call(monkeypatch, "heads", "out", "--parts", "heads") == 0
    assert "neurons" not in capsys.readouterr().out
    assert call(monkeypatch, "heads", "out", "--parts", "ffn", "--json") == 0
    assert {site["kind"] for site in json.loads(capsys.readouterr().out)} == {"ffn"}
    quick = ("--repeats", "1", "--batch", "1", "--length", "4", "--new-tokens", "0")
    assert call(monkeypatch, "measure", "out", "--against", "tiny", *quick, "--json") == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["heads"], measured["neurons"]) == (heads, neurons)
    assert call(monkeypatch, "measure", "out", "--against", "tiny", *quick) == 0
    sizes = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [int(cells[3]) for cells in sizes[:4]] == [120, neurons, neurons, 0]
    built = run_page.run_page(*read_run(place / "out"), place / "out")
    shown = {section.key: section.items[0] for section in built.shown()}
    assert {"heads", "neurons"} <= shown.keys() and f"{neurons} of 120 neurons" in built.findings[0]
    figure = shown["neurons"]
    assert isinstance(figure, Figure) and isinstance(figure.panels[0], Heat)
    assert [len(row) for row in figure.panels[0].values] == [1, 1, 1] and figure.title == f"{neurons} of 120 neurons"
    assert call(monkeypatch, "choose", "out") == 0
    one = capsys.readouterr().out
    assert one.startswith("20 % smaller") and "smaller = [0.1, 0.2]" in " ".join(one.split())
    table = run_page.before_after(read_run(place / "out")[0])
    assert ["Budget", "20 % smaller"] in [list(row[:2]) for row in table.rows]


def test_a_run_on_neurons_alone_has_no_map_of_heads(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("prune", "tiny", *TRAIN, "--smaller", "10%", "--parts", "ffn", "-o", "out")
    assert call(monkeypatch, *words) == 0
    assert " of 120 neurons" in capsys.readouterr().out
    built = run_page.run_page(*read_run(place / "out"), place / "out")
    keys = [section.key for section in built.shown()]
    assert "neurons" in keys and "heads" not in keys and "12 of 12 heads" in built.findings[0]
