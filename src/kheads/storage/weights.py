"""The weights of a folder: safetensors files, their headers, and a checksum of what is in them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from kheads.storage.contents import CheckpointError, own_file, read_json

FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PAGE = 4096  # words of eight bytes that are added up


class Header(NamedTuple):
    """What a file says of a tensor."""

    dtype: str
    shape: list[int]


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the model, all of them in the folder."""
    if whole := own_file(folder, FILE):
        return [whole]
    index = own_file(folder, INDEX)
    if index is None:
        raise CheckpointError(f"{folder} has no safetensors file; {_advice(folder)}")
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{index} does not say which files have the weights; the folder is damaged.")
    return [_shard(folder, name) for name in sorted(set(names.values()))]


def _advice(folder: Path) -> str:
    only = "kheads reads weights from nothing else."
    if not any(folder.glob("pytorch_model*.bin")):
        return only
    return (
        f"{only} Its pytorch_model.bin is a pickle, which can run code; if you trust it, load it with the transformers "
        "that wrote it and save it with `safe_serialization=True`."
    )


def _shard(folder: Path, name: str) -> Path:
    plain = Path(name).name == name and name.endswith(".safetensors")
    path = own_file(folder, name) if plain else None
    if path is None:
        raise CheckpointError(f"{folder}: {INDEX} names {name!r}, which is not a safetensors file of the folder.")
    return path


def read_headers(files: Sequence[Path]) -> dict[str, Header]:
    """Names, types and shapes of all tensors; safetensors has compared them with the sizes of the files."""
    headers: dict[str, Header] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                found = {name: Header(part.get_dtype(), part.get_shape()) for name, part in slices.items()}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is truncated or not a safetensors file ({error}).") from error
        if twice := headers.keys() & found.keys():
            raise CheckpointError(f"{path}: {min(twice)} is in another file of the folder, too.")
        headers |= found
    return headers


def read_tensors(files: Sequence[Path]) -> dict[str, Tensor]:
    """All tensors, mapped: their bytes are read when they are used."""
    tensors: dict[str, Tensor] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return tensors


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of names, types, shapes and numbers, whatever files they are in.

    It is there to notice accidents at the speed of memory: a model is only mapped when it is loaded, so hashing it byte
    by byte would take several times as long as loading it.
    """
    lines = [
        f"{name} {tensors[name].dtype} {list(tensors[name].shape)} {_sum(tensors[name])}" for name in sorted(tensors)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _sum(tensor: Tensor) -> int:
    """CRC-32 of the sums of every 32 KiB: a flipped bit always changes its sum, and their order counts."""
    flat = tensor.detach().reshape(-1).view(torch.uint8)
    whole = len(flat) - len(flat) % (8 * PAGE)
    sums = flat[:whole].view(torch.int64).view(-1, PAGE).sum(1)
    return zlib.crc32(flat[whole:].numpy().tobytes(), zlib.crc32(sums.numpy().tobytes()))


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor with a NaN or an infinity in it, or None."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.is_meta and not _is_finite(tensor.detach()):
            return name
    return None


def _is_finite(tensor: Tensor) -> bool:
    if tensor.sum(dtype=torch.float32).isfinite():  # quick, and right unless finite numbers add up to infinity
        return True
    return bool(tensor.isfinite().all())
