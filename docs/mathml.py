"""A Markdown extension: LaTeX between dollar signs becomes MathML, which browsers draw without a script."""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element
from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from pymdownx.arithmatex import ArithmatexExtension

WRAPPED = re.compile(r"\\([(\[])(.*)\\[)\]]", re.DOTALL)


class ToMathML(Treeprocessor):
    """Replaces what arithmatex has found."""

    def run(self, root: Element) -> None:
        """Works in place."""
        for holder in list(root.iter()):
            if holder.get("class") == "arithmatex":
                _convert(holder)


def _convert(holder: Element) -> None:
    found = WRAPPED.fullmatch((holder.text or "").strip())
    if found is None:
        raise ValueError(f"This formula cannot be read: {holder.text!r}.")
    bracket, latex = found.groups()
    holder.text = None
    holder.append(convert_to_element(_unescaped(latex), display="block" if bracket == "[" else "inline"))


def _unescaped(latex: str) -> str:
    """Arithmatex escapes a displayed formula for HTML; an element does that by itself."""
    return latex.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


class MathML(Extension):
    """Finds formulas by arithmatex's rules and converts them when the page is built."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (the name that Markdown calls)
        """Registers both steps; inline patterns have run by the time of the second."""
        ArithmatexExtension(generic=True).extendMarkdown(md)
        md.treeprocessors.register(ToMathML(md), "mathml", 0)


def makeExtension(**options: Any) -> MathML:  # noqa: N802 (the name that Markdown calls)
    """What Markdown looks for in a module of this name."""
    return MathML(**options)
