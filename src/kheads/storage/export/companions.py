"""What an exported folder takes along: the tokenizer's and the processor's files, as data, and the record of the run.

The folder is meant for publication and is loaded with `trust_remote_code`. So nothing goes along that is not known: no
code but kheads' own, no setting that names code, and nothing that a link leads to. Where files lay on the machine at
hand is nobody's business either: of a path its last part is told.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kheads.storage.contents import CheckpointError, is_foreign, read_json, write_json

CONFIGS = "tokenizer_config.json preprocessor_config.json processor_config.json video_preprocessor_config.json"
RECORD = "result.json"
KNOWN = f"""{CONFIGS} {RECORD}
added_tokens.json special_tokens_map.json tokenizer.json tokenizer.model chat_template.json
chat_template.jinja vocab.json vocab.txt merges.txt bpe.codes dict.txt normalizer.json emoji.json spiece.model spm.model
spm_char.model sentencepiece.model sentencepiece.bpe.model source.spm target.spm target_vocab.json vocab-src.json
vocab-tgt.json byte_maps.json entity_vocab.json word_shape.json word_pronunciation.json prophetnet.tokenizer"""
TEMPLATES = "additional_chat_templates"
LARGEST = 2**29  # bytes; the largest tokenizers have a tenth of it
SOURCES = re.compile("name_or_path|.+_file")  # entries of a config
# Where a path begins: at a root, a drive, a home, or a folder above. An address as https:// has is none.
ROOT = r"(?:[A-Za-z]:[\\/]|\\\\|/|~[\w.-]*[\\/]|\.{1,2}[\\/])"
IN_SENTENCES = re.compile(rf"(?<![\w./\\:~-]){ROOT}(?:[^\s\\/'\"`,;]+[\\/]+)+")


def take_along(source: Path, folder: Path, written: set[str]) -> list[str]:
    """Copies the known files from one folder to another.

    Args:
        source: a folder that may come from anywhere.
        folder: the new one.
        written: names of files that are not copied, because they are made anew.

    Returns:
        What was left out, each with the reason if it is not its name.
    """
    left = []
    for path in sorted(source.iterdir()):
        if path.name == TEMPLATES and path.is_dir() and not is_foreign(source, path):
            (folder / TEMPLATES).mkdir()
            for template in sorted(path.iterdir()):
                known = template.suffix == ".jinja"
                left += _take(source, template, folder / TEMPLATES) if known else [f"{TEMPLATES}/{template.name}"]
        elif path.name in KNOWN.split():
            left += _take(source, path, folder)
        elif path.name not in written:
            left.append(f"{path.name}/" if path.is_dir() and not path.is_symlink() else path.name)
    return left


def _take(source: Path, path: Path, folder: Path) -> list[str]:
    """Copies a file and returns what had to be left out of it, or the file itself."""
    if is_foreign(source, path):
        return [f"{path.name} (a link to another place)"]
    if not path.is_file() or path.stat().st_size > LARGEST:
        return [f"{path.name} (no file of a sensible size)"]
    if path.name not in (*CONFIGS.split(), RECORD):
        shutil.copyfile(path, folder / path.name)
        return []
    try:
        config = read_json(path)
    except CheckpointError:
        return [f"{path.name} (not valid JSON)"]
    plain = without_code(config)
    write_json(folder / path.name, without_places(plain) if path.name == RECORD else _without_sources(plain))
    return [] if plain == config else [f"auto_map of {path.name} (it names code)"]


def without_code(value: Any) -> Any:
    """The same settings without `auto_map`, which tells transformers what code to import; inner ones too."""
    if isinstance(value, dict):
        return {key: without_code(inner) for key, inner in value.items() if key != "auto_map"}
    return [without_code(inner) for inner in value] if isinstance(value, list) else value


def _without_sources(config: dict[str, Any]) -> dict[str, Any]:
    """The same without where a tokenizer was read from. Its other texts, such as templates, are nobody's to change."""
    return {
        name: _last(value) if isinstance(value, str) and SOURCES.fullmatch(name) and _is_path(value) else value
        for name, value in config.items()
    }


def without_places(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a run without the folders in which files lay: of a path only its last part stays.

    Settings are paths as a whole, maybe with blanks in them. What else is said may name them, or others, in a sentence.
    """
    # Longest first, so that no path is taken for the beginning of another one.
    known = sorted({text for text in _texts(record.get("settings")) if _is_path(text)}, key=len, reverse=True)

    def plain(text: str) -> str:
        for path in known:
            text = text.replace(path, _last(path))
        return IN_SENTENCES.sub("", text)

    changed: dict[str, Any] = _changed(record, plain)
    return changed


def _is_path(text: str) -> bool:
    return re.match(ROOT, text) is not None


def _last(path: str) -> str:
    return re.split(r"[\\/]+", path.rstrip("\\/"))[-1] or path[:1]


def _texts(content: Any) -> list[str]:
    """All texts in it that are no names of entries."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        return [text for inner in content for text in _texts(inner)]
    return [content] if isinstance(content, str) else []


def _changed(content: Any, change: Callable[[str], str]) -> Any:
    if isinstance(content, dict):
        return {name: _changed(inner, change) for name, inner in content.items()}
    if isinstance(content, list):
        return [_changed(inner, change) for inner in content]
    return change(content) if isinstance(content, str) else content
