"""kheads keeps exactly K attention heads of a Transformer: learn which, remove the rest, save a smaller model."""

from kheads import anatomy, subset
from kheads.anatomy import UnsupportedModelError, discover
from kheads.checkpoint import CheckpointError, load, save
from kheads.exporting import ExportError, export
from kheads.gates import Gates, attach, detach, gated
from kheads.heads import Constraints, HeadSet, Site, select
from kheads.surgery import ghosts, remove

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "Constraints",
    "ExportError",
    "Gates",
    "HeadSet",
    "Site",
    "UnsupportedModelError",
    "anatomy",
    "attach",
    "detach",
    "discover",
    "export",
    "gated",
    "ghosts",
    "load",
    "remove",
    "save",
    "select",
    "subset",
]
