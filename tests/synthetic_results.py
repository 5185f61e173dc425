"""Made-up results in the shape of a sweep's, to test the report with. Every number is random; none was measured.

python tests/synthetic_results.py FOLDER    # writes FOLDER/sweep and FOLDER/run, to look at
"""

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

VERSIONS = {"kheads": "0.1.0", "torch": "2.13.0", "transformers": "5.22.2", "python": "3.11.9"}
MACHINE = {"platform": "Synthetic", "cores": 2, "threads": 2, "device": "cpu"}
# How far each method falls when heads go, and from which share of heads on.
FALL = {"dsp": 0.10, "dsp-pipelined": 0.35, "ste": 0.16, "voita": 0.14, "michel": 0.42, "retrain": 0.2, "random": 0.48}
# How each method looks: label, slot, marker, dash; the order is their rank.
LOOKS = {
    "dsp": ("Joint DSP", 0, "circle", "solid"),
    "dsp-pipelined": ("Pipelined DSP", 1, "diamond", "dashdot"),
    "ste": ("STE", 2, "square", "solid"),
    "voita": ("Voita", 3, "triangle-up", "solid"),
    "michel": ("Michel", 4, "triangle-down", "dashdot"),
    "retrain": ("Prune and retrain", 5, "pentagon", "dash"),
    "random": ("Random", 6, "cross", "dot"),
    "none": ("Unpruned", None, "", "dash"),
}
LAYERS, HEADS, STEPS = 6, 12, 600
KS = (48, 24, 12, 6, 3, 1)


def look(key: str) -> dict[str, Any]:
    """What a record says of its method's look."""
    label, slot, marker, dash = LOOKS[key]
    about = {"key": key, "label": label, "rank": list(LOOKS).index(key)}
    return {**about, "slot": slot, "colour": None, "marker": marker, "dash": dash}


def sites(kinds: tuple[str, ...] = ("encoder",)) -> list[dict[str, Any]]:
    """Attention modules as a record lists them."""
    paths = {
        "encoder": "encoder.layer.{}.attention",
        "decoder": "decoder.layer.{}.attention",
        "cross": "decoder.layer.{}.cross",
    }
    return [
        {"name": paths[kind].format(layer), "kind": kind, "count": HEADS} for kind in kinds for layer in range(LAYERS)
    ]


class Maker:
    """Draws records from one seed."""

    def __init__(self, seed: int = 0, kinds: tuple[str, ...] = ("encoder",), metric: str = "accuracy"):
        self.random = random.Random(seed)
        self.sites = sites(kinds)
        self.total = sum(site["count"] for site in self.sites)
        self.metric = metric

    def scores(self) -> list[float]:
        """Higher in the middle layers and in cross-attention."""
        bonus = {"encoder": 0.0, "decoder": 0.5, "cross": 2.0}
        return [
            self.random.gauss(bonus[site["kind"]] - abs(index % LAYERS - 2) / 2, 0.7)
            for index, site in enumerate(self.sites)
            for _ in range(HEADS)
        ]

    def kept(self, scores: list[float], k: int) -> dict[str, list[int]]:
        """The k highest."""
        best = set(sorted(range(self.total), key=lambda head: -scores[head])[:k])
        places = [(site["name"], head) for site in self.sites for head in range(HEADS)]
        found: dict[str, list[int]] = {site["name"]: [] for site in self.sites}
        for index in sorted(best):
            name, head = places[index]
            found[name].append(head)
        return found

    def quality(self, key: str, k: int) -> float:
        """Falls as heads go."""
        share = k / self.total
        value = 0.82 - FALL[key] * (1 - share) ** 4 + self.random.gauss(0, 0.006)
        return value if self.metric == "accuracy" else 40 * value

    def history(self, scores: list[float], k: int, annealed: bool, evaluated: bool = True) -> list[dict[str, Any]]:
        """Log entries whose heads wander, and settle where annealed."""
        entries = []
        for step in range(50, STEPS + 1, 50):
            done = step / STEPS
            wander = max(0.0, 1.2 * (1 - done / 0.6)) if annealed else (0.6 if step < STEPS else 0.0)
            now = [score + self.random.gauss(0, wander) if wander else score for score in scores]
            temperature = math.exp(math.log(1000) - min(1, done / 0.68) * math.log(1000 / 1e-8)) if annealed else 1000.0
            entry: dict[str, Any] = {
                "step": step,
                "epoch": done,
                "loss": 1.1 - 0.6 * done + self.random.gauss(0, 0.02),
                "temperature": temperature,
                "kept": self.kept(now, k),
            }
            entries.append(entry)
            if evaluated:
                level = (0.45 + 0.32 * done) * (1 if annealed else 0.85) + self.random.gauss(0, 0.01)
                entries.append({"step": step, f"eval_mismatched_{self.metric}": level * self.top(0) / 0.823})
        return entries

    def record(self, key: str, k: int | None, seed: int, **changes: Any) -> dict[str, Any]:
        """One run. `changes`: annealed, weight, recovered, evaluated."""
        method, pipelined = key.removesuffix("-pipelined"), key.endswith("-pipelined")
        scores = self.scores()
        asked = self.total if k is None else k
        kept = self.kept(scores, asked)
        unpruned = {"mismatched": {self.metric: self.top(seed)}, "matched": {self.metric: self.top(seed) + 0.01}}
        value = self.top(seed) if k is None else self.quality(key, k)
        pruned = {"mismatched": {self.metric: value}, "matched": {self.metric: value + 0.01}}
        metrics: dict[str, Any] = {"masked": pruned, "pruned": pruned}
        fields: dict[str, Any] = {"name": method}
        said: dict[str, Any] = {}
        history: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        annealed = changes.get("annealed", True)
        if method == "dsp":
            fields |= {"annealed": annealed, "gate_lr": 0.5}
        if method == "voita":
            weight = changes.get("weight", 0.0015)
            natural = max(1, round(self.total * (0.82 if weight < 2e-4 else 0.8 - 0.16 * math.log(weight / 2e-4))))
            natural = min(self.total - 9, natural + (0 if weight < 2e-4 else self.random.randint(-4, 6)))
            fields |= {"weight": weight}
            said = {"weight": weight, "natural_heads": natural, "adjusted_heads": asked - natural}
        if method == "michel":
            fields |= {"per_round": 12}
        if pipelined or method in ("michel", "random"):
            metrics["unpruned"] = unpruned
        if method == "retrain":
            said = {"steps_before_cut": STEPS // 3, "steps_after_cut": STEPS - STEPS // 3}
            seconds |= {"train": 200.0, "estimate": 10.0, "retrain": 340.0}
            metrics |= {"whole": {"mismatched": {self.metric: self.top(seed) * 0.9}}, "cut": {}}
        elif method in ("michel", "random"):
            seconds["estimate"] = 40.0 if method == "michel" else 0.1
        elif method == "none":
            seconds["train"] = 600 + self.random.gauss(0, 4)
            history["train"] = [{"step": step, "loss": 1.1 - step / STEPS / 2} for step in range(50, STEPS + 1, 50)]
        else:
            seconds["gates"] = (200 if pipelined else 606) + self.random.gauss(0, 4)
            history["gates"] = self.history(scores, asked, annealed, changes.get("evaluated", True))
        if "recovered" in changes:
            metrics["recovered"] = {"mismatched": {self.metric: value + 0.05}}
        settings = {"model": "synthetic-mini", "task": "synthetic-nli", "seed": seed, "k": k, "batch_size": 32}
        settings |= {
            "max_steps": STEPS,
            "estimate_examples": 2000,
            "trained": "unpruned" in metrics,
            "pipelined": pipelined,
        }
        settings |= {
            "epochs": 3.0,
            "max_train": None,
            "max_eval": None,
            "recover_steps": 100 if "recovered" in changes else 0,
        }
        trains = not pipelined and method not in ("michel", "random", "none")
        costs = {"extra_gradients": self.extra_gradients(key, asked), "trains_model": trains}
        axes = {name: changes[name] for name in ("weight", "annealed") if name in changes}
        name = "-".join([key, f"k{k}", f"s{seed}", *[f"{axis}{value}" for axis, value in axes.items()]])
        return {
            "method": fields,
            "look": look(key),
            "settings": settings,
            "metric": self.metric,
            "metrics": metrics,
            "kept": kept,
            "scores": scores if k is not None else [],
            "before": {"heads": self.total, "sites": self.sites, "parameters": 22_700_000, "bytes": 90_800_000},
            "after": {"heads": asked, **self.size(asked)},
            "report": {"seconds": seconds, **costs, **({"method": said} if said else {})},
            "history": history,
            "versions": VERSIONS,
            "machine": MACHINE,
            "run": {
                "id": name,
                "method": method,
                "k": k,
                "seed": seed,
                "pipelined": pipelined,
                "axes": axes,
                "state": "done",
                "reason": None,
                "seconds": sum(seconds.values()),
            },
        }

    def extra_gradients(self, key: str, k: int) -> int:
        """Examples whose gradient only served to choose heads."""
        rounds = math.ceil((self.total - k) / 12) + 1
        return {"dsp-pipelined": 32 * STEPS, "michel": 2000 * rounds, "retrain": 2000}.get(key, 0)

    def top(self, seed: int) -> float:
        """What the unpruned model reaches."""
        return (0.823 + 0.002 * seed) * (1 if self.metric == "accuracy" else 40)

    def size(self, k: int) -> dict[str, int]:
        """Parameters and bytes with k heads."""
        parameters = 22_700_000 - 49_000 * (self.total - k)
        return {"parameters": parameters, "bytes": 4 * parameters}

    def efficiency(self) -> dict[str, Any]:
        """The efficiency experiment."""
        rows = []
        for k in (1, 3, 6, 12, 24, 36, 48, 60):
            speed = 1 / (1 - (1 - k / self.total) * (1 - 1 / 1.5))
            for placement, masks in (("random", 10), ("concentrated", 1), ("spread", 1)):
                for mask in range(masks):
                    value = speed * (1 - abs(self.random.gauss(0, 0.004)))
                    row = {"k": k, "mask": mask, "placement": placement, "speedup": value, "ms": 40 / value}
                    row |= {"low": value * 0.99, "high": value * 1.01, **self.size(k)}
                    rows.append({**row, "shrinkage": 1 - self.size(k)["parameters"] / 22_700_000})
        limit = {"speedup": 1.5, "low": 1.48, "high": 1.52}
        about = {"model": "synthetic-mini", "heads": self.total, "batch": 8, "length": 128}
        return {**about, "rows": rows, "no_attention": limit, "versions": VERSIONS, "machine": MACHINE}


def write_sweep(folder: Path, kinds: tuple[str, ...] = ("encoder",), metric: str = "accuracy", seeds: int = 3) -> Path:
    """A whole results folder."""
    maker = Maker(1, kinds, metric)
    records = [maker.record("none", None, seed) for seed in range(seeds)]
    records += [maker.record(key, k, seed) for key in FALL for k in KS for seed in range(seeds)]
    weights = [1e-5 * 2**power for power in range(12)]
    records += [maker.record("voita", 12, seed, weight=weight) for weight in weights for seed in range(seeds)]
    records += [maker.record("dsp", k, seed, annealed=False) for k in (6, 12, 48) for seed in range(seeds)]
    runs = folder / "runs"
    runs.mkdir(parents=True)
    for record in records:
        (runs / f"{record['run']['id']}.json").write_text(json.dumps(record))
    failed = {"id": "ste-k2-s0", "method": "ste", "k": 2, "seed": 0, "pipelined": False, "axes": {}, "state": "failed"}
    (runs / "ste-k2-s0.json").write_text(
        json.dumps({"run": {**failed, "reason": "A made-up <b>reason</b>.", "seconds": 1}})
    )
    sweep: dict[str, Any] = {
        "name": "Synthetic results (random numbers)",
        "task": "synthetic-nli",
        "command": ["kheads", "sweep", "x.toml"],
    }
    sweep |= {"axes": {"method": list(FALL), "k": list(KS), "seed": list(range(seeds))}, "versions": VERSIONS}
    (folder / "sweep.json").write_text(json.dumps(sweep))
    (folder / "efficiency.json").write_text(json.dumps(maker.efficiency()))
    return folder


def write_run(folder: Path, kinds: tuple[str, ...] = ("encoder",)) -> Path:
    """The folder of one run, without the weights."""
    folder.mkdir(parents=True)
    record = Maker(2, kinds).record("dsp", 12, 0)
    del record["run"]
    (folder / "result.json").write_text(json.dumps(record))
    grid = [
        {"batch": batch, "length": length, "ms": 10.0, "against_ms": 13.0, "ratio": 1.3, "low": low, "high": 1.32}
        for batch, low in ((1, 0.99), (8, 1.28))
        for length in (32, 128)
    ]
    (folder / "measure.json").write_text(json.dumps({"grid": grid, "settings": {"device": "cpu", "threads": 2}}))
    return folder


if __name__ == "__main__":
    write_sweep(Path(sys.argv[1]) / "sweep")
    write_sweep(Path(sys.argv[1]) / "translation", ("encoder", "decoder", "cross"), "bleu")
    write_run(Path(sys.argv[1]) / "run")
