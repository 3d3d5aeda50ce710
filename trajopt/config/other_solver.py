"""Carry solver options over to another solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from trajopt.solvers.options import accepts
from trajopt.solvers.registry import SOLVERS


def carried_over(options: Mapping[str, Any], old: str, new: str) -> tuple[dict[str, Any], list[str]]:
    """Split the options of one solver into those that another solver takes over, and the names of the rest.

    An option is taken over if it differs from its default and the new solver accepts it. Options that either solver name fixes
    are dropped. Options unknown to the old solver are passed on, so that the new solver reports them as mistakes.
    """
    (_, Old, own), (_, New, preset) = SOLVERS[old], SOLVERS[new]
    known, defaults = {f.name for f in fields(New)}, Old()
    accepted: dict[str, Any] = {}
    left: list[str] = []
    for key, value in options.items():
        if not hasattr(defaults, key):
            accepted[key] = value
        elif key in preset or key in own or value is None or value == getattr(defaults, key):
            continue
        elif key in known and accepts(New, key, value):
            accepted[key] = value
        else:
            left.append(key)
    return accepted, left
