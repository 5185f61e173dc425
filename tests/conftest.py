"""Fixtures: one tiny model of every family, and sets of blocks that probe the corners."""

import copy
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from transformers import PreTrainedModel
from transformers.utils import logging

from families import FAMILIES, tiny
from kheads import Kept, Site
from kheads.blocks.site import ATTENTIONS, spans
from kheads.lab.report.results import Results, read
from synthetic_results import write_sweep

os.environ["HF_HUB_OFFLINE"] = "1"  # for processes that tests start; this one has read it already
constants.HF_HUB_OFFLINE = True
logging.disable_progress_bar()
logging.set_verbosity(50)  # nothing below CRITICAL
# Tests run side by side, one process a core; threads of tiny models would only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
# Some virtual machines announce AMX and do not let it run: torch's bfloat16 then dies of an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

_MODELS: dict[str, PreTrainedModel] = {}


@pytest.fixture
def fresh() -> Callable[[str], Any]:
    """Gives an untouched copy of a family's model at every call."""

    def build(name: str) -> PreTrainedModel:
        if name not in _MODELS:
            _MODELS[name] = tiny(name)
        return copy.deepcopy(_MODELS[name])

    return build


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Every family in turn."""
    return request.param


@pytest.fixture(params=[name for name, family in FAMILIES.items() if family.generates])
def generating_family(request: pytest.FixtureRequest) -> str:
    """Every family that generates text in turn."""
    return request.param


def subsets(sites: tuple[Site, ...], count: int = 4) -> list[Kept]:
    """Sets of blocks: none, all, the first site of each kind emptied, and random ones that leave uneven sites."""
    total = sum(site.count for site in sites)
    masks = [torch.zeros(total), torch.ones(total), torch.ones(total)]
    first = {site.kind == "ffn": site.name for site in reversed(sites)}
    for site, place in spans(sites):
        masks[2][place] = site.name not in first.values()
    for seed in range(count):
        masks.append((torch.rand(total, generator=torch.Generator().manual_seed(seed)) < 0.5).double())
    return [Kept.from_mask(mask, sites) for mask in masks]


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Made-up results of a classification sweep."""
    return read(write_sweep(tmp_path_factory.mktemp("sweep") / "results"))


@pytest.fixture(scope="session")
def translation(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Made-up results of a translation sweep: three kinds of attention."""
    return read(write_sweep(tmp_path_factory.mktemp("translation") / "results", ATTENTIONS, "bleu"))
