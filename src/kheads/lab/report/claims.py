"""The claims, each with our number, its interval and a verdict. Nothing here is asserted: all is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kheads.lab.report import claims_efficiency, claims_heads, claims_quality
from kheads.lab.report.drawing import Table
from kheads.lab.report.results import Results
from kheads.lab.report.verdicts import VERDICTS, Finding
from kheads.methods.claims import CLAIMS, Claim

# How each kind of claim is judged, by the name that claims have for it.
TESTS: Mapping[str, Callable[[Results, Claim], Finding]] = {
    "better": claims_quality.better,
    "rises": claims_heads.rises,
    "bounded": claims_heads.bounded,
    "top first": claims_heads.top_first,
    "middle last": claims_heads.middle_last,
    "cross last": claims_heads.cross_last,
    "no encoder": claims_heads.no_encoder,
    "settles": claims_heads.settles,
    "unsettled": claims_heads.unsettled,
    "faster": claims_efficiency.faster,
    "placement": claims_efficiency.placement,
    "overhead": claims_efficiency.overhead,
}


@dataclass(frozen=True)
class Claims:
    """What the results say of every claim."""

    findings: Sequence[Finding]

    @property
    def with_data(self) -> list[Finding]:
        """Those that these results say something of."""
        return [finding for finding in self.findings if finding.has_data]

    @property
    def without_data(self) -> list[Finding]:
        """The others."""
        return [finding for finding in self.findings if not finding.has_data]

    def counts(self) -> list[tuple[str, int]]:
        """Each verdict with its number of claims."""
        return [(verdict, sum(finding.verdict == verdict for finding in self.findings)) for verdict in VERDICTS]

    def table(self) -> Table:
        """The claims as rows."""
        columns = ("Claim", "Source", "Ours", "Interval", "Verdict", "Why")
        rows = [
            (found.claim.says, found.claim.source, found.ours, found.interval, found.verdict, found.why)
            for found in self.findings
        ]
        return Table("claims", "Claims", columns, rows)


def all_claims(results: Results) -> Claims:
    """Every claim, judged by these results."""
    return Claims([TESTS[claim.test](results, claim) for claim in CLAIMS])
