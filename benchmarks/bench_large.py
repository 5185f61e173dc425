"""Choosing and repairing on a model of a billion parameters: minutes, and memory beside the model's own.

python benchmarks/bench_large.py [--layers 22] [--width 2048] [--inner 5632] [--tokens 8192] [--keep 0.7]

The model is a Llama of bfloat16 weights drawn at random, built from a config; its text is random, too. So nothing is
said about quality. Memory is what the process has of its own (RssAnon of Linux) at the worst moment, less what it had
before there was a model; weights that are read from disk can be dropped at any time and are shown apart.
"""

import argparse
import json
import re
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

import kheads
from kheads.training.recording import machine, versions
from kheads.training.run import Run

STATUS = Path("/proc/self/status")


def resident() -> dict[str, int]:
    """Bytes in memory: the process's own, and pages of files."""
    found = re.findall(r"Rss(Anon|File):\s+(\d+) kB", STATUS.read_text())
    return {name: int(number) * 1024 for name, number in found}


def phase() -> str:
    """What the main thread is at: the method of `Run` that carries out a phase, or something before or after."""
    frame, below = sys._current_frames().get(threading.main_thread().ident or 0), ""
    while frame is not None:
        if frame.f_code is Run.carry_out.__code__:
            return below
        below, frame = frame.f_code.co_name, frame.f_back
    return "rest"


class Peak(threading.Thread):
    """Watches what is in memory, in each phase, until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.phases: dict[str, dict[str, int]] = {}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            now = resident()
            most = self.phases.setdefault(phase(), now)
            most |= {name: max(most[name], now[name]) for name in now}

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.join()

    def __enter__(self) -> "Peak":
        self.start()
        return self


def built(options: argparse.Namespace) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=options.width,
        intermediate_size=options.inner,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 64,
        num_key_value_heads=options.width // 512,
        vocab_size=32_000,
        dtype=torch.bfloat16,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM._from_config(config, dtype=torch.bfloat16).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in {"layers": 22, "width": 2048, "inner": 5632, "tokens": 8192}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--keep", type=float, default=0.7, help="share of the parameters that stays")
    options = parser.parse_args()
    before = resident()
    model = built(options)
    own = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    rows = torch.randint(100, 32_000, (options.tokens // 128, 128), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "labels": row, "attention_mask": torch.ones_like(row)} for row in rows]
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Peak() as peak:
        args = TrainingArguments(folder, report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=False)
        result = kheads.prune(
            model,
            budget=kheads.Budget(params=options.keep),
            method="surgeon",
            train_dataset=data,
            args=args,
            trained=True,
            training=False,
        )
    seconds = result.report["seconds"]
    print(
        json.dumps(
            {
                "parameters": [result.before["parameters"], sum(weight.numel() for weight in model.parameters())],
                "model_bytes": own,
                "peak": {
                    name: max(most[name] - before[name] for most in peak.phases.values()) / own for name in before
                },
                "peak_of_phases": {
                    name: {kind: (most[kind] - before[kind]) / own for kind in before}
                    for name, most in peak.phases.items()
                },
                "minutes": {
                    name: value / 60 for name, value in {**seconds, "all": time.perf_counter() - begin}.items()
                },
                "tokens": {"scored": options.tokens, "repaired": result.report["repair"]["tokens"]},
                "refitted": sum(site["ridge"] is not None for site in result.report["repair"]["sites"]),
                "threads": torch.get_num_threads(),
                "versions": versions(),
                "machine": machine(),
            }
        )
    )


if __name__ == "__main__":
    main()
