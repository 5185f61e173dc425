"""The card of an ONNX folder: what is in it, and how to run it."""

from __future__ import annotations

from kheads.storage.export.onnx.graph import Kind
from kheads.storage.export.onnx.int8 import ENDING
from kheads.storage.export.target import Order

NAME = "README.md"


def write_card(order: Order, kind: Kind) -> None:
    """Writes the card."""
    files = sorted(path.name for path in order.folder.glob("*.onnx"))
    small = any(ENDING in name for name in files)
    text = _CARD.format(
        model_class=type(order.model).__name__,
        files=", ".join(f"`{name}`" for name in files),
        int8=_INT8 if small else "",
        use=_USES[kind.name] if order.model.main_input_name == "input_ids" else _IMAGES,
    )
    (order.folder / NAME).write_text(text, encoding="utf-8")


_CARD = """---
library_name: onnx
tags: [onnx, kheads]
---

# {model_class}, as ONNX

{files}: the pruned model as graphs that onnxruntime runs, and OpenVINO reads, without torch, transformers or kheads.
They were compared with the model in a process that had none of these.
{int8}
{use}"""

_INT8 = """
Files with `_int8` in their names have weights of 8 bits: smaller, perhaps faster, and not exact. Try them on your own
data, and delete what you do not use.
"""

_TEXT = """
```python
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
"""

_PLAIN = (
    _TEXT
    + """tokenizer.enable_padding()  # pad_id: pad_token_id of config.json, if that is not 0
session = onnxruntime.InferenceSession("model.onnx")
encoded = tokenizer.encode_batch(["one sentence", "and a longer one"])
inputs = {
    "input_ids": np.array([one.ids for one in encoded]),
    "attention_mask": np.array([one.attention_mask for one in encoded]),
    "token_type_ids": np.array([one.type_ids for one in encoded]),
}
inputs = {one.name: inputs[one.name] for one in session.get_inputs()}
print(session.run(None, inputs)[0])
```

Batch and length may have any size that the model has positions for.
"""
)

_DECODER = (
    _TEXT
    + """session = onnxruntime.InferenceSession("model.onnx")
ids = tokenizer.encode("Once upon a time").ids
inputs = {"input_ids": np.array([ids]), "position_ids": np.arange(len(ids))[None]}
for one in session.get_inputs():
    if one.name.startswith("past_key_values."):  # nothing was read before
        inputs[one.name] = np.zeros((1, one.shape[1], 0, one.shape[3]), np.float32)
for _ in range(20):
    inputs["attention_mask"] = np.ones((1, len(ids)), np.int64)
    names = [one.name for one in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, {one.name: inputs[one.name] for one in session.get_inputs()})))
    ids.append(int(outputs.pop("logits")[0, -1].argmax()))
    inputs["input_ids"], inputs["position_ids"] = np.array([ids[-1:]]), np.array([[len(ids) - 1]])
    inputs.update({name.replace("present", "past_key_values"): value for name, value in outputs.items()})
print(tokenizer.decode(ids))
```

Batch and lengths may have any size; pad on the left, with 0 in `attention_mask` and positions that count from the first
token. Layers have different numbers of heads: take the shapes of the past from the file, as above.
"""
)

_ENCODER_DECODER = (
    _TEXT
    + """encoder = onnxruntime.InferenceSession("encoder_model.onnx")
decoder = onnxruntime.InferenceSession("decoder_model.onnx")
source = tokenizer.encode("Ein Hund bellt.").ids
start = 0  # decoder_start_token_id of generation_config.json or config.json


def run(session, given):
    names = [one.name for one in session.get_outputs()]
    found = session.run(names, {one.name: given[one.name] for one in session.get_inputs()})
    return {name.replace("present", "past_key_values"): value for name, value in zip(names, found)}


mask = np.ones((1, len(source)), np.int64)
inputs = {"encoder_attention_mask": mask, **run(encoder, {"input_ids": np.array([source]), "attention_mask": mask})}
for one in decoder.get_inputs():
    if ".decoder." in one.name:  # nothing was written yet
        inputs[one.name] = np.zeros((1, one.shape[1], 0, one.shape[3]), np.float32)
written = [start]
for _ in range(20):
    inputs.update(run(decoder, {**inputs, "input_ids": np.array([written[-1:]])}))
    written.append(int(inputs["logits"][0, -1].argmax()))
print(tokenizer.decode(written))
```

Batch and lengths may have any size. The encoder's file also gives the keys and values of the cross-attentions, which
the decoder's file takes with every token.
"""
)

_USES = {"plain": _PLAIN, "decoder": _DECODER, "encoder_decoder": _ENCODER_DECODER}

_IMAGES = """
```python
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
(pixels,) = session.get_inputs()
images = np.zeros((2, *pixels.shape[1:]), np.float32)  # prepared as preprocessor_config.json says
print(session.run(None, {"pixel_values": images})[0])
```

The batch may have any size; images have the size that the model was made for.
"""
