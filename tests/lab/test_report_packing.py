"""Packed results: one file says what the folder says, the same bytes every time, and damage ends in a sentence."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command import call
from kheads.lab import packing
from kheads.lab.report.results import Results, read
from synthetic_results import write_run


@pytest.fixture(scope="module")
def packed(sweep: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packing.pack(sweep.folder, tmp_path_factory.mktemp("packed") / "results.jsonl.gz").path


def test_a_packed_file_says_what_the_folder_says(sweep: Results, packed: Path) -> None:
    found = read(packed)
    assert [run.record for run in found.runs] == [run.record for run in sweep.runs]
    assert (found.sweep, found.failed, found.efficiency) == (sweep.sweep, sweep.failed, sweep.efficiency)
    assert found.evaluation == sweep.evaluation
    # Scores lie in the order of the sites, so even the order of names must survive.
    assert list(found.runs[5].record["kept"]) == list(sweep.runs[5].record["kept"])


def test_the_same_results_are_the_same_bytes_and_much_fewer(sweep: Results, packed: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(sweep.folder, tmp_path / "copied")
    for path in copied.rglob("*.json"):
        path.touch()
    again = packing.pack(copied)
    assert again.path == tmp_path / "copied.jsonl.gz" and again.path.read_bytes() == packed.read_bytes()
    assert again.runs == len(sweep.runs) + 1 and again.failed == 1
    assert 5 * again.size < again.loose == sum(path.stat().st_size for path in copied.rglob("*.json"))


def test_nothing_but_results_goes_into_the_file(sweep: Results, packed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sweep.folder, tmp_path / "results")
    (folder / "work" / "locks").mkdir(parents=True)
    (folder / "work" / "settings.json").write_text("{}")
    (folder / "notes.json").write_text("{}")
    assert packing.pack(folder).path.read_bytes() == packed.read_bytes()


def test_numbers_that_json_does_not_know_survive(tmp_path: Path) -> None:
    (tmp_path / "results" / "runs").mkdir(parents=True)
    (tmp_path / "results" / "runs" / "a.json").write_text('{"loss": NaN, "most": Infinity, "name": "λ"}')
    content = packing.unpack(packing.pack(tmp_path / "results").path)["runs/a.json"]
    assert content["loss"] != content["loss"] and content["most"] == float("inf") and content["name"] == "λ"


def test_what_is_no_results_folder_is_not_packed(packed: Path, tmp_path: Path) -> None:
    one = write_run(tmp_path / "pruned")
    for folder in (one, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="is not the results folder of a sweep: it has no runs"):
            packing.pack(folder)
    with pytest.raises(ValueError, match="is a file; give the folder of a sweep"):
        packing.pack(packed)


def test_a_damaged_run_is_named_and_nothing_is_written(sweep: Results, tmp_path: Path) -> None:
    folder = shutil.copytree(sweep.folder, tmp_path / "results")
    (folder / "runs" / "ste-k6-s0.json").write_text('{"method": ')
    with pytest.raises(ValueError, match=r"ste-k6-s0\.json cannot be read as JSON"):
        packing.pack(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_file_that_is_there_is_replaced_only_if_asked(sweep: Results, tmp_path: Path) -> None:
    target = tmp_path / "kept.jsonl.gz"
    target.write_bytes(before := lines({"mine": 1}))
    with pytest.raises(FileExistsError, match="exists already; give --overwrite"):
        packing.pack(sweep.folder, target)
    assert target.read_bytes() == before
    packing.pack(sweep.folder, target, overwrite=True)
    assert packing.is_packed(target) and [path.name for path in tmp_path.iterdir()] == [target.name]


def test_what_cannot_be_read_back_does_not_take_the_place_of_a_file(
    sweep: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "kept.jsonl.gz"
    target.write_bytes(before := lines({"mine": 1}))
    monkeypatch.setattr(packing, "_compressed", lambda files: gzip.compress(b"broken"))
    with pytest.raises(ValueError, match="cannot be read as packed results"):
        packing.pack(sweep.folder, target, overwrite=True)
    assert target.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == [target.name]


def lines(*objects: Any) -> bytes:
    return gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in objects))


HEADER = {"format": packing.FORMAT, "version": packing.VERSION, "files": 1}
ENTRY = {"path": "runs/a.json", "content": {}}
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "no gzip": lambda whole: b'{"format": "kheads results"}\n',
    "cut off": lambda whole: whole[: len(whole) // 2],
    "a byte turned": lambda whole: whole[:400] + bytes([whole[400] ^ 255]) + whole[401:],
    "no JSON": lambda whole: gzip.compress(b"hello\n"),
    "no text": lambda whole: gzip.compress(b"\xff\xfe\n"),
    "too deep": lambda whole: gzip.compress(b"[" * 200_000),
    "a number of ten thousand digits": lambda whole: gzip.compress(b"9" * 10_000),
    "another format": lambda whole: lines({"format": "other"}),
    "a list": lambda whole: lines([HEADER], ENTRY),
    "another version": lambda whole: lines({**HEADER, "version": 99}, ENTRY),
    "a file missing": lambda whole: lines({**HEADER, "files": 2}, ENTRY),
    "a file twice": lambda whole: lines({**HEADER, "files": 2}, ENTRY, ENTRY),
    "content that is no object": lambda whole: lines(HEADER, {**ENTRY, "content": [1]}),
    "a record that is none": lambda whole: lines(HEADER, ENTRY),
    "a record with other types": lambda whole: lines(HEADER, {**ENTRY, "content": {"method": "none", "metric": 3}}),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_ends_in_one_sentence(
    kind: str, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(DAMAGE[kind](packed.read_bytes()))
    for command in (["report"], ["choose", "--at-least", "0.5"]):
        assert call(monkeypatch, *command[:1], str(broken), *command[1:]) == 2
        told = capsys.readouterr().err
        assert str(broken) in told and told.count("\n") == 1 and "Traceback" not in told


def test_a_file_that_unpacks_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = tmp_path / "bomb.jsonl.gz"
    bomb.write_bytes(gzip.compress(b" " * 3_000_000))
    monkeypatch.setattr(packing, "MOST_BYTES", 1_000_000)
    with pytest.raises(ValueError, match="more than 1,000,000 bytes when unpacked"):
        packing.unpack(bomb)
    (tmp_path / "results" / "runs").mkdir(parents=True)
    (tmp_path / "results" / "runs" / "a.json").write_text(json.dumps({"long": "x" * 1_000_000}))
    with pytest.raises(ValueError, match="a packed file may hold 1,000,000"):
        packing.pack(tmp_path / "results")


def damaged(record: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """A record with one thing wrong each, and what is said of it."""
    return [
        ({**record, "metrics": []}, "metrics must be a table"),
        ({**record, "metrics": {"pruned": {"test": 3}}}, "metrics.pruned.test must be a table"),
        ({**record, "before": {"heads": "72"}}, "before.heads must be a whole number"),
        ({**record, "kept": {"a": ["0"]}}, "kept.a must be a whole number"),
        ({**record, "history": {"gates": [1]}}, "history.gates must be a table"),
        ({**record, "look": {"key": "x", "label": "X"}}, "look.rank is missing"),
        ({**record, "report": {"seconds": {"train": None}}}, "report.seconds.train must be a whole number or a number"),
        ({name: part for name, part in record.items() if name != "after"}, "after is missing"),
    ]


def test_a_damaged_record_is_named_in_the_folder_and_in_the_file(sweep: Results, tmp_path: Path) -> None:
    for number, (record, flaw) in enumerate(damaged(dict(sweep.runs[0].record))):
        runs = tmp_path / str(number) / "runs"
        runs.mkdir(parents=True)
        (runs / "one.json").write_text(json.dumps(record))
        for path in (runs.parent, packing.pack(runs.parent).path):
            with pytest.raises(ValueError, match=r"runs/one\.json is damaged") as error:
                read(path)
            assert flaw in str(error.value)


def test_an_efficiency_experiment_may_be_packed_too(sweep: Results, packed: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one.json").write_text(json.dumps(sweep.runs[0].record))
    assert read(tmp_path, efficiency=[packed]).efficiency == sweep.efficiency
    broken = tmp_path / "speed.json"
    broken.write_text('{"rows": [{}], "heads": 72, "batch": 1, "length": 1}')
    with pytest.raises(ValueError, match=r"speed\.json is damaged"):
        read(tmp_path, efficiency=[broken])


def test_the_commands_pack_report_and_choose(
    sweep: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "results.jsonl.gz"
    assert call(monkeypatch, "pack", str(sweep.folder), "-o", str(target)) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(f"Packed {len(sweep.runs) + 1} runs (1 of them failed) into")
    assert f"{target.stat().st_size:,} bytes instead of" in told
    assert call(monkeypatch, "pack", str(sweep.folder), "-o", str(target), "--overwrite", "--json") == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == target.stat().st_size
    assert call(monkeypatch, "choose", str(target), "--at-least", "0.75", "--json") == 0
    chosen = json.loads(capsys.readouterr().out)
    assert call(monkeypatch, "choose", str(sweep.folder), "--at-least", "0.75", "--json") == 0
    assert json.loads(capsys.readouterr().out) == chosen
    for name, source in (("packed", target), ("folder", sweep.folder)):
        assert call(monkeypatch, "report", str(source), "-o", str(tmp_path / name / "page.html")) == 0
    csvs = {path.name: path.read_bytes() for path in (tmp_path / "packed" / "page_files").glob("*.csv")}
    assert csvs == {path.name: path.read_bytes() for path in (tmp_path / "folder" / "page_files").glob("*.csv")}
