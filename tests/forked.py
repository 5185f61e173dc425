"""Commands in processes of their own, forked from one that has loaded everything: quick to start, and free to die.

Run as a script this is that process: it reads a request a line and answers each with a line.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")


class Forked:
    """Runs commands one after another, each in a forked process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )

    def run(self, folder: Path, *words: str, **options: Any) -> dict[str, Any]:
        """Runs `kheads WORDS` in a folder; gives its exit code, what it said, and how many files it changed.

        Args:
            folder: the working directory.
            *words: the command.
            **options: `kill_at`: the change to a file before which the process is killed; `before`: code to run first;
                `script` and `arguments`: what to run instead of the command.
        """
        assert self.process.stdin and self.process.stdout
        print(json.dumps({"folder": str(folder), "words": words, **options}), file=self.process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def execute(self, folder: Path, script: str, *arguments: str) -> int:
        """Runs a script of Python with these arguments in a folder; gives its exit code."""
        return int(self.run(folder, script=script, arguments=arguments)["code"])

    def close(self) -> None:
        """Ends the process that the others are forked from."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def forked() -> Iterator[Forked]:
    """A process to fork from, for the tests of a module."""
    process = Forked()
    yield process
    process.close()


def count_changes(kill_at: int | None, count: Any) -> None:
    """Counts what this process does to files, and kills it before the change of that number."""

    def look(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if not (writes or event in CHANGES) or str(args[0]).startswith("/dev/"):
            return
        count.seek(0)
        number = int(count.read(8)) + 1
        count.seek(0)
        count.write(f"{number:8d}")
        count.flush()
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def child(request: dict[str, Any], said: Any, count: Any) -> None:
    os.chdir(request["folder"])
    os.dup2(said[0].fileno(), 1)
    os.dup2(said[1].fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    exec(request.get("before", ""), {})
    count_changes(request.get("kill_at"), count)
    code: Any = 0
    try:
        if "script" in request:
            sys.argv = ["script", *request["arguments"]]
            exec(request["script"], {"__name__": "__main__"})
        else:
            sys.argv = ["kheads", *request["words"]]
            from kheads.cli import main

            main()
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        tempfile.TemporaryFile("w+") as count,
    ):
        count.write(f"{0:8d}")
        count.flush()
        if not (pid := os.fork()):
            child(request, (out, err), count)
        _, status = os.waitpid(pid, 0)
        for file in (out, err, count):
            file.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return {"code": code, "out": out.read(), "err": err.read(), "changes": int(count.read())}


def serve() -> None:
    import torch

    for name in ("lab.jobs.running", "lab.jobs.classification", "lab.jobs.translation", "lab.terminal", "cli"):
        importlib.import_module(f"kheads.{name}")
    for name in ("bert", "marian"):
        importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
