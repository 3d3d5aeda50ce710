"""CasADi, loaded at its first use, with faster arithmetic on its symbols.

An operator of CasADi tries several types of operands, which takes ten times as long as the operation.  Most operands here are
symbols or plain numbers: for these the operation is called directly, with the same result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dynamics_backends.deferred import deferred

_OPERATORS = {"add": "OP_ADD", "sub": "OP_SUB", "mul": "OP_MUL", "truediv": "OP_DIV"}


def _quicken(casadi: Any) -> None:
    """Replace the operators of SX by faster ones."""
    constant = lru_cache(maxsize=4096, typed=True)(casadi.SX)
    for name, code in _OPERATORS.items():
        for swapped in (False, True):
            method = f"__{'r' if swapped else ''}{name}__"
            setattr(casadi.SX, method, _quick(casadi.SX, method, getattr(casadi, code), swapped, constant))


def _quick(
    SX: Any, method: str, code: int, swapped: bool, constant: Callable[[float], Any]
) -> Callable[[Any, Any], Any]:
    """Operator that calls the operation directly for symbols and plain numbers, and CasADi's operator otherwise."""
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
"""Lock around creation and evaluation of symbols: CasADi's symbols are not thread-safe."""
