"""`kheads.prune` takes any model whose forward gives a loss, one of each kind, with plain lists for data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import kheads
from families import tiny
from small_runs import arguments

LIBRARY: Any = transformers
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
}
Row = dict[str, Tensor]
Build = Callable[[], Any]


def bert(head: str, **fields: Any) -> Build:
    return lambda: getattr(LIBRARY, f"BertFor{head}")(LIBRARY.BertConfig(**SIZES, **fields))


def whole(low: int, high: int, *shape: int) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.randint(low, high, shape, generator=generator)


def some_tags(generator: torch.Generator) -> Tensor:
    """A label for each token but the first and the last."""
    tags = torch.randint(0, 5, (6,), generator=generator)
    tags[[0, 5]] = -100
    return tags


def one_hidden(generator: torch.Generator) -> Tensor:
    labels = torch.full((6,), -100)
    labels[2] = int(torch.randint(4, 60, (), generator=generator))
    return labels


# How to build a model, and what its rows have besides tokens.
KINDS: dict[str, tuple[Build, dict[str, Callable[[torch.Generator], Tensor]]]] = {
    "tags": (bert("TokenClassification", num_labels=5), {"labels": some_tags}),
    "answers": (bert("QuestionAnswering"), {"start_positions": whole(0, 3), "end_positions": whole(3, 6)}),
    "hidden tokens": (bert("MaskedLM"), {"labels": one_hidden}),
    "choices": (bert("MultipleChoice"), {"input_ids": whole(4, 60, 3, 6), "labels": whole(0, 3)}),
    "scores": (
        bert("SequenceClassification", num_labels=1, problem_type="regression"),
        {"labels": lambda generator: torch.rand((), generator=generator)},
    ),
    "several labels": (
        bert("SequenceClassification", num_labels=3, problem_type="multi_label_classification"),
        {"labels": lambda generator: torch.randint(0, 2, (3,), generator=generator).float()},
    ),
    "classes": (bert("SequenceClassification", num_labels=3), {"labels": whole(0, 3)}),
    "translation": (lambda: tiny("marian"), {"labels": whole(4, 60, 5)}),
    "causal": (lambda: tiny("gpt2"), {"labels": whole(4, 60, 6)}),
}


def rows(kind: str, count: int = 8) -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(count):
        row = {"input_ids": torch.randint(4, 60, (6,), generator=generator)}
        row |= {name: draw(generator) for name, draw in KINDS[kind][1].items()}
        made.append({**row, "attention_mask": torch.ones_like(row["input_ids"])})
    return made


def pruned(kind: str, method: str, folder: Path, **options: Any) -> Any:
    torch.manual_seed(0)
    model = KINDS[kind][0]()
    args = arguments(folder, max_steps=2)
    return kheads.prune(model, 3, method, rows(kind), rows(kind, 4), args, **options)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
@pytest.mark.parametrize("kind", KINDS)
def test_gates_learn_with_the_loss_of_any_model(kind: str, tmp_path: Path) -> None:
    result = pruned(kind, "dsp", tmp_path)
    assert len(result.kept) == 3 and result.metrics["pruned"]["eval"]["loss"] > 0
    assert result.metrics["pruned"]["eval"]["loss"] == pytest.approx(result.metrics["masked"]["eval"]["loss"], rel=1e-4)


@pytest.mark.parametrize("method", ["surgeon", "michel"])
@pytest.mark.parametrize("kind", ["tags", "answers", "hidden tokens", "scores", "several labels"])
def test_a_trained_model_is_scored_cut_repaired_and_taught(kind: str, method: str, tmp_path: Path) -> None:
    """The whole model teaches the smaller one, whose loss is a number in the end."""
    teaching = {"recover_steps": 2} if method == "michel" else {}
    result = pruned(kind, method, tmp_path, trained=True, distil=kheads.Distillation(), **teaching)
    assert len(result.kept) == 3 and "repaired" in result.metrics
    assert torch.isfinite(torch.tensor(result.metrics["pruned"]["eval"]["loss"]))


def test_scores_do_not_depend_on_how_examples_are_batched(tmp_path: Path) -> None:
    """Where an example has several losses, and another one a single one, each example counts the same."""
    for kind in ("tags", "answers", "hidden tokens"):
        data = rows(kind)
        if kind == "tags":
            data[0]["labels"][1:4] = -100
        found = []
        for size in (1, 4):
            torch.manual_seed(0)
            args = arguments(tmp_path / f"{kind}{size}", per_device_train_batch_size=size)
            made = kheads.prune(KINDS[kind][0](), 3, "michel", data, None, args, trained=True, repair=False)
            found.append(made.scores)
        assert torch.equal(*found)
