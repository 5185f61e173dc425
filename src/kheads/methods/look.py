"""How the runs of a method look in figures and tables. Needs nothing, so that a report can read it at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """A name, a colour, a marker and a dash.

    Attributes:
        label: the name in legends and tables.
        slot: an index into the report's palette; None takes an entry that no other method has.
        marker: "circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon" or "cross", filled, or hollow
            with "-open" behind it; "" for none.
        dash: "solid", "dash", "dot" or "dashdot".
        colour: a colour of its own, "#rrggbb"; it wins over the slot.
    """

    label: str
    slot: int | None = None
    marker: str = "circle"
    dash: str = "solid"
    colour: str | None = None
