"""Embeddings: texts in, a smaller encoder out that gives those of the original; no labels."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import EvalPrediction

import kheads
from command import call
from kheads import METHODS
from kheads.lab.demos import embed
from kheads.lab.jobs import running as jobs
from kheads.lab.jobs.catalogue import Sentences
from kheads.lab.jobs.job import Job
from kheads.lab.preview.looking import preview
from kheads.lab.preview.ready import ready
from kheads.lab.preview.request import Request
from kheads.storage.embedder import POOLINGS, Embedder
from kheads.storage.sentence_folder import read_sentence_folder
from kheads.tasks import embedding
from kheads.tasks.files import DataError
from kheads.training.embedding import LOSSES, Original
from sentence_folders import sentence_folder, texts, tiny_encoder

DATA = {"train": "texts.txt", "eval": {"sts": "sts.jsonl"}}
EMBED = ("--task", "embed", "--train", "texts.txt", "--eval", "sts=sts.jsonl", "--max-length", "16")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny sentence encoder and texts, as working directory."""
    sentence_folder(tmp_path / "encoder")
    tiny_encoder(tmp_path / "plain", seed=1)
    (tmp_path / "texts.txt").write_text("\n".join(texts(40)) + "\n")
    pairs = zip(texts(10, seed=7), texts(10, seed=9), strict=True)
    rows = [{"sentence1": one, "sentence2": two, "score": number / 2} for number, (one, two) in enumerate(pairs)]
    (tmp_path / "sts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(**changes: Any) -> Job:
    given = {"k": 4, "task": "embed", "data": DATA, "max_steps": 3, "batch_size": 8, "max_length": 16}
    return Job("encoder", **{**given, **changes})


# ------------------------------------------------------------------------------------------------------------ the data


def test_pairs_count_as_two_texts_and_repeated_ones_once(tmp_path: Path) -> None:
    rows = [{"sentence1": "a b", "sentence2": "c", "label": None}, {"sentence1": "c", "sentence2": "d"}]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = embedding.from_files(tmp_path / "pairs.jsonl", {})
    assert task.train == ["a b", "c", "d"] and "1 texts that stand there more than once" in task.notes[0]


def test_columns_are_named_by_what_they_hold(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("left,right,alike\nx,y,0.5\nu,v,2\n")
    named = {"text": "left", "text_pair": "right", "score": "alike"}
    task = embedding.from_files(tmp_path / "a.csv", {"a": tmp_path / "a.csv"}, named)
    assert task.train == ["x", "u", "y", "v"]
    assert task.evals["a"] == embedding.Texts(["x", "u", "y", "v"], [0, 1, 0, 1], [0.5, 2.0])
    with pytest.raises(ValueError, match="text, text_pair, score; got 'label'"):
        embedding.from_files(tmp_path / "a.csv", {}, {"label": "alike"})
    (tmp_path / "b.csv").write_text("left,right,alike\nx,y,very\n")
    with pytest.raises(DataError, match="score 'very' is not a number"):
        embedding.from_files(None, {"b": tmp_path / "b.csv"}, named)


def test_texts_are_held_out_where_there_is_no_evaluation_set(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(texts(40)))
    task = embedding.from_files(tmp_path / "t.txt", {}).held_out(seed=3)
    held = task.evals[embedding.HELD_OUT].texts
    assert (
        len(held) == 4 and not set(held) & set(task.train or ()) and set(held) | set(task.train or ()) == set(texts(40))
    )
    assert task.metric == "cosine" and "4 of 40 texts are held out" in task.notes[-1]
    (tmp_path / "few.txt").write_text("one\n")
    with pytest.raises(DataError, match="too few to hold some out"):
        embedding.from_files(tmp_path / "few.txt", {}).held_out()


def test_a_sample_keeps_pairs_together() -> None:
    given = embedding.Texts(
        [f"a{n}" for n in range(9)] + [f"b{n}" for n in range(9)], [*range(9)] * 2, [*map(float, range(9))]
    )
    found = embedding.EmbeddingTask(None, {"x": given}).sample(None, 4, seed=1).evals["x"]
    assert len(found.texts) == 8 and found.scores is not None and len(found.scores) == 4
    for text, pair in zip(found.texts, found.pairs, strict=True):
        assert float(text[1:]) == found.scores[pair]


# --------------------------------------------------------------------------------------------------------- the metrics


def test_the_metrics_do_not_depend_on_the_order_of_rows() -> None:
    """Spearman's is scipy's, ties included."""
    generator = np.random.default_rng(0)
    own, theirs = generator.normal(size=(2, 24, 5))
    pairs, scores = np.array([*range(12)] * 2), np.repeat([0.0, 1.0, 1.0, 3.0], 3)[np.array([*range(12)] * 2)]
    alike = embedding.cosines(own[:12], own[12:])
    wanted = {
        "cosine": embedding.cosines(own, theirs).mean(),
        "spearman": stats.spearmanr(alike, scores[:12]).statistic,
    }
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(24)
        labels: Any = (pairs[order], scores[order])
        predictions: Any = (own[order], theirs[order])
        found = embedding.compute_metrics(EvalPrediction(predictions, labels))
        assert found == pytest.approx(wanted)


def test_a_set_without_scores_has_no_spearman_and_without_an_original_no_cosine() -> None:
    own, numbers = np.eye(4), np.arange(4)
    bare: Any = (numbers, np.full(4, np.nan))
    both: Any = (own, own)
    assert embedding.compute_metrics(EvalPrediction(both, bare)) == {"cosine": 1.0}
    scored: Any = (np.array([0, 0, 1, 1]), np.array([1.0, 1.0, 2.0, 2.0]))
    assert set(embedding.compute_metrics(EvalPrediction(own, scored))) == {"spearman"}


# ------------------------------------------------------------------------------------------------------------ the loss


@pytest.mark.parametrize("name", LOSSES)
def test_a_distance_is_zero_from_itself_alone(name: str) -> None:
    own = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    other = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    assert float(LOSSES[name](own, own)) == pytest.approx(0, abs=1e-6)
    assert float(LOSSES[name](own, other)) > 0.01
    turned, _ = torch.linalg.qr(torch.randn(5, 5))
    assert (float(LOSSES[name](own @ turned, own)) < 1e-6) == (name == "similarity")


def test_similarity_of_a_single_text_says_nothing() -> None:
    own = torch.randn(1, 5, requires_grad=True)
    LOSSES["similarity"](own, torch.randn(1, 5)).backward()
    assert own.grad is not None and not own.grad.any()


def test_the_record_names_the_distances_and_poolings_there_are() -> None:
    """They are declared where no library is loaded."""
    hints = get_type_hints(Sentences, include_extras=True)
    assert get_args(hints["distance"])[1].words == tuple(LOSSES)
    assert get_args(get_args(hints["pooling"])[0])[1].words == POOLINGS


def test_the_original_answers_each_text_once() -> None:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=20)).eval()
    original = Original(model, Embedder(normalise=True))
    ids = torch.tensor([[2, 5, 6, 0], [2, 7, 8, 9]])
    mask = (ids > 0).long()
    with torch.no_grad():
        wanted = Embedder(normalise=True).of(model, {"input_ids": ids, "attention_mask": mask})
        for parameter in model.parameters():
            parameter.zero_()  # the original is a copy
    assert torch.allclose(original({"input_ids": ids, "attention_mask": mask}), wanted, atol=1e-6)
    original.model = None  # nothing is asked again, however the texts are batched and padded
    again = original({"input_ids": ids[:1, :3], "attention_mask": mask[:1, :3]})
    assert torch.allclose(again, wanted[:1], atol=1e-6)


# ------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("method", METHODS)
def test_every_method_prunes_an_encoder(method: str, place: Path) -> None:
    outcome = jobs.run(job(method=method), place / "small", quiet=True)
    metrics = outcome.record["metrics"]
    assert metrics["unpruned"]["sts"]["cosine"] == pytest.approx(1.0, abs=1e-6)
    assert {"cosine", "spearman"} <= set(metrics["pruned"]["sts"])
    assert metrics["masked"]["sts"]["cosine"] < 0.9999 and outcome.record["metric"] == "spearman"
    assert outcome.record["report"]["largest_difference"] < 1e-5
    small = kheads.load(place / "small")
    assert sum(site.count for site in kheads.discover(small)) == 4
    assert read_sentence_folder(place / "small") == read_sentence_folder(place / "encoder")


def test_the_choice_minds_what_the_embedding_depends_on(place: Path) -> None:
    """A head whose values are zero changes no embedding; at the uncut model the plain distance could not tell."""
    from transformers import AutoModel

    model: Any = AutoModel.from_pretrained("encoder")
    with torch.no_grad():
        for layer, head in ((0, 1), (1, 2)):
            attention = model.encoder.layer[layer].attention.self.value
            attention.weight[4 * head : 4 * head + 4] = 0
            attention.bias[4 * head : 4 * head + 4] = 0
    model.save_pretrained("encoder")
    for method in ("surgeon", "michel"):
        outcome = jobs.run(job(method=method, k=6, no_training=True), place / method, quiet=True)
        assert outcome.record["metrics"]["cut"]["sts"]["cosine"] == pytest.approx(1.0, abs=1e-6)


def test_repair_and_training_bring_the_embeddings_back(place: Path) -> None:
    """Without a label; each is nearer to the original than what it began with, on texts that were not shown."""
    (place / "many.txt").write_text("\n".join(texts(150)))
    asked = job(data={"train": "many.txt"}, k=2, lr=5e-3, max_steps=60)
    outcome = jobs.run(asked, place / "small", quiet=True)
    cut, repaired, trained = (
        outcome.record["metrics"][stage]["held-out"]["cosine"] for stage in ("cut", "repaired", "pruned")
    )
    assert cut < repaired < trained < 1


def test_a_plain_encoder_needs_a_word_on_its_pooling(place: Path) -> None:
    with pytest.raises(ValueError, match="--pooling mean or --pooling cls"):
        jobs.run(replace(job(), model="plain"), place / "x", quiet=True)
    data = {**DATA, "pooling": "cls"}
    jobs.run(replace(job(data=data, no_training=True), model="plain"), place / "small", quiet=True)
    found = read_sentence_folder(place / "small")
    assert found is not None and found.embedder == Embedder("cls")
    with pytest.raises(ValueError, match="`pooling` is mean in the files of encoder"):
        jobs.run(job(data=data), place / "x", quiet=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"fresh": True}, "`fresh` trains a model anew"),
        ({"method": "none", "k": None}, "nothing to learn from the model itself"),
        ({"data": {"eval": DATA["eval"]}}, "Give texts to learn from"),
        ({"data": {**DATA, "original": "other"}}, "has another tokenizer"),
        ({"max_length": 2}, "`max_length` must be 3 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], sentence: str, place: Path) -> None:
    other = tiny_encoder(place / "other")
    words = json.loads((other / "tokenizer.json").read_text())
    vocabulary = words["model"]["vocab"]
    vocabulary["w1"], vocabulary["w2"] = vocabulary["w2"], vocabulary["w1"]
    (other / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ValueError, match=sentence):
        jobs.run(job(**changes), place / "x", quiet=True)
    assert not (place / "x").exists()


def test_an_encoder_decoder_is_refused(place: Path, fresh: Any) -> None:
    fresh("marian").model.save_pretrained("encoder")
    with pytest.raises(ValueError, match="text encoder"):
        jobs.run(job(), place / "x", quiet=True)


def test_a_pruned_encoder_follows_its_original_further(place: Path) -> None:
    """Pruned twice, with the first model as the one to follow."""
    jobs.run(job(k=6, no_training=True), place / "six", quiet=True)
    again = replace(job(data={**DATA, "original": "encoder"}, no_training=True), model="six")
    metrics = jobs.run(again, place / "four", quiet=True).record["metrics"]
    assert metrics["unpruned"]["sts"]["cosine"] < 0.9999


def test_a_preview_shows_embeddings(place: Path) -> None:
    asked, prepared = ready(job(k=None))
    found = preview(asked, prepared, Request(ks=(6, 3), timed=False), lambda *_: None)
    assert found.unpruned["sts"]["cosine"] == pytest.approx(1.0, abs=1e-6)
    assert [point.heads for point in found.points] == [6, 3]
    assert all(point.repaired["sts"]["cosine"] < 0.9999 for point in found.points)


def test_the_commands_prune_and_evaluate(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "prune", "encoder", "-k", "4", *EMBED, "--no-training", "--json", "-o", "small") == 0
    said = json.loads(capsys.readouterr().out)["metrics"]["pruned"]["sts"]
    evaluate = ("eval", "small", "--task", "embed", "--eval", "sts=sts.jsonl", "--max-length", "16", "--json")
    assert call(monkeypatch, *evaluate) == 0
    assert json.loads(capsys.readouterr().out)["sts"] == pytest.approx({"spearman": said["spearman"]})
    assert call(monkeypatch, *evaluate, "--set", "original=encoder") == 0
    found = json.loads(capsys.readouterr().out)["sts"]
    assert found == pytest.approx({name: said[name] for name in ("cosine", "spearman")})
    assert call(monkeypatch, "eval", "small", "--task", "embed", "--eval", "texts.txt") == 2
    assert "has no scored pairs" in capsys.readouterr().err
    for option in ("--distil", "--fresh", "--baseline"):
        assert call(monkeypatch, "prune", "encoder", "-k", "4", *EMBED, option, "-o", "x") == 2
        assert f"`{option}` does not belong to the task embed" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------- the story


def test_the_sentences_of_the_story_are_all_different() -> None:
    task = embedding.from_files(embed.SENTENCES, {embed.EVALUATION: embed.PAIRS})
    pairs = task.evals[embed.EVALUATION]
    assert task.train and len(task.train) >= 250 and not task.notes
    assert pairs.scores and min(pairs.scores) == 0 and max(pairs.scores) == 5 and task.metric == "spearman"
    assert not set(task.train) & {*pairs.texts, *embed.ASKED} and len(set(pairs.texts)) == len(pairs.texts)
    first_words = [" ".join(text.split()[:3]) for text in task.train]
    assert len(set(first_words)) > 0.95 * len(first_words)  # written, not filled into a template


@pytest.mark.slow
def test_the_story_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    embed.run_demo(tmp_path / "demo", recipe=embed.Recipe(steps=10))
    told = capsys.readouterr().out
    assert "and 10 steps" in told and "kingfisher" in told
    assert read_sentence_folder(tmp_path / "demo") is not None
