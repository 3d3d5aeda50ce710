"""Traces: equal operations are shared, different ones never."""

import operator

import numpy as np

from dynamics_backends.compiled.emit.trace import trace

OPERATORS = {
    "ADD": operator.add,
    "SUB": operator.sub,
    "MUL": operator.mul,
    "DIV": operator.truediv,
    "INV": lambda a: 1.0 / a,
    "SQ": lambda a: a * a,
    "TWICE": lambda a: 2.0 * a,
}


def evaluated(found, inputs):
    """The first output of a trace at numbers."""
    values = []

    def value(operand):
        if isinstance(operand, tuple):
            return inputs[operand[0]][operand[1]]
        return values[operand] if type(operand) is int else operand

    for operation in found.operations:
        values.append(OPERATORS[operation.name](*map(value, operation.operands)))
    return [value(o) for o in found.outputs[0]]


def test_a_number_is_not_the_operation_of_that_index():
    """The third operation, index 2, plus b is not 2.0 + b, though Python holds 2 and 2.0 for equal."""

    def f(x):
        a, b, c = x[0] + x[1], x[0] - x[1], x[0] * x[1]
        return [[a, b, c, c + b, 2.0 + b, b * a, 1.0 * a, a - c, a - 2.0, c / a, 2.0 / a]]

    x = np.array([1.7, -0.6])
    found = trace(f, [2])
    np.testing.assert_allclose(evaluated(found, [x]), f(x)[0], rtol=1e-15)
    assert len({repr(o) for o in found.outputs[0]}) == 10  # 1.0 a is a


def test_operations_done_twice_are_one():
    found = trace(lambda x: [[(x[0] * x[1]) + x[0], (x[0] * x[1]) - x[0]]], [2])
    assert found.count() == {"MUL": 1, "ADD": 1, "SUB": 1}
