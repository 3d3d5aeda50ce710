"""The Newton system of the barrier problem, condensed onto the knots and solved by the sweeps of :mod:`trajopt.lq.equality_lq`.

With H of the Lagrangian, Sigma = zl / (v - l) + zu / (u - v) and phi the gradient of the barrier, the new multipliers lam+, y+ and
the step (dx, du, ds) solve

    H (dx, du) + Sigma (dx, du) + J'(lam+, y+) = -(grad f + phi)        Sigma_s ds - y+ = -phi_s
    J_d (dx, du) + d = 0    J_g (dx, du) - ds + g - s = 0    J_e (dx, du) + e = 0

(A. Waechter, L. T. Biegler, Math. Program. 106, 2006, eq. 13). The slack's step leaves: H gains J_g' Sigma_s J_g, the gradient
J_g'(Sigma_s (g - s) + phi_s).

Where the reduced Quu of a knot is not positive definite, the negative eigenvalues of the blocks of H from there to the end change
their sign: their directions keep the size of their curvature, and the knots before stay as they are.  (A shift of all of H,
algorithm IC there, shortens the steps of all knots for the sake of one; it is the last resort.)
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from dynamics_backends.protocol import Array
from trajopt.lq.equality_lq import EqualityLQ
from trajopt.solvers.ipm.library import (
    ESTIMATE,
    FEASIBILITY,
    NEWTON,
    CondensedData,
    Kernels,
    Multipliers,
    OracleData,
    SettingsData,
)
from trajopt.solvers.ipm.measure import Optimality
from trajopt.solvers.ipm.stage_program import Point, StageProgram
from trajopt.stage.start import starts_at_once

FLOOR = 1e-8
"""Least eigenvalue of a reflected Hessian, relative to its largest."""
FIRST_SHIFT, LEAST_SHIFT, LARGEST_SHIFT = 1e-4, 1e-20, 1e40
FASTER, RAISE, LOWER = 100.0, 8.0, 1.0 / 3.0
"""delta_w_0, delta_w_min, delta_w_max, kappa_w+ (first time and later), kappa_w- of algorithm IC."""


class Step(NamedTuple):
    """A direction: v (numbers,), new multipliers lam, y, f and steps of zl, zu in ``z``, the largest primal and dual step
    lengths, the slope of the barrier's objective.
    """

    v: Array
    z: Multipliers
    alpha: float
    alpha_z: float
    slope: float


class NewtonSystem:
    """Memory for the system of a program."""

    def __init__(self, program: StageProgram, kernels: Kernels) -> None:
        p = self.program = program
        self.kernels = kernels
        self.lq = EqualityLQ(p.n, p.m, p.N, p.equations, p.most_equations, soon=starts_at_once())
        self.Sigma, self.phi = np.zeros(p.numbers), np.zeros(p.numbers)
        lq = self.lq
        arrays = (lq.Q, lq.S, lq.R, lq.q, lq.r, lq.d, lq.C, lq.D, lq.e, self.Sigma, self.phi, lq.row)
        self._condensed = CondensedData(*map(address, arrays))
        self._ref = ctypes.addressof(self._condensed)
        self.settings = SettingsData()
        self._settings = ctypes.addressof(self.settings)
        self.rows, self.fixes = np.zeros(p.rows), np.zeros(len(p.fixed))
        self.shift = self._last_shift = 0.0
        self.reflected = 0
        self._out = np.zeros(9)

    # -- systems --------------------------------------------------------------------------------------------------------
    def condense(
        self, p: Point, z: Multipliers, mu: float, scale: float, mode: int = NEWTON, soft: float = 0.0
    ) -> None:
        """Build the system at a point."""
        o = self.settings
        o.mu, o.scale, o.mode, o.soft = mu, scale, mode, soft
        o.weight = float(mode == NEWTON)
        self.kernels.condense(self.program.ref, p.ref, z.ref, self._settings, self._ref)
        self.kernels.residuals(self.program.ref, address(p.v), address(p.g), address(self.rows), address(self.fixes))
        self.lq.read_dynamics(p.A, p.B)

    def factor(self) -> bool:
        """Factor it, made positive definite where it is not; False where nothing does that."""
        self.shift, self.reflected = 0.0, 0
        end, failed = self.program.N + 1, self.lq.factor()
        while failed is not None and failed < end:
            self._reflect(failed, end)
            end, failed = failed, self.lq.factor()
        if failed is None:
            return True
        first = self._last_shift == 0.0
        self.shift = FIRST_SHIFT if first else max(LEAST_SHIFT, LOWER * self._last_shift)
        while self.lq.factor(self.shift) is not None:
            self.shift *= FASTER if first else RAISE
            if self.shift > LARGEST_SHIFT:
                return False
        self._last_shift = self.shift
        return True

    def _reflect(self, first: int, end: int) -> None:
        """Replace negative eigenvalues of the Hessians of the knots first .. end by their absolute values."""
        lq, n, last = self.lq, self.lq.n, min(end, self.lq.N)
        k = slice(first, last)
        H = np.zeros((last - first, n + lq.m, n + lq.m))
        H[:, :n, :n], H[:, n:, :n], H[:, n:, n:] = lq.Q[k], lq.S[k], lq.R[k]
        H[:, :n, n:] = lq.S[k].transpose(0, 2, 1)
        if not np.isfinite(H).all() or not np.isfinite(lq.Q[lq.N]).all():
            return
        H = _reflected(H)
        lq.Q[k], lq.S[k], lq.R[k] = H[:, :n, :n], H[:, n:, :n], H[:, n:, n:]
        if end > lq.N:
            lq.Q[lq.N] = _reflected(lq.Q[lq.N][None])[0]
        self.reflected += end - first

    def other_barrier(self, p: Point, mu: float) -> None:
        """The vectors of the system for another mu."""
        self.settings.mu = mu
        self.kernels.barrier(self.program.ref, p.ref, mu, self._ref)
        self.vectors(p, p.d, self.rows, self.fixes)

    def vectors(self, p: Point, d: Array, rows: Array, fixes: Array) -> None:
        """The vectors of the system for other residuals."""
        arrays = map(address, (d, rows, fixes))
        self.kernels.vectors(self.program.ref, p.ref, *arrays, self._settings, self._ref)

    def solve(self, p: Point, z: Multipliers, tau: float, to: Step, rows: Array | None = None) -> Step:
        """The step for the vectors; its arrays are those of ``to``. tau: how much of a distance from a bound may go."""
        lq, program = self.lq, self.program
        lq.dx[0] = 0.0
        lq.solve()
        N, n, v = program.N, program.n, to.v
        v[: (N + 1) * n] = lq.dx.ravel()
        v[program.u] = lq.du.ravel()
        to.z.lam[:] = lq.lam
        rows = self.rows if rows is None else rows
        given = (program.ref, p.ref, z.ref, self._settings, self._ref, address(rows), address(lq.y), tau)
        self.kernels.recover(*given, address(v), to.z.ref, address(self._out))
        alpha, alpha_z, slope = self._out[:3].tolist()
        return Step(v, to.z, alpha, alpha_z, slope)

    def centered(
        self,
        p: Point,
        z: Multipliers,
        now: Optimality,
        squares: float,
        limits: tuple[float, float],
        tau: float,
        affine: Step,
        to: Step,
    ) -> tuple[Step, float]:
        """The step for the mu = sigma mean that the quality function chooses, sigma within limits, and that mu; the system is
        that of mu = 0. squares: of the violation. Its array is that of ``to``.
        """
        program, count = self.program, self.program.numbers
        self.solve(p, z, tau, affine)
        self.other_barrier(p, now.mean)
        self.solve(p, z, tau, to)
        steps = (affine.v, affine.z.zl, affine.z.zu, to.v, to.z.zl, to.z.zu)
        equations = program.N * program.n + program.rows + len(program.fixed)
        oracle = OracleData(*map(address, steps), now.mean, now.squares / count, squares / equations, tau, now.products)
        sigma = self.kernels.centering(program.ref, p.ref, z.ref, ctypes.addressof(oracle), *limits)
        mu = sigma * now.mean
        self.other_barrier(p, mu)
        return self.solve(p, z, tau, to), mu

    def empty_step(self) -> Step:
        """Memory for a step."""
        return Step(np.zeros(self.program.numbers), self.program.multipliers(), 0.0, 0.0, 0.0)

    def estimate(self, p: Point, z: Multipliers, scale: float, step: Step) -> None:
        """The least-squares estimate of lam, y and f (eq. 36 of Waechter and Biegler) to ``step.z``."""
        self.condense(p, z, 0.0, scale, ESTIMATE)
        self.rows[:] = 0.0
        self.lq.factor()
        self.solve(p, z, 1.0, step)

    def towards_feasibility(self, p: Point, z: Multipliers, mu: float, damping: float, step: Step) -> Step | None:
        """The Levenberg-Marquardt step of 1/2 |residuals|^2 within the barrier; None where it cannot be found."""
        self.condense(p, z, mu, 0.0, FEASIBILITY, 1.0)
        if self.lq.factor(damping, 1.0) is not None:
            return None
        return self.solve(p, z, 0.99, step)


def _reflected(H: Array) -> Array:
    """Symmetric H (K, n, n) with the absolute values of their eigenvalues, at least FLOOR of the largest."""
    values, vectors = np.linalg.eigh(H)
    size = np.abs(values)
    size = np.maximum(size, FLOOR * size.max(axis=1, keepdims=True))
    return np.asarray((vectors * size[:, None]) @ vectors.transpose(0, 2, 1))
