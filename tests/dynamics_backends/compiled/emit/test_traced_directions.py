"""Slopes along a direction: complex steps of every operation of a trace, against NumPy, and forward AD, against dual arrays."""

import operator

import casadi as ca
import numpy as np
import pytest

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.directions import complex_step, slope_along
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.tape.tape import Tape
from dynamics_backends.trace import trace_expressions

REAL = np.array([-2.3, -1.0, -0.4, -1e-3, 0.2, 0.999, 1.0, 3.1])
IMAGINARY = {"step": np.full(8, 1e-30), "large": np.array([0.7, -0.2, 1.1, -2.0, 0.1, 0.03, -0.5, 0.4])}
UNARY = ("sin", "cos", "tanh", "exp", "log", "sqrt")
POSITIVE = ("log", "sqrt")
SINGLE = {
    **{name: getattr(sm, name) for name in UNARY},
    "negative": operator.neg,
    "square": lambda x: x**2,
    "cube": lambda x: x**3,
    "inverse square": lambda x: x**-2,
    "constant": lambda x: 3.0 - 2.0 / x,
    "power of a constant": lambda x: 2.0 ** (1.0 - x) / (3.0 + x) - 1.0,
    "select": lambda x: sm.select(x - 0.1, x * x, 3.0 * x),
    "sinc": lambda x: sm.sinc(x * x),
    "angle": lambda x: sm.atan2(x, 0.5 + 0.0 * x),
}
BINARY = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "atan2": sm.atan2,
    "select": lambda x, y: sm.select(x - y, x * y, y),
    "stack": lambda x, y: sm.stack([x, 2.0, y]),
    "concatenate": lambda x, y: sm.concatenate([[x, y], sm.stack([y * x])]),
}
TRACED = {  # what only a trace holds: CasADi's expression, and the same of complex numbers
    "tan": (ca.tan, np.tan),
    "sinh": (ca.sinh, np.sinh),
    "cosh": (ca.cosh, np.cosh),
    "arctan": (ca.atan, lambda z: sm.atan2(z, 1.0 + 0.0 * z)),
    "arcsin": (lambda x: ca.asin(0.3 * x), lambda z: np.arcsin(0.3 * z)),
    "arccos": (lambda x: ca.acos(0.3 * x), lambda z: np.arccos(0.3 * z)),
    "abs": (ca.fabs, lambda z: np.where(z.real > 0, z, -z)),
    "min": (lambda x: ca.fmin(x, 0.5 * x), lambda z: np.where(z.real < 0, z, 0.5 * z)),
    "max": (lambda x: ca.fmax(x, 0.5 * x), lambda z: np.where(z.real > 0, z, 0.5 * z)),
    "sign": (lambda x: x * ca.sign(x) * ca.floor(x), lambda z: z * np.sign(z.real) * np.floor(z.real)),
    "logic": (
        lambda x: ca.if_else(ca.logic_or(ca.logic_and(x >= -1.5, x < 0), x == 1.0), x, 2.0 * x),
        lambda z: np.where(((z.real >= -1.5) & (z.real < 0)) | (z.real == 1.0), z, 2.0 * z),
    ),
    "unequal": (
        lambda x: ca.if_else(ca.logic_not(x != 1.0), x, 3.0 * x),
        lambda z: np.where(z.real == 1.0, z, 3.0 * z),
    ),
    "root": (lambda x: (4.0 + x) ** 2.5, lambda z: (4.0 + z) ** 2.5),
    "power": (lambda x: (4.0 + x) ** x, lambda z: (4.0 + z) ** z),
    "twice and inverse": (lambda x: (x + x) + 1.0 / x, lambda z: 2.0 * z + 1.0 / z),
}
each_size = pytest.mark.parametrize("size", IMAGINARY)


def evaluated(function, *operands: np.ndarray) -> np.ndarray:
    """The function at complex numbers (K,) by the complex step: values (rows, K)."""
    return along(complex_step, function, *operands)


def along(slope, function, *operands: np.ndarray) -> np.ndarray:
    """The function and its slope along the imaginary parts of complex numbers (K,): (rows, K). slope: complex_step or forward."""
    x, at, e = (ca.SX.sym(name, len(operands)) for name in ("x", "at", "e"))
    value = column(function(*(x[i] for i in range(len(operands)))))
    t = trace_expressions([at, e], slope(value, x, (), at, e))
    z = np.stack(operands, axis=1)
    value, slope = Tape.of(t, [len(operands)] * 2).rows(z.real, z.imag)
    return value.T + 1j * slope.T


def forward(value, x, others, at, e) -> tuple:
    return ca.substitute([value, slope_along(value, x, others, e)], [x], [at])


def column(result) -> ca.SX:
    return result if isinstance(result, ca.SX) else ca.vertcat(*result)


def assert_equal_parts(actual: np.ndarray, expected: np.ndarray) -> None:
    """Compare to rounding, separately for real and imaginary parts."""
    assert np.allclose(actual.real, expected.real, rtol=1e-13, atol=1e-14)
    size = np.abs(expected.imag).max()
    assert np.allclose(actual.imag, expected.imag, rtol=1e-12, atol=1e-14 * size)


def points(name: str, size: str) -> np.ndarray:
    return (np.abs(REAL) if name in POSITIVE and size == "step" else REAL) + 1j * IMAGINARY[size]


@each_size
@pytest.mark.parametrize("name", SINGLE)
def test_complex_functions(name, size):
    z = points(name, size)
    assert_equal_parts(np.ravel(evaluated(SINGLE[name], z)), SINGLE[name](z))


@pytest.mark.parametrize("name", SINGLE)
def test_slopes_of_functions(name):
    z = points(name, "step")
    expected = SINGLE[name](Dual(z.real, IMAGINARY["large"][:, None]))
    actual = along(forward, SINGLE[name], z.real + 1j * IMAGINARY["large"])
    assert_equal_parts(np.ravel(actual), expected.val + 1j * expected.tan[:, 0])


@each_size
@pytest.mark.parametrize("name", BINARY)
def test_complex_operations(name, size):
    z, w = REAL + 1j * IMAGINARY[size], REAL[::-1] - 0.3 + 1j * IMAGINARY[size] ** 2 / IMAGINARY[size].max()
    actual = evaluated(BINARY[name], z, w)
    expected = np.reshape(BINARY[name](z, w) if name != "concatenate" else np.stack([z, w, z * w]), (-1, len(z)))
    assert_equal_parts(actual, expected)


@pytest.mark.parametrize("name", BINARY)
def test_slopes_of_operations(name):
    z, w = REAL + 1j * IMAGINARY["large"], REAL[::-1] - 0.3 + 1j * IMAGINARY["large"][::-1]
    x, y = (Dual(a.real, a.imag[:, None]) for a in (z, w))
    expected = sm.stack([x, y, x * y]) if name == "concatenate" else BINARY[name](x, y)
    actual = along(forward, BINARY[name], z, w)
    assert_equal_parts(actual, np.reshape(expected.val + 1j * expected.tan[..., 0], (-1, len(z))))


def test_square_root_at_the_cut_and_at_zero():
    z = np.array([-4.0 + 0.0j, 0.0 + 0.0j, 4.0 + 0.0j, -1.0 - 1e-30j, 1e-30j])
    assert_equal_parts(np.ravel(evaluated(sm.sqrt, z)), np.sqrt(z))


@each_size
@pytest.mark.parametrize("name", TRACED)
def test_operations_of_a_trace_at_complex_numbers(name, size):
    z = REAL + 1j * IMAGINARY[size]
    assert_equal_parts(np.ravel(evaluated(TRACED[name][0], z)), TRACED[name][1](z))


@pytest.mark.parametrize("name", TRACED)
def test_slopes_of_operations_of_a_trace(name):
    step = TRACED[name][1](REAL + 1j * IMAGINARY["step"])
    actual = along(forward, TRACED[name][0], REAL + 0.7j)
    assert_equal_parts(np.ravel(actual), step.real + 0.7j * step.imag / 1e-30)
