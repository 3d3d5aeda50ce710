"""Docstrings as people write them here, read: entries by name, and reStructuredText.

A docstring is prose in which names are explained as "horizon: number of time steps. dt: their length [s].", formulas stand in
indented blocks, and ``|x|`` or ``w_i`` mean what they say. Nothing of that is reStructuredText.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable

from trajopt.config.explanations import Entry, entries, paragraphs

_KEPT = re.compile(r"(``.+?``|:[a-z:]+:`[^`]+`|`[^`]+`)", re.S)
_SPECIAL = re.compile(r"([\\*|_`])")


def is_formula(block: str) -> bool:
    """Whether all lines of a block are indented."""
    return all(line.startswith("  ") for line in block.splitlines())


def is_session(block: str) -> bool:
    """Whether a block is a session with the interpreter."""
    return block.lstrip().startswith(">>>")


def escaped(text: str) -> str:
    """Prose as reStructuredText: roles and code stay, all other marks mean themselves."""
    parts = _KEPT.split(text)
    return "".join(_code(part) if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def _code(span: str) -> str:
    return span if span.startswith(("``", ":")) else f"`{span}`"


def rest(lines: Iterable[str], names: Collection[str] = ()) -> list[str]:
    """A docstring as reStructuredText; names are set as a list where they are explained."""
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
    """A paragraph; lines in it that are indented are a formula of their own."""
    out: list[str] = []
    for line in block.splitlines():
        indented = line.startswith("    ")
        if indented and not (out and out[-1].startswith("    ")):
            out += ["", "::", ""]
        if not indented and out and out[-1].startswith("    "):
            out.append("")
        out.append(line if indented else escaped(line))
    return _joined_code(out)


def _joined_code(lines: list[str]) -> list[str]:
    """Lines whose code spans end on the next line, joined, so that they are escaped as one."""
    text = "\n".join(lines)
    return re.sub(r"(:[a-z:]+:\\`)([^`]*?)\n\s*([^`]*?\\`)", r"\1\2\3", text).splitlines()


def _listed(before: str, found: list[Entry]) -> list[str]:
    out = [escaped(before), ""] if before else []
    for entry in found:
        keys = ", ".join(f"``{name}``" for name in entry.names)
        out.append(f"* {keys}" + (f": {escaped(entry.text)}" if entry.text else ""))
    return out
