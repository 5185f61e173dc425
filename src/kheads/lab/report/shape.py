"""What a record must look like to be reported; one that is damaged is refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# A type; a list of one shape for lists of it; a mapping of names to shapes, in which a name with ? may be missing; or
# {EACH: shape} for a mapping of any names.
Shape = Any
EACH = "*"
NUMBER = (int, float)
MODEL = {"heads": int, "parameters": NUMBER, "sites?": [{"name": str, "kind": str, "count": int}]}

RECORD: Shape = {
    "method": {"name": str},
    "metric": str,
    "metrics": {EACH: {EACH: {EACH: (int, float, str, type(None))}}},
    "kept": {EACH: [int]},
    "before": MODEL,
    "after": MODEL,
    "settings?": dict,
    "scores?": [NUMBER],
    "history?": {EACH: [dict]},
    "look?": {"key": str, "label": str, "rank": NUMBER},
    "report?": {"seconds?": {EACH: NUMBER}, "method?": dict, "extra_gradients?": (int, float, type(None))},
    "versions?": {EACH: str},
    "machine?": dict,
    "run?": {"axes?": dict},
}
EFFICIENCY: Shape = {
    "heads": int,
    "batch": int,
    "length": int,
    "rows": [{"k": int, "placement": str}],
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
        yield f"`{at}` may not be {type(found).__name__}"
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
            yield f"`{before}{name}` is missing"
