"""Counting operations of recursive algorithms on robots too large to write out: a scalar that only counts."""

from __future__ import annotations

from typing import Any

from dynamics_backends.rigid_body.model import Model
from dynamics_backends.rigid_body.passes import FIELDS, Axis, Program
from dynamics_backends.rigid_body.unroll import unroll


class Tally:
    """A number without a value; each operation on it counts one, also with a constant of the robot, as in loops for all robots."""

    __slots__ = ("operations",)

    def __init__(self) -> None:
        self.operations = 0

    def _counted(self, *ignored: Any) -> Tally:
        self.operations += 1
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _counted
    __neg__ = sin = cos = sqrt = _counted


def operations(program: Program, model: Model) -> int:
    """Operations of a program without linear algebra, for a model of revolute joints."""
    tally = Tally()
    rows = {Axis.Q: model.nq, Axis.DOF: model.nv}
    unroll(program, model, {name: [tally] * rows[FIELDS[name].axis] for name in program.arguments})
    return tally.operations
