"""kheads keeps exactly K attention heads of a Transformer: learn which, remove the rest, save a smaller model."""

from kheads import anatomy, subset
from kheads.anatomy import UnsupportedModelError, discover
from kheads.blocks.constraints import Constraints
from kheads.blocks.kept import Kept
from kheads.blocks.selection import select
from kheads.blocks.site import Site
from kheads.measuring.measurement import Measurement, measure
from kheads.methods import DSP, METHODS, STE, Michel, Random, Retrain, Voita
from kheads.storage.export.hub import ExportError, export
from kheads.storage.model_folder import CheckpointError, load, save
from kheads.surgery.adoption import adopt
from kheads.surgery.gates import Gates, attach, detach, gated
from kheads.surgery.rebuild import open_attention
from kheads.surgery.removal import ghosts, remove
from kheads.training.pruning import Plan, PruneResult, prune
from kheads.training.trainer import GatedSeq2SeqTrainer, GatedTrainer

__version__ = "0.1.0"

__all__ = [
    "DSP",
    "METHODS",
    "STE",
    "CheckpointError",
    "Constraints",
    "ExportError",
    "GatedSeq2SeqTrainer",
    "GatedTrainer",
    "Gates",
    "Kept",
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
