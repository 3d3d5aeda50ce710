"""Pairs of symbols: complex and dual arithmetic of every operation, against NumPy's complex numbers and dual arrays."""

import operator

import casadi as ca
import numpy as np
import pytest

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.pairs import ComplexPair, DualPair, replayed
from dynamics_backends.compiled.emit.trace import trace, trace_expressions
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.tape.tape import Tape

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


def evaluated(pair: type, function, *operands: np.ndarray) -> np.ndarray:
    """The function of pairs given as complex numbers (first, second), point by point, likewise."""
    symbols = [ca.SX.sym("s", 2) for _ in operands]
    result = pair.of(function(*(pair(s[0], s[1]) for s in symbols)))
    f = ca.Function("f", symbols, [result.first, result.second])
    columns = [ca.DM(np.stack([z.real, z.imag])) for z in operands]
    first, second = (r.full() for r in f.map(len(operands[0]))(*columns))
    return first + 1j * second


def assert_pairs_equal(actual: np.ndarray, expected: np.ndarray) -> None:
    """Compare to rounding, separately for first and second numbers."""
    assert np.allclose(actual.real, expected.real, rtol=1e-13, atol=1e-14)
    size = np.abs(expected.imag).max()
    assert np.allclose(actual.imag, expected.imag, rtol=1e-12, atol=1e-14 * size)


def points(name: str, size: str) -> np.ndarray:
    return (np.abs(REAL) if name in POSITIVE and size == "step" else REAL) + 1j * IMAGINARY[size]


@each_size
@pytest.mark.parametrize("name", SINGLE)
def test_complex_functions(name, size):
    z = points(name, size)
    assert_pairs_equal(np.ravel(evaluated(ComplexPair, SINGLE[name], z)), SINGLE[name](z))


@pytest.mark.parametrize("name", SINGLE)
def test_dual_functions(name):
    z = points(name, "step")
    expected = SINGLE[name](Dual(z.real, IMAGINARY["large"][:, None]))
    actual = evaluated(DualPair, SINGLE[name], z.real + 1j * IMAGINARY["large"])
    assert_pairs_equal(np.ravel(actual), expected.val + 1j * expected.tan[:, 0])


@each_size
@pytest.mark.parametrize("name", BINARY)
def test_complex_operations(name, size):
    z, w = REAL + 1j * IMAGINARY[size], REAL[::-1] - 0.3 + 1j * IMAGINARY[size] ** 2 / IMAGINARY[size].max()
    actual = evaluated(ComplexPair, BINARY[name], z, w)
    expected = np.reshape(BINARY[name](z, w) if name != "concatenate" else np.stack([z, w, z * w]), (-1, len(z)))
    assert_pairs_equal(actual, expected)


@pytest.mark.parametrize("name", BINARY)
def test_dual_operations(name):
    z, w = REAL + 1j * IMAGINARY["large"], REAL[::-1] - 0.3 + 1j * IMAGINARY["large"][::-1]
    x, y = (Dual(a.real, a.imag[:, None]) for a in (z, w))
    expected = sm.stack([x, y, x * y]) if name == "concatenate" else BINARY[name](x, y)
    actual = evaluated(DualPair, BINARY[name], z, w)
    assert_pairs_equal(actual, np.reshape(expected.val + 1j * expected.tan[..., 0], (-1, len(z))))


def test_numbers_stand_before_and_behind():
    z = REAL + 1j * IMAGINARY["large"]
    actual = evaluated(ComplexPair, lambda x: 2.0 ** (1.0 - x) / (3.0 + x) - 1.0, z)
    assert_pairs_equal(np.ravel(actual), 2.0 ** (1.0 - z) / (3.0 + z) - 1.0)


def test_square_root_at_the_cut_and_at_zero():
    z = np.array([-4.0 + 0.0j, 0.0 + 0.0j, 4.0 + 0.0j, -1.0 - 1e-30j, 1e-30j])
    assert_pairs_equal(np.ravel(evaluated(ComplexPair, sm.sqrt, z)), np.sqrt(z))


def test_rows():
    column = ComplexPair(ca.SX.sym("a", 3), 0.0)
    assert column.shape == (3, 1) and len(column) == 3 and column.second.shape == (3, 1)
    assert column[1:].shape == (2, 1) and len(sm.rows_of(column)) == 3


def on_tape(name: str, pair: type, z: np.ndarray) -> np.ndarray:
    """The tape of an expression on pairs, for pairs given as complex numbers."""
    symbol = ca.SX.sym("x")
    real = trace_expressions([symbol], [TRACED[name][0](symbol)])
    t = trace(lambda parts: replayed(real, pair, lambda i, j: pair(*parts)), [2])
    return Tape.of(t, [2]).rows(z[:, None].view(float))[0].view(complex)[:, 0]


@each_size
@pytest.mark.parametrize("name", TRACED)
def test_operations_of_a_trace_on_complex_numbers(name, size):
    z = REAL + 1j * IMAGINARY[size]
    assert_pairs_equal(on_tape(name, ComplexPair, z), TRACED[name][1](z))


@pytest.mark.parametrize("name", TRACED)
def test_operations_of_a_trace_on_dual_numbers(name):
    step = TRACED[name][1](REAL + 1j * IMAGINARY["step"])
    actual = on_tape(name, DualPair, REAL + 0.7j)
    assert_pairs_equal(actual, step.real + 0.7j * step.imag / 1e-30)
