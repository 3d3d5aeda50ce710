"""CasADi, loaded at its first use, with faster arithmetic on its symbols.

An operator of CasADi tries several types of operands, which takes ten times as long as the operation.  Most operands here are
symbols or plain numbers: for these the operation is called directly, with the same result.

Straight-line code longer than the processor's caches is limited by reading its instructions; a function that is called at many
places, in place of its repeated operations, is read once (:func:`called`). Calls are preserved only for symbols, while a tracer
that can emit them is active; otherwise the function is evaluated in place. CasADi would differentiate a call by separate functions,
so calls are for residuals with explicit derivatives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.scalar import Scalar

Array = np.ndarray
Evaluate = Callable[[Sequence[Array]], list[Array]]
"""Function that returns matrices (N, rows, columns) from arguments (N, n)."""
_OPERATORS = {"add": "OP_ADD", "sub": "OP_SUB", "mul": "OP_MUL", "truediv": "OP_DIV"}


def _quicken(casadi: Any) -> None:
    """Replace the operators + - * / of SX by faster ones."""
    constant = lru_cache(maxsize=4096, typed=True)(casadi.SX)
    for name, code in _OPERATORS.items():
        for swapped in (False, True):
            method = f"__{'r' if swapped else ''}{name}__"
            setattr(casadi.SX, method, _quick(casadi.SX, method, getattr(casadi, code), swapped, constant))


def _quick(
    SX: Any, method: str, code: int, swapped: bool, constant: Callable[[float], Any]
) -> Callable[[Any, Any], Any]:
    """Operator that calls CasADi's operation directly for symbols and plain numbers, and CasADi's operator otherwise.

    method: name of CasADi's operator. code: number of the operation. swapped: True for a reflected operator, such as __radd__.
    constant: function that returns a plain number as a symbol.
    """
    original, binary = getattr(SX, method), SX.binary

    def operator(self: Any, other: Any) -> Any:
        """Apply the operation to two symbols, or to a symbol and a plain number as a cached constant."""
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


@contextmanager
def numpy_by_methods() -> Iterator[None]:
    """Context in which NumPy functions call the methods of arrays' elements, whatever CasADi's global NumPy mode is.

    In its other modes CasADi takes over these functions, some by operations that tapes do not have.
    """
    options = ca.GlobalOptions
    if not hasattr(options, "setNumpyMode"):  # CasADi before 3.7.3
        yield
        return
    given = options.getNumpyMode()
    options.setNumpyMode(0)
    try:
        yield
    finally:
        options.setNumpyMode(given)


Straight = Callable[..., Sequence[Scalar]]
"""Function of scalars that returns scalars, defined once in a module; functions of one trace need different names."""

_preserved: ContextVar[bool] = ContextVar("preserved_calls", default=False)


@contextmanager
def preserved_calls() -> Iterator[None]:
    """Context in which :func:`called` preserves calls in symbolic expressions."""
    token = _preserved.set(True)
    try:
        yield
    finally:
        _preserved.reset(token)


def called(function: Straight, *arguments: Scalar) -> list[Scalar]:
    """Results of a function of scalars; for symbols within :func:`preserved_calls`, those of a preserved call of the function."""
    if not (_preserved.get() and any(hasattr(a, "is_symbolic") for a in arguments)):
        return list(function(*arguments))
    results = _symbolic(function, len(arguments))(ca.vertcat(*arguments))
    return [results[i] for i in range(results.numel())]


@lru_cache(maxsize=64)
def _symbolic(function: Straight, count: int) -> Any:
    """CasADi function of one vector, the ``count`` arguments of a function of scalars; it is never inlined."""
    a = ca.SX.sym("a", count)
    values = ca.vertcat(*function(*(a[i] for i in range(count))))
    return ca.Function(function.__name__.strip("_"), [a], [values], {"never_inline": True})


def interpreted(name: str, inputs: list[Any], outputs: Sequence[Any]) -> Evaluate:
    """Return a function that evaluates matrices of CasADi expressions for a batch, by CasADi's virtual machine."""
    function, shapes = ca.Function(name, inputs, [ca.vec(e.T) for e in outputs]), [e.shape for e in outputs]

    def evaluate(arguments: Sequence[Array]) -> list[Array]:
        """Outputs (N, rows, columns) from arguments (N, n)."""
        n = len(arguments[0])
        if n == 0:
            return [np.zeros((0, *shape)) for shape in shapes]
        results = function.map(n).call([ca.DM(a.T) for a in arguments])
        return [r.full().T.reshape(n, *shape) for r, shape in zip(results, shapes, strict=True)]

    return evaluate
