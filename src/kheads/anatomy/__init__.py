"""Where the heads of a model are: layouts as data, and `discover`."""

from kheads.anatomy.discovery import (
    LocatedSite,
    UnsupportedModelError,
    discover,
    is_gated,
    locate,
    unknown,
)
from kheads.anatomy.layout import IndexedArgument, Layout, OwnTable, Plan, rows
from kheads.anatomy.structure import guesses
from kheads.anatomy.table import LAYOUTS, REFUSED, TYPES
from kheads.blocks.site import unwrap

__all__ = [
    "LAYOUTS",
    "REFUSED",
    "TYPES",
    "IndexedArgument",
    "Layout",
    "LocatedSite",
    "OwnTable",
    "Plan",
    "UnsupportedModelError",
    "discover",
    "guesses",
    "is_gated",
    "locate",
    "rows",
    "unknown",
    "unwrap",
]
