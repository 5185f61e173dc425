"""Writes the embedded task as files: 8,000 rows to train on, 1,000 to tune on, and 2,000 others to report on.

python experiments/trained/made_files.py FOLDER
"""

import json
import sys
from pathlib import Path

from kheads.lab.jobs.made_nli import PHENOMENA
from kheads.tasks.made_nli import generate

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
unseen = list(generate("eval", 3000, 0, PHENOMENA))
parts = {"train": list(generate("train", 8000, 0, PHENOMENA)), "tune": unseen[:1000], "report": unseen[1000:]}
for name, rows in parts.items():
    lines = [{"premise": row.premise, "hypothesis": row.hypothesis, "label": row.label} for row in rows]
    (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
