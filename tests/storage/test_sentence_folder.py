"""Folders of sentence-transformers: read and written as data, and the library gives the same vectors with them."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kheads
from kheads.storage import processors, sources
from kheads.storage.contents import CheckpointError
from kheads.storage.embedder import POOLINGS, Embedder
from kheads.storage.export import hub
from kheads.storage.sentence_folder import read_sentence_folder, write_sentence_folder
from sentence_folders import modules, sentence_folder, texts, tiny_encoder, write_json

INSTALLED = importlib.util.find_spec("sentence_transformers") is not None
with_library = pytest.mark.skipif(not INSTALLED, reason="sentence-transformers is not installed (kheads[embed])")


# -------------------------------------------------------------------------------------------------------- embeddings


@pytest.mark.parametrize("padded", ["right", "left"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_changes_no_embedding(pooling: str, padded: str) -> None:
    """Of token vectors that are the same, wherever the padding stands and whatever is in it."""
    hidden = torch.randn(2, 5, 4)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    mask, hidden = (mask, hidden) if padded == "right" else (mask.flip(1), hidden.flip(1))
    found = Embedder(pooling).pooled(hidden, mask)
    alone = Embedder(pooling).pooled(hidden[:1, mask[0].bool()], None)
    assert torch.allclose(found[:1], alone)
    assert torch.allclose(Embedder(pooling, True).pooled(hidden, mask).norm(dim=-1), torch.ones(2))


def test_prompts_and_lower_case_are_put_before_the_tokenizer() -> None:
    asks = Embedder(lower=True, prompts={"query": "Query: "}, default_prompt="query")
    assert asks.text("A Cat") == "query: a cat" and Embedder().text("A Cat") == "A Cat"
    with pytest.raises(ValueError, match="default_prompt"):
        Embedder(default_prompt="none")


# ------------------------------------------------------------------------------------------------- reading and writing


@pytest.mark.parametrize("newest", [False, True], ids=["2.x", "6.x"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_both_layouts_are_read_and_written_again(pooling: str, newest: bool, tmp_path: Path) -> None:
    found = read_sentence_folder(sentence_folder(tmp_path / "a", newest, pooling))
    assert found is not None and found.place == ""
    assert (found.embedder.pooling, found.embedder.normalise) == (pooling, True)
    (tmp_path / "b").mkdir()
    write_sentence_folder(found.embedder, 16, tmp_path / "b")
    assert read_sentence_folder(tmp_path / "b") == found


def test_a_plain_encoder_says_nothing(tmp_path: Path) -> None:
    assert read_sentence_folder(tiny_encoder(tmp_path / "plain")) is None


def test_a_transformer_in_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    """As the first versions wrote it."""
    tiny_encoder(tmp_path / "st" / "0_Transformer")
    first = {"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    write_json(tmp_path / "st/modules.json", [first, *modules(("Transformer", "Pooling"))[1:]])
    write_json(tmp_path / "st/1_Pooling/config.json", {"pooling_mode_cls_token": True})
    write_json(tmp_path / "st/0_Transformer/sentence_distilbert_config.json", {"max_seq_length": 7})
    found = read_sentence_folder(tmp_path / "st")
    assert found is not None and found.place == "0_Transformer"
    assert found.embedder == Embedder("cls", False, 7)


def _changed(name: str, **changes: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / name
        write_json(path, {**(json.loads(path.read_text()) if path.exists() else {}), **changes})

    return change


def _types(*names: str) -> Any:
    def change(folder: Path) -> None:
        found = modules()
        write_json(
            folder / "modules.json", [{**module, "type": name} for module, name in zip(found, names, strict=True)]
        )

    return change


ST = "sentence_transformers.models"
REFUSED = {
    "dense": (_types(f"{ST}.Transformer", f"{ST}.Pooling", f"{ST}.Dense"), "the modules Transformer, Pooling, Dense"),
    "code": (_types(f"{ST}.Transformer", f"{ST}.Pooling", "mine.Evil"), "names the code 'mine.Evil'"),
    "like the library": (_types("sentence_transformersx.Transformer", f"{ST}.Pooling", f"{ST}.Normalize"), "the code"),
    "no transformer": (_types(f"{ST}.BoW", f"{ST}.Pooling", f"{ST}.Normalize"), "BoW, Pooling, Normalize"),
    "max": (_changed("1_Pooling/config.json", pooling_mode="max"), "asks for max pooling; kheads follows mean or cls"),
    "two": (_changed("1_Pooling/config.json", pooling_mode_max_tokens=True), "asks for max and mean pooling"),
    "last": (_changed("1_Pooling/config.json", pooling_mode=["lasttoken"]), "asks for lasttoken pooling"),
    "arguments": (_changed("sentence_bert_config.json", model_args={"trust_remote_code": True}), "sets `model_args`"),
    "task": (_changed("sentence_bert_config.json", transformer_task="fill-mask"), "sets `transformer_task`"),
    "length": (_changed("sentence_bert_config.json", max_seq_length="many"), "`max_length` must be"),
    "prompts": (_changed("config_sentence_transformers.json", prompts={"query": 3}), "prompts that are not texts"),
    "similarity": (_changed("config_sentence_transformers.json", similarity_fn_name="evil.f"), "names the similarity"),
    "outside": (
        lambda folder: write_json(folder / "modules.json", [{**modules()[0], "path": "../other"}]),
        "which is not in the folder",
    ),
    "no list": (lambda folder: write_json(folder / "modules.json", {"0": {}}), "is not a list of modules"),
    "no pooling": (lambda folder: (folder / "1_Pooling/config.json").unlink(), "config.json is missing"),
    "tokens normalised": (
        _changed("2_Normalize/config.json", module_input_name="token_embeddings"),
        "normalises 'token_embeddings'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_kheads_cannot_follow_is_refused_by_name(case: str, tmp_path: Path) -> None:
    change, sentence = REFUSED[case]
    change(sentence_folder(tmp_path / "st"))
    with pytest.raises(CheckpointError, match=sentence):
        read_sentence_folder(tmp_path / "st")


def test_prompts_that_the_pooling_leaves_out_are_refused(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "st")
    _changed("1_Pooling/config.json", include_prompt=False)(folder)
    assert read_sentence_folder(folder) is not None  # there is no prompt
    _changed("config_sentence_transformers.json", prompts={"query": "query: "})(folder)
    with pytest.raises(CheckpointError, match="leaves prompts out"):
        read_sentence_folder(folder)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "st")
    (folder / "1_Pooling").rename(tmp_path / "elsewhere")
    (folder / "1_Pooling").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="outside the folder"):
        read_sentence_folder(folder)


# ------------------------------------------------------------------------------------------------------- saving, export


def pruned(folder: Path) -> tuple[Any, Any, Embedder]:
    """A smaller encoder, its tokenizer and its embedder."""
    found = sources.sentence_folder(folder)
    assert found is not None
    model = sources.encoder(folder)
    kheads.remove(model, kheads.select(torch.rand(8), 3, kheads.discover(model)))
    return model.eval(), processors.tokenizer(folder), found.embedder


def test_an_export_carries_the_files_along(tmp_path: Path) -> None:
    """Made anew; tried in sentence-transformers where it is installed, and said where it is not."""
    model, words, embedder = pruned(sentence_folder(tmp_path / "st"))
    kheads.save(model, tmp_path / "small", words, embedder=embedder)
    told: list[str] = []
    said: list[str] = []
    kheads.export(tmp_path / "small", tmp_path / "hub", say=said.append, tell=told.append)
    assert read_sentence_folder(tmp_path / "hub") == read_sentence_folder(tmp_path / "small")
    assert any("SentenceTransformer" in sentence for sentence in told) == INSTALLED
    assert any("is not installed" in sentence for sentence in said) != INSTALLED


def test_files_that_kheads_cannot_follow_are_left_out_of_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "rehearse", lambda *_: "")  # the model is another test's
    model, words, embedder = pruned(sentence_folder(tmp_path / "st"))
    kheads.save(model, tmp_path / "small", words, embedder=embedder)
    REFUSED["code"][0](tmp_path / "small")
    said: list[str] = []
    kheads.export(tmp_path / "small", tmp_path / "hub", say=said.append)
    assert any("names the code 'mine.Evil'" in sentence for sentence in said)
    assert not (tmp_path / "hub" / "modules.json").exists() and not (tmp_path / "hub" / "1_Pooling").exists()


# Loads the folders of a run in sentence-transformers, all in one process, and prunes an object of its own.
LIBRARY = """
import json, sys, warnings
import torch, kheads
from kheads.storage.export import hub, sentences
from sentence_transformers import SentenceTransformer
folder, texts = sys.argv[1], json.loads(sys.argv[2])
def vectors(name, **options):
    return SentenceTransformer(f"{folder}/{name}", device="cpu", local_files_only=True, **options).encode(texts)
found = {name: vectors(name).tolist() for name in ("old", "new", "rewritten")}
whole = SentenceTransformer(f"{folder}/old", device="cpu", local_files_only=True)
sites = kheads.discover(whole)
kheads.remove(whole, kheads.select(torch.arange(8.0), 3, sites))
found["object"] = whole.encode(texts).tolist()
whole.save(f"{folder}/trap")
try:
    vectors("trap")
except RuntimeError:
    found["trapped"] = True
kheads.save(whole, f"{folder}/saved")
hub.rehearse, sentences.find_spec = lambda *_: "", lambda _: None  # this process is the trial
for name in ("saved", "trap"):
    kheads.export(f"{folder}/{name}", f"{folder}/hub-{name}", say=lambda _: None)
    found[f"hub-{name}"] = vectors(f"hub-{name}", trust_remote_code=True).tolist()
print(json.dumps(found))
"""


@with_library
def test_the_library_gives_the_same_vectors(tmp_path: Path) -> None:
    """Old and new layout, what kheads writes, an object that was pruned, and even what its own `save` wrote of it."""
    old, new = sentence_folder(tmp_path / "old"), sentence_folder(tmp_path / "new", newest=True)
    found = read_sentence_folder(old)
    assert found is not None
    tiny_encoder(tmp_path / "rewritten")
    write_sentence_folder(found.embedder, 16, tmp_path / "rewritten")
    given = texts(3)
    command = [sys.executable, "-c", LIBRARY, str(tmp_path), json.dumps(given)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    theirs = json.loads(run.stdout.strip().splitlines()[-1])
    for folder in (old, new, tmp_path / "rewritten"):
        assert _own(folder, given) == pytest.approx(torch.tensor(theirs[folder.name]), abs=1e-5)
    for name in ("hub-saved", "hub-trap"):
        assert torch.tensor(theirs[name]) == pytest.approx(torch.tensor(theirs["object"]), abs=1e-6)
    assert _own(tmp_path / "saved", given) == pytest.approx(torch.tensor(theirs["object"]), abs=1e-5)
    assert theirs["trapped"]  # once it loads, the warning in docs/embeddings.md has to go


@torch.no_grad()
def _own(folder: Path, given: list[str]) -> torch.Tensor:
    found = sources.sentence_folder(folder)
    assert found is not None
    return found.embedder.of(sources.encoder(folder).eval(), found.embedder.tokens(processors.tokenizer(folder), given))
