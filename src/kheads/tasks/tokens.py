"""Texts as tokens, a bounded part at a time; and whether the tokenizer fits them and the model.

It fits if most of the text is known to it, and every token has an embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kheads.tasks.files import DataError

# A tokenizer needs about two hundred bytes for each character that it reads at once.
CHARACTERS_AT_ONCE = 2**21
MOST_UNKNOWN = 0.5
LABELS_START = 0  # labels below are no tokens


def token_ids(tokenizer: Any, texts: Sequence[str], **options: Any) -> list[list[int]]:
    """The tokens of texts; `options` are the tokenizer's, such as `text_target`'s side or where to cut."""
    found: list[list[int]] = []
    for part in parts(texts):
        found += tokenizer(part, verbose=False, **options)["input_ids"]
    return found


def parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in parts of bounded size, each of at least one text."""
    part: list[str] = []
    size = 0
    for text in texts:
        if part and size + len(text) > CHARACTERS_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield part


def check_tokens(ids: np.ndarray, tokenizer: Any, rows: int | None, origin: str) -> None:
    """Raises if token ids say that the tokenizer does not fit the data, or not the model.

    Args:
        ids: the tokens of many texts, one after the other, (T,).
        tokenizer: what made them.
        rows: how many tokens the model knows; None if it has no table of them.
        origin: where the texts come from, as errors name it.
    """
    largest = int(ids.max(initial=-1))
    if rows is not None and largest >= rows:
        raise DataError(
            f"{origin}: the tokenizer gives the token {largest}, and the model knows {rows} tokens; put the model's "
            "own tokenizer beside it."
        )
    unknown = tokenizer.unk_token_id
    special = np.isin(ids, [index for index in tokenizer.all_special_ids if index != unknown])
    real = ids[~special]
    lost = 0 if unknown is None else int((real == unknown).sum())
    if not len(real) or lost > MOST_UNKNOWN * len(real):
        share = f"{lost} of {len(real)} tokens are unknown to" if len(real) else "no text is left by"
        raise DataError(f"{origin}: {share} the tokenizer; put the model's own tokenizer beside it, or check the text.")


def tokens_of(data: Any, column: str) -> np.ndarray | None:
    """The tokens of a column of a data set, one text after the other; None if it has no such column."""
    if column not in getattr(data, "column_names", ()) or not len(data):
        return None
    import pyarrow

    held = data.with_format("arrow")[:][column]
    chunks = held.chunks if isinstance(held, pyarrow.ChunkedArray) else [held]
    flat = [chunk.flatten() for chunk in chunks if hasattr(chunk, "flatten") and pyarrow.types.is_nested(chunk.type)]
    parts = [np.asarray(part) for part in flat]
    if not parts:
        return None
    ids = np.concatenate(parts)
    return ids[ids >= LABELS_START]


def flattened(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Lists of tokens as one array."""
    return np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences] or [np.zeros(0, np.int64)])
