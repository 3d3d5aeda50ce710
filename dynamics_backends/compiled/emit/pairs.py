"""Scalars that are a pair of symbols, for tracing: complex numbers, and dual numbers with one tangent.

A step function traced with pairs becomes real arithmetic on (re, im) or (value, tangent); lanes then run over knots and directions.
Pairs of columns are rows; every function of :mod:`~dynamics_backends.scalar` accepts them.  The complex functions are accurate for
imaginary parts of any size, 1e-30 as well as 1: no formula subtracts nearly equal numbers.  Only powers of numbers without a
positive real part are of first order in the imaginary parts, unless the exponent is a constant integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.trace import Trace
from dynamics_backends.symbols import ca


class Pair:
    """Number first + e second, with e^2 = SQUARE: -1 for complex numbers, 0 for dual numbers."""

    SQUARE = 0.0
    __slots__ = ("first", "second")
    __array_ufunc__ = None

    def __init__(self, first: Any, second: Any = 0.0) -> None:
        self.first = ca.SX(first)
        self.second = ca.SX(second)
        if self.second.shape != self.first.shape:  # a constant column
            self.second = self.second + ca.SX.zeros(*self.first.shape)

    @classmethod
    def of(cls, x: Any) -> Any:
        """x if it is a pair, else the pair (x, 0)."""
        return x if isinstance(x, cls) else cls(x)

    # -- rows -------------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, int]:
        return self.first.shape

    def __len__(self) -> int:
        return self.first.shape[0]

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.first[index], self.second[index])

    @classmethod
    def stack(cls, components: Sequence[Any]) -> Self:
        """Column of pairs from pairs and plain numbers."""
        pairs = [cls.of(c) for c in components]
        return cls(ca.vertcat(*[c.first for c in pairs]), ca.vertcat(*[c.second for c in pairs]))

    @classmethod
    def concatenate(cls, parts: Sequence[Any]) -> Self:
        """Column of pairs from columns and lists, one below the other."""
        return cls.stack([cls.stack(part) if isinstance(part, list) else part for part in parts])

    # -- arithmetic -------------------------------------------------------------------------------------------------
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
        """Reciprocal 1 / self."""
        norm = 1.0 / (self.first * self.first - self.SQUARE * (self.second * self.second))
        return type(self)(self.first * norm, -self.second * norm)

    def __truediv__(self, other: Any) -> Any:
        return self * self.of(other).inverse()

    def __rtruediv__(self, other: Any) -> Any:
        return self.inverse() * other

    def __pow__(self, exponent: Any) -> Any:
        """Power: by products for constant integers from -64 to 64, so that negative bases are valid, else by :meth:`power`."""
        e = self.of(exponent)
        whole = _whole_number(e)
        return self.power(e) if whole is None else _multiplied(self, whole)

    def __rpow__(self, base: Any) -> Any:
        return self.of(base) ** self

    def power(self, exponent: Any) -> Any:
        """Power self ** exponent for an exponent that is a pair; subclasses implement it, the base class returns None."""
        ...

    # -- branches, decided by the first number ------------------------------------------------------------------------
    @classmethod
    def select_by(cls, decider: Any, where_positive: Any, otherwise: Any) -> Self:
        """``where_positive`` where the first number of ``decider`` is > 0, else ``otherwise``."""
        a, b, positive = cls.of(where_positive), cls.of(otherwise), cls.of(decider).first > 0
        return cls(ca.if_else(positive, a.first, b.first), ca.if_else(positive, a.second, b.second))


def _whole_number(e: Pair) -> int | None:
    """Exponent as an integer if it is a constant integer of at most 64 in absolute value, else None."""
    if not (e.first.is_constant() and e.second.is_zero() and e.first.is_scalar()):
        return None
    value = float(e.first)
    return int(value) if value.is_integer() and abs(value) <= 64 else None


def _multiplied(x: Any, exponent: int) -> Any:
    """Integer power x ** exponent by repeated squaring."""
    if exponent < 0:
        return _multiplied(x, -exponent).inverse()
    if exponent == 0:
        return type(x)(1.0)
    half = _multiplied(x * x, exponent // 2)
    return x * half if exponent % 2 else half


def _first_order_power(a: Pair, exponent: Pair) -> tuple[Any, Any]:
    """Power of the first numbers and its first-order change in the second numbers; a zero second number contributes 0."""
    e = exponent.first
    value = a.first**e
    change = ca.if_else(a.second == 0, 0.0, e * a.first ** (e - 1.0) * a.second)
    if not exponent.second.is_zero():
        change = change + ca.if_else(exponent.second == 0, 0.0, value * ca.log(a.first) * exponent.second)
    return value, change


class DualPair(Pair):
    """Dual number (value, tangent)."""

    __slots__ = ()

    def _chain(self, value: Any, slope: Any) -> DualPair:
        """Dual number with this value, and ``slope`` times the tangent."""
        return DualPair(value, slope * self.second)

    def sin(self) -> DualPair:
        return self._chain(ca.sin(self.first), ca.cos(self.first))

    def cos(self) -> DualPair:
        return self._chain(ca.cos(self.first), -ca.sin(self.first))

    def sinh(self) -> DualPair:
        return self._chain(ca.sinh(self.first), ca.cosh(self.first))

    def cosh(self) -> DualPair:
        return self._chain(ca.cosh(self.first), ca.sinh(self.first))

    def tanh(self) -> DualPair:
        t = ca.tanh(self.first)
        return self._chain(t, 1.0 - t * t)

    def exp(self) -> DualPair:
        e = ca.exp(self.first)
        return self._chain(e, e)

    def log(self) -> DualPair:
        return self._chain(ca.log(self.first), 1.0 / self.first)

    def expm1(self) -> DualPair:
        return self._chain(ca.expm1(self.first), ca.exp(self.first))

    def log1p(self) -> DualPair:
        return self._chain(ca.log1p(self.first), 1.0 / (1.0 + self.first))

    def sqrt(self) -> DualPair:
        root = ca.sqrt(self.first)
        return self._chain(root, 0.5 / root)

    def power(self, exponent: DualPair) -> DualPair:
        """Power and its derivative along both tangents; a zero tangent contributes 0."""
        return DualPair(*_first_order_power(self, exponent))

    @staticmethod
    def atan2(y: Any, x: Any) -> DualPair:
        """Angle of the point (x, y) and its derivative along the tangents."""
        y, x = DualPair.of(y), DualPair.of(x)
        r2 = x.first * x.first + y.first * y.first
        return DualPair(ca.atan2(y.first, x.first), (x.first * y.second - y.first * x.second) / r2)


class ComplexPair(Pair):
    """Complex number (real part, imaginary part)."""

    SQUARE = -1.0
    __slots__ = ()

    def sin(self) -> ComplexPair:
        s, c = ca.sin(self.first), ca.cos(self.first)
        return ComplexPair(s * ca.cosh(self.second), c * ca.sinh(self.second))

    def cos(self) -> ComplexPair:
        s, c = ca.sin(self.first), ca.cos(self.first)
        return ComplexPair(c * ca.cosh(self.second), -(s * ca.sinh(self.second)))

    def sinh(self) -> ComplexPair:
        s, c = ca.sin(self.second), ca.cos(self.second)
        return ComplexPair(ca.sinh(self.first) * c, ca.cosh(self.first) * s)

    def cosh(self) -> ComplexPair:
        s, c = ca.sin(self.second), ca.cos(self.second)
        return ComplexPair(ca.cosh(self.first) * c, ca.sinh(self.first) * s)

    def tanh(self) -> ComplexPair:
        """Hyperbolic tangent (T + i s) / (1 + i T s) with T = tanh re, s = tan im."""
        t, s, cosh = ca.tanh(self.first), ca.tan(self.second), ca.cosh(self.first)
        norm = 1.0 + t * t * s * s
        return ComplexPair(t * (1.0 + s * s) / norm, s / (cosh * cosh) / norm)

    def exp(self) -> ComplexPair:
        e = ca.exp(self.first)
        return ComplexPair(e * ca.cos(self.second), e * ca.sin(self.second))

    def expm1(self) -> ComplexPair:
        """exp(z) - 1, its real part exp(re) cos(im) - 1 = expm1(re) cos(im) - 2 sin(im / 2)^2."""
        half, c = ca.sin(0.5 * self.second), ca.cos(self.second)
        return ComplexPair(ca.expm1(self.first) * c - 2.0 * half * half, ca.exp(self.first) * ca.sin(self.second))

    def log1p(self) -> ComplexPair:
        """log(1 + z), its real part log|1 + z| = log1p(2 re + |z|^2) / 2."""
        a, b = self.first, self.second
        return ComplexPair(0.5 * ca.log1p(2.0 * a + a * a + b * b), ca.atan2(b, 1.0 + a))

    def modulus(self) -> Any:
        """Modulus |self|, a real expression."""
        return ca.sqrt(self.first * self.first + self.second * self.second)

    def log(self) -> ComplexPair:
        """Principal logarithm log|z| + i arg z."""
        return ComplexPair(ca.log(self.modulus()), ca.atan2(self.second, self.first))

    def power(self, exponent: ComplexPair) -> ComplexPair:
        """Power exp(exponent log self) for a positive real part, else to first order in the imaginary parts."""
        usual, (value, second) = (exponent * self.log()).exp(), _first_order_power(self, exponent)
        positive = self.first > 0
        return ComplexPair(ca.if_else(positive, usual.first, value), ca.if_else(positive, usual.second, second))

    def sqrt(self) -> ComplexPair:
        """Square root with real part >= 0."""
        a, b = self.first, self.second
        root = ca.sqrt(0.5 * (self.modulus() + ca.fabs(a)))
        rest = ca.if_else(root > 0, 0.5 * b / ca.if_else(root > 0, root, 1.0), 0.0)
        left = ComplexPair(ca.fabs(rest), ca.if_else(b < 0, -root, root))
        return ComplexPair(ca.if_else(a < 0, left.first, root), ca.if_else(a < 0, left.second, rest))

    @staticmethod
    def atan2(y: Any, x: Any) -> ComplexPair:
        """Angle of the point (x, y): that of the real parts, plus the arctangent, near zero, of the point rotated back by it."""
        y, x = ComplexPair.of(y), ComplexPair.of(x)
        angle = ca.atan2(y.first, x.first)
        c, s = ca.cos(angle), ca.sin(angle)
        return _arctangent((c * y - s * x) / (c * x + s * y)) + angle


def _arctangent(w: ComplexPair) -> ComplexPair:
    """Arctangent atan(a + i b) = atan2(2 a, 1 - a^2 - b^2) / 2 + i artanh(2 b / (1 + a^2 + b^2)) / 2."""
    a, b = w.first, w.second
    square = a * a + b * b
    return ComplexPair(0.5 * ca.atan2(2.0 * a, 1.0 - square), 0.5 * _artanh(2.0 * b / (1.0 + square)))


def _artanh(s: Any) -> Any:
    """Inverse hyperbolic tangent, near zero by its series artanh(s) / s = atanc(-s^2)."""
    large = s * s - 0.04
    near, far = ca.if_else(large > 0, 0.0, s), ca.if_else(large > 0, s, 0.0)
    return ca.if_else(large > 0, 0.5 * ca.log((1.0 + far) / (1.0 - far)), near * sm.atanc(-near * near))


ALGEBRAS: dict[str, type[Pair] | None] = {"real": None, "complex": ComplexPair, "dual": DualPair}


# -- operations of a trace ----------------------------------------------------------------------------------------------


def _decision(name: str) -> Callable[..., Any]:
    """Function of pairs: CasADi's operation of this name on the first numbers, with the second number zero."""
    return lambda *operands: type(operands[0])(getattr(ca, name)(*[x.first for x in operands]))


def _where(condition: Any, a: Any) -> Any:
    """Pair a where the condition is nonzero, else zero."""
    chosen = [ca.if_else(condition.first, part, 0.0) for part in (a.first, a.second)]
    return type(a)(*chosen)


_FUNCTIONS = ("sin", "cos", "sinh", "cosh", "tanh", "exp", "log", "sqrt", "expm1", "log1p")
OPERATIONS: dict[str, Callable[..., Any]] = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "DIV": lambda a, b: a / b,
    "NEG": lambda a: -a,
    "SQ": lambda a: a * a,
    "TWICE": lambda a: a + a,
    "INV": lambda a: a.inverse(),
    "POW": lambda a, b: a**b,
    "CONSTPOW": lambda a, b: a**b,
    **{n.upper(): lambda a, n=n: getattr(a, n)() for n in _FUNCTIONS},
    "TAN": lambda a: a.sin() / a.cos(),
    "ATAN2": lambda y, x: type(y).atan2(y, x),
    "ATAN": lambda a: type(a).atan2(a, 1.0),
    "ASIN": lambda a: type(a).atan2(a, ((1.0 - a) * (1.0 + a)).sqrt()),
    "ACOS": lambda a: type(a).atan2(((1.0 - a) * (1.0 + a)).sqrt(), a),
    "FABS": lambda a: a.select_by(a, a, -a),
    "FMIN": lambda a, b: a.select_by(b - a, a, b),
    "FMAX": lambda a, b: a.select_by(a - b, a, b),
    "IF_ELSE_ZERO": _where,
    "LT": _decision("lt"),
    "LE": _decision("le"),
    "EQ": _decision("eq"),
    "NE": _decision("ne"),
    "NOT": _decision("logic_not"),
    "AND": _decision("logic_and"),
    "OR": _decision("logic_or"),
    "SIGN": _decision("sign"),
    "FLOOR": _decision("floor"),
}
"""Operations of a :class:`~dynamics_backends.compiled.emit.trace.Trace` that are defined on pairs, by name."""


def replayed(t: Trace, pair: type[Pair], component: Callable[[int, int], Pair]) -> list[list[Any]]:
    """Evaluate a trace on pairs, with component j of input i from ``component(i, j)``; outputs alternate first and second numbers.

    Raises ValueError for an operation that pairs do not have.
    """
    values: list[Pair] = []

    def operand(x: Any) -> Pair:
        """Operand as a pair: a component of an input, a constant, or the value of an earlier operation."""
        if isinstance(x, tuple):
            return component(*x)
        return pair(x) if isinstance(x, float) else values[x]

    for op in t.operations:
        if op.name not in OPERATIONS:
            raise ValueError(f"pairs have no operation {op.name}; use engine = 'numpy' for this map")
        values.append(OPERATIONS[op.name](*[operand(x) for x in op.operands]))
    results = [[operand(x) for x in output] for output in t.outputs]
    return [[part for r in result for part in (r.first, r.second)] for result in results]
