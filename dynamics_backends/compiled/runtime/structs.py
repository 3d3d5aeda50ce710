"""ctypes classes of the structs of kernels, parsed from the C headers that declare them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping
from typing import Any

_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_STRUCT = re.compile(r"typedef struct \{([^{}]*)\} (\w+);")
_NUMBER = re.compile(r"#define (\w+) (\d+)\b")
_FUNCTION = re.compile(r"\(\*(\w+)\)\(")
_MEMBER = re.compile(r"\s*(?:const |signed |unsigned )*(\w+)\s+(.*)", re.S)
_DECLARATOR = re.compile(r"\s*((?:\*|const|\s)*)(\w+)(?:\[(\w+)\])?\s*$")
_NUMBERS: dict[str, Any] = {"double": ctypes.c_double, "long": ctypes.c_long, "int": ctypes.c_int}


def structs_in(text: str, *names: str) -> Iterator[Any]:
    """Yield the named structs of a C text as ctypes classes; pointers are addresses.

    Members of nested structs and arrays get composed names: points_0_xs is member xs of points[0]. Setting an unknown member raises
    AttributeError. Raises KeyError for an unknown struct or type.
    """
    text = _COMMENT.sub("", text)
    bodies, numbers = {name: body for body, name in _STRUCT.findall(text)}, dict(_NUMBER.findall(text))
    for name in names:
        yield type(name, (ctypes.Structure,), {"__slots__": (), "_fields_": list(_members(bodies, numbers, name, ""))})


def _members(
    bodies: Mapping[str, str], numbers: Mapping[str, str], struct: str, prefix: str
) -> Iterator[tuple[str, Any]]:
    for member in filter(str.strip, bodies[struct].split(";")):
        if function := _FUNCTION.search(member):
            yield prefix + function[1], ctypes.c_void_p
            continue
        kind, declarators = _MEMBER.match(member).groups()  # type: ignore[union-attr]
        for declarator in declarators.split(","):
            stars, name, count = _DECLARATOR.match(declarator).groups()  # type: ignore[union-attr]
            places = [name] if count is None else [f"{name}_{i}" for i in range(int(numbers.get(count, count)))]
            for place in places:
                if "*" in stars:
                    yield prefix + place, ctypes.c_void_p
                elif kind in _NUMBERS:
                    yield prefix + place, _NUMBERS[kind]
                else:
                    yield from _members(bodies, numbers, kind, f"{prefix}{place}_")
