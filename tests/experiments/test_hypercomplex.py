"""Bicomplex and hyper-dual numbers: the mixed part of f(x + a e1 + b e2 + c e1 e2) is f'' a b + f' c."""

import operator

import casadi
import numpy as np
import pytest

from dynamics_backends import scalar as sm
from dynamics_backends.scalars.dual import Dual
from experiments.baselines.hypercomplex import Bicomplex, HyperDual

H, N = 1e-30, 5
UNARY = {
    "neg": operator.neg,
    "inverse": lambda x: 1.0 / x,
    "quotient by a number": lambda x: x / 3.0,
    "number minus": lambda x: 2.0 - x,
    "product": lambda x: (x + 1.0) * x * 2.0,
    "series": sm.sinc,
    "chosen": lambda x: sm.select(x - 1.0, x * x, 3.0 * x),
    "angle": lambda x: sm.atan2(x, 2.0 - x),
    "angle behind": lambda x: sm.atan2(-x, -1.0 - x * x),
    **{name: getattr(sm, name) for name in ("sin", "cos", "exp", "log", "sqrt", "tanh")},
}


def bicomplex(x, a, b, c):
    return Bicomplex(x + 1j * H * a, H * b + 1j * H * H * c)


def hyper_dual(x, a, b, c):
    return HyperDual(Dual(x, a[..., None]), Dual(b, c[..., None]))


KINDS = {
    "bicomplex": (bicomplex, lambda r: (r.first.real, r.first.imag / H, r.second.real / H, r.second.imag / H**2)),
    "hyper_dual": (hyper_dual, lambda r: (r.first.val, r.first.tan[..., 0], r.second.val, r.second.tan[..., 0])),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def numbers(seed, shape=(N,)):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.3, 1.7, shape), *rng.standard_normal((3, *shape))


def slopes(f, x):
    """f, f', f'' by CasADi."""
    s = casadi.SX.sym("s")
    y = f(s)
    first = casadi.gradient(y, s)
    parts = casadi.Function("f", [s], [y, first, casadi.gradient(first, s)])
    return [np.array([float(parts(at)[i]) for at in x]) for i in range(3)]


@each_kind
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(kind, name):
    make, parts = KINDS[kind]
    x, a, b, c = numbers(1)
    f, df, ddf = slopes(UNARY[name], x)
    expected = f, df * a, df * b, ddf * a * b + df * c
    for actual, correct in zip(parts(UNARY[name](make(x, a, b, c))), expected, strict=True):
        np.testing.assert_allclose(actual, correct, rtol=1e-13, atol=1e-13)


@each_kind
@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.truediv, sm.atan2])
def test_functions_of_two_numbers(kind, operation):
    """Against the same function of one number along the line (x + s, y + 2 s)."""
    make, parts = KINDS[kind]
    (x, a, b, c), y = numbers(2), numbers(3)[0]
    f, df, ddf = np.empty((3, N))
    for i in range(N):
        f[i], df[i], ddf[i] = (r[0] for r in slopes(lambda s, i=i: operation(x[i] + s, y[i] + 2.0 * s), [0.0]))
    result = operation(make(x, a, b, c), make(y, 2.0 * a, 2.0 * b, 2.0 * c))
    for actual, correct in zip(parts(result), (f, df * a, df * b, ddf * a * b + df * c), strict=True):
        np.testing.assert_allclose(actual, correct, rtol=1e-12, atol=1e-12)


@each_kind
def test_arrays_on_the_left_call_the_reflected_operator(kind):
    make, parts = KINDS[kind]
    rows, column = make(*numbers(4, (3, N))), np.arange(1.0, 4.0)[:, None]
    for left, right in (
        (column + rows, rows + column),
        (column * rows, rows * column),
        (column - rows, -(rows - column)),
    ):
        for a, b in zip(parts(left), parts(right), strict=True):
            np.testing.assert_array_equal(a, b)


@each_kind
def test_rows(kind):
    make, parts = KINDS[kind]
    rows = make(*numbers(5, (3, N)))
    assert rows.shape == (3, N) and len(rows) == 3
    stacked = sm.stack([rows[0], 2.0, rows[2]])
    joined = sm.concatenate([rows[:1], np.full((1, N), 2.0), rows[2:]])
    copied = sm.copied(rows)
    copied[1] = 2.0
    for other in (stacked, joined, copied):
        for actual, x, value in zip(parts(other), parts(rows), (2.0, 0.0, 0.0, 0.0), strict=True):
            np.testing.assert_array_equal(actual[[0, 2]], x[[0, 2]])
            np.testing.assert_array_equal(actual[1], value)
    assert not any(part.any() for part in parts(sm.zeros_of(rows, (2, N))))
    np.testing.assert_array_equal(sm.real(rows), parts(rows)[0])
