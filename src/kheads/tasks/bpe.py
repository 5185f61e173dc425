"""One byte-level BPE for both languages, as a tokenizer that transformers saves and loads by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, START, END = "<pad>", "<s>", "</s>"
VOCABULARY = 10_000  # the paper's joint BPE
_BYTES = 256


def train_bpe(texts: Iterable[str], vocab_size: int = VOCABULARY, max_length: int = 512) -> PreTrainedTokenizerFast:
    """Learns a vocabulary from the texts of both languages.

    Bytes are its alphabet, so there is no unknown word and any text comes back as it was, up to white space at its
    ends. Every sequence ends with `</s>`; a decoder starts from `<s>`.

    Args:
        texts: sentences of both languages.
        vocab_size: entries, the bytes and three special ones included; fewer if the texts have no more pairs to merge.
        max_length: what longer texts are cut to when truncation is asked for.
    """
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, int) or vocab_size < _BYTES + 3:
        raise ValueError(
            f"`vocab_size` must be an integer from {_BYTES + 3} up (every byte is in it); got {vocab_size!r}."
        )
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    # A space before the first word makes it the same word as inside a sentence.
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A $B {END}", special_tokens=[(END, bpe.token_to_id(END))]
    )
    make: Any = PreTrainedTokenizerFast  # its constructor has no types
    tokenizer: PreTrainedTokenizerFast = make(
        tokenizer_object=bpe,
        pad_token=PAD,
        bos_token=START,
        eos_token=END,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )
    return tokenizer
