"""Conversion of this project's docstrings to reStructuredText.

Docstrings are plain prose. Names are explained as "horizon: number of time steps. dt: their length [s].", formulas
are indented blocks, and ``|x|`` or ``w_i`` have no special meaning.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable

from trajopt.config.keys import Entry, entries, paragraphs

_MARKUP = re.compile(r"(``.+?``|:[a-z:]+:`[^`]+`|`[^`]+`)", re.S)
_SPECIAL = re.compile(r"([\\*|_`])")


def is_formula(block: str) -> bool:
    """True if all lines of a block are indented."""
    return all(line.startswith("  ") for line in block.splitlines())


def is_session(block: str) -> bool:
    """True if a block is an interpreter session."""
    return block.lstrip().startswith(">>>")


def escape(text: str) -> str:
    """Escape prose for reStructuredText, except for roles and code."""
    parts = _MARKUP.split(text)
    return "".join(_code(part) if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def _code(span: str) -> str:
    return span if span.startswith(("``", ":")) else f"`{span}`"


def rest(lines: Iterable[str], names: Collection[str] = ()) -> list[str]:
    """Convert a docstring to reStructuredText; explained names become a list."""
    out: list[str] = []
    for block in paragraphs("\n".join(lines)):
        if is_session(block):
            out += inspect.cleandoc(block).splitlines()
        elif is_formula(block):
            out += ["::", "", *(f"    {line}" for line in inspect.cleandoc(block).splitlines())]
        else:
            before, found = entries(block, names)
            out += _verbatim_lines(block) if not found else _listed(before, found)
        out.append("")
    return out


def _verbatim_lines(block: str) -> list[str]:
    """Convert a paragraph; indented lines become a formula block."""
    out: list[str] = []
    for line in block.splitlines():
        indented = line.startswith("    ")
        if indented and not (out and out[-1].startswith("    ")):
            out += ["", "::", ""]
        if not indented and out and out[-1].startswith("    "):
            out.append("")
        out.append(line if indented else escape(line))
    return _joined_code(out)


def _joined_code(lines: list[str]) -> list[str]:
    """Join lines whose code spans continue on the next line, so that each span is escaped as a whole."""
    text = "\n".join(lines)
    return re.sub(r"(:[a-z:]+:\\`)([^`]*?)\n\s*([^`]*?\\`)", r"\1\2\3", text).splitlines()


def _listed(before: str, found: list[Entry]) -> list[str]:
    out = [escape(before), ""] if before else []
    for entry in found:
        keys = ", ".join(f"``{name}``" for name in entry.names)
        out.append(f"* {keys}" + (f": {escape(entry.text)}" if entry.text else ""))
    return out
