"""How far a point is from the solution, and the two measures of the filter."""

from __future__ import annotations

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from trajopt.solvers.interior.library import Kernels, Multipliers
from trajopt.solvers.interior.stage_program import Point, StageProgram
from trajopt.solvers.rules.interior_measures import Optimality, Violation, optimality


class Measures:
    """Measures of points of a program."""

    def __init__(self, program: StageProgram, kernels: Kernels) -> None:
        self.program, self.kernels = program, kernels
        self._out = np.zeros(10)
        self._at = address(self._out)

    def violation(self, p: Point) -> Violation:
        """At a point whose values are known; NaN where they are not finite."""
        self.kernels.values(self.program.ref, p.data.v, p.data.d, p.data.g, self._at)
        return Violation(*self._out[:5].tolist())

    def sums(self, p: Point, z: Multipliers, scale: float, mu: float) -> list[float]:
        """What :func:`trajopt.solvers.rules.interior_measures.optimality` takes, at a point whose derivatives are known."""
        self.kernels.measure(self.program.ref, p.ref, z.ref, scale, mu, self._at)
        return list(self._out.tolist())

    def optimality(self, p: Point, z: Multipliers, violation: float, scale: float, mu: float) -> Optimality:
        """At a point whose derivatives are known."""
        return optimality(self.sums(p, z, scale, mu), violation)
