"""Options that say what a selection must honour besides K."""

from __future__ import annotations

from typing import Annotated, Any

import typer

PANEL = "What to keep"

MinPerSiteOption = Annotated[
    int | None, typer.Option(help="Keep at least so many heads in every site.", rich_help_panel=PANEL)
]
UniformOption = Annotated[
    bool, typer.Option("--uniform", help="Keep the same number of heads in every site.", rich_help_panel=PANEL)
]
ProtectOption = Annotated[
    list[str] | None,
    typer.Option(metavar="SITE:HEAD", help="Keep this head whatever its score; several times.", rich_help_panel=PANEL),
]
QuotaOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND=N",
        help="Keep exactly N heads of a kind: encoder, decoder or cross; several times.",
        rich_help_panel=PANEL,
    ),
]


def as_constraints(
    min_per_site: int | None, uniform: bool, protect: list[str] | None, quota: list[str] | None
) -> dict[str, Any]:
    """The fields of `Constraints` that were asked for."""
    fields = {
        "min_per_site": min_per_site,
        "uniform": uniform,
        "protected": _protected(protect or []),
        "quotas": _quotas(quota or []),
    }
    return {name: value for name, value in fields.items() if value}


def _protected(given: list[str]) -> dict[str, list[int]]:
    heads: dict[str, list[int]] = {}
    for text in given:
        site, _, head = text.rpartition(":")
        if not site or not head.isdecimal():
            raise ValueError(
                f"`--protect` must be SITE:HEAD, such as encoder.layer.0.attention:3; got {text!r}. "
                "`kheads heads MODEL --json` lists the sites."
            )
        heads.setdefault(site, []).append(int(head))
    return heads


def _quotas(given: list[str]) -> dict[str, int]:
    quotas: dict[str, int] = {}
    for text in given:
        kind, _, count = text.partition("=")
        if not kind or not count.isdecimal():
            raise ValueError(f"`--quota` must be KIND=N, such as cross=8; got {text!r}.")
        if kind in quotas:
            raise ValueError(f"`--quota` names the kind {kind!r} twice; give one number.")
        quotas[kind] = int(count)
    return quotas
