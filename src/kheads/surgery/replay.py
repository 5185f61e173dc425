"""Replay: what `remove` would record for the blocks that a record names; a record that says anything else is refused.

A record comes from a file, and a file can say anything. So nothing in it is believed but the numbers of the heads and
neurons: they are cut from a full-size model, by the layouts that kheads knows, and what this gives is compared with the
record.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import pairwise
from operator import attrgetter
from typing import Any

from torch import nn

from kheads.anatomy import LocatedSite, Plan, guesses, locate
from kheads.blocks.site import noun
from kheads.surgery.adoption import as_record
from kheads.surgery.rebuild import open_attention, unpacked
from kheads.surgery.removal import architecture, counts, cut, needs_a_head, paths, position_tables

# Sections that records of early versions lack, and in the case of `neurons` those of models that have them all.
LATER = {"selected": dict, "layouts": dict, "opened": list, "neurons": dict}


class RecordError(ValueError):
    """A record that `remove` would not have written for this model, with the reason in one sentence."""


def replay(model: nn.Module, record: Mapping[str, Any]) -> dict[str, Any]:
    """Cuts a full-size model to the heads and neurons of a record, in place, and returns the record that this gives.

    Args:
        model: the model that the config describes, unpruned; it may be on the meta device.
        record: what `architecture` gave for the pruned model, from a source that is not trusted.

    Raises:
        RecordError: the record says something else than its heads and neurons give.
    """
    absent = {key: kind() for key, kind in LATER.items()}
    given = {**absent, **copy.deepcopy(dict(record))}
    if given["opened"]:
        open_attention(model)
    _write_layouts(model, given["layouts"])
    located = locate(model)
    tables, names = position_tables(located), paths(model)
    for found in located:
        _check_counts(found)
        state = given["sites"].get(found.site.name)
        plan = _plan(found, state)
        if names[id(found.output.weight)] in given["tensors"]:
            cut(found, plan, tables, state["ghost"])
        elif len(plan.query) != found.heads:
            raise RecordError(f"the record has no shapes for {found.site.name!r}, which it says is pruned")
    _cut_feeds(model, given["neurons"])
    derived = architecture(model)
    _settle(located, given, derived)
    _compare(given, {**absent, **derived})
    return derived


def _cut_feeds(model: nn.Module, neurons: Mapping[str, Any]) -> None:
    """Leaves the feed-forwards that the record names the neurons that it names."""
    feeds = locate(model, parts="ffn") if neurons else ()
    for found in (found for found in feeds if found.site.name in neurons):
        state = _unpacked(found.site.name, neurons[found.site.name])
        cut(found, _plan(found, state), {}, state["ghost"])


def _unpacked(name: str, state: Any) -> dict[str, Any]:
    try:
        return unpacked(name, state)
    except ValueError as error:
        raise RecordError(f"the record does not say which neurons {name!r} keeps") from error


def _write_layouts(model: nn.Module, layouts: Mapping[str, Any]) -> None:
    """Accepts a layout only if the module's own parts suggest it, as they did to `adopt`."""
    modules = dict(model.named_modules())
    for name, layout in layouts.items():
        if name not in modules or layout not in [as_record(guess) for guess in guesses(modules[name])]:
            raise RecordError(f"the layout that the record gives {name!r} is none that `kheads.adopt` could have found")
        part: Any = modules[name]
        part.kheads_layout = layout


def _check_counts(found: LocatedSite) -> None:
    """An adopted layout may name as counts only what has the value of that count now."""
    if "kheads_layout" not in found.module.__dict__:
        return
    whole = counts(_whole(found), found.head_dim)
    for path, what in found.layout.counts.items():
        if attrgetter(path)(found.module) != whole[what]:
            raise RecordError(f"{path} of {found.site.name!r} is no count of its heads")


def _whole(found: LocatedSite) -> Plan:
    return Plan(tuple(range(found.heads)), tuple(range(found.kv)), found.heads // found.kv)


def _plan(found: LocatedSite, state: Any) -> Plan:
    """The blocks that the record names, if this site can have them."""
    name, whole, what = found.site.name, _whole(found), noun([found.site])
    expected = {"query": list, "kv": list, "of": int, "of_kv": int, "ghost": bool}
    if not isinstance(state, dict) or {key: type(value) for key, value in state.items()} != expected:
        raise RecordError(f"the record does not say which {what} {name!r} keeps")
    query, kv = state["query"], state["kv"]
    if (state["of"], state["of_kv"]) != (found.heads, found.kv) or not _are_heads(query, kv, found.heads, whole.group):
        raise RecordError(f"{name!r} does not have the {what} that its record lists")
    if state["ghost"] and (len(query) != 1 or not needs_a_head(found)):
        raise RecordError(f"{name!r} cannot have the silent {what.removesuffix('s')} that its record lists")
    if not query and needs_a_head(found):
        raise RecordError(f"{name!r} cannot be empty, as its record says")
    return Plan(tuple(query), tuple(kv), whole.group)


def _are_heads(query: list[Any], kv: list[Any], heads: int, group: int) -> bool:
    """Whether these query heads exist, in order, and each is served by its own key-value head."""
    if any(type(head) is not int for head in (*query, *kv)) or bool(query) != bool(kv):
        return False
    if any(not 0 <= head < heads for head in query) or any(one >= two for one, two in pairwise(query)):
        return False
    if not query:
        return True
    share, rest = divmod(len(query), len(kv))
    return not rest and share > 0 and [head // group for head in query] == [head for head in kv for _ in range(share)]


def _settle(located: tuple[LocatedSite, ...], given: Mapping[str, Any], derived: dict[str, Any]) -> None:
    """Sets aside what may differ without a difference.

    An empty site has no groups, so their size is what it last was; and transformers may have moved an argument.
    """
    for found in located:
        prefix = f"{found.site.name}." if found.site.name else ""
        groups = [prefix + path for path, what in found.layout.counts.items() if what == "group"]
        for path in groups if not given["sites"][found.site.name]["query"] else ():
            old = given["attributes"].get(path)
            if path in derived["attributes"] and type(old) is int and 1 <= old <= found.heads // found.kv:
                derived["attributes"][path] = old
    for name, argument in derived["arguments"].items():
        names = given["arguments"].get(name, {}).get("names", {})
        if names.keys() == argument["names"].keys():
            given["arguments"][name]["names"] = argument["names"]


def _compare(given: Mapping[str, Any], derived: Mapping[str, Any], path: str = "the record") -> None:
    """Raises at the first value that is not the derived one."""
    for key in (*derived, *(key for key in given if key not in derived)):
        place = f"{path}, {key}"
        if key not in given or key not in derived:
            raise RecordError(f"{place} is {'missing' if key not in given else 'not what heads leave behind'}")
        one, two = given[key], derived[key]
        if isinstance(one, dict) and isinstance(two, dict):
            _compare(one, two, place)
        elif one != two:
            raise RecordError(f"{place} is {str(one)[:60]}, where its heads give {str(two)[:60]}")
