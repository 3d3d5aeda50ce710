"""Text from users and files: bounded reading, bounded nesting, and messages of bounded length.

:class:`InputError` shortens its message by :func:`shortened`, since a file may contain values of megabytes.
"""

from __future__ import annotations

import json
import re
import reprlib
import tomllib
from pathlib import Path
from typing import Any

LONGEST_QUOTE = 100
"""Maximum length of a quoted value in a message [characters]; the middle of a longer value is omitted."""
LONGEST_MESSAGE = 8000
"""Maximum length of a whole message [characters]; the middle of a longer message is omitted."""
MAX_DEPTH = 50
"""Maximum nesting of lists and tables in JSON and TOML; the files of this project have fewer than ten levels."""
LARGEST_TEXT = 16 << 20
"""Maximum size of a text file, 16 MiB: the largest robots take about 1 MiB."""
LARGEST_INTEGER = 2**63
"""Absolute values of integers in TOML must be smaller than this (64 bits)."""
_CLOSING = {quote: re.compile(rf"{quote}(?!\w)") for quote in "'\""}
_OPENING = re.compile(r"""(?<!\w)['"]""")
_QUOTED_OR_POINT = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'[^']*')|(?<![\w.])(?:(\d[\d_]*)\.(?=[eE][+-]?\d|[^\w.]|$)|\.(?=\d))"""
)
"""A quoted text, or the point at the end or the beginning of a number."""
_LONG_WORD = re.compile(rf"\S{{{3 * LONGEST_QUOTE},}}")
_LONG_DOTTED_KEY = re.compile(
    rf"""(?<![\w"'-])(?:(?:[\w-]{{1,100}}|"[^"\n]{{0,100}}"|'[^'\n]{{0,100}}')[ \t]{{0,9}}\.[ \t]{{0,9}}){{{MAX_DEPTH}}}"""
)


class InputError(ValueError):
    """Wrong user input: a file, a setting or an argument. Long values in the message are cut."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


def shortened(message: str) -> str:
    """Return a message whose long quoted values, long words, and then the message itself are cut in the middle.

    Quoted values are cut to LONGEST_QUOTE characters, words of 3 LONGEST_QUOTE characters or more too, the message to
    LONGEST_MESSAGE.
    """
    if len(message) <= LONGEST_QUOTE:
        return message
    parts, at, unclosed = [], 0, ""
    while (opening := _OPENING.search(message, at)) is not None:
        quote, begin = opening[0], opening.end()
        closing = None if quote in unclosed else _CLOSING[quote].search(message, begin)
        parts.append(message[at:begin])
        if closing is None:  # no later quote of this kind is closed either
            unclosed, at = unclosed + quote, begin
            continue
        parts.append(_cut(message[begin : closing.start()], LONGEST_QUOTE) + quote)
        at = closing.end()
    text = "".join([*parts, message[at:]])
    return _cut(_LONG_WORD.sub(lambda word: _cut(word[0], LONGEST_QUOTE), text), LONGEST_MESSAGE)


def _cut(text: str, longest: int) -> str:
    """Return a text of at most ``longest`` characters, without its middle part if it is longer."""
    if len(text) <= longest:
        return text
    tail, mark = longest // 4, f" ... ({len(text)} characters) ... "
    return f"{text[: longest - tail - len(mark)]}{mark}{text[-tail:]}"


class _Repr(reprlib.Repr):
    """A repr of bounded length and depth."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxdict = 12
        self.maxstring = self.maxother = self.maxlong = LONGEST_QUOTE

    def repr_int(self, x: int, level: int) -> str:
        """Decimal repr of an integer; the first hexadecimal digits of a huge one."""
        return hex(x)[:20] + "..." if abs(x) >= LARGEST_INTEGER**2 else repr(x)


quoted = _Repr().repr
"""repr of a value for a message, of bounded length for any value."""


def read_bounded(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """Return the content of a file. Raises OSError, and InputError for a file of more bytes than ``largest``."""
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise InputError(f"{path} is larger than {largest >> 20} MiB: is it the right file?")
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises tomllib.TOMLDecodeError, a ValueError, also for values nested, or keys with dots, deeper than MAX_DEPTH levels, and for
    whole numbers of more than 64 bits.
    """
    long_key = _LONG_DOTTED_KEY.search(text)
    if long_key is not None:  # tomllib takes quadratic time for them
        line = text.count("\n", 0, long_key.start()) + 1
        raise tomllib.TOMLDecodeError(f"Key with more than {MAX_DEPTH} parts (at line {line}, column 1)")
    try:
        values = tomllib.loads(text)
        _check_nesting(values)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise tomllib.TOMLDecodeError(f"Nesting of more than {MAX_DEPTH} levels (at {_deep_place(text)})") from None
    except ValueError as error:
        raise tomllib.TOMLDecodeError(str(error)) from None
    return values


def parse_value(text: str) -> Any:
    """Parse a TOML value; numbers may begin or end with their point, as in Python. Other text is returned, stripped.

    >>> [parse_value(text) for text in ("0.5", ".5", "[1., -.5e-3]", "slq")]
    [0.5, 0.5, [1.0, -0.0005], 'slq']
    """
    padded = _QUOTED_OR_POINT.sub(lambda found: found[1] or (f"{found[2]}.0" if found[2] else "0."), text)
    for candidate in (text, padded):
        try:
            return parse_toml(f"value = {candidate}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return text.strip()


def _deep_place(text: str) -> str:
    """Return the line of the first bracket deeper than MAX_DEPTH, in the format of tomllib; "end of document" if there is none."""
    depth = 0
    for found in re.finditer(r"[\[{\]}]", text):
        depth += 1 if found[0] in "[{" else -1
        if depth > MAX_DEPTH:
            return f"line {text.count(chr(10), 0, found.start()) + 1}, column 1"
    return "end of document"


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for nesting of more than MAX_DEPTH levels."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"nesting of more than {MAX_DEPTH} levels") from None
    _check_nesting(value, integers=False)
    return value


def _check_nesting(value: Any, integers: bool = True) -> None:
    """Raise ValueError for values nested deeper than MAX_DEPTH and, if ``integers``, for whole numbers of more than 64 bits."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
            elif integers and type(one) is int and abs(one) >= LARGEST_INTEGER:
                raise ValueError(f"Whole number of more than 64 bits, {hex(one)[:20]}...")
        if not inner:
            return
        level = inner
    raise ValueError(f"Nesting of more than {MAX_DEPTH} levels")
