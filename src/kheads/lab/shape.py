"""What a record must look like to be reported; one that is damaged is refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# A type; a list of one shape for lists of it; a mapping of names to shapes, in which a name with ? may be missing; or
# {EACH: shape} for a mapping of any names.
Shape = Any
EACH = "*"
NUMBER = (int, float)
NUMBER_OR_NONE = (int, float, type(None))
WHOLE_OR_NONE = (int, type(None))
TYPES = {int: "a whole number", float: "a number", str: "text", dict: "a table", type(None): "null"}
MODEL = {
    "heads": int,
    "neurons?": int,
    "parameters": NUMBER,
    "sites?": [{"name": str, "kind": str, "count": int}],
}

MEASURED = tuple(f"{name}?" for name in ("ms", "speedup", "shrinkage", "parameters", "limit", "low", "high"))
METRICS = {EACH: {EACH: {EACH: (int, float, str, type(None))}}}
AMOUNTS = dict.fromkeys(("speedup?", "smaller?", "flops?", "max_ms?"), NUMBER_OR_NONE)
SETTINGS = {"k?": WHOLE_OR_NONE, **AMOUNTS, "seed?": int, "method?": str, "method_options?": dict}
# What was asked for and what the smaller model was found to have; of a time with its interval.
BUDGET = {
    "asked?": dict,
    "reached?": {"value": NUMBER, "low?": NUMBER_OR_NONE, "high?": NUMBER_OR_NONE},
    "speedup?": (dict, type(None)),
}
# What the sweep itself says of a run.
RUN = {
    "state?": str,
    "axes?": dict,
    "k?": WHOLE_OR_NONE,
    "seed?": WHOLE_OR_NONE,
    "reason?": (str, type(None)),
    "seconds?": NUMBER,
}

RECORD: Shape = {
    "method": {"name": str},
    "metric": str,
    "metrics": METRICS,
    "kept": {EACH: [int]},
    "before": MODEL,
    "after": MODEL,
    "settings?": SETTINGS,
    "scores?": [NUMBER_OR_NONE],
    "history?": {EACH: [dict]},
    "look?": {"key": str, "label": str, "rank": NUMBER},
    "report?": {
        "seconds?": {EACH: NUMBER},
        "method?": dict,
        "extra_gradients?": NUMBER_OR_NONE,
        "budget?": BUDGET,
    },
    "versions?": {EACH: str},
    "machine?": dict,
    "run?": RUN,
}
# A run in the folder of a sweep: all that another sweep needs of it.
STORED: Shape = {
    "run": {**RUN, "state": str, "seconds": NUMBER},
    "settings": SETTINGS,
    "metrics?": METRICS,
    "scores?": [NUMBER_OR_NONE],
}
EFFICIENCY: Shape = {
    "heads": int,
    "batch": int,
    "length": int,
    "rows": [{"k": int, "placement": str, **dict.fromkeys(MEASURED, NUMBER_OR_NONE)}],
    "no_attention?": (dict, type(None)),
}


def check(found: Any, shape: Shape, name: str) -> None:
    """Raises if something does not have its shape.

    Args:
        found: what was read.
        shape: how it must look.
        name: what it is, for the message.
    """
    for flaw in _flaws(found, shape, ""):
        raise ValueError(f"{name} is damaged, or of another version of kheads: {flaw}.")


def _flaws(found: Any, shape: Shape, at: str) -> Iterator[str]:
    kind: Any = Mapping if isinstance(shape, Mapping) else list if isinstance(shape, list) else shape
    if not isinstance(found, kind) or isinstance(found, bool):
        yield f"{at or 'it'} must be {_words(shape)}"
    elif isinstance(shape, Mapping):
        yield from _in_mapping(found, shape, f"{at}." if at else "")
    elif isinstance(shape, list):
        for value in found:
            yield from _flaws(value, shape[0], at)


def _in_mapping(found: Mapping[str, Any], shape: Mapping[str, Shape], before: str) -> Iterator[str]:
    if EACH in shape:
        shape = dict.fromkeys(found, shape[EACH])
    for wanted, inner in shape.items():
        name = wanted.removesuffix("?")
        if name in found:
            yield from _flaws(found[name], inner, before + name)
        elif name == wanted:
            yield f"{before}{name} is missing"


def _words(shape: Shape) -> str:
    """What a shape is, in words."""
    if isinstance(shape, (Mapping, list)):
        return "a table" if isinstance(shape, Mapping) else "a list"
    kinds = shape if isinstance(shape, tuple) else (shape,)
    return " or ".join(TYPES[kind] for kind in kinds)
