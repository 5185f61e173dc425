"""A damaged folder is refused with a CheckpointError, or computes what the whole one computes. Nothing else happens."""

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import fuzzing
import pytest
from fuzzing import HOSTILE, TYPES, Saved

from kheads import CheckpointError
from kheads.storage import model_folder
from kheads.storage.weights import read_headers, weight_files

CASES = 300
GROUPS = 10


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Saved]:
    return fuzzing.save_all(tmp_path_factory.mktemp("whole"))


def check(saved: dict[str, Saved], cases: range, folder: Path) -> None:
    wrong = {}
    for case in cases:
        what, done = fuzzing.damaged(saved, case, folder / str(case))
        if (result := fuzzing.outcome(folder / str(case), what)) not in ("same", "refused"):
            wrong[case] = (done, result)
    assert not wrong


@pytest.mark.parametrize("group", range(GROUPS))
def test_damaged_folders(group: int, saved: dict[str, Saved], tmp_path: Path) -> None:
    check(saved, range(group, CASES, GROUPS), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(100))
def test_many_damaged_folders(group: int, saved: dict[str, Saved], tmp_path: Path) -> None:
    check(saved, range(CASES + group, CASES + 10_000, 100), tmp_path)


def test_whole_folders_load(saved: dict[str, Saved]) -> None:
    """The fuzzer would be content with a `load` that refuses everything."""
    assert {name: fuzzing.outcome(one.folder, one) for name, one in saved.items()} == dict.fromkeys(TYPES, "same")


class Records:
    """Plans the model of a folder from other records than its own, without a checksum."""

    def __init__(self, saved: Saved) -> None:
        self.folder = saved.folder
        self.config = json.loads((saved.folder / "config.json").read_text())
        del self.config["kheads"]["checksum"]
        self.headers = read_headers(weight_files(self.folder))
        self.cls = model_folder._resolve_class(self.folder, self.config)
        self.derived = self._derived(self.config)

    def _derived(self, config: dict[str, Any]) -> dict[str, Any]:
        """All that the record does to the model; which heads it says are left is only said."""
        plan = model_folder._planned(self.folder, self.cls, copy.deepcopy(config), self.headers)
        return {key: value for key, value in plan.kheads.items() if key != "sites"}

    def believes(self, path: tuple[Any, ...], value: Any) -> bool:
        """Whether another value at that place of the record makes another model."""
        config = {**self.config, "kheads": copy.deepcopy(self.config["kheads"])}
        fuzzing.at(config["kheads"], path[:-1])[path[-1]] = value
        try:
            return self._derived(config) != self.derived
        except CheckpointError:
            return False


@pytest.mark.parametrize("name", TYPES)
def test_no_value_of_a_record_is_believed(name: str, saved: dict[str, Saved]) -> None:
    records, random = Records(saved[name]), Random(0)
    paths = list(fuzzing.places(records.config["kheads"]))
    assert [path for path in paths if records.believes(path, random.choice(HOSTILE))] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_no_hostile_value_of_a_record_is_believed(name: str, saved: dict[str, Saved]) -> None:
    records = Records(saved[name])
    paths = list(fuzzing.places(records.config["kheads"]))
    assert [(path, value) for path in paths for value in HOSTILE if records.believes(path, value)] == []
