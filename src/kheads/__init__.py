"""kheads keeps exactly K attention heads of a Transformer: learn which, remove the rest, save a smaller model."""

from kheads import anatomy, subset
from kheads.anatomy import UnsupportedModelError, discover
from kheads.checkpoint import CheckpointError, load, save
from kheads.exporting import ExportError, export
from kheads.gates import Gates, attach, detach, gated
from kheads.heads import Constraints, HeadSet, Site, select
from kheads.methods import DSP, METHODS, STE, Michel, Random, Voita
from kheads.pruning import Plan, PruneResult, prune
from kheads.surgery import ghosts, remove
from kheads.training import HeadSeq2SeqTrainer, HeadTrainer

__version__ = "0.1.0"

__all__ = [
    "DSP",
    "METHODS",
    "STE",
    "CheckpointError",
    "Constraints",
    "ExportError",
    "Gates",
    "HeadSeq2SeqTrainer",
    "HeadSet",
    "HeadTrainer",
    "Michel",
    "Plan",
    "PruneResult",
    "Random",
    "Site",
    "UnsupportedModelError",
    "Voita",
    "anatomy",
    "attach",
    "detach",
    "discover",
    "export",
    "gated",
    "ghosts",
    "load",
    "prune",
    "remove",
    "save",
    "select",
    "subset",
]
