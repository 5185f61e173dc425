"""Translations by beam search with the cache, similar lengths together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from kheads.storage import processors
from kheads.tasks.tokens import check_tokens, flattened, token_ids
from kheads.training.batching import token_batches
from kheads.training.progress import progress as shown

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BEAMS = 5
BATCH_TOKENS = 2048
_UNBOUNDED = 10**6  # transformers' way to say that a tokenizer has no limit


def translate(
    model: PreTrainedModel,
    tokenizer: Any,
    texts: Sequence[str],
    beams: int = BEAMS,
    batch_tokens: int = BATCH_TOKENS,
    progress: bool = False,
) -> list[str]:
    """Translates texts with an encoder-decoder, in their order.

    A text longer than the model's positions is cut, and a translation has at most twice the tokens of the longest text
    of its batch and ten.

    Args:
        model: the model, in eval mode.
        tokenizer: its tokenizer.
        texts: one sentence each; empty ones stay empty.
        beams: hypotheses that are kept at each step; 1 is greedy.
        batch_tokens: source tokens of a batch, padding included.
        progress: show on standard error how far it is.
    """
    translations = [""] * len(texts)
    places = [place for place, text in enumerate(texts) if text.strip()]
    if not places:
        return translations
    limit = longest_source(model, tokenizer)
    said = [texts[place] for place in places]
    ids = token_ids(tokenizer, said, truncation=limit is not None, max_length=limit)
    check_tokens(flattened(ids), tokenizer, processors.embeddings_of(model), "The texts to translate")
    lengths = [len(sequence) for sequence in ids]
    batches = token_batches(lengths, max(batch_tokens, *lengths, 1))
    # The longest first: memory runs out at once or never.
    for batch in shown(batches[::-1], "translating", quiet=not progress):
        found = _beam_search(model, tokenizer, [ids[index] for index in batch], beams)
        for index, text in zip(batch, found, strict=True):
            translations[places[index]] = text
    return translations


def translate_together(model: PreTrainedModel, tokenizer: Any, texts: Sequence[str], **options: Any) -> list[str]:
    """Translates with all processes of a run, each its share; all get all translations."""
    from accelerate import PartialState
    from accelerate.utils import gather_object

    everyone = PartialState()
    count = everyone.num_processes
    mine = translate(model, tokenizer, texts[everyone.process_index :: count], **options)
    shares = [mine] if count == 1 else gather_object([mine])
    together = [""] * len(texts)
    for process, share in enumerate(shares):
        together[process::count] = share
    return together


def longest_source(model: PreTrainedModel, tokenizer: Any) -> int | None:
    """How many tokens of a text the model can read; None if there is no limit."""
    positions = getattr(model.config, "max_position_embeddings", None) or _UNBOUNDED
    limit = min(positions, tokenizer.model_max_length)
    return limit if limit < _UNBOUNDED else None


@torch.no_grad()
def _beam_search(model: Any, tokenizer: Any, ids: list[list[int]], beams: int) -> list[str]:
    inputs = tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(model.device)
    longest = inputs["input_ids"].shape[1]
    room = min(2 * longest + 10, (longest_source(model, tokenizer) or _UNBOUNDED) - 1)
    generated: Any = model.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        num_beams=beams,
        do_sample=False,
        max_new_tokens=room,
        use_cache=True,
    )
    return [text.strip() for text in tokenizer.batch_decode(generated, skip_special_tokens=True)]
