"""The paper's own numbers (Table 3), shown beside ours where the setting is the paper's."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources

from kheads.lab.report.results import Results
from kheads.lab.report.setting import model_name


@dataclass(frozen=True)
class Published:
    """One half of Table 3, and what a run has to be like to be compared with it."""

    file: str
    name: str
    heads: int
    metrics: tuple[str, ...]
    task: str
    model: str | None
    evaluation: str | None
    epochs: float
    batch_size: int | None


TABLES = (
    Published("bert_mnli.csv", "BERT on MNLI", 144, ("accuracy",), "mnli", "bert-base-uncased", "mismatched", 3, 32),
    Published(
        "encdec_iwslt14.csv", "Enc-Dec on IWSLT14", 72, ("bleu", "bleu_moses"), "translation", "iwslt", "test", 60, None
    ),
)


def published(results: Results) -> tuple[dict[str, dict[int, float]] | None, str]:
    """The paper's numbers by method and K, if the setting is theirs; and a sentence on that."""
    for table in TABLES:
        differences = _differences(table, results)
        if not differences:
            return load(table.file), f"Hollow points: the paper's Table 3 ({table.name})."
        if len(differences) == 1:
            return None, f"The paper's numbers for {table.name} are left out, because {differences[0]}."
    return None, "The setting is not the paper's, so its numbers are left out."


def load(file: str) -> dict[str, dict[int, float]]:
    """Reads a half of Table 3: {key: {K: number}}."""
    text = resources.files("kheads.methods").joinpath("paper", file).read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    methods = [name for name in rows[0] if name != "k"]
    return {method: {int(row["k"]): float(row[method]) for row in rows} for method in methods}


def _differences(table: Published, results: Results) -> list[str]:
    """What is not as in the paper, in words."""
    if not results.runs:
        return ["there are no runs", "nothing was measured"]
    run = next((run for run in results.runs if not run.settings.get("trained")), results.runs[0])
    settings = run.settings
    checks = [
        (run.total == table.heads, f"the model has {run.total} heads and not {table.heads}"),
        (results.metric in table.metrics, f"the metric is {results.metric}"),
        (table.task in str(settings.get("task") or results.sweep.get("task")), "the task is another"),
        (table.model in (None, model_name(run)), f"the model is {model_name(run)}"),
        (table.evaluation is None or table.evaluation in results.evaluation, f"the set is {results.evaluation}"),
        ((settings.get("max_steps") or -1) <= 0 and settings.get("epochs") == table.epochs, "training was not as long"),
        (table.batch_size in (None, settings.get("batch_size")), f"the batch is {settings.get('batch_size')}"),
        (settings.get("max_train") is None and settings.get("max_eval") is None, "only a part of the data was used"),
    ]
    return [words for holds, words in checks if not holds]
