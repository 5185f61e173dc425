"""Rounds the scores of a record to three digits: all digits of 9,288 blocks would make it five times as large.

python experiments/budgets/shorten.py RESULT.json
"""

import json
import sys
from pathlib import Path

path = Path(sys.argv[1])
record = json.loads(path.read_text(encoding="utf-8"))
record["scores"] = [float(f"{score:.3g}") for score in record["scores"]]
path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
