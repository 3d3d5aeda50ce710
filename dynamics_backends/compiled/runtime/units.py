"""A long C source in several translation units, so that they are compiled at the same time.

What can stand apart are the functions of straight-line code, which begin with ``STRAIGHT void`` and ask for nothing but
the prelude, the text up to the line END_OF_PRELUDE.
"""

from __future__ import annotations

import re

END_OF_PRELUDE = "/* end of the prelude */\n"
WORTH_SPLITTING = 400_000
"""Characters of straight-line code, some 8,000 statements: a second of compilation."""
_FUNCTION = re.compile(r"^STRAIGHT (void \w+\([^)]*\))\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_HIDDEN = '__attribute__((visibility("hidden")))'


def units(source: str, count: int) -> list[str]:
    """The source as at most ``count`` units of about the same length; the first holds all but straight-line code."""
    functions = list(_FUNCTION.finditer(source))
    if count < 2 or END_OF_PRELUDE not in source or sum(len(f[0]) for f in functions) < WORTH_SPLITTING:
        return [source]
    prelude = source[: source.index(END_OF_PRELUDE)]
    shared = f"#undef STRAIGHT\n#define STRAIGHT {_HIDDEN}\n"
    main = _FUNCTION.sub(lambda f: f"{_HIDDEN} {f[1]};\n", source)
    texts, lengths = [main, *[prelude + shared] * (count - 1)], [len(main), *[0] * (count - 1)]
    own: list[list[str]] = [[] for _ in range(count)]
    for f in sorted(functions, key=lambda f: -len(f[0])):
        shortest = lengths.index(min(lengths))
        own[shortest].append(f[0])
        lengths[shortest] += len(f[0])
    texts[0] += shared
    return [text + "".join(functions) for text, functions in zip(texts, own, strict=True)]
