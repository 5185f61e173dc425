"""Language modelling: text files in, every method end to end, perplexity out."""

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import kheads
from command import call
from families import VOCAB
from kheads import METHODS, tasks
from kheads.lab.jobs import running as jobs
from kheads.lab.jobs.job import Job
from kheads.tasks import language_modelling
from kheads.training.trainer import GatedTrainer

Fresh = Callable[[str], Any]
WORDS = ["<pad>", "<bos>", "<eos>", "<unk>", "\n", *[f"w{index}" for index in range(VOCAB - 5)]]
STEPS = ("--max-length", "8", "--max-steps", "2", "--batch-size", "4")
DATA = ("--task", "clm", "--train", "train.txt", "--eval", "held=held.txt.gz")


def tokenizer(begins: bool = False) -> Any:
    """Words and line ends as tokens; with `begins`, texts begin with <bos>."""
    built = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    split = [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Split(" ", "removed")]
    built.pre_tokenizer = pre_tokenizers.Sequence(split)
    if begins:
        built.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    make: Any = PreTrainedTokenizerFast  # its constructor has no types
    return make(tokenizer_object=built, pad_token="<eos>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")


def text(lines: int, seed: int = 0) -> str:
    numbers = torch.randint(0, VOCAB - 5, (lines, 6), generator=torch.Generator().manual_seed(seed))
    return "".join(" ".join(f"w{number}" for number in row) + "\n" for row in numbers.tolist())


@pytest.fixture
def place(fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tiny decoders, their tokenizer and text, as working directory."""
    for family in ("gpt2", "llama"):
        fresh(family).save_pretrained(tmp_path / family)
        tokenizer(begins=family == "llama").save_pretrained(tmp_path / family)
    (tmp_path / "train.txt").write_text(text(30))
    (tmp_path / "held.txt.gz").write_bytes(gzip.compress(text(9, seed=1).encode()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_every_method_prunes_a_decoder(
    family: str, method: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("prune", family, "-k", "5", "--method", method, *DATA, *STEPS, "-o", "out", "--json")
    assert call(monkeypatch, *words) == 0
    told = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert told["after"]["heads"] == 5 == sum(site.count for site in kheads.discover(kheads.load("out")))
    metrics = told["metrics"]
    reached = metrics["pruned"]["held"]["perplexity"]
    removed = metrics.get("cut", metrics["pruned"])["held"]["perplexity"]  # before it trains on, if it does
    assert removed == pytest.approx(metrics["masked"]["held"]["perplexity"], rel=1e-4)
    assert call(monkeypatch, "eval", "out", "--task", "clm", "--eval", "held=held.txt.gz", *STEPS[:2], "--json") == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["held"] == {
        "perplexity": pytest.approx(reached, rel=1e-5)
    }


def test_perplexity_is_that_of_the_tokens(place: Path, fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    """It equals exp of the mean loss over all tokens but each block's first, and only those numbers are kept."""
    prepared = jobs.prepare(Job("gpt2", task="clm", data={"eval": {"held": "held.txt.gz"}}, max_length=8))
    assert prepared.metric == "perplexity" and prepared.lower_is_better and prepared.train is None
    blocks = torch.tensor(prepared.evals["held"]["input_ids"][:])
    model = fresh("gpt2")
    with torch.no_grad():
        output = model(input_ids=blocks, labels=blocks)
    kept: list[Any] = []
    predict = GatedTrainer.predict

    def watched(self: Any, *args: Any, **options: Any) -> Any:
        kept.append(predict(self, *args, **options))
        return kept[-1]

    monkeypatch.setattr(GatedTrainer, "predict", watched)
    reached = jobs.evaluate(prepared, batch_size=3, quiet=True)
    assert reached == {"held": {"perplexity": pytest.approx(math.exp(output.loss), rel=1e-5)}}
    assert kept[0].predictions.shape == (len(blocks), 7)


def test_a_model_learns_the_text(place: Path) -> None:
    """On nine words that repeat in order, perplexity falls far below the nine of knowing the words alone."""
    Path("again.txt").write_text(" ".join(f"w{index % 9}" for index in range(500)))
    data = {"train": "again.txt", "eval": {"held": "again.txt"}}
    job = Job("gpt2", 4, method="ste", task="clm", data=data, max_length=16, max_steps=40, batch_size=8, lr=1e-2)
    assert jobs.run(job, place / "few", quiet=True).record["metrics"]["pruned"]["held"]["perplexity"] < 3


def test_a_file_is_one_stream_cut_into_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, doubled or padded at lines and pieces; <bos> stands at the beginning alone; the rest is told."""
    path = tmp_path / "a.txt"
    path.write_text(text(20))
    whole = tokenizer(begins=True)(text(20))["input_ids"]
    assert whole[0] == 1 and len(whole) == 141
    for size in (1, 100, 1 << 16):
        monkeypatch.setattr(language_modelling, "PIECE", size)
        task = tasks.text_blocks(path, {"held": path}, tokenizer(begins=True), 8)
        assert [token for block in task.evals["held"]["input_ids"] for token in block] == whole[:136]
    assert task.notes[0] == "train: 17 blocks of 8 tokens; the last 5 tokens were left out."
    assert tasks.text_blocks(None, {"held": path}, tokenizer(), 8).evals["held"][0]["input_ids"] == whole[1:9]


def test_sampled_blocks_depend_on_the_seed_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text(20))
    task = tasks.text_blocks(path, {"held": path}, tokenizer(), 8)
    few, same, other = (task.sample(5, 3, seed) for seed in (0, 0, 1))
    assert few.train and same.train and other.train and len(few.train) == 5 and len(few.evals["held"]) == 3
    assert few.train["input_ids"][:] == same.train["input_ids"][:] != other.train["input_ids"][:]
    assert "train: 5 of these blocks, drawn at random with seed 0." in few.notes


def test_the_end_of_a_text_is_a_label_though_it_also_pads() -> None:
    batch = language_modelling.collate([{"input_ids": [2, 5, 2]}])
    assert batch["labels"].tolist() == [[2, 5, 2]] and batch["labels"] is not batch["input_ids"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--train", "no.txt", "--eval", "held.txt.gz"), "no.txt does not exist; give a file of text."),
        (("--train", "gpt2", "--eval", "held.txt.gz"), "gpt2 is a folder; give a file."),
        (("--train", "empty.txt", "--eval", "held.txt.gz"), "empty.txt has no text; give a file with some."),
        (("--train", "short.txt", "--eval", "held.txt.gz"), "short.txt has 2 tokens, too few for one block of 8"),
        (("--train", "latin.txt", "--eval", "held.txt.gz"), "latin.txt, line 2: not UTF-8 (byte 0xe9)"),
        (("--train", "train.txt", "--eval", "cut.txt.gz"), "cut.txt.gz, line 8: not a whole gzip file"),
        (("--train", "rows.jsonl", "--eval", "held.txt.gz"), "rows.jsonl holds rows, not plain text"),
        (("--train", "train.txt"), "Give text files to train on and to evaluate (--train, --eval)."),
        (("--eval", "held.txt.gz"), "Training data is missing; give `--train`"),
        (("--train", "train.txt", "--eval", "train=held.txt.gz"), "An evaluation set cannot be called 'train'"),
        (
            ("--train", "train.txt", "--eval", "held.txt.gz", "--column", "a"),
            "`--column` does not belong to the task",
        ),
        (("--train", "train.txt", "--eval", "held.txt.gz", "--max-length", "41"), "`--max-length` must be at most 40"),
        (("--train", "train.txt", "--eval", "held.txt.gz", "--max-length", "1"), "`--max-length` must be 2 or more"),
        (
            ("--train", "train.txt", "--eval", "held.txt.gz", "--max-train", "0"),
            "`--max-train` must be a whole number from 1 up",
        ),
    ],
)
def test_bad_files_end_in_one_sentence(
    words: tuple[str, ...],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (place / "empty.txt").write_text("\n" * 0)
    (place / "short.txt").write_text("w1 w2")
    (place / "latin.txt").write_bytes(b"w1\ncaf\xe9\n")
    (place / "cut.txt.gz").write_bytes((place / "held.txt.gz").read_bytes()[:-20])
    (place / "rows.jsonl").write_text("{}")
    assert call(monkeypatch, "prune", "gpt2", "-k", "5", "--task", "clm", *STEPS, *words, "-o", "x") == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1] and not (place / "x").exists()


def test_what_is_no_language_model_is_refused(
    place: Path, fresh: Fresh, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh("bert").save_pretrained("bert")
    kheads.save(fresh("bert"), "pruned")
    small = fresh("gpt2")
    small.resize_token_embeddings(20)
    small.save_pretrained("small")
    headless = fresh("llama")
    headless.model.save_pretrained("headless")
    for source, message in (
        ("bert", "bert has no weights for"),
        ("pruned", "pruned is a BertForSequenceClassification, which is not a model for CausalLM."),
        ("small", "The tokenizer of small has tokens up to 60, and the model knows 20"),
        ("headless", "headless has no weights for lm_head.weight"),
    ):
        tokenizer().save_pretrained(source)
        assert call(monkeypatch, "prune", source, "-k", "3", *DATA, *STEPS, "-o", "x") == 2
        assert message in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_model_that_sees_the_tokens_to_come_is_refused(place: Path, fresh: Fresh) -> None:
    from transformers import BertConfig, BertLMHeadModel

    config = BertConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    config.initializer_range = 0.5
    model: Any = BertLMHeadModel
    model(config).save_pretrained("mlm")
    with pytest.raises(kheads.storage.sources.SourceError, match="sees the tokens to come"):
        kheads.storage.sources.language_model("mlm")


def test_the_table_shows_perplexity_as_a_number(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "prune", "gpt2", "-k", "5", *DATA, *STEPS, "-o", "out") == 0
    told = capsys.readouterr().out
    assert "perplexity, held" in told and "%" not in told.split("perplexity, held")[1].splitlines()[0]
    assert "train: 26 blocks of 8 tokens; the last 2 tokens were left out." in told
