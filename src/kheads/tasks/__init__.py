"""Tasks to prune for: data, labels and metric. A name is loaded when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kheads.tasks.classification import ClassificationTask, Encoded, from_files, from_rows, glue
    from kheads.tasks.files import DataError
    from kheads.tasks.glue_data import GLUE
    from kheads.tasks.image_classification import ImageTask, image_folders
    from kheads.tasks.language_modelling import LanguageTask, text_blocks
    from kheads.tasks.metrics import METRICS

_FILES = {
    "classification": ("ClassificationTask", "Encoded", "from_files", "from_rows", "glue"),
    "files": ("DataError",),
    "glue_data": ("GLUE",),
    "image_classification": ("ImageTask", "image_folders"),
    "language_modelling": ("LanguageTask", "text_blocks"),
    "metrics": ("METRICS",),
}
_HOMES = {name: file for file, names in _FILES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
