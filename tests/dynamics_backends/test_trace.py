"""Traces: equal operations are shared, different ones never; functions that are called are traced once."""

import operator

import numpy as np
import pytest

from dynamics_backends.symbols import called, preserved_calls
from dynamics_backends.trace import RESULT, trace

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
        operands = [value(o) for o in operation.operands]
        if operation.name in found.called:
            values.append(evaluated(found.called[operation.name], [operands]))
        elif operation.name == RESULT:
            values.append(operands[0][int(operands[1])])
        else:
            values.append(OPERATORS[operation.name](*operands))
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


def crossed(a, b):
    """A function of two numbers that gives two."""
    return [(a + b) / (a - b), a / (a - b)]


def nested(x):
    """Results of calls of results, many times."""
    a, b = x[0], x[1]
    for i in range(400):
        a, b = called(crossed, a + float(i), b * 0.5)
    return [[a, b, *called(crossed, x[0], 2.0)]]


def test_calls_are_preserved_only_on_request():
    x = np.array([0.7, -0.2])
    plain = trace(nested, [2])
    with preserved_calls():
        found = trace(nested, [2])
        assert nested(x)[0] == pytest.approx(evaluated(plain, [x]))
    assert not plain.called and list(found.called) == ["crossed"]
    assert found.count()["crossed"] == 401 and len(found.operations) < len(plain.operations)
    np.testing.assert_allclose(evaluated(found, [x]), evaluated(plain, [x]), rtol=1e-12)
