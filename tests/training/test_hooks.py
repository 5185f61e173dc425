"""A Trainer that no longer uses what kheads overrides is refused by name, not trained with."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
import transformers
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer

from kheads.training import hooks
from kheads.training.hooks import THERE, USED, UnknownTrainerError, check_hooks
from kheads.training.trainer import GatedSeq2SeqTrainer, GatedTrainer, GatedTrainerMixin
from small_runs import arguments

Fresh = Callable[[str], Any]


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """No class counts as checked before, or after what a test does to it."""
    check_hooks.cache_clear()
    yield
    check_hooks.cache_clear()


def renamed(code: CodeType, name: str) -> CodeType:
    constants = tuple(renamed(value, name) if isinstance(value, CodeType) else value for value in code.co_consts)
    names = tuple(f"new{word}" if word == name else word for word in code.co_names)
    return code.replace(co_consts=constants, co_names=names)


def functions(cls: type) -> Iterator[FunctionType]:
    found = (hooks._function(value) for value in vars(cls).values())
    return (function for function in found if function is not None)


def rename(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renames a method or attribute wherever Trainer mentions it."""
    for cls in (Trainer, Seq2SeqTrainer):
        for function in functions(cls):
            monkeypatch.setattr(function, "__code__", renamed(function.__code__, name))
        if name in vars(cls):
            monkeypatch.setattr(cls, f"new{name}", vars(cls)[name], raising=False)
            monkeypatch.delattr(cls, name)


@pytest.mark.parametrize("trainer", [GatedTrainer, GatedSeq2SeqTrainer])
def test_this_version_of_transformers_is_known_and_checked_once(trainer: type, fresh: Fresh, tmp_path: Path) -> None:
    args = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    for _ in range(2):
        trainer(model=fresh("bert"), args=args)
    assert check_hooks.cache_info()[:2] == (1, 1)  # hits, misses


@pytest.mark.parametrize("trainer", [GatedTrainer, GatedSeq2SeqTrainer])
@pytest.mark.parametrize("name", [*filter(hooks._is_due, USED), *THERE])
def test_a_renamed_hook_is_refused_by_name(
    name: str, trainer: type, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename(name, monkeypatch)
    with pytest.raises(UnknownTrainerError) as error:
        trainer(model=fresh("bert"), args=arguments(tmp_path))
    told = str(error.value)
    assert f"transformers {transformers.__version__} no longer" in told and f"Trainer.{name}, where" in told
    assert "update kheads" in told and "\n" not in told


def test_calls_from_elsewhere_do_not_hide_a_renamed_hook(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a method that calls itself in its base class, nor a class that is not of transformers."""

    class Own(GatedTrainerMixin, Seq2SeqTrainer):
        def before_step(self) -> None:
            self._save()

    rename("_save", monkeypatch)
    monkeypatch.setattr(Seq2SeqTrainer, "_save", lambda self: super(Seq2SeqTrainer, self)._save(), raising=False)
    with pytest.raises(UnknownTrainerError, match=r"no longer uses Trainer\._save"):
        Own(model=fresh("bert"), args=arguments(tmp_path))


def test_every_override_is_checked() -> None:
    """What the mixin and Trainer both define is in the table, but for `train`, which users call."""
    own = [cls for cls in GatedTrainerMixin.__mro__ if cls.__module__.startswith("kheads.")]
    shared = {name for cls in own for name in vars(cls)} & set(vars(Trainer)) - set(vars(object))
    plain = {name for name in shared if not name.startswith("__")} - {"train"}
    assert plain <= set(USED)
