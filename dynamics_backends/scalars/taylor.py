"""Taylor polynomials of third order in two variables, over any scalar: derivatives of small functions, such as terrain height.

Coefficients are ordered 1, x, y, x^2, xy, y^2, x^3, x^2 y, x y^2, y^3.  The derivative of a polynomial of third order is one of
second order, with its last four coefficients unknown and set to zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dynamics_backends import scalar as sm
from dynamics_backends.scalar import Scalar
from dynamics_backends.scalars.functions import FUNCTIONS, UfuncMixin, is_number

LARGEST_PRODUCT = 8
"""Largest integer exponent that is computed by products."""
_POWERS = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3)]
_PRODUCTS = [
    [(i, j) for i, a in enumerate(_POWERS) for j, b in enumerate(_POWERS) if (a[0] + b[0], a[1] + b[1]) == power]
    for power in _POWERS
]


class Taylor(UfuncMixin):
    """Polynomial with the ten coefficients ``c``; supports arithmetic and the functions of the scalar module."""

    def __init__(self, coefficients: Sequence[Scalar]) -> None:
        self.c = list(coefficients)

    @classmethod
    def variables(cls, x: Scalar, y: Scalar) -> tuple[Taylor, Taylor]:
        """Both variables at the point (x, y), as polynomials: x + X and y + Y."""
        return cls([x, 1.0, *[0.0] * 8]), cls([y, 0.0, 1.0, *[0.0] * 7])

    @classmethod
    def from_value(cls, value: Any) -> Taylor:
        """Convert a number to a constant polynomial; a polynomial is unchanged."""
        return value if isinstance(value, Taylor) else cls([value, *[0.0] * 9])

    def slope_x(self) -> Taylor:
        """Derivative in the first variable, a polynomial of second order (its last four coefficients are zero)."""
        c = self.c
        return Taylor([c[1], 2.0 * c[3], c[4], 3.0 * c[6], 2.0 * c[7], c[8], 0.0, 0.0, 0.0, 0.0])

    def slope_y(self) -> Taylor:
        """Derivative in the second variable, a polynomial of second order (its last four coefficients are zero)."""
        c = self.c
        return Taylor([c[2], c[4], 2.0 * c[5], c[7], 2.0 * c[8], 3.0 * c[9], 0.0, 0.0, 0.0, 0.0])

    # -- arithmetic -----------------------------------------------------------------------------------------------------
    def __neg__(self) -> Taylor:
        return Taylor([-c for c in self.c])

    def __add__(self, other: Any) -> Taylor:
        return Taylor([a + b for a, b in zip(self.c, Taylor.from_value(other).c, strict=True)])

    __radd__ = __add__

    def __sub__(self, other: Any) -> Taylor:
        return self + (-other)

    def __rsub__(self, other: Any) -> Taylor:
        return (-self) + other

    def __mul__(self, other: Any) -> Taylor:
        if not isinstance(other, Taylor):
            return Taylor([c * other for c in self.c])
        a, b = self.c, other.c
        return Taylor(
            [sum((a[i] * b[j] for i, j in pairs[1:]), a[pairs[0][0]] * b[pairs[0][1]]) for pairs in _PRODUCTS]
        )

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Taylor:
        if not isinstance(other, Taylor):
            return self * (1.0 / other)
        return self * other._inverse()

    def __rtruediv__(self, other: Any) -> Taylor:
        return self._inverse() * other

    def _inverse(self) -> Taylor:
        """Reciprocal 1 / self."""
        r = 1.0 / self.c[0]
        return self._chain(r, -r * r, 2.0 * r * r * r, -6.0 * r * r * r * r)

    def __pow__(self, exponent: float) -> Taylor:
        """Constant power: whole exponents from 0 to LARGEST_PRODUCT by products, for any value; others by derivatives of x^e."""
        if exponent == 0:
            return self * 0.0 + 1.0
        if float(exponent).is_integer() and 0 < exponent <= LARGEST_PRODUCT:
            return self if exponent == 1 else self * self ** (exponent - 1)
        x, e = self.c[0], exponent
        first = e * x ** (e - 1)
        second, third = (e - 1) * e * x ** (e - 2), (e - 2) * (e - 1) * e * x ** (e - 3)
        return self._chain(x**e, first, second, third)

    def __rpow__(self, base: float) -> Taylor:
        return (self * math.log(base)).exp()

    def _chain(self, value: Scalar, first: Scalar, second: Scalar, third: Scalar) -> Taylor:
        """Compose f(self) from f and its first three derivatives at the constant coefficient."""
        d = Taylor([0.0, *self.c[1:]])
        square = d * d
        return d * first + square * (0.5 * second) + (square * d) * (third / 6.0) + value

    @staticmethod
    def select_by(decider: Any, where_positive: Any, otherwise: Any) -> Taylor:
        """``where_positive`` where the constant coefficient of ``decider`` is > 0, else ``otherwise``; all may be scalars."""
        a, b = Taylor.from_value(where_positive), Taylor.from_value(otherwise)
        value = decider.c[0] if isinstance(decider, Taylor) else decider
        return Taylor([sm.select(value, x, y) for x, y in zip(a.c, b.c, strict=True)])

    # -- functions ------------------------------------------------------------------------------------------------------
    def sin(self) -> Taylor:
        s, c = sm.sin(self.c[0]), sm.cos(self.c[0])
        return self._chain(s, c, -s, -c)

    def cos(self) -> Taylor:
        s, c = sm.sin(self.c[0]), sm.cos(self.c[0])
        return self._chain(c, -s, -c, s)

    def exp(self) -> Taylor:
        e = sm.exp(self.c[0])
        return self._chain(e, e, e, e)

    def tanh(self) -> Taylor:
        t = sm.tanh(self.c[0])
        first = 1.0 - t * t
        return self._chain(t, first, -2.0 * t * first, (6.0 * t * t - 2.0) * first)

    def sqrt(self) -> Taylor:
        root = sm.sqrt(self.c[0])
        first = 0.5 / root
        second = -0.5 * first / self.c[0]
        return self._chain(root, first, second, -1.5 * second / self.c[0])

    def log(self) -> Taylor:
        r = 1.0 / self.c[0]
        return self._chain(sm.log(self.c[0]), r, -r * r, 2.0 * r * r * r)

    def log1p(self) -> Taylor:
        r = 1.0 / (1.0 + self.c[0])
        return self._chain(_function("log1p", self.c[0]), r, -r * r, 2.0 * r * r * r)

    def expm1(self) -> Taylor:
        e = sm.exp(self.c[0])
        return self._chain(_function("expm1", self.c[0]), e, e, e)

    def tan(self) -> Taylor:
        t = _function("tan", self.c[0])
        first = 1.0 + t * t
        return self._chain(t, first, 2.0 * t * first, (2.0 + 6.0 * t * t) * first)

    def sinh(self) -> Taylor:
        s, c = _function("sinh", self.c[0]), _function("cosh", self.c[0])
        return self._chain(s, c, s, c)

    def cosh(self) -> Taylor:
        s, c = _function("sinh", self.c[0]), _function("cosh", self.c[0])
        return self._chain(c, s, c, s)

    def arctan(self) -> Taylor:
        x = self.c[0]
        first = 1.0 / (1.0 + x * x)
        return self._chain(
            _function("arctan", x), first, -2.0 * x * first * first, (6.0 * x * x - 2.0) * first * first * first
        )

    def arcsin(self) -> Taylor:
        return self._chain(_function("arcsin", self.c[0]), *self._arcsin_slopes())

    def arccos(self) -> Taylor:
        return self._chain(_function("arccos", self.c[0]), *(-slope for slope in self._arcsin_slopes()))

    def _arcsin_slopes(self) -> tuple[Scalar, Scalar, Scalar]:
        """First three derivatives of arcsin at the constant coefficient."""
        x = self.c[0]
        first = 1.0 / sm.sqrt((1.0 - x) * (1.0 + x))
        cube = first * first * first
        return first, x * cube, cube + 3.0 * x * x * cube * first * first

    @staticmethod
    def atan2(y: Any, x: Any) -> Taylor:
        """Angle of the point (x, y): the one at the constant coefficients, plus an arctangent about it."""
        y, x = Taylor.from_value(y), Taylor.from_value(x)
        angle = sm.atan2(y.c[0], x.c[0])
        c, s = sm.cos(angle), sm.sin(angle)
        return ((c * y - s * x) / (c * x + s * y)).arctan() + angle


def _function(name: str, x: Scalar) -> Scalar:
    """Apply a function, by NumPy's name, to any scalar, including plain numbers."""
    return getattr(math, _MATH.get(name, name))(x) if is_number(x) else FUNCTIONS[name](x)


_MATH = {"arctan": "atan", "arcsin": "asin", "arccos": "acos"}


def inverse_root(t: Taylor) -> Taylor:
    """Inverse square root t^(-1/2)."""
    return 1.0 / t.sqrt()
