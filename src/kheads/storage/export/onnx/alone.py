"""What the new process runs: the exported files, with numpy and onnxruntime and nothing else.

The text of this file is handed to the process, where kheads, torch and transformers cannot be imported.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Arrays = dict[str, Any]


def open_sessions(folder: str, ending: str) -> dict[str, Any]:
    """Every file of the folder whose name has the ending, by its name without it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    paths = sorted(Path(folder).glob(f"*model{ending}.onnx"))
    return {
        path.name.removesuffix(f"{ending}.onnx"): onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        for path in paths
    }


def run(session: Any, given: Arrays) -> Arrays:
    """What a file gives, by name, for those of the inputs that it takes."""
    names = [output.name for output in session.get_outputs()]
    return dict(
        zip(names, session.run(names, {one.name: given[one.name] for one in session.get_inputs()}), strict=True)
    )


def empty_past(session: Any, batch: int, part: str) -> Arrays:
    """Keys and values of length 0 for the inputs that have the part in their names."""
    return {
        one.name: np.zeros((batch, one.shape[1], 0, one.shape[3]), np.float32)
        for one in session.get_inputs()
        if one.name.startswith("past_key_values.") and part in one.name
    }


def handed_on(found: Arrays) -> Arrays:
    """What the next call takes as its past."""
    present = {name: value for name, value in found.items() if name.startswith("present.")}
    return {name.replace("present.", "past_key_values."): value for name, value in present.items()}


def run_plain(sessions: dict[str, Any], given: Arrays) -> Arrays:
    """One call."""
    return run(sessions["model"], given)


def run_decoder(sessions: dict[str, Any], given: Arrays) -> Arrays:
    """Reads the prompt with an empty past, then the tokens all at once, and again one by one."""
    session, mask = sessions["model"], given["attention_mask"]
    past = empty_past(session, len(mask), "")
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    found = run(session, {"input_ids": given["input_ids"], "attention_mask": mask, "position_ids": positions, **past})
    logits, steps = found["logits"], [found["logits"][:, -1]]
    together = _read_on(session, given, positions, handed_on(found))
    for place in range(given["tokens"].shape[1] - 1):
        mask = np.concatenate([mask, np.ones_like(mask[:, :1])], 1)
        positions = positions[:, -1:] + 1
        token = given["tokens"][:, place : place + 1]
        past = handed_on(found)
        found = run(session, {"input_ids": token, "attention_mask": mask, "position_ids": positions, **past})
        steps.append(found["logits"][:, -1])
    return {"logits": logits, "steps": np.stack(steps, 1), "together": together}


def _read_on(session: Any, given: Arrays, positions: Any, past: Arrays) -> Any:
    tokens = given["tokens"][:, :-1]
    mask = np.concatenate([given["attention_mask"], np.ones_like(tokens)], 1)
    places = positions[:, -1:] + 1 + np.arange(tokens.shape[1])
    return run(session, {"input_ids": tokens, "attention_mask": mask, "position_ids": places, **past})["logits"]


def run_encoder_decoder(sessions: dict[str, Any], given: Arrays) -> Arrays:
    """Reads the source; then the tokens all at once, and again one by one."""
    encoder, decoder = sessions["encoder_model"], sessions["decoder_model"]
    read = run(encoder, given)
    shared = {"encoder_attention_mask": given["attention_mask"], **handed_on(read)}
    past = empty_past(decoder, len(given["tokens"]), ".decoder.")
    logits = run(decoder, {"input_ids": given["tokens"][:, :-1], **shared, **past})["logits"]
    steps = []
    for place in range(given["tokens"].shape[1] - 1):
        found = run(decoder, {"input_ids": given["tokens"][:, place : place + 1], **shared, **past})
        past = handed_on(found)
        steps.append(found["logits"][:, -1])
    return {"last_hidden_state": read["last_hidden_state"], "logits": logits, "steps": np.stack(steps, 1)}


RUNS = {"plain": run_plain, "decoder": run_decoder, "encoder_decoder": run_encoder_decoder}


def timed(call: Any, choices: list[Any], rounds: int) -> Any:
    """Seconds of every choice in every round, (choices, rounds), after one round to warm up; they take turns.

    The processor's seconds, to which other jobs add little; sessions have one thread.
    """
    seconds = np.zeros((len(choices), rounds + 1))
    for number in range(rounds + 1):
        for index in range(len(choices))[:: 1 if number % 2 else -1]:
            begin = time.process_time()
            call(choices[index])
            seconds[index, number] = time.process_time() - begin
    return seconds[:, 1:]


def main(folder: str, kind: str, given: str, results: str, rounds: str, *endings: str) -> None:
    """Runs every case with the files of every ending, and times the last case if there are rounds.

    Args:
        folder: where the files are.
        kind: a key of `RUNS`.
        given: a file of arrays, `case/input`.
        results: the file to write, `ending/case/output` and `seconds`.
        rounds: how often to time.
        endings: of the files' names, such as `_int8`.
    """
    cases: dict[str, Arrays] = {}
    with np.load(given, allow_pickle=False) as arrays:
        for key in arrays.files:
            case, _, name = key.partition("/")
            cases.setdefault(case, {})[name] = arrays[key]
    sessions = [open_sessions(folder, ending) for ending in endings]
    found: Arrays = {}
    for ending, opened in zip(endings, sessions, strict=True):
        for case, arrays in cases.items():
            outputs = RUNS[kind](opened, arrays)
            found.update({f"{ending}/{case}/{name}": value for name, value in outputs.items()})
    if int(rounds):
        found["seconds"] = timed(lambda opened: RUNS[kind](opened, list(cases.values())[-1]), sessions, int(rounds))
    np.savez(results, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
