"""An ONNX folder: onnxruntime alone gives what the model gives, whatever was emptied."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from transformers import PreTrainedModel

import kheads
from command import call
from families import FAMILIES, VOCAB, inputs, logits, tiny
from kheads import ExportError, Kept, discover, remove
from kheads.cli.wording import in_words_of_the_command_line
from kheads.storage import sources
from kheads.storage.export import exporting
from kheads.storage.export.onnx import comparing, int8, writing
from kheads.storage.export.onnx.comparing import Found
from kheads.storage.export.onnx.graph import Case
from kheads.storage.export.onnx.kinds import kind_of
from sentence_folders import CHAIN, sentence_folder
from zoo import ZOO
from zoo.tiny import randomise

Fresh = Callable[[str], Any]
ROOT = Path(__file__).parents[2]
LIBRARY: Any = transformers


def emptied(model: Any) -> Any:
    """Half of the heads and neurons of most sites; an attention and a feed-forward keep none."""
    sites = discover(model, parts="all")
    halves = {site.name: range(max(1, site.count // 2)) for site in sites[:1] + sites[3:]}
    return remove(model, Kept.from_dict(halves))


def tokenizer(folder: Path) -> Any:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(VOCAB - 5))]
    (folder / "vocab.txt").write_text("\n".join(words))
    return LIBRARY.BertTokenizer(str(folder / "vocab.txt"))


def exported(model: PreTrainedModel, place: Path, **options: Any) -> tuple[Path, list[str]]:
    said: list[str] = []
    kheads.save(emptied(model), place / "model", tokenizer(place))
    out = kheads.export(place / "model", place / "onnx", to="onnx", say=said.append, tell=said.append, **options)
    return out, said


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    return exported(tiny("bert"), tmp_path_factory.mktemp("classifier"), int8=True)


def test_a_file_gives_what_the_model_gives(classifier: tuple[Path, list[str]]) -> None:
    """At sizes that nobody has tried yet, padded on either side."""
    folder, said = classifier
    model = kheads.load(folder.parent / "model").eval()
    assert 0 in {site.count for site in discover(model)} and 0 in {s.count for s in discover(model, parts="ffn")}
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    for batch, length in ((2, 9), (7, 23)):
        given = {**inputs("bert", batch, length), "token_type_ids": torch.zeros((batch, length), dtype=torch.long)}
        with torch.no_grad():
            expected = model(**given).logits.numpy()
        (found,) = session.run(["logits"], {name: value.numpy() for name, value in given.items()})
        assert np.allclose(found, expected, atol=1e-5)
    assert re.search(r"outputs at 1 x 4 and 3 x 28 with padding differ by \S+e-0[5-9] of their largest value", said[0])


def test_the_folder_is_whole_and_says_nothing_of_the_machine(classifier: tuple[Path, list[str]]) -> None:
    folder, _ = classifier
    files = {path.name for path in folder.iterdir()}
    assert files >= {"model.onnx", "model_int8.onnx", "config.json", "tokenizer.json", "README.md", "kheads.json"}
    assert not [name for name in files if name.endswith(".safetensors")]
    for name in ("model.onnx", "model_int8.onnx", "config.json", "README.md"):
        content = (folder / name).read_bytes()
        assert b".py" not in content and str(folder.parent).encode() not in content, name
    assert '"kheads"' not in (folder / "config.json").read_text()
    assert "`model.onnx`, `model_int8.onnx`" in (folder / "README.md").read_text()


def run_card(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the code in the folder's README, there."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    exec(compile(code, "README.md", "exec"), {})


def test_the_code_of_the_card_runs(
    classifier: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_card(classifier[0], monkeypatch)
    assert capsys.readouterr().out.startswith("[[")


def test_int8_is_reported_and_not_exact(classifier: tuple[Path, list[str]]) -> None:
    folder, said = classifier
    sentence = r"int8: \S+ MB become \S+ MB; lowest cosine of an output (\S+) on made-up inputs; \S+ times as fast"
    reported = re.search(sentence, said[1])
    assert reported and 0.9 < float(reported[1]) <= 1
    given = {**inputs("bert"), "token_type_ids": torch.zeros((3, 7), dtype=torch.long)}
    whole, small = (
        onnxruntime.InferenceSession(str(folder / name)).run(None, {key: value.numpy() for key, value in given.items()})
        for name in ("model.onnx", "model_int8.onnx")
    )
    assert 0 < np.abs(whole[0] - small[0]).max() < 0.2 * np.abs(whole[0]).max()


def test_files_are_judged_by_the_metric(
    classifier: tuple[Path, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A folder stands for its exact file; the other one is named."""
    folder, _ = classifier
    rows = [{"text": f"w{index} w{index % 7}", "label": f"LABEL_{index % 3}"} for index in range(30)]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def evaluated(what: Path) -> tuple[str, str]:
        capfd.readouterr()
        assert call(monkeypatch, "eval", str(what), "--eval", str(tmp_path / "dev.jsonl"), "--json") == 0
        found = capfd.readouterr()
        return found.out, found.err

    whole, said = evaluated(folder)
    assert whole == evaluated(folder.parent / "model")[0]
    assert f"{folder / 'model.onnx'} is evaluated; for the other file, give {folder / 'model_int8.onnx'}." in said
    small, said = evaluated(folder / "model_int8.onnx")
    assert '"accuracy"' in small and "is evaluated" not in said


ALONE = """
import runpy, sys
sys.modules.update(dict.fromkeys(("kheads", "torch", "transformers")))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def example(*words: str) -> str:
    """What the example prints where it has neither torch nor transformers."""
    command = [sys.executable, "-c", ALONE, str(ROOT / "examples" / "run_onnx.py"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_example_runs_a_classifier(classifier: tuple[Path, list[str]]) -> None:
    folder, _ = classifier
    model = kheads.load(folder.parent / "model").eval()
    batch = LIBRARY.AutoTokenizer.from_pretrained(folder)(["w1 w2 w3", "w9"], padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = [f"LABEL_{index}" for index in logits(model, batch).argmax(-1).tolist()]
    assert example(str(folder), "w1 w2 w3", "w9").split() == expected
    assert len(example(str(folder), "w1", "--int8").split()) == 1


def test_a_language_model_writes_the_same_with_its_cache(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Through the command, which says nothing but the result."""
    kheads.save(emptied(fresh("gpt2")), tmp_path / "model", tokenizer(tmp_path))
    capfd.readouterr()
    words = ("export", str(tmp_path / "model"), "--to", "onnx", "-o", str(tmp_path / "onnx"))
    assert call(monkeypatch, *words) == 0
    out, err = capfd.readouterr()
    assert "works without kheads" in out and "the same tokens are written, with and without cache" in out
    assert len(out.splitlines()) == 1 and set(re.sub(r"^exporting.*$", "", err, flags=re.M)) <= {"\n"}
    model = kheads.load(tmp_path / "model").eval()
    prompt = LIBRARY.AutoTokenizer.from_pretrained(tmp_path / "onnx")("w1 w2 w3", return_tensors="pt")
    given = {name: prompt[name] for name in ("input_ids", "attention_mask")}
    tokens = model.generate(**given, max_new_tokens=6, do_sample=False)
    expected = LIBRARY.AutoTokenizer.from_pretrained(tmp_path / "onnx").decode(tokens[0], skip_special_tokens=True)
    assert example(str(tmp_path / "onnx"), "w1 w2 w3", "--new-tokens", "6").strip() == expected
    run_card(tmp_path / "onnx", monkeypatch)


def test_images_have_any_batch(fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, said = exported(fresh("vit"), tmp_path)
    assert "outputs at batch 1 and batch 3" in said[0]
    run_card(folder, monkeypatch)
    given = inputs("vit", 5)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    (found,) = session.run(None, {"pixel_values": given["pixel_values"].numpy()})
    with torch.no_grad():
        assert np.allclose(found, kheads.load(tmp_path / "model").eval()(**given).logits.numpy(), atol=1e-5)


def test_a_file_that_does_not_run_is_not_exported(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without silent heads onnxruntime fails on emptied sites, and the check sees it."""
    monkeypatch.setattr(writing, "give_silent_heads", lambda model: model)
    with pytest.raises(ExportError, match=r"The ONNX files, .*, do not run in a new process"):
        exported(fresh("bert"), tmp_path)
    assert not (tmp_path / "onnx").exists()


def test_other_numbers_and_tokens_are_noticed() -> None:
    expected = {"logits": torch.ones(1, 2), "steps": torch.tensor([[[0.0, 1.0]]])}
    case = Case("1 x 2", {"tokens": torch.tensor([[1]])}, expected, {"logits": torch.tensor([[True, False]])})
    same = {name: value.numpy() for name, value in expected.items()}

    def compared(**changed: Any) -> str:
        return comparing.compare([case], Found({("", "1 x 2"): {**same, **changed}}, None))

    assert "the same tokens" in compared() and compared(logits=np.array([[1.0, 9.0]]))  # the second is padding
    with pytest.raises(ExportError, match=r"logits of the ONNX file differs from the model's by 1.0e-03"):
        compared(logits=np.array([[1.001, 1.0]]))
    with pytest.raises(ExportError, match="differs from the model's by nan"):
        compared(logits=np.array([[np.nan, 1.0]]))
    with pytest.raises(ExportError, match=r"logits is \(1, 3\) in the ONNX file, where the model has \(1, 2\)"):
        compared(logits=np.ones((1, 3)))
    with pytest.raises(ExportError, match="write other tokens than the model"):
        comparing.compare(
            [Case("1 x 2", {"tokens": torch.tensor([[0]])}, expected)], Found({("", "1 x 2"): same}, None)
        )


def test_int8_that_is_not_finite_is_refused() -> None:
    case = Case("1 x 2", {}, {"logits": torch.ones(1, 2)})
    outputs = {("", "1 x 2"): {"logits": np.ones((1, 2))}, ("_int8", "1 x 2"): {"logits": np.full((1, 2), np.nan)}}
    with pytest.raises(ExportError, match="export without int8"):
        int8._closeness([case], Found(outputs, None))


@pytest.mark.parametrize(("width", "said"), [(2, "lowest cosine of an output 0.8"), (1, "scores differ by 5.0e-01 of")])
def test_a_single_score_has_no_cosine(width: int, said: str) -> None:
    """It would be 1 for any two of one sign."""
    case = Case("1 x 2", {}, {"logits": torch.ones(1, width)})
    whole, small = np.array([[2.0, 2.0]]), np.array([[3.0, 1.0]])
    outputs = {("", "1 x 2"): {"logits": whole[:, :width]}, ("_int8", "1 x 2"): {"logits": small[:, :width]}}
    assert int8._closeness([case], Found(outputs, None)).startswith(said)


def _llama(kind: str) -> Any:
    config = LIBRARY.LlamaConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, vocab_size=9)
    config.rope_parameters = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    return LIBRARY.LlamaForCausalLM(config)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (ZOO["hubert"].build, "its main input is 'input_values'"),
        (ZOO["layoutlm"].build, "it also takes 'bbox'"),
        (ZOO["clip"].build, "it also takes 'pixel_values'"),
        (ZOO["detr"].build, "it is more than an encoder of images"),
        (lambda: LIBRARY.BartModel(tiny("bart").config), "an encoder-decoder that does not write"),
        (lambda: _llama("dynamic"), "rotary positions are of the type 'dynamic'"),
    ],
    ids=("audio", "places", "text and images", "detection", "encoder-decoder", "rotations"),
)
def test_what_would_not_be_exact_is_refused_by_name(build: Callable[[], Any], reason: str) -> None:
    model = build()
    with pytest.raises(ExportError, match=f'{type(model).__name__} cannot be written as ONNX: .*{reason}.*to="hub"'):
        kind_of(model)


def test_chance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="ViTMAEModel cannot be written as ONNX: it draws at random"):
        exported(ZOO["vit_mae"].build(), tmp_path)


def test_options_and_packages_are_checked_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="takes no `int8`; it is for 'onnx'") as refused:
        kheads.export(tmp_path / "none", tmp_path / "out", to="hub", int8=True)
    assert in_words_of_the_command_line(str(refused.value)) == "`--to hub` takes no `--int8`; it is for 'onnx'."
    with pytest.raises(ValueError, match="`int8` must be True or False"):
        import_module("kheads.storage.export.onnx.writing").check_int8("yes")
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs onnx and onnxruntime and onnxscript; install .*kheads\[onnx\]"):
        kheads.export(tmp_path / "none", tmp_path / "out", to="onnx")


def test_a_batch_must_fit_the_file(fresh: Fresh, tmp_path: Path) -> None:
    kheads.save(emptied(fresh("bert")), tmp_path / "model")
    given = {**inputs("bert"), "bbox": torch.zeros(3, 7, 4)}
    with pytest.raises(ExportError, match="`inputs` has bbox; the ONNX file of BertForSequenceClassification takes"):
        kheads.export(tmp_path / "model", tmp_path / "onnx", to="onnx", inputs=given)


# ------------------------------------------------------------------------------------------------------------- slow


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_written(name: str, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {key: value for key, value in inputs(name).items() if not key.startswith("decoder_")}
    folder, said = exported(fresh(name), tmp_path, int8=True, inputs=batch)
    assert "and your batch differ by" in said[0] and ("the same tokens" in said[0]) == FAMILIES[name].generates
    assert "int8: " in said[1]
    run_card(folder, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["QuestionAnswering", "MaskedLM", "TokenClassification", "MultipleChoice"])
def test_every_head_can_be_written(head: str, tmp_path: Path) -> None:
    config = tiny("bert").config
    config.num_labels = 2 if head == "QuestionAnswering" else 3  # where an answer starts and ends
    model = randomise(getattr(LIBRARY, f"BertFor{head}")(config)).eval()
    if head == "MultipleChoice":  # takes texts in rows of choices, which no file of ours does
        with pytest.raises(ExportError, match=r'BertForMultipleChoice cannot be written as ONNX.*to="hub"'):
            exported(model, tmp_path)
        return
    folder, _ = exported(model, tmp_path)
    outputs = {one.name for one in onnxruntime.InferenceSession(str(folder / "model.onnx")).get_outputs()}
    assert outputs == ({"start_logits", "end_logits"} if head == "QuestionAnswering" else {"logits"})


@pytest.mark.slow
def test_an_embedder_takes_its_pooling_along(tmp_path: Path) -> None:
    source = sentence_folder(tmp_path / "whole", pooling="cls", kinds=CHAIN[:2])
    found = sources.sentence_folder(source)
    assert found is not None
    model = emptied(sources.encoder(source))
    kheads.save(model, tmp_path / "model", tokenizer(tmp_path), embedder=found.embedder)
    said: list[str] = []
    out = kheads.export(tmp_path / "model", tmp_path / "onnx", to="onnx", say=said.append)
    assert sources.sentence_folder(out) == found and not said


@pytest.mark.slow
def test_half_precision_is_written_whole(fresh: Fresh, tmp_path: Path) -> None:
    _, said = exported(fresh("llama").to(torch.bfloat16), tmp_path)
    assert said[0] == "The weights were bfloat16; the ONNX file has them as float32."
