"""Tasks to prune for: data, labels and metric."""

from kheads.tasks.classification import GLUE, METRICS, ClassificationTask, Encoded, from_files, from_rows, glue
from kheads.tasks.files import DataError

__all__ = ["GLUE", "METRICS", "ClassificationTask", "DataError", "Encoded", "from_files", "from_rows", "glue"]
