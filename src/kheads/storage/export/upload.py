"""Upload of an exported folder to the Hugging Face hub, once it is in its place."""

from __future__ import annotations

from pathlib import Path

from kheads.storage.export.card import HUB_NAME
from kheads.storage.export.target import ExportError
from kheads.storage.marks import MARK


def check_push(name: str) -> None:
    """Raises if a folder could not be uploaded under that name; asked before any work.

    Args:
        name: USER/NAME on the hub.
    """
    from huggingface_hub import get_token

    if not isinstance(name, str) or not HUB_NAME.fullmatch(name):
        raise ValueError(f"`push` must be USER/NAME, as the hub names repositories; got {name!r}.")
    if get_token() is None:
        raise ValueError("`push` needs a login at the Hugging Face hub; run `hf auth login`, or set HF_TOKEN.")


def upload(folder: Path, name: str) -> str:
    """Uploads everything but kheads' mark, and returns the address of the repository."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        url = api.create_repo(name, exist_ok=True)
        api.upload_folder(
            repo_id=name, folder_path=folder, ignore_patterns=[MARK], commit_message="A model pruned with kheads"
        )
    except (OSError, ValueError) as error:  # the hub's own errors are of these
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ExportError(f"{folder} is complete, but could not be uploaded to {name}: {reason}.") from error
    return str(url)
