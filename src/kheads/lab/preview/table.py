"""The table of a preview: the unpruned model, every budget, and the limits; and how speed was measured."""

from __future__ import annotations

from kheads.lab.preview.amounts import WORDINGS, in_short
from kheads.lab.preview.found import Limit, Point, Preview
from kheads.lab.preview.judged import rounded, value_told
from kheads.measuring.timing import Ratio

NOTHING = "-"
BRIEF = ("size", "repaired", "speed-up")  # where two tables stand side by side
COUNTED = {"heads": "heads", "ffn": "neurons"}  # what the share of is shown, where it is one number
ABOVE = {**COUNTED, "all": "all"}
ONLY = {"heads": "heads only", "ffn": "neurons only", "all": "heads and neurons"}
WITHOUT = {"heads": "without any head", "ffn": "without any neuron", "all": "without any head or neuron"}


def columns(preview: Preview, digits: bool = False) -> tuple[str, ...]:
    """The names of the columns of `rows`."""
    first, names = WORDINGS[preview.kind].column, _names(preview, digits)
    if len(preview.parts) == 1:
        return (first, *names)
    above = ONLY if digits else ABOVE
    return (first, *(f"{above[parts]}: {name}" for parts in preview.parts for name in names))


def rows(preview: Preview, digits: bool = False) -> list[tuple[str, ...]]:
    """The unpruned model, every budget, and the limits: what is left without any block.

    Args:
        preview: what each budget gives.
        digits: write numbers of parameters in full, and speed with its interval, where there is room.
    """
    whole, least = (f"{preview.heads} (all)", "0 (limit)") if preview.kind == "heads" else ("unpruned", "limit")
    lines = [
        (whole, [_whole(preview, digits)] * len(preview.parts)),
        *(
            (in_short(budget), [_of(preview, preview.at(budget, parts), digits) for parts in preview.parts])
            for budget in preview.budgets
        ),
        (least, [_without(preview, limit, digits) for limit in preview.limits]),
    ]
    names = _names(preview, digits)
    return [(start, *(cells.get(name, NOTHING) for cells in found for name in names)) for start, found in lines]


def limits(preview: Preview) -> str:
    """What the last line of the table is."""
    told = ", and ".join(WITHOUT[parts] for parts in preview.parts)
    what = "limits are" if len(preview.parts) > 1 else "limit is"
    return f"The {what} the model {told}: but for noise, no {WORDINGS[preview.kind].noun} gives more."


def timing(preview: Preview) -> str:
    """How speed was measured; nothing where it was not."""
    how = preview.timing
    if how is None:
        return ""
    batch, length, threads = (how[name] for name in ("batch", "length", "threads"))
    shape = f"batches of {batch}" + (f" x {length} tokens" if length > 1 else "")
    rounds = f"{how['repeats']} rounds, {threads} thread{'s'[: threads != 1]}, {how['device']}"
    undecided = any(point.speedup and point.speedup.undecided for point in preview.points)
    doubt = " A question mark: the 95 % interval includes 1, and no difference was measured." if undecided else ""
    return f"Speed-up: median of paired ratios; {shape}, {rounds}.{doubt}"


def _names(preview: Preview, digits: bool) -> tuple[str, ...]:
    """What is shown of each of the parts."""
    alone = len(preview.parts) == 1
    if not alone and not digits:
        return BRIEF
    share = [COUNTED[parts] for parts in preview.parts if alone and parts in COUNTED]
    return (*share, "parameters", "cut", "repaired", _worse(preview), "speed-up")


def _worse(preview: Preview) -> str:
    return "% worse" if preview.lower_is_better else "points below"


def _whole(preview: Preview, digits: bool) -> dict[str, str]:
    """The cells of the unpruned model by the names of their columns."""
    speed = "1x" if preview.timing else NOTHING
    quality = {"repaired": value_told(preview, preview.unpruned), "speed-up": speed}
    return {"heads": "100 %", "neurons": "100 %", **_size(preview, preview.parameters, digits), **quality}


def _of(preview: Preview, point: Point | None, digits: bool) -> dict[str, str]:
    """The cells of a point; none where the budget cannot be met."""
    if point is None:
        return {}
    return {
        **{name: _share(getattr(point, name), getattr(preview, name)) for name in COUNTED.values()},
        **_size(preview, point.parameters, digits),
        "cut": value_told(preview, point.cut),
        "repaired": value_told(preview, point.repaired),
        _worse(preview): f"{rounded(preview.worse(point)):.2f}",
        "speed-up": _speed(point.speedup, digits),
    }


def _without(preview: Preview, limit: Limit, digits: bool) -> dict[str, str]:
    """The cells of a limit."""
    sizes = _size(preview, limit.parameters, digits)
    return {"heads": "0 %", "neurons": "0 %", **sizes, "speed-up": _speed(limit.speedup, digits)}


def _share(count: int | None, whole: int | None) -> str:
    return NOTHING if count is None or not whole else f"{100 * count / whole:.0f} %"


def _size(preview: Preview, parameters: int, digits: bool) -> dict[str, str]:
    """How many parameters there are, and how many fewer than in the whole model."""
    count, saved = f"{parameters:,}" if digits else short(parameters), 100 * (1 - parameters / preview.parameters)
    fewer = "" if parameters == preview.parameters else f" (-{saved:.{int(digits)}f} %)"
    return {"size": short(parameters), "parameters": f"{count}{fewer}"}


def _speed(ratio: Ratio | None, digits: bool) -> str:
    """How many times as fast, with a question mark where that may be chance."""
    if ratio is None:
        return NOTHING
    interval = f" ({ratio.low:.2f} to {ratio.high:.2f})" if digits else ""
    return f"{ratio.ratio:.2f}x{interval}{' ?' if ratio.undecided else ''}"


def short(count: int) -> str:
    """21,800,000 -> 21.8M."""
    sizes = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
    return next((f"{count / unit:.1f}{name}" for unit, name in sizes if count >= unit), str(count))
