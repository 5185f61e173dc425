"""Distillation: the loss is the formula's, however a batch is split or padded, and the teacher stays as it is."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributions import Categorical, kl_divergence
from transformers import Seq2SeqTrainingArguments

from families import FAMILIES, PAD, inputs, tiny
from kheads import DSP, discover
from kheads.methods.base import Goal
from kheads.surgery.gates import attach
from kheads.training import distillation
from kheads.training.distillation import Distillation, Teacher, logits_of
from kheads.training.learned_gates import LearnedGates
from kheads.training.trainer import GatedSeq2SeqTrainer, GatedTrainer
from small_runs import arguments, data, without_dropout

Fresh = Callable[[str], Any]
ANSWERING = [name for name in FAMILIES if name != "bert-bare"]
ALONE = Distillation(weight=1)


def student_of(family: str) -> Any:
    """A model of the teacher's shape and other weights, in training mode."""
    return without_dropout(tiny(family, seed=1)).train()


def count_rows(teacher: Teacher) -> list[int]:
    """How many examples the teacher is run on, at each forward."""
    seen: list[int] = []
    teacher.model.register_forward_hook(lambda module, args, output: seen.append(len(output.logits)))
    return seen


def padded(rows: list[dict[str, Tensor]], width: int) -> dict[str, Tensor]:
    """A batch with padding behind its texts."""
    pad = torch.nn.functional.pad
    return {name: torch.stack([pad(row[name], (0, width - len(row[name]))) for row in rows]) for name in rows[0]}


def causal(count: int = 8) -> list[dict[str, Tensor]]:
    """Texts of unequal length, padded to the same width."""
    rows = data("bert", count)
    for index, row in enumerate(rows):
        length = 2 + index % 4
        row["input_ids"][length:], row["attention_mask"][length:] = PAD, 0
        row["labels"] = row["input_ids"].masked_fill(row["attention_mask"] == 0, -100)
    return rows


def pairs(count: int = 8) -> list[dict[str, Tensor]]:
    """Sources and targets, of unequal length."""
    rows = data("marian", count)
    for index, row in enumerate(rows):
        row["labels"][1 + index % 4 :] = -100
        row["decoder_input_ids"] = row["labels"].clamp(min=1)
    return rows


def numbers(count: int = 8) -> list[dict[str, Tensor]]:
    return [{**row, "labels": torch.tensor(float(index))} for index, row in enumerate(data("bert", count))]


def stacked(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def without_labels(rows: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    return [{name: value for name, value in row.items() if name != "labels"} for row in rows]


def answers(model: Any, batch: Mapping[str, Any]) -> Tensor:
    with torch.no_grad():
        found: Tensor = model.eval()(**batch).logits
    return found


def gradients(model: Any, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


# -------------------------------------------------------------------------------------------- the loss itself


@pytest.mark.parametrize(
    "fields", [{"weight": 0.0}, {"weight": 1.5}, {"temperature": 0.0}, {"temperature": float("inf")}]
)
def test_fields_are_held_to_their_range(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(fields))}` must be a"):
        Distillation(**fields)


@pytest.mark.parametrize("name", ANSWERING)
def test_who_answers_as_the_teacher_has_nothing_to_learn(name: str, fresh: Fresh) -> None:
    """No loss and no gradient in any family, left padding included."""
    model, batch = without_dropout(fresh(name)), inputs(name)
    teacher = Teacher(model, ALONE)
    loss = teacher.loss(batch, model.train()(**batch))
    assert abs(loss.item()) < 1e-6
    assert all(found.abs().max() < 1e-5 for found in gradients(model, loss).values())
    other = student_of(name)
    assert teacher.loss(batch, other(**batch)) > 1e-2


def test_classes_are_compared_by_kl_at_a_temperature(fresh: Fresh) -> None:
    """The share of teacher and labels is as asked, and T^2 is there."""
    model, student, batch = fresh("bert"), student_of("bert"), stacked(data("bert", 4))
    out = student(**batch)
    expected = kl_divergence(Categorical(logits=answers(model, batch) / 3), Categorical(logits=out.logits / 3)).mean()
    found = Teacher(model, Distillation(weight=0.3, temperature=3.0)).loss(batch, out, out.loss)
    assert torch.allclose(found, 0.3 * 9 * expected + 0.7 * out.loss, atol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama", "roberta", "marian", "t5"])
def test_tokens_are_compared_where_the_model_has_a_label(
    family: str, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and gradients are those of the formula, in chunks as well; decoders see the inputs that labels make."""
    monkeypatch.setattr(distillation, "CHUNK", 5)
    model, student = fresh(family), student_of(family)
    batch, shifted = stacked(pairs() if FAMILIES[family].encoder_decoder else causal()), family in ("gpt2", "llama")
    batch.pop("decoder_input_ids", None)
    batch["labels"] = batch["labels"].clamp(max=2) if family == "roberta" else batch["labels"]
    counted = batch["labels"][:, 1:] != -100 if shifted else batch["labels"] != -100
    theirs, own = answers(model, batch), student(**batch).logits
    theirs, own = (x[:, :-1] if shifted else x for x in (theirs, own))
    each = kl_divergence(Categorical(logits=theirs[counted] / 2), Categorical(logits=own[counted] / 2))
    expected = gradients(student, 4 * each.mean())
    loss = Teacher(model, ALONE).loss(batch, student(**batch), shifted=shifted)
    assert torch.allclose(loss, 4 * each.mean(), atol=1e-5)
    found = gradients(student, loss)
    assert all(torch.allclose(found[name], expected[name], atol=1e-4) for name in expected)


def test_regression_is_compared_by_squares(fresh: Fresh) -> None:
    model, student = _with_outputs(fresh("bert"), 1), _with_outputs(student_of("bert"), 1)
    batch = stacked(numbers(4))
    out = student(**batch)
    teacher = Teacher(model, Distillation(weight=0.25))
    expected = 0.25 * (answers(model, batch) - out.logits).square().mean() + 0.75 * out.loss
    assert torch.allclose(teacher.loss(batch, out, out.loss), expected)
    rows = count_rows(teacher)
    teacher.loss(batch, out, out.loss)
    assert not rows


def test_labels_that_do_not_exclude_each_other_are_compared_one_by_one(fresh: Fresh) -> None:
    model, student, batch = fresh("bert"), student_of("bert"), stacked(without_labels(data("bert", 4)))
    model.config.problem_type = "multi_label_classification"
    out = student(**batch)
    both = ((answers(model, batch) / 2).sigmoid(), (out.logits / 2).sigmoid())
    expected = 4 * kl_divergence(*(torch.distributions.Bernoulli(probs) for probs in both)).mean()
    assert torch.allclose(Teacher(model, ALONE).loss(batch, out), expected, atol=1e-5)
    model.config.problem_type = None  # until it sees labels, a model may not have been told
    labelled = {**batch, "labels": torch.ones_like(out.logits)}
    assert torch.allclose(Teacher(model, ALONE).loss(labelled, out), expected, atol=1e-5)


def _with_outputs(model: Any, count: int) -> Any:
    model.config.num_labels = model.num_labels = count
    model.classifier = torch.nn.Linear(model.config.hidden_size, count)
    return model


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_outputs_may_be_a_tuple(family: str, fresh: Fresh) -> None:
    batch = stacked(data("bert", 4) if family == "bert" else causal(4))
    student, teacher = student_of(family), Teacher(fresh(family), ALONE)
    for given in (batch, {name: value for name, value in batch.items() if name != "labels"}):
        named, bare = student(**given), student(**given, return_dict=False)
        assert isinstance(bare, tuple) and torch.equal(teacher.loss(given, named), teacher.loss(given, bare))


def test_what_cannot_teach_is_refused(fresh: Fresh) -> None:
    name: Any = "bert"
    with pytest.raises(TypeError, match="`model` must be a torch module; got str"):
        Teacher(name, ALONE)
    bare, batch = fresh("bert-bare"), inputs("bert-bare")
    with pytest.raises(ValueError, match=r"The model gives no logits, .*; use a model with a head for the task"):
        Teacher(bare, ALONE).loss(batch, bare(**batch))
    with pytest.raises(ValueError, match=r"logits of shape \(2, 3, 4, 5\)"):
        logits_of({"logits": torch.zeros(2, 3, 4, 5)})
    other = _with_outputs(fresh("bert"), 5)
    with pytest.raises(ValueError, match=r"have the shape \(3, 5\), the teacher's \(3, 3\); give the model"):
        Teacher(fresh("bert"), ALONE).loss(batch, other(**batch))
    model = fresh("gpt2")
    with pytest.raises(ValueError, match=r"labels of shape \(3, 4\) and logits of shape \(3, 7, 61\)"):
        Teacher(model, ALONE).loss({**batch, "labels": torch.ones(3, 4)}, model(**batch))


# -------------------------------------------------------------------------------------------- what is kept


def test_padding_behind_an_example_changes_nothing(fresh: Fresh) -> None:
    """Whatever an example is padded to, its kept logits are those of the example alone; no label is part of it."""
    teacher, student = Teacher(fresh("bert"), ALONE), student_of("bert")
    whole = without_labels(data("bert", 6))
    rows = [{name: value[: 2 + index % 3] for name, value in row.items()} for index, row in enumerate(whole)]
    seen = count_rows(teacher)
    for width in (7, 12):
        batch = {**padded(rows, width), "labels": torch.full((6,), width % 3)}
        teacher.loss(batch, student(**batch))
    assert seen == [6]
    alone = torch.cat([answers(fresh("bert"), stacked([row])) for row in rows])
    assert torch.allclose(torch.tensor(np.stack(list(teacher._kept.values()))), alone, atol=1e-5)


def test_padding_in_front_moves_positions_and_is_not_taken_away(fresh: Fresh) -> None:
    """What is kept is always what the teacher answers to this very batch."""
    model, student, teacher = fresh("bert"), student_of("bert"), Teacher(fresh("bert"), ALONE)
    batch = stacked(without_labels(data("bert", 3)))
    for front in (0, 2):
        moved = {name: torch.nn.functional.pad(value, (front, 0)) for name, value in batch.items()}
        kept = teacher._remembered(moved, student(**moved).logits)
        assert torch.allclose(kept, answers(model, moved), atol=1e-6)


def test_only_new_examples_are_computed(fresh: Fresh) -> None:
    """Images are known by their pixels; a batch of known and new ones costs the new ones."""
    teacher, student = Teacher(fresh("vit"), ALONE), student_of("vit")
    first, second = inputs("vit", seed=1), inputs("vit", seed=2)
    mixed = {"pixel_values": torch.cat((second["pixel_values"][:1], first["pixel_values"]))}
    seen = count_rows(teacher)
    for batch in (first, mixed, first):
        kept = teacher._remembered(batch, student(**batch).logits)
        assert torch.allclose(kept, answers(fresh("vit"), batch), atol=1e-5)
    assert seen == [3, 1]


def test_what_is_kept_has_an_end(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "MOST_KEPT", 5)
    teacher, student = Teacher(fresh("vit"), ALONE), student_of("vit")
    for seed in range(5):
        batch = inputs("vit", seed=seed)
        teacher.loss(batch, student(**batch))
        assert len(teacher._kept) <= 5 + 3


# -------------------------------------------------------------------------------------------- in training


class Spy(GatedSeq2SeqTrainer):
    """Keeps the gradients of the first optimizer step."""

    def before_step(self) -> None:
        model: Any = self.model
        self.seen = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        super().before_step()


CASES: dict[str, tuple[str, Callable[[], list[dict[str, Tensor]]]]] = {
    "classes": ("bert", lambda: data("bert", 8)),
    "classes, no labels": ("bert", lambda: without_labels(data("bert", 8))),
    "numbers": ("bert", numbers),
    "tokens": ("gpt2", causal),
    "tokens, no labels": ("gpt2", lambda: without_labels(causal())),
    "translation": ("marian", pairs),
    "translation, smoothed": ("marian", pairs),
    "translation, no labels": ("marian", lambda: without_labels(pairs())),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_do_not_depend_on_accumulation(case: str, fresh: Fresh, tmp_path: Path) -> None:
    """One step at 8 x 1 and at 2 x 4 gives the same gradients, with unequal numbers of tokens, too."""
    family, rows = CASES[case]
    seen = []
    for batch, accumulation in ((8, 1), (2, 4)):
        args = Seq2SeqTrainingArguments(
            **{**_plain(tmp_path), "per_device_train_batch_size": batch},
            gradient_accumulation_steps=accumulation,
            label_smoothing_factor=0.1 if "smoothed" in case else 0.0,
        )
        model, student = fresh(family), student_of(family)
        if case == "numbers":
            torch.manual_seed(0)
            model, student = _with_outputs(model, 1), _with_outputs(student, 1)
        trainer: Any = Spy(model=student, args=args, train_dataset=rows(), teacher=Teacher(model, Distillation()))
        trainer.train()
        seen.append(trainer.seen)
    assert seen[0].keys() == seen[1].keys()
    assert all(torch.allclose(seen[0][key], seen[1][key], atol=1e-5) for key in seen[0])
    assert max(found.abs().max() for found in seen[0].values()) > 1e-3


def _plain(folder: Path) -> dict[str, Any]:
    wanted = ("output_dir", "report_to", "save_strategy", "disable_tqdm", "seed", "use_cpu")
    return {name: getattr(arguments(folder), name) for name in wanted} | {"max_steps": 1, "max_grad_norm": 0.0}


@pytest.mark.parametrize("case", ["classes", "classes, no labels", "tokens, no labels"])
def test_a_short_training_moves_the_student_towards_the_teacher(case: str, fresh: Fresh, tmp_path: Path) -> None:
    """Labels or not; and the teacher's answers to whole examples alone are computed in the first epoch only."""
    family, rows = CASES[case]
    teacher = Teacher(fresh(family), Distillation(weight=1.0 if case == "classes" else 0.5, stream=0))
    student, batch = student_of(family), stacked(rows())
    before = copy.deepcopy(teacher.model.state_dict())
    measure = Teacher(fresh(family), ALONE)
    distance = [measure.loss(batch, student(**batch)).item()]
    seen = count_rows(teacher)
    args = arguments(tmp_path, max_steps=12)
    GatedTrainer(model=student, args=args, train_dataset=rows(), teacher=teacher, quiet=True).train()
    distance.append(measure.loss(batch, student(**batch)).item())
    assert distance[1] < 0.7 * distance[0]
    assert sum(seen) == (8 if "classes" in case else 12 * 4)
    assert not teacher.model.training and all(torch.equal(before[k], v) for k, v in teacher.model.state_dict().items())


def test_streams_are_compared_by_shares_of_their_squares_where_there_is_no_padding(fresh: Fresh) -> None:
    teacher, student = Teacher(fresh("bert"), Distillation(stream=3)), student_of("bert")
    batch = {**inputs("bert"), "labels": torch.tensor([0, 1, 1])}
    given = teacher.asking(student, batch)
    outputs, told = student(**given), fresh("bert").eval()(**given)
    mask = batch["attention_mask"].bool()
    far = torch.zeros(())
    for own, other in zip(outputs.hidden_states[1:], told.hidden_states[1:], strict=True):
        shares = (own - other).square().sum(-1) / other.square().sum(-1)
        far += torch.stack([row[kept].mean() for row, kept in zip(shares, mask, strict=True)]).mean() / 3
    without = Teacher(fresh("bert"), Distillation(stream=0)).loss(batch, outputs, outputs.loss)
    assert len(told.hidden_states) == 4 and not mask.all()
    torch.testing.assert_close(teacher.loss(batch, outputs, outputs.loss), without + 0.5 * 3 * far)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "marian", "t5", "vit"])
def test_a_student_is_led_along_the_whole_stream(family: str, fresh: Fresh) -> None:
    """Also of encoder and decoder; and who is where the teacher is has nothing to learn."""
    teacher, student = Teacher(fresh(family), Distillation(weight=1, stream=1e3)), student_of(family)
    batch = inputs(family)
    loss = teacher.loss(batch, student(**teacher.asking(student, batch)))
    moved = {name for name, found in gradients(student, loss).items() if found.abs().max() > 0}
    assert len(moved) > 0.8 * len(list(student.parameters())) and loss > 100
    same = without_dropout(copy.deepcopy(teacher.model)).train()
    assert teacher.loss(batch, same(**teacher.asking(same, batch))).item() < 1e-3


def test_a_source_as_long_as_its_target_is_no_mask_of_it(fresh: Fresh) -> None:
    """What a source is padded with changes nothing."""
    student, teacher, batch = student_of("marian").eval(), Teacher(fresh("marian"), ALONE), stacked(pairs(4))
    width = batch["labels"].shape[1]
    batch |= {name: batch[name][:, :width].clone() for name in ("input_ids", "attention_mask")}
    batch["input_ids"][:, 3:], batch["attention_mask"][:, 3:] = PAD, 0
    pad = torch.nn.functional.pad
    longer = {**batch, **{name: pad(batch[name], (0, 2), value=0) for name in ("input_ids", "attention_mask")}}
    longer["input_ids"][:, width:] = PAD
    one, two = (teacher.loss(given, student(**given, output_hidden_states=True)) for given in (batch, longer))
    assert torch.allclose(one, two, atol=1e-5)


def test_dropout_is_off_while_a_teacher_is_followed_and_back_afterwards(fresh: Fresh, tmp_path: Path) -> None:
    student, rates = fresh("bert"), []
    dropouts = [part for part in student.modules() if isinstance(part, torch.nn.Dropout)]
    for part in dropouts:
        part.p = 0.3
    student.bert.register_forward_hook(lambda *_: rates.append({part.p for part in dropouts}))
    teacher = Teacher(fresh("bert"), Distillation())
    args = arguments(tmp_path, max_steps=2)
    GatedTrainer(model=student, args=args, train_dataset=data("bert", 4), teacher=teacher, quiet=True).train()
    assert rates and all(seen == {0.0} for seen in rates) and {part.p for part in dropouts} == {0.3}


def test_the_teacher_is_no_part_of_the_model(fresh: Fresh, tmp_path: Path) -> None:
    """Neither its weights nor its loss: checkpoints, evaluation and doubts are as without it."""
    student, rows = student_of("bert"), data("bert", 4)
    names = set(student.state_dict())
    args = arguments(tmp_path, max_steps=6, save_strategy="steps", save_steps=6)
    teacher = Teacher(fresh("bert"), Distillation(weight=0.9))
    trainer: Any = GatedTrainer(model=student, args=args, train_dataset=rows, eval_dataset=rows, teacher=teacher)
    expected, seen = student(**stacked(rows)).loss.item(), []
    trainer._doubts.see = lambda loss, labels, state: seen.append(loss.item())
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-5)
    trainer.train()
    assert seen[0] == pytest.approx(expected, abs=1e-5)
    assert set(load_file(tmp_path / "checkpoint-6" / "model.safetensors")) == names == set(student.state_dict())


def test_the_teacher_is_a_copy(generating_family: str, fresh: Fresh) -> None:
    """The model that is given may become the student; the copy does nothing but answer."""
    model = fresh(generating_family).train()
    teacher = Teacher(model, ALONE)
    assert model.training and any(p.requires_grad for p in model.parameters())
    assert "past_key_values" in model(**inputs(generating_family))
    assert not teacher.model.training and not any(p.requires_grad for p in teacher.model.parameters())
    assert "past_key_values" not in teacher.model(**inputs(generating_family))


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("case", ["classes", "tokens", "translation, no labels"])
def test_gates_learn_from_a_teacher(case: str, bf16: bool, fresh: Fresh, tmp_path: Path) -> None:
    family, rows = CASES[case]
    model = fresh(family)
    teacher = Teacher(model, ALONE)
    gates = LearnedGates(DSP(), Goal(3, discover(model)), 0)
    attach(model, gates)
    before = gates.w.detach().clone()
    args = arguments(tmp_path, max_steps=2, bf16=bf16)
    trainer = GatedTrainer(model=model, args=args, train_dataset=rows(), gates=gates, teacher=teacher, quiet=True)
    trainer.train()
    assert not torch.equal(gates.w, before) and len(gates.kept()) == 3


# ------------------------------------------------------------------------------------------------------------- spans


def readers() -> tuple[Any, Any]:
    """A model that says where an answer begins and ends, and another one of its shape."""
    import transformers

    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 61}
    library: Any = transformers
    config = library.BertConfig(**sizes, intermediate_size=32, initializer_range=0.5, hidden_dropout_prob=0.0)
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        made.append(without_dropout(library.BertForQuestionAnswering(config)))
    return made[0].eval(), made[1].train()


def asked(width: int, labelled: bool = True) -> dict[str, Tensor]:
    batch = padded([{"input_ids": torch.arange(5, 12), "attention_mask": torch.ones(7, dtype=torch.long)}] * 2, width)
    batch["input_ids"][1, 4:7], batch["attention_mask"][1, 4:7] = PAD, 0
    return {
        **batch,
        **({"start_positions": torch.tensor([1, 0]), "end_positions": torch.tensor([2, 3])} if labelled else {}),
    }


@pytest.mark.parametrize("width", [7, 12])
@pytest.mark.parametrize("labelled", [True, False])
def test_beginnings_and_ends_are_learned_over_what_is_no_padding(width: int, labelled: bool) -> None:
    """The mean of both divergences; labels of the teacher's batch and padding change nothing."""
    whole, student = readers()
    batch = asked(width, labelled)
    found = Teacher(whole, ALONE).loss(batch, student(**batch))
    parts = []
    for row, real in enumerate((7, 4)):
        given = {"input_ids": batch["input_ids"][row : row + 1, :real]}
        with torch.no_grad():
            told, said = whole(**given), student(**given)
        for name in ("start_logits", "end_logits"):
            parts.append(kl_divergence(Categorical(logits=told[name] / 2), Categorical(logits=said[name] / 2)) * 4)
    assert found.item() == pytest.approx(torch.cat(parts).mean().item(), rel=1e-4)


def test_a_reader_learns_from_labels_and_teacher() -> None:
    whole, student = readers()
    batch = asked(7)
    outputs = student(**batch)
    alone = Teacher(whole, ALONE).loss(batch, outputs)
    both = Teacher(whole, Distillation(weight=0.25)).loss(batch, outputs, outputs.loss)
    assert both.item() == pytest.approx((0.25 * alone + 0.75 * outputs.loss).item())
    both.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in student.parameters() if parameter.grad is not None)
