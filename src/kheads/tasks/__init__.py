"""Tasks to prune for: data, labels and metric."""

from kheads.tasks.classification import GLUE, METRICS, ClassificationTask, Encoded, from_files, from_rows, glue
from kheads.tasks.files import DataError
from kheads.tasks.image_classification import ImageTask, image_folders
from kheads.tasks.language_modelling import LanguageTask, text_blocks

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
