"""Fast arithmetic on CasADi's symbols agrees with CasADi's operators; traces share common subexpressions."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from casadi import _casadi

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.symbols import ca

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
