"""A trained model and data with labels: which output stands for which label, and what is said where that is a guess."""

import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer, EvalPrediction

import kheads
from command import WORDS, call
from kheads.lab.jobs import classification, made_nli
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.tasks import DataError, from_files
from kheads.tasks.outputs import DATA, MODEL, USER, classes, score

NLI = ("entailment", "neutral", "contradiction")
NAMELESS = tuple(f"LABEL_{index}" for index in range(3))
DRINKS = ("coffee", "milk", "tea")
PIECES = [*WORDS[:5], ".", *ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase)]
Row = dict[str, Any]


def save(folder: Path, labels: Sequence[str] | int = 3, cls: Any = BertForSequenceClassification) -> None:
    """Saves a tiny model and its tokenizer as plain transformers does, with as many outputs or with these names."""
    names = {"num_labels": labels} if isinstance(labels, int) else {"id2label": dict(enumerate(labels))}
    sizes: Any = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, **names}
    torch.manual_seed(0)
    cls(BertConfig(vocab_size=len(PIECES), **sizes)).save_pretrained(folder)
    BertTokenizer(vocab={word: index for index, word in enumerate(PIECES)}).save_pretrained(folder)


def rows_of(labels: Sequence[Any], column: str = "label") -> list[Row]:
    return [{"text": WORDS[5 + index % 5], column: label} for index, label in enumerate(labels)]


def write(name: str, rows: list[Row]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def rows_without(count: int) -> list[Row]:
    return [{"text": WORDS[5 + index % 5]} for index in range(count)]


def prepared(model: str, train: str, evaluation: str, **data: Any) -> Prepared:
    return classification.prepare(Job(model, data={"train": train, "eval": {"dev": evaluation}, **data}))


def names_of(found: Prepared) -> list[str]:
    config: Any = found.model.config
    return [config.id2label[index] for index in range(config.num_labels)]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with labelled and unlabelled data."""
    monkeypatch.chdir(tmp_path)
    write("dev.jsonl", rows_of(DRINKS * 2))
    write("bare.jsonl", [{"text": word} for word in WORDS[5:]])
    return tmp_path


# What outputs stand for


@given(st.permutations(NLI), st.sampled_from([str.lower, str.upper, str.title]))
def test_the_same_words_in_any_case_are_the_models_in_its_order(outputs: list[str], written: Any) -> None:
    found = classes([written(word) for word in NLI], outputs)
    assert (found.labels, found.able, found.whose, found.note) == (tuple(outputs), True, MODEL, "")
    assert [found.place(written(word)) for word in outputs] == [0, 1, 2]


@given(st.permutations(NLI), st.sampled_from([NAMELESS, ("0", "1", "2")]))
def test_outputs_without_names_take_the_words_in_their_usual_order(words: list[str], outputs: tuple[str, ...]) -> None:
    found = classes(words, outputs)
    assert (found.labels, found.able, found.whose) == (NLI, True, DATA)
    pairs = ", ".join(f"{name} as '{word}'" for name, word in zip(outputs, NLI, strict=True))
    assert f"kheads takes {pairs}; if that is wrong, name a label for each output" in found.note


@pytest.mark.parametrize("outputs", [DRINKS, NAMELESS])
def test_numbers_from_0_stand_for_outputs_in_their_order(outputs: tuple[str, ...]) -> None:
    """Which is said where the outputs have names of their own."""
    found = classes(["2", "0", "1"], outputs)
    assert found.able and found.labels == outputs and [found.place(str(index)) for index in range(3)] == [0, 1, 2]
    assert ("kheads takes 0 as 'coffee', 1 as 'milk', 2 as 'tea'" in found.note) == (outputs == DRINKS)


@pytest.mark.parametrize(
    ("words", "outputs"),
    [
        (NLI, DRINKS),
        (NLI, NAMELESS[:2]),
        (NLI[:2], NLI),
        (NLI[:2], NAMELESS),
        (("1", "2", "3"), DRINKS),
        (("0", "1"), ("1", "2")),
        (DRINKS, ("1", "2", "3")),
        (DRINKS, ("LABEL_1", "LABEL_0", "LABEL_2")),
        (("yes", "no"), ("LABEL_0",)),
    ],
    ids=str,
)
def test_other_labels_have_to_be_learned(words: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    found = classes(words, outputs)
    assert not found.able and found.whose == DATA and sorted(found.labels) == sorted(words)
    assert f"its outputs are {outputs[0]!r}" in found.note and f"and the data has {found.labels[0]!r}" in found.note
    assert ("--set labels=..." in found.note) == (len(words) <= len(outputs))


def test_the_user_has_the_last_word() -> None:
    for outputs in (DRINKS, NAMELESS, NLI):
        found = classes(NLI, outputs, labels=NLI[::-1])
        assert (found.labels, found.able, found.whose, found.note) == (NLI[::-1], True, USER, "")
    assert not classes(NLI, NAMELESS[:2], labels=NLI).able
    with pytest.raises(ValueError, match="`labels` must be two or more different words; got 'a', 'a'"):
        classes(NLI, NAMELESS, labels=("a", "a"))


@given(st.lists(st.sampled_from(NLI), unique=True, min_size=1))
def test_evaluation_need_not_show_every_label_of_the_model(words: list[str]) -> None:
    found = classes(words, NLI[::-1], every=False)
    assert found.able and found.labels == NLI[::-1]


def test_one_output_is_a_score_and_several_are_none() -> None:
    assert score(["LABEL_0"]).able and not score(["LABEL_0"]).note
    assert not score(NLI).able and "and the data has scores" in score(NLI).note


def test_many_labels_are_said_in_short() -> None:
    words = [f"w{index:02}" for index in range(60)]
    assert "LABEL_7 as 'w07', and 52 more in that order;" in classes(words, [f"LABEL_{i}" for i in range(60)]).note


# A model and data


@pytest.mark.parametrize(
    ("outputs", "data", "able", "names"),
    [
        (("TEA", "MILK", "COFFEE"), DRINKS, True, ["TEA", "MILK", "COFFEE"]),
        (3, DRINKS, True, ["coffee", "milk", "tea"]),
        (("tea", "milk", "coffee"), (0, 1, 2), True, ["tea", "milk", "coffee"]),
        (("0", "1", "2"), DRINKS, True, ["coffee", "milk", "tea"]),
        (NLI, DRINKS, False, ["coffee", "milk", "tea"]),
        (2, DRINKS, False, ["coffee", "milk", "tea"]),
        (4, DRINKS, False, ["coffee", "milk", "tea"]),
    ],
    ids=str,
)
def test_a_model_is_able_if_its_outputs_are_the_labels(outputs: Any, data: Any, able: bool, names: list[str]) -> None:
    """Its weights stay as they are then, and each row has the number of its label's output."""
    save(Path("model"), outputs)
    write("data.jsonl", rows_of(data * 2))
    found = prepared("model", "data.jsonl", "data.jsonl")
    assert found.able == able and found.labelled and names_of(found) == names
    words = [str(word).lower() for word in data * 2]
    known = [name.lower() for name in names] if isinstance(data[0], str) else ["0", "1", "2"]
    assert found.train["labels"][:] == [known.index(word) for word in words]
    assert any("The model has to be trained" in note for note in found.notes) != able
    if able:
        whole: Any = BertForSequenceClassification.from_pretrained("model")
        ours: Any = found.model
        assert torch.equal(ours.classifier.weight, whole.classifier.weight)


def test_a_model_without_a_head_is_not_able_and_nothing_is_said_of_its_outputs() -> None:
    """Its config claims two labels, as every config does."""
    save(Path("bare"), 2, BertModel)
    write("two.jsonl", rows_of(DRINKS[:2] * 2))
    found = prepared("bare", "two.jsonl", "two.jsonl")
    assert not found.able and found.notes == ()


def test_a_pruned_model_gets_the_names_of_what_it_does() -> None:
    """Its own names would be wrong once it is trained for other labels."""
    save(Path("plain"), NLI)
    whole: Any = BertForSequenceClassification.from_pretrained("plain")
    kheads.save(whole, "pruned")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (Path("pruned") / name).write_bytes((Path("plain") / name).read_bytes())
    found = prepared("pruned", "dev.jsonl", "dev.jsonl")
    assert not found.able and names_of(found) == list(DRINKS)


@pytest.mark.parametrize("order", list(itertools.permutations(DRINKS))[:3])
def test_the_order_can_be_said(order: tuple[str, ...]) -> None:
    save(Path("model"), NLI)
    found = prepared("model", "dev.jsonl", "dev.jsonl", labels=list(order))
    assert found.able and found.notes == () and names_of(found) == list(order)
    assert found.evals["dev"]["labels"][:3] == [order.index(word) for word in DRINKS]


@pytest.mark.parametrize(("count", "able"), [(1, True), (3, False)])
def test_scores_need_one_output(count: int, able: bool) -> None:
    save(Path("model"), count)
    write("scores.jsonl", rows_of([0.5, 1, 3.25], "score"))
    found = prepared("model", "scores.jsonl", "scores.jsonl")
    assert found.able == able and found.metric == "pearson" and found.model.config.num_labels == 1


@pytest.mark.parametrize(
    ("outputs", "able", "names"),
    [(NLI[::-1], True, NLI[::-1]), (3, True, NLI), (DRINKS, False, NLI), (2, False, NLI)],
    ids=str,
)
def test_the_embedded_task_keeps_a_models_order_too(outputs: Any, able: bool, names: tuple[str, ...]) -> None:
    save(Path("model"), outputs)
    job = Job("model", task="made-nli", data={"train_rows": 9, "eval_rows": 9})
    found = made_nli.prepare(job)
    assert found.able == able and names_of(found) == list(names)
    if able:
        assert made_nli.prepare_evaluation(job).able
    else:
        with pytest.raises(ValueError, match="The model has to be trained for this task"):
            made_nli.prepare_evaluation(job)


# Training data without labels


@pytest.mark.parametrize("name", ["bare.jsonl", "bare.csv", "bare.txt", "bare.txt.gz"])
@pytest.mark.parametrize("outputs", [3, DRINKS[::-1]], ids=str)
def test_a_trained_model_needs_no_labels_to_learn_from(name: str, outputs: Any) -> None:
    save(Path("model"), outputs)
    lines = "\n".join(["text", *WORDS[5:]] if name.endswith("csv") else ["", *WORDS[5:]]) + "\n"
    if name != "bare.jsonl":
        Path(name).write_bytes(gzip.compress(lines.encode()) if name.endswith("gz") else lines.encode())
    found = prepared("model", name, "dev.jsonl")
    assert found.able and not found.labelled and "train: there are no labels" in " ".join(found.notes)
    assert "labels" not in found.train.column_names and len(found.train) == len(WORDS[5:])
    assert "labels" in found.evals["dev"].column_names


def test_a_column_that_the_user_names_may_be_in_the_evaluation_alone() -> None:
    save(Path("model"), DRINKS)
    write("topics.jsonl", rows_of(DRINKS, "topic"))
    assert not prepared("model", "bare.jsonl", "topics.jsonl", columns={"label": "topic"}).labelled


@pytest.mark.parametrize(
    ("outputs", "cls", "why"),
    [
        (3, BertModel, "a part of it is new"),
        (NLI, BertForSequenceClassification, "its outputs are 'entailment', 'neutral', 'contradiction', and the data"),
        (2, BertForSequenceClassification, "its outputs are 'LABEL_0', 'LABEL_1', and the data has 'coffee', 'milk'"),
    ],
    ids=str,
)
def test_a_model_that_has_to_be_trained_needs_labels(outputs: Any, cls: Any, why: str) -> None:
    save(Path("model"), outputs, cls)
    with pytest.raises(DataError) as caught:
        prepared("model", "bare.jsonl", "dev.jsonl")
    said = str(caught.value)
    assert said.startswith("bare.jsonl has no labels, and the model has to be trained, which needs them: ")
    assert why in said and said.endswith(".") and ". " not in said


def test_evaluation_needs_the_labels_that_training_has_and_training_without_a_model_needs_them() -> None:
    save(Path("model"), DRINKS)
    for call_it in (
        lambda: prepared("model", "dev.jsonl", "bare.jsonl"),
        lambda: from_files("bare.jsonl", "dev.jsonl", labels=DRINKS),
    ):
        with pytest.raises(DataError, match=r"bare\.jsonl, line 1: no label column"):
            call_it()
    with pytest.raises(ValueError, match="`evals` is missing: data with labels needs a set to evaluate on"):
        classification.prepare(Job("model", data={"train": "dev.jsonl"}))
    with pytest.raises(DataError, match="must have the extension"):
        from_files("bare.txt", "dev.jsonl")


def test_without_any_label_models_are_compared_with_what_the_whole_one_says() -> None:
    save(Path("model"), DRINKS)
    found = prepared("model", "bare.jsonl", "bare.jsonl")
    assert found.able and not found.labelled and found.metric == "agreement"
    assert "dev: there are no labels; each model is compared with what the whole one says." in found.notes
    logits = torch.cat([found.model(input_ids=torch.tensor([row["input_ids"]])).logits for row in found.evals["dev"]])
    assert found.evals["dev"]["labels"] == logits.argmax(-1).tolist()
    measured = found.trainer_options["compute_metrics"]
    half = logits.clone()
    half[0, 0] = 9 * (half[0].argmax() != 0) - 9 * (half[0].argmax() == 0)
    truth = np.asarray(found.evals["dev"]["labels"])
    assert measured(EvalPrediction(logits.detach().numpy(), truth)) == {"agreement": 1.0}
    assert measured(EvalPrediction(half.detach().numpy(), truth)) == {"agreement": 1 - 1 / len(truth)}


def test_without_any_label_and_evaluation_file_some_training_rows_are_held_out() -> None:
    save(Path("model"), DRINKS)
    write("many.jsonl", [{"text": " ".join([WORDS[5 + index % 5]] * (1 + index // 5))} for index in range(40)])
    found = classification.prepare(Job("model", data={"train": "many.jsonl"}))
    assert len(found.train) == 36 and len(found.evals["held-out"]) == 4 and list(found.evals) == ["held-out"]
    rows = {tuple(ids) for data in (found.train, found.evals["held-out"]) for ids in data["input_ids"]}
    assert len(rows) == 40 and "train: 4 rows are held out for the evaluation, drawn with seed 0." in found.notes
    write("few.jsonl", rows_without(4))
    with pytest.raises(DataError, match=r"few\.jsonl has 4 lines, too few to hold some out"):
        classification.prepare(Job("model", data={"train": "few.jsonl"}))


def test_labels_in_one_evaluation_set_alone_or_a_metric_of_labels_are_refused() -> None:
    save(Path("model"), DRINKS)
    with pytest.raises(DataError, match=r"dev\.jsonl has labels and bare\.jsonl has none; label both or neither"):
        from_files("bare.jsonl", {"a": "bare.jsonl", "b": "dev.jsonl"}, outputs=DRINKS)
    with pytest.raises(ValueError, match="`metric` 'f1' needs labels, and the data has none"):
        from_files("bare.jsonl", "bare.jsonl", metric="f1", outputs=DRINKS)


@pytest.mark.parametrize("evals", [{}, {"a": "bare.jsonl"}], ids=["held out", "a file"])
def test_a_column_of_labels_that_is_named_has_to_be_there(evals: dict[str, str]) -> None:
    """A slip in its name must not turn labels off."""
    save(Path("model"), DRINKS)
    with pytest.raises(DataError, match=r"bare\.jsonl, line 1: no column 'drink' for `label`"):
        from_files("bare.jsonl", evals, {"label": "drink"}, outputs=DRINKS)


@pytest.mark.parametrize("words", [["0.5", "1", "2.25"], ["1", "2", "3"]])
def test_numbers_for_a_trained_model_with_one_output_are_scores(words: list[str]) -> None:
    save(Path("model"), 1)
    write("scores.jsonl", rows_of(words))
    found = prepared("model", "scores.jsonl", "scores.jsonl")
    assert found.able and found.metric == "pearson" and found.evals["dev"]["labels"] == [float(word) for word in words]
    bare = prepared("model", "bare.jsonl", "bare.jsonl")
    assert bare.metric == "pearson" and bare.evals["dev"].features["labels"].dtype == "float32"
    with pytest.raises(DataError, match=r"label 0\.5 is not a whole number; correct it, or pass metric='pearson'"):
        save(Path("two"), 2)
        prepared("two", write("halves.jsonl", rows_of(["0.5", "1"])), "halves.jsonl")


def test_labels_that_begin_late_are_not_overlooked() -> None:
    save(Path("model"), DRINKS)
    write("mixed.jsonl", [{"text": "a"}, *rows_of(DRINKS)])
    with pytest.raises(DataError, match=r"mixed\.jsonl, line 2: there is a label, and the first row has none"):
        prepared("model", "mixed.jsonl", "dev.jsonl")


# The command


def test_eval_takes_a_model_of_plain_transformers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a note on standard error where its outputs have no names, and none where the user gives them."""
    save(Path("model"))
    reached = {}
    for words in ((), ("--set", "labels=coffee,milk,tea"), ("--set", "labels=tea,milk,coffee")):
        assert call(monkeypatch, "eval", "model", "--eval", "dev.jsonl", *words, "--json") == 0
        told = capsys.readouterr()
        reached[words] = json.loads(told.out.strip().splitlines()[-1])["eval"]["accuracy"]
        assert ("kheads: The model's outputs have no names: kheads takes LABEL_0 as 'coffee'" in told.err) == (
            not words
        )
    assert reached[()] == reached["--set", "labels=coffee,milk,tea"]


@pytest.mark.parametrize(
    ("outputs", "words", "message"),
    [
        (NLI, (), "dev.jsonl, line 1: label 'coffee' is not one of the model's labels: 'entailment', 'neutral'"),
        (4, (), "dev.jsonl, line 1: label 'coffee' is not one of the model's labels: 'LABEL_0', 'LABEL_1'"),
        (3, ("--set", "labels=milk,tea"), "label 'coffee' is not one of `--set labels=...`: 'milk', 'tea'"),
        (2, ("--set", "labels=coffee,milk,tea"), "The model has to be trained for this task: its outputs are"),
        (3, ("--set", "labels=tea"), "`--set labels=...` must be two or more different words; got 'tea'"),
        (NLI, ("--set", "labels=[1]"), "`--set labels` must be a list of texts"),
    ],
    ids=str,
)
def test_what_cannot_be_matched_is_refused(
    outputs: Any,
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save(Path("model"), outputs)
    assert call(monkeypatch, "eval", "model", "--eval", "dev.jsonl", *words) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert message in told[-1] and sum(line.startswith("kheads: ") for line in told) == 1
