"""A trained model in, a smaller one out: repaired after its cut, taught by the original, trained on or not at all."""

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import kheads
from kheads import DSP, METHODS, Michel, Plan, Site, prune
from kheads.methods.base import Goal, Moment
from kheads.methods.phases import Cut, LearnGates, Outline, Repair, Train
from kheads.training.bench import Bench
from kheads.training.distillation import Distillation
from kheads.training.drawn_labels import drawn_loss
from kheads.training.judged_repair import WORSE, Before
from small_runs import arguments, data, without_dropout
from zoo.tiny import randomise

Fresh = Callable[[str], Any]
STAGES = ["unpruned", "masked", "pruned", "cut", "repaired"]


def unlabelled(count: int = 12) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "labels"} for row in data("bert", count)]


@pytest.mark.parametrize("name", METHODS)
def test_a_repair_follows_every_cut_of_a_trained_model(name: str) -> None:
    """Whoever chooses afterwards is repaired; who learns along with the model has nothing to repair, but for DSP."""
    method = METHODS[name].configured(outline=Outline(trained=True))
    phases = method.phases(Outline(frozen=method.pipelines, trained=True))
    assert phases[phases.index(Cut()) + 1] == Repair()
    joint = DSP.configured().phases(Outline(trained=True))
    assert joint[:3] == (LearnGates(steps=0.65), Cut(), Repair()) and isinstance(joint[3], Train)
    assert DSP.configured().phases(Outline()) == (LearnGates(), Cut())


def test_the_default_for_a_trained_model_trains_after_its_cut_alone(fresh: Fresh, tmp_path: Path) -> None:
    rows = data("bert")
    result = prune(fresh("bert"), 3, None, rows, rows[:4], arguments(tmp_path), trained=True)
    assert list(result.metrics) == STAGES and list(result.history) == ["adapt"]
    assert result.history["adapt"][-1]["step"] == 4 and result.report["repair"]["tokens"] == 12 * 6
    assert result.metrics["pruned"] != result.metrics["repaired"] != result.metrics["cut"] == result.metrics["masked"]
    rates = [entry["learning_rate"] for entry in result.history["adapt"] if "learning_rate" in entry]
    assert max(rates) <= 0.5e-3  # half of the rate that was given


def test_without_training_nothing_is_trained_and_labels_are_not_needed(fresh: Fresh, tmp_path: Path) -> None:
    model = fresh("bert")
    before = copy.deepcopy(model.state_dict())
    result = prune(model, 3, None, unlabelled(), data("bert", 4), arguments(tmp_path), trained=True, training=False)
    assert not result.history and result.metrics["pruned"] == result.metrics["repaired"]
    changed = {name for name, tensor in result.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed and all("output.dense" in name or "attention" in name for name in changed)


def test_bfloat16_is_for_training_and_leaves_scores_repair_and_result_as_they_are(fresh: Fresh, tmp_path: Path) -> None:
    """An autocast stays around an evaluated model; what is scored, fitted and returned must not go through it."""
    found = {}
    for bf16 in (False, True):
        model, rows = fresh("bert"), data("bert")
        result = prune(model, 3, None, rows, rows[:4], arguments(tmp_path, bf16=bf16), trained=True, training=False)
        found[bf16] = result
        result.save(tmp_path / str(bf16))
    assert found[True].kept == found[False].kept
    for own, other in zip(*(one.model.state_dict().values() for one in found.values()), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)
    rows = data("bert")
    batch = {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        logits = [model.eval()(**batch).logits for model in (found[True].model, kheads.load(tmp_path / "True"))]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=0)


@pytest.mark.parametrize("bf16", [False, True])
def test_what_16_bits_round_differently_is_no_defect(
    bf16: bool, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed neurons and removed ones are summed in another order; larger models than this one show it."""
    seen = Bench.evaluate

    def evaluate(bench: Bench) -> Any:
        metrics, predictions = seen(bench)
        rounding = 0.005 * (count(bench.model) < before)
        return metrics, {name: values + rounding for name, values in predictions.items()}

    def count(model: Any) -> int:
        return sum(site.count for site in kheads.discover(model, parts="ffn"))

    monkeypatch.setattr(Bench, "evaluate", evaluate)
    model = fresh("bert")
    before = count(model)
    rows, args = data("bert"), arguments(tmp_path, bf16=bf16)
    plan, budget = Plan(trained=True, training=False), kheads.Budget(params=0.8)
    with nullcontext() if bf16 else pytest.raises(RuntimeError, match="differ from the masked model's by"):
        prune(model, None, None, rows, rows, args, plan=plan, budget=budget)


def test_no_repair_is_the_papers_setting(fresh: Fresh, tmp_path: Path) -> None:
    rows = data("bert")
    plan = Plan(trained=True, repair=False)
    result = prune(fresh("bert"), 3, Michel(), rows, rows[:4], arguments(tmp_path), plan=plan)
    assert list(result.metrics) == ["unpruned", "masked", "pruned"] and "repair" not in result.report


def test_joint_dsp_of_a_trained_model_is_cut_early_repaired_and_trained_on(fresh: Fresh, tmp_path: Path) -> None:
    rows = data("bert")
    args = arguments(tmp_path, max_steps=10)
    result = prune(fresh("bert"), 3, "dsp", rows, rows[:4], args, trained=True)
    assert {part: log[-1]["step"] for part, log in result.history.items()} == {"gates": 6, "adapt": 4}
    stages = [name for name in STAGES if name != "repaired" or not result.report["repair"]["undone"]]
    assert list(result.metrics) == stages and len(result.kept) == 3


@pytest.mark.parametrize(("step", "undone"), [(-1.0, False), (1.0, True)])
def test_a_repair_that_makes_a_model_worse_that_learned_with_its_gates_is_undone(step: float, undone: bool) -> None:
    torch.manual_seed(0)
    model, batches = torch.nn.Linear(3, 1), [{"x": torch.randn(4, 3)}, {"x": torch.randn(2, 3)}]

    def loss(model: torch.nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return model(batch["x"]).square().mean(), torch.ones(len(batch["x"]))

    before, old = Before(model, batches, loss), model.weight.detach().clone()
    with torch.no_grad():
        changed = (1 + 0.5 * step) * model.weight
        model.weight.copy_(changed)
        model.bias.mul_(1 + 0.5 * step)
    assert before.restored_if_better() is undone
    assert torch.equal(model.weight, old if undone else changed)


def test_joint_dsp_that_has_learned_much_is_not_repaired_back_to_the_model_before(fresh: Fresh, tmp_path: Path) -> None:
    rows = data("bert")
    args = arguments(tmp_path, max_steps=60, per_device_train_batch_size=12, learning_rate=5e-3)
    result = prune(without_dropout(fresh("bert")), 3, "dsp", rows, rows, args, trained=True)
    assert result.report["repair"]["undone"] and WORSE in result.report["remarks"]
    assert (
        "repaired" not in result.metrics
        and result.metrics["cut"]["eval"]["loss"] < result.metrics["unpruned"]["eval"]["loss"]
    )


def test_who_has_no_labels_learns_from_the_original(fresh: Fresh, tmp_path: Path) -> None:
    """The teacher is the model before the cut, so training brings the smaller one nearer to it."""
    args = arguments(tmp_path, max_steps=40, per_device_train_batch_size=12, learning_rate=2e-3)
    original, rows = without_dropout(fresh("bert")), data("bert")
    result = prune(copy.deepcopy(original), 3, None, unlabelled(), rows, args, trained=True)
    repaired = prune(copy.deepcopy(original), 3, None, unlabelled(), rows, args, trained=True, training=False)
    batch = {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        wanted, *found = (
            model.eval()(**batch).logits.log_softmax(-1) for model in (original, result.model, repaired.model)
        )
    trained, untrained = ((one - wanted).abs().mean() for one in found)
    assert trained < untrained


def test_distillation_changes_what_is_learned(fresh: Fresh, tmp_path: Path) -> None:
    rows = data("bert")
    plain, taught = (
        prune(fresh("bert"), 3, None, rows, rows, arguments(tmp_path / str(n)), trained=True, distil=distil)
        for n, distil in enumerate((None, Distillation(0.9)))
    )
    assert (
        plain.metrics["repaired"] == taught.metrics["repaired"] and plain.metrics["pruned"] != taught.metrics["pruned"]
    )


@pytest.mark.parametrize(
    ("plan", "method", "message"),
    [
        ({"training": False, "trained": True}, "dsp", "dsp learns by training, and `training=False` says not to"),
        ({"training": False}, None, "`training=False` is for a model that is trained already"),
        ({"training": False, "trained": True, "recover_steps": 3}, None, "`recover_steps` trains"),
        ({"trained": True, "baseline": True}, "michel", "`baseline` trains for as long as the smaller model"),
        ({"distil": Distillation()}, "dsp", "`distil` needs a teacher, and dsp trains the model that is given"),
        ({"trained": True, "repair_examples": 1}, None, "A repair needs two .*; `repair_examples` is 1. Give more, or"),
    ],
)
def test_what_cannot_be_is_refused(
    plan: dict[str, Any], method: str | None, message: str, fresh: Fresh, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        prune(fresh("bert"), 3, method, data("bert"), None, arguments(tmp_path), **plan)


@pytest.mark.parametrize(("k", "method"), [(3, "dsp"), (None, None)])
def test_a_model_that_has_to_be_trained_needs_labels(
    k: int | None, method: str | None, fresh: Fresh, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="has no labels, and the model has to be trained"):
        prune(fresh("bert"), k, method, unlabelled(), None, arguments(tmp_path))


def test_drawn_labels_are_as_likely_as_the_model_says(fresh: Fresh) -> None:
    """The mean gradient of a loss against labels of one's own is none, whatever the model says."""
    model, batch = fresh("bert"), {"input_ids": torch.arange(4, 10).repeat(400, 1)}
    draw = torch.Generator().manual_seed(0)
    drawn = torch.autograd.grad(drawn_loss(model.eval(), batch, draw), model.classifier.bias)[0]
    certain = torch.autograd.grad(model(**batch, labels=torch.zeros(400).long()).loss, model.classifier.bias)[0]
    assert drawn.norm() < 0.1 * certain.norm()


@pytest.mark.parametrize("kind", ["TokenClassification", "QuestionAnswering"])
def test_labels_are_drawn_for_tokens_and_spans(kind: str, fresh: Fresh) -> None:
    """Again the mean gradient is none; an example counts once, and its padding not at all."""
    config = fresh("bert").config
    config.num_labels = 2
    model = randomise(getattr(transformers, f"BertFor{kind}")(config)).eval()
    ids, mask = torch.arange(4, 10).repeat(600, 1), torch.ones(600, 6).long()
    mask[:300, 2:] = 0
    batch = {"input_ids": ids, "attention_mask": mask}
    bias = (model.classifier if kind == "TokenClassification" else model.qa_outputs).weight
    drawn = torch.autograd.grad(drawn_loss(model, batch, torch.Generator().manual_seed(0)), bias)[0]
    labels = {"labels": torch.zeros(600, 6).long()}
    spans = dict.fromkeys(("start_positions", "end_positions"), torch.zeros(600).long())
    certain = model(**batch, **(labels if kind == "TokenClassification" else spans)).loss
    assert drawn.norm() < 0.15 * torch.autograd.grad(certain, bias)[0].norm()
    short, other = {name: value[:300] for name, value in batch.items()}, ids[:300].clone()
    other[:, 2:] = 3  # what stands in the padding
    one, two = (
        drawn_loss(model, {**short, "input_ids": given}, torch.Generator().manual_seed(1))
        for given in (ids[:300], other)
    )
    assert torch.allclose(one, two)


def test_labels_that_do_not_exclude_each_other_are_drawn_one_by_one(fresh: Fresh) -> None:
    """That one label is certain says nothing of the others; of one that is open, half is to be learned."""
    model, batch = fresh("bert").eval(), {"input_ids": torch.arange(4, 10)[None]}
    model.config.problem_type = "multi_label_classification"
    model.classifier.weight.data.zero_()
    model.classifier.bias.data = torch.tensor([30.0, 0.0, -30.0])
    loss = drawn_loss(model, batch, torch.Generator().manual_seed(0))
    slope = torch.autograd.grad(loss, model.classifier.bias)[0].abs()
    assert torch.allclose(slope, torch.tensor([0.0, 0.5 / 3, 0.0]), atol=1e-6)
    model.config.problem_type = "regression"
    loss = drawn_loss(model, batch, torch.Generator().manual_seed(0))
    assert (torch.autograd.grad(loss, model.classifier.bias)[0] != 0).all()


def test_one_row_is_too_few_for_a_repair(fresh: Fresh, tmp_path: Path) -> None:
    """It is said before anything is scored; without a repair one row does."""
    few, args = data("bert", 1), arguments(tmp_path, max_steps=1, per_device_train_batch_size=1)
    with pytest.raises(ValueError, match=r"the training data has 1. Give more, or pass repair=False\."):
        prune(fresh("bert"), 3, None, few, None, args, trained=True)
    assert len(prune(fresh("bert"), 3, None, few, None, args, trained=True, repair=False).kept) == 3


def test_a_language_model_goes_on_keeping_keys_and_values(fresh: Fresh, tmp_path: Path) -> None:
    """Trainer switches that off for every model that it sees."""
    model, plain = fresh("gpt2"), fresh("bert")
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in data("bert")]
    result = prune(model, 2, "michel", rows, rows[:4], arguments(tmp_path), trained=True)
    assert result.model.config.use_cache
    result.save(tmp_path / "out")
    assert kheads.load(tmp_path / "out")(input_ids=rows[0]["input_ids"][None]).past_key_values is not None
    del plain.config.use_cache
    assert "use_cache" not in vars(prune(plain, 3, "random", data("bert"), None, arguments(tmp_path)).model.config)


def test_labels_cannot_be_drawn_where_there_are_no_logits(fresh: Fresh) -> None:
    model = fresh("bert").bert
    with pytest.raises(ValueError, match="does not give one row of logits for each of them or of their tokens"):
        drawn_loss(model, {"input_ids": torch.arange(4, 10)[None]}, torch.Generator())


@pytest.mark.parametrize(("k", "settled"), [(4, 0.65), (3, 0.35)])
def test_few_heads_are_chosen_early(k: int, settled: float) -> None:
    """With the usual preset the gates are the hard subset by 65 % of training, below 6 % of the heads by 35 %."""
    goal = Goal(k, (Site("a", "encoder", 64, 4),))
    method = DSP.configured()
    w = method.initial(64, 0)
    before, after = (method.gates(w, goal, Moment(round(1000 * (settled + shift)), 1000)) for shift in (-0.02, 0.0))
    assert set(after.tolist()) == {0.0, 1.0} != set(before.tolist())
