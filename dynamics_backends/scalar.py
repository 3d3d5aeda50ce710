"""Scalar mathematics for code that is written once and evaluated with many kinds of numbers.

A *scalar* here is a Python float, a NumPy array of float64 or complex128 (one entry per element of the batch), a
:class:`~dynamics_backends.scalars.dual.Dual` over such arrays, a user-defined number type, or a CasADi ``SX`` expression.  Generic
code uses only arithmetic operators and the functions of this module: no ``abs``, ``conj``, ``max``, no branch on a value.  Complex
step, forward AD, tracing and plain evaluation then share one source.

A number type needs no registration.  It is a class over arrays, or over other numbers, with

    val                             the number that it extends; :func:`real` and the drivers follow it to an array
    shape, len, x[i], x[i] = y      those of its rows
    + - * /  and  sin ... tanh      with numbers of the same type and of the type that it extends
    zeros(shape), copy()            storage of the same type
    select(mask, a, b), atan2(y, x), stack(components), concatenate(parts)      of the class; see the functions here
    select_by(decider, a, b)        of the class, instead of select, if it exists

*Rows* are a vector of scalars: anything whose leading index counts components, ``x[i]``: an array ``(n, N)``, a dual array, an
``SX`` column, or a list of scalars.

The functions of ``theta^2`` at the end are the analytic functions from which exp, log and their differentials on SO(3) and SE(3)
are built.  Near zero each is its power series, so that it and its first derivatives are accurate to rounding there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import factorial
from typing import Any

import numpy as np

Scalar = Any
"""Number as described in the module docstring."""
Rows = Any
"""Vector of scalars, indexed by component first."""

STEP = 1e-30
"""Complex step, with a square that vanishes relative to one; the truncation error is of the order STEP^2."""
SERIES_BELOW = 1.0
"""Functions of theta^2 switch to their power series below this value (12 terms: truncation under 1e-17)."""
_TERMS = 12
_ATAN_SERIES_BELOW = 0.04
"""Value of t^2 below which atan(t) / t is evaluated by its power series (12 terms: truncation under 1e-17)."""
_ATAN = [(-1.0) ** k / (2 * k + 1) for k in range(_TERMS)]
"""Coefficients of atan(t) / t in t^2."""


def _unary(name: str) -> Callable[[Scalar], Scalar]:
    """Elementwise function ``name`` of every kind of scalar: the number's method of this name, else NumPy's function."""
    numpy_function = getattr(np, name)

    def function(x: Scalar) -> Scalar:
        method = getattr(x, name, None)
        return numpy_function(x) if method is None else method()

    function.__name__ = name
    function.__doc__ = f"{name}(x), elementwise, for every kind of scalar."
    return function


sin = _unary("sin")
cos = _unary("cos")
sqrt = _unary("sqrt")
exp = _unary("exp")
log = _unary("log")
tanh = _unary("tanh")


def tan(x: Scalar) -> Scalar:
    """tan(x), elementwise, for every kind of scalar."""
    return sin(x) / cos(x)


def real(x: Scalar) -> Scalar:
    """Real number that branches depend on: the real part of the value of a (nested) dual number, or of x; a symbol is unchanged."""
    while hasattr(x, "val"):
        x = x.val
    return np.real(x) if isinstance(x, (np.ndarray, complex, np.complexfloating)) else x


def select(decider: Scalar, where_positive: Scalar, otherwise: Scalar) -> Scalar:
    """``where_positive`` where the real part of ``decider`` is > 0, else ``otherwise``.

    Both alternatives are evaluated and both must be finite everywhere.

    >>> import numpy as np
    >>> select(np.array([-1.0, 2.0]), np.array([1.0, 1.0]), np.array([0.0, 0.0]))
    array([0., 1.])
    """
    if isinstance(decider, float):
        return where_positive if decider > 0 else otherwise
    for x in (decider, where_positive, otherwise):
        if hasattr(x, "is_symbolic"):
            import casadi

            return casadi.if_else(decider > 0, where_positive, otherwise)
    for x in (decider, where_positive, otherwise):
        if hasattr(x, "select_by"):
            return type(x).select_by(decider, where_positive, otherwise)
    mask = np.asarray(real(decider)) > 0
    for x in (where_positive, otherwise):
        if hasattr(x, "select"):
            return type(x).select(mask, where_positive, otherwise)
    return np.where(mask, where_positive, otherwise)


def larger(a: Scalar, b: Scalar) -> Scalar:
    """The number with the larger real part, b if they are equal; one symbolic operation, where a selection takes five."""
    if hasattr(a, "is_symbolic") or hasattr(b, "is_symbolic"):
        import casadi

        return casadi.fmax(a, b)
    return select(a - b, a, b)


def smaller(a: Scalar, b: Scalar) -> Scalar:
    """The number with the smaller real part, a if they are equal."""
    if hasattr(a, "is_symbolic") or hasattr(b, "is_symbolic"):
        import casadi

        return casadi.fmin(a, b)
    return select(a - b, b, a)


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """Angle of the point (x, y); analytic in both arguments away from the origin, for complex arguments too."""
    for v in (y, x):
        if hasattr(v, "is_symbolic"):
            import casadi

            return casadi.atan2(y, x)
    for v in (y, x):
        if hasattr(v, "atan2"):
            return type(v).atan2(y, x)
    if not (np.iscomplexobj(y) or np.iscomplexobj(x)):
        return np.arctan2(y, x)
    # Rotate the point back by its real angle: the remaining arctangent is near zero, where it is analytic.
    angle = np.arctan2(np.real(y), np.real(x))
    c, s = np.cos(angle), np.sin(angle)
    return angle + np.arctan((c * y - s * x) / (c * x + s * y))


def stack(components: Sequence[Scalar]) -> Rows:
    """Rows from a list of scalars; plain numbers are broadcast to the batch. An empty array (0, 1) for an empty list."""
    shape = getattr(components[0], "shape", None) if components else None
    if all(type(c) is np.ndarray and c.shape == shape for c in components):
        return np.array(components) if components else np.zeros((0, 1))
    if all(isinstance(c, float) for c in components):
        return np.array(components)
    for c in components:
        if hasattr(c, "is_symbolic"):
            import casadi

            return casadi.vertcat(*components)
        if hasattr(c, "stack"):
            return type(c).stack(components)
    return np.stack(np.broadcast_arrays(*components))


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows: arrays (n_i, ...) along the first axis, symbols vertically."""
    for part in parts:
        first = part[0] if isinstance(part, list) else part
        if hasattr(first, "is_symbolic"):
            import casadi

            return casadi.vertcat(*[casadi.vertcat(*x) if isinstance(x, list) else x for x in parts])
        if hasattr(part, "concatenate"):
            return type(part).concatenate(parts)
    return np.concatenate(parts)


def identity_rows(n: int, like: Rows) -> list[Rows]:
    """The n rows of the identity matrix, each (n, N) with the batch of ``like``, or (n,) if ``like`` is a symbol or a number."""
    eye = np.eye(n)
    if hasattr(like, "is_symbolic"):
        import casadi

        return [casadi.SX(row) for row in eye]
    if not getattr(like, "shape", ()):  # a plain number
        return list(eye)
    return list(np.broadcast_to(eye[:, :, None], (n, n, like.shape[-1])))


def copied(x: Rows) -> Rows:
    """Writable copy of the same type; symbols are returned unchanged."""
    if hasattr(x, "is_symbolic"):
        return x
    return x.copy() if hasattr(x, "zeros") else np.array(x)


def zeros_of(like: Rows, shape: tuple[int, ...]) -> Rows:
    """Zeros of the same number type as the array ``like``."""
    return like.zeros(shape) if hasattr(like, "zeros") else np.zeros(shape).astype(like.dtype, copy=False)


def rows_of(x: Rows) -> list[Scalar]:
    """Components of ``x`` as a list."""
    if isinstance(x, (list, tuple)):
        return list(x)
    return [x[i] for i in range(x.shape[0])]


# ---------------------------------------------------------------------------------------------------------------------
# Analytic functions of theta^2.  Coefficients are exact fractions, in the order of rising powers.


def _alternating(coefficient: Callable[[int], Fraction]) -> list[float]:
    """Coefficients (-1)^k coefficient(k) of the first _TERMS powers."""
    return [float((-1) ** k * coefficient(k)) for k in range(_TERMS)]


def _bernoulli(count: int) -> list[Fraction]:
    """First ``count`` Bernoulli numbers of even index, B_0, B_2, ..., from sum_j binom(m+1, j) B_j = 0."""
    values: list[Fraction] = []
    for m in range(2 * count):
        total = sum(
            (Fraction(factorial(m + 1), factorial(j) * factorial(m + 1 - j)) * b for j, b in enumerate(values)),
            Fraction(0),
        )
        values.append(Fraction(1) if m == 0 else -total / (m + 1))
    return values[0::2]


def _power_series(coefficients: Sequence[float], t2: Scalar) -> Scalar:
    """Value of sum_k coefficients[k] t2^k by Horner's rule."""
    total = coefficients[-1] + 0.0 * t2
    for c in reversed(coefficients[:-1]):
        total = total * t2 + c
    return total


_COS = _alternating(lambda k: Fraction(1, factorial(2 * k)))
_SINC = _alternating(lambda k: Fraction(1, factorial(2 * k + 1)))
_COSC = _alternating(lambda k: Fraction(1, factorial(2 * k + 2)))
_SINC3 = _alternating(lambda k: Fraction(1, factorial(2 * k + 3)))
_DEXP3 = _alternating(lambda k: Fraction(k + 1, factorial(2 * k + 4)))
_DEXP4 = _alternating(lambda k: Fraction(k + 1, factorial(2 * k + 5)))
# gamma(theta) = theta/2 cot(theta/2) = sum g_k theta^2k with g_k = (-1)^k B_2k / (2k)!
_GAMMA = [(-1) ** k * b / factorial(2 * k) for k, b in enumerate(_bernoulli(_TERMS + 2))]
_LOGC = [float(-g) for g in _GAMMA[1 : _TERMS + 1]]
_DLOG2 = [float((k - 2) * g) for k, g in enumerate(_GAMMA) if k >= 1][:_TERMS]
_DLOG4 = [float((k - 1) * g) for k, g in enumerate(_GAMMA) if k >= 2][:_TERMS]


def _switch(t2: Scalar, series: Sequence[float], closed_form: Callable[[Scalar, Scalar], Scalar]) -> Scalar:
    """Power series below SERIES_BELOW, else closed_form(theta^2, theta), each finite everywhere."""
    if isinstance(t2, float):
        return closed_form(t2, sqrt(t2)) if t2 > SERIES_BELOW else _power_series(series, t2)
    large = t2 - SERIES_BELOW
    safe = select(large, t2, 4.0)
    return select(large, closed_form(safe, sqrt(safe)), _power_series(series, t2))


def cos_root(t2: Scalar) -> Scalar:
    """cos(theta) as a function of theta^2."""
    return _switch(t2, _COS, lambda s, th: cos(th))


def sinc(t2: Scalar) -> Scalar:
    """sin(theta) / theta as a function of theta^2."""
    return _switch(t2, _SINC, lambda s, th: sin(th) / th)


def cosc(t2: Scalar) -> Scalar:
    """(1 - cos(theta)) / theta^2 as a function of theta^2."""
    return _switch(t2, _COSC, lambda s, th: (1.0 - cos(th)) / s)


def sinc3(t2: Scalar) -> Scalar:
    """(theta - sin(theta)) / theta^3 as a function of theta^2."""
    return _switch(t2, _SINC3, lambda s, th: (th - sin(th)) / (s * th))


def dexp3(t2: Scalar) -> Scalar:
    """(2 (1 - cos theta) - theta sin theta) / (2 theta^4) as a function of theta^2: weight of ad^3 in dexp on SE(3)."""
    return _switch(t2, _DEXP3, lambda s, th: (2.0 - 2.0 * cos(th) - th * sin(th)) / (2.0 * s * s))


def dexp4(t2: Scalar) -> Scalar:
    """(2 + cos theta - 3 sin(theta)/theta) / (2 theta^4) as a function of theta^2: weight of ad^4 in dexp on SE(3)."""
    return _switch(t2, _DEXP4, lambda s, th: (2.0 + cos(th) - 3.0 * sin(th) / th) / (2.0 * s * s))


def _half_cot(th: Scalar) -> Scalar:
    """theta/2 cot(theta/2)."""
    return 0.5 * th * cos(0.5 * th) / sin(0.5 * th)


def _half_cot_slope(s: Scalar, th: Scalar) -> Scalar:
    """Product theta gamma'(theta) for gamma = theta/2 cot(theta/2), from s = theta^2 and th = theta."""
    sine = sin(0.5 * th)
    return _half_cot(th) - 0.25 * s / (sine * sine)


def logc(t2: Scalar) -> Scalar:
    """(1 - theta/2 cot(theta/2)) / theta^2 as a function of theta^2; singular at theta = 2 pi."""
    return _switch(t2, _LOGC, lambda s, th: (1.0 - _half_cot(th)) / s)


def dlog2(t2: Scalar) -> Scalar:
    """(theta gamma' - 4 (gamma - 1)) / (2 theta^2), gamma = theta/2 cot(theta/2): weight of ad^2 in dexp^-1 on SE(3)."""
    return _switch(t2, _DLOG2, lambda s, th: (_half_cot_slope(s, th) - 4.0 * (_half_cot(th) - 1.0)) / (2.0 * s))


def dlog4(t2: Scalar) -> Scalar:
    """(theta gamma' - 2 (gamma - 1)) / (2 theta^4), gamma = theta/2 cot(theta/2): weight of ad^4 in dexp^-1 on SE(3)."""
    return _switch(t2, _DLOG4, lambda s, th: (_half_cot_slope(s, th) - 2.0 * (_half_cot(th) - 1.0)) / (2.0 * s * s))


def atanc(t2: Scalar) -> Scalar:
    """atan(t) / t as a function of t^2 >= 0; for -0.04 < t^2 < 0 its continuation artanh(s) / s with s^2 = -t^2."""
    large = t2 - _ATAN_SERIES_BELOW
    safe = select(large, t2, 1.0)
    root = sqrt(safe)
    return select(large, atan2(root, 1.0 + 0.0 * root) / root, _power_series(_ATAN, t2))
