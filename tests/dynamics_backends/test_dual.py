"""Dual arrays against complex step and CasADi."""

import operator

import casadi
import numpy as np
import pytest

from dynamics_backends import scalar as sm
from dynamics_backends.scalars.dual import Dual

H = 1e-30
N, K = 4, 3
BINARY = (operator.add, operator.sub, operator.mul, operator.truediv, sm.atan2)
UNARY = {
    "neg": operator.neg,
    "cube": lambda x: x**3,
    "root": lambda x: x**0.5,
    "inverse": lambda x: x**-2,
    **{name: getattr(sm, name) for name in ("sin", "cos", "sqrt", "exp", "log", "tanh")},
}
SHAPES = {  # of the two operands: rows, scalars of the batch, constants of a model
    "rows and rows": ((2, N), (2, N)),
    "rows and scalar": ((2, N), (N,)),
    "scalar and rows": ((N,), (2, N)),
    "rows and column": ((2, N), (2, 1)),
    "column and rows": ((2, 1), (2, N)),
    "scalar and number": ((N,), ()),
    "number and scalar": ((), (N,)),
    "scalar and column": ((N,), (2, 1)),
}


def random_dual(rng: np.random.Generator, shape: tuple[int, ...]) -> Dual:
    """Positive values, so that every function is defined."""
    return Dual(rng.uniform(0.5, 2.0, shape), rng.standard_normal((*shape, K)))


def complex_step(f, *operands) -> np.ndarray:
    """The tangents of f, direction by direction."""

    def perturbed(x, k):
        return x.val + 1j * H * x.tan[..., k] if isinstance(x, Dual) else x

    return np.stack([f(*(perturbed(x, k) for x in operands)).imag / H for k in range(K)], axis=-1)


def plain(x):
    return x.val if isinstance(x, Dual) else x


def check(f, *operands) -> None:
    result, expected = f(*operands), f(*(plain(x) for x in operands))
    assert isinstance(result, Dual)
    assert np.allclose(result.val, expected, rtol=1e-15) and result.val.shape == np.shape(expected)
    tangents = complex_step(f, *operands)
    assert result.tan.shape == tangents.shape
    assert np.allclose(result.tan, tangents, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("f", UNARY.values(), ids=UNARY)
def test_functions(f):
    check(f, random_dual(np.random.default_rng(0), (2, N)))


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("f", BINARY, ids=lambda f: f.__name__)
def test_operations_on_two_duals(f, shapes):
    rng = np.random.default_rng(1)
    check(f, *(random_dual(rng, s) for s in shapes))


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("f", BINARY, ids=lambda f: f.__name__)
def test_operations_with_a_constant(f, shapes):
    rng = np.random.default_rng(2)
    first, second = (random_dual(rng, s) for s in shapes)
    check(f, first, second.val)
    check(f, first.val, second)


@pytest.mark.parametrize("number", [2, 2.0, np.float64(2.0), np.array(2.0)], ids=lambda x: type(x).__name__)
def test_numbers_on_either_side(number):
    x = random_dual(np.random.default_rng(3), (2, N))
    for f in BINARY[:4]:
        check(lambda a, f=f: f(a, number), x)
        check(lambda a, f=f: f(number, a), x)


def test_rows_are_read_and_written():
    rng = np.random.default_rng(4)
    x, y = random_dual(rng, (3, N)), random_dual(rng, (N,))
    x[1] = y
    assert np.array_equal(x[1].val, y.val) and np.array_equal(x.tan[1], y.tan)
    x[[0, 2]] = 7.0
    assert np.all(x.val[[0, 2]] == 7.0) and not np.any(x.tan[[0, 2]]) and np.array_equal(x.tan[1], y.tan)
    x[0] = np.arange(N)
    assert np.array_equal(x[0].val, np.arange(N)) and len(x) == 3 and x[1:].shape == (2, N)


def test_seed_gives_every_knot_the_same_directions():
    directions = np.arange(6.0).reshape(2, 3)
    x = Dual.seed(np.ones((2, N)), directions)
    assert x.directions == 3 and np.array_equal(x.tan[:, 1], directions) and np.array_equal(x.tan[:, 3], directions)


def test_stack_and_concatenate_keep_complex_tangents():
    rng = np.random.default_rng(5)
    x = random_dual(rng, (N,))
    z = Dual(x.val + 1j, x.tan * (1 + 1j))
    stacked = sm.stack([x, z, 2.0])
    assert (
        np.array_equal(stacked.tan[1], z.tan) and np.array_equal(stacked.val[1], z.val) and not np.any(stacked.tan[2])
    )
    joined = sm.concatenate([np.zeros((1, N)), sm.stack([z])])
    assert np.array_equal(joined.tan[1], z.tan) and np.array_equal(joined.val[0], np.zeros(N))


def tangled(x, y):
    """A function with every elementary operation."""
    return (
        sm.sin(x * y) / (1.0 + x * x)
        - sm.exp(-y) * sm.sqrt(x)
        + sm.log(x + y) * sm.tanh(y) ** 2
        + sm.atan2(y, x)
        + sm.cos(x)
    )


def test_complex_duals_give_second_derivatives():
    at = np.random.default_rng(6).uniform(0.5, 2.0, (2, N))
    symbol = casadi.SX.sym("x", 2)
    hessian = casadi.Function("H", [symbol], [casadi.hessian(tangled(symbol[0], symbol[1]), symbol)[0]])
    expected = np.stack([np.asarray(hessian(column)) for column in at.T])
    for i in range(2):
        x = Dual.seed(at + 1j * H * np.eye(2)[i][:, None], np.eye(2))
        row = tangled(x[0], x[1]).tan.imag / H
        assert np.allclose(row, expected[:, i], rtol=1e-13, atol=1e-14)
