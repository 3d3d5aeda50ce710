"""Docstrings as people write them here, read: entries by name, and reStructuredText.

A docstring is prose in which names are explained as "horizon: number of time steps. dt: their length [s].", formulas stand in
indented blocks, and ``|x|`` or ``w_i`` mean what they say. Nothing of that is reStructuredText.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

_KEPT = re.compile(r"(``.+?``|:[a-z:]+:`[^`]+`|`[^`]+`)", re.S)
_SPECIAL = re.compile(r"([\\*|_`])")


class Entry(NamedTuple):
    """What a docstring says of some names: "horizon, dt: the time grid." """

    names: tuple[str, ...]
    text: str


def paragraphs(text: str) -> list[str]:
    """The blocks of a docstring that blank lines separate, without its common indentation."""
    return [block.strip("\n") for block in re.split(r"\n\s*\n", inspect.cleandoc(text)) if block.strip()]


def is_formula(block: str) -> bool:
    """Whether all lines of a block are indented."""
    return all(line.startswith("  ") for line in block.splitlines())


def is_session(block: str) -> bool:
    """Whether a block is a session with the interpreter."""
    return block.lstrip().startswith(">>>")


def entries(paragraph: str, names: Collection[str]) -> tuple[str, list[Entry]]:
    """What stands before the first explained name, and the explanations of names among ``names``."""
    prose = " ".join(line.strip() for line in paragraph.splitlines())
    if not names:
        return prose, []
    one = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    unit = r"(?: \([^()]*\)| \[[^\]]*\])*"
    found = list(re.finditer(rf"(?:^|(?<=[.;:] ))((?:{one})(?:{unit}, (?:{one}))*{unit})(?=[:;.](?: |$))", prose))
    if not found:
        return prose, []
    explained = []
    for match, following in zip(found, [*found[1:], None], strict=True):
        text = prose[match.end() + 1 : following.start() if following else None].strip()
        given = re.findall(r"\[[^\]]*\]|\([^()]*\)", match[1])
        keys = tuple(name for name in re.findall(r"\w+", re.sub(unit, "", match[1])) if name in names)
        explained.append(Entry(keys, " ".join([*given, text]).strip()))
    return prose[: found[0].start()].strip(), explained


def meaning_of(kind: type, name: str, names: Collection[str]) -> str:
    """What the docstrings of a class and of its bases say of a name; "" where none does."""
    for owner in kind.__mro__:
        for block in paragraphs(owner.__dict__.get("__doc__") or ""):
            for entry in entries(block, names)[1]:
                if name in entry.names and entry.text:
                    return entry.text
    return ""


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
