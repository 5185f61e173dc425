"""What kheads will not touch: attention class -> the sentence that the user reads.

A class may be here and in `LAYOUTS`: the sentence is for those of its instances that no layout describes.
"""

from __future__ import annotations

from collections.abc import Mapping

_HIDDEN_WIDTH = "its forward reshapes the heads to the width of the hidden state, so none can go."
_FUNCTION = "it passes its weights to a function of torch, so no gate can reach the heads."
_SHARED = "later layers reuse the keys and values of earlier ones, so heads would have to go from all of them together."
_SPARSE = "block-sparse attention draws random blocks for each head and rebuilds itself for short inputs"

REFUSED: Mapping[str, str] = {
    "MultiheadAttention": (
        "it calls no output projection that could be gated; `kheads.open_attention(model)` replaces it by an equal one."
    ),
    "BitNetAttention": "a norm lies between the heads and the output projection, so gating is not removal.",
    "KosmosTextAttention": "a norm may lie between the heads and the output projection, so gating is not removal.",
    "WavLMAttention": _FUNCTION,
    "LongformerSelfAttention": _HIDDEN_WIDTH,
    "LEDEncoderSelfAttention": _HIDDEN_WIDTH,
    "ProphetNetAttention": _HIDDEN_WIDTH,
    "ProphetNetNgramSelfAttention": _HIDDEN_WIDTH,
    "TrOCRAttention": _HIDDEN_WIDTH,
    "BlipAttention": _HIDDEN_WIDTH,
    "Blip2Attention": _HIDDEN_WIDTH,
    "InstructBlipAttention": _HIDDEN_WIDTH,
    "GroupViTAttention": _HIDDEN_WIDTH,
    "TableTransformerAttention": _HIDDEN_WIDTH,
    "BigBirdAttention": f'{_SPARSE}; set `attention_type="original_full"` in its config.',
    "BigBirdPegasusEncoderAttention": f"{_SPARSE}.",
    "CodeGenAttention": "its queries, values and keys lie in interleaved slices that every head shares.",
    "DebertaAttention": "with `talking_head` the heads are mixed with each other before the output projection.",
    "XLNetRelativeAttention": "it has no output projection that could be gated.",
    "ConvBertAttention": "its queries feed a convolution too, and the heads are only half of what the output sees.",
    "Gemma3nTextAttention": _SHARED,
    "Gemma4TextAttention": _SHARED,
    "BloomAttention": "with `pretraining_tp` above 1 and `slow_but_exact` it bypasses its output projection.",
    "GPTBigCodeAttention": "its cross-attention is not supported.",
}

# Classes that look like attention by their name and have no heads before an output projection.
NOT_SITES = frozenset(
    {
        "DetrMHAttentionMap",  # maps of attention, for segmentation
        "Wav2Vec2AttnAdapterLayer",  # adapters
        "HubertAttnAdapterLayer",
        "UniSpeechAttnAdapterLayer",
        "UniSpeechSatAttnAdapterLayer",
        "FunnelAttentionStructure",
    }
)
