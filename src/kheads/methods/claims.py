"""What is claimed of the methods, as plain data: the paper's claims, its tables, and one claim of our own.

A series is named by the key of its look. Each claim names the test that decides it; the tests are the report's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        test: what decides it, by the name that the report has for the test.
        says: the claim in one sentence.
        where: the section of the paper; empty for a claim of our own.
        series: which runs it is about.
        against: which runs they are compared with.
        named: the name of `series` in a sentence.
        below: only with less than this share of the heads; None for any number of them.
    """

    test: str
    says: str
    where: str = ""
    series: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    named: str = ""
    below: float | None = None

    @property
    def source(self) -> str:
        """Who says so."""
        return f"the paper, {self.where}" if self.where else "ours"


def _joint(test: str, says: str, where: str, below: float | None = None) -> Claim:
    return Claim(test, says, where, ("dsp",), named="joint DSP", below=below)


CLAIMS = (
    Claim("better", "Pipelined DSP is better than Michel.", "§5.1", ("dsp-pipelined",), ("michel",)),
    Claim("better", "Joint DSP is better than pipelined DSP.", "§5.3", ("dsp",), ("dsp-pipelined",)),
    Claim(
        "better",
        "Joint methods (DSP, STE, Voita) are better than pipelined ones (DSP, Michel) on average.",
        "§5.3",
        ("dsp", "ste", "voita"),
        ("dsp-pipelined", "michel"),
    ),
    Claim(
        "better",
        "With less than 1/6 of the heads, joint DSP is better than Voita.",
        "§5.2",
        ("dsp",),
        ("voita",),
        below=1 / 6,
    ),
    Claim(
        "better",
        "With less than 1/6 of the heads, joint DSP is better than STE.",
        "§5.2",
        ("dsp",),
        ("ste",),
        below=1 / 6,
    ),
    Claim("better", "Joint DSP is better than prune-and-retrain in as many steps.", "", ("dsp",), ("retrain",)),
    Claim("rises", "The number of heads does not fall monotonically as λ grows.", "§5.2", ("voita",)),
    Claim("bounded", "However small λ is, not all heads are kept (117 of 144 in the paper).", "§5.2", ("voita",)),
    _joint("top first", "The top layers (the last quarter) are pruned first.", "§5.5"),
    _joint("middle last", "The middle layers (the paper's layers 3 to 7 of 12) are mostly retained.", "§5.5"),
    _joint("cross last", "Cross-attention heads are retained more than self-attention heads.", "§5.5"),
    _joint(
        "no encoder", "With less than 16 of 72 heads, no self-attention head of the encoder is left.", "§5.5", 16 / 72
    ),
    _joint("settles", "With annealing, the chosen subset settles during training.", "§5.6"),
    _joint("unsettled", "Without annealing, it does not settle.", "§5.6"),
    Claim("faster", "Inference gets faster with every head fewer.", "§5.4"),
    Claim("placement", "Speed hardly depends on where the heads are.", "§5.4"),
    _joint("overhead", "Learning the gates jointly costs hardly any time.", "§5.3"),
)

# Series whose heads are drawn by lot: where these lie says nothing about a method.
BY_LOT = ("random",)

# The columns of the paper's Table 3, which lies in `paper/`.
PAPER_COLUMNS = {
    "michel": "Michel",
    "dsp-pipelined": "Pipelined DSP",
    "voita": "Voita",
    "ste": "STE",
    "dsp": "Joint DSP",
}
