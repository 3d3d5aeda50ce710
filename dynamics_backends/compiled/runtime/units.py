"""Splitting of a C source into translation units, which are compiled in parallel and each only once.

There are two kinds of separable functions. Straight-line code begins with ``STRAIGHT void`` and needs only the prelude (the
text up to the line END_OF_PRELUDE). Functions that call it begin with ``JOINED void``. A unit holds the functions of one
family, whose names differ by a final number. Its text thus depends only on what it computes, and sources with a common part
share its object.
"""

from __future__ import annotations

import re
from itertools import groupby

END_OF_PRELUDE = "/* end of the prelude */\n"
WORTH_SPLITTING = 100_000
"""Minimum length of straight-line code to split [characters]: some 2,000 statements, a quarter of a second of compilation."""
UNIT = 300_000
"""Length of a unit from which the next one begins [characters]."""
SMALL = 1_000
"""Length of a family below which it shares a unit with other small ones [characters]: starting a compiler would dominate."""
_FUNCTION = re.compile(r"^(STRAIGHT|JOINED) (void (\w+?)(?:_\d+)?\([^)]*\))\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_EMPTY_LINES = re.compile(r"\n{2,}")
_HIDDEN = '__attribute__((visibility("hidden")))'


def units(source: str) -> list[str]:
    """Split a source into units: first the rest of the source, then straight-line code, long units before short ones."""
    functions = list(_FUNCTION.finditer(source))
    if END_OF_PRELUDE not in source or sum(len(f[0]) for f in functions) < WORTH_SPLITTING:
        return [source]
    prelude = source[: source.index(END_OF_PRELUDE)]
    shared = f"#undef STRAIGHT\n#undef JOINED\n#define STRAIGHT {_HIDDEN}\n#define JOINED {_HIDDEN}\n"
    joined = {f[3] for f in functions if f[1] == "JOINED"}
    main = _FUNCTION.sub(lambda f: f"{_HIDDEN} {f[2]};\n" if f[1] == "JOINED" or f[3] not in joined else "", source)
    main = _EMPTY_LINES.sub("\n", main)
    families = [[f[0] for f in family] for _, family in groupby(functions, lambda f: f[3])]
    small = "".join(f for family in families if _is_small(family) for f in family)
    texts = [part for family in families if not _is_small(family) for part in _parts(family)] + [small] * bool(small)
    apart = [prelude + shared + text for text in sorted(texts, key=lambda text: (-len(text), text))]
    return [main, *apart]


def _is_small(family: list[str]) -> bool:
    return sum(map(len, family)) < SMALL


def _parts(functions: list[str]) -> list[str]:
    """Concatenate the functions of a family into parts of about the length of a unit."""
    parts = [""]
    for f in functions:
        if len(parts[-1]) + len(f) > UNIT and parts[-1]:
            parts.append("")
        parts[-1] += f
    return parts
