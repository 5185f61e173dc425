"""Attention over short texts that a CPU trains in 16 bits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

SHORT = 128  # tokens; beyond them the fused attention catches up, and the plain one needs much memory


def short_attention(inputs: Mapping[str, Any]) -> AbstractContextManager[None]:
    """What to run a forward in 16 bits under, if gradients are to follow: plain products where they are faster.

    The fused attention of torch's CPU takes ten times as long to go back through 48 tokens in bfloat16 as in float32,
    and four times through 128 (`benchmarks/bench_short_attention.py`). Results differ by rounding alone.
    """
    texts = [value for name in ("input_ids", "labels") if isinstance(value := inputs.get(name), Tensor)]
    lengths = [text.shape[1] for text in texts if text.dim() == 2 and text.device.type == "cpu"]
    return sdpa_kernel(SDPBackend.MATH) if lengths and max(lengths) <= SHORT else nullcontext()
