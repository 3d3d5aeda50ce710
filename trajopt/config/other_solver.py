"""Another solver in the place of a configuration's: which of the options stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from trajopt.solvers.options import accepts
from trajopt.solvers.registry import SOLVERS


def carried_over(options: Mapping[str, Any], old: str, new: str) -> tuple[dict[str, Any], list[str]]:
    """The options of one solver that another one takes over, and the names of those that it cannot have.

    Taken over are those that differ from their defaults, where the other has them too and accepts them, but for those that one of
    the names stands for. What the old one does not have itself is left to it: that is a mistake.
    """
    (_, Old, own), (_, New, preset) = SOLVERS[old], SOLVERS[new]
    known, defaults = {f.name for f in fields(New)}, Old()
    kept: dict[str, Any] = {}
    left: list[str] = []
    for key, value in options.items():
        if not hasattr(defaults, key):
            kept[key] = value
        elif key in preset or key in own or value is None or value == getattr(defaults, key):
            continue
        elif key in known and accepts(New, key, value):
            kept[key] = value
        else:
            left.append(key)
    return kept, left
