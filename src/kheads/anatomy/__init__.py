"""Where the heads and neurons of a model are: layouts as data, and `discover`."""

from kheads.anatomy.discovery import (
    LocatedSite,
    UnsupportedModelError,
    in_forward_order,
    is_gated,
    locate,
    locate_feeds,
    parts_named,
    unknown,
)
from kheads.anatomy.feed_forwards import FEEDS, MIXTURES, REFUSED_FEEDS
from kheads.anatomy.layout import IndexedArgument, Layout, OwnTable, Plan, rows
from kheads.anatomy.sizes import discover
from kheads.anatomy.streams import NO_STREAM, STREAMS, Flow, Stream, flow
from kheads.anatomy.structure import guesses
from kheads.anatomy.table import LAYOUTS, REFUSED, TYPES
from kheads.blocks.site import unwrap

__all__ = [
    "FEEDS",
    "LAYOUTS",
    "MIXTURES",
    "NO_STREAM",
    "REFUSED",
    "REFUSED_FEEDS",
    "STREAMS",
    "TYPES",
    "Flow",
    "IndexedArgument",
    "Layout",
    "LocatedSite",
    "OwnTable",
    "Plan",
    "Stream",
    "UnsupportedModelError",
    "discover",
    "flow",
    "guesses",
    "in_forward_order",
    "is_gated",
    "locate",
    "locate_feeds",
    "parts_named",
    "rows",
    "unknown",
    "unwrap",
]
