"""A SentenceTransformer object taken apart: its transformer, its tokenizer, and what it does with token vectors.

sentence-transformers is not imported: whoever has such an object has it installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kheads.storage.embedder import POOLINGS, Embedder
from kheads.storage.sentence_folder import ORDERS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LIBRARY = "sentence_transformers"


@dataclass(frozen=True)
class Parts:
    """What `save` writes of a SentenceTransformer."""

    model: PreTrainedModel
    tokenizer: Any
    embedder: Embedder


def is_sentence_transformer(model: Any) -> bool:
    """Whether it is one, or of a class that inherits from it."""
    return any(
        cls.__name__ == "SentenceTransformer" and cls.__module__.partition(".")[0] == LIBRARY
        for cls in type(model).__mro__
    )


def taken_apart(whole: Any) -> Parts:
    """The parts, if kheads can put them together again.

    Raises:
        ValueError: it has other modules, or pools otherwise.
    """
    modules = list(whole)
    kinds = tuple(type(module).__name__ for module in modules)
    foreign = [type(module) for module in modules if type(module).__module__.partition(".")[0] != LIBRARY]
    if kinds not in ORDERS or foreign:
        raise ValueError(
            f"The SentenceTransformer has the modules {', '.join(kinds) or 'of none'}; kheads saves Transformer, "
            "Pooling and, if it is there, Normalize. Save its transformer alone, and put the others behind it yourself."
        )
    first, pooling = modules[:2]
    embedder = Embedder(
        pooling=_pooling(pooling),
        normalise=len(modules) > 2,
        max_length=whole.max_seq_length,
        lower=bool(getattr(first, "do_lower_case", False)),
        prompts=dict(whole.prompts or {}),
        default_prompt=whole.default_prompt_name,
        similarity=whole.similarity_fn_name,
    )
    return Parts(first.auto_model, whole.tokenizer, embedder)


def _pooling(module: Any) -> str:
    found = module.get_pooling_mode_str() if not hasattr(module, "pooling_mode") else module.pooling_mode
    if found not in POOLINGS:
        raise ValueError(f"The SentenceTransformer has {found} pooling; kheads saves {' or '.join(POOLINGS)}.")
    if not module.include_prompt:
        raise ValueError("The SentenceTransformer leaves prompts out of its pooling, which kheads does not follow.")
    return str(found)
