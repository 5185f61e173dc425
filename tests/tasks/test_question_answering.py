"""Answers to questions: windows, spans put together from them, SQuAD's measure, runs, and sentences on bad files."""

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
from kheads.lab.jobs import question_answering as reading_job
from kheads.lab.jobs import running as jobs
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.tasks.answers import exact_match, f1
from kheads.tasks.bpe import train_bpe
from kheads.tasks.files import DataError
from kheads.tasks.question_answering import QuestionTask, Windows, answers, best_span, from_question_files
from kheads.tasks.question_files import Question, read_questions
from word_tasks import TAGS, furnish, questions, save_model, squad, tokenizer, write_lines

DATA = ("--task", "qa", "--train", "train.json", "--eval", "dev=dev.json")
STEPS = ("--max-steps", "2", "--batch-size", "8", "--max-length", "16")
READ = tokenizer()
BYTES = train_bpe(["a bc def"], 280)  # of no special token before a text
Prediction: Any = EvalPrediction  # its types know of one array alone


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    furnish(tmp_path)
    save_model(tmp_path / "reader", "QuestionAnswering")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(model: str = "reader", dev: str = "dev.json", max_length: int = 16, **data: Any) -> Prepared:
    files = {"train": "train.json", "eval": {"dev": dev}, **data}
    return reading_job.prepare(Job(model, task="qa", data=files, max_length=max_length))


def write_bare() -> None:
    """The training questions without their answers."""
    rows = [{name: row[name] for name in ("context", "question")} for row in questions()]
    write_lines("bare.jsonl", rows)
    paragraphs = [{"context": row["context"], "qas": [{"question": row["question"]}]} for row in rows]
    Path("bare.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


def judged(task: QuestionTask, data: Any, right: bool = True, null: float = 0.0) -> dict[str, float]:
    """The metrics of scores that are 1 at the labels of each window, and `null` where they say that there is none."""
    width = max(data["length"]) + 2
    starts, ends = np.full((2, len(data), width), -100.0)
    for row, (first, last, empty) in enumerate(
        zip(data["start_positions"], data["end_positions"], data["null"], strict=True)
    ):
        length = data["length"][row]
        starts[row, :length] = ends[row, :length] = -5
        starts[row, empty] = ends[row, empty] = null
        if right and first != empty:
            starts[row, first] = ends[row, last] = 1
    labels = (np.asarray(data["start_positions"]), np.asarray(data["end_positions"]))
    return task.compute_metrics(Prediction((starts, ends), labels), data)


# ------------------------------------------------------------------------------------------------------------- reading


def test_all_ways_to_write_questions_say_the_same() -> None:
    rows = questions()
    write_lines("rows.jsonl", rows)
    write_lines("rows.json", rows)
    write_lines("one.json", rows[:1])
    Path("squad.json.gz").write_bytes(gzip.compress(json.dumps(squad(rows)).encode()))
    single = [{**row, "answer": row["answers"]["text"][0]} for row in rows]
    single = [{**row, "answer_start": row["answers"]["answer_start"][0]} for row in single]
    write_lines("single.jsonl", [{key: row[key] for key in row if key != "answers"} for row in single])

    def content(path: str) -> list[Any]:
        return [(one.question, one.context, one.answers, one.starts) for one in read_questions(path)]

    wanted = content("dev.json")
    assert len(wanted) == 12 and content("one.json") == wanted[:1]
    for path in ("rows.jsonl", "rows.json", "squad.json.gz", "single.jsonl"):
        assert content(path) == wanted


# ------------------------------------------------------------------------------------------------------------- windows


CONTEXT = st.lists(st.sampled_from(["a", "bc", "def", "\u00e9", "."]), min_size=1, max_size=30).map(" ".join)


@settings(deadline=None)
@given(CONTEXT, st.integers(8, 40), st.integers(0, 12), st.data())
def test_windows_show_all_of_a_context_and_say_where_the_answer_is(
    context: str, length: int, stride: int, data: st.DataObject
) -> None:
    """No window is too long, every token is in one, and a label that is not [CLS] covers the answer."""
    begin = data.draw(st.integers(0, len(context) - 1).filter(lambda place: not context[place].isspace()))
    end = data.draw(st.integers(begin + 1, len(context)))
    one = Question("x", "a", context, (context[begin:end],), (begin,))
    task = QuestionTask(None, {"dev": [one]}, totals={"dev": 1})
    read = data.draw(st.sampled_from([READ, BYTES]))
    found = task.tokenize(Windows(read, length, stride))["dev"]
    assert max(found["length"]) <= length
    seen = {(b, e) for row in found for b, e in zip(row["begins"], row["ends"], strict=True) if e > b}
    whole = read(context, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    assert seen == set(whole)
    for row in found:
        first, last = row["start_positions"], row["end_positions"]
        if first != row["null"]:
            assert row["begins"][first] <= begin and row["ends"][last] >= end - len(one.answers[0]) + len(
                one.answers[0].rstrip()
            )
    if len(found) == 1:
        assert found[0]["start_positions"] != found[0]["null"]


def test_windows_overlap_by_the_stride() -> None:
    context = " ".join("abcdefgh" * 3)
    task = QuestionTask(None, {"dev": [Question("x", "a", context, (), ())]}, totals={"dev": 1})
    for stride, step in ((0, 6), (2, 4), (99, 3)):  # at most half of what the question leaves
        found = task.tokenize(Windows(READ, 10, stride))["dev"]
        firsts = [min(begin for begin in row["begins"] if begin >= 0) for row in found]
        assert np.diff(firsts).tolist()[:-1] == [2 * step] * (len(firsts) - 2)


def test_a_question_that_fills_the_window_is_refused() -> None:
    write_lines("long.jsonl", [{**questions()[0], "question": "wo " * 10}])
    with pytest.raises(ValueError, match=r"long\.jsonl, line 1: the question has 20 tokens and leaves none of 16"):
        prepared(dev="long.jsonl")


# ------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("guess", "right", "exact", "overlap"),
    [
        ("The Cat.", ("cat",), 1, 1),
        ("an old cat", ("old dog", "cat"), 0, 2 / 3),
        ("", (), 1, 1),
        ("cat", (), 0, 0),
        ("", ("cat",), 0, 0),
        ("the", ("a",), 1, 1),
        ("cat cat dog", ("cat",), 0, 0.5),
    ],
)
def test_answers_are_compared_as_in_squad(guess: str, right: tuple[str, ...], exact: float, overlap: float) -> None:
    assert exact_match(guess, right) == exact and f1(guess, right) == pytest.approx(overlap)


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_the_best_span_is_the_best_of_all(tokens: list[tuple[int, int, bool]], longest: int) -> None:
    start, end, inside = (np.asarray(side) for side in zip(*tokens, strict=True))
    spans = [
        (float(start[first] + end[last]))
        for first in np.flatnonzero(inside)
        for last in np.flatnonzero(inside)
        if first <= last < first + longest
    ]
    score, first, last = best_span(np.append(start, 99), np.append(end, 99), inside, longest)
    assert score == max(spans, default=-np.inf)
    if spans:
        assert inside[first] and inside[last] and first <= last < first + longest


@pytest.mark.parametrize("length", [12, 16, 40])
def test_the_answer_is_found_whatever_window_it_is_in(length: int) -> None:
    task = from_question_files(None, {"dev": "dev.json"})
    data = task.tokenize(Windows(READ, length, 4))["dev"]
    assert (len(data) > 12) == (length < 40)
    assert judged(task, data) == {"f1": 1, "exact_match": 1}
    assert judged(task, data, right=False)["exact_match"] == 0


def test_no_answer_counts_only_where_some_questions_have_none() -> None:
    rows = [*questions(), {**questions()[0], "answers": {"text": [], "answer_start": []}}]
    write_lines("some.jsonl", rows)
    task = from_question_files(None, {"all": "dev.json", "some": "some.jsonl"})
    sets = task.tokenize(Windows(READ, 40, 4))
    assert judged(task, sets["all"], null=9) == {"f1": 1, "exact_match": 1}  # [CLS] is no answer here
    assert judged(task, sets["some"], null=9)["exact_match"] == pytest.approx(1 / 13)
    assert judged(task, sets["some"], null=0)["exact_match"] == 1


def test_no_answer_has_to_be_better_in_every_window() -> None:
    """A window without the answer is sure that there is none; that says nothing of the others."""
    asked = [Question("x", "q", "a b", ("b",), (2,)), Question("x", "q", "a b", (), ())]
    row = {"begins": [-1, 0, 2], "ends": [-1, 1, 3], "null": 0}
    data = {name: [row[name]] * 3 for name in row} | {"example": [0, 0, 1]}
    scores = np.asarray([[9.0, 0, 0], [1, 0, 2], [9, 0, 0]])
    assert answers(scores, scores, data, asked, 30) == {0: "b", 1: ""}


def test_long_answers_are_not_given() -> None:
    task = from_question_files(None, {"dev": "dev.json"}, max_answer=1)
    assert judged(task, task.tokenize(Windows(READ, 40, 4))["dev"])["exact_match"] == 0


def test_metrics_of_what_is_no_number_or_out_of_order() -> None:
    task = from_question_files(None, {"dev": "dev.json"})
    data = task.tokenize(Windows(READ, 40, 4))["dev"]
    labels = (np.asarray(data["start_positions"]), np.asarray(data["end_positions"]))
    nothing = np.full((2, 12, 40), np.nan)
    assert np.isnan(task.compute_metrics(Prediction(tuple(nothing), labels), data)["f1"])
    with pytest.raises(RuntimeError, match="not in the order"):
        task.compute_metrics(Prediction(tuple(nothing), (labels[0][::-1], labels[1])), data)


# ---------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("bare", ("-k", "4", "--method", "dsp")),
        ("reader", ("-k", "4", "--distil")),
        ("reader", ("-k", "4", "--method", "michel", "--recover-steps", "2")),
        ("reader", ("--smaller", "20%", "--no-training")),
        ("reader", ("--smaller", "20%", "--no-training", "--train", "bare.jsonl")),
        ("reader", ("-k", "4", "--distil", "--train", "bare.json")),
        ("reader", ("-k", "4", "--train", "bare.json")),
    ],
)
def test_a_reader_is_pruned_and_evaluated(
    model: str, how: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is saved is what was measured, and `eval` finds the same; a trained model needs no answers to learn from."""
    write_bare()
    assert call(monkeypatch, "prune", model, *DATA, *how, *STEPS, "-o", "out", "--json") == 0
    metrics = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["metrics"]
    reached = (metrics.get("recovered") or metrics["pruned"])["dev"]
    assert ("unpruned" in metrics) == (model == "reader") and "masked" in metrics
    assert call(monkeypatch, "eval", "out", "--task", "qa", "--eval", "dev=dev.json", *STEPS[-2:], "--json") == 0
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["dev"]
    assert found == {name: pytest.approx(reached[name], abs=1e-6) for name in ("f1", "exact_match")}


def test_a_reader_learns(place: Path) -> None:
    """Also from a model that was made for labels, of which there are five, and evaluated on the way."""
    save_model("tagger", "TokenClassification", TAGS)
    data = {"train": "train.json", "eval": {"dev": "dev.json", "again": "train.json"}}
    job = Job("tagger", 4, method="ste", task="qa", data=data, max_steps=60, batch_size=8, lr=5e-3, max_length=24)
    record = jobs.run(Job(**{**job.to_dict(), "eval_steps": 30}), place / "few", quiet=True).record
    assert record["metrics"]["pruned"]["dev"]["f1"] > 0.9
    assert any("eval_again_f1" in entry for entry in record["history"]["gates"])


def test_a_preview_of_a_reader(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("preview", "reader", "-k", "4", *DATA, "--max-length", "16", "--no-speed", "--json")
    assert call(monkeypatch, *words) == 0
    assert '"metric": "f1"' in capsys.readouterr().out


# -------------------------------------------------------------------------------------------- training without answers


@pytest.mark.parametrize("train", ["bare.json", "bare.jsonl"])
def test_a_trained_reader_needs_no_answers_to_learn_from(train: str) -> None:
    write_bare()
    found, usual = prepared(train=train), prepared()
    assert found.able and not found.labelled and "train: there are no labels" in " ".join(found.notes)
    assert "have no answer" not in " ".join(found.notes)
    assert "start_positions" not in found.train.column_names and found.train["input_ids"] == usual.train["input_ids"]
    assert found.evals["dev"]["start_positions"] == usual.evals["dev"]["start_positions"]


def test_answers_are_needed_to_evaluate_and_by_a_model_that_has_to_learn() -> None:
    write_bare()
    with pytest.raises(DataError, match=r"bare.jsonl, line 1: no `answers`"):
        prepared(dev="bare.jsonl")
    said = "bare.json has no labels, and the model has to be trained.*a part of it is new; add `answers`, or give"
    with pytest.raises(DataError, match=said):
        prepared("bare", train="bare.json")
    write_lines("some.jsonl", [GOOD, {"context": "a", "question": "b"}])
    with pytest.raises(DataError, match=r"some.jsonl, line 2: no `answers`; give a list"):
        prepared(train="some.jsonl")
    write_lines("none.jsonl", [{"context": "a b", "question": "c", "is_impossible": True}] * 2)
    assert prepared(train="none.jsonl").labelled


# ----------------------------------------------------------------------------------------------------------- bad files


GOOD: dict[str, Any] = {"context": "a b", "question": "c", "answers": [{"text": "b", "answer_start": 2}]}


def lines(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("x.json", b"", "x.json is empty; give a file with questions."),
        ("x.jsonl", b"\n", "x.jsonl has no questions"),
        ("x.json", b'{"data": []}', "x.json has no questions"),
        ("x.json", b'{"rows": []}', "x.json is not as SQuAD's files are"),
        ("x.json", b"[1, 2]", "x.json is not as SQuAD's files are"),
        ("x.json", b'{"data": [', "x.json, line 1: broken JSON"),
        ("x.json", b'{"data": [1]}', "x.json, article 1: it must be an object; got 1."),
        ("x.json", b'{"data": [{}]}', "x.json, article 1: no `paragraphs`; it must be a list."),
        ("x.json", b'{"data": [{"paragraphs": [{"context": "a"}]}]}', "x.json, article 1, paragraph 1: no `qas`"),
        (
            "x.json",
            b'{"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b"}, '
            b'{"question": "b", "answers": []}]}]}]}',
            "x.json, article 1, paragraph 1, question 1: no `answers`",
        ),
        ("x.json", b"\xff\xfe", "x.json, line 1: not UTF-8 (byte 0xff)"),
        ("x.json.gz", b"{}", "x.json.gz: not a whole gzip file"),
        ("x.txt", b"a", "x.txt must have the extension .json, .jsonl, .ndjson"),
        ("x.jsonl", lines(context=3), "x.jsonl, line 1: a `context` that is 3; give a text that is not empty."),
        ("x.jsonl", lines(question=" "), "x.jsonl, line 1: a `question` that is ' '"),
        ("x.jsonl", lines(answers="b"), "x.jsonl, line 1: `answers` that are 'b'"),
        ("x.jsonl", lines(answers=[{"text": "b", "answer_start": 0}]), "line 1: at 0 the context has 'a', not 'b'"),
        ("x.jsonl", lines(answers=[{"text": "b", "answer_start": 9}]), "line 1: the answer 'b' at 9 is outside"),
        ("x.jsonl", lines(answers=[{"text": "b", "answer_start": -1}]), "line 1: the answer 'b' at -1 is outside"),
        (
            "x.jsonl",
            lines(answers=[{"text": "b"}]),
            "`answer_start` must be the place of its first character; got None",
        ),
        ("x.jsonl", lines(answers=[{"text": "", "answer_start": 0}]), "the text of an answer must not be empty"),
        ("x.jsonl", lines(answers={"text": ["b"], "answer_start": []}), "1 texts of answers have 0 starts"),
        ("x.jsonl", lines(is_impossible=True), "`is_impossible` says that it has none"),
        ("x.jsonl", b"7\n", "x.jsonl, line 1: a line must be an object; got 7."),
    ],
)
def test_bad_files_end_in_one_sentence(
    file: str, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_bytes(content)
    words = ("--task", "qa", "--train", file, "--eval", "dev.json")
    assert call(monkeypatch, "prune", "reader", "-k", "4", *words, *STEPS, "-o", "x") == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in said and not Path("x").exists()


def test_what_is_no_reader_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    save_model("tagger", "TokenClassification", TAGS)
    kheads.save(kheads.storage.sources.model("tagger"), "pruned")
    evaluate = ("--task", "qa", "--eval", "dev.json")
    write_lines("l.jsonl", [{**GOOD, "context": "a b " * 40}])
    for words, message in (
        (("eval", "bare", *evaluate), "bare has no weights for qa_outputs"),
        (("eval", "pruned", *evaluate), "pruned is a BertForTokenClassification, which is not a model for Question"),
        (("eval", "reader", *evaluate, "--max-length", "3"), "`--max-length` must be"),
        (
            ("eval", "reader", *evaluate, "--eval", "long=l.jsonl", "--max-length", "90"),
            "must be at most 64, the model's",
        ),
        (("eval", "reader", *evaluate, "--set", "stride=-1"), "stride"),
        (("prune", "reader", "-k", "4", "-o", "x", *evaluate), "Training data is missing"),
    ):
        assert call(monkeypatch, *words) == 2, words
        assert message in capsys.readouterr().err.strip().splitlines()[-1]
