"""NumPy's universal functions on number types: np.sin(x) is x.sin(), or what :mod:`~dynamics_backends.scalars.functions` has.

An array in front of an operator (array + x, A @ x) hands over to the reflected operator of the number.
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


class SpeaksNumPy:
    """A number type whose arithmetic and functions NumPy's universal functions call."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if method != "__call__" or options:
            return NotImplemented
        if name in _REFLECTED and not isinstance(inputs[0], SpeaksNumPy):
            reflected = getattr(inputs[1], _REFLECTED[name], None)
            return NotImplemented if reflected is None else reflected(inputs[0])
        return FUNCTIONS[name](*inputs) if name in FUNCTIONS else NotImplemented

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is no array of NumPy's: use dynamics_backends.scalar.stack")
