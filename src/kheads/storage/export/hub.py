"""The hub target: a folder that loads with `trust_remote_code` where kheads is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kheads.storage.contents import read_json, write_json
from kheads.storage.export import card
from kheads.storage.export.companions import take_along, without_code
from kheads.storage.export.per_layer import per_layer
from kheads.storage.export.rehearsal import batches, rehearse
from kheads.storage.export.sentences import carry_sentence_files, sentence_files
from kheads.storage.export.target import Exported, ExportError, Order
from kheads.storage.marks import MARK
from kheads.storage.model_folder import CONFIG, GENERATION, write_model
from kheads.storage.weights import INDEX, weight_files
from kheads.surgery import rebuild

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CODE = "kheads_architecture.py"


def write(order: Order) -> Exported:
    """Writes the folder and compares what it gives in a new process."""
    model, folder = order.model, order.folder
    auto_class = _write_hub_folder(model, folder, order.source)
    written = {MARK, CONFIG, GENERATION, CODE, INDEX, card.NAME, *(path.name for path in weight_files(order.source))}
    left = take_along(order.source, folder, written | sentence_files(order.source))
    compared = rehearse(model, folder, auto_class, True, batches(model, order.inputs))
    sentences = carry_sentence_files(order)
    left_out = (f"Left out of the export: {', '.join(left)}.",) if left else ()
    return Exported((compared, *sentences.compared), (*left_out, *sentences.remarks))


def _write_hub_folder(model: PreTrainedModel, folder: Path, source: Path | None = None) -> str:
    """Writes the model with its code and its card, and returns the Auto class that loads it."""
    write_model(model, folder)
    auto_map = _auto_map(model)
    config = without_code(read_json(folder / CONFIG))
    write_json(folder / CONFIG, {**config, "auto_map": auto_map, **per_layer(model)})
    code = Path(rebuild.__file__).read_text(encoding="utf-8")
    # The code takes this one record, which is tried before the folder is there.
    sealed = code.replace('SEAL = ""', f'SEAL = "{rebuild.digest(config["kheads"])}"')
    (folder / CODE).write_text(sealed, encoding="utf-8")
    (folder / card.NAME).write_text(
        card.model_card(model, source or folder, _loading(model, auto_map)), encoding="utf-8"
    )
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


def _loading(model: PreTrainedModel, auto_map: dict[str, str]) -> str:
    """How to load the folder, for its card."""
    return _LOADING.format(auto_class=_auto_class(model, auto_map), code=CODE)


_LOADING = """```python
from transformers import {auto_class}

model = {auto_class}.from_pretrained("this folder or repository", trust_remote_code=True)
```

`{code}` gives the architecture its smaller shapes; read it before you trust it. Without `trust_remote_code` loading
fails, because the shapes differ from the original's.
"""
