"""Export: a folder that loads where kheads is not installed, loaded there and compared before it is called done."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kheads.blocks.kept import Kept
from kheads.storage.contents import read_json, write_json
from kheads.storage.export.companions import take_along, without_code
from kheads.storage.marks import MARK
from kheads.storage.model_folder import CONFIG, GENERATION, fetch, load, write_model
from kheads.storage.new_folder import check_free, new_folder
from kheads.storage.probe import probe_inputs, probe_outputs
from kheads.storage.weights import INDEX, weight_files
from kheads.surgery import rebuild

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TARGETS = ("hub",)
CODE = "kheads_architecture.py"
TOLERANCE = 1e-5

# Runs in a new process: kheads cannot be imported there, so the folder has to stand on its own.
CHILD = """
import sys
sys.modules["kheads"] = None
import torch, transformers
from safetensors.torch import load_file, save_file
folder, auto_class, inputs, outputs = sys.argv[1:]
model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True, local_files_only=True).eval()
given = load_file(inputs)
with torch.no_grad():
    result = {"forward": model(**given)[0].float()}
    if model.can_generate():
        prompt = {name: value for name, value in given.items() if not name.startswith("decoder_")}
        result["generate"] = model.generate(**prompt, max_new_tokens=4, do_sample=False)
save_file({name: value.contiguous() for name, value in result.items()}, outputs)
"""


class ExportError(RuntimeError):
    """The exported folder does not give what the model gives; nothing was written."""


def export(
    directory: str | Path,
    out: str | Path,
    to: str = "hub",
    overwrite: bool = False,
    inputs: dict[str, Tensor] | None = None,
    say: Callable[[str], object] = warnings.warn,
) -> Path:
    """Turns a folder that `save` wrote into one that loads elsewhere.

    `to="hub"`: `AutoModel...from_pretrained(out, trust_remote_code=True)` loads it with no kheads installed: one file
    of code lies beside the weights. Loading is tried in a new process, and the outputs compared, before anything is
    written to `out`.

    The model is written anew. Of the other files only those of the tokenizer or processor and result.json go along: no
    code, nothing that names code, nothing behind a link.

    Args:
        directory: the folder that `save` wrote.
        out: the folder to make.
        to: the flavour; "hub" so far.
        overwrite: replace what is in `out`.
        inputs: a batch on which to compare, for models whose inputs kheads cannot make up.
        say: is told in one sentence what was left out, if anything.
    """
    if to not in TARGETS:
        raise ValueError(f"`to` must be one of {', '.join(map(repr, TARGETS))}; got {to!r}.")
    check_free(out, overwrite, inputs=[directory])
    source = fetch(directory)
    model = load(source)
    with new_folder(out, overwrite, inputs=[source]) as folder:
        auto_class = _write_hub_folder(model, folder)
        written = {MARK, CONFIG, GENERATION, CODE, INDEX, *(path.name for path in weight_files(source))}
        left = take_along(source, folder, written)
        _verify(model, folder, auto_class, _given(model) if inputs is None else inputs)
    if left:
        say(f"Left out of {out}: {', '.join(left)}.")
    return Path(out)


def _write_hub_folder(model: PreTrainedModel, folder: Path) -> str:
    """Writes the model with its code and its card, and returns the Auto class that loads it."""
    write_model(model, folder)
    auto_map = _auto_map(model)
    config = without_code(read_json(folder / CONFIG))
    write_json(folder / CONFIG, {**config, "auto_map": auto_map})
    code = Path(rebuild.__file__).read_text(encoding="utf-8")
    # The code takes this one record, which is tried before the folder is there.
    sealed = code.replace('SEAL = ""', f'SEAL = "{rebuild.digest(config["kheads"])}"')
    (folder / CODE).write_text(sealed, encoding="utf-8")
    (folder / "README.md").write_text(_model_card(model, auto_map), encoding="utf-8")
    return _auto_class(model, auto_map)


def _auto_map(model: PreTrainedModel) -> dict[str, str]:
    """Points every Auto class that knows this config to the pruned twin of its model class.

    Where none does, as for the text half of BLIP, one is told to: the folder brings its own code.
    """
    from transformers.models.auto import modeling_auto

    auto_map = {}
    for name, auto in vars(modeling_auto).items():
        mapping = getattr(auto, "_model_mapping", None) if name.startswith("AutoModel") else None
        if mapping is None or type(model.config) not in mapping:
            continue
        classes = mapping[type(model.config)]
        names = [cls.__name__ for cls in (classes if isinstance(classes, (tuple, list)) else (classes,))]
        auto_map[name] = type(model).__name__ if type(model).__name__ in names else names[0]
    if not auto_map:
        auto_map["AutoModelForCausalLM" if model.can_generate() else "AutoModel"] = type(model).__name__
    return {name: f"{CODE.removesuffix('.py')}.{chosen}" for name, chosen in auto_map.items()}


def _auto_class(model: PreTrainedModel, auto_map: dict[str, str]) -> str:
    """The Auto class that gives this model's class, the most specific one."""
    names = [name for name, target in auto_map.items() if target.endswith(f".{type(model).__name__}")]
    if not names:
        raise ExportError(f"No Auto class of transformers loads {type(model).__name__}, so it cannot be exported.")
    return max(names, key=len)


def _given(model: PreTrainedModel) -> dict[str, Tensor]:
    """Made-up inputs that the model takes."""
    try:
        inputs = probe_inputs(model)
        probe_outputs(model, inputs)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ExportError(
            f"kheads cannot make up inputs for {type(model).__name__}; pass a batch as `inputs` to `kheads.export`."
        ) from error
    return inputs


def _verify(model: PreTrainedModel, folder: Path, auto_class: str, inputs: dict[str, Tensor]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        files = [str(Path(scratch) / name) for name in ("inputs.safetensors", "outputs.safetensors")]
        save_file({name: value.contiguous() for name, value in inputs.items()}, files[0])
        environment = {**os.environ, "HF_MODULES_CACHE": scratch, "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-I", "-c", CHILD, str(folder.resolve()), auto_class, *files]
        child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if child.returncode:
            reason = (child.stderr.strip().splitlines() or ["no message"])[-1]
            raise ExportError(f"The exported folder does not load in a new process: {reason}")
        _compare(probe_outputs(model, inputs), load_file(files[1]))


def _compare(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    if not torch.allclose(ours["forward"], theirs["forward"], rtol=TOLERANCE, atol=TOLERANCE):
        difference = (ours["forward"] - theirs["forward"]).abs().max().item()
        raise ExportError(f"The exported model's outputs differ from the model's by {difference:.1e}.")
    if "generate" in ours and not torch.equal(ours["generate"], theirs["generate"]):
        raise ExportError("The exported model generates other tokens than the model.")


def _model_card(model: PreTrainedModel, auto_map: dict[str, str]) -> str:
    sites = model.config.kheads["sites"]
    kept = Kept.from_dict({name: [] if site["ghost"] else site["query"] for name, site in sites.items()})
    total = sum(site["of"] for site in sites.values())
    lines = [
        f"| {name} | {len(heads)} of {sites[name]['of']} | {', '.join(map(str, heads)) or '-'} |"
        for name, heads in kept.blocks
    ]
    return _CARD.format(
        model_class=type(model).__name__,
        auto_class=_auto_class(model, auto_map),
        kept=len(kept),
        total=total,
        parameters=f"{model.num_parameters():,}",
        code=CODE,
        table="\n".join(lines),
    )


_CARD = """---
library_name: transformers
tags: [head-pruning, kheads]
---

# {model_class} with {kept} of {total} attention heads

The other heads were removed for real with kheads: their weights are gone. {parameters} parameters remain.

```python
from transformers import {auto_class}

model = {auto_class}.from_pretrained("this folder or repository", trust_remote_code=True)
```

`{code}` gives the architecture its smaller shapes; read it before you trust it. Without `trust_remote_code` loading
fails, because the shapes differ from the original's.

| attention | heads kept | which (numbered as in the original) |
|---|---|---|
{table}
"""
