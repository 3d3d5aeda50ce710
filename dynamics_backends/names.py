"""Lookup of names, with suggestions for unknown ones; names in tables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from itertools import islice

from dynamics_backends.user_input import shortened

MAX_LISTED = 8  # how many available names an error message lists
MAX_NAME_LENGTH = 200  # characters of a name that is compared with others
MAX_COMPARED = 5000  # names that are compared with an unknown one


class UnknownName(KeyError, ValueError):
    """Error for a name that a model or collection does not have, such as a joint or solver; the message suggests similar names."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would print the message's repr


def unknown_name(kind: str, name: str, available: Iterable[str]) -> UnknownName:
    """Return (not raise) the error for `name`, which is not among the `available` names of this `kind`."""
    return _unknown(f"no {kind} is named {name!r}", name, available)


def unmatched_pattern(kind: str, pattern: str, available: Iterable[str]) -> UnknownName:
    """Return (not raise) the error for a pattern of `fnmatch` that matches none of the `available` names of this `kind`."""
    return _unknown(f"no {kind} matches the pattern {pattern!r}", re.sub(r"\[.*?\]|[*?]", "", pattern), available)


def _unknown(message: str, name: str, available: Iterable[str]) -> UnknownName:
    """Error with this message, up to three names similar to `name`, and the first MAX_LISTED available names."""
    available = list(dict.fromkeys(available))
    near = nearest_names(name, available) or _with_similar_part(name, available)
    hint = f"did you mean {' or '.join(map(repr, near))}? Available" if near else "available"
    shown = ", ".join(available[:MAX_LISTED]) or "none"
    rest = f", ... ({len(available)} in all)" if len(available) > MAX_LISTED else ""
    return UnknownName(shortened(f"{message}; {hint}: {shown}{rest}"))


def _with_similar_part(name: str, available: list[str], count: int = 3) -> list[str]:
    """Return up to `count` names with a part between underscores, dots, slashes or dashes that resembles `name`, case ignored, as
    "left_finger_joint" for "fnger".
    """
    by_part: dict[str, list[str]] = {}
    for known in available:
        for part in re.split(r"[_./-]", known.lower()):
            by_part.setdefault(part, []).append(known)
    near = difflib.get_close_matches(name.lower().strip("_./-"), [part for part in by_part if part], n=count)
    return list(dict.fromkeys(known for part in near for known in by_part[part]))[:count]


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table (at least one) as lines, in left-aligned columns two blanks apart, without trailing blanks."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def nearest_names(name: str, available: Iterable[str], count: int = 3) -> list[str]:
    """Return up to `count` of the `available` names that resemble `name`, case ignored, the nearest first.

    A name with a prefix, such as "erd:ur5", resembles what its part after the colon resembles too. Returns [] for a `name` longer
    than MAX_NAME_LENGTH; compares at most MAX_COMPARED names.
    """
    by_lower: dict[str, str] = {}
    if len(str(name)) > MAX_NAME_LENGTH:
        return []
    for known in islice((known for known in available if len(known) <= MAX_NAME_LENGTH), MAX_COMPARED):
        by_lower.setdefault(known.lower(), known)
        by_lower.setdefault(known.lower().rpartition(":")[2], known)
    near = difflib.get_close_matches(str(name).lower(), by_lower, n=2 * count)
    return list(dict.fromkeys(by_lower[low] for low in near))[:count]
