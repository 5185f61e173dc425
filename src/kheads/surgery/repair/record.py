"""What a repair did, site by site."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RepairedSite:
    """What a repair did to one site. Errors are shares of what the site should give, as root mean squares.

    Attributes:
        name: path of the site's module.
        target: "stream" (the original's residual stream after the site) or "output" (the original's own output).
        ridge: how strongly the old weights held, chosen on held-out rows; None if the site was left as it was.
        before: error on all rows before the repair.
        after: error on all rows after it.
        held_out_before: error on the held-out rows before.
        held_out_after: error on the held-out rows, by weights fitted without them.
        why: why it was left as it was, or why its target is not the stream.
    """

    name: str
    target: str
    ridge: float | None = None
    before: float = 0.0
    after: float = 0.0
    held_out_before: float = 0.0
    held_out_after: float = 0.0
    why: str = ""


@dataclass(frozen=True, repr=False)
class Repair:
    """What `kheads.repair` did.

    Attributes:
        sites: one record for each site, in the order in which they run.
        tokens: how many tokens of the batches counted at the first site, padding left out.
        seconds: how long it took.
    """

    sites: tuple[RepairedSite, ...]
    tokens: int
    seconds: float

    @property
    def refitted(self) -> tuple[str, ...]:
        """The sites that have new weights."""
        return tuple(site.name for site in self.sites if site.ridge is not None)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Why sites were left as they were or were not fitted to the stream: one sentence a reason."""
        reasons: dict[tuple[str, bool], list[str]] = {}
        for site in self.sites:
            if site.why:
                reasons.setdefault((site.why, site.ridge is None), []).append(site.name)
        return tuple(_sentence(why, left, names) for (why, left), names in reasons.items())

    def __repr__(self) -> str:
        fitted = [site for site in self.sites if site.ridge is not None]
        error = ""
        if fitted:
            before, after = (sum(getattr(site, name) for site in fitted) / len(fitted) for name in ("before", "after"))
            error = f"mean error {before:.3f} -> {after:.3f}, "
        return f"Repair({len(fitted)} of {len(self.sites)} sites refitted, {error}{self.seconds:.1f} s)"


def _sentence(why: str, left: bool, names: list[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{'Left as it was' if left else 'Fitted to its own output'} ({shown}): {why}."
