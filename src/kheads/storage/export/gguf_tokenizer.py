"""What a GGUF file says of a tokenizer: its pieces, how they are joined, and what cuts a text before that.

llama.cpp knows a tokenizer's first cut by name only. The name is found from the definition that the tokenizer itself
has; one that is none of these is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from kheads.storage.export.target import ExportError
from kheads.storage.processors import tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # llama.cpp's types of tokens
SPACE = "\u2581"

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The cuts before merging, and the name that llama.cpp has for them.
CUTS: dict[tuple[tuple[str, ...], ...], str] = {
    (("bytes", "words"),): "gpt-2",
    (("digits",), ("bytes", "words")): "smollm",
    (("split", rf"{_WORDS}\p{{N}}{{1,3}}{_REST}"), ("bytes",)): "llama-bpe",
    (("split", rf"{_WORDS}\p{{N}}{_REST}"), ("bytes",)): "qwen2",
    (("split", _TEKKEN), ("bytes",)): "tekken",
}
WHOLE_FIRST = ("llama-bpe", "tekken")  # a word that is a token is not merged from parts; llama.cpp goes by the name
NFC = "llama.cpp does not bring text to the normal form NFC, as the tokenizer does; give it text that has it."


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer as GGUF has it.

    Attributes:
        kind: "gpt2" (pieces of bytes, merged in order) or "llama" (SentencePiece: merged by score).
        pre: llama.cpp's name for the cut before merging; empty where there is none.
        tokens: every token, as many as the model has embeddings.
        types: what each of them is.
        scores: of SentencePiece.
        merges: of the other kind.
        special: ids of bos, eos, unk and pad, those that are there.
        add_bos: whether a text begins with bos.
        add_eos: whether it ends with eos.
        space_first: whether a space is put before it.
        template: of chats.
        remarks: what the user should know.
    """

    kind: str
    pre: str
    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str]
    special: dict[str, int]
    add_bos: bool
    add_eos: bool
    space_first: bool
    template: str | None
    remarks: tuple[str, ...] = ()


def read_vocabulary(source: Path, rows: int) -> tuple[Vocabulary, Any]:
    """The tokenizer of a folder for a model with that many embeddings, and the tokenizer as transformers has it."""
    found = tokenizer(source)
    backend = getattr(found, "backend_tokenizer", None)
    if backend is None:
        raise ExportError(f"{type(found).__name__} is not a tokenizer of the tokenizers library, and GGUF needs one.")
    said = json.loads(backend.to_str())
    model = said["model"]
    if model.get("type") != "BPE" or model.get("dropout"):
        raise ExportError(f"GGUF takes tokenizers of the type BPE without dropout; this one is {model.get('type')}.")
    tokens, types = _pieces(said, rows)
    return (_sentence_pieces if model["byte_fallback"] else _bytes)(said, tokens, types, found), found


def _pieces(said: Mapping[str, Any], rows: int) -> tuple[list[str], list[int]]:
    """All tokens in the order of their ids; embeddings that no token has are named and never used."""
    known = {index: (token, NORMAL) for token, index in said["model"]["vocab"].items()}
    for added in said["added_tokens"]:
        known[added["id"]] = (added["content"], CONTROL if added["special"] else USER_DEFINED)
    if max(known) >= rows:
        raise ExportError(f"The tokenizer has a token {max(known)}, and the model has {rows} embeddings.")
    all_tokens = [known.get(index, (f"[PAD{index}]", UNUSED)) for index in range(rows)]
    return [token for token, _ in all_tokens], [kind for _, kind in all_tokens]


def _bytes(said: Mapping[str, Any], tokens: list[str], types: list[int], found: Any) -> Vocabulary:
    """Pieces of bytes: GPT-2's kind."""
    steps = _steps(said["pre_tokenizer"])
    pre = CUTS.get(steps)
    if pre is None:
        raise ExportError(f"llama.cpp has no name that kheads knows for this tokenizer's cuts ({_shown(steps)}).")
    normal = (said["normalizer"] or {}).get("type")
    if normal is not None and (normal, pre) != ("NFC", "qwen2"):
        raise ExportError(f"llama.cpp does not normalise text, as this tokenizer does ({normal}).")
    if bool(said["model"]["ignore_merges"]) != (pre in WHOLE_FIRST):
        raise ExportError(f"`ignore_merges` of this tokenizer is not as llama.cpp takes it for {pre!r}.")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in said["model"]["merges"]]
    ends = _ends(found)
    return Vocabulary("gpt2", pre, tokens, types, [], merges, *ends, False, _template(found), (NFC,) if normal else ())


def _steps(pre: Any) -> tuple[tuple[str, ...], ...]:
    """The cuts of a pre-tokenizer in order, in words of `CUTS`."""
    if pre is None:
        return ()
    if pre["type"] == "Sequence":
        return tuple(step for part in pre["pretokenizers"] for step in _steps(part))
    if pre["type"] == "ByteLevel" and not pre["add_prefix_space"]:
        return (("bytes", "words"),) if pre["use_regex"] else (("bytes",),)
    if pre["type"] == "Digits" and pre["individual_digits"]:
        return (("digits",),)
    if pre["type"] == "Split" and pre["behavior"] == "Isolated" and not pre["invert"]:
        return (("split", pre["pattern"].get("Regex", "")),)
    return ((pre["type"],),)


def _shown(steps: Sequence[Sequence[str]]) -> str:
    return ", ".join(" ".join(step)[:60] for step in steps) or "none"


def _sentence_pieces(said: Mapping[str, Any], tokens: list[str], types: list[int], found: Any) -> Vocabulary:
    """SentencePiece: llama.cpp joins what gives the piece with the highest score, so scores follow the merges."""
    ids = said["model"]["vocab"]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in said["model"]["merges"]]
    if any(ids["".join(one)] > ids["".join(two)] for one, two in pairwise(pairs)):
        raise ExportError("The merges of this tokenizer are not in the order of its tokens, and GGUF has scores alone.")
    unknown = ids.get(said["model"]["unk_token"])
    for index, token in enumerate(tokens):
        if index == unknown:
            types[index] = UNKNOWN
        elif len(token) == 6 and token.startswith("<0x") and types[index] == NORMAL:
            types[index] = BYTE
    scores = [-float(index) if kind == NORMAL else 0.0 for index, kind in enumerate(types)]
    ends = _ends(found)
    return Vocabulary("llama", "", tokens, types, scores, [], *ends, _space_first(said), _template(found))


def _space_first(said: Mapping[str, Any]) -> bool:
    """Whether a space is put before a text; either the normaliser or the pre-tokenizer makes spaces visible."""
    normal, pre = said["normalizer"], said["pre_tokenizer"]
    parts = normal["normalizers"] if normal and normal["type"] == "Sequence" else [normal] if normal else []
    visible = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    if pre is None and parts and parts[-1] == visible:
        before = parts[:-1]
        if before in ([], [{"type": "Prepend", "prepend": SPACE}]):
            return bool(before)
    if not parts and pre and pre["type"] == "Metaspace" and pre["replacement"] == SPACE and not pre.get("split", True):
        return bool(pre["prepend_scheme"] != "never")
    raise ExportError("This tokenizer treats spaces in a way that llama.cpp's SentencePiece does not.")


def _ends(found: Any) -> tuple[dict[str, int], bool, bool]:
    """The special tokens, and which of them are put before and after a text."""
    names = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unk_token_id", "pad": "pad_token_id"}
    special = {name: getattr(found, field) for name, field in names.items() if isinstance(getattr(found, field), int)}
    bare, whole = found("a b", add_special_tokens=False)["input_ids"], found("a b")["input_ids"]
    for start in ([], [special.get("bos")]):
        for end in ([], [special.get("eos")]):
            if whole == [*start, *bare, *end]:
                return special, bool(start), bool(end)
    raise ExportError("This tokenizer puts other tokens around a text than its bos and eos, which GGUF cannot say.")


def _template(found: Any) -> str | None:
    return found.chat_template if isinstance(found.chat_template, str) else None
