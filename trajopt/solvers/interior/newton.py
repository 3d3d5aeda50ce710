"""Newton system of the barrier problem, condensed onto the knots and solved by the sweeps of :mod:`trajopt.lq.equality_lq`.

With H of the Lagrangian, Sigma = zl / (v - l) + zu / (u - v) and phi the gradient of the barrier, the new multipliers lam+, y+ and
the step (dx, du, ds) solve

    H (dx, du) + Sigma (dx, du) + J'(lam+, y+) = -(grad f + phi)        Sigma_s ds - y+ = -phi_s
    J_d (dx, du) + d = 0    J_g (dx, du) - ds + g - s = 0    J_e (dx, du) + e = 0

(A. Waechter, L. T. Biegler, Math. Program. 106, 2006, eq. 13). Elimination of the slack step ds adds J_g' Sigma_s J_g to H, and
J_g'(Sigma_s (g - s) + phi_s) to the gradient.

If the reduced Quu of a knot is not positive definite, the blocks of H from that knot to the end are reflected: negative
eigenvalues change their sign. Reflection keeps the size of the curvature, and does not change earlier knots. (A shift of all of
H, algorithm IC of the paper, shortens the steps of all knots because of one.) But reflection can add the curvature of whole
blocks to a feasible direction with little curvature: near a saddle, steps become short though step lengths are near one.
:class:`trajopt.solvers.rules.regularization.Curvature` detects this and switches to the shift, which is also the last resort.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.runtime.memory import address
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
    """Newton step: v (numbers,); ``z`` with new multipliers lam, y, f and the steps of zl, zu.

    alpha, alpha_z: largest primal and dual step lengths. slope: directional derivative of the barrier objective. ref: address of
    its ipm_step.
    """

    v: Array
    z: Multipliers
    alpha: float
    alpha_z: float
    slope: float
    ref: int
    data: ctypes.Structure


WORKSPACE_FACTOR = 10
"""Workspace size in numbers per entry of v."""
LARGEST_ESTIMATE = 1e3
"""Multiplier estimates above this limit are replaced by zero (IPOPT's constr_mult_init_max)."""


class NewtonSystem:
    """Newton system of a program's barrier problem in v = (x, u, slacks), with its workspace: condense and solve."""

    def __init__(self, program: StageProgram) -> None:
        p = self.program = program
        self.kernels = Kernels()
        lq = self.lq = EqualityLQ(p.n, p.m, p.N, p.equations, p.most_equations)
        shapes = [*4 * [(p.numbers,)], (p.rows,), (len(p.fixed),), (WORKSPACE_FACTOR * p.numbers,)]
        (*_, self.rows, self.fixes, _), at = allotted(shapes)
        *blocks, row = lq.addresses
        self._condensed = CondensedData(*blocks, *at[:4], row)
        self.data = SystemData(p.ref, ctypes.addressof(self._condensed), *lq.parts, *at[4:])
        self._ref, self._rows = ctypes.addressof(self.data), at[4]
        self.equations = p.N * p.n + p.rows + len(p.fixed)
        self._measured = np.zeros(9)
        self._measured_at = address(self._measured)

    # -- measures -------------------------------------------------------------------------------------------------------
    def violation(self, p: Point) -> Violation:
        """Return l1 and maximum norms of the residuals, largest defect, barrier sum and sum of squares at a point with values.

        Both norms are NaN if a residual is not finite.
        """
        self.kernels.values(self.program.ref, p.data.v, p.data.d, p.data.g, self._measured_at)
        return Violation(*self._measured[:5].tolist())

    def slope(self, p: Point, z: Multipliers) -> float:
        """Return the largest absolute entry of J'(lam, y, f) + zu - zl, the Lagrangian's gradient without the objective.

        Needs first derivatives.
        """
        self.kernels.measure(self.program.ref, p.ref, z.ref, 0.0, 0.0, self._measured_at)
        return float(self._measured[0])

    # -- systems --------------------------------------------------------------------------------------------------------
    def condense(
        self, p: Point, z: Multipliers, mu: float, scale: float, mode: int = NEWTON, soft: float = 0.0
    ) -> None:
        """Build the linear system at a point in this object's memory, with slack steps eliminated; nothing is factored.

        mode: NEWTON, FEASIBILITY or ESTIMATE, the purpose of the system. scale: factor of the objective. soft: regularization of
        the equations.
        """
        o = self.data
        o.settings_mu, o.settings_scale, o.settings_soft, o.settings_weight = mu, scale, soft, 1.0
        o.settings_mode = mode
        self.kernels.build(self._ref, p.ref, z.ref)

    def solve(self, p: Point, z: Multipliers, tau: float, to: Step) -> Step:
        """Solve the factored system for the step, written into the arrays of ``to``; returns it with its step lengths and slope.

        tau: fraction-to-the-boundary parameter of the step lengths.
        """
        self.kernels.solve(self._ref, p.ref, z.ref, self._rows, tau, to.ref)
        found = self.data
        return Step(to.v, to.z, found.alpha, found.alpha_z, found.slope, to.ref, to.data)

    def needs_shift(self, shift: float) -> bool:
        """True if the system, condensed but not reflected, is not positive definite with this number on the diagonal."""
        return bool(self.kernels.factor_damped(self._ref, shift, 0.0) >= 0)

    def empty_step(self) -> Step:
        """Allocate a zero step, as memory for :meth:`solve`."""
        v, z = np.zeros(self.program.numbers), self.program.multipliers()
        data = StepData(address(v), *z.addresses)
        return Step(v, z, 0.0, 0.0, 0.0, ctypes.addressof(data), data)

    def toward_feasibility(
        self, p: Point, z: Multipliers, mu: float, damping: float, weights: Array, step: Step
    ) -> Step | None:
        """Return the Levenberg-Marquardt step of 1/2 |residuals|^2 plus the barrier, in the memory of ``step``.

        weights (N, nu): damping of the controls, relative to ``damping``, which is that of the states. Returns None if the
        factorization fails.
        """
        self.lq.soften()
        self.condense(p, z, mu, 0.0, FEASIBILITY, 1.0)
        # the factorization adds the damping to all variables
        np.einsum("kii->ki", self.lq.R)[:] -= damping * (1.0 - weights)
        if self.kernels.factor_damped(self._ref, damping, 1.0) >= 0:
            return None
        return self.solve(p, z, 0.99, step)
