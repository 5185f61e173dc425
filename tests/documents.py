"""The documents of the project, as tests read them: pages, generated parts, and blocks and commands in them."""

import importlib.util
import re
import shlex
import sys
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))

FENCE = re.compile(
    r"(?P<remark><!-- not run: [^\n]* -->\n)?^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
INCLUDED = re.compile(r'^ *--8<-- "([^":]+)(?::\d+)?"$', re.MULTILINE)
INLINE = re.compile(r"`(kheads [a-z-][^`]*)`")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; included files are left as the line that includes them."""

    page: str
    language: str
    text: str
    runs: bool


def name(page: Path) -> str:
    """The page's path in the project."""
    return page.relative_to(ROOT).as_posix()


def prose() -> str:
    """Everything that was written by hand."""
    return "\n".join(page.read_text() for page in PAGES)


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page in these languages."""
    return [
        Block(name(page), found["language"], textwrap.dedent(found["text"]), found["remark"] is None)
        for found in FENCE.finditer(page.read_text())
        if found["language"] in languages
    ]


def commands(page: Path) -> list[tuple[str, ...]]:
    """Every call of kheads in a page's blocks, as the words after `kheads`, in order."""
    found = [words for block in blocks(page, "bash", "console") for words in _calls(block)]
    return list(dict.fromkeys(found))


def inline_commands(page: Path) -> list[tuple[str, ...]]:
    """Every call of kheads in a page's sentences that is not cut short."""
    text = FENCE.sub("", page.read_text())
    calls = [" ".join(call.split()) for call in INLINE.findall(text)]
    return list(dict.fromkeys(tuple(shlex.split(call)[1:]) for call in calls if "..." not in call))


def _calls(block: Block) -> list[tuple[str, ...]]:
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    words = [shlex.split(part, comments=True) for line in lines for part in line.split(" | ")]
    return [call for call in map(_after_kheads, words) if call]


def _after_kheads(words: list[str]) -> tuple[str, ...]:
    """What follows `kheads`, or the `-m kheads` of a launcher."""
    if words[:1] == ["kheads"] or (words[:1] == ["torchrun"] and "kheads" in words):
        return tuple(words[words.index("kheads") + 1 :])
    return ()


@cache
def generator() -> ModuleType:
    """docs/generate.py, which is a script and not a package."""
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module
