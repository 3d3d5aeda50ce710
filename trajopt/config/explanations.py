"""Parse the explanations of names in docstrings: "horizon: number of time steps. dt: their length [s]."."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from typing import NamedTuple


class Entry(NamedTuple):
    """Explanation of one or more names in a docstring, for example "horizon, dt: the time grid."."""

    names: tuple[str, ...]
    text: str


def paragraphs(text: str) -> list[str]:
    """Split a docstring at blank lines into paragraphs, without common indentation."""
    return [block.strip("\n") for block in re.split(r"\n\s*\n", inspect.cleandoc(text)) if block.strip()]


def entries(paragraph: str, names: Collection[str]) -> tuple[str, list[Entry]]:
    """Split a paragraph into the prose before the first explained name, and the explanations of ``names``."""
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
    """Return the explanation of a name in the docstrings of a class and its bases, or ""."""
    for owner in kind.__mro__:
        for block in paragraphs(owner.__dict__.get("__doc__") or ""):
            for entry in entries(block, names)[1]:
                if name in entry.names and entry.text:
                    return entry.text
    return ""
