"""The Newton system of the barrier problem, condensed onto the knots and solved by the sweeps of :mod:`trajopt.lq.equality_lq`.

With H of the Lagrangian, Sigma = zl / (v - l) + zu / (u - v) and phi the gradient of the barrier, the new multipliers lam+, y+ and
the step (dx, du, ds) solve

    H (dx, du) + Sigma (dx, du) + J'(lam+, y+) = -(grad f + phi)        Sigma_s ds - y+ = -phi_s
    J_d (dx, du) + d = 0    J_g (dx, du) - ds + g - s = 0    J_e (dx, du) + e = 0

(A. Waechter, L. T. Biegler, Math. Program. 106, 2006, eq. 13). The slack's step leaves: H gains J_g' Sigma_s J_g, the gradient
J_g'(Sigma_s (g - s) + phi_s).

Where the reduced Quu of a knot is not positive definite, the negative eigenvalues of the blocks of H from there to the end change
their sign: their directions keep the size of their curvature, and the knots before stay as they are.  (A shift of all of H,
algorithm IC there, shortens the steps of all knots for the sake of one.)  But a direction that the equations leave, of little
curvature, gets that of whole blocks: near a saddle steps become short, though they are taken nearly in full.  Where that goes on,
as :class:`trajopt.solvers.rules.curvature.Curvature` sees it, the shift takes over, and it is the last resort.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from dynamics_backends.protocol import Array
from trajopt.lq.equality_lq import EqualityLQ, allotted
from trajopt.solvers.interior.library import (
    FEASIBILITY,
    NEWTON,
    CondensedData,
    Kernels,
    Multipliers,
    StepData,
    SystemData,
)
from trajopt.solvers.interior.stage_program import Point, StageProgram
from trajopt.solvers.rules.interior_measures import Violation


class Step(NamedTuple):
    """A direction: v (numbers,), new multipliers lam, y, f and steps of zl, zu in ``z``, the largest primal and dual step
    lengths, the slope of the barrier's objective; ref: address of its ipm_step.
    """

    v: Array
    z: Multipliers
    alpha: float
    alpha_z: float
    slope: float
    ref: int
    data: ctypes.Structure


ROOM = 10
"""Numbers of memory for each of v."""
LARGEST_ESTIMATE = 1e3
"""Estimates of multipliers beyond this one are zero instead (constr_mult_init_max)."""


class NewtonSystem:
    """Memory for the system of a program."""

    def __init__(self, program: StageProgram) -> None:
        p = self.program = program
        self.kernels = Kernels()
        lq = self.lq = EqualityLQ(p.n, p.m, p.N, p.equations, p.most_equations)
        shapes = [*4 * [(p.numbers,)], (p.rows,), (len(p.fixed),), (ROOM * p.numbers,)]
        (*_, self.rows, self.fixes, _), at = allotted(shapes)
        *blocks, row = lq.addresses
        self._condensed = CondensedData(*blocks, *at[:4], row)
        self.data = SystemData(p.ref, ctypes.addressof(self._condensed), *lq.parts, *at[4:])
        self._ref, self._rows = ctypes.addressof(self.data), at[4]
        self.equations = p.N * p.n + p.rows + len(p.fixed)
        self._measured = np.zeros(10)
        self._measured_at = address(self._measured)

    # -- measures -------------------------------------------------------------------------------------------------------
    def violation(self, p: Point) -> Violation:
        """The measures of the filter at a point whose values are known; NaN where they are not finite."""
        self.kernels.values(self.program.ref, p.data.v, p.data.d, p.data.g, self._measured_at)
        return Violation(*self._measured[:5].tolist())

    def slope(self, p: Point, z: Multipliers) -> float:
        """Largest entry of the Lagrangian's gradient without the objective, at a point whose derivatives are known."""
        self.kernels.measure(self.program.ref, p.ref, z.ref, 0.0, 0.0, self._measured_at)
        return float(self._measured[0])

    # -- systems --------------------------------------------------------------------------------------------------------
    def condense(
        self, p: Point, z: Multipliers, mu: float, scale: float, mode: int = NEWTON, soft: float = 0.0
    ) -> None:
        """Build the system at a point."""
        o = self.data
        o.settings_mu, o.settings_scale, o.settings_soft, o.settings_weight = mu, scale, soft, 1.0
        o.settings_mode = mode
        self.kernels.build(self._ref, p.ref, z.ref)

    def factor(self, *, reflect: bool = True) -> bool:
        """Factor it, made positive definite where it is not, by reflections or by a shift alone; False where nothing does that."""
        return bool(self.kernels.factor(self._ref, reflect))

    def solve(self, p: Point, z: Multipliers, tau: float, to: Step) -> Step:
        """The step for the vectors; its arrays are those of ``to``. tau: how much of a distance from a bound may go."""
        self.kernels.solve(self._ref, p.ref, z.ref, self._rows, tau, to.ref)
        found = self.data
        return Step(to.v, to.z, found.alpha, found.alpha_z, found.slope, to.ref, to.data)

    def empty_step(self) -> Step:
        """Memory for a step."""
        v, z = np.zeros(self.program.numbers), self.program.multipliers()
        data = StepData(address(v), *z.addresses)
        return Step(v, z, 0.0, 0.0, 0.0, ctypes.addressof(data), data)

    def toward_feasibility(self, p: Point, z: Multipliers, mu: float, damping: float, step: Step) -> Step | None:
        """The Levenberg-Marquardt step of 1/2 |residuals|^2 within the barrier; None where it cannot be found."""
        self.lq.soften()
        self.condense(p, z, mu, 0.0, FEASIBILITY, 1.0)
        if self.kernels.factor_damped(self._ref, damping, 1.0) >= 0:
            return None
        return self.solve(p, z, 0.99, step)
