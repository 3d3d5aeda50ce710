"""Scalar mathematics: the same source on floats, complex numbers, dual arrays and symbols; fast arithmetic on symbols."""

from __future__ import annotations

import operator
from typing import Any

import casadi
import decimal_functions
import numpy as np
import pytest
from casadi import _casadi

from dynamics_backends import scalar as sm
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.symbols import ca
from dynamics_backends.trace import trace_expressions

H = 1e-30
UNARY = ("sin", "cos", "sqrt", "exp", "log", "tanh")
POINTS = (0.0, 1e-16, 1e-8, 1e-3, 0.3, 0.999999, 1.0, 1.000001, 4.0, np.pi**2, 20.0, 36.0)


def duals(x: np.ndarray) -> Dual:
    """x with one unit tangent."""
    return Dual(x, np.ones((*x.shape, 1), dtype=x.dtype))


def traced(function, *arguments: np.ndarray) -> np.ndarray:
    """The values of a function traced with symbols."""
    symbols = [casadi.SX.sym("x", len(a)) for a in arguments]
    result = casadi.Function("f", symbols, [function(*symbols)])(*arguments)
    return np.asarray(result)[:, 0]


@pytest.mark.parametrize("name", UNARY)
def test_elementary_functions_of_every_scalar(name):
    f, reference = getattr(sm, name), getattr(np, name)
    x = np.linspace(0.2, 2.0, 7)
    slope = reference(x + 1j * H).imag / H
    assert np.array_equal(f(x), reference(x)) and f(0.7) == reference(0.7)
    assert np.allclose(f(x + 1j * H).imag / H, slope, rtol=1e-15)
    assert np.array_equal(f(duals(x)).val, reference(x))
    assert np.allclose(f(duals(x)).tan[:, 0], slope, rtol=1e-15)
    assert np.allclose(traced(f, x), reference(x), rtol=1e-15)


def test_the_tangent_of_every_scalar():
    x = np.linspace(-1.2, 1.2, 7)
    slope = 1.0 + np.tan(x) ** 2
    for found in (sm.tan(x), sm.tan(x + 1j * H).real, sm.tan(duals(x)).val, traced(sm.tan, x)):
        np.testing.assert_allclose(found, np.tan(x), rtol=1e-15)
    np.testing.assert_allclose([sm.tan(x + 1j * H).imag / H, sm.tan(duals(x)).tan[:, 0]], [slope, slope], rtol=1e-14)


@pytest.mark.parametrize("name", decimal_functions.DEFINITIONS)
def test_functions_of_the_squared_angle(name):
    """Values to 1e-13: at the switch the closed forms subtract numbers about 100 times the result."""
    f, t2 = getattr(sm, name), np.array(POINTS)
    expected = np.array([decimal_functions.value(name, x) for x in POINTS])
    assert np.allclose(f(t2), expected, rtol=1e-13, atol=0 if name != "sinc" else 1e-16)
    assert np.allclose(traced(f, t2), expected, rtol=1e-13, atol=0 if name != "sinc" else 1e-16)
    assert f(0.0) == pytest.approx(expected[0], rel=1e-15)


@pytest.mark.parametrize("name", decimal_functions.DEFINITIONS)
def test_slopes_of_the_functions_of_the_squared_angle(name):
    """Complex step, dual numbers and CasADi, at zero and on both sides of the switch."""
    f, t2 = getattr(sm, name), np.array(POINTS)
    expected = np.array([decimal_functions.slope(name, x) for x in POINTS])
    symbol = casadi.SX.sym("x")
    symbolic = casadi.Function("f", [symbol], [casadi.jacobian(f(symbol), symbol)])
    slopes = {
        "complex": f(t2 + 1j * H).imag / H,
        "dual": f(duals(t2)).tan[:, 0],
        "casadi": np.array([float(symbolic(x)) for x in POINTS]),
    }
    for kind, slope in slopes.items():
        assert np.all(np.isfinite(slope)), kind
        assert np.allclose(slope, expected, rtol=1e-12, atol=2e-15), kind


@pytest.mark.parametrize("name", decimal_functions.DEFINITIONS)
def test_second_derivatives_by_complex_duals(name):
    """Series to their last digits; the closed forms lose the more digits the nearer they are to the switch."""
    f, t2 = getattr(sm, name), np.array([0.0, 1e-8, 0.4, 0.999, 1.001, 3.0, 9.0, 30.0])
    second = f(duals(t2 + 1j * H)).tan[:, 0].imag / H
    expected = np.array([decimal_functions.curvature(name, x) for x in t2])
    assert np.allclose(second[t2 < 1], expected[t2 < 1], rtol=1e-13, atol=0)
    assert np.allclose(second[t2 > 1], expected[t2 > 1], rtol=1e-11, atol=1e-12)


def test_atanc():
    t = np.array([0.0, 1e-8, 0.1, 0.19999, 0.2, 0.20001, 0.7, 3.0])
    expected = np.array([1.0, *(np.arctan(t[1:]) / t[1:])])
    assert np.allclose(sm.atanc(t**2), expected, rtol=1e-15)
    slope = np.array([-1 / 3, *((1 / (1 + t[1:] ** 2) - expected[1:]) / (2 * t[1:] ** 2))])
    slope[1] = -1 / 3
    for computed in (sm.atanc(t**2 + 1j * H).imag / H, sm.atanc(duals(t**2)).tan[:, 0]):
        assert np.allclose(computed, slope, rtol=1e-12)


ANGLES = np.array([-np.pi, -3.0, -2.0, -np.pi / 2, -1.0, -1e-9, 0.0, 1e-9, 1.0, np.pi / 2, 2.0, 3.0, np.pi])


def test_atan2_in_every_direction():
    y, x = 1.7 * np.sin(ANGLES), 1.7 * np.cos(ANGLES)
    y[[0, -1]] = -0.0, 0.0  # on the cut
    assert np.array_equal(sm.atan2(y, x), np.arctan2(y, x))
    assert np.allclose(sm.atan2(y.astype(complex), x.astype(complex)).real, np.arctan2(y, x), atol=1e-15)
    assert np.allclose(traced(sm.atan2, y, x), np.arctan2(y, x), atol=1e-15)


def test_atan2_is_differentiated_in_every_direction():
    y, x = 1.7 * np.sin(ANGLES), 1.7 * np.cos(ANGLES)
    dy, dx = x / 1.7**2, -y / 1.7**2
    assert np.allclose(sm.atan2(y + 1j * H, x).imag / H, dy, rtol=1e-14, atol=1e-16)
    assert np.allclose(sm.atan2(y, x + 1j * H).imag / H, dx, rtol=1e-14, atol=1e-16)
    assert np.allclose(sm.atan2(duals(y), x).tan[:, 0], dy, rtol=1e-14, atol=1e-16)
    assert np.allclose(sm.atan2(y, duals(x)).tan[:, 0], dx, rtol=1e-14, atol=1e-16)
    assert np.allclose(sm.atan2(duals(y), duals(x)).tan[:, 0], dx + dy, rtol=1e-14, atol=1e-16)
    second = sm.atan2(duals(y + 1j * H), x + 0j).tan[:, 0].imag / H  # -2 x y / r^4
    assert np.allclose(second, -2 * x * y / 1.7**4, rtol=1e-13, atol=1e-16)


def test_select_decides_on_the_real_part():
    decider = np.array([-1.0, 0.0, 1.0])
    expected = np.array([20.0, 20.0, 10.0])
    assert np.array_equal(sm.select(decider, 10.0, 20.0), expected)
    assert np.array_equal(sm.select(decider - 1j, 10.0, 20.0), expected)
    assert np.array_equal(sm.select(duals(decider + 1j), 10.0, 20.0), expected)
    assert np.array_equal(traced(lambda d: sm.select(d, 10.0, 20.0), decider), expected)
    assert sm.select(1.0, 10.0, 20.0) == 10.0 and sm.select(-1.0 + 1j, 10.0, 20.0) == 20.0


def test_select_carries_tangents():
    decider, a, b = np.array([-1.0, 1.0]), duals(np.array([1.0, 2.0])), 2.0 * duals(np.array([3.0, 4.0]))
    both = sm.select(decider, a, b)
    assert np.array_equal(both.val, [6.0, 2.0]) and np.array_equal(both.tan[:, 0], [2.0, 1.0])
    constant = sm.select(decider, 5.0, b)
    assert np.array_equal(constant.val, [6.0, 5.0]) and np.array_equal(constant.tan[:, 0], [2.0, 0.0])
    wide = sm.select(np.array([[1.0], [-1.0]]), duals(np.array([1.0, 2.0])), 0.0)
    assert wide.val.shape == (2, 2) and np.array_equal(wide.tan[..., 0], [[1.0, 1.0], [0.0, 0.0]])


def test_stack_broadcasts_plain_numbers():
    x = np.array([1.0, 2.0])
    assert np.array_equal(sm.stack([x, 3.0]), [[1, 2], [3, 3]])
    assert sm.stack([]).shape == (0, 1)
    dual = sm.stack([3.0, duals(x)])
    assert np.array_equal(dual.val, [[3, 3], [1, 2]]) and np.array_equal(dual.tan[..., 0], [[0, 0], [1, 1]])
    assert traced(lambda s: sm.stack([s[1], 3.0]), x).tolist() == [2.0, 3.0]


def test_concatenate_joins_every_kind_of_rows():
    x, y = np.ones((2, 3)), np.zeros((1, 3))
    assert sm.concatenate([x, y]).shape == (3, 3)
    dual = sm.concatenate([y, duals(x)])
    assert dual.shape == (3, 3) and dual.tan[..., 0].sum() == 6.0
    symbol = casadi.SX.sym("s", 2)
    assert sm.concatenate([[symbol[0], symbol[1]], symbol]).shape == (4, 1)


def test_identity_rows_copied_and_real():
    unit = sm.identity_rows(3, like=np.zeros((5, 4)))
    assert np.array_equal(np.stack(unit)[:, :, 2], np.eye(3))
    assert [np.asarray(casadi.DM(row))[:, 0].tolist() for row in sm.identity_rows(2, like=casadi.SX(1))] == [
        [1, 0],
        [0, 1],
    ]
    original = duals(np.array([1.0, 2.0]))
    copy = sm.copied(original)
    copy[0] = 5.0
    assert original.val[0] == 1.0 and original.tan[0, 0] == 1.0 and copy.tan[0, 0] == 0.0
    assert sm.real(duals(np.array([1 + 2j]))) == 1.0 and sm.real(2.0) == 2.0


# -- symbols ------------------------------------------------------------------------------------------------------------


OPERATORS = {
    operator.add: _casadi.plus,
    operator.sub: _casadi.minus,
    operator.mul: _casadi.times,
    operator.truediv: _casadi.rdivide,
}
x = ca.SX.sym("x", 3)
SPARSE = ca.SX(ca.Sparsity.lower(3))
OPERANDS = [x, x[0], SPARSE, 2, 2.0, 0.0, -0.0, 1, 1.0, float("inf"), np.float64(0.5), np.arange(3.0), True]


@pytest.mark.parametrize("right", OPERANDS, ids=repr)
@pytest.mark.parametrize("of", OPERATORS, ids=lambda f: f.__name__)
def test_operators_are_casadis(of: Any, right: Any) -> None:
    for left in (x, x[1], SPARSE):
        if {np.size(right) if not isinstance(right, ca.SX) else right.numel(), left.numel()} >= {3, 9}:
            continue  # CasADi refuses both
        for a, b in ((left, right), (right, left)):
            found, expected = of(a, b), OPERATORS[of](a, b)
            assert found.sparsity() == expected.sparsity()
            assert str(found) == str(expected)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(RuntimeError, match="Dimension mismatch"):
        x * ca.SX.sym("y", 2)


def test_a_constant_is_not_shared_with_modified_expressions() -> None:
    y = x[0] + 3.0
    z = 3.0 - x[0]
    z[0] = 7.0
    assert str(y + 0.0) == str(_casadi.plus(x[0], 3.0))


def test_repeated_computations_are_traced_once() -> None:
    traced = trace_expressions([x], [ca.vertcat(ca.sin(x[0]) * x[1], ca.sin(x[0]) * x[1], ca.sin(x[0]) + x[1])])
    assert traced.count() == {"SIN": 1, "MUL": 1, "ADD": 1}
    assert traced.outputs[0][0] == traced.outputs[0][1]
