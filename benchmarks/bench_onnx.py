"""Whether what a smaller model gains carries over to onnxruntime and int8.

    python benchmarks/bench_onnx.py

Exports the embedded MiniLM whole, with 12 of its 72 heads (by random scores) and with heads and neurons of half of its
FLOPs (at random, too), and lets torch, onnxruntime and onnxruntime with int8 weights take turns on all three in one
interleaved run, at 1 x 16 and 8 x 128. Ratios are medians over neighbours with 95 % intervals. With one thread the
processor's time counts, to which other jobs add little; with more the clock's. Prints two tables, what `export` itself
reports, and, last, one JSON line.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor

import kheads
from kheads.blocks.site import total
from kheads.measuring.measurement import cut_copy
from kheads.measuring.pricing import inputs_for, price
from kheads.measuring.timing import Ratio, interleaved, speedup
from kheads.storage import sources
from kheads.training.recording import machine, versions

ENGINES = {"torch": "", "onnxruntime": "model.onnx", "onnxruntime, int8": "model_int8.onnx"}
WHOLE, HEADS, HALF = "whole", "12 heads", "half of the FLOPs"


def models(name: str, seed: int) -> dict[str, Any]:
    """The whole model and the smaller ones."""
    whole = sources.model(name).eval()
    found = {WHOLE: whole}
    for label, parts, budget in ((HEADS, "heads", 12), (HALF, "all", kheads.Budget(flops=0.5))):
        sites = kheads.discover(whole, parts=parts)
        scores = torch.rand(total(sites), generator=torch.Generator().manual_seed(seed))
        costs = None if isinstance(budget, int) else price(whole, budget, sites)
        found[label] = cut_copy(whole, kheads.select(scores, budget, sites, costs=costs))
    return found


def sessions(label: str, model: Any, place: Path, threads: int) -> tuple[dict[str, Any], list[str]]:
    """The exported files, opened, and what `export` said of them."""
    said: list[str] = []
    folder = kheads.save(model, place / label)
    out = kheads.export(folder, place / f"{label}, exported", to="onnx", tell=said.append, int8=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    files = {engine: out / file for engine, file in ENGINES.items() if file}
    return {engine: onnxruntime.InferenceSession(str(path), options) for engine, path in files.items()}, said


def call_of(engine: Any, inputs: dict[str, Tensor]) -> Callable[[], Any]:
    if isinstance(engine, torch.nn.Module):
        return lambda: engine(**inputs)
    given = {name: value.numpy() for name, value in inputs.items()}
    given["token_type_ids"] = 0 * given["input_ids"]
    return lambda: engine.run(None, given)


def measure(
    engines: dict[tuple[str, str], Any], at: tuple[int, int], repeats: int, clock: Callable[[], float]
) -> dict[str, Any]:
    """Times and ratios at one size."""
    inputs = inputs_for(engines["torch", WHOLE], kheads.Budget(speedup=2, at=at))
    calls = [call_of(one, inputs) for one in engines.values()]
    with torch.inference_mode():
        seconds = interleaved(calls, repeats, torch.device("cpu"), clock=clock)
    of = dict(zip(engines, seconds, strict=True))
    smaller = {
        f"{engine}: {label}": asdict(speedup(of[engine, WHOLE], of[engine, label]))
        for engine, label in engines
        if label != WHOLE
    }
    pairs = (("torch", "onnxruntime"), ("onnxruntime", "onnxruntime, int8"))
    faster = {
        f"{one} / {other}: {label}": asdict(speedup(of[one, label], of[other, label]))
        for one, other in pairs
        for label in (WHOLE, HEADS, HALF)
    }
    ms = {f"{engine}: {label}": 1e3 * float(of[engine, label].median()) for engine, label in engines}
    return {"at": list(at), "ms": ms, "smaller": smaller, "faster": faster}


def show(row: dict[str, Any], kind: str, first: list[str], labels: tuple[str, ...]) -> list[str]:
    """Lines of a table: one for each engine or pair of engines."""
    size = " x ".join(map(str, row["at"]))
    lines = []
    for name in first:
        cells = [Ratio(**row[kind][f"{name}: {label}"]) for label in labels]
        whole = [f"{row['ms'][f'{name}: {WHOLE}']:.1f}"] if kind == "smaller" else []
        ratios = [f"{one.ratio:.2f} ({one.low:.2f} to {one.high:.2f})" for one in cells]
        lines.append(f"| {' | '.join([size, name, *whole, *ratios])} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=sources.EMBEDDED)
    parser.add_argument("--at", type=int, nargs=2, action="append", metavar=("BATCH", "LENGTH"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    engines: dict[tuple[str, str], Any] = {}
    reports = {}
    with tempfile.TemporaryDirectory() as place:
        for label, model in models(given.model, given.seed).items():
            opened, reports[label] = sessions(label, model, Path(place), given.threads)
            engines |= {(engine, label): one for engine, one in {"torch": model, **opened}.items()}
    clock = time.process_time if given.threads == 1 else time.perf_counter
    rows = [measure(engines, (at[0], at[1]), given.repeats, clock) for at in given.at or [[1, 16], [8, 128]]]
    print(f"| batch | engine | ms, whole | {HEADS} | {HALF} |\n|---|---|---|---|---|")
    print("\n".join(line for row in rows for line in show(row, "smaller", list(ENGINES), (HEADS, HALF))))
    print(f"\n| batch | pair | {WHOLE} | {HEADS} | {HALF} |\n|---|---|---|---|---|")
    pairs = ["torch / onnxruntime", "onnxruntime / onnxruntime, int8"]
    print("\n".join(line for row in rows for line in show(row, "faster", pairs, (WHOLE, HEADS, HALF))))
    print("\n".join(f"\n{label}: {'; '.join(said)}" for label, said in reports.items()))
    about = {"threads": given.threads, "repeats": given.repeats, "versions": versions(), "machine": machine()}
    about |= {"clock": clock.__name__, "onnxruntime": onnxruntime.__version__}
    print(json.dumps({"benchmark": "onnx", **about, "rows": rows, "reports": reports}))


if __name__ == "__main__":
    main()
