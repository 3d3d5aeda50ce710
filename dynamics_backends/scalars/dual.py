"""Forward-mode dual arrays that carry several directional derivatives in one sweep.

A :class:`Dual` is ``val + sum_k tan[..., k] eps_k`` with ``eps_i eps_j = 0``: a value array ``(..., N)`` (float or complex) and
its tangents ``(..., N, K)``.  Index expressions act on the leading axes, so generic code that indexes rows works unchanged.
Complex values give exact second derivatives (complex step over duals).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.scalars.functions import UfuncMixin, along, exponent_is_constant, is_number, power

Array = np.ndarray


class Dual(UfuncMixin):
    """Dual array: value (..., N) and tangent (..., N, K)."""

    __slots__ = ("tan", "val")

    def __init__(self, val: Array, tan: Array) -> None:
        self.val = val
        self.tan = tan

    @staticmethod
    def seed(x: Array, directions: Array) -> Dual:
        """Dual rows with value ``x`` (n, ..., N) and the same tangent ``directions`` (n, K) at every batch element."""
        n, K = directions.shape
        tan = np.broadcast_to(directions.reshape(n, *[1] * (x.ndim - 1), K), (*x.shape, K))
        return Dual(x, tan)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.val.shape

    @property
    def directions(self) -> int:
        """Number of tangents K."""
        return self.tan.shape[-1]

    def __len__(self) -> int:
        return len(self.val)

    def __repr__(self) -> str:
        return f"Dual(shape={self.val.shape}, directions={self.directions})"

    # -- indexing ---------------------------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Dual:
        return Dual(self.val[index], self.tan[index])

    def __setitem__(self, index: Any, x: Any) -> None:
        """Set rows, in place; a plain array sets their tangents to zero."""
        self.val[index] = x.val if isinstance(x, Dual) else x
        self.tan[index] = x.tan if isinstance(x, Dual) else 0.0

    def zeros(self, shape: tuple[int, ...]) -> Dual:
        """Dual zeros with K tangents, complex if either part is: a real tangent becomes complex with the first product."""
        dtype = np.result_type(self.val, self.tan)
        return Dual(np.zeros(shape, dtype), np.zeros((*shape, self.directions), dtype))

    def locked(self) -> Dual:
        """Read-only view of the dual array."""
        val, tan = np.asarray(self.val).view(), np.asarray(self.tan).view()
        val.flags.writeable = tan.flags.writeable = False
        return type(self)(val, tan)

    def copy(self) -> Dual:
        return type(self)(np.array(self.val), np.array(self.tan))

    # -- arithmetic -------------------------------------------------------------------------------------------------
    def __neg__(self) -> Dual:
        return Dual(-self.val, -self.tan)

    def __add__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.val + other.val, self.tan + other.tan)
        val = self.val + other
        return Dual(val, self.tan if val.shape == self.val.shape else _spread(self.tan, val))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.val - other.val, self.tan - other.tan)
        return self + (-other)

    def __rsub__(self, other: Any) -> Dual:
        return (-self) + other

    def __mul__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.val * other.val, self.val[..., None] * other.tan + other.val[..., None] * self.tan)
        return Dual(self.val * other, self.tan * _column(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            quotient = self.val / other.val
            return Dual(quotient, (self.tan - quotient[..., None] * other.tan) / other.val[..., None])
        return Dual(self.val / other, self.tan / _column(other))

    def __rtruediv__(self, other: Any) -> Dual:
        quotient = other / self.val
        return Dual(quotient, (-quotient / self.val)[..., None] * self.tan)

    def __pow__(self, exponent: Any) -> Dual:
        """Power with a constant or a dual exponent."""
        return self._constant_power(float(exponent)) if is_number(exponent) else Dual.powered(self, exponent)

    def __rpow__(self, base: Any) -> Dual:
        return Dual.powered(base, self)

    def _constant_power(self, exponent: float) -> Dual:
        """Power with a constant real exponent."""
        if exponent == 0.0:
            return self._chain(1.0 + 0.0 * self.val, 0.0 * self.val)
        with np.errstate(divide="ignore", invalid="ignore"):
            value, slope = power(self.val, exponent), exponent * power(self.val, exponent - 1.0)
        return self._chain(value, slope) if exponent.is_integer() else Dual(value, along(slope[..., None], self.tan))

    @staticmethod
    def powered(base: Any, exponent: Any) -> Dual:
        """Power base ** exponent and its derivatives, at least one of them dual.

        At base 0 an exponent of 0 or at least 1 counts as constant. The derivative in the exponent is NaN for a negative base.
        """
        a, b = value_of(base), value_of(exponent)
        constant = exponent_is_constant(np.real(a), np.real(b))
        value, tan = power(a, b), 0.0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if isinstance(base, Dual):
                fixed = np.where(constant, np.real(b), b)
                slope = np.where(constant & (np.real(b) == 0.0), 0.0, fixed * power(a, fixed - 1.0))
                tan = tan + along(slope[..., None], base.tan)
            if isinstance(exponent, Dual):
                safe = np.where(constant, 1.0, a)
                rate = np.where(constant, 0.0, value * np.where(np.real(safe) < 0.0, np.nan, np.log(safe)))
                tan = tan + along(rate[..., None], exponent.tan)
        return Dual(value, np.asarray(tan))

    def __rmatmul__(self, A: Any) -> Dual:
        """Product of A (m, n) and rows (n, N)."""
        return Dual(A @ self.val, np.tensordot(A, self.tan, 1))

    # -- functions --------------------------------------------------------------------------------------------------
    def _chain(self, val: Array, slope: Array) -> Dual:
        """Dual array with this value, and ``slope`` times the tangents."""
        return Dual(val, slope[..., None] * self.tan)

    def sin(self) -> Dual:
        return self._chain(np.sin(self.val), np.cos(self.val))

    def cos(self) -> Dual:
        return self._chain(np.cos(self.val), -np.sin(self.val))

    def exp(self) -> Dual:
        e = np.exp(self.val)
        return self._chain(e, e)

    def log(self) -> Dual:
        return self._chain(np.log(self.val), 1.0 / self.val)

    def sqrt(self) -> Dual:
        root = np.sqrt(self.val)
        return self._chain(root, 0.5 / root)

    def tanh(self) -> Dual:
        t = np.tanh(self.val)
        return self._chain(t, 1.0 - t * t)

    def tan_(self) -> Dual:
        """Tangent of the angle; the attribute ``tan`` holds the derivatives."""
        t = np.tan(self.val)
        return self._chain(t, 1.0 + t * t)

    def sinh(self) -> Dual:
        return self._chain(np.sinh(self.val), np.cosh(self.val))

    def cosh(self) -> Dual:
        return self._chain(np.cosh(self.val), np.sinh(self.val))

    def arcsin(self) -> Dual:
        return self._chain(np.arcsin(self.val), 1.0 / np.sqrt((1.0 - self.val) * (1.0 + self.val)))

    def arccos(self) -> Dual:
        return self._chain(np.arccos(self.val), -1.0 / np.sqrt((1.0 - self.val) * (1.0 + self.val)))

    def arctan(self) -> Dual:
        return self._chain(np.arctan(self.val), 1.0 / (1.0 + self.val * self.val))

    def expm1(self) -> Dual:
        return self._chain(np.expm1(self.val), np.exp(self.val))

    def log1p(self) -> Dual:
        return self._chain(np.log1p(self.val), 1.0 / (1.0 + self.val))

    @staticmethod
    def atan2(y: Any, x: Any) -> Dual:
        """Angle of the point (x, y) and its derivatives; either may be a plain array."""
        from dynamics_backends import scalar

        y_val, x_val = value_of(y), value_of(x)
        r2 = x_val * x_val + y_val * y_val
        tan = 0.0
        if isinstance(y, Dual):
            tan = tan + (x_val / r2)[..., None] * y.tan
        if isinstance(x, Dual):
            tan = tan - (y_val / r2)[..., None] * x.tan
        return Dual(scalar.atan2(y_val, x_val), np.asarray(tan))

    @staticmethod
    def select(mask: Array, where_positive: Any, otherwise: Any) -> Dual:
        """``where_positive`` where the mask is true, else ``otherwise``; plain arrays have zero tangents."""
        val = np.where(mask, value_of(where_positive), value_of(otherwise))
        tangents = [x.tan if isinstance(x, Dual) else 0.0 for x in (where_positive, otherwise)]
        tan = np.where(np.asarray(mask)[..., None], *tangents)
        return Dual(val, _spread(tan, val))

    @staticmethod
    def stack(components: Sequence[Any]) -> Dual:
        """Rows of dual scalars and plain numbers (zero tangents), at least one of them dual; numbers are broadcast to the batch."""
        val = np.stack(np.broadcast_arrays(*[value_of(c) for c in components]))
        directions = next(c.directions for c in components if isinstance(c, Dual))
        tan = np.zeros(
            (*val.shape, directions), dtype=np.result_type(*[c.tan for c in components if isinstance(c, Dual)])
        )
        for i, c in enumerate(components):
            if isinstance(c, Dual):
                tan[i] = c.tan
        return Dual(val, tan)

    @staticmethod
    def concatenate(parts: Sequence[Any]) -> Dual:
        """Concatenate dual rows and arrays (zero tangents) along the first axis."""
        directions = next(x.directions for x in parts if isinstance(x, Dual))
        tangents = [x.tan if isinstance(x, Dual) else np.zeros((*np.shape(x), directions)) for x in parts]
        return Dual(np.concatenate([value_of(x) for x in parts]), np.concatenate(tangents))


def value_of(x: Any) -> Any:
    """Value of a dual number; others unchanged."""
    return x.val if isinstance(x, Dual) else x


def _column(x: Any) -> Any:
    """``x`` with a trailing axis for the tangents, if it is an array."""
    return x[..., None] if np.ndim(x) else x


def _spread(tan: Array, val: Array) -> Array:
    """Tangents broadcast to the shape of the value."""
    return np.broadcast_to(tan, (*val.shape, tan.shape[-1]))
