"""What a run towards a time has chosen, kept beside its checkpoints: measured again, it would be something else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kheads.blocks.kept import Kept
from kheads.training.asked import plain, refuse_other
from kheads.training.recording import write_json

NAME = "chosen.json"


@dataclass(frozen=True)
class Chosen:
    """What was chosen.

    Attributes:
        kept: the blocks that stay.
        budget: what was asked for and reached, for the record.
    """

    kept: Kept
    budget: Mapping[str, Any]

    def write(self, folder: Path, asked: Mapping[str, Any]) -> None:
        """Notes it for a run that goes on, and what the run was asked to do."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json({"asked": plain(asked), "kept": self.kept.to_dict(), "budget": self.budget}, folder / NAME)


def read(folder: Path, asked: Mapping[str, Any]) -> Chosen | None:
    """What a run has chosen before; None if it has not come so far. What another run has chosen is refused."""
    path = folder / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        before, chosen = dict(found["asked"]), Chosen(Kept.from_dict(found["kept"]), dict(found["budget"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"{path} is not what a run has written; delete its folder and start the run anew.") from None
    refuse_other(str(path), before, asked, "give another output_dir")
    return chosen
