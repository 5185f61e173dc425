"""The methods: the paper's five and the baseline to beat. File, class and command-line key have the same name."""

from kheads.methods.base import Estimated, Goal, Learned, Method, Moment, as_steps
from kheads.methods.dsp import DSP
from kheads.methods.michel import Michel
from kheads.methods.random import Random
from kheads.methods.retrain import Retrain
from kheads.methods.ste import STE
from kheads.methods.voita import Voita

METHODS: dict[str, type[Method]] = {
    "dsp": DSP,
    "ste": STE,
    "voita": Voita,
    "michel": Michel,
    "retrain": Retrain,
    "random": Random,
}

__all__ = [
    "DSP",
    "METHODS",
    "STE",
    "Estimated",
    "Goal",
    "Learned",
    "Method",
    "Michel",
    "Moment",
    "Random",
    "Retrain",
    "Voita",
    "as_steps",
]
