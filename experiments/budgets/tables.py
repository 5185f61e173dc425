"""Prints what the records say, a line for each setting: every seed, then the mean with Student's interval.

python experiments/budgets/tables.py [RESULTS]

RESULTS is the packed file, or the folder that `run.sh` fills. The layers that were left out are read from layers/.
"""

import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from kheads.lab.packing import load

STUDENT = {2: 12.71, 3: 4.303}  # 97.5 % quantile by the number of seeds
STAGES = ("unpruned", "cut", "repaired", "pruned")
HERE = Path(__file__).parent
Runs = dict[str, dict[int, dict[str, Any]]]  # records by setting and seed


def told(values: Sequence[float], digits: int = 1) -> str:
    """Every value, then the mean and its interval."""
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    if len(values) not in STUDENT:
        return each
    middle, far = mean(values), STUDENT[len(values)] * stdev(values) / math.sqrt(len(values))
    return f"{each}; {middle:.{digits}f} ({middle - far:.{digits}f} to {middle + far:.{digits}f})"


def runs(source: Path) -> Runs:
    """The records of pruned models, by setting and seed."""
    found: Runs = defaultdict(dict)
    for path, record in load(source).items():
        setting, _, seed = Path(path).stem.rpartition("-")
        found[setting][int(seed)] = record
    return found


def layers() -> Runs:
    """The records of models with fewer layers."""
    found: Runs = defaultdict(dict)
    for path in sorted((HERE / "layers").glob("*.json")):
        task, count, seed = path.stem.split("-")
        found[f"{task}-layers-{count}"][int(seed)] = json.loads(path.read_text(encoding="utf-8"))
    return found


def row(seeds: dict[int, dict[str, Any]]) -> Iterator[str]:
    """What was reached, and accuracy in percent at every stage."""
    records = [seeds[seed] for seed in sorted(seeds)]
    reached = [record.get("report", {}).get("budget", {}).get("speedup") for record in records]
    yield ", ".join(sorted({str(record.get("settings", record).get("bf16", False)) for record in records}))
    yield told([found["ratio"] for found in reached], 2) if all(reached) else "-"
    for stage in STAGES:
        known = [record["metrics"][stage]["report"] for record in records if stage in record["metrics"]]
        yield told([100 * found["accuracy"] for found in known]) if known else "-"


def natural(setting: str) -> list[Any]:
    """So that 5 stands before 10."""
    return [float(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+(?:\.\d+)?)", setting))]


def main() -> None:
    """Prints the table."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results.jsonl.gz"
    print(f"| setting | seeds | bf16 | times as fast | {' | '.join(STAGES)} |")
    print("|---" * (len(STAGES) + 4) + "|")
    for setting, seeds in sorted({**runs(source), **layers()}.items(), key=lambda item: natural(item[0])):
        print(f"| {setting} | {', '.join(map(str, sorted(seeds)))} | {' | '.join(row(seeds))} |")


if __name__ == "__main__":
    main()
