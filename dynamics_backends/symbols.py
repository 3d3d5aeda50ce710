"""CasADi, loaded when something is first asked of it, with quicker arithmetic on its symbols.

An operator of CasADi tries one type of operands after the other before it gets to work, which takes ten times as long as that.
Most operands here are symbols, or plain numbers beside one: for these the operation is called at once, with the same result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dynamics_backends.deferred import deferred

_OPERATORS = {"add": "OP_ADD", "sub": "OP_SUB", "mul": "OP_MUL", "truediv": "OP_DIV"}


def _quicken(casadi: Any) -> None:
    """Replace the operators of SX."""
    constant = lru_cache(maxsize=4096, typed=True)(casadi.SX)
    for name, code in _OPERATORS.items():
        for swapped in (False, True):
            method = f"__{'r' if swapped else ''}{name}__"
            setattr(casadi.SX, method, _quick(casadi.SX, method, getattr(casadi, code), swapped, constant))


def _quick(
    SX: Any, method: str, code: int, swapped: bool, constant: Callable[[float], Any]
) -> Callable[[Any, Any], Any]:
    """An operator that is CasADi's own for anything but symbols and plain numbers."""
    original, binary = getattr(SX, method), SX.binary

    def operator(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind is not SX:
            if kind is not float and kind is not int:
                return original(self, other)
            other = constant(other)
        return binary(code, other, self) if swapped else binary(code, self, other)

    return operator


ca = deferred("casadi", _quicken)

tracing = threading.RLock()
"""Held while symbols are made or evaluated: CasADi's symbols are not safe in several threads."""
