"""Look-up of names, with a helpful answer to an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LISTED = 8  # how many available names an error message lists


class UnknownName(KeyError, ValueError):
    """A name that the model, or the collection, does not have; the message suggests the nearest ones."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would print the message's repr


def unknown_name(kind: str, name: str, available: Iterable[str]) -> UnknownName:
    """Return (not raise) the error for `name`, which is not among the `available` names of this `kind`."""
    available = list(dict.fromkeys(available))
    near = nearest_names(name, available)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    shown = ", ".join(available[:LISTED]) or "none"
    rest = f", ... ({len(available)} in all)" if len(available) > LISTED else ""
    return UnknownName(f"no {kind} is named {name!r}; {hint}Available: {shown}{rest}")


def nearest_names(name: str, available: Iterable[str], count: int = 3) -> list[str]:
    """Return up to `count` of the `available` names that resemble `name`, case ignored, the nearest first.

    A name with a prefix, such as "erd:ur5", resembles what its part after the colon resembles too.
    """
    by_lower: dict[str, str] = {}
    for known in available:
        by_lower.setdefault(known.lower(), known)
        by_lower.setdefault(known.lower().rpartition(":")[2], known)
    near = difflib.get_close_matches(str(name).lower(), by_lower, n=2 * count)
    return list(dict.fromkeys(by_lower[low] for low in near))[:count]
