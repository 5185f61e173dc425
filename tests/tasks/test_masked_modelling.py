"""Masked language models: what is hidden, perplexity of it, runs that go on where they were, and refusals."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import kheads
from command import call
from kheads.lab.jobs import masked_modelling as masked_job
from kheads.lab.jobs import running as jobs
from kheads.lab.jobs.job import Job
from kheads.tasks import masking
from kheads.tasks.masking import JUDGED, MaskingCollator, masking_of
from kheads.training.trainer import GatedTrainer
from word_tasks import PIECES, SPECIAL, furnish, save_model, tokenizer

DATA = ("--task", "mlm", "--train", "train.txt", "--eval", "dev=dev.txt")
STEPS = ("--max-steps", "2", "--batch-size", "8", "--max-length", "16")
MASK = PIECES.index("[MASK]")
BLOCK = st.lists(st.integers(2, len(PIECES) - 1), min_size=4, max_size=40).filter(lambda ids: max(ids) > 5)
HIDING = masking_of(tokenizer(), 0.15)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    furnish(tmp_path)
    save_model(tmp_path / "masked", "MaskedLM")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def a_job(**changes: Any) -> Job:
    data = {"train": "train.txt", "eval": {"dev": "dev.txt"}}
    settings = {"task": "mlm", "data": data, "max_length": 16, "batch_size": 8, "method": "ste", "k": 4}
    return Job("masked", **{**settings, **changes})


# -------------------------------------------------------------------------------------------------------------- hiding


@given(BLOCK, st.integers(JUDGED, 5), st.sampled_from([0.15, 0.5, 0.99]))
def test_a_share_of_the_words_is_hidden_and_no_special_token(ids: list[int], epoch: int, share: float) -> None:
    hiding = replace(HIDING, share=share)
    block, labels = hiding.hide(ids, epoch)
    words = [index for index in ids if index >= len(SPECIAL)]
    hidden = labels != masking.IGNORED
    assert hidden.sum() == max(1, round(share * len(words)))
    assert (labels[hidden] == np.asarray(ids)[hidden]).all() and labels[hidden].min() >= len(SPECIAL)
    assert (block[~hidden] == np.asarray(ids)[~hidden]).all()
    assert not set(block[hidden].tolist()) & {0, 2, 3}
    assert epoch != JUDGED or (block[hidden] == MASK).all()


def test_in_training_some_words_stay_or_change() -> None:
    """Eight, one and one of ten, over many blocks."""
    ids = list(range(6, 56))
    pairs = [replace(HIDING, seed=seed).hide(ids, 0) for seed in range(400)]
    block, labels = (np.concatenate(side) for side in zip(*pairs, strict=True))
    block, labels = block[labels >= 0], labels[labels >= 0]
    shares = [(block == MASK).mean(), (block == labels).mean(), ((block != MASK) & (block != labels)).mean()]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_what_is_hidden_depends_on_tokens_seed_and_epoch_alone() -> None:
    blocks = [{"input_ids": list(range(start, start + 40))} for start in (6, 7, 8, 9)]

    def made(seed: int, epoch: int, parts: Sequence[Sequence[Any]]) -> torch.Tensor:
        collator = MaskingCollator(replace(HIDING, seed=seed))
        collator.set_epoch(epoch)
        return torch.cat([collator(part)["labels"] for part in parts])

    whole = made(0, 1, [blocks])
    assert torch.equal(whole, made(0, 1, [blocks[:1], blocks[1:]]))
    assert not torch.equal(whole, made(0, 2, [blocks])) and not torch.equal(whole, made(1, 1, [blocks]))


def test_every_run_is_judged_by_the_same_tokens() -> None:
    one, other = (masked_job.prepare(a_job(seed=seed)).evals["dev"] for seed in (0, 1))
    assert one["input_ids"][:] == other["input_ids"][:] and one["labels"][:] == other["labels"][:]
    assert all(row[0] == PIECES.index("[CLS]") and row[-1] == PIECES.index("[SEP]") for row in one["input_ids"])
    assert {len(row) for row in one["input_ids"]} == {16}


def test_perplexity_is_that_of_the_hidden_tokens() -> None:
    prepared = masked_job.prepare(a_job())
    assert prepared.lower_is_better and prepared.able and prepared.metric == "perplexity"
    rows = prepared.evals["dev"]
    with torch.no_grad():
        loss = prepared.model.eval()(
            input_ids=torch.tensor(rows["input_ids"][:]), labels=torch.tensor(rows["labels"][:])
        ).loss
    assert jobs.evaluate(prepared, batch_size=3, quiet=True) == {
        "dev": {"perplexity": pytest.approx(math.exp(loss), rel=1e-4)}
    }


# ---------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize(
    "how",
    [
        ("-k", "4"),
        ("-k", "4", "--method", "dsp", "--distil"),
        ("-k", "4", "--method", "michel", "--recover-steps", "2", "--distil"),
        ("--smaller", "20%", "--no-training"),
    ],
)
def test_a_masked_model_is_pruned_and_evaluated(
    how: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is saved is what was measured, and `eval` finds the same."""
    assert call(monkeypatch, "prune", "masked", *how, *DATA, *STEPS, "-o", "out", "--json") == 0
    metrics = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["metrics"]
    reached = (metrics.get("recovered") or metrics["pruned"])["dev"]["perplexity"]
    assert "unpruned" in metrics and "masked" in metrics
    assert call(monkeypatch, "eval", "out", "--task", "mlm", "--eval", "dev=dev.txt", *STEPS[-2:], "--json") == 0
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert found == {"dev": {"perplexity": pytest.approx(reached, rel=1e-5)}}


def test_a_masked_model_learns_and_serves_another_task(place: Path) -> None:
    """On letters in their order; what is left is then the start of a tagger."""
    record = jobs.run(a_job(max_steps=80, lr=1e-2), place / "few", quiet=True).record
    assert (
        record["metrics"]["pruned"]["dev"]["perplexity"] < 6 < 30 < record["metrics"]["unpruned"]["dev"]["perplexity"]
    )
    files = {"train": "train.conll", "eval": {"dev": "dev.conll"}}
    tagging = Job(str(place / "few"), task="tags", data=files, method="none", max_steps=2, batch_size=8)
    tagger = jobs.run(tagging, place / "tagger", quiet=True)
    assert tagger.record["after"]["heads"] == 4 and tagger.record["metrics"].keys() == {"pruned"}
    assert type(kheads.load(place / "tagger")).__name__ == "BertForTokenClassification"


class _StopError(Exception):
    pass


def test_a_run_that_was_cut_off_comes_to_the_same(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second epoch, which hides other tokens than the first; and the scores come of the same tokens, too."""
    job = a_job(max_steps=9, save_steps=2, method="surgeon", fresh=True)
    jobs.run(job, place / "whole", quiet=True)
    step, seen = GatedTrainer.training_step, 0

    def stopping(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == when:
            raise _StopError
        return step(self, *args, **options)

    monkeypatch.setattr(GatedTrainer, "training_step", stopping)
    for when in (5, 4):  # in the training of the whole model, and then, behind its two last steps, of the smaller one
        seen = 0
        with pytest.raises(_StopError):
            jobs.run(job, place / "cut", quiet=True, resume=when == 4)
    when = 0
    jobs.run(job, place / "cut", quiet=True, resume=True)
    one, other = (load_file(place / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_is_looked_at_after_training_does_not_depend_on_it(place: Path) -> None:
    prepared = masked_job.prepare(a_job())
    collator = prepared.trainer_options["data_collator"]
    seen: list[int] = []
    told = collator.set_epoch

    def noted(epoch: int) -> None:
        seen.append(epoch)
        told(epoch)

    collator.set_epoch = noted
    args = jobs.arguments(place / "run", a_job(max_steps=7, save_steps=100), prepared, quiet=True)
    trainer = GatedTrainer(
        model=prepared.model, args=args, train_dataset=prepared.train, processing_class=prepared.processor,
        data_collator=collator,
    )  # fmt: skip
    trainer.train()
    assert seen == [0, 1, 2, 0] and collator.epoch == 0


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--train", "no.txt", "--eval", "dev.txt"), "no.txt does not exist; give a file of text."),
        (("--train", "empty.txt", "--eval", "dev.txt"), "empty.txt has no text"),
        (("--train", "short.txt", "--eval", "dev.txt"), "short.txt has 2 tokens, too few for one block of 16"),
        (("--train", "latin.txt", "--eval", "dev.txt"), "latin.txt, line 2: not UTF-8 (byte 0xe9)"),
        (("--train", "train.json", "--eval", "dev.txt"), "train.json holds rows, not plain text"),
        (("--train", "special.txt", "--eval", "dev.txt"), "'train' has a block of special tokens alone"),
        (("--train", "train.txt"), "Give text files to train on and to evaluate (--train, --eval)."),
        (("--eval", "dev.txt"), "Training data is missing; give `--train`"),
        (("--train", "train.txt", "--eval", "train=dev.txt"), "An evaluation set cannot be called 'train'"),
        (("--train", "train.txt", "--eval", "dev.txt", "--max-length", "3"), "`--max-length` must be"),
        (("--train", "train.txt", "--eval", "dev.txt", "--max-length", "65"), "`--max-length` must be at most 64"),
        (("--train", "train.txt", "--eval", "dev.txt", "--set", "masked=1.5"), "masked"),
    ],
)
def test_bad_files_end_in_one_sentence(
    words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty.txt").write_text("")
    Path("short.txt").write_text("a b")
    Path("latin.txt").write_bytes(b"a\ncaf\xe9\n")
    Path("special.txt").write_text("[SEP] " * 20 + "a b " * 20)
    assert call(monkeypatch, "prune", "masked", "-k", "4", "--task", "mlm", *STEPS, *words, "-o", "x") == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1] and not Path("x").exists()


def test_what_is_no_masked_model_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model("reader", "QuestionAnswering")
    kheads.save(kheads.storage.sources.model("reader"), "pruned", tokenizer())
    save_model("maskless", "MaskedLM")
    unmasked = tokenizer()
    unmasked.mask_token = None
    unmasked.save_pretrained("maskless")
    for source, message in (
        ("bare", "bare has no weights for cls.predictions"),
        ("pruned", "pruned is a BertForQuestionAnswering, which is not a model for MaskedLM."),
        ("maskless", "has no mask token, which a masked language model is asked with"),
    ):
        assert call(monkeypatch, "prune", source, "-k", "3", *DATA, *STEPS, "-o", "x") == 2
        assert message in capsys.readouterr().err.strip().splitlines()[-1]
