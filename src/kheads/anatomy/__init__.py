"""Where the heads of a model are: layouts as data, and `discover`."""

from kheads.anatomy.discovery import LocatedSite, UnsupportedModelError, discover, is_gated, locate, unwrap
from kheads.anatomy.layout import IndexedArgument, Layout, OwnTable, Plan, rows
from kheads.anatomy.table import LAYOUTS, REFUSED

__all__ = [
    "LAYOUTS",
    "REFUSED",
    "IndexedArgument",
    "Layout",
    "LocatedSite",
    "OwnTable",
    "Plan",
    "UnsupportedModelError",
    "discover",
    "is_gated",
    "locate",
    "rows",
    "unwrap",
]
