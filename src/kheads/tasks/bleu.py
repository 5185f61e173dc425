"""BLEU, twice: sacrebleu's standard, and on lower-cased Moses tokens, which compares with the paper's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

INSTALL = "pip install 'kheads[translation]'"


@dataclass(frozen=True)
class Bleu:
    """Scores translations against one reference each.

    Attributes:
        language: the language of the translations, for Moses' rules.
        tokenized: the texts are Moses tokens already; they are put together again for the standard score.
    """

    language: str = "en"
    tokenized: bool = False

    def __call__(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
        """Both scores from 0 to 100 with their signatures, and the share of translations equal to their reference."""
        moses = moses_tools()
        whole: list[Sequence[str]]
        if self.tokenized:
            join = moses.MosesDetokenizer(self.language).detokenize
            whole = [[join(text.split()) for text in side] for side in (translations, references)]
            tokens = [translations, references]
        else:
            cut = moses.MosesTokenizer(self.language).tokenize
            whole = [translations, references]
            tokens = [[cut(text, escape=False, return_str=True) for text in side] for side in whole]
        lowered = [[text.lower() for text in side] for side in tokens]
        bleu, signature = _corpus_bleu(*whole)
        bleu_moses, moses_signature = _corpus_bleu(*lowered, tokenize="none", lowercase=True, force=True)
        same = sum(one == other for one, other in zip(translations, references, strict=True))
        return {
            "bleu": bleu,
            "bleu_moses": bleu_moses,
            "exact": same / max(1, len(references)),
            "bleu_signature": signature,
            "bleu_moses_signature": moses_signature,
        }


def check_installed() -> None:
    """Raises if something is missing without which translations cannot be scored."""
    for name in ("sacremoses", "sacrebleu.metrics"):
        _module(name)


def moses_tools() -> Any:
    """The module sacremoses."""
    return _module("sacremoses")


def _corpus_bleu(translations: Sequence[str], references: Sequence[str], **options: Any) -> tuple[float, str]:
    metric = _module("sacrebleu.metrics").BLEU(**options)
    score = metric.corpus_score(list(translations), [list(references)]).score
    return float(score), str(metric.get_signature())


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"Translation needs {name.partition('.')[0]}; install it with: {INSTALL}") from error
