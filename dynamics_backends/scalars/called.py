"""Functions that generated code calls, where it would otherwise hold their operations once more for each of many places.

Straight-line code that is longer than the caches of a processor waits for its own text; a function that is called is read once.
Calls are kept only while somebody traces who can write them, and for symbols: for numbers, and everywhere else, the function is
evaluated where it stands. CasADi differentiates a call by functions of its own, so that calls are for residuals that write out
their derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from dynamics_backends.scalar import Scalar
from dynamics_backends.symbols import ca

Straight = Callable[..., Sequence[Scalar]]
"""A function of scalars that gives scalars, defined once in a module; functions called in one trace differ in their names."""

_kept: ContextVar[bool] = ContextVar("calls_kept", default=False)


@contextmanager
def calls_kept() -> Iterator[None]:
    """Inside, :func:`called` leaves calls in expressions of symbols."""
    token = _kept.set(True)
    try:
        yield
    finally:
        _kept.reset(token)


def called(function: Straight, *arguments: Scalar) -> list[Scalar]:
    """The results of a function of scalars, as a call where calls are kept."""
    if not (_kept.get() and any(hasattr(a, "is_symbolic") for a in arguments)):
        return list(function(*arguments))
    results = _symbolic(function, len(arguments))(ca.vertcat(*arguments))
    return [results[i] for i in range(results.numel())]


@lru_cache(maxsize=64)
def _symbolic(function: Straight, count: int) -> Any:
    """A function of one vector of symbols, which is never written out where it is called."""
    a = ca.SX.sym("a", count)
    values = ca.vertcat(*function(*(a[i] for i in range(count))))
    return ca.Function(function.__name__.strip("_"), [a], [values], {"never_inline": True})
