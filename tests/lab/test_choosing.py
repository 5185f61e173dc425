"""kheads choose: the K that is good enough or fits, and why."""

import copy
import json
from pathlib import Path

import pytest

from command import call
from kheads.lab.report.alone import alone, reaches
from kheads.lab.report.choosing import at_least, options, parse_count, within
from kheads.lab.report.results import Results, Run, read_run
from report_results import only
from synthetic_results import KS, write_run


@pytest.fixture
def results(sweep: Results) -> Results:
    return sweep


@pytest.fixture
def folder(sweep: Results) -> Path:
    return sweep.folder


@pytest.mark.parametrize("quality", [0.72, 0.75, 0.80])
def test_the_smallest_k_that_is_good_enough(results: Results, quality: float) -> None:
    choice = at_least(results, quality)
    for option in options(results):
        assert option.quality
        if option.k < choice.option.k:
            assert option.quality.mean < quality
    assert choice.option.quality and choice.option.quality.mean >= quality
    assert f"K = {choice.option.k}" in choice.why and "95 % interval" in choice.why


def test_at_each_k_the_best_method_counts(results: Results) -> None:
    assert [option.k for option in options(results)] == sorted(KS)
    assert {option.method for option in options(results)[:-1]} == {"Joint DSP"}
    alone = at_least(results, 0.70, "michel")
    assert alone.option.method == "Michel" and alone.option.k > at_least(results, 0.70).option.k


def test_the_largest_k_within_a_budget(results: Results) -> None:
    by_k = {option.k: option for option in options(results)}
    choice = within(results, 20_000_000, "parameters")
    assert choice.option.k == 12 and by_k[24].parameters and by_k[24].parameters > 20_000_000
    timed = within(results, 30.0, "ms")
    assert timed.option.ms and timed.option.ms <= 30 and "batch 8 of 128 tokens" in timed.why
    larger = [option for option in by_k.values() if option.k > timed.option.k]
    assert larger and all(option.ms and option.ms > 30 for option in larger)


def test_without_runs_the_measured_k_are_there(results: Results) -> None:
    measured = Results(results.folder, {}, (), (), results.efficiency, "")
    choice = within(measured, 30.0, "ms")
    assert choice.option.k == 12 and choice.option.method is None


def test_what_cannot_be_answered_says_why(results: Results) -> None:
    with pytest.raises(ValueError, match=r"No K that was run reaches accuracy 99.0 %; the best is K = 48"):
        at_least(results, 0.99)
    with pytest.raises(ValueError, match=r"must be a share, because accuracy is one: 0.8 rather than 80"):
        at_least(results, 80)
    with pytest.raises(ValueError, match="No K fits into 1 milliseconds; the least is"):
        within(results, 1, "ms")
    untimed = Results(results.folder, {}, results.runs, (), (), results.evaluation)
    with pytest.raises(ValueError, match="do not say how many milliseconds a K takes"):
        within(untimed, 40, "ms")
    with pytest.raises(ValueError, match="`--method` must be one of dsp, dsp-pipelined, michel"):
        at_least(results, 0.8, "best")


@pytest.mark.parametrize(("text", "count"), [("80M", 80e6), ("1.2b", 1.2e9), ("500k", 5e5), ("22,500,000", 22.5e6)])
def test_counts_are_written_as_people_write_them(text: str, count: float) -> None:
    assert parse_count(text) == count


def test_other_counts_are_refused() -> None:
    for text in ("", "M", "many", "-3M", "nan"):
        with pytest.raises(ValueError, match="must be a number such as 80M"):
            parse_count(text)


def test_the_command_answers_people_and_machines(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "choose", str(folder), "--at-least", "0.75") == 0
    told = capsys.readouterr().out
    assert told.startswith("K = 6") and "→ 6" in told and "[7" in told
    assert call(monkeypatch, "choose", str(folder), "--max-params", "20M", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"]["k"] == 12 and len(found["options"]) == len(KS)
    assert call(monkeypatch, "choose", str(folder)) == 2
    assert "Give one of --at-least, --max-ms and --max-params." in capsys.readouterr().err


def test_two_seeds_are_no_interval(results: Results) -> None:
    two = only(results, lambda run: run.seed < 2)
    why = at_least(two, 0.75).why
    assert "two seeds" in why or "Both of its seeds" in why
    assert "their range, and no interval" in why and "95 %" not in why


def test_a_single_run_says_what_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its K, its quality before and after, whether it meets what was asked, and how to make a choice possible."""
    folder = write_run(tmp_path / "pruned")
    assert call(monkeypatch, "choose", str(folder)) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(
        "K = 12 Joint DSP kept 12 of 72 heads: 19,760,000 parameters. Its accuracy on mismatched is "
    )
    assert "the unpruned model was not measured" in told and "kheads sweep CONFIG.toml" in told
    assert 'methods = ["none", "dsp"], k = [24, 12, 6] and seeds = [0, 1, 2]' in told and "meets" not in told
    for limit, meets in (("0.5", "It meets --at-least 0.5."), ("0.99", "It does not meet --at-least 0.99.")):
        assert call(monkeypatch, "choose", str(folder), "--at-least", limit) == 0
        assert meets in " ".join(capsys.readouterr().out.split())
    assert call(monkeypatch, "choose", str(folder), "--max-params", "20M", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] is None and found["run"]["k"] == 12 and found["run"]["enough"] is True


def test_a_single_run_knows_the_unpruned_model_where_it_was_measured(tmp_path: Path) -> None:
    run, _ = read_run(write_run(tmp_path / "pruned"))
    record = copy.deepcopy(dict(run.record))
    record["metrics"] |= {"unpruned": {"matched": {"accuracy": 0.9}}, "recovered": {"matched": {"accuracy": 0.85}}}
    found = alone(Run(record), "matched")
    assert (found.before, found.after) == (0.9, 0.85) and "85.0 %; the unpruned model has 90.0 %" in found.told()
    with pytest.raises(ValueError, match="`--set` must be one of matched; got 'test'"):
        alone(Run(record), "test")
    record["metrics"] = {}
    assert "Nothing was evaluated." in alone(Run(record)).told() and reaches(alone(Run(record)), 0.5) is None


def test_the_report_command_writes_a_page_or_says_what_is_missing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = str(write_run(tmp_path / "pruned"))
    assert call(monkeypatch, "report", one, "-o", str(tmp_path / "page.html")) == 0
    assert (tmp_path / "page.html").exists() and (tmp_path / "page_files" / "heads.svg").exists()
    assert "page.html" in capsys.readouterr().out
    assert call(monkeypatch, "report", str(tmp_path)) == 2
    assert "is not a results folder" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert call(monkeypatch, "report", str(folder)) == 2
    assert "pip install 'kheads[report]'" in capsys.readouterr().err
