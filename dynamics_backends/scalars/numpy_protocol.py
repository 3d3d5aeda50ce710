"""NumPy's universal functions on number types: np.sin(x) calls x.sin() or :mod:`~dynamics_backends.scalars.functions`.

An operator with an array on its left (array + x, A @ x) calls the reflected operator of the number.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from dynamics_backends.scalars.functions import FUNCTIONS

_REFLECTED = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "true_divide": "__rtruediv__",
    "power": "__rpow__",
    "matmul": "__rmatmul__",
}


class UfuncMixin:
    """Mixin of number types that NumPy's universal functions accept."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if method != "__call__" or options:
            return NotImplemented
        if name in _REFLECTED and not isinstance(inputs[0], UfuncMixin):
            reflected = getattr(inputs[1], _REFLECTED[name], None)
            return NotImplemented if reflected is None else reflected(inputs[0])
        return FUNCTIONS[name](*inputs) if name in FUNCTIONS else NotImplemented

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot become a NumPy array: use dynamics_backends.scalar.stack")
