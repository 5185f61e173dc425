"""Options are declared once, as fields with docstrings, and every door reads them from there."""

import json
from pathlib import Path
from typing import Any

import pytest

from command import TRAIN, call, place
from kheads import METHODS, Constraints
from kheads.cli.settings import make_job
from kheads.lab.jobs.catalogue import GLUE_NAMES, TASKS, Glue, LabelledFiles
from kheads.lab.jobs.job import DEFAULTS, SCHEDULES, Job, never_read, unread
from kheads.lab.options import Option, check, documented, options_of, parse
from kheads.tasks.glue_data import GLUE

__all__ = ["place"]

RECORDS = [Job, Constraints, LabelledFiles, Glue, *(task.data for task in TASKS.values()), *METHODS.values()]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_says_what_it_means(record: type) -> None:
    for option in options_of(record).values():
        assert (option.help.endswith(".") and option.help[0].isupper()) or option.name in ("task", "method"), option
    assert set(documented(record)) == set(options_of(record)) - {"preset"}


def test_no_name_means_two_things() -> None:
    """So --set needs no path: fields of jobs, constraints, methods and data are called differently."""
    shared = [options_of(Job), options_of(Constraints)]
    for task in TASKS.values():
        for method in METHODS.values():
            names = [name for options in (*shared, options_of(method), options_of(task.data)) for name in options]
            assert len(names) == len(set(names)), (task, method)


def test_the_names_of_glue_are_those_of_its_tasks() -> None:
    assert tuple(GLUE) == GLUE_NAMES


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (int, "3", 3),
        (float, "3", 3.0),
        (int | float, "3", 3),
        (int | float, "0.5", 0.5),
        (int | None, "none", None),
        (bool, "true", True),
        (str, "12", "12"),
        (float, "1e-4", 1e-4),
    ],
)
def test_values_are_read_by_type(hint: Any, text: str, value: Any) -> None:
    found = parse(Option("x", hint, None, ""), text, "--set x")
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (int, 1.5, "a whole number; got 1.5"),
        (int, True, "a whole number; got True"),
        (bool, 1, "true or false; got 1"),
        (int | None, "many", "a whole number, or none; got 'many'"),
    ],
)
def test_what_is_of_another_type_is_refused(hint: Any, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(Option("x", hint, None, ""), value, "x")


def test_set_reaches_every_record() -> None:
    sets = ("cooldown=0.5", "logging_steps=7", "eval_source=dev=d.de", "eval_target=dev=d.en", "min_per_site=1")
    job = make_job({"model": "m", "k": 3, "task": "translation"}, (*sets, "beams=2", "method.noise=0"))
    assert job.method_options == {"cooldown": 0.5, "noise": 0.0} and job.logging_steps == 7
    assert job.data == {"eval_source": {"dev": "d.de"}, "eval_target": {"dev": "d.en"}, "beams": 2}
    assert job.constraints == {"min_per_site": 1}


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("cooldwn=1",), "There is no option `cooldwn`. Did you mean 'cooldown'"),
        (("per_round=4",), "`per_round` belongs to --method michel, not to dsp"),
        (("beams=4",), "`beams` belongs to --task translation, not to labelled files"),
        (("noise",), "`--set` must be NAME=VALUE; got 'noise'"),
        (("annealed=maybe",), "`--set annealed` must be true or false; got 'maybe'"),
        (("head.noise=1",), "must be a name, or one after method., data., constraints."),
        (("fresh=true", "estimate_examples=9"), "`estimate_examples` has no effect here: dsp scores no examples"),
        (("fresh=true", "repair_examples=9"), "`repair_examples` has no effect here: nothing is repaired"),
        (("fresh=true", "trained=true"), "`trained` and `fresh` contradict each other"),
        (("temperature=3",), "`temperature` has no effect here: nobody teaches without `distil`"),
        (("gate_steps=9",), "`gate_steps` has no effect here: no gates learn on a frozen model"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(sets: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_job({"model": "m", "k": 3}, sets)


def test_fields_that_a_run_never_reads() -> None:
    teaching = {"distil_weight", "temperature", "distil_stream"}
    assert unread(Job("m", k=3)).keys() == {"gate_steps", "estimate_examples", "repair", "repair_examples", *teaching}
    assert unread(Job("m", k=3, pipelined=True)).keys() == {"estimate_examples", *teaching}
    assert unread(Job("m", k=3, method="michel", distil=True)).keys() == {"gate_steps"}
    assert unread(Job("m", k=3, method="michel", repair=False)).keys() == {"gate_steps", "repair_examples", *teaching}
    assert unread(Job("m", k=3, trained=True)).keys() == {"gate_steps", "recover_steps", *teaching}


def test_what_depends_on_the_model_is_refused_once_it_is_known() -> None:
    """Whether a model is trained is found out when it is loaded; until then a field may still be of use."""
    job = make_job({"model": "m", "k": 3}, ("estimate_examples=9",))
    assert job.settled(able=True).method == "surgeon" and job.settled(able=False).method == "dsp"
    assert "estimate_examples" in unread(job.settled(able=False)) and "gate_steps" in never_read(job)


def test_an_option_of_a_method_names_the_method() -> None:
    assert make_job({"model": "m", "k": 3}, ("noise=0",)).method == "dsp"
    assert make_job({"model": "m", "k": 3}, ("ridge=0.1",)).method == "surgeon"
    assert "recover_steps" in unread(Job("m", method="none")) and set(unread(Job("m", method="none"))) <= set(DEFAULTS)


def test_a_run_can_be_run_again_from_its_record_or_a_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flags go before the file; `--config` takes the keys of a sweep's [job] and the settings of a result.json."""
    (place / "run.toml").write_text(
        "[job]\nmodel = 'tiny'\nk = 5\nmethod = 'ste'\nmax_steps = 2\nbatch_size = 4\n"
        "method_options = {gate_lr = 0.2}\n"
        "data = {train = 'train.jsonl', eval = {matched = 'dev.jsonl'}}\n"
    )
    assert call(monkeypatch, "prune", "--config", "run.toml", "-o", "first") == 0
    assert call(monkeypatch, "prune", "--config", "first/result.json", "-o", "second") == 0
    assert call(monkeypatch, "prune", "--config", "first/result.json", "--seed", "1", "-o", "third") == 0
    records = [json.loads((place / name / "result.json").read_text()) for name in ("first", "second", "third")]
    assert records[0]["settings"] == records[1]["settings"] and records[0]["scores"] == records[1]["scores"]
    assert records[0]["method"]["gate_lr"] == 0.2 and records[2]["settings"]["seed"] == 1
    (place / "bad.toml").write_text("modle = 'tiny'\n")
    capsys.readouterr()
    assert call(monkeypatch, "prune", "--config", "bad.toml", *TRAIN, "-o", "x") == 2
    assert "has no field `modle` of a job. Did you mean 'model'?" in capsys.readouterr().err


def test_a_record_runs_no_code_that_the_user_does_not_name(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "evil.py").write_text("raise SystemExit('it ran')\n")
    (place / "result.json").write_text(json.dumps({"settings": {"model": "tiny", "k": 3, "method": "evil:Mine"}}))
    assert call(monkeypatch, "prune", "--config", "result.json", *TRAIN, "-o", "x") == 2
    assert "whose code is not ours; add --method evil:Mine to run it." in capsys.readouterr().err


NUMBERS = [
    (record, option)
    for record in RECORDS
    for option in options_of(record).values()
    if {int, float} & set(option.types) and option.name != "preset"
]


@pytest.mark.parametrize(("record", "option"), NUMBERS, ids=lambda value: getattr(value, "name", "-"))
def test_a_number_outside_its_range_is_refused_by_the_record_itself(record: type, option: Option) -> None:
    """So in Python, too; NaN, infinity, true and texts are numbers of no field."""
    needed = {"model": "m"} if record is Job else {}
    for value in (float("nan"), float("inf"), -float("inf"), True, "3", [1], 10**30, -7):
        if value == -7 and option.name == "gate_start":  # the only number that may be negative
            continue
        with pytest.raises(ValueError, match=f"`{option.name}` must be "):
            record(**needed, **{option.name: value})


def test_every_number_says_its_range_in_the_reference() -> None:
    for _, option in NUMBERS:
        assert option.name == "gate_start" or "from " in option.kind or "above " in option.kind, option


@pytest.mark.parametrize(("batch", "parts"), [(32, 3), (4, 8)])
def test_a_batch_is_split_into_equal_parts_or_not_at_all(batch: int, parts: int) -> None:
    with pytest.raises(ValueError, match=f"`accumulate` must divide the batch of {batch}"):
        Job("m", batch_size=batch, accumulate=parts)
    assert Job("m", batch_size=batch, accumulate=parts, task="translation").accumulate == parts


def test_schedules_are_those_of_transformers() -> None:
    from transformers import SchedulerType

    assert {kind.value for kind in SchedulerType} >= set(SCHEDULES)


def test_unknown_names_are_refused_wherever_a_record_is_made() -> None:
    with pytest.raises(
        ValueError, match=r"`max_per_site` does not belong to constraints; .* Did you mean 'min_per_site'"
    ):
        Job("m", constraints={"max_per_site": 1})
    with pytest.raises(ValueError, match="STE has no option `gatelr`; it has gate_lr, gate_lr_schedule"):
        METHODS["ste"].configured({"gatelr": 1})
