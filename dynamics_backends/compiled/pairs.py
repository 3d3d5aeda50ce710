"""Scalars that are a pair of symbols: complex numbers and dual numbers with one tangent, for tracing.

A step function traced with pairs becomes real arithmetic on (re, im) or (value, tangent); lanes then run over knots and directions.
"""

from __future__ import annotations

from typing import Any

import casadi as ca


class Pair:
    """first + e second, with e^2 = SQUARE: -1 for complex numbers, 0 for dual numbers."""

    SQUARE = 0.0
    __slots__ = ("first", "second")
    __array_ufunc__ = None

    def __init__(self, first: Any, second: Any = 0.0) -> None:
        self.first = ca.SX(first)
        self.second = ca.SX(second)

    @classmethod
    def of(cls, x: Any) -> Any:
        return x if isinstance(x, cls) else cls(x)

    def __add__(self, other: Any) -> Any:
        o = self.of(other)
        return type(self)(self.first + o.first, self.second + o.second)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return type(self)(-self.first, -self.second)

    def __sub__(self, other: Any) -> Any:
        return self + (-self.of(other))

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, other: Any) -> Any:
        o = self.of(other)
        first = self.first * o.first
        if self.SQUARE:
            first = first + self.SQUARE * (self.second * o.second)
        return type(self)(first, self.first * o.second + self.second * o.first)

    __rmul__ = __mul__

    def inverse(self) -> Any:
        """1 / self."""
        norm = 1.0 / (self.first * self.first - self.SQUARE * (self.second * self.second))
        return type(self)(self.first * norm, -self.second * norm)

    def __truediv__(self, other: Any) -> Any:
        return self * self.of(other).inverse()

    def __rtruediv__(self, other: Any) -> Any:
        return self.inverse() * other


class DualPair(Pair):
    """(value, tangent)."""

    __slots__ = ()

    def sin(self) -> DualPair:
        return DualPair(ca.sin(self.first), ca.cos(self.first) * self.second)

    def cos(self) -> DualPair:
        return DualPair(ca.cos(self.first), -ca.sin(self.first) * self.second)


class ComplexPair(Pair):
    """(real part, imaginary part)."""

    SQUARE = -1.0
    __slots__ = ()

    def sin(self) -> ComplexPair:
        s, c = ca.sin(self.first), ca.cos(self.first)
        return ComplexPair(s * ca.cosh(self.second), c * ca.sinh(self.second))

    def cos(self) -> ComplexPair:
        s, c = ca.sin(self.first), ca.cos(self.first)
        return ComplexPair(c * ca.cosh(self.second), -(s * ca.sinh(self.second)))


ALGEBRAS: dict[str, type[Pair] | None] = {"real": None, "complex": ComplexPair, "dual": DualPair}
