"""The hub target: a folder that loads with `trust_remote_code` where kheads is not installed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kheads.storage.contents import read_json, write_json
from kheads.storage.export.companions import take_along, without_code
from kheads.storage.export.sentences import carry_sentence_files, sentence_files
from kheads.storage.export.target import Exported, ExportError, Order, run_alone
from kheads.storage.export.trial import given_inputs
from kheads.storage.marks import MARK
from kheads.storage.model_folder import CONFIG, GENERATION, write_model
from kheads.storage.probe import probe_outputs
from kheads.storage.weights import INDEX, weight_files
from kheads.surgery import rebuild

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CODE = "kheads_architecture.py"
TOLERANCE = 1e-5

# Runs where kheads cannot be imported, so the folder has to stand on its own.
CHILD = """
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


def write(order: Order) -> Exported:
    """Writes the folder and compares what it gives in a new process."""
    model, folder = order.model, order.folder
    auto_class = _write_hub_folder(model, folder)
    written = {MARK, CONFIG, GENERATION, CODE, INDEX, *(path.name for path in weight_files(order.source))}
    left = take_along(order.source, folder, written | sentence_files(order.source))
    compared = _verify(model, folder, auto_class, given_inputs(model, order.inputs))
    sentences = carry_sentence_files(order)
    left_out = (f"Left out of the export: {', '.join(left)}.",) if left else ()
    return Exported((compared, *sentences.compared), (*left_out, *sentences.remarks))


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


def _verify(model: PreTrainedModel, folder: Path, auto_class: str, inputs: Mapping[str, Tensor]) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        files = [str(Path(scratch) / name) for name in ("inputs.safetensors", "outputs.safetensors")]
        save_file({name: value.contiguous() for name, value in inputs.items()}, files[0])
        arguments = [str(folder.resolve()), auto_class, *files]
        run_alone(CHILD, arguments, "The exported folder does not load", {"HF_MODULES_CACHE": scratch})
        return _compare(probe_outputs(model, dict(inputs)), load_file(files[1]))


def _compare(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> str:
    difference = (ours["forward"] - theirs["forward"]).abs().max().item()
    if not torch.allclose(ours["forward"], theirs["forward"], rtol=TOLERANCE, atol=TOLERANCE):
        raise ExportError(f"The exported model's outputs differ from the model's by {difference:.1e}.")
    if "generate" not in ours:
        return f"its outputs differ by {difference:.1e} at most"
    if not torch.equal(ours["generate"], theirs["generate"]):
        raise ExportError("The exported model generates other tokens than the model.")
    return f"its outputs differ by {difference:.1e} at most, and it generates the same tokens"


def _model_card(model: PreTrainedModel, auto_map: dict[str, str]) -> str:
    sites = model.config.kheads["sites"]
    neurons = {site: rebuild.unpacked(site, state) for site, state in model.config.kheads.get("neurons", {}).items()}
    heads = "\n".join(_row(name, site, ", ".join(map(str, _kept(site))) or "-") for name, site in sites.items())
    feeds = "\n".join(_row(name, site) for name, site in neurons.items())
    return _CARD.format(
        model_class=type(model).__name__,
        auto_class=_auto_class(model, auto_map),
        kept=_counted(sites, "attention heads") + (f" and {_counted(neurons, 'neurons')}" if neurons else ""),
        what="heads and neurons" if neurons else "heads",
        parameters=f"{model.num_parameters():,}",
        code=CODE,
        table=heads,
        feeds=_FEEDS.format(table=feeds) if neurons else "",
    )


def _kept(site: dict[str, Any]) -> list[int]:
    return [] if site["ghost"] else list(site["query"])


def _counted(sites: dict[str, Any], what: str) -> str:
    return f"{sum(len(_kept(site)) for site in sites.values())} of {sum(site['of'] for site in sites.values())} {what}"


def _row(name: str, site: dict[str, Any], *further: str) -> str:
    count = f"{len(_kept(site))} of {site['of']}"
    return f"| {' | '.join([name, count, *further])} |"


_CARD = """---
library_name: transformers
tags: [head-pruning, kheads]
---

# {model_class} with {kept}

The other {what} were removed for real with kheads: their weights are gone. {parameters} parameters remain.

```python
from transformers import {auto_class}

model = {auto_class}.from_pretrained("this folder or repository", trust_remote_code=True)
```

`{code}` gives the architecture its smaller shapes; read it before you trust it. Without `trust_remote_code` loading
fails, because the shapes differ from the original's.

| attention | heads kept | which (numbered as in the original) |
|---|---|---|
{table}
{feeds}"""
_FEEDS = """
| feed-forward | neurons kept |
|---|---|
{table}
"""
