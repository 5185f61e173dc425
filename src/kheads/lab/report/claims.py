"""The paper's claims, each with our number, its interval and a verdict. Nothing here is asserted: all is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kheads.lab.report.claims_efficiency import efficiency_claims
from kheads.lab.report.claims_heads import head_claims
from kheads.lab.report.claims_quality import quality_claims
from kheads.lab.report.drawing import Table
from kheads.lab.report.results import Results
from kheads.lab.report.verdicts import VERDICTS, Claim

GROUPS: tuple[Callable[[Results], list[Claim]], ...] = (quality_claims, head_claims, efficiency_claims)


@dataclass(frozen=True)
class Claims:
    """All claims, and how many came out how."""

    claims: Sequence[Claim]

    def counts(self) -> list[tuple[str, int]]:
        """Each verdict with its number of claims."""
        return [(verdict, sum(claim.verdict == verdict for claim in self.claims)) for verdict in VERDICTS]

    def table(self) -> Table:
        """The claims as rows."""
        columns = ("Claim of the paper", "Ours", "95 % interval", "Verdict", "Why")
        rows = [(claim.paper, claim.ours, claim.interval, claim.verdict, claim.why) for claim in self.claims]
        return Table("claims", "Claims", columns, rows)


def all_claims(results: Results) -> Claims:
    """Every claim that the paper makes of its experiments, judged by these results."""
    return Claims([claim for group in GROUPS for claim in group(results)])
