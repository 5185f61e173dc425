"""kheads makes a Transformer smaller by an amount you name: learn which heads matter, remove the rest, save the model.

Public names are loaded when they are first used, so that importing kheads costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kheads import anatomy, subset
    from kheads.anatomy import UnsupportedModelError, discover
    from kheads.blocks.budget import Budget
    from kheads.blocks.constraints import Constraints
    from kheads.blocks.costs import Costs
    from kheads.blocks.kept import Kept
    from kheads.blocks.selection import select
    from kheads.blocks.site import Site
    from kheads.measuring.measurement import Measurement, measure
    from kheads.measuring.pricing import price
    from kheads.methods.base import Estimated, Evidence, Goal, Learned, Method, Moment
    from kheads.methods.dsp import DSP
    from kheads.methods.look import Look
    from kheads.methods.michel import Michel
    from kheads.methods.random import Random
    from kheads.methods.registry import METHODS
    from kheads.methods.retrain import Retrain
    from kheads.methods.ste import STE
    from kheads.methods.surgeon import Surgeon
    from kheads.methods.voita import Voita
    from kheads.storage.contents import CheckpointError
    from kheads.storage.export.exporting import ExportError, export
    from kheads.storage.model_folder import load, save
    from kheads.surgery.adoption import adopt
    from kheads.surgery.gates import gated
    from kheads.surgery.rebuild import open_attention
    from kheads.surgery.removal import ghosts, remove
    from kheads.surgery.repair.record import Repair, RepairedSite
    from kheads.surgery.repair.refit import repair
    from kheads.training.distillation import Distillation
    from kheads.training.loop import Pruner, attach
    from kheads.training.plan import Plan
    from kheads.training.pruning import prune
    from kheads.training.result import PruneResult
    from kheads.training.trainer import GatedSeq2SeqTrainer, GatedTrainer

__version__ = "0.1.0"

# Where each public name lives; modules stand for themselves.
_HOMES = {
    "anatomy": "discover UnsupportedModelError",
    "blocks.budget": "Budget",
    "blocks.constraints": "Constraints",
    "blocks.costs": "Costs",
    "blocks.kept": "Kept",
    "blocks.selection": "select",
    "blocks.site": "Site",
    "measuring.measurement": "Measurement measure",
    "measuring.pricing": "price",
    "methods.base": "Estimated Evidence Goal Learned Method Moment",
    "methods.dsp": "DSP",
    "methods.look": "Look",
    "methods.michel": "Michel",
    "methods.random": "Random",
    "methods.registry": "METHODS",
    "methods.retrain": "Retrain",
    "methods.ste": "STE",
    "methods.surgeon": "Surgeon",
    "methods.voita": "Voita",
    "storage.contents": "CheckpointError",
    "storage.export.exporting": "ExportError export",
    "storage.model_folder": "load save",
    "surgery.adoption": "adopt",
    "surgery.gates": "gated",
    "surgery.rebuild": "open_attention",
    "surgery.removal": "ghosts remove",
    "surgery.repair.record": "Repair RepairedSite",
    "surgery.repair.refit": "repair",
    "training.distillation": "Distillation",
    "training.loop": "Pruner attach",
    "training.plan": "Plan",
    "training.pruning": "prune",
    "training.result": "PruneResult",
    "training.trainer": "GatedSeq2SeqTrainer GatedTrainer",
}
_MODULES = {name: f"kheads.{home}" for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "DSP",
    "METHODS",
    "STE",
    "Budget",
    "CheckpointError",
    "Constraints",
    "Costs",
    "Distillation",
    "Estimated",
    "Evidence",
    "ExportError",
    "GatedSeq2SeqTrainer",
    "GatedTrainer",
    "Goal",
    "Kept",
    "Learned",
    "Look",
    "Measurement",
    "Method",
    "Michel",
    "Moment",
    "Plan",
    "PruneResult",
    "Pruner",
    "Random",
    "Repair",
    "RepairedSite",
    "Retrain",
    "Site",
    "Surgeon",
    "UnsupportedModelError",
    "Voita",
    "adopt",
    "anatomy",
    "attach",
    "discover",
    "export",
    "gated",
    "ghosts",
    "load",
    "measure",
    "open_attention",
    "price",
    "prune",
    "remove",
    "repair",
    "save",
    "select",
    "subset",
]


def __getattr__(name: str) -> Any:
    """Loads a public name, or a folder of the package, when it is first used."""
    if name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
    elif name in ("anatomy", "subset"):
        value = importlib.import_module(f"kheads.{name}")
    else:
        raise AttributeError(f"module 'kheads' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
