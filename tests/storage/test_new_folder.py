"""New folders: whole or not at all, never in the place of what kheads did not make, whatever process dies."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kheads.storage import new_folder as module
from kheads.storage.disk import DiskError, check_room, explain
from kheads.storage.marks import MARK, mark, read_mark
from kheads.storage.new_folder import BusyError, alone, check_free, discard, new_folder


def made(folder: Path, text: str = "ours", overwrite: bool = False) -> Path:
    with new_folder(folder, overwrite) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "file").write_text(text)
    return folder


def content(folder: Path) -> str:
    return (folder / "inner" / "file").read_text()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_only_what_kheads_made_is_replaced(tmp_path: Path) -> None:
    out = made(tmp_path / "out")
    assert content(made(out, "new", overwrite=True)) == "new" and names(tmp_path) == ["out"]
    with pytest.raises(FileExistsError, match="is not empty; give another folder, or pass overwrite=True to"):
        made(out)
    (out / "inner" / "notes.txt").write_text("the user's")
    with pytest.raises(FileExistsError, match=r"out holds inner/notes\.txt, which kheads did not put there"):
        made(out, overwrite=True)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis").write_text("x")
    (foreign / MARK).write_text("{}")
    with pytest.raises(FileExistsError, match="was not made by kheads"):
        made(foreign, overwrite=True)
    with pytest.raises(FileExistsError, match="was not made by kheads"):
        discard(foreign)
    assert (foreign / "thesis").exists() and (out / "inner" / "notes.txt").exists()


@pytest.mark.parametrize("way", ["itself", "inside", "link", "linked out", "above"])
def test_what_is_read_is_never_replaced(way: str, tmp_path: Path) -> None:
    out = made(tmp_path / "out")
    (tmp_path / "link").symlink_to(out)
    target, read = {
        "itself": (out, out),
        "inside": (out, out / "inner" / "file"),
        "link": (tmp_path / "link", out),
        "linked out": (out, tmp_path / "link" / "inner"),
        "above": (out / ".." / "out", out / "inner"),
    }[way]
    with pytest.raises(FileExistsError, match="read here; give another folder"):
        check_free(target, True, [read])
    assert content(out) == "ours"


@pytest.mark.parametrize("where", ["cwd", "above", "home"])
def test_the_folder_one_works_in_is_never_replaced(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = made(tmp_path / "out")
    if where == "home":
        monkeypatch.setenv("HOME", str(out))
    else:
        monkeypatch.chdir(out if where == "cwd" else out / "inner")
    with pytest.raises(FileExistsError, match="or a folder above it"):
        made(out, overwrite=True)
    assert content(out) == "ours"


def test_a_linked_folder_is_replaced_where_it_lies(tmp_path: Path) -> None:
    out = made(tmp_path / "disk" / "out")
    (tmp_path / "link").symlink_to(out)
    made(tmp_path / "link", "new", overwrite=True)
    assert (tmp_path / "link").is_symlink() and content(out) == "new"


def test_impossible_places_are_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("gone")
    refused = {
        tmp_path / "file": "is a file; give a folder",
        tmp_path / "file" / "out": "is a file, so .* cannot be made",
        tmp_path / "loop" / "out": "is a link that leads nowhere",
        tmp_path / "nowhere": "is a link that leads nowhere",
        tmp_path / ("x" * 300): "file name too long; give a shorter name",
        tmp_path / ("x" * 250): "file name too long; give a shorter name",
        Path("/proc/out"): "no such file or directory; check the path|permission denied",
        Path("/proc/none/out"): "no such file or directory; check the path|permission denied",
    }
    for place, reason in refused.items():
        with pytest.raises(OSError, match=reason):
            made(place)
    assert names(tmp_path) == ["file", "loop", "nowhere"]


def test_folders_above_are_removed_again_if_nothing_was_written(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_folder(tmp_path / "a" / "b" / "out"):
        raise RuntimeError
    assert names(tmp_path) == []


def test_a_full_disk_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it strikes, also between the two renames; safetensors reports it in words of its own."""
    out = made(tmp_path / "out")
    for error in (OSError(errno.ENOSPC, "full", "x"), RuntimeError("I/O error: No space left on device (os error 28)")):
        with pytest.raises(DiskError, match=r"out: no space left on device; free some space"), new_folder(out, True):
            raise error
    rename = Path.rename

    def fail(self: Path, target: Any) -> Path:
        if self.name == module.NEW:
            raise OSError(errno.ENOSPC, "full")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(DiskError, match="no space left"):
        made(out, "new", overwrite=True)
    assert content(out) == "ours" and names(tmp_path) == ["out"]


DYING = """
import os, signal, sys
from pathlib import Path
from kheads.storage.new_folder import new_folder
rename, moment = Path.rename, sys.argv[2]
def dying(self, target):
    moved = rename(self, target)
    if self.name == moment:
        os.kill(os.getpid(), signal.SIGKILL)
    return moved
Path.rename = dying
with new_folder(sys.argv[1], overwrite=True) as folder:
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("new")
    if moment == "writing":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("moment", "then"), [("writing", "ours"), ("out", "new"), ("new", "new")])
def test_the_next_process_finishes_what_a_dead_one_began(
    moment: str, then: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = made(tmp_path / "out")
    foreign = tmp_path / ".out.kheads-aaaaaaaa"  # named like a workshop, but not marked
    foreign.mkdir()
    (foreign / "precious").write_text("x")
    (tmp_path / ".out.kheads-bbbbbbbb").mkdir()  # cut off before it was marked
    (tmp_path / ".out.kheads-bbbbbbbb" / f"{MARK}.tmp").write_text("{")
    subprocess.run([sys.executable, "-c", DYING, str(out), moment])
    assert out.exists() == (moment != "out") and len(names(tmp_path)) >= 3
    with alone(out):
        assert content(out) == then
    assert names(tmp_path) == [".out.kheads-aaaaaaaa", "out"] and (foreign / "precious").exists()
    assert "which a process that was cut off had left" in capsys.readouterr().err


def test_a_result_that_cannot_be_put_in_place_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cut off between the renames, and then the user made a folder of that name."""
    out = made(tmp_path / "out")
    subprocess.run([sys.executable, "-c", DYING, str(out), "out"])
    out.mkdir()
    with alone(out):
        pass
    workshop = next(tmp_path.glob(".out.kheads-*"))
    assert content(workshop / "old") == "ours" and content(workshop / "new") == "new"
    assert "holds what was in" in capsys.readouterr().err


def test_two_processes_do_not_write_to_one_place(tmp_path: Path) -> None:
    lines = "import sys", "from pathlib import Path", "from kheads.storage.new_folder import alone"
    code = "\n".join((*lines, "with alone(Path(sys.argv[1])): pass"))
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    with alone(tmp_path / "out"), alone(tmp_path / "out"):  # the same process may
        done = subprocess.run(command, capture_output=True, text=True)
        assert BusyError.__name__ in done.stderr and "Another process is writing to" in done.stderr
    assert subprocess.run(command).returncode == 0 and names(tmp_path) == []


def test_marks_list_what_was_made(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    mark(tmp_path, place="here")
    assert read_mark(tmp_path) == {"made_by": "kheads", "files": ["a"], "place": "here"}


def test_too_little_room_is_told_before(tmp_path: Path) -> None:
    check_room(tmp_path / "none" / "out", 1)
    with pytest.raises(DiskError, match="MB are free, and model and checkpoints need at least"):
        check_room(tmp_path / "none" / "out", 10**18)


def test_errors_of_the_system_say_what_to_do() -> None:
    assert explain(PermissionError(errno.EACCES, "x", "f")) == "f: permission denied; give a place that you may use."
    assert explain(OSError(errno.EIO, "x")) == f"{os.strerror(errno.EIO)[:1].lower()}nput/output error; check the disk."
    assert explain(FileNotFoundError("our own words.")) == "our own words."
