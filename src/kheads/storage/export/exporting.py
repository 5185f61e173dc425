"""Export: a pruned model for places without kheads, tried there and compared before it is called done."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kheads.storage.export.target import TARGETS, Exported, ExportError, Order, Target
from kheads.storage.export.upload import check_push, upload
from kheads.storage.model_folder import fetch, load
from kheads.storage.new_folder import check_free, new_folder

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TARGETS", "ExportError", "export"]


def export(
    directory: str | Path,
    out: str | Path,
    to: str = "hub",
    overwrite: bool = False,
    inputs: dict[str, Tensor] | None = None,
    say: Callable[[str], object] = warnings.warn,
    tell: Callable[[str], object] | None = None,
    **options: Any,
) -> Path:
    """Turns a folder that `save` wrote into one that works elsewhere.

    What is written is tried in a new process that has only what its user will have, and compared with the model, before
    `out` is there. What cannot be exact is refused by name.

    `to="hub"`: `AutoModel...from_pretrained(out, trust_remote_code=True)` loads it with no kheads installed: one file
    of code lies beside the weights. The model is written anew. Of the other files only those of the tokenizer or
    processor and result.json go along: no code, nothing that names code, nothing behind a link.

    `to="vanilla"`: plain `from_pretrained` loads it, without any code. A config says one number of heads, and one of
    neurons, for all layers: smaller sites are filled up with silent ones, and it is said how many.

    `to="onnx"`: onnxruntime runs it, and OpenVINO reads it, without torch, transformers and kheads: `model.onnx` for
    encoders of text and images with any head and for language models with their cache, `encoder_model.onnx` and
    `decoder_model.onnx` for encoder-decoders. `int8=True` writes `..._int8.onnx` beside them and reports size, speed
    and closeness. It needs `pip install 'kheads[onnx]'`.

    `to="gguf"`: one file for llama.cpp, of Llama, Mistral and Qwen2, with heads and neurons by layer, and their
    tokenizer. It is compared where xllamacpp is installed, and otherwise it is said that it was not.

    Args:
        directory: the folder that `save` wrote.
        out: the folder to make.
        to: the target.
        overwrite: replace what is in `out`.
        inputs: a batch on which to compare, for models whose inputs kheads cannot make up.
        say: is told what the user should know, such as what was left out, a sentence at a time.
        tell: is told what was compared, and how far apart it was.
        options: what some targets alone take: `push="USER/NAME"` uploads the folder to the Hugging Face hub once it
            is in its place; `dtype="f16"` halves a gguf, which has "f32" otherwise.
    """
    target = _target(to, options)
    if "push" in options:
        check_push(options["push"])
    check_free(out, overwrite, inputs=[directory])
    source = fetch(directory)
    model = load(source)
    model.train(False)
    with new_folder(out, overwrite, inputs=[source]) as folder:
        exported: Exported = import_module(target.module).write(Order(model, source, folder, inputs, options))
    for remark in exported.remarks:
        say(remark)
    for sentence in exported.compared:
        if tell is not None:
            tell(sentence)
    if "push" in options:
        address = upload(Path(out), options["push"])
        say(f"Uploaded to {address}.")
    return Path(out)


def _target(name: str, options: Mapping[str, Any]) -> Target:
    """The target of that name, once it is sure that it can be written here and takes the options."""
    if name not in TARGETS:
        raise ValueError(f"`to` must be one of {', '.join(map(repr, TARGETS))}; got {name!r}.")
    target = TARGETS[name]
    for option in options:
        if option not in target.options:
            fitting = [key for key, other in TARGETS.items() if option in other.options]
            instead = f"it is for {', '.join(map(repr, fitting))}" if fitting else "no target has it"
            raise ValueError(f"`to={name!r}` takes no `{option}`; {instead}.")
    missing = [package for package in target.needs if find_spec(package) is None]
    if missing:
        raise ValueError(
            f"`to={name!r}` needs {' and '.join(missing)}; install them with `pip install 'kheads[{target.extra}]'`."
        )
    return target
