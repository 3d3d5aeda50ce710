"""A C source in several translation units, so that they are compiled at the same time, and each only once.

What can stand apart are the functions of straight-line code, which begin with ``STRAIGHT void`` and ask for nothing but
the prelude, the text up to the line END_OF_PRELUDE, and those that call such functions in turn, ``JOINED void``.  A unit holds
functions of one family, which differ by a number at the end of their names: so that its text depends on what it computes, not on
what stands beside it, and sources that share a part share its object.  Numbers in lines ``NUMBER(name, value)`` stand apart too, so
that loops over them stay the same when they change.
"""

from __future__ import annotations

import re
from itertools import groupby

END_OF_PRELUDE = "/* end of the prelude */\n"
WORTH_SPLITTING = 100_000
"""Characters of straight-line code, some 2,000 statements: a quarter of a second of compilation."""
UNIT = 300_000
"""Characters in a unit from which on the next begins."""
SMALL = 1_000
"""Characters of a family below which it shares a unit with others as small: to start a compiler takes longer than to compile it."""
_FUNCTION = re.compile(r"^(STRAIGHT|JOINED) (void (\w+?)(?:_\d+)?\([^)]*\))\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"^NUMBER\((\w+), (\d+)\)\n", re.MULTILINE)
_EMPTY_LINES = re.compile(r"\n{2,}")
_HIDDEN = '__attribute__((visibility("hidden")))'


def units(source: str) -> list[str]:
    """The source as units; the first holds all but straight-line code, long ones stand before short ones."""
    functions = list(_FUNCTION.finditer(source))
    if END_OF_PRELUDE not in source or sum(len(f[0]) for f in functions) < WORTH_SPLITTING:
        return [source]
    prelude = source[: source.index(END_OF_PRELUDE)]
    shared = f"#undef STRAIGHT\n#undef JOINED\n#define STRAIGHT {_HIDDEN}\n#define JOINED {_HIDDEN}\n"
    joined = {f[3] for f in functions if f[1] == "JOINED"}
    main = _FUNCTION.sub(lambda f: f"{_HIDDEN} {f[2]};\n" if f[1] == "JOINED" or f[3] not in joined else "", source)
    main = _NUMBER.sub(lambda number: f"extern {_HIDDEN} const int {number[1]};\n", main)
    main = _EMPTY_LINES.sub("\n", main)
    families = [[f[0] for f in family] for _, family in groupby(functions, lambda f: f[3])]
    small = "".join(f for family in families if _is_small(family) for f in family)
    texts = [part for family in families if not _is_small(family) for part in _parts(family)] + [small] * bool(small)
    numbers = "".join(f"{_HIDDEN} const int {number[1]} = {number[2]};\n" for number in _NUMBER.finditer(source))
    apart = [prelude + shared + text for text in sorted(texts, key=lambda text: (-len(text), text))]
    return [main, *apart, *([numbers] if numbers else [])]


def _is_small(family: list[str]) -> bool:
    return sum(map(len, family)) < SMALL


def _parts(functions: list[str]) -> list[str]:
    """The functions of a family behind each other, in parts of about the length of a unit."""
    parts = [""]
    for f in functions:
        if len(parts[-1]) + len(f) > UNIT and parts[-1]:
            parts.append("")
        parts[-1] += f
    return parts
