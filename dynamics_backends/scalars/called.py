"""Functions that generated code calls, instead of repeating their operations at each of many places.

Straight-line code longer than the processor's caches is limited by reading its instructions; a called function is read once.  Calls
are preserved only for symbols, while a tracer that can emit them is active; otherwise the function is evaluated in place.  CasADi
would differentiate a call by separate functions, so calls are for residuals with explicit derivatives.
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
"""Function of scalars that returns scalars, defined once in a module; functions called in one trace have different names."""

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
    """Evaluate a function of scalars, or emit a call to it if calls are preserved."""
    if not (_preserved.get() and any(hasattr(a, "is_symbolic") for a in arguments)):
        return list(function(*arguments))
    results = _symbolic(function, len(arguments))(ca.vertcat(*arguments))
    return [results[i] for i in range(results.numel())]


@lru_cache(maxsize=64)
def _symbolic(function: Straight, count: int) -> Any:
    """CasADi function of one vector of symbols, which is never inlined."""
    a = ca.SX.sym("a", count)
    values = ca.vertcat(*function(*(a[i] for i in range(count))))
    return ca.Function(function.__name__.strip("_"), [a], [values], {"never_inline": True})
