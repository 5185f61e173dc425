"""No number is silently wrong: tokenizers that do not fit, weights that are no numbers, and inputs without measure."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image

import kheads
from command import TRAIN, WORDS, call, place
from kheads.methods.finite import NotFiniteError
from kheads.methods.michel import per_site_norm
from kheads.storage import processors, sources, strict_json
from kheads.tasks import files
from kheads.tasks.image_classification import MOST_PIXELS, read_image
from kheads.tasks.tokens import parts

__all__ = ["place"]
PRUNE = ("prune", "tiny", "-k", "3", *TRAIN, "-o", "x")


def _told(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.strip().splitlines()[-1]


# ------------------------------------------------------------------------------------------------------- tokenizers


def test_a_tokenizer_that_is_not_there_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """transformers makes up one that knows no words; every text would be the same to the model."""
    for path in (place / "tiny").glob("tokenizer*"):
        path.unlink()
    for words in (PRUNE, ("prune", "tiny", "--method", "none", *TRAIN, "-o", "x")):
        assert call(monkeypatch, *words) == 2
        assert "tiny has no tokenizer, or one that knows no words" in _told(capsys)
    assert not (place / "x").exists()


@pytest.mark.parametrize("kind", ["gpt2", "roberta", "t5", "mbart", "xlm-roberta", "qwen2", "albert"])
def test_no_kind_of_tokenizer_is_made_up(kind: str, tmp_path: Path) -> None:
    transformers.AutoConfig.for_model(kind).save_pretrained(tmp_path)
    with pytest.raises(sources.SourceError, match="tokenizer"):
        processors.tokenizer(tmp_path)


def test_a_tokenizer_of_another_model_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One with more words than the model has embeddings, and one that knows next to nothing of the text."""
    (place / "more.txt").write_text("\n".join([*WORDS, *(f"w{index}" for index in range(99))]))
    transformers.BertTokenizer(str(place / "more.txt")).save_pretrained(place / "tiny")
    assert call(monkeypatch, *PRUNE) == 2
    assert "has tokens up to 108, and the model knows 61" in _told(capsys)
    (place / "other.txt").write_text("\n".join([*WORDS[:5], *(f"w{index}" for index in range(9))]))
    transformers.BertTokenizer(str(place / "other.txt")).save_pretrained(place / "tiny")
    assert call(monkeypatch, *PRUNE) == 2
    assert "tokens are unknown to the tokenizer" in _told(capsys)


def test_an_added_token_may_lie_beyond_the_embeddings_until_a_text_has_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = transformers.AutoTokenizer.from_pretrained(place / "tiny")
    words.add_tokens([f"<extra{index}>" for index in range(60)])
    words.save_pretrained(place / "tiny")
    assert call(monkeypatch, *PRUNE) == 0
    text = (place / "dev.jsonl").read_text()
    (place / "dev.jsonl").write_text(text.replace('"premise": "a', '"premise": "<extra59> a'))
    capsys.readouterr()
    assert call(monkeypatch, *PRUNE, "--overwrite") == 2
    assert "The set 'matched': the tokenizer gives the token 69, and the model knows 61 tokens" in _told(capsys)


def test_a_text_longer_than_the_positions_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"premise": "a b c " * 40, "hypothesis": "a", "label": "neutral"}
    (place / "dev.jsonl").write_text((place / "dev.jsonl").read_text() + json.dumps(row) + "\n")
    assert call(monkeypatch, *PRUNE) == 2
    assert "`--max-length` must be at most 40, the model's positions" in _told(capsys)


# ------------------------------------------------------------------------------------------------------ not a number


def _with_nan(place: Path) -> None:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(place / "tiny")
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.self.value.weight[0, 0] = float("nan")
    model.save_pretrained(place / "tiny")


@pytest.mark.parametrize("method", [*kheads.METHODS, "none"])
def test_a_weight_that_is_no_number_stops_every_method_by_its_name(
    method: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _with_nan(place)
    k = () if method == "none" else ("-k", "3", "--trained")
    assert call(monkeypatch, "prune", "tiny", *k, "--method", method, *TRAIN, "-o", "x") == 2
    assert "tensor bert.encoder.layer.1.attention.self.value.weight holds values" in _told(capsys)
    assert not (place / "x").exists()


def test_a_metric_that_is_no_number_is_said_and_null(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "prune", "tiny", "--method", "none", *TRAIN, "-o", "able") == 0
    (place / "able").rename(place / "tiny2")
    (place / "tiny").rename(place / "old")
    (place / "tiny2").rename(place / "tiny")
    model = kheads.load(place / "tiny")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    del model.config.kheads  # a folder of kheads would be refused by its weights
    model.save_pretrained(place / "tiny")
    capsys.readouterr()
    assert call(monkeypatch, "eval", "tiny", "--eval", "dev.jsonl", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out.strip().splitlines()[-1]) == {"eval": {"accuracy": None}}
    assert "The accuracy on eval is not a number" in said.err


def test_json_is_strict() -> None:
    text = strict_json.dumps({"a": [float("nan"), (1.5, -float("inf"))], "b": Path("c")})
    assert json.loads(text) == {"a": [None, [1.5, None]], "b": "c"}


def test_a_batch_that_gives_no_number_is_named(fresh: Any) -> None:
    model = fresh("bert")
    goal = kheads.Goal(3, kheads.discover(model))
    batch = {"input_ids": torch.ones(2, 4, dtype=torch.long), "labels": torch.zeros(2, dtype=torch.long)}

    def estimate(factors: list[float]) -> None:
        given = [{**batch, "factor": factor} for factor in factors]

        def loss(model: Any, batch: Any) -> Any:
            inputs = {name: value for name, value in batch.items() if name != "factor"}
            return model(**inputs).loss * batch["factor"], torch.ones(2)

        kheads.Michel().estimate(model, goal, kheads.Evidence(lambda label: given, loss, 0))

    with pytest.raises(NotFiniteError, match=r"Batch 2 of the examples .* the weights are finite"):
        estimate([1.0, float("nan")])
    with pytest.raises(NotFiniteError, match="All 12 heads have the same score"):
        estimate([0.0, 0.0])


def test_scores_and_loops_of_ones_own(fresh: Any) -> None:
    model = fresh("bert")
    sites = kheads.discover(model)
    scores = torch.arange(12.0)
    scores[5] = float("nan")
    with pytest.raises(ValueError, match=r"got nan at index 5 \(head 1 of site 'bert.encoder.layer.1.attention'\)"):
        kheads.select(scores, 3, sites)
    pruner = kheads.attach(model, k=3, steps=5)
    with torch.no_grad():
        model.classifier.weight[0, 0] = float("inf")
    with pytest.raises(NotFiniteError, match=r"classifier\.weight"):
        pruner.finish()
    pruner.cancel()
    with pytest.raises(NotFiniteError, match=r"classifier\.weight"):
        kheads.attach(model, k=3, steps=5)
    ones = per_site_norm(torch.ones(12), kheads.Goal(3, sites))
    assert ones.isfinite().all()


# -------------------------------------------------------------------------------------------------------- big inputs


def test_a_line_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.truncate(2**40)  # a line of a terabyte, if it were read
    with pytest.raises(
        files.DataError, match=r"long.jsonl, line 1: a text of 1,048,577 bytes or more; at most 1,048,576"
    ):
        files.read_table(path)


def test_a_text_of_a_table_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    long = pyarrow.array(["x" * 2**21] * 50)
    parquet.write_table(pyarrow.table({"text": long, "label": ["a"] * 50}), tmp_path / "long.parquet")
    with pytest.raises(
        files.DataError, match=r"long.parquet, after row 0: column 'text' holds a text of 2,097,152 bytes"
    ):
        files.read_table(tmp_path / "long.parquet")


def test_texts_are_tokenized_in_parts_of_bounded_size() -> None:
    texts = ["x" * 900_000] * 5 + ["y"]
    found = list(parts(texts))
    assert [len(part) for part in found] == [2, 2, 2] and [text for part in found for text in part] == texts


def test_an_image_is_refused_by_its_header(tmp_path: Path) -> None:
    side = int(MOST_PIXELS**0.5) + 1
    Image.new("1", (side, side)).save(tmp_path / "big.png")
    with pytest.raises(files.DataError, match=r"big.png has 7,072 x 7,072 pixels; at most 50,000,000 are read"):
        read_image(tmp_path / "big.png")
