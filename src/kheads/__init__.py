"""kheads keeps exactly K attention heads of a Transformer: learn which, remove the rest, save a smaller model."""

from kheads import anatomy, subset
from kheads.adoption import adopt
from kheads.anatomy import UnsupportedModelError, discover
from kheads.checkpoint import CheckpointError, load, save
from kheads.exporting import ExportError, export
from kheads.gates import Gates, attach, detach, gated
from kheads.heads import Constraints, HeadSet, Site, select
from kheads.measurement import Measurement, measure
from kheads.methods import DSP, METHODS, STE, Michel, Random, Retrain, Voita
from kheads.pruning import Plan, PruneResult, prune
from kheads.rebuild import open_attention
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
    "Measurement",
    "Michel",
    "Plan",
    "PruneResult",
    "Random",
    "Retrain",
    "Site",
    "UnsupportedModelError",
    "Voita",
    "adopt",
    "anatomy",
    "attach",
    "detach",
    "discover",
    "export",
    "gated",
    "ghosts",
    "load",
    "measure",
    "open_attention",
    "prune",
    "remove",
    "save",
    "select",
    "subset",
]
