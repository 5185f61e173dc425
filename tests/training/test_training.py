"""Training with gates: the same whatever splits a batch, interrupts a run or shares the work."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import DistributedType
from transformers import EarlyStoppingCallback

from forked import Forked, forked
from kheads import DSP, METHODS, STE, Michel, Retrain, Voita, discover, prune
from kheads.methods.base import Goal, Learned
from kheads.surgery.gates import attach
from kheads.training.backends import refuse_backends
from kheads.training.checkpoints import newest_checkpoint
from kheads.training.data_order import LengthGroups
from kheads.training.hooks import CHECKPOINTING
from kheads.training.learned_gates import LearnedGates
from kheads.training.plan import Plan
from kheads.training.trainer import GatedSeq2SeqTrainer, GatedTrainer, TrainingStoppedError
from small_runs import arguments, data, without_dropout

__all__ = ["forked"]

Fresh = Callable[[str], Any]
LEARNED = [name for name, method in METHODS.items() if issubclass(method, Learned)]


def gated_trainer(model: Any, args: Any, rows: Any, method: Learned, base: type = GatedTrainer, k: int = 3) -> Any:
    gates = LearnedGates(method, Goal(k, discover(model)), args.seed)
    attach(model, gates)
    return base(model=model, args=args, train_dataset=rows, gates=gates)


class Spy(GatedSeq2SeqTrainer):
    """Keeps the gradients of the first optimizer step, before anything is clipped."""

    def before_step(self: Any) -> None:
        self.seen = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
        super().before_step()


@pytest.mark.parametrize("case", ["bert", "marian", "marian-smoothed"])
@pytest.mark.parametrize("name", LEARNED)
def test_gradients_do_not_depend_on_accumulation(case: str, name: str, fresh: Fresh, tmp_path: Path) -> None:
    """One step at 8 x 1 and at 2 x 4 gives the same gradients of model and gates, penalty included."""
    family = case.partition("-")[0]
    rows = data(family, 8)
    if family == "marian":
        for index, row in enumerate(rows):  # unequal lengths, so that a mean of means would be another number
            row["labels"][2 + index % 4 :] = -100
            row["decoder_input_ids"] = row["labels"].clamp(min=0)
    seen = []
    for batch, accumulation in ((8, 1), (2, 4)):
        changes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
        args = _seq2seq(arguments(tmp_path, max_steps=1, max_grad_norm=0.0, **changes), case == "marian-smoothed")
        method: Any = Voita(weight=0.3) if name == "voita" else METHODS[name]()
        trainer = gated_trainer(without_dropout(fresh(family)), args, rows, method, Spy)
        trainer.train()
        seen.append(trainer.seen)
    assert seen[0].keys() == seen[1].keys() and "kheads_gates.w" in seen[0]
    assert all(torch.allclose(seen[0][key], seen[1][key], atol=1e-5) for key in seen[0])
    assert seen[0]["kheads_gates.w"].abs().max() > 1e-5


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_loss_of_ones_own_does_not_depend_on_accumulation(accumulation: int, fresh: Fresh, tmp_path: Path) -> None:
    """Eight rows in one step: the gradient is that of their mean loss, however they are split."""
    rows = data("bert", 8)

    def own(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        return 2 * torch.nn.functional.cross_entropy(outputs["logits"], labels)

    changes = {"per_device_train_batch_size": 8 // accumulation, "gradient_accumulation_steps": accumulation}
    args = _seq2seq(arguments(tmp_path, max_steps=1, max_grad_norm=0.0, **changes), smoothed=False)
    trainer: Any = Spy(model=without_dropout(fresh("bert")), args=args, train_dataset=rows, compute_loss_func=own)
    trainer.train()
    plain = without_dropout(fresh("bert")).train()
    batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    (2 * plain(**batch).loss).backward()
    for name, parameter in plain.named_parameters():
        assert parameter.grad is None or torch.allclose(trainer.seen[name], parameter.grad, atol=1e-5)


def _seq2seq(args: Any, smoothed: bool) -> Any:
    from transformers import Seq2SeqTrainingArguments

    fields = {
        key: value for key, value in args.to_dict().items() if key in ("output_dir", "max_steps", "seed", "use_cpu")
    }
    return Seq2SeqTrainingArguments(
        **fields,
        per_device_train_batch_size=args.per_device_train_batch_size,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        max_grad_norm=args.max_grad_norm,
        label_smoothing_factor=0.1 if smoothed else 0.0,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
def test_a_spike_in_the_gates_never_scales_the_models_update(
    max_grad_norm: float, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model steps alike with the gates' gradient blown up; w itself is clipped to norm 1."""
    results = []
    for scale in (1.0, 1e6):
        monkeypatch.setattr(STE, "gates", lambda self, w, goal, moment, s=scale: goal.mask(w) + s * (w - w.detach()))
        model = without_dropout(fresh("bert"))
        args = arguments(tmp_path, max_steps=1, max_grad_norm=max_grad_norm)
        trainer = gated_trainer(model, args, data("bert"), STE())
        seen: list[float] = []
        original = trainer.before_step

        def spy(original: Any = original, trainer: Any = trainer, seen: list[float] = seen) -> None:
            original()
            seen.append(float(trainer.gates.w.grad.norm()))

        trainer.before_step = spy
        trainer.train()
        results.append({name: p.detach().clone() for name, p in model.named_parameters() if "kheads" not in name})
        assert seen[0] <= 1 + 1e-6
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_w_has_its_own_group_schedule_and_no_decay(fresh: Fresh, tmp_path: Path) -> None:
    for schedule, expected in (("linear", 0.5 * 0.5), ("constant", 0.5)):
        args = arguments(tmp_path, max_steps=4, weight_decay=0.1, lr_scheduler_type="cosine")
        trainer = gated_trainer(fresh("bert"), args, data("bert"), STE(gate_lr_schedule=schedule))
        trainer.create_optimizer_and_scheduler(4)
        group = trainer.optimizer.param_groups[-1]
        assert [id(p) for p in group["params"]] == [id(trainer.gates.w)] and group["weight_decay"] == 0.0
        assert sum(trainer.gates.w is p for g in trainer.optimizer.param_groups for p in g["params"]) == 1
        assert group["lr"] == 0.5
        for _ in range(2):
            trainer.optimizer.step()
            trainer.lr_scheduler.step()
        assert group["lr"] == pytest.approx(expected)


def test_what_is_logged(fresh: Fresh, tmp_path: Path) -> None:
    result = prune(fresh("bert"), 3, DSP(), data("bert"), None, arguments(tmp_path, max_steps=6))
    entries = [entry for entry in result.history["gates"] if "loss" in entry]
    assert [entry["step"] for entry in entries] == [2, 4, 6]
    assert all({"temperature", "largest_gate", "w_spread", "heads_changed"} <= entry.keys() for entry in entries)
    assert entries[0]["temperature"] > entries[1]["temperature"] and entries[-1]["temperature"] == 1e-8
    assert all(sum(map(len, entry["kept"].values())) == 3 for entry in entries)
    assert entries[-1]["kept"] == result.kept.to_dict()


def test_a_frozen_model_stays_as_it_was(fresh: Fresh, tmp_path: Path) -> None:
    """Pipelined: only w learns, and the weights that stay are those of the trained model."""
    model = fresh("bert")
    before = model.classifier.weight.detach().clone()
    plan = Plan(pipelined=True, trained=True, gate_steps=3)
    result = prune(model, 3, DSP(), data("bert"), data("bert", 4), arguments(tmp_path), plan=plan)
    assert torch.equal(result.model.classifier.weight, before) and result.model.classifier.weight.requires_grad
    assert [entry["step"] for entry in result.history["gates"]][-1] == 3
    assert "unpruned" in result.metrics and "train" not in result.history


def test_recovery_is_reported_apart(fresh: Fresh, tmp_path: Path) -> None:
    plan = Plan(trained=True, recover_steps=3)
    result = prune(fresh("bert"), 3, METHODS["michel"](), data("bert"), data("bert", 4), arguments(tmp_path), plan=plan)
    assert {"unpruned", "masked", "cut", "repaired", "pruned", "recovered"} == result.metrics.keys()
    assert result.metrics["recovered"] != result.metrics["pruned"] and len(result.kept) == 3


def test_prune_and_retrain_is_as_long_as_a_joint_run(fresh: Fresh, tmp_path: Path) -> None:
    """Two parts and a cut between them, at which the K heads stay that one round of Michel would keep."""
    rows = data("bert")
    result = prune(fresh("bert"), 3, Retrain(), rows, rows[:4], arguments(tmp_path / "a", max_steps=9))
    assert {phase: log[-1]["step"] for phase, log in result.history.items()} == {"train": 3, "retrain": 6}
    assert result.report["method"] == {"steps_before_cut": 3, "steps_after_cut": 6}
    assert list(result.metrics) == ["whole", "masked", "pruned", "cut", "repaired"] and len(result.kept) == 3
    losses = {stage: found["eval"]["loss"] for stage, found in result.metrics.items()}
    assert losses["cut"] == pytest.approx(losses["masked"]) and losses["cut"] != losses["pruned"]

    one_round = Michel(per_round=sum(site.count for site in discover(fresh("bert"))), normalised=True)
    plan = Plan(recover_steps=6, recover_rate=1.0)
    same = prune(fresh("bert"), 3, one_round, rows, rows[:4], arguments(tmp_path / "b", max_steps=3), plan=plan)
    assert same.kept == result.kept and same.metrics["recovered"] == result.metrics["pruned"]


def test_a_cut_leaves_steps_for_after_it(fresh: Fresh, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes 9 of 9 steps and leaves none for after it"):
        prune(fresh("bert"), 3, Retrain(before_cut=9), data("bert"), None, arguments(tmp_path, max_steps=9))


def test_prune_and_retrain_has_no_frozen_model(fresh: Fresh, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`pipelined` is for methods that learn gates .* retrain does not"):
        prune(fresh("bert"), 3, Retrain(), data("bert"), None, arguments(tmp_path), plan=Plan(pipelined=True))


def test_prune_and_retrain_by_epochs(fresh: Fresh, tmp_path: Path) -> None:
    """12 rows in batches of 4, two epochs: six steps, of which a third come before the cut."""
    args = arguments(tmp_path, max_steps=-1, num_train_epochs=2)
    result = prune(fresh("bert"), 3, Retrain(), data("bert"), data("bert", 4), args)
    assert result.report["method"] == {"steps_before_cut": 2, "steps_after_cut": 4}


@pytest.mark.parametrize("changes", [{"bf16": True}, {CHECKPOINTING: True}, {"gradient_accumulation_steps": 2}])
def test_common_training_options(changes: dict[str, Any], fresh: Fresh, tmp_path: Path) -> None:
    result = prune(fresh("bert"), 3, DSP(), data("bert"), data("bert", 4), arguments(tmp_path, **changes))
    assert len(result.kept) == 3 and result.report["largest_difference"] < 1e-4


def test_best_checkpoint_and_early_stopping(fresh: Fresh, tmp_path: Path) -> None:
    """The gates come back with the best checkpoint: the kept heads are those that were evaluated there."""
    metrics = iter([0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    args = arguments(
        tmp_path,
        max_steps=10,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        logging_steps=1,
    )
    result = prune(
        fresh("bert"),
        3,
        STE(gate_lr=2.0),
        data("bert"),
        data("bert", 4),
        args,
        compute_metrics=lambda prediction: {"score": next(metrics, 0.1)},
        callbacks=[EarlyStoppingCallback(2)],
    )
    logged = [entry for entry in result.history["gates"] if "kept" in entry]
    assert len(logged) == 3
    assert result.kept.to_dict() == logged[0]["kept"] != logged[-1]["kept"]


def test_a_loss_that_is_not_finite_stops_the_run(fresh: Fresh, tmp_path: Path) -> None:
    rows = data("bert")
    model = fresh("bert")
    calls = []

    def poison(module: Any, args: Any, output: Any) -> Any:
        calls.append(1)
        return output * float("nan") if len(calls) == 3 else output

    model.classifier.register_forward_hook(poison)
    args = arguments(tmp_path, save_strategy="steps", save_steps=1)
    with pytest.raises(
        TrainingStoppedError, match=r"At step 3 the loss became nan; the last good checkpoint is .*-2\."
    ):
        prune(model, 3, DSP(), rows, None, args)


def test_length_groups_are_a_function_of_seed_and_epoch() -> None:
    sampler = LengthGroups(list(range(100, 0, -1)) * 3, batch_size=8, seed=1)
    first = list(sampler)
    assert sorted(first) == list(range(300)) and first == list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    lengths = torch.tensor([sampler.lengths[index] for index in sampler]).split(8)
    assert sum(float(batch.max() - batch.min()) for batch in lengths) / len(lengths) < 12


SCRIPT = """
import os, signal, sys, torch
sys.path.insert(0, {tests!r})
from families import tiny
from small_runs import arguments, data
from transformers import TrainerCallback
from kheads import DSP, Surgeon, prune
from kheads.training.plan import Plan
torch.set_num_threads(1)
folder, mode, method, phase = sys.argv[1:]
class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 10:
            os.kill(os.getpid(), signal.SIGKILL)
rows = data("bert", 24)
for index, row in enumerate(rows):
    length = 2 + index % 5
    row["input_ids"], row["attention_mask"] = row["input_ids"][:length], row["attention_mask"][:length]
def collate(batch):
    width = max(len(row["input_ids"]) for row in batch)
    pad = lambda value: torch.nn.functional.pad(value, (0, width - len(value)))
    return {{key: torch.stack([pad(row[key]) if key != "labels" else row[key] for row in batch]) for key in batch[0]}}
args = arguments(folder, max_steps=16, save_strategy="steps", save_steps=3, logging_steps=1,
                 train_sampling_strategy="group_by_length", save_total_limit=2)
result = prune(tiny("bert"), 3, eval(method), rows, None, args, plan=Plan(resume=mode == "resume"),
               data_collator=collate, callbacks=[Kill()] if mode == "kill" else [])
torch.save({{"scores": result.scores, "kept": result.kept.to_dict(), "weights": result.model.state_dict(),
             "log": [(entry.get("kept"), entry.get("loss")) for entry in result.history[phase]]}},
           folder + "/result.pt")
"""


# The surgeon's model is repaired before it trains on; gates and their model are cut in the end.
@pytest.mark.parametrize(("method", "phase"), [("DSP()", "gates"), ("Surgeon(before_cut=4)", "adapt")])
def test_a_killed_run_resumes_to_the_same_end(method: str, phase: str, forked: Forked, tmp_path: Path) -> None:
    """SIGKILL in the second epoch, with length grouping: temperature, noise, data order and dropout go on bit for bit.

    A checkpoint that was cut off while it was written is skipped. The surgeon is killed after its cut.
    """

    def run(folder: Path, mode: str) -> int:
        script = SCRIPT.format(tests=str(Path(__file__).parents[1]))
        return forked.execute(tmp_path, script, str(folder), mode, method, phase)

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(whole, "whole") == 0
    assert run(broken, "kill") == -signal.SIGKILL
    cut = broken / phase / "checkpoint-10"
    cut.mkdir()
    (cut / "model.safetensors").write_bytes(b"half")
    assert str(newest_checkpoint(broken / phase)).endswith("checkpoint-9")
    assert run(broken, "resume") == 0
    one, other = (torch.load(folder / "result.pt", weights_only=True) for folder in (whole, broken))
    assert one["kept"] == other["kept"] and torch.equal(one["scores"], other["scores"])
    assert one["log"] == other["log"]
    assert all(torch.equal(one["weights"][name], other["weights"][name]) for name in one["weights"])


def resumed(fresh: Fresh, args: Any) -> Any:
    """A trainer of its own that goes on from the newest checkpoint, if there is one."""
    gated = gated_trainer(fresh("bert"), args, data("bert"), DSP())
    gated.train(resume_from_checkpoint=newest_checkpoint(args.output_dir))
    return gated


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}


# 12 rows in batches of 4: five steps end in the middle of an epoch, six with one.
@pytest.mark.parametrize(
    "length", [{"max_steps": 5}, {"max_steps": 6}, {"max_steps": -1, "num_train_epochs": 1.5}], ids=str
)
def test_a_finished_training_is_not_trained_further(length: dict[str, Any], fresh: Fresh, tmp_path: Path) -> None:
    args = arguments(tmp_path, save_strategy="steps", save_steps=1, logging_steps=1, **length)
    first = resumed(fresh, args)
    steps, log = first.state.global_step, first.state.log_history[:-1]  # the last entry is how long it took
    for _ in range(2):
        again = resumed(fresh, args)
        assert again.state.global_step == steps == first.total_steps()
        assert again.state.log_history == log and [entry["step"] for entry in log] == list(range(1, steps + 1))
        assert weights(again).keys() == weights(first).keys()
        assert all(torch.equal(weight, weights(first)[name]) for name, weight in weights(again).items())
        assert newest_checkpoint(tmp_path) == str(tmp_path / f"checkpoint-{steps}")
    longer = resumed(fresh, arguments(tmp_path, save_strategy="steps", save_steps=1, max_steps=8))
    assert longer.state.global_step == 8


def test_a_training_that_stopped_early_is_finished_with_its_best_weights(fresh: Fresh, tmp_path: Path) -> None:
    every: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    best: dict[str, Any] = {"load_best_model_at_end": True, "metric_for_best_model": "score"}
    args = arguments(tmp_path, max_steps=10, **best, **every)

    def run(patience: int) -> Any:
        scores = iter([0.5, 0.9, *[0.1] * 20])
        model = fresh("bert")
        trainer: Any = GatedTrainer(
            model=model,
            args=args,
            train_dataset=data("bert"),
            eval_dataset=data("bert", 4),
            compute_metrics=lambda prediction: {"score": next(scores)},
            callbacks=[EarlyStoppingCallback(patience)],
        )
        trainer.train(resume_from_checkpoint=newest_checkpoint(tmp_path))
        return trainer

    first, again = run(2), run(2)
    assert first.state.global_step == again.state.global_step == 4
    assert all(torch.equal(weight, weights(first)[name]) for name, weight in weights(again).items())
    assert run(5).state.global_step > 4  # more patience: not finished


PROCESSES = """
import os, sys, torch
sys.path.insert(0, {tests!r})
from families import tiny
from small_runs import arguments, data
from kheads import METHODS, prune
from kheads.training.plan import Plan
torch.set_num_threads(1)
folder = sys.argv[1]
rank = os.environ["RANK"]
out = {{}}
for name in METHODS:
    args = arguments(folder, max_steps=3, per_device_train_batch_size=2, ddp_backend="gloo")
    plan = Plan(trained=True, recover_steps=2)
    result = prune(tiny("bert"), 3, METHODS[name](), data("bert"), data("bert", 4), args, plan=plan)
    weight = result.model.classifier.weight.detach()
    out[name] = {{"scores": result.scores, "kept": result.kept.to_dict(), "weight": weight}}
torch.save(out, folder + f"/rank-{{rank}}.pt")
torch.distributed.destroy_process_group()  # its threads abort a process that ends before them
"""


def test_two_processes_keep_the_same_heads(tmp_path: Path) -> None:
    """Noise is shared: every process draws the same gates, so all end with the same scores, and the same weights.

    The weights, too, after trainings that come after an evaluation.
    """
    script = tmp_path / "script.py"
    script.write_text(PROCESSES.format(tests=str(Path(__file__).parents[1])))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run([*command, str(script), str(tmp_path)], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"rank-{rank}.pt", weights_only=True) for rank in (0, 1))
    for name in METHODS:
        assert first[name]["kept"] == second[name]["kept"] and torch.equal(
            first[name]["scores"], second[name]["scores"]
        )
        assert torch.equal(first[name]["weight"], second[name]["weight"]), name


def test_unsupported_backends_are_refused() -> None:
    trainer = type("T", (), {"is_deepspeed_enabled": False, "is_fsdp_enabled": True})()
    with pytest.raises(ValueError, match="FSDP is not supported: it shards the gates' weights"):
        refuse_backends(trainer)
    apart = SimpleNamespace(num_processes=2, distributed_type=DistributedType.NO)
    alone = SimpleNamespace(
        is_deepspeed_enabled=False, is_fsdp_enabled=False, args=SimpleNamespace(n_gpu=0), accelerator=apart
    )
    with pytest.raises(ValueError, match=r"2 processes would train apart .*use_cpu=True"):
        refuse_backends(alone)


def test_history_can_be_written_as_json(fresh: Fresh, tmp_path: Path) -> None:
    result = prune(fresh("bert"), 3, STE(), data("bert"), data("bert", 4), arguments(tmp_path))
    json.dumps([result.history, result.metrics, result.report])
