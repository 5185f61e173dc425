"""An ONNX file in place of a model: onnxruntime computes what it gives, so that it is judged as the model itself is."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

ENDING = ".onnx"
EXACT = f"model{ENDING}"
WEIGHTS = ("*.safetensors", "*.bin")
RUNTIME = "onnxruntime"
LABELS = ("labels", "start_positions", "end_positions")
# What the file of a single sentence takes where a batch does not say it.
ABSENT = {"attention_mask": torch.ones_like, "token_type_ids": torch.zeros_like}


def onnx_files(source: str | Path) -> list[Path]:
    """The ONNX files that a source names: itself, or those of an exported folder, the exact one first.

    A folder that has weights, too, is a model like others, and names none.
    """
    path = Path(source)
    if path.suffix == ENDING:
        return [path]
    if not path.is_dir() or any(found for weights in WEIGHTS for found in path.glob(weights)):
        return []
    return sorted(path.glob(f"*{ENDING}"), key=lambda file: (file.name != EXACT, file.name))


class OnnxModel(nn.Module):
    """What a file gives, as a model of transformers gives it. It has no weights and cannot learn.

    Args:
        file: of an encoder, bare or with any head.
        skeleton: the model that it was written from, without its weights, which says what the file does not.
    """

    def __init__(self, file: Path, skeleton: Any):
        super().__init__()
        self.config, self.main_input_name = skeleton.config, skeleton.main_input_name
        self.file = file
        self.session = _session(file)
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)  # where others ask for the model's device
        self._skeletons = (skeleton,)  # hidden from torch, which would move it to a device

    @property
    def skeleton(self) -> Any:
        """The same without weights."""
        return self._skeletons[0]

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxModel:
        return self  # nothing in it ever changes

    def run(self, given: Mapping[str, Tensor]) -> ModelOutput:
        """The file's outputs by name. With labels there is a place for a loss, which nobody computes."""
        taken = {name: _filled(given, name).cpu().numpy() for name in map(_name, self.session.get_inputs())}
        names = [_name(one) for one in self.session.get_outputs()]
        found = dict(zip(names, self.session.run(names, taken), strict=True))
        made: Any = ModelOutput  # its constructor has no types
        outputs = made()
        if any(given.get(name) is not None for name in LABELS):
            outputs["loss"] = torch.tensor(torch.nan)
        for name, value in found.items():
            outputs[name] = torch.from_numpy(value).to(self.place.device)
        return cast("ModelOutput", outputs)


def open_onnx(file: Path, skeleton: Any) -> OnnxModel:
    """The file as a model of a class with the skeleton's name and signature, by which Trainer knows what it takes."""

    def forward(self: OnnxModel, **given: Tensor) -> ModelOutput:
        return self.run(given)

    vars(forward)["__signature__"] = inspect.signature(type(skeleton).forward)
    cls: type[OnnxModel] = type(type(skeleton).__name__, (OnnxModel,), {"forward": forward})
    return cls(file, skeleton).eval()


def _session(file: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def has_runtime() -> bool:
    """Whether ONNX files can be run here."""
    return find_spec(RUNTIME) is not None


def _name(value: Any) -> str:
    return str(value.name)


def _filled(given: Mapping[str, Tensor], name: str) -> Tensor:
    if name in given:
        return given[name]
    if name not in ABSENT or "input_ids" not in given:
        raise ValueError(f"The ONNX file takes {name}, which the data of this task does not have.")
    return ABSENT[name](given["input_ids"])
