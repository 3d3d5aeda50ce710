"""Mutations of texts and bytes: byte damage, truncation, removed and renamed keys, extreme numbers, deep nesting, huge sizes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.])")
NAME = re.compile(r'"[^"\n]+"')
KEY = re.compile(r"\b\w+\s*=")
DEPTHS, LENGTHS = (60, 5000, 100_000), (5000, 4_000_000)
ODD_NUMBERS = (
    *("nan", "inf", "-inf", "-1", "0", "1e308", "1e-320", "-1e9", "1e29", "1e30", "1e400", "99999999999999999999"),
    *(
        "",
        "abc",
        "1,5",
        "0x10",
        "1 2",
        "true",
        "[]",
        "{}",
        '""',
        "1_000",
        "\u0661\u0662",
        "\uff11",
        "1e",
        "--1",
        "+1",
        ".5",
    ),
    *("9" * 5000, "0x" + "f" * 5000, "1979-05-27", "[[1], [2, 3]]", "{ a = 1 }"),
)
SCRAPS = (
    *(
        "<",
        ">",
        "&",
        "]]>",
        "<!--",
        '"',
        "=",
        "[",
        "]",
        "{",
        "\x00",
        "\ufeff",
        "\u00e9",
        "\U0001d54f",
        "\n",
        "\u00a0",
        "'''",
    ),
    *("<robot>", "&lt;", "[problem]", "<!DOCTYPE a [<!ENTITY b 'c'>]>", '<include file="/dev/zero"/>', "\x1b[31m"),
)

Mutation = Callable[[str, random.Random], str]


def _replace_match(pattern: re.Pattern[str], text: str, rng: random.Random, by: Callable[[str], str]) -> str:
    """Return the text with one match of a pattern replaced."""
    found = list(pattern.finditer(text))
    if not found:
        return text
    m = rng.choice(found)
    return text[: m.start()] + by(m[0]) + text[m.end() :]


def odd_number(text: str, rng: random.Random) -> str:
    """Replace a number by an invalid, non-finite or extreme one."""
    return _replace_match(NUMBER, text, rng, lambda _: rng.choice(ODD_NUMBERS))


def scaled_number(text: str, rng: random.Random) -> str:
    """Multiply a number by a random factor."""
    return _replace_match(
        NUMBER, text, rng, lambda old: repr(float(old) * rng.choice((-1, 0, 1e-9, 1e9, 1e3, 0.5, 1e29)))
    )


def other_name(text: str, rng: random.Random) -> str:
    """Replace a quoted name by another name in the text or a hostile one."""
    odd = ('""', '"nowhere"', '"../x"', '"/dev/zero"', '"/"', f'"{"a" * rng.choice(LENGTHS)}"', '"a\\u0000b"')
    return _replace_match(NAME, text, rng, lambda _: rng.choice([*(NAME.findall(text) or ['""']), *odd]))


def lines(text: str, rng: random.Random) -> str:
    """Remove, repeat, exchange or move a line."""
    rows = text.splitlines(keepends=True) or [""]
    i, j = (rng.randrange(len(rows)) for _ in range(2))
    kind = rng.choice(("removed", "repeated", "exchanged", "moved"))
    if kind == "removed":
        del rows[i]
    elif kind == "repeated":
        rows.insert(j, rows[i])
    elif kind == "exchanged":
        rows[i], rows[j] = rows[j], rows[i]
    else:
        rows.insert(j, rows.pop(i))
    return "".join(rows)


def cut(text: str, rng: random.Random) -> str:
    """Truncate the text, or remove a piece of it."""
    at = rng.randrange(len(text) + 1)
    return text[:at] if rng.random() < 0.5 else text[:at] + text[at + rng.randrange(1, 40) :]


def scrap(text: str, rng: random.Random) -> str:
    """Insert a piece of syntax."""
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(SCRAPS) + text[at:]


def key(text: str, rng: random.Random) -> str:
    """Remove the name of an attribute or key, or rename it."""
    return _replace_match(KEY, text, rng, lambda old: rng.choice(("", "other=", old.upper())))


def nested(text: str, rng: random.Random) -> str:
    """Insert deeply nested brackets, tables or elements."""
    depth, at = rng.choice(DEPTHS), rng.randrange(len(text) + 1)
    inner = rng.choice(("[" * depth + "]" * depth, "{a=" * depth + "1" + "}" * depth, "[" * depth))
    if "<" in text[:200]:
        inner = rng.choice(("<a>" * depth + "</a>" * depth, "<body>" * depth, "<!--" * depth))
        return text[:at] + inner + text[at:]
    line = rng.choice((f"\nx = {inner}\n", "\n" + ".".join("a" * min(depth, 20_000)) + " = 1\n", f"\n[{'[' * depth}\n"))
    return rng.choice((_replace_match(NUMBER, text, rng, lambda _: inner), text[:at] + line + text[at:], text + line))


def huge(text: str, rng: random.Random) -> str:
    """Insert megabytes: a long word, a long list, or many lines."""
    at, kind = rng.randrange(len(text) + 1), rng.choice(("word", "list", "lines", "blank"))
    if kind == "list":
        return _replace_match(NUMBER, text, rng, lambda _: "[" + "1," * 200_000 + "1]")
    inserted = {"word": "x" * LENGTHS[1], "lines": 'k = "v"\n' * 20_000, "blank": " \n" * 1_000_000}[kind]
    return text[:at] + inserted + text[at:]


MUTATIONS: tuple[Mutation, ...] = (
    *(odd_number, odd_number, scaled_number, scaled_number, other_name, lines, lines, cut, scrap, key),
    *(odd_number, scaled_number, scaled_number, scaled_number, other_name, lines, nested, huge),
)


def mutated(text: str, rng: random.Random) -> bytes:
    """Return a text after one to three mutations; one in 15 has damaged bytes too."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(MUTATIONS)(text, rng)
    content = text.encode("utf-8", errors="surrogatepass")
    return damaged(content, rng) if rng.random() < 1 / 15 else content


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return bytes after a change: flipped, zeroed, removed, repeated, inserted, or cut off."""
    data = bytearray(content)
    i = rng.randrange(len(data) + 1)
    j = min(len(data), i + rng.choice((1, 8, 64, 1000)))
    kind = rng.choice(("flipped", "flipped", "zeroed", "removed", "repeated", "inserted", "cut off", "empty"))
    if kind == "flipped":
        for _ in range(rng.choice((1, 1, 3, 30))):
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "zeroed":
        data[i:j] = bytes(j - i)
    elif kind == "removed":
        del data[i:j]
    elif kind == "repeated":
        data[i:i] = data[i:j]
    elif kind == "inserted":
        data[i:i] = rng.randbytes(rng.choice((1, 16, 300)))
    elif kind == "cut off":
        del data[i:]
    else:
        data = bytearray(rng.choice((b"", b"\n", b"PK\x03\x04", b"\x93NUMPY")))
    return bytes(data)
