"""Evaluation of traces on every kind of scalar (:mod:`dynamics_backends.scalar`), such as dual numbers and symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynamics_backends import scalar as sm
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.functions import FUNCTIONS, LOGIC, TRUTHS
from dynamics_backends.trace import Operand, Trace

_NAMES = {
    "SUB": "subtract",
    "MUL": "multiply",
    "DIV": "divide",
    "NEG": "negative",
    "SQ": "square",
    "INV": "reciprocal",
    "POW": "power",
    "CONSTPOW": "power",
    "ASIN": "arcsin",
    "ACOS": "arccos",
    "ATAN": "arctan",
    "ATAN2": "arctan2",
    "FABS": "absolute",
    "FMIN": "minimum",
    "FMAX": "maximum",
    "LT": "less",
    "LE": "less_equal",
    "EQ": "equal",
    "NE": "not_equal",
    "NOT": "logical_not",
    "AND": "logical_and",
    "OR": "logical_or",
}
"""NumPy's names of operations of a trace, where they differ by more than case."""
_FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    **FUNCTIONS,
    **TRUTHS,
    **LOGIC,
    "twice": lambda a: a + a,
    "if_else_zero": lambda condition, a: sm.select(condition, a, 0.0 * a),
}


def evaluated(t: Trace, inputs: Sequence[Rows]) -> list[list[Scalar]]:
    """Outputs of a trace without calls at these inputs, each a list of scalars. Raises KeyError for an unknown operation."""
    values: list[Scalar] = []

    def value(operand: Operand) -> Scalar:
        """Component of an input, constant, or value of an earlier operation."""
        if isinstance(operand, tuple):
            return inputs[operand[0]][operand[1]]
        return operand if isinstance(operand, float) else values[operand]

    for op in t.operations:
        values.append(_FUNCTIONS[_NAMES.get(op.name, op.name.lower())](*map(value, op.operands)))
    return [[value(operand) for operand in output] for output in t.outputs]
