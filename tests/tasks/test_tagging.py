"""Tags of words: alignment, pieces of long sentences, labels of trained models, runs, and sentences on bad files."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import EvalPrediction

import kheads
from command import call
from kheads.lab.jobs import running as jobs
from kheads.lab.jobs import tagging as tagging_job
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.tasks.bpe import train_bpe
from kheads.tasks.files import DataError
from kheads.tasks.tag_files import read_sentences
from kheads.tasks.tagging import by_word, cut_between_words, from_tag_files
from word_tasks import PIECES, TAGS, columns_of, furnish, save_model, tagged, tokenizer, write_lines

DATA = ("--task", "tags", "--train", "train.conll", "--eval", "dev=dev.conll")
STEPS = ("--max-steps", "2", "--batch-size", "8", "--max-length", "32")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    furnish(tmp_path)
    save_model(tmp_path / "tagger", "TokenClassification", TAGS[::-1])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(model: str = "tagger", train: str = "train.conll", dev: str = "dev.conll", **data: Any) -> Prepared:
    files = {"train": train, "eval": {"dev": dev}, **data}
    return tagging_job.prepare(Job(model, task="tags", data=files, max_length=32))


def write_bare() -> None:
    """The training sentences without their tags."""
    Path("bare.conll").write_text("\n".join("".join(f"{word}\n" for word in words) for words, _ in tagged()))
    write_lines("bare.jsonl", [{"words": words} for words, _ in tagged()])


def said_by(prepared: Prepared, name: str, logits: np.ndarray) -> dict[str, float]:
    """The metrics of made-up predictions."""
    data = prepared.evals[name]
    width = max(data["length"])
    labels = np.asarray([[*row, *[-100] * (width - len(row))] for row in data["labels"]])
    return prepared.trainer_options["compute_metrics"](EvalPrediction(logits, labels), data=data)


def oracle(prepared: Prepared, name: str) -> np.ndarray:
    """Logits that are right everywhere."""
    data = prepared.evals[name]
    found = np.zeros((len(data), max(data["length"]), 5))
    for row, labels in enumerate(data["labels"]):
        for token, label in enumerate(labels):
            found[row, token, max(label, 0)] = 1
    return found


# ------------------------------------------------------------------------------------------------------------- reading


def test_columns_and_rows_say_the_same() -> None:
    rows = tagged()
    write_lines("rows.jsonl", [{"tokens": words, "ner_tags": tags} for words, tags in rows])
    Path("tabs.tsv.gz").write_bytes(gzip.compress(columns_of(rows).replace(" ", "\t").encode()))
    wanted = [list(words) for words, _ in rows], [list(tags) for _, tags in rows]
    for name in ("train.conll", "rows.jsonl", "tabs.tsv.gz"):
        found = read_sentences(name)
        assert ([list(words) for words in found.words], [list(tags) for tags in found.tags]) == wanted


@pytest.mark.parametrize("column", [" ", "\t", "  "])
@pytest.mark.parametrize("inside", ["\u00a0", "\u202f", "\u2028", "\u0085"])
def test_only_tabs_and_blanks_are_between_columns(inside: str, column: str) -> None:
    """Other white space is a part of its word, as in 1 000 000 that stays on a line."""
    Path("x.conll").write_text(f"a{inside}b{column}O\nc{column}B-X\n", encoding="utf-8")
    found = read_sentences("x.conll")
    assert found.words == (([f"a{inside}b", "c"]),) and found.tags == (["O", "B-X"],)


def test_columns_can_be_chosen() -> None:
    Path("a.txt").write_text("1 a NN O\n2 b VB O\n")
    found = read_sentences("a.txt", {"words": "2", "tags": "3"})
    assert list(found.words[0]) == ["a", "b"] and list(found.tags[0]) == ["NN", "VB"]
    write_lines("a.jsonl", [{"w": ["a"], "t": ["NN"], "tags": ["O"]}])
    assert read_sentences("a.jsonl", {"words": "w", "tags": "t"}).tags == (["NN"],)


# ----------------------------------------------------------------------------------------------------------- alignment


WORDS = st.lists(st.text(alphabet="ab.\u00e9\u200b", min_size=1, max_size=5), min_size=1, max_size=8)


READERS = [tokenizer(), train_bpe(["ab ba a.b"], 280)]  # pieces of words, and bytes with the blank before them


@settings(deadline=None)
@given(WORDS, st.sampled_from(READERS))
def test_every_token_belongs_to_the_word_it_is_of(words: list[str], read: Any) -> None:
    """As it would if each word were tokenized alone; words without tokens are left out."""
    whole = read(" ".join(words), add_special_tokens=False, return_offsets_mapping=True)
    alone = [read(word, add_special_tokens=False)["input_ids"] for word in words]
    found = by_word(whole["input_ids"], whole["offset_mapping"], words)
    assert found == [(place, ids) for place, ids in enumerate(alone) if ids]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(1, 7))
def test_pieces_have_every_word_once_and_never_too_many_tokens(sizes: list[int], room: int) -> None:
    pieces = cut_between_words([(place, [7] * size) for place, size in enumerate(sizes)], room)
    assert [place for piece in pieces for place, _ in piece] == list(range(len(sizes)))
    assert all(0 < sum(len(tokens) for _, tokens in piece) <= room for piece in pieces)


def test_a_tag_stands_on_the_first_token_of_its_word() -> None:
    row = prepared().evals["dev"][1]
    words, tags = tagged()[1]
    names = TAGS[::-1]
    assert [PIECES[index] for index in row["input_ids"]][:4] == ["[CLS]", words[0], "x", "##a"]
    assert [names[label] for label in row["labels"] if label != -100] == tags
    assert row["labels"][0] == row["labels"][3] == row["labels"][-1] == -100


def test_long_sentences_are_judged_whole() -> None:
    """The score of right tags is 1 however small the pieces are, and an entity that is cut counts once."""
    Path("long.conll").write_text(columns_of([(["a", "xa", *["u"] * 20, "b"], ["O", "B-X", *["I-X"] * 20, "O"])]))
    for length in (4, 7, 64):
        task = from_tag_files(None, {"dev": "long.conll"}, outputs=TAGS)
        encoded, notes = task.tokenize(tokenizer(), length)
        assert max(encoded["dev"]["length"]) <= length and bool(notes) == (length < 26)
        width = max(encoded["dev"]["length"])
        labels = np.asarray([[*row, *[-100] * (width - len(row))] for row in encoded["dev"]["labels"]])
        right = np.eye(5)[labels.clip(0)]
        assert task.compute_metrics(EvalPrediction(right, labels), encoded["dev"])["f1"] == 1
        right[labels == TAGS.index("B-X")] = np.eye(5)[0]  # its first word alone is missed
        found = task.compute_metrics(EvalPrediction(right, labels), encoded["dev"])
        assert found["f1"] == 0 and found["accuracy"] == pytest.approx(22 / 23)


def test_a_word_without_tokens_counts_as_outside() -> None:
    write_lines("odd.jsonl", [{"words": ["xa", "\u200b", "a"], "tags": ["B-X", "I-X", "O"]}])
    found = prepared(dev="odd.jsonl")
    metrics = said_by(found, "dev", oracle(found, "dev"))
    assert metrics["accuracy"] == pytest.approx(2 / 3) and metrics["recall"] == 0


def test_metrics_of_what_is_no_number_or_out_of_order() -> None:
    found = prepared()
    right = oracle(found, "dev")
    assert said_by(found, "dev", right)["f1"] == 1
    assert np.isnan(said_by(found, "dev", right * np.nan)["f1"])
    data = found.evals["dev"].select(range(23, -1, -1))
    labels = np.asarray([[*row, *[-100] * (20 - len(row))] for row in found.evals["dev"]["labels"]])
    with pytest.raises(RuntimeError, match="not in the order"):
        found.trainer_options["compute_metrics"](EvalPrediction(right, labels), data=data)


# -------------------------------------------------------------------------------------------------------------- labels


def test_a_model_that_knows_the_tags_and_more_is_taken_as_it_is() -> None:
    save_model("wide", "TokenClassification", ["B-Z", *TAGS])
    for model, names in (("tagger", TAGS[::-1]), ("wide", ["B-Z", *TAGS])):
        found: Any = prepared(model)
        assert found.able and [found.model.config.id2label[index] for index in range(len(names))] == names


def test_other_tags_are_learned_anew() -> None:
    save_model("other", "TokenClassification", ["A", "B", "C"])
    for model in ("bare", "other"):
        found: Any = prepared(model)
        assert not found.able and sorted(found.model.config.id2label.values()) == sorted(TAGS)
    assert "has to be trained" in found.notes[0]


def test_numbers_stand_for_what_the_model_or_the_user_calls_them() -> None:
    rows = [{"words": words, "tags": [TAGS.index(tag) for tag in tags]} for words, tags in tagged()]
    write_lines("numbers.jsonl", rows)
    save_model("same", "TokenClassification", TAGS)
    files = {"train": "numbers.jsonl", "dev": "numbers.jsonl"}
    found = prepared("same", **files)
    assert found.able and "The data has numbers for labels" in found.notes[0] and found.metric == "f1"
    named = prepared("bare", labels=TAGS, **files)
    assert named.metric == "f1" and not named.able
    with pytest.raises(ValueError, match=r"numbers\.jsonl, line 1: the tags are numbers, and nobody says"):
        prepared("bare", **files)


def test_tags_without_entities_have_accuracy_alone() -> None:
    for name in ("train", "dev"):
        Path(f"{name}.pos").write_text("a NN\nb VB\n\nb VB\na NN\n")
    found = prepared("bare", "train.pos", "dev.pos")
    assert found.metric == "accuracy" and "accuracy counts, and there is no F1" in found.notes[0]
    assert jobs.evaluate(found, quiet=True)["dev"].keys() == {"accuracy"}


def test_a_tag_that_training_does_not_show_is_told() -> None:
    Path("dev.conll").write_text("a _ O\nxa _ B-NEW\n")
    assert "dev.conll, line 2: the tag 'B-NEW' is in no training sentence." in prepared("bare").notes


# ---------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("bare", ("-k", "4", "--method", "dsp")),
        ("tagger", ("-k", "4", "--distil")),
        ("tagger", ("-k", "4", "--method", "michel", "--recover-steps", "2")),
        ("tagger", ("--smaller", "20%", "--no-training")),
        ("tagger", ("--smaller", "20%", "--no-training", "--train", "bare.jsonl")),
        ("tagger", ("-k", "4", "--distil", "--train", "bare.conll")),
        ("tagger", ("-k", "4", "--train", "bare.conll")),
    ],
)
def test_a_tagger_is_pruned_and_evaluated(
    model: str, how: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is saved is what was measured, and `eval` finds the same; a trained model needs no tags to learn from."""
    write_bare()
    assert call(monkeypatch, "prune", model, *DATA, *how, *STEPS, "-o", "out", "--json") == 0
    told = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    metrics = told["metrics"]
    reached = (metrics.get("recovered") or metrics["pruned"])["dev"]
    assert ("unpruned" in metrics) == (model == "tagger") and "masked" in metrics
    assert call(monkeypatch, "eval", "out", "--task", "tags", "--eval", "dev=dev.conll", "--json") == 0
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["dev"]
    assert found == {name: pytest.approx(reached[name], abs=1e-6) for name in ("f1", "precision", "recall", "accuracy")}


def test_a_tagger_learns(place: Path) -> None:
    data = {"train": "train.conll", "eval": {"dev": "dev.conll"}}
    job = Job("bare", 4, method="ste", task="tags", data=data, max_steps=60, batch_size=8, lr=5e-3, max_length=32)
    assert jobs.run(job, place / "few", quiet=True).record["metrics"]["pruned"]["dev"]["f1"] > 0.9


def test_a_preview_of_a_tagger(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "preview", "tagger", "-k", "4", *DATA, "--no-speed", "--json") == 0
    assert '"metric": "f1"' in capsys.readouterr().out


# ----------------------------------------------------------------------------------------------- training without tags


@pytest.mark.parametrize("train", ["bare.conll", "bare.jsonl"])
def test_a_trained_tagger_needs_no_tags_to_learn_from(train: str) -> None:
    write_bare()
    found, usual = prepared(train=train), prepared()
    assert found.able and not found.labelled and "train: there are no labels" in " ".join(found.notes)
    assert "labels" not in found.train.column_names and found.train["input_ids"] == usual.train["input_ids"]
    assert found.evals["dev"]["labels"] == usual.evals["dev"]["labels"]


def test_tags_are_needed_to_evaluate_and_by_a_model_that_has_to_learn_them() -> None:
    write_bare()
    with pytest.raises(DataError, match=r"bare.jsonl, line 1: no column of tags"):
        prepared(dev="bare.jsonl")
    with pytest.raises(DataError, match=r"bare.conll has no labels, and the model has to be trained.*its outputs are"):
        prepared("bare", train="bare.conll")
    save_model("half", "", TAGS)  # knows the names, and has no head
    with pytest.raises(DataError, match=r"bare.conll has no labels, and the model.*a part of it is new"):
        prepared("half", train="bare.conll")
    write_lines("some.jsonl", [{"words": ["a"]}, {"words": ["a"], "tags": ["O"]}])
    with pytest.raises(DataError, match=r"some.jsonl, line 2: there are tags, and the lines before have none"):
        prepared(train="some.jsonl")


# ----------------------------------------------------------------------------------------------------------- bad files


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("x.conll", b"", "x.conll has no sentences; give a file with some."),
        ("x.conll", b"\n-DOCSTART- O\n\n", "x.conll has no sentences"),
        ("x.conll", b"a O\nb\n", "x.conll, line 2: a line must have 2 columns, as line 1 has; got 1"),
        ("x.conll", b"a\n", "x.conll has no labels, and the model has to be trained, which needs them"),
        ("x.conll", b"a\tO\n\tO\n", "x.conll, line 2: a column is empty"),
        ("x.conll", b"a O\ncaf\xe9 O\n", "x.conll, line 2: not UTF-8 (byte 0xe9)"),
        ("x.conll", b"a\x00b O\n", "x.conll, line 1: a NUL"),
        ("x.conllu", b"1 a O\n", "x.conllu is CoNLL-U"),
        ("x.csv", b"a,O\n", "x.csv must be .jsonl, .json, .ndjson, or a text file of columns"),
        ("x.jsonl", b'{"words": ["a", "b"], "tags": ["O"]}', "x.jsonl, line 1: there must be one tag for each word"),
        ("x.jsonl", b'{"words": ["a"]}', "x.jsonl has no labels, and the model has to be trained, which needs them"),
        (
            "x.jsonl",
            b'{"words": ["a"], "tags": ["O"]}\n{"words": ["a"]}',
            "x.jsonl, line 2: no column of tags; the columns are 'words'",
        ),
        ("x.jsonl", b'{"words": "a", "tags": ["O"]}', "x.jsonl, line 1: column 'words' must be a list"),
        ("x.jsonl", b'{"words": ["a", ""], "tags": ["O", "O"]}', "x.jsonl, line 1: a word must be a text"),
        ("x.jsonl", b'{"words": ["a"], "tags": [0.5]}', "x.jsonl, line 1: a tag must be a word or a whole number"),
        ("x.jsonl", b'{"words": ["a"], "tags": ["O"], "tokens": ["b"]}', "the words may be words or tokens"),
        ("x.jsonl", b'{"words": ["\xe2\x80\x8b"], "tags": ["O"]}', "the tokenizer makes no tokens of the sentence"),
        ("x.jsonl", b"[1]\n", "x.jsonl, line 1: a line must be an object with words and tags"),
        ("x.jsonl", b'{"words"', "x.jsonl, line 1: broken JSON"),
        ("x.conll", b"a _ O\nb _ B-Q\n", "x.conll, line 2: the tag 'B-Q' is not one of `--set labels=...`"),
    ],
)
def test_bad_files_end_in_one_sentence(
    file: str, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_bytes(content)
    words = ("--task", "tags", "--train", file, "--eval", "dev.conll", "--set", f"labels={','.join(TAGS)}")
    assert call(monkeypatch, "prune", "bare", "-k", "4", *words, *STEPS, "-o", "x") == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in said and not Path("x").exists()


def test_what_is_no_tagger_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    save_model("reader", "QuestionAnswering")
    kheads.save(kheads.storage.sources.model("reader"), "pruned")
    from transformers import ByT5Tokenizer

    save_model("slow", "TokenClassification", TAGS, vocab_size=300)
    for path in Path("slow").glob("*token*"):
        path.unlink()
    slow: Any = ByT5Tokenizer
    slow(extra_ids=0).save_pretrained("slow")
    for words, message in (
        (("eval", "bare", "--task", "tags", "--eval", "dev.conll"), "bare has no weights for classifier"),
        (("eval", "pruned", "--task", "tags", "--eval", "dev.conll"), "pruned is a BertForQuestionAnswering"),
        (("eval", "slow", "--task", "tags", "--eval", "dev.conll"), "slow has a slow tokenizer, ByT5Tokenizer"),
        (("eval", "tagger", "--task", "tags", "--eval", "dev.conll", "--max-length", "2"), "`--max-length` must be"),
        (("eval", "tagger", "--task", "tags", "--eval", "dev.conll", "--column", "tags=9"), "9 columns or more"),
    ):
        assert call(monkeypatch, *words) == 2
        assert message in capsys.readouterr().err.strip().splitlines()[-1]
