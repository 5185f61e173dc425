"""A GGUF file gives in llama.cpp what the pruned model gives in torch, from the same tokens; the rest is refused."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import kheads
from kheads import Kept, discover, remove
from kheads.storage.export import exporting, gguf, gguf_check, gguf_tokenizer
from kheads.storage.export.gguf_tokenizer import CUTS, SPACE, read_vocabulary
from kheads.storage.export.target import ExportError

LIBRARY: Any = transformers
ROWS = 400  # embeddings: more than tokens, as in many models
TEXT = [*gguf_check.TEXTS, "the cat and the dog see the fox, and the fox sees them", "I'm sure they're 100 years old"]
LLAMA_CPP = find_spec("xllamacpp") is not None
tried = pytest.mark.skipif(not LLAMA_CPP, reason="xllamacpp is not installed")


def cut_named(name: str) -> Any:
    """The pre-tokenizer that llama.cpp calls by that name."""
    steps = next(steps for steps, known in CUTS.items() if known == name)
    made = {
        "digits": lambda step: pre_tokenizers.Digits(individual_digits=True),
        "split": lambda step: pre_tokenizers.Split(Regex(step[1]), "isolated"),
        "bytes": lambda step: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex="words" in step),
    }
    return pre_tokenizers.Sequence([made[step[0]](step) for step in steps])


def byte_pairs(name: str = "gpt-2", bos: bool = False) -> Any:
    """A tokenizer of pieces of bytes, trained on a few sentences."""
    whole = name in gguf_tokenizer.WHOLE_FIRST
    built = Tokenizer(models.BPE(ignore_merges=whole))
    built.pre_tokenizer = cut_named(name)
    built.decoder = decoders.ByteLevel()
    if name == "qwen2":
        built.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    built.train_from_iterator(TEXT, trainer)
    if bos:
        built.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return LIBRARY.PreTrainedTokenizerFast(tokenizer_object=built, bos_token="<s>", eos_token="</s>")


def sentence_pieces() -> Any:
    """SentencePiece as Llama 2 has it: bytes for what is unknown, then pieces in the order in which they are merged."""
    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    built.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=120, show_progress=False))
    model = json.loads(built.to_str())["model"]
    merged = ["".join(pair) for pair in model["merges"]]
    single = sorted(piece for piece in model["vocab"] if len(piece) == 1)
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *merged, *single]
    pairs = [tuple(pair) for pair in model["merges"]]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    again = Tokenizer(models.BPE(vocabulary, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    again.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    again.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return LIBRARY.PreTrainedTokenizerFast(tokenizer_object=again, **names)


def language_model(kind: str = "Llama", **fields: Any) -> Any:
    sizes = {"hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 4, "vocab_size": ROWS, "head_dim": 8}
    shared = {"num_attention_heads": 6, "num_key_value_heads": 3, "bos_token_id": 0, "eos_token_id": 1}
    config = getattr(LIBRARY, f"{kind}Config")(**{**sizes, **shared, "sliding_window": None, **fields})
    torch.manual_seed(0)
    model = getattr(LIBRARY, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def pruned(model: Any, groups: tuple[int, ...] = (2, 0, 3, 1), neurons: tuple[int, ...] = (40, 17, 0, 8)) -> Any:
    """Uneven layers, one without heads and one without neurons."""
    counts = dict(zip([site.name for site in discover(model)], groups, strict=True))
    counts |= dict(zip([site.name for site in discover(model, parts="ffn")], neurons, strict=True))
    sites = discover(model, parts="all")
    return remove(
        model,
        Kept.from_dict({site.name: list(range(site.count))[-counts[site.name] or site.count :] for site in sites}),
    )


def exported(model: Any, tokenizer: Any, folder: Path, **options: Any) -> list[str]:
    """What the export says."""
    kheads.save(model, folder / "model", tokenizer=tokenizer)
    said: list[str] = []
    kheads.export(folder / "model", folder / "out", to="gguf", say=said.append, tell=said.append, **options)
    assert (folder / "out" / gguf.NAME).is_file()
    return said


@tried
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (
            "Llama",
            {
                "tie_word_embeddings": True,
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 10000.0,
                    "factor": 4.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 16,
                },
            },
        ),
        ("Mistral", {"sliding_window": 64}),
        ("Qwen2", {}),
    ],
)
def test_llama_cpp_computes_the_same(kind: str, fields: dict[str, Any], tmp_path: Path) -> None:
    """Log-probabilities over the whole vocabulary, at several lengths and from the cache."""
    said = exported(pruned(language_model(kind, **fields)), byte_pairs(), tmp_path)
    assert "same tokens" in said[-2] and "differ by" in said[-1]
    assert float(said[-1].split("differ by ")[1].split(" ")[0]) < 1e-4
    assert ("context is set to 64" in said[0]) == (kind == "Mistral")


@tried
def test_a_silent_head_stands_in_for_an_empty_first_layer(tmp_path: Path) -> None:
    assert "differ by" in exported(pruned(language_model(), (0, 2, 3, 1)), byte_pairs(), tmp_path)[-1]


@tried
@pytest.mark.slow
def test_half_precision_is_near(tmp_path: Path) -> None:
    said = exported(pruned(language_model()), byte_pairs(), tmp_path, dtype="f16")
    assert 1e-6 < float(said[-1].split("differ by ")[1].split(" ")[0]) < 0.2


@tried
@pytest.mark.parametrize(
    "name",
    [name if name in ("smollm", "llama-bpe") else pytest.param(name, marks=pytest.mark.slow) for name in CUTS.values()],
)
def test_llama_cpp_cuts_texts_alike(name: str, tmp_path: Path) -> None:
    said = exported(language_model(num_hidden_layers=1), byte_pairs(name, bos=name == "llama-bpe"), tmp_path)
    assert "cuts 6 texts into the same tokens" in said[-2] and ("NFC" in said[0]) == (name == "qwen2")


@tried
def test_llama_cpp_cuts_sentence_pieces_alike(tmp_path: Path) -> None:
    assert "cuts 6 texts into the same tokens" in exported(language_model(), sentence_pieces(), tmp_path)[-2]


@tried
def test_other_numbers_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: without llama.cpp's order of rows the rotations are others."""
    monkeypatch.setattr(gguf, "_interleaved", lambda rows, heads: rows)
    with pytest.raises(ExportError, match=r"Log-probabilities of llama.cpp differ from the model's by"):
        exported(language_model(), byte_pairs(), tmp_path)


@tried
def test_other_tokens_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = byte_pairs()
    monkeypatch.setitem(CUTS, (("bytes", "words"),), "smollm")
    with pytest.raises(ExportError, match=r"llama.cpp cuts .*1234567.* into the tokens"):
        exported(language_model(num_hidden_layers=1), found, tmp_path)


def test_what_was_not_tried_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "find_spec", lambda name: None)
    said = exported(pruned(language_model()), byte_pairs(), tmp_path)
    assert said == [gguf.UNTRIED]


def test_the_extra_is_asked_for_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs gguf; install them with `pip install 'kheads\[gguf\]'`"):
        kheads.export(tmp_path / "none", tmp_path / "out", to="gguf")


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("Qwen3", {}, "Qwen3ForCausalLM computes something else"),
        ("Llama", {"attention_bias": True}, r"o_proj.bias has no place"),
        ("Llama", {"mlp_bias": True}, r"gate_proj.bias has no place"),
        ("Llama", {"hidden_act": "gelu"}, "has gelu"),
        ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}, "has 'linear'"),
    ],
)
def test_models_that_the_architecture_does_not_say_are_refused(kind: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExportError, match=reason):
        gguf._layers(language_model(kind, **fields))


def test_parts_of_groups_are_refused() -> None:
    model = language_model()
    kept = {site.name: [0, 2, 4] for site in discover(model, unit="query")}
    remove(model, Kept.from_dict(kept), unit="query")
    with pytest.raises(ExportError, match="has 1 of 2 query heads in a group"):
        gguf._layers(model)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"pre_tokenizer": pre_tokenizers.Whitespace()},
            "no name that kheads knows for this tokenizer's cuts .Whitespace",
        ),
        ({"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)}, "no name that kheads knows"),
        ({"normalizer": normalizers.Lowercase()}, r"does not normalise text, as this tokenizer does .Lowercase"),
        ({"model": models.WordLevel({"a": 0, "b": 1}, unk_token="a")}, "of the type BPE"),
        (
            {"post_processor": processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 1)])},
            "other tokens around a text",
        ),
    ],
)
def test_unknown_tokenizers_are_refused_by_name(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    found = byte_pairs()
    for name, value in change.items():
        setattr(found.backend_tokenizer, name, value)
    found.save_pretrained(tmp_path)
    with pytest.raises(ExportError, match=reason):
        read_vocabulary(tmp_path, ROWS)


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(tmp_path: Path) -> None:
    byte_pairs().save_pretrained(tmp_path)
    with pytest.raises(ExportError, match="has a token 339, and the model has 300 embeddings"):
        read_vocabulary(tmp_path, 300)
