"""Tasks to prune for: data, labels and metric."""

from kheads.tasks.classification import ClassificationTask, Encoded, from_files, from_rows, glue
from kheads.tasks.files import DataError
from kheads.tasks.glue_data import GLUE
from kheads.tasks.image_classification import ImageTask, image_folders
from kheads.tasks.language_modelling import LanguageTask, text_blocks
from kheads.tasks.metrics import METRICS

__all__ = [
    "GLUE",
    "METRICS",
    "ClassificationTask",
    "DataError",
    "Encoded",
    "ImageTask",
    "LanguageTask",
    "from_files",
    "from_rows",
    "glue",
    "image_folders",
    "text_blocks",
]
