"""The files of sentence-transformers in an export, and whether that library gives the same vectors with them."""

from __future__ import annotations

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from kheads.storage import processors
from kheads.storage.contents import CheckpointError
from kheads.storage.embedder import Embedder
from kheads.storage.export.target import Exported, ExportError, Order, run_alone
from kheads.storage.sentence_folder import MODULES, WRITTEN, read_sentence_folder, write_sentence_folder
from kheads.storage.sentence_transformer import LIBRARY

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 1e-5
TEXTS = ["The harbour was quiet.", "Nobody had told the baker about it, so she waited until noon.", "Rain?"]

# Runs where kheads cannot be imported, as a user of the folder would.
CHILD = """
import json
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
folder, texts, outputs = sys.argv[1:]
model = SentenceTransformer(folder, trust_remote_code=True, local_files_only=True, device="cpu")
save_file({"vectors": model.encode(json.loads(texts), convert_to_tensor=True).float().cpu().contiguous()}, outputs)
"""


def sentence_files(source: Path) -> set[str]:
    """What is not copied from a folder, because it is made anew."""
    return set(WRITTEN) if (source / MODULES).exists() else set()


def write_sentence_files(order: Order) -> tuple[Embedder | None, tuple[str, ...]]:
    """Writes the files into the export, if the source has them and kheads can follow them.

    Returns:
        What they say, if they were written, and what the user should know.
    """
    try:
        found = read_sentence_folder(order.source)
    except CheckpointError as error:
        return None, (f"Left out of the export: the files of sentence-transformers. {error}",)
    if found is None:
        return None, ()
    config: Any = order.model.config
    write_sentence_folder(found.embedder, config.hidden_size, order.folder)
    return found.embedder, ()


def carry_sentence_files(order: Order) -> Exported:
    """Writes the files into the export and tries them."""
    embedder, remarks = write_sentence_files(order)
    if embedder is None:
        return Exported((), remarks)
    if find_spec(LIBRARY) is None:
        return Exported((), ("sentence-transformers is not installed, so its vectors were not compared.",))
    with tempfile.TemporaryDirectory() as scratch:
        outputs = str(Path(scratch) / "outputs.safetensors")
        arguments = [str(order.folder.resolve()), json.dumps(TEXTS), outputs]
        what = "The exported folder does not load in sentence-transformers"
        run_alone(CHILD, arguments, what, {"HF_MODULES_CACHE": scratch})
        return Exported((_compare(_own(order, embedder), load_file(outputs)["vectors"]),))


@torch.no_grad()
def _own(order: Order, embedder: Embedder) -> Tensor:
    words = processors.tokenizer(order.source)
    return embedder.of(order.model, embedder.tokens(words, TEXTS)).float()


def _compare(ours: Tensor, theirs: Tensor) -> str:
    difference = (ours - theirs).abs().max().item()
    if not torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE):
        raise ExportError(f"The vectors of sentence-transformers differ from the model's by {difference:.1e}.")
    return f"the vectors of SentenceTransformer differ by {difference:.1e} at most"
