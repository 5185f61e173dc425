"""Freed memory is kept where glibc can be asked to, and nothing happens anywhere else."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kheads.cli import allocation
from kheads.cli.allocation import keep_freed_memory

VARIABLES = tuple(allocation.SETTINGS)
MOST = 2**31 - 1


class System:
    """Stands in for the operating system, its C library and the environment."""

    def __init__(self, most: int = MOST, name: str | None = "glibc 2.36", environ: dict[str, str] | None = None):
        self.most, self.name = most, name
        self.environ = dict(environ or {})
        self.set: dict[int, int] = {}
        self.asked = 0

    def confstr(self, name: str) -> str | None:
        if self.name == "unknown":
            raise ValueError("unrecognized configuration name")
        return self.name

    def mallopt(self, number: int, value: int) -> int:
        self.asked += 1
        if number == -3 and value > self.most:
            return 0
        self.set[number] = value
        return 1


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[System], bool]:
    """Calls `keep_freed_memory` on a system."""

    def call(system: System) -> bool:
        monkeypatch.setattr(allocation, "os", system)
        monkeypatch.setattr(ctypes, "CDLL", lambda name: system)
        return keep_freed_memory()

    return call


def test_both_thresholds_are_set_here_and_for_processes_to_come(on: Callable[[System], bool]) -> None:
    system = System()
    assert on(system)
    assert system.set == {-3: MOST, -1: MOST} and system.environ == dict.fromkeys(VARIABLES, str(MOST))


def test_an_older_glibc_gets_the_most_it_takes(on: Callable[[System], bool]) -> None:
    system = System(most=32 * 2**20)
    assert on(system)
    assert system.set[-3] == 32 * 2**20 == int(system.environ["MALLOC_MMAP_THRESHOLD_"])


def test_what_is_refused_is_not_claimed(on: Callable[[System], bool]) -> None:
    system = System(most=0)
    assert not on(system)
    assert list(system.environ) == ["MALLOC_TRIM_THRESHOLD_"]


@pytest.mark.parametrize("given", [*VARIABLES, "GLIBC_TUNABLES=glibc.malloc.mmap_threshold"])
def test_what_the_user_has_set_stays(given: str, on: Callable[[System], bool]) -> None:
    name, _, value = given.partition("=")
    system = System(environ={name: value})
    assert not on(system)
    assert not system.asked and system.environ == {name: value}


@pytest.mark.parametrize("name", [None, "musl 1.2", "unknown"])
def test_nothing_happens_without_glibc(name: str | None, on: Callable[[System], bool]) -> None:
    system = System(name=name)
    assert not on(system)
    assert not system.asked and not system.environ


def test_nothing_happens_where_the_system_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no `confstr`; a C library may lack `mallopt`."""
    monkeypatch.setattr(allocation, "os", SimpleNamespace(environ={}))
    assert not keep_freed_memory()
    system = System()
    monkeypatch.setattr(allocation, "os", system)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert not keep_freed_memory() and not system.environ


# Makes and frees 64 MB, as often as a training step would, and counts the pages that the system hands out for it.
FAULTS = """
import resource, runpy, sys
keep_freed_memory = runpy.run_path(sys.argv[1])["keep_freed_memory"]
assert not {"torch", "typer", "kheads"} & sys.modules.keys()
assert sys.argv[2] == "as it is" or (keep_freed_memory() and not keep_freed_memory())
block = bytearray(2**26)
del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    block = bytearray(2**26)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not allocation._is_glibc(), reason="needs glibc")
def test_glibc_keeps_what_is_freed() -> None:
    """A process of its own: what is set cannot be taken back."""
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    faults = {}
    for setting in ("as it is", "kept"):
        command = [sys.executable, "-S", "-c", FAULTS, allocation.__file__, setting]
        run = subprocess.run(command, check=True, capture_output=True, text=True, env=clean)
        faults[setting] = int(run.stdout)
    assert faults["kept"] < faults["as it is"] / 4
