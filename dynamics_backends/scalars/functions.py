"""Elementwise NumPy functions for every kind of scalar (:mod:`dynamics_backends.scalar`), by NumPy's names.

A method of the number type is used if it exists (``sin``, ``exp``, ``arctan``, ...); other functions combine arithmetic, these
methods and :func:`~dynamics_backends.scalar.select`, and are differentiable wherever the function is.  Comparisons and integer
functions (``floor``, ``sign``) depend on the real part alone and have zero derivatives.  A truth value is 1.0 or 0.0.

Number types derive from :class:`UfuncMixin`, so that np.sin(x) calls x.sin() or a function of this module. An operator with an
array on its left (array + x, A @ x) calls the reflected operator of the number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.scalar import Scalar
from dynamics_backends.symbols import ca

_METHOD_NAMES = (
    "sin",
    "cos",
    "sqrt",
    "exp",
    "log",
    "tanh",
    "tan",
    "sinh",
    "cosh",
    "arcsin",
    "arccos",
    "arctan",
    "expm1",
    "log1p",
)
_METHODS = {"tan": "tan_"}
"""Methods whose usual name is in use, as ``tan`` for a dual number's tangents."""
_ARRAYS = (np.ndarray, np.generic, int, float, complex)
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)


def _method_or_numpy(name: str) -> Callable[[Scalar], Scalar]:
    """Return a function that calls NumPy's function for arrays and plain numbers, else the number's method."""
    numpy_function, method_name = getattr(np, name), _METHODS.get(name, name)

    def function(x: Scalar) -> Scalar:
        """NumPy's function of an array or plain number, else the number's method. Raises TypeError if it has none."""
        if isinstance(x, _ARRAYS):
            return numpy_function(x)
        method = getattr(x, method_name if hasattr(x, method_name) else name, None)
        if method is None:
            raise TypeError(f"numbers of the type {type(x).__name__} have no {name}")
        return method()

    return function


_sqrt, _exp, _log, _expm1, _log1p = (_method_or_numpy(name) for name in ("sqrt", "exp", "log", "expm1", "log1p"))


def is_number(x: Any) -> bool:
    """True if x is a plain real number or bool, of Python or NumPy."""
    return isinstance(x, _NUMBERS)


def _compared(by: Callable[[Any, Any], Any]) -> Callable[[Scalar, Scalar], Scalar]:
    """Return a function of a and b that compares the real numbers that branches depend on, with the result 1.0 or 0.0."""
    return lambda a, b: 1.0 * by(sm.real(a), sm.real(b))


def choose(truth: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """a where the truth value is 1, b where it is 0; both are evaluated and must be finite."""
    return sm.select(truth - 0.5, a, b)


LARGEST_WHOLE = 2**31
"""Constant whole exponents of a size below this value are passed as integers."""
_SYMBOLIC_POWERS = 4
"""Number of powers of zero (0, 1, 2, 3) with separate symbolic derivatives."""


def power(a: Scalar, b: Scalar) -> Scalar:
    """Power a ** b as C's pow: 0 ** 0 = 1, and NaN for a negative a with a fractional exponent.

    Derivatives are b a^(b - 1) in a, and a^b log(a) in b, which is NaN for a negative a. At a = 0 an exponent of 0 or at least 1
    counts as constant: the derivative in b is 0, and that in a is 1 for b = 1, otherwise 0. Arrays, dual numbers and
    symbols agree in this, symbols up to their third derivative.
    """
    if is_number(b):
        return _constant_power(a, float(b))
    if any(hasattr(x, "is_symbolic") for x in (a, b)):
        return _symbolic_power(a, b)
    for x in (a, b):
        if hasattr(x, "powered"):
            return type(x).powered(a, b)
    return _array_power(a, b)


def _constant_power(a: Scalar, b: float) -> Scalar:
    """Power with a constant real exponent, an integer if whole; complex numbers to first order in the imaginary part."""
    if b == 0.0:
        return 1.0 + 0.0 * a
    if isinstance(a, _ARRAYS) and np.iscomplexobj(a):
        return _array_power(a, b)
    return a ** (int(b) if b.is_integer() and abs(b) < LARGEST_WHOLE else b)


def exponent_is_constant(a: Any, b: Any) -> Any:
    """Mask of real a = 0 with b = 0 or b >= 1, where a ** b is differentiated with respect to a only."""
    return (a == 0.0) & ((b >= 1.0) | (b == 0.0))


def along(slope: Any, direction: Any) -> Any:
    """slope * direction; 0 for a zero direction, even if the slope is infinite or NaN."""
    with np.errstate(invalid="ignore"):
        return np.where(direction == 0.0, 0.0, slope * direction)


def _array_power(a: Any, b: Any) -> Any:
    """NumPy's power of real parts; for complex numbers plus the first order in the imaginary parts, as a complex step needs."""
    x, y = np.real(a).astype(float) if np.ndim(a) else float(np.real(a)), np.real(b)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = np.power(x, y)
        if not (np.iscomplexobj(a) or np.iscomplexobj(b)):
            return value
        slope = np.where(np.asarray(y) == 0.0, 0.0, y * np.power(x, y - 1.0))
        constant = exponent_is_constant(np.asarray(x), np.asarray(y))
        rate = np.where(constant, 0.0, value * np.log(np.where(constant, 1.0, x)))
    result = np.empty(np.shape(value), dtype=complex)
    result.real, result.imag = value, along(slope, np.imag(a)) + along(rate, np.imag(b))
    return result


def _symbolic_power(a: Any, b: Any) -> Any:
    """Symbolic power; at a symbolic a = 0 with b = 0 or b >= 1, a separate branch keeps CasADi's derivatives from log(0).

    A constant base or exponent has no such branch.
    """
    if not hasattr(a, "is_symbolic") or a.is_constant():
        return a**b
    if hasattr(b, "is_symbolic") and b.is_constant():
        return _constant_power(a, float(b))
    at_zero = ca.logic_and(a == 0.0, ca.logic_or(b >= 1.0, b == 0.0))
    power_of_zero = sum(ca.if_else(b == k, a**k, 0.0) for k in range(_SYMBOLIC_POWERS))
    return ca.if_else(at_zero, power_of_zero, ca.if_else(at_zero, 1.0, a) ** b)


def has_power(rows: Any) -> bool:
    """True for CasADi symbols (SX), or lists of them, with a power whose exponent is not constant; False for other rows."""
    column = ca.vertcat(*rows) if isinstance(rows, (list, tuple)) else rows
    if not isinstance(column, ca.SX):
        return False
    function = ca.Function("powers", [ca.vertcat(*ca.symvar(column))], [column])
    return any(function.instruction_id(k) == ca.OP_POW for k in range(function.n_instructions()))


def absolute(x: Scalar) -> Scalar:
    """Absolute value |x|."""
    return sm.select(x, x, -x)


def maximum(a: Scalar, b: Scalar) -> Scalar:
    """Larger of two numbers."""
    return sm.select(a - b, a, b)


def minimum(a: Scalar, b: Scalar) -> Scalar:
    """Smaller of two numbers."""
    return sm.select(b - a, a, b)


def sign(x: Scalar) -> Scalar:
    """Sign of the real value of x, without derivatives: 1.0, 0.0 or -1.0."""
    x = sm.real(x)
    return 1.0 * (x > 0) - 1.0 * (x < 0)


def floor(x: Scalar) -> Scalar:
    """Largest integer not above x, of numbers and symbols.

    Of dual and complex numbers it is that of their real value, a plain number without derivatives.
    """
    x = sm.real(x)
    return x.floor() if hasattr(x, "floor") else np.floor(x)


def trunc(x: Scalar) -> Scalar:
    """Nearest integer toward zero, of the real value of x and without derivatives, as :func:`floor`."""
    return sm.select(sm.real(x), floor(x), -floor(-x))


def rint(x: Scalar) -> Scalar:
    """Nearest integer, an even one at equal distances, of the real value of x and without derivatives, as :func:`floor`."""
    x = sm.real(x)
    up = floor(x + 0.5)
    halfway, odd = up - x == 0.5, up - 2.0 * floor(0.5 * up)
    return up - halfway * odd


def arcsinh(x: Scalar) -> Scalar:
    """Inverse of sinh: odd, with log1p for accuracy at small numbers."""
    size = absolute(x)
    square = size * size
    inverse = _log1p(size + square / (1.0 + _sqrt(square + 1.0)))
    return sm.select(x, inverse, -inverse)


def arccosh(x: Scalar) -> Scalar:
    """Inverse of cosh."""
    return _log(x + _sqrt((x - 1.0) * (x + 1.0)))


def arctanh(x: Scalar) -> Scalar:
    """Inverse of tanh."""
    return 0.5 * (_log1p(x) - _log1p(-x))


def logaddexp(a: Scalar, b: Scalar) -> Scalar:
    """log(exp(a) + exp(b)), without overflow."""
    return maximum(a, b) + _log1p(_exp(-absolute(a - b)))


def cbrt(x: Scalar) -> Scalar:
    """Real cube root."""
    root = power(absolute(x), 1.0 / 3.0)
    return sm.select(x, root, -root)


FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    **{name: _method_or_numpy(name) for name in _METHOD_NAMES},
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "negative": operator.neg,
    "positive": lambda x: x,
    "conjugate": lambda x: x,
    "power": power,
    "float_power": power,
    "pow": power,
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1.0 / x,
    "absolute": absolute,
    "fabs": absolute,
    "maximum": maximum,
    "fmax": maximum,
    "minimum": minimum,
    "fmin": minimum,
    "clip": lambda x, low, high: minimum(maximum(x, low), high),
    "sign": sign,
    "floor": floor,
    "ceil": lambda x: -floor(-x),
    "trunc": trunc,
    "rint": rint,
    "floor_divide": lambda a, b: floor(a / b),
    "remainder": lambda a, b: a - b * floor(a / b),
    "mod": lambda a, b: a - b * floor(a / b),
    "fmod": lambda a, b: a - b * trunc(a / b),
    "heaviside": lambda x, at_zero: sm.select(sm.real(x), 1.0, sm.select(-sm.real(x), 0.0, at_zero)),
    "copysign": lambda a, b: sm.select(sm.real(b), absolute(a), -absolute(a)),
    "hypot": lambda a, b: _sqrt(a * a + b * b),
    "arctan2": sm.atan2,
    "arcsinh": arcsinh,
    "arccosh": arccosh,
    "arctanh": arctanh,
    "exp2": lambda x: _exp(x * np.log(2.0)),
    "log2": lambda x: _log(x) / np.log(2.0),
    "log10": lambda x: _log(x) / np.log(10.0),
    "logaddexp": logaddexp,
    "cbrt": cbrt,
    "deg2rad": lambda x: x * (np.pi / 180.0),
    "radians": lambda x: x * (np.pi / 180.0),
    "rad2deg": lambda x: x * (180.0 / np.pi),
    "degrees": lambda x: x * (180.0 / np.pi),
}
"""Functions of numbers to numbers, by NumPy's names."""

TRUTHS: dict[str, Callable[..., Scalar]] = {
    "greater": _compared(operator.gt),
    "greater_equal": _compared(operator.ge),
    "less": _compared(operator.lt),
    "less_equal": _compared(operator.le),
    "equal": _compared(operator.eq),
    "not_equal": _compared(operator.ne),
}
"""Functions of numbers to truth values."""

LOGIC: dict[str, Callable[..., Scalar]] = {
    "logical_and": lambda a, b: a * b,
    "logical_or": lambda a, b: a + b - a * b,
    "logical_xor": lambda a, b: a + b - 2.0 * a * b,
    "logical_not": lambda a: 1.0 - a,
}
_BITWISE = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "invert": "logical_not",
}
LOGIC |= {bitwise: LOGIC[logical] for bitwise, logical in _BITWISE.items()}
"""Functions of truth values to truth values."""


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
        """Apply a universal function of NumPy, the function in FUNCTIONS of its name.

        If the first operand is an array or plain number, operators in _REFLECTED call the number's reflected operator. Returns
        NotImplemented for other functions, methods of the function such as reduce, and options.
        """
        name = ufunc.__name__
        if method != "__call__" or options:
            return NotImplemented
        if name in _REFLECTED and not isinstance(inputs[0], UfuncMixin):
            reflected = getattr(inputs[1], _REFLECTED[name], None)
            return NotImplemented if reflected is None else reflected(inputs[0])
        return FUNCTIONS[name](*inputs) if name in FUNCTIONS else NotImplemented

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise TypeError: a number with derivatives cannot become an array of floats."""
        raise TypeError(f"a {type(self).__name__} cannot become a NumPy array: use dynamics_backends.scalar.stack")
