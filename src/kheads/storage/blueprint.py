"""A blueprint: the model that a config describes, without memory, built only as far as the weights can bear it out.

A config comes from a file, and a file can ask for anything: code from the hub, a million layers, a table that fits no
memory. So its words and numbers are checked before anything is built, and sizes before anything is allocated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.modules import module as registrations

from kheads.storage.contents import CheckpointError
from kheads.storage.weights import Header

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

IMPLEMENTATIONS = (  # of transformers itself; any other name is a kernel to download and run
    "eager",
    "sdpa",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
    "flex_attention",
    "batched_mm",
    "grouped_mm",
)
UNSAVED = ("quantization_config", "fusion_config", "distributed_config")  # `save` never writes models that have these
_COUNTED = re.compile(r"layer|depth|block|stage|expert|label|head")  # keys whose numbers become loops
_UNBOUNDED = re.compile(r"theta|base")  # keys whose whole numbers are no sizes
_SMALL = 1024  # a number that costs nothing
_LARGEST = 2**31
_COMPUTED = 2**24  # numbers that any model may have beside its file: masks and tables of positions


def check_config(config: Mapping[str, Any], headers: Mapping[str, Header]) -> None:
    """Raises if the config asks for what `save` does not write, or for more than the weights can have."""
    check_implementations(config)
    longest = max((size for header in headers.values() for size in header.shape), default=0)
    limit = max(longest, len(headers), _SMALL)
    for path, value in _values(config):
        if path[-1] in UNSAVED and value is not None:
            raise CheckpointError(f"the config has a {path[-1]}, which kheads never saves")
        if isinstance(value, int):
            keys = [str(key) for key in path]
            bound = limit if any(map(_COUNTED.search, keys)) else _LARGEST
            if abs(value) > bound and not any(map(_UNBOUNDED.search, keys)):
                raise CheckpointError(f"the config says {keys[-1]} = {value}, which its weights cannot have")


def check_implementations(config: Mapping[str, Any]) -> None:
    """Raises if the config asks for an attention that would be downloaded and run."""
    for path, value in _values(config):
        if any("_implementation" in str(key) for key in path) and isinstance(value, str):
            _check_implementation(value)


def _check_implementation(name: str) -> None:
    if name.removeprefix("paged|") not in IMPLEMENTATIONS:
        raise CheckpointError(
            f"the config asks for the attention {name!r}, which is not transformers' own; pass it as "
            "`attn_implementation` if you trust it"
        )


def _values(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in nested dicts and lists with its keys; the record of heads is checked elsewhere."""
    for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
        if path or key != "kheads":
            yield (*path, key), inner
            if isinstance(inner, (Mapping, list)):
                yield from _values(inner, (*path, key))


def settings_of(cls: type[PreTrainedModel], config: dict[str, Any]) -> PretrainedConfig:
    """The config as transformers' own class of that type, whatever code the file names."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in transformers.CONFIG_MAPPING:
        raise CheckpointError(f"its model type {name!r} is none that transformers knows")
    settings: PretrainedConfig = transformers.CONFIG_MAPPING[name].from_dict(config)
    if not isinstance(settings, cls.config_class or object):
        raise CheckpointError(f"its model type {name!r} is not that of {cls.__name__}")
    return settings


def build_blueprint(cls: type[PreTrainedModel], settings: PretrainedConfig, tensors: int) -> PreTrainedModel:
    """The full-size model on the meta device, if it does not have far more parts than there are tensors."""
    with _at_most(20 * tensors + 2000), torch.device("meta"):
        return cls(settings)


@contextmanager
def _at_most(parts: int) -> Iterator[None]:
    """Stops the making of a model that gets more modules and parameters than these."""
    made, thread = 0, get_ident()  # the hooks are for all threads

    def count(*_: Any) -> None:
        nonlocal made
        made += get_ident() == thread
        if made > parts and get_ident() == thread:
            raise CheckpointError("the config describes a far larger model than its weights are of")

    hooks = [
        registrations.register_module_module_registration_hook(count),
        registrations.register_module_parameter_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def check_sizes(model: nn.Module, headers: Mapping[str, Header]) -> None:
    """Raises if the model, as its record cuts it, has other shapes than the file, or much that the file lacks."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers(remove_duplicate=False))
    numbers = {name: prod(header.shape) for name, header in headers.items()}
    # transformers may have changed names since the model was saved.
    renamed = sum(numbers[name] for name in numbers.keys() - parameters.keys() - buffers.keys())
    tables, masks = _check_shapes(parameters, headers), _check_shapes(buffers, headers)
    if tables > renamed + _COMPUTED or masks > max(_COMPUTED, sum(numbers.values())):
        raise CheckpointError(f"the config describes {tables + masks:,} numbers that the weights do not have")


def _check_shapes(tensors: Mapping[str, Tensor], headers: Mapping[str, Header]) -> int:
    """Compares the shapes, and returns how many numbers are in none of the file's tensors."""
    saved, sizes = set(), {}
    for name, tensor in tensors.items():
        sizes[id(tensor)] = tensor.numel()
        if name in headers:
            saved.add(id(tensor))  # one that is tied has several names, and the file knows it by one of them
            if headers[name].shape != list(tensor.shape):
                shape = headers[name].shape
                raise CheckpointError(
                    f"{name} has shape {shape}, but its record and its config say {list(tensor.shape)}"
                )
    return sum(size for key, size in sizes.items() if key not in saved)
