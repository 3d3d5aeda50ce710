"""Scalars with two perturbations, whose mixed part is the exact second derivative of generic code.

    Bicomplex   z1 + i2 z2 with complex z1, z2 and i2^2 = -1: of f(x + i1 h b + i2 h c) the part of i1 i2 is h^2 d2f[b, c]
                (Lantoine, Russell, Dargent, Using multicomplex variables for automatic computation of high-order derivatives,
                ACM TOMS 38, 2012)
    HyperDual   d1 + e2 d2 with dual d1, d2 and e2^2 = 0: of f(x + e1 b + e2 c) the part of e1 e2 is d2f[b, c]
                (Fike & Alonso, The development of hyper-dual numbers, AIAA 2011-886)

Both are pairs of numbers that already have one perturbation: arrays of complex128, or
:class:`~dynamics_backends.scalars.dual.Dual`. Dual numbers with K tangents give hyper-dual numbers with K mixed parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from dynamics_backends import scalar as sm


class Extended:
    """Number first + e second with e^2 = SQUARE; first and second may be rows (n, N)."""

    SQUARE = 0.0
    __slots__ = ("first", "second")
    __array_ufunc__ = None  # lets an ndarray on the left defer to this class

    def __init__(self, first: Any, second: Any) -> None:
        self.first = first
        self.second = second

    @property
    def val(self) -> Any:
        """Value without this perturbation; see :func:`dynamics_backends.scalar.real`."""
        return self.first

    @property
    def shape(self) -> tuple[int, ...]:
        return self.first.shape

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.first[index], self.second[index])

    def __setitem__(self, index: Any, x: Any) -> None:
        self.first[index] = _first(x)
        self.second[index] = _second(x)

    def zeros(self, shape: tuple[int, ...]) -> Self:
        """Return zeros of this type."""
        zero = sm.zeros_of(self.first, shape)
        return type(self)(zero, sm.copied(zero))

    def copy(self) -> Self:
        return type(self)(sm.copied(self.first), sm.copied(self.second))

    # -- arithmetic -------------------------------------------------------------------------------------------------
    def __neg__(self) -> Self:
        return type(self)(-self.first, -self.second)

    def __add__(self, other: Any) -> Self:
        first = self.first + _first(other)
        if isinstance(other, Extended):
            return type(self)(first, self.second + other.second)
        return type(self)(first, self.second if first.shape == self.shape else self.second + 0.0 * first)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self + (-other)

    def __rsub__(self, other: Any) -> Self:
        return (-self) + other

    def __mul__(self, other: Any) -> Self:
        if not isinstance(other, Extended):
            return type(self)(self.first * other, self.second * other)
        first = self.first * other.first
        if self.SQUARE:
            first = first + self.SQUARE * (self.second * other.second)
        return type(self)(first, self.first * other.second + self.second * other.first)

    __rmul__ = __mul__

    def inverse(self) -> Self:
        """1 / self."""
        norm = 1.0 / (self.first * self.first - self.SQUARE * (self.second * self.second))
        return type(self)(self.first * norm, -(self.second * norm))

    def __truediv__(self, other: Any) -> Self:
        return self * (other.inverse() if isinstance(other, Extended) else 1.0 / other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.inverse() * other

    # -- see scalar.py ----------------------------------------------------------------------------------------------
    @classmethod
    def select(cls, mask: Any, where_positive: Any, otherwise: Any) -> Self:
        sign = np.where(mask, 1.0, -1.0)
        return cls(*(sm.select(sign, part(where_positive), part(otherwise)) for part in (_first, _second)))

    @classmethod
    def stack(cls, components: Sequence[Any]) -> Self:
        zero = 0.0 * next(c.first for c in components if isinstance(c, Extended))
        return cls(*(sm.stack([part(c) + zero for c in components]) for part in (_first, _second)))

    @classmethod
    def concatenate(cls, parts: Sequence[Any]) -> Self:
        zero = 0.0 * next(x.first for x in parts if isinstance(x, Extended))[:1]
        return cls(*(sm.concatenate([part(x) + zero for x in parts]) for part in (_first, _second)))


def _first(x: Any) -> Any:
    return x.first if isinstance(x, Extended) else x


def _second(x: Any) -> Any:
    return x.second if isinstance(x, Extended) else 0.0


class Bicomplex(Extended):
    """Bicomplex number: a complex number with complex parts."""

    SQUARE = -1.0
    __slots__ = ()

    def sin(self) -> Bicomplex:
        a, b = self.first, self.second
        return Bicomplex(np.sin(a) * np.cosh(b), np.cos(a) * np.sinh(b))

    def cos(self) -> Bicomplex:
        a, b = self.first, self.second
        return Bicomplex(np.cos(a) * np.cosh(b), -np.sin(a) * np.sinh(b))

    def exp(self) -> Bicomplex:
        e = np.exp(self.first)
        return Bicomplex(e * np.cos(self.second), e * np.sin(self.second))

    def log(self) -> Bicomplex:
        slope = self.second / self.first
        return Bicomplex(np.log(self.first) + 0.5 * np.log(1.0 + slope * slope), np.arctan(slope))

    def sqrt(self) -> Bicomplex:
        """Square root by 1 + i2 w = (r + i2 w / (2 r))^2 with 2 r^2 = 1 + sqrt(1 + w^2)."""
        w = self.second / self.first
        r = np.sqrt(0.5 * (1.0 + np.sqrt(1.0 + w * w)))
        root = np.sqrt(self.first)
        return Bicomplex(root * r, 0.5 * root * w / r)

    def tanh(self) -> Bicomplex:
        t, s = np.tanh(self.first), np.tan(self.second)
        return Bicomplex(t, s) / Bicomplex(1.0 + 0.0 * t, t * s)

    @staticmethod
    def atan2(y: Any, x: Any) -> Bicomplex:
        """Rotate the point by its real angle, then take the arctangent near zero (:func:`dynamics_backends.scalar.atan2`)."""
        angle = np.arctan2(sm.real(y), sm.real(x))
        c, s = np.cos(angle), np.sin(angle)
        w = (y * c - x * s) / (x * c + y * s)
        a, square = w.first, w.first * w.first + w.second * w.second
        return angle + Bicomplex(
            0.5 * np.arctan(2.0 * a / (1.0 - square)), 0.5 * np.arctanh(2.0 * w.second / (1.0 + square))
        )


class HyperDual(Extended):
    """Hyper-dual number: a dual number with dual parts."""

    __slots__ = ()

    def _chain(self, function: Callable[[Any], Any], slope: Any) -> HyperDual:
        return HyperDual(function(self.first), slope * self.second)

    def sin(self) -> HyperDual:
        return self._chain(sm.sin, sm.cos(self.first))

    def cos(self) -> HyperDual:
        return self._chain(sm.cos, -sm.sin(self.first))

    def exp(self) -> HyperDual:
        return self._chain(sm.exp, sm.exp(self.first))

    def log(self) -> HyperDual:
        return self._chain(sm.log, 1.0 / self.first)

    def sqrt(self) -> HyperDual:
        return self._chain(sm.sqrt, 0.5 / sm.sqrt(self.first))

    def tanh(self) -> HyperDual:
        t = sm.tanh(self.first)
        return self._chain(sm.tanh, 1.0 - t * t)

    @staticmethod
    def atan2(y: Any, x: Any) -> HyperDual:
        a, b = _first(y), _first(x)
        return HyperDual(sm.atan2(a, b), (b * _second(y) - a * _second(x)) / (a * a + b * b))
