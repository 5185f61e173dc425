"""Runs a folder that `kheads export --to onnx` made, with numpy, onnxruntime and tokenizers alone.

    python run_onnx.py FOLDER "A first text." "A second one."

A classifier names its label for each text, a tagger one for each token, an encoder says how alike the texts are, a
language model goes on with each, and an encoder-decoder answers each. `--int8` takes the files of 8 bits.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

Arrays = dict[str, Any]


def run(session: Any, given: Arrays) -> Arrays:
    """The outputs by name; what is to be handed back is called as the next call takes it."""
    names = [one.name for one in session.get_outputs()]
    found = session.run(names, {one.name: given[one.name] for one in session.get_inputs()})
    return {name.replace("present.", "past_key_values."): value for name, value in zip(names, found, strict=True)}


def nothing_yet(session: Any, part: str = "") -> Arrays:
    """A past of length 0. Each layer has its own number of heads, which the file knows."""
    past = [one for one in session.get_inputs() if one.name.startswith("past_key_values.") and part in one.name]
    return {one.name: np.zeros((1, one.shape[1], 0, one.shape[3]), np.float32) for one in past}


def encode(tokenizer: Tokenizer, texts: list[str]) -> Arrays:
    """Texts as a batch, the shorter ones padded."""
    encoded = tokenizer.encode_batch(texts)
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return {name: np.array([getattr(one, field) for one in encoded]) for name, field in fields.items()}


def describe(outputs: Arrays, mask: Any, config: dict[str, Any]) -> list[str]:
    """What a model that is run once says of each text."""
    labels = config.get("id2label") or {}
    if "logits" in outputs:
        chosen = outputs["logits"].argmax(-1)
        rows = [row[kept > 0] if row.ndim else row.reshape(1) for row, kept in zip(chosen, mask, strict=True)]
        return [" ".join(str(labels.get(str(index), index)) for index in row) for row in rows]
    weights = mask[..., None] / mask.sum(1)[:, None, None]
    pooled = (outputs["last_hidden_state"] * weights).sum(1)
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    return [f"{' '.join(f'{value:.3f}' for value in row)}" for row in pooled @ pooled.T]


def go_on(session: Any, ids: list[int], count: int, end: int | None) -> list[int]:
    """The tokens that a language model adds to a text."""
    written = list(ids)
    given: Arrays = {"input_ids": np.array([ids]), "position_ids": np.arange(len(ids))[None], **nothing_yet(session)}
    for _ in range(count):
        given["attention_mask"] = np.ones((1, len(written)), np.int64)
        given.update(run(session, given))
        written.append(int(given["logits"][0, -1].argmax()))
        given["input_ids"], given["position_ids"] = np.array([written[-1:]]), np.array([[len(written) - 1]])
        if written[-1] == end:
            break
    return written


def answer(encoder: Any, decoder: Any, ids: list[int], count: int, config: dict[str, Any]) -> list[int]:
    """The tokens that an encoder-decoder writes for a text."""
    mask = np.ones((1, len(ids)), np.int64)
    given = {"encoder_attention_mask": mask, **run(encoder, {"input_ids": np.array([ids]), "attention_mask": mask})}
    given |= nothing_yet(decoder, ".decoder.")
    written = [config["decoder_start_token_id"]]
    for _ in range(count):
        given.update(run(decoder, {**given, "input_ids": np.array([written[-1:]])}))
        written.append(int(given["logits"][0, -1].argmax()))
        if written[-1] == config.get("eos_token_id"):
            break
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--new-tokens", type=int, default=20)
    given = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(given.folder / "tokenizer.json"))
    config = json.loads((given.folder / "config.json").read_text())
    generation = given.folder / "generation_config.json"
    if generation.exists():
        config |= json.loads(generation.read_text())
    files = sorted(given.folder.glob("*model_int8.onnx" if given.int8 else "*model.onnx"))
    sessions = {path.name.partition("model")[0]: onnxruntime.InferenceSession(str(path)) for path in files}
    if "encoder_" in sessions:
        for text in given.texts:
            ids = tokenizer.encode(text).ids
            print(tokenizer.decode(answer(sessions["encoder_"], sessions["decoder_"], ids, given.new_tokens, config)))
    elif nothing_yet(sessions[""]):
        for text in given.texts:
            ids = tokenizer.encode(text).ids
            print(tokenizer.decode(go_on(sessions[""], ids, given.new_tokens, config.get("eos_token_id"))))
    else:
        tokenizer.enable_padding(pad_id=config.get("pad_token_id") or 0)
        batch = encode(tokenizer, given.texts)
        print("\n".join(describe(run(sessions[""], batch), batch["attention_mask"], config)))


if __name__ == "__main__":
    main()
