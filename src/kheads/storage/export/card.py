"""The card of an exported model: what it is, where it comes from, what it lost and gained, and how to load it.

Most of it comes from result.json, which anybody may have written. So only numbers and short texts are taken from it,
and these are written as code, in which nothing has a meaning.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kheads.storage.contents import CheckpointError, own_file, read_json
from kheads.surgery import rebuild

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECORD = "result.json"
NAME = "README.md"
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
STAGES = ("recovered", "pruned")  # the last one that was reached is what was saved
# What says how much should stay, as the command line has it.
ASKED = {"k": "-k", "speedup": "--speedup", "smaller": "--smaller", "flops": "--flops", "max_ms": "--max-ms"}
ASKED |= {"at_most": "--at-most", "method": "--method", "task": "--task"}
PIPELINES = {
    "ForCausalLM": "text-generation",
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
}


def model_card(model: PreTrainedModel, source: Path, loading: str) -> str:
    """The text of README.md.

    Args:
        model: the pruned model.
        source: the folder that it was loaded from, which may have a result.json.
        loading: how to load what was exported, in Markdown.
    """
    record = _read(source)
    sites = model.config.kheads["sites"]
    neurons = {site: rebuild.unpacked(site, state) for site, state in model.config.kheads.get("neurons", {}).items()}
    kept = _counted(sites, "attention heads") + (f" and {_counted(neurons, 'neurons')}" if neurons else "")
    what = "heads and neurons" if neurons else "heads"
    parts = [
        _header(model, record),
        f"# {type(model).__name__} with {kept}\n",
        f"The other {what} were removed for real with kheads: their weights are gone. {model.num_parameters():,} "
        "parameters remain.\n",
        loading,
        *_facts(record),
        *_tables(sites, neurons),
    ]
    return "\n".join(parts)


def _read(source: Path) -> dict[str, Any]:
    """What result.json says, if there is one that can be read."""
    try:
        path = own_file(source, RECORD)
        return read_json(path) if path is not None else {}
    except CheckpointError:
        return {}


def _header(model: PreTrainedModel, record: Mapping[str, Any]) -> str:
    lines = ["library_name: transformers", "tags: [head-pruning, kheads]"]
    pipeline = next((tag for end, tag in PIPELINES.items() if type(model).__name__.endswith(end)), None)
    base = _base(record)
    lines += [f"pipeline_tag: {pipeline}"] if pipeline else []
    lines += [f"base_model: {json.dumps(base)}"] if base and HUB_NAME.fullmatch(base) else []
    return "\n".join(["---", *lines, "---", ""])


def _base(record: Mapping[str, Any]) -> str | None:
    """The name of the model that was pruned; of a folder its last part, because a path is nobody's business."""
    given = _inner(record, "settings").get("model")
    if not isinstance(given, str) or not given.strip():
        return None
    return given if HUB_NAME.fullmatch(given) and not Path(given).exists() else Path(given).name


def _facts(record: Mapping[str, Any]) -> Iterator[str]:
    """What the record of the run says of origin, task, quality and speed."""
    settings, base = _inner(record, "settings"), _base(record)
    if base:
        yield f"- Base model: {_code(base)}"
    if isinstance(settings.get("task"), str):
        yield f"- Task: {_code(settings['task'])}"
    yield from _sizes(record)
    yield from _speed(_inner(record, "report", "budget"))
    command = _command(settings)
    if command:
        yield f"- Command: `{command}`; result.json has every setting (`kheads prune --config result.json -o pruned`)."
    yield ""
    yield from _quality(record)


def _sizes(record: Mapping[str, Any]) -> Iterator[str]:
    before, after = (_number(_inner(record, when).get("parameters")) for when in ("before", "after"))
    if before and after:
        yield f"- Parameters: {before:,.0f} before, {after:,.0f} after ({100 * (after / before - 1):+.1f} %)"


def _speed(budget: Mapping[str, Any]) -> Iterator[str]:
    """How many times as fast it was found to be in the run; nothing where no time was taken."""
    ratio, low, high = (_number(_inner(budget, "speedup").get(name)) for name in ("ratio", "low", "high"))
    if ratio is None or low is None or high is None:
        return
    at, threads = _inner(budget, "asked").get("at"), _number(_inner(budget, "asked").get("threads"))
    shape = [_number(size) for size in at] if isinstance(at, list) else []
    where = f" at batches of {' x '.join(f'{size:.0f}' for size in shape if size is not None)}" if shape else ""
    using = f" on {threads:.0f} thread{'s' if threads > 1 else ''}" if threads else ""
    yield f"- Measured speed: {ratio:.2f} times the original's (95 % interval {low:.2f} to {high:.2f}){where}{using}"


def _quality(record: Mapping[str, Any]) -> Iterator[str]:
    """The headline metric before and after, for each evaluation set."""
    metrics, name = _inner(record, "metrics"), record.get("metric")
    stage = next((stage for stage in STAGES if _inner(metrics, stage)), None)
    if stage is None or not isinstance(name, str):
        return
    yield f"| evaluation set | {_code(name)} before | after |\n|---|---|---|"
    for held in _inner(metrics, stage):
        before, after = (_number(_inner(metrics, when, held).get(name)) for when in ("unpruned", stage))
        yield f"| {_code(held)} | {_shown(before)} | {_shown(after)} |"
    yield ""


def _command(settings: Mapping[str, Any]) -> str | None:
    """The command that asks for the same; data and training are left to result.json."""
    given = {flag: _word(settings.get(name)) for name, flag in ASKED.items()}
    words = [f"{flag} {word}" for flag, word in given.items() if word]
    base = _word(_base({"settings": settings}))
    return " ".join(["kheads prune", *([base] if base else []), *words]) if words else None


def _word(value: Any) -> str | None:
    """A setting as a word of a command, if it is plainly one."""
    number = _number(value)
    if number is not None:
        return f"{number:g}"
    return value if isinstance(value, str) and re.fullmatch(r"[\w][\w./:-]{0,95}", value) else None


def _tables(sites: Mapping[str, Any], neurons: Mapping[str, Any]) -> Iterator[str]:
    yield "| attention | heads kept | which (numbered as in the original) |\n|---|---|---|"
    for name, site in sites.items():
        yield _row(name, site, ", ".join(map(str, _kept(site))) or "-")
    if neurons:
        yield "\n| feed-forward | neurons kept |\n|---|---|"
        yield from (_row(name, site) for name, site in neurons.items())
    yield ""


def _kept(site: Mapping[str, Any]) -> list[int]:
    return [] if site["ghost"] else list(site["query"])


def _counted(sites: Mapping[str, Any], what: str) -> str:
    return f"{sum(len(_kept(site)) for site in sites.values())} of {sum(site['of'] for site in sites.values())} {what}"


def _row(name: str, site: Mapping[str, Any], *further: str) -> str:
    count = f"{len(_kept(site))} of {site['of']}"
    return f"| {' | '.join([name, count, *further])} |"


def _inner(record: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """A table inside a table; an empty one where there is none."""
    found: Any = record
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _number(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


def _shown(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4g}"


def _code(text: str) -> str:
    """Text as code, in which Markdown and HTML mean nothing."""
    plain = re.sub(r"[`|\s\x00-\x1f\x7f]+", " ", text).strip()
    return f"`{plain[:96] or '-'}`"
