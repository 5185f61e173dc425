"""From a config to runs: names, what concerns whom, what shares what, and one sentence for what cannot be."""

from pathlib import Path
from typing import Any

import pytest

from kheads import DSP, Michel
from kheads.lab.sweep import Sweep, expand, read

JOB = {"model": "minilm", "task": "made-nli", "max_steps": 3}
ALL = ["none", "dsp", "ste", "voita", "michel", "random"]


def plan(grid: Any, job: Any = JOB, **more: Any) -> Sweep:
    return expand({"job": job, "grid": grid, **more})


def ids(sweep: Sweep) -> list[str]:
    return [run.id for run in sweep.runs]


def test_every_method_k_and_seed_has_a_readable_name() -> None:
    sweep = plan({"methods": ALL, "k": [12, 3], "seeds": [0, 1], "pipelined": [False, True]})
    assert len(sweep.runs) == len(set(ids(sweep))) == 2 * (1 + 2 * (3 + 3 + 2))
    assert {"none-s0", "dsp-k12-s1", "dsp-k12-s0-pipelined", "michel-k3-s0", "random-k12-s1"} <= set(ids(sweep))
    assert {run.series for run in sweep.runs} >= {"dsp", "pipelined dsp", "none"}


def test_an_axis_concerns_only_those_it_changes() -> None:
    """Lambda is Voita's, annealing DSP's, a learning rate everybody's, and the unpruned model knows no K."""
    grid = {
        "methods": ALL,
        "k": [6],
        "seeds": [0],
        "method_options": {"weight": [0.1, 0.0015]},
        "annealed": [True, False],
    }
    assert ids(plan(grid)) == [
        "none-s0",
        "dsp-k6-s0-annealed_true",
        "dsp-k6-s0-annealed_false",
        "ste-k6-s0",
        "voita-k6-s0-weight_0.1",
        "voita-k6-s0-weight_0.0015",
        "michel-k6-s0",
        "random-k6-s0",
    ]
    rates = plan(
        {"methods": ["none", "michel"], "k": [6], "seeds": [0], "lr": [1e-4, 1e-3], "estimate_examples": [5, 9]}
    )
    assert ids(rates)[:2] == ["none-s0-lr_0.0001", "none-s0-lr_0.001"] and len(rates.runs) == 2 + 4
    michel = next(run for run in rates.runs if run.id == "michel-k6-s0-lr_0.001-estimate_examples_9")
    assert michel.model_from == "none-s0-lr_0.001" and michel.job.estimate_examples == 9 and michel.job.lr == 1e-3
    assert dict(michel.axes) == {"lr": 1e-3, "estimate_examples": 9}
    own = plan({"methods": ["dsp"], "k": [6], "seeds": [0], "method_options": {"gate_lr": [0.1]}})
    assert ids(own) == ["dsp-k6-s0-gate_lr_0.1"]


def test_one_training_of_voita_serves_every_k() -> None:
    """Jointly its trained model too; not where lambda is searched for a K, or the K heads are evaluated on the way."""
    grid = {"methods": ["voita"], "k": [6, 1, 3], "seeds": [0, 1], "pipelined": [False, True], "weight": [0.1, 0.2]}
    runs = {run.id: run for run in plan(grid).runs}
    joint, pipelined = runs["voita-k6-s1-weight_0.2"], runs["voita-k6-s1-pipelined-weight_0.2"]
    assert joint.needs == ("voita-k1-s1-weight_0.2",) and joint.whole_from == joint.scores_from
    assert pipelined.needs == ("none-s1", "voita-k1-s1-pipelined-weight_0.2") and pipelined.whole_from is None
    assert runs["voita-k1-s1-weight_0.2"].gives_whole and not runs["none-s1"].gives_whole
    searched = plan(grid, methods={"voita": {"search": 2}})
    watched = plan(grid, {**JOB, "eval_steps": 5})
    assert all(run.scores_from is None for run in (*searched.runs, *watched.runs))


def test_trained_models_and_rounds_of_michel_are_shared() -> None:
    sweep = plan({"methods": ["dsp", "michel", "random"], "k": [6, 1, 3], "seeds": [0], "pipelined": [False, True]})
    runs = {run.id: run for run in sweep.runs}
    assert runs["none-s0"].shared and not runs["dsp-k6-s0"].needs
    assert runs["dsp-k6-s0-pipelined"].needs == ("none-s0",) == runs["random-k1-s0"].needs
    assert runs["michel-k1-s0"].needs == ("none-s0",)
    assert runs["michel-k6-s0"].needs == runs["michel-k3-s0"].needs == ("none-s0", "michel-k1-s0")
    place = {name: index for index, name in enumerate(runs)}
    assert all(place[name] < place[run.id] for run in runs.values() for name in run.needs)
    constrained = plan({"methods": ["michel"], "k": [6, 3], "seeds": [0]}, {**JOB, "constraints": {"min_per_site": 1}})
    assert all(run.scores_from is None for run in constrained.runs)
    assert constrained.runs[0].job.constraints == {}, "the unpruned model has nothing to constrain"


def test_a_trained_model_is_not_trained_again() -> None:
    sweep = plan({"methods": ["michel"], "k": [6], "seeds": [0]}, {**JOB, "trained": True})
    assert ids(sweep) == ["michel-k6-s0"] and not sweep.runs[0].needs


def test_grids_add_up() -> None:
    """A main grid and a staircase of lambda in one sweep; what both ask for is one run."""
    grids = [
        {"methods": ["none", "voita"], "k": [6], "seeds": [0]},
        {"methods": ["voita"], "k": [6], "seeds": [0], "method_options": {"weight": [0.1, 0.2]}},
        {"methods": ["none"], "seeds": [0, 1]},
    ]
    assert ids(plan(grids)) == ["none-s0", "voita-k6-s0", "voita-k6-s0-weight_0.1", "voita-k6-s0-weight_0.2", "none-s1"]


def test_methods_have_their_own_options() -> None:
    sweep = plan(
        {"methods": ["dsp", "michel"], "k": [6], "seeds": [0]},
        methods={"dsp": {"preset": "short"}, "michel": {"per_round": 3}},
    )
    chosen = {run.job.method: run.job.chosen() for run in sweep.runs}
    assert chosen == {"dsp": DSP.preset("short"), "none": None, "michel": Michel(per_round=3)}
    described = sweep.describe()
    assert described["task"] == "made-nli" and described["axes"]["method"] == ["dsp", "none", "michel"]


GRID = {"methods": ["dsp"], "k": [6], "seeds": [0]}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"job": JOB}, r"needs a \[grid\]"),
        ({"job": JOB, "grid": {"k": [1]}}, "needs `methods`"),
        ({"job": JOB, "grid": {**GRID, "methods": ["best"]}}, "The method must be one of dsp, .*got 'best'"),
        ({"job": JOB, "grid": {**GRID, "k": []}}, "`k` must be a list of values"),
        ({"job": JOB, "grid": {**GRID, "k": [0]}}, "must be a whole number from 1 up, or none; got 0"),
        ({"job": JOB, "grid": {"methods": ["dsp"], "seeds": [0]}}, "needs `k`"),
        ({"job": JOB, "grid": {**GRID, "colour": [1]}}, "'colour' is neither a field of a job nor of a method here"),
        ({"job": JOB, "grid": {**GRID, "weight": [1]}}, "'weight' is neither"),
        ({"job": JOB, "grid": {**GRID, "seed": [1]}}, "'seed' is called `seeds`"),
        ({"job": JOB, "grid": {"methods": ["michel"], "k": [1], "pipelined": [True]}}, "`pipelined` is for methods"),
        ({"job": {**JOB, "speed": 1}, "grid": GRID}, r"\[job\] has no `speed`"),
        ({"job": {**JOB, "seed": 1}, "grid": GRID}, r"`seed` does not belong in \[job\]; give `seeds` in \[grid\]"),
        ({"job": {"task": "mnli"}, "grid": GRID}, "needs `model`"),
        ({"job": {**JOB, "task": "chess"}, "grid": GRID}, "The task must be one of .*got 'chess'"),
        ({"job": JOB, "grid": GRID, "methods": {"dsp": {"weight": 1}}}, r"\[methods.dsp\] has no `weight`"),
        ({"job": JOB, "grid": GRID, "methods": {"best": {}}}, "The method must be one of"),
        ({"job": JOB, "grid": GRID, "color": 1}, "`color` does not belong to a sweep"),
        ({"job": JOB, "grid": GRID, "methods": {"dsp": {"gate_lr": -1.0}}}, "must be a number above 0; got -1.0"),
    ],
)
def test_what_cannot_be_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expand(config)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.toml does not exist"):
        read(tmp_path / "nothing.toml")
    (tmp_path / "broken.toml").write_text("[job\n")
    with pytest.raises(ValueError, match=r"broken.toml cannot be read as TOML"):
        read(tmp_path / "broken.toml")
    (tmp_path / "short.toml").write_text("[job]\nmodel = 'x'\n")
    with pytest.raises(ValueError, match=r"short.toml: A sweep needs a \[grid\]"):
        read(tmp_path / "short.toml")


def test_a_repair_concerns_those_who_cut_a_trained_model() -> None:
    """Methods that learn along with the model have nothing to repair, and run once."""
    sweep = plan({"methods": ["dsp", "michel"], "k": [6], "seeds": [0], "repair": [True, False]})
    cut = ["michel-k6-s0-repair_true", "michel-k6-s0-repair_false"]
    assert ids(sweep) == ["dsp-k6-s0", "none-s0", *cut]
    assert [run.job.repair for run in sweep.runs] == [True, True, True, False]
