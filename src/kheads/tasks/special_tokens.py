"""The tokens that a tokenizer puts around a text, such as [CLS] and [SEP], and what tokenizers have to know."""

from __future__ import annotations

from typing import Any

import numpy as np

from kheads.tasks.files import DataError

PROBES = ("a", "1", ".")  # any tokenizer of texts makes something of one of them

Frame = tuple[list[int], list[int]]  # what stands before a text, and behind it


def frame_of(tokenizer: Any) -> Frame:
    """The special tokens before a text, and those behind it."""
    for text in PROBES:
        bare = list(tokenizer(text, add_special_tokens=False)["input_ids"])
        whole = list(tokenizer(text)["input_ids"])
        places = [place for place in range(len(whole)) if bare and whole[place : place + len(bare)] == bare]
        if places:
            return whole[: places[0]], whole[places[0] + len(bare) :]
    raise ValueError("The tokenizer makes no tokens of letters and numbers; put the model's own tokenizer beside it.")


def special_ids(tokenizer: Any) -> np.ndarray:
    """The tokens that stand for no text; the one for what is unknown does."""
    known = [index for index in tokenizer.all_special_ids if index != tokenizer.unk_token_id]
    return np.asarray(known, np.int64)


def check_fast(tokenizer: Any, source: Any) -> None:
    """Raises if a tokenizer does not tell which characters a token stands for."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{source} has a slow tokenizer, {type(tokenizer).__name__}, which does not tell which characters a token "
            "stands for; give a model with a fast one (tokenizer.json)."
        )


def check_window(max_length: int, tokenizer: Any, least: int) -> None:
    """Raises if so many tokens are too few for what has to be in them, or more than the tokenizer is made for."""
    most = tokenizer.model_max_length
    if not least <= max_length <= most:
        limit = f"between {least} and {most} (the tokenizer's limit)" if most < 10**6 else f"{least} or more"
        raise ValueError(f"`max_length` must be {limit}; got {max_length!r}.")


def nothing_read(origin: str, line: int) -> DataError:
    """What is said of a sentence of which the tokenizer makes no tokens."""
    return DataError(f"{origin}, line {line}: the tokenizer makes no tokens of the sentence; remove it.")
