"""Slopes of expressions along a direction, for tracing: by a complex step, and by CasADi's forward AD.

Complex step.  The operations of a trace are evaluated at complex numbers, pairs of symbols, so that the result is real arithmetic;
lanes then run over knots and directions.  The functions are accurate for imaginary parts of any size, 1e-30 as well as 1: no
formula subtracts nearly equal numbers.  Only powers of numbers without a positive real part are of first order in the imaginary
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dynamics_backends import scalar as sm
from dynamics_backends.symbols import ca
from dynamics_backends.trace import Operand, trace_expressions

# -- complex step -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Complex:
    """Complex number re + i im of symbols; plain numbers are converted."""

    re: Any
    im: Any = 0.0

    def __post_init__(self) -> None:
        self.re, self.im = ca.SX(self.re), ca.SX(self.im)

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __neg__(self) -> Complex:
        return Complex(-self.re, -self.im)

    def __sub__(self, other: Complex) -> Complex:
        return self + (-other)

    def __mul__(self, other: Complex) -> Complex:
        return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __truediv__(self, other: Complex) -> Complex:
        return self * inverse(other)


def inverse(z: Complex) -> Complex:
    """Reciprocal 1 / z."""
    norm = 1.0 / (z.re * z.re + z.im * z.im)
    return Complex(z.re * norm, -z.im * norm)


def where(condition: Any, a: Complex, b: Complex) -> Complex:
    """a where a real condition is nonzero, else b."""
    return Complex(ca.if_else(condition, a.re, b.re), ca.if_else(condition, a.im, b.im))


def sin(z: Complex) -> Complex:
    """Sine."""
    return Complex(ca.sin(z.re) * ca.cosh(z.im), ca.cos(z.re) * ca.sinh(z.im))


def cos(z: Complex) -> Complex:
    """Cosine."""
    return Complex(ca.cos(z.re) * ca.cosh(z.im), -(ca.sin(z.re) * ca.sinh(z.im)))


def sinh(z: Complex) -> Complex:
    """Hyperbolic sine."""
    return Complex(ca.sinh(z.re) * ca.cos(z.im), ca.cosh(z.re) * ca.sin(z.im))


def cosh(z: Complex) -> Complex:
    """Hyperbolic cosine."""
    return Complex(ca.cosh(z.re) * ca.cos(z.im), ca.sinh(z.re) * ca.sin(z.im))


def tanh(z: Complex) -> Complex:
    """Hyperbolic tangent (T + i s) / (1 + i T s) with T = tanh re, s = tan im."""
    t, s, c = ca.tanh(z.re), ca.tan(z.im), ca.cosh(z.re)
    norm = 1.0 + t * t * s * s
    return Complex(t * (1.0 + s * s) / norm, s / (c * c) / norm)


def exp(z: Complex) -> Complex:
    """Exponential function."""
    e = ca.exp(z.re)
    return Complex(e * ca.cos(z.im), e * ca.sin(z.im))


def expm1(z: Complex) -> Complex:
    """exp(z) - 1, its real part exp(re) cos(im) - 1 = expm1(re) cos(im) - 2 sin(im / 2)^2."""
    half = ca.sin(0.5 * z.im)
    return Complex(ca.expm1(z.re) * ca.cos(z.im) - 2.0 * half * half, ca.exp(z.re) * ca.sin(z.im))


def log1p(z: Complex) -> Complex:
    """log(1 + z), its real part log|1 + z| = log1p(2 re + |z|^2) / 2."""
    a, b = z.re, z.im
    return Complex(0.5 * ca.log1p(2.0 * a + a * a + b * b), ca.atan2(b, 1.0 + a))


def modulus(z: Complex) -> Any:
    """Modulus |z|, a real expression."""
    return ca.sqrt(z.re * z.re + z.im * z.im)


def log(z: Complex) -> Complex:
    """Principal logarithm log|z| + i arg z."""
    return Complex(ca.log(modulus(z)), ca.atan2(z.im, z.re))


def power(z: Complex, exponent: Complex) -> Complex:
    """Power z ** exponent: exp(exponent log z) for a positive real part, else to first order in the imaginary parts.

    An imaginary part of zero contributes zero to the first order, even if the derivative is infinite or NaN.
    """
    e, value = exponent.re, z.re**exponent.re
    change = ca.if_else(z.im == 0, 0.0, e * z.re ** (e - 1.0) * z.im)
    change = change + ca.if_else(exponent.im == 0, 0.0, value * ca.log(z.re) * exponent.im)
    return where(z.re > 0, exp(exponent * log(z)), Complex(value, change))


def sqrt(z: Complex) -> Complex:
    """Square root with real part >= 0."""
    root = ca.sqrt(0.5 * (modulus(z) + ca.fabs(z.re)))
    rest = ca.if_else(root > 0, 0.5 * z.im / ca.if_else(root > 0, root, 1.0), 0.0)
    return where(z.re < 0, Complex(ca.fabs(rest), ca.if_else(z.im < 0, -root, root)), Complex(root, rest))


def atan2(y: Complex, x: Complex) -> Complex:
    """Angle of the point (x, y): that of the real parts, plus the arctangent, near zero, of the point rotated back by it."""
    angle = ca.atan2(y.re, x.re)
    c, s = Complex(ca.cos(angle)), Complex(ca.sin(angle))
    return _arctangent((c * y - s * x) / (c * x + s * y)) + Complex(angle)


def _arctangent(w: Complex) -> Complex:
    """Arctangent atan(a + i b) = atan2(2 a, 1 - a^2 - b^2) / 2 + i artanh(2 b / (1 + a^2 + b^2)) / 2."""
    a, b = w.re, w.im
    square = a * a + b * b
    return Complex(0.5 * ca.atan2(2.0 * a, 1.0 - square), 0.5 * _artanh(2.0 * b / (1.0 + square)))


def _artanh(s: Any) -> Any:
    """Inverse hyperbolic tangent, near zero by its series artanh(s) / s = atanc(-s^2)."""
    large = s * s - 0.04
    near, far = ca.if_else(large > 0, 0.0, s), ca.if_else(large > 0, s, 0.0)
    return ca.if_else(large > 0, 0.5 * ca.log((1.0 + far) / (1.0 - far)), near * sm.atanc(-near * near))


def _across(z: Complex) -> Complex:
    """Other leg sqrt(1 - z^2) of a right triangle with the hypotenuse 1 and the leg z."""
    one = Complex(1.0)
    return sqrt((one - z) * (one + z))


def _real(name: str) -> Callable[..., Complex]:
    """Function of complex numbers: CasADi's operation of this name on their real parts, with the imaginary part zero."""
    return lambda *operands: Complex(getattr(ca, name)(*[z.re for z in operands]))


OPERATIONS: dict[str, Callable[..., Complex]] = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "DIV": lambda a, b: a / b,
    "NEG": lambda a: -a,
    "SQ": lambda a: a * a,
    "TWICE": lambda a: a + a,
    "INV": inverse,
    "POW": power,
    "CONSTPOW": power,
    **{f.__name__.upper(): f for f in (sin, cos, sinh, cosh, tanh, exp, log, sqrt, expm1, log1p, atan2)},
    "TAN": lambda a: sin(a) / cos(a),
    "ATAN": lambda a: atan2(a, Complex(1.0)),
    "ASIN": lambda a: atan2(a, _across(a)),
    "ACOS": lambda a: atan2(_across(a), a),
    "FABS": lambda a: where(a.re > 0, a, -a),
    "FMIN": lambda a, b: where(b.re > a.re, a, b),
    "FMAX": lambda a, b: where(a.re > b.re, a, b),
    "IF_ELSE_ZERO": lambda condition, a: where(condition.re, a, Complex(0.0)),
    **{name.upper(): _real(name) for name in ("lt", "le", "eq", "ne", "sign", "floor")},
    **{name: _real(f"logic_{name.lower()}") for name in ("NOT", "AND", "OR")},
}
"""Operations of a trace on complex numbers, by name."""


def complex_step(value: Any, x: Any, others: Sequence[Any], at: Any, step: Any) -> tuple[Any, Any]:
    """Real and imaginary part of a column of expressions at x = at + i step.

    others: further symbols of the expressions, which are real. Raises ValueError for an operation that is not in OPERATIONS.
    """
    t, values = trace_expressions([x, *others], [value]), list[Complex]()

    def number(operand: Operand) -> Complex:
        """Operand as a complex number: a component of an input, a constant, or the value of an earlier operation."""
        if isinstance(operand, tuple):
            i, j = operand
            return Complex(others[i - 1][j]) if i else Complex(at[j], step[j])
        return Complex(operand) if isinstance(operand, float) else values[operand]

    for op in t.operations:
        if op.name not in OPERATIONS:
            raise ValueError(f"complex numbers have no operation {op.name}; use engine = 'numpy' for this map")
        values.append(OPERATIONS[op.name](*map(number, op.operands)))
    found = list(map(number, t.outputs[0]))
    return ca.vertcat(*(z.re for z in found)), ca.vertcat(*(z.im for z in found))


# -- forward AD -----------------------------------------------------------------------------------------------------------


def slope_along(value: Any, x: Any, others: Sequence[Any], direction: Any) -> Any:
    """Slope of a column of expressions along a direction in x, by CasADi's forward AD.

    others: further symbols of the expressions. A zero slope of the base or the exponent of a power contributes zero, even if the
    derivative there is infinite or NaN; for this, each power is a variable, whose slope follows from those of its operands.
    """
    inputs, values, powers = (x, *others), list[Any](), list[tuple[Any, Any, Any, Any]]()
    t = trace_expressions(inputs, [value])

    def expression(operand: Operand) -> Any:
        """Operand as an expression: a component of an input, a constant, or the value of an earlier operation."""
        if isinstance(operand, tuple):
            return inputs[operand[0]][operand[1]]
        return ca.SX(operand) if isinstance(operand, float) else values[operand]

    if not any(op.name in ("POW", "CONSTPOW") for op in t.operations):
        return ca.jtimes(value, x, direction)
    for op in t.operations:
        operands, code = [*map(expression, op.operands)], getattr(ca, f"OP_{op.name}")
        values.append(ca.SX.unary(code, *operands) if len(operands) == 1 else ca.SX.binary(code, *operands))
        if op.name in ("POW", "CONSTPOW"):
            powers.append((ca.SX.sym("power"), values[-1], *operands))
            values[-1] = powers[-1][0]
    for power, _, a, b in powers:
        slopes = zip((b * a ** (b - 1.0), power * ca.log(a)), (ca.jtimes(v, x, direction) for v in (a, b)), strict=True)
        own = sum(ca.if_else(slope == 0, 0.0, rate * slope) for rate, slope in slopes)
        x, direction = ca.vertcat(x, power), ca.vertcat(direction, own)
    found = ca.jtimes(ca.vertcat(*map(expression, t.outputs[0])), x, direction)
    for power, definition, *_ in reversed(powers):
        found = ca.substitute(found, power, definition)
    return found
