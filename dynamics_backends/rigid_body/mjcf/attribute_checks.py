"""Checks of an MJCF text before MuJoCo compiles it: numbers that are not finite, and sizes that would exhaust the memory.

MuJoCo replaces a mass of nan by a default, and allocates the sizes in `count`, `nkey` or `nrow`; some values crash the process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

MAX_COPIES = 100_000
"""Maximum number of copies by nested <replicate>, and of points of a <flexcomp> or <composite>."""
MAX_CELLS = 100_000_000
"""Maximum number of cells of a height field or texels of a texture."""
MAX_ENTRIES = 1_000_000
"""Maximum value of an attribute of <size> other than `memory`."""
_TAG = re.compile(r"<(/?)([A-Za-z_]\w*)((?:\s+[\w:.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))*)\s*(/?)>")
_ATTRIBUTE = re.compile(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_NOT_FINITE = re.compile(r"(?<!\S)[+-]?(?:nan|inf|infinity)(?!\S)", re.IGNORECASE)
_NAN = re.compile(r"(?<!\S)[+-]?nan(?!\S)", re.IGNORECASE)
_TEXTS = re.compile(
    r"(name|class|childclass|model|file|data|text|prefix|type|material|target|refname|objname|[a-z]*dir)\d?$"
)
"""Attributes that are not numbers."""
_NAMED = re.compile(r"(joint|body|geom|site|tendon|actuator|mesh|texture|hfield|sensor|camera|light|flex|skin|key)\w*$")
"""Attributes that name other elements."""


def attribute_errors(text: str) -> Iterator[str]:
    """Yield an error, with the line, for each attribute of an MJCF text that is unsafe for MuJoCo."""
    text = _without_comments(text)
    opened: list[int] = []
    copies, line, at = 1, 1, 0
    for tag in _TAG.finditer(text):
        closing, name, attributes, closed = tag.groups()
        line, at = line + text.count("\n", at, tag.start()), tag.start()
        if closing:
            copies //= opened.pop() if name == "replicate" and opened else 1
            continue
        values = {key: double or single for key, double, single in _ATTRIBUTE.findall(attributes)}
        where = f"line {line}, <{name}>: "
        for key, value in values.items():
            pattern = _NAN if key.endswith("range") else _NOT_FINITE
            if not (_TEXTS.match(key) or _NAMED.match(key)) and pattern.search(value):
                yield f"{where}{key} is {value!r}: give finite numbers"
        if name == "replicate" and not closed:
            opened.append(max(_leading_integer(values.get("count", "1")), 1))
            copies *= opened[-1]
            if copies > MAX_COPIES:
                yield f"{where}{copies} copies: MuJoCo would need too much memory; give at most {MAX_COPIES}"
                return
        elif name in _SIZES:
            yield from (where + sentence for sentence in _SIZES[name](values))


def _without_comments(text: str) -> str:
    """Replace comments by their newlines; linear in the length of the text, also for unclosed comments."""
    parts, at = [], 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        parts += [text[at:begin], "\n" * text.count("\n", begin, end)]
        at = end + 3
    return "".join([*parts, text[at:]])


def _leading_integer(text: str) -> int:
    """Leading integer of a text, 0 if there is none."""
    found = re.match(r"\s*\+?(\d{1,18})", text)
    return int(found[1]) if found else 0


def _product(values: Mapping[str, str], *keys: str) -> int:
    words = [word for key in keys for word in values.get(key, "").split()]
    return math.prod(max(_leading_integer(word), 1) for word in words)


def _limited(largest: int, *keys: str) -> Callable[[Mapping[str, str]], Iterator[str]]:
    """Return a check of the product of the numbers in some attributes."""

    def check(values: Mapping[str, str]) -> Iterator[str]:
        product = _product(values, *keys)
        if product > largest:
            yield f"{' times '.join(keys)} is {product}: MuJoCo would need too much memory; give at most {largest}"

    return check


def _size(values: Mapping[str, str]) -> Iterator[str]:
    for key, value in values.items():
        if key != "memory" and _leading_integer(value) > MAX_ENTRIES:
            yield f"{key} is {value!r}: MuJoCo would need too much memory; give at most {MAX_ENTRIES}"


_SIZES = {
    "flexcomp": _limited(MAX_COPIES, "count"),
    "composite": _limited(MAX_COPIES, "count"),
    "hfield": _limited(MAX_CELLS, "nrow", "ncol"),
    "texture": _limited(MAX_CELLS, "width", "height"),
    "size": _size,
}
