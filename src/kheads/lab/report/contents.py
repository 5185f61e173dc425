"""What a page says, before anyone has decided how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kheads.lab.report.claims import Claims
from kheads.lab.report.drawing import Figure, Table


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it."""

    key: str
    title: str
    items: Sequence[Figure | Table | Claims]
    text: str = ""


@dataclass(frozen=True)
class Page:
    """All that a page says.

    Attributes:
        title: its heading.
        lead: one line under it: what was run.
        findings: what was found, in a sentence or three.
        facts: name and value of what was run, with which versions, on what.
        sections: the rest; those without items are left out.
    """

    title: str
    lead: str
    findings: Sequence[str]
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section] = field(default_factory=tuple)

    def shown(self) -> list[Section]:
        """The sections that have something to show."""
        return [section for section in self.sections if section.items]
