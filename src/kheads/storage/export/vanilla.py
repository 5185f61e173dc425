"""The vanilla target: a folder that plain `from_pretrained` loads, without any code.

A config says one number of heads and one of neurons for all layers. So smaller sites are filled up to the largest with
silent heads and neurons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import transformers

from kheads.anatomy import LocatedSite
from kheads.storage.export import card
from kheads.storage.export.companions import take_along
from kheads.storage.export.numbers import NUMBERS, Numbers
from kheads.storage.export.rehearsal import batches, rehearse
from kheads.storage.export.silent_blocks import Slots, lay_into, sites_of
from kheads.storage.export.target import TARGETS, Exported, ExportError, Order
from kheads.storage.marks import MARK
from kheads.storage.model_folder import CONFIG, GENERATION
from kheads.storage.weights import INDEX, weight_files
from kheads.surgery.removal import position_tables

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

ALIKE = "so that all layers have as many"
# What a Llama's config says that Mistral's cannot, and what must not be in it.
LLAMA_ONLY = ("model_type", "attention_bias", "mlp_bias", "pretraining_tp")


@dataclass(frozen=True)
class Room:
    """What all sites get that share a number in the config.

    Attributes:
        count: blocks of each site.
        needed: what the largest of them needs; less than `count` if the class refuses that number.
        group: query heads of a block.
        fields: what the config has to say, by field.
    """

    count: int
    needed: int
    group: int
    fields: dict[str, int]


@dataclass(frozen=True)
class Filled:
    """How the sites are filled up.

    Attributes:
        slots: where the blocks of each site go.
        fields: what the config has to say, by field.
        heads: how many silent heads are added.
        neurons: how many silent neurons.
        uneven: how many of both only because another site is larger.
    """

    slots: Slots
    fields: dict[str, int]
    heads: int = 0
    neurons: int = 0
    uneven: int = 0


def write(order: Order) -> Exported:
    """Writes the folder and compares what plain transformers makes of it in a new process."""
    model, folder = order.model, order.folder
    full = _full_size(model)
    cls, config, filled = _planned(model, full)
    larger: Any = _built(cls, config)
    larger.to(model.dtype)
    lay_into(larger, model, filled.slots)
    sizes = [part.num_parameters() for part in (full, larger, model)]
    remark = _refuse_or_remark(model, filled, *sizes)
    if model.can_generate():
        larger.generation_config = model.generation_config
    larger.save_pretrained(folder)
    text = card.model_card(model, order.source, _loading(cls.__name__, remark))
    (folder / card.NAME).write_text(text, encoding="utf-8")
    written = {MARK, CONFIG, GENERATION, INDEX, card.NAME, *(path.name for path in weight_files(order.source))}
    left = take_along(order.source, folder, written)
    compared = rehearse(model, folder, cls.__name__, False, batches(model, order.inputs))
    remarks = [remark, f"Left out of the export: {', '.join(left)}." if left else ""]
    return Exported((compared,), tuple(filter(None, remarks)))


def _loading(cls: str, remark: str) -> str:
    """How to load the folder, for its card."""
    lines = ["```python", f"from transformers import {cls}", "", f'model = {cls}.from_pretrained("this folder")', "```"]
    return "\n".join([*lines, "", f"{remark}\n" if remark else ""])


def instead() -> str:
    """The targets that take every selection."""
    return f"Use {' or '.join(f'`to={name!r}`' for name in ('hub', 'onnx') if name in TARGETS)}, for any selection."


def _full_size(model: PreTrainedModel) -> PreTrainedModel:
    """The model before anything was removed, without memory."""
    if model.config.kheads["opened"]:
        raise ExportError(
            f"An attention of torch was opened in {type(model).__name__}, and plain transformers has it closed. "
            f"{instead()}"
        )
    with torch.device("meta"):
        return _built(type(model), _config(type(model.config), model.config.to_dict(), {}))


def _planned(model: PreTrainedModel, full: PreTrainedModel) -> tuple[type[PreTrainedModel], PretrainedConfig, Filled]:
    """The class, its config and how sites are filled up; a Llama becomes a Mistral where that needs fewer heads."""
    config, cls = model.config, type(model)
    filled = _fill(model, full, _numbers(config.model_type))
    other = getattr(transformers, cls.__name__.replace("Llama", "Mistral"), None)
    if config.model_type == "llama" and isinstance(other, type) and not _has_biases(config):
        loose = _fill(model, full, NUMBERS["mistral"])
        if loose.heads < filled.heads:
            said = {key: value for key, value in config.to_dict().items() if key not in LLAMA_ONLY}
            as_mistral = {**said, "sliding_window": None}
            return other, _config(transformers.MistralConfig, as_mistral, loose.fields), loose
    return cls, _config(type(config), config.to_dict(), filled.fields), filled


def _has_biases(config: Any) -> bool:
    return bool(config.attention_bias or config.mlp_bias)


def _numbers(name: str) -> tuple[Numbers, ...]:
    if name not in NUMBERS:
        raise ExportError(f"kheads does not know how a config of type {name!r} says its numbers. {instead()}")
    return NUMBERS[name]


def _config(cls: type[PretrainedConfig], said: Mapping[str, Any], fields: Mapping[str, int]) -> PretrainedConfig:
    """The config with these fields, without any record of heads."""
    content = {key: value for key, value in said.items() if key != "kheads"}
    for path, value in [(path, value) for paths, value in fields.items() for path in paths.split()]:
        *inner, name = path.split(".")
        owner = content
        for part in inner:
            owner = owner[part]
        owner[name] = value
    try:
        return cls.from_dict(content)
    except Exception as error:  # what a class checks, it may say in any way
        raise ExportError(f"{cls.__name__} does not take {dict(fields)}: {str(error).splitlines()[0]}") from error


def _built(cls: type[PreTrainedModel], config: PretrainedConfig) -> PreTrainedModel:
    made: PreTrainedModel = cls(config)
    return made


# --------------------------------------------------------------------------------------------------------- filling up


def _fill(model: PreTrainedModel, full: PreTrainedModel, sides: Sequence[Numbers]) -> Filled:
    """Makes all sites that share a number as large as the largest of them."""
    ours, whole = sites_of(model), sites_of(full)
    slots = {name: _slots(found) for name, found in ours.items()} | _shared_slots(ours, whole)
    for name in ours:
        if not any(_belongs(name, numbers) for numbers in sides):
            raise ExportError(f"kheads does not know where the config says the numbers of {name}. {instead()}")
    filled = Filled(slots, {})
    for numbers in sides:
        here = [found for name, found in ours.items() if _belongs(name, numbers)]
        for what, room_for in (("heads", _room_for_heads), ("neurons", _room_for_neurons)):
            sites = [found for found in here if (found.site.kind == "ffn") == (what == "neurons")]
            if not all(_is_whole(found, whole[found.site.name]) for found in sites):
                filled = _with(filled, what, sites, room_for(model.config, numbers, sites, slots))
    return filled


def _with(filled: Filled, what: str, sites: Sequence[LocatedSite], room: Room) -> Filled:
    """The same with these sites filled up."""
    used = [len(filled.slots[found.site.name]) for found in sites]
    added = {what: getattr(filled, what) + room.group * sum(room.count - count for count in used)}
    uneven = filled.uneven + room.group * sum(room.needed - count for count in used)
    return replace(filled, fields=filled.fields | room.fields, uneven=uneven, **added)


def _belongs(name: str, numbers: Numbers) -> bool:
    return not numbers.at or numbers.at in name.split(".")


def _is_whole(found: LocatedSite, full: LocatedSite) -> bool:
    return (found.heads, found.kv, found.ghost) == (full.heads, full.kv, False)


def _slots(found: LocatedSite) -> Sequence[int]:
    """Blocks go side by side; a ghost is no block."""
    return range(0 if found.ghost else found.kv)


def _shared_slots(ours: Mapping[str, LocatedSite], whole: Mapping[str, LocatedSite]) -> dict[str, Sequence[int]]:
    """Slots of sites that share a table of position biases: each original head has one place in all of them."""
    users: dict[int, list[str]] = {}
    tables = position_tables(list(whole.values()))
    for name, found in whole.items():
        for table in {id(value) for (module, _), value in tables.items() if module == id(found.module)}:
            users.setdefault(table, []).append(name)
    slots: dict[str, Sequence[int]] = {}
    for names in users.values():
        if len(names) > 1:
            kept = {name: _originals(ours[name]) for name in names}
            union = sorted({head for heads in kept.values() for head in heads})
            slots |= {name: [union.index(head) for head in heads] for name, heads in kept.items()}
    return slots


def _originals(found: LocatedSite) -> list[int]:
    """The heads that stay, as the original numbers them."""
    state = getattr(found.module, "kheads_state", None)
    return list(range(found.heads)) if state is None else [] if found.ghost else list(state["query"])


def _room_for_heads(config: Any, numbers: Numbers, sites: Sequence[LocatedSite], slots: Slots) -> Room:
    if numbers.heads is None:
        raise ExportError(
            f"Heads were removed, and a config of type {config.model_type!r} cannot say so: {numbers.why}. {instead()}"
        )
    group, needed = _group(sites), _largest(slots[found.site.name] for found in sites)
    count = needed
    if numbers.multiple_of_heads is not None:
        width = _value(config, numbers.multiple_of_heads)
        count = next((more for more in range(needed, width + 1) if width % (more * group) == 0), needed)
    said = {numbers.heads: count * group, numbers.kv: count, numbers.width: sites[0].head_dim}
    return Room(count, needed, group, {field: value for field, value in said.items() if field is not None})


def _group(sites: Sequence[LocatedSite]) -> int:
    """How many query heads share a key-value head, which must be the same everywhere."""
    groups = {found.heads // found.kv for found in sites if found.kv and not found.ghost}
    if len(groups) > 1:
        raise ExportError(
            f"The query heads that share a key and value are {' here and '.join(map(str, sorted(groups)))} there, and "
            f"a config says one number; prune whole groups (`unit='group'`). {instead()}"
        )
    return groups.pop() if groups else 1


def _room_for_neurons(config: Any, numbers: Numbers, sites: Sequence[LocatedSite], slots: Slots) -> Room:
    if numbers.neurons is None:
        raise ExportError(
            f"Neurons were removed, and a config of type {config.model_type!r} has no field for how many stay. "
            f"{instead()}"
        )
    count = _largest(slots[found.site.name] for found in sites)
    return Room(count, count, 1, {numbers.neurons: count})


def _largest(slots: Iterable[Sequence[int]]) -> int:
    """The slots that are needed; one at least, because no class of transformers runs without."""
    return max(max((max(found, default=-1) for found in slots), default=-1) + 1, 1)


def _value(config: Any, path: str) -> int:
    for part in path.split("."):
        config = getattr(config, part)
    return int(config)


# -------------------------------------------------------------------------------------------------- what it amounts to


def _refuse_or_remark(model: PreTrainedModel, filled: Filled, full: int, exported: int, pruned: int) -> str:
    """What the user should know of the silent blocks.

    Raises:
        ExportError: they take up all that was removed.
    """
    counted = ((filled.heads, "heads"), (filled.neurons, "neurons"))
    added = " and ".join(f"{number:,} silent {what}" for number, what in counted if number)
    if not added:
        return ""
    why, cure = _why(model.config, filled)
    if exported >= full:
        raise ExportError(
            f"It would need {added}, {why}, and be as large as before: nothing of the gain is left. {instead()}{cure}"
        )
    share = (full - exported) / (full - pruned)
    return (
        f"Added {added}, {why}: {100 * share:.0f} % of the removed parameters stay removed "
        f"({exported:,} parameters; {pruned:,} would do, {full:,} before).{cure}"
    )


def _why(config: Any, filled: Filled) -> tuple[str, str]:
    if filled.uneven:
        return "so that all layers have as many", " A model pruned with `--uniform` needs none."
    return f"because a {config.model_type} takes only numbers of heads that divide its width", ""
