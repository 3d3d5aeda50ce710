"""Equality-constrained QPs in stages, solved by a Riccati recursion: the optimality conditions for a set of active constraints.

    H w + E'y = a,   E w = b,      E: the active rows and bounds

Active controls and an active first state are substituted, dynamics are eliminated by the recursion. Other equations E within stages
become terms 1/2 D |E w - b|^2 with a large D: the sweep then also tests if H is positive definite on their null space (Debreu's
lemma). Iterative refinement against the full system removes the remaining error of E w - b. Each pass reduces it by a factor of
about 1 / (D s), with s the curvature of the optimal value along E, plus rounding errors times D over the size of H.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lapack import cholesky, cholesky_solve
from trajopt.lq.lq import LQProblem
from trajopt.lq.lq_solver import shared_lq
from trajopt.solvers.qp.blocks.stage_hessian import StageHessian
from trajopt.solvers.qp.blocks.stage_jacobian import StageJacobian
from trajopt.solvers.qp.qp import QP, largest

REFINEMENTS = 6
EXACT = 1e-15
"""Refinement ends if the residual is below this fraction of the right-hand side."""
STIFFNESS = 1e7
"""D of an equation a'w = b, in units of the largest entry of H over |a|^2."""


def by_stages(qp: QP) -> bool:
    """True if both matrices H and A of a QP are blocks of stages."""
    return isinstance(qp.H, StageHessian) and isinstance(qp.A, StageJacobian)


class RiccatiKKT:
    """Optimality conditions of a QP in stages, with m rows and n_w variables, for a set of active constraints."""

    def __init__(self, qp: QP) -> None:
        assert isinstance(qp.H, StageHessian) and isinstance(qp.A, StageJacobian)
        self.hessian, self.jacobian, self.lq_solver = qp.H, qp.A, shared_lq()
        self.places, self.dynamics = qp.H.places, qp.A.places.dynamics
        self.rows, self.n = len(qp.l), self.places.states.shape[1]
        largest = max(float(np.abs(qp.H.blocks).max(initial=0.0)), np.finfo(float).tiny)
        square = np.concatenate([qp.A.square_lengths(), np.ones(len(qp.g))])
        self.stiffness = STIFFNESS * largest / np.where(square > 0.0, square, 1.0)

    def factorize(self, active: Array) -> bool:
        """Set up the LQ problem for the active rows and bounds, a mask (m + n_w,); True if H is positive definite where required.

        That is on the null space of the dynamics and of the active rows and bounds.
        """
        m, places = self.rows, self.places
        self.active = active
        self.held_u, self.held_x0 = active[m:][places.controls], active[m:][places.states[0]]
        self.substituted = np.zeros(places.size, dtype=bool)
        self.substituted[places.controls] = self.held_u
        self.substituted[places.states[0]] = self.held_x0
        self.weights = np.where(active, self.stiffness, 0.0)
        self.weights[self.dynamics] = 0.0
        self.weights[m:][self.substituted] = 0.0
        H = self.hessian.plus(self.jacobian.squares(self.weights[:m])).plus_diagonal(self.weights[m:])
        n, blocks = self.n, H.blocks
        Q, S, R = (np.ascontiguousarray(b) for b in (blocks[:, :n, :n], blocks[:-1, n:, :n], blocks[:-1, n:, n:]))
        N, nu = places.controls.shape
        zeros = np.zeros((N, n)), np.zeros((N + 1, n)), np.zeros((N, nu))
        A, B = self.jacobian.A, self.jacobian.B
        if places.carried:
            A = np.concatenate([A, np.zeros((N, nu, n))], axis=1)
            B = np.concatenate([B, np.broadcast_to(np.eye(nu), (N, nu, nu))], axis=1)
        self.full = LQProblem(A, B, zeros[0], Q, zeros[1], S, R, zeros[2], np.zeros(n))
        self.lq = self.full
        if self.held_u.any():
            held_rows, either = self.held_u[:, :, None], self.held_u[:, :, None] | self.held_u[:, None, :]
            B, S = np.where(self.held_u[:, None, :], 0.0, self.full.B), np.where(held_rows, 0.0, S)
            self.lq = self.full._replace(B=B, S=S, R=np.where(either, np.eye(nu), R))
        policy = self.lq_solver.solve_riccati(self.lq)
        return policy.failed_at is None and self._first_state_is_determined(policy.Vxx[0])

    def _first_state_is_determined(self, V: Array) -> bool:
        """True if the Hessian V (n, n) of the first value function is positive definite in the free entries of the first state."""
        free = ~self.held_x0
        return not free.any() or bool(cholesky(V[np.ix_(free, free)])[1] == 0)

    def _linear(self, a: Array, b: Array) -> LQProblem:
        """Return the LQ problem whose solution is w, for right-hand sides a (n_w,), which includes E'D b, and b (m + n_w,).

        Active controls and active entries of the first state take their values from b.
        """
        places, lq, full = self.places, self.lq, self.full
        z, bounds = -places.shared_out(a), b[self.rows :]
        q, r, d = z[:, : self.n], z[:-1, self.n :], np.zeros_like(full.d)
        d[:, : self.dynamics.shape[1]] = -b[self.dynamics]
        if self.held_u.any():
            u = np.where(self.held_u, bounds[places.controls], 0.0)[:, :, None]
            d = d + (full.B @ u)[:, :, 0]
            q[:-1] += (full.S.transpose(0, 2, 1) @ u)[:, :, 0]
            r = np.where(self.held_u, -u[:, :, 0], r + (full.R @ u)[:, :, 0])
        return lq._replace(d=d, q=q, r=r, dx0=np.where(self.held_x0, bounds[places.states[0]], 0.0))

    def _once(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return w (n_w,) and the multipliers y of rows and bounds (m + n_w,), by one Riccati sweep without refinement."""
        m, weights = self.rows, self.weights
        pushed = weights * b
        lq = self._linear(a + pushed[:m] @ self.jacobian + pushed[m:], b)
        policy = self.lq_solver.solve_riccati(lq)
        if not self.held_x0.all():
            lq = lq._replace(dx0=_first_state(policy.Vx[0], policy.Vxx[0], lq.dx0, ~self.held_x0))
        (dx, du), _ = self.lq_solver.forward(lq, policy)
        costates = policy.Vx + (policy.Vxx @ dx[:, :, None])[:, :, 0]
        w = np.empty_like(a)
        w[self.places.states], w[self.places.controls] = dx, du
        y = weights * (np.concatenate([self.jacobian @ w, w]) - b)
        y[self.dynamics] = costates[1:, : self.dynamics.shape[1]]
        force = a - self.hessian @ w - y[:m] @ self.jacobian
        y[m:] = np.where(self.substituted, force, y[m:])
        return w, y

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return w (n_w,) and the multipliers y of rows and bounds (m + n_w,), by the last factorization.

        a (n_w,), b (m + n_w,), used where active; y is zero elsewhere. With iterative refinement: at most REFINEMENTS passes, while
        each halves the residual.
        """
        m = self.rows
        b = np.where(self.active, b, 0.0)
        (w, y), last = self._once(a, b), np.inf
        enough = EXACT * max(largest(a), largest(b))
        for _ in range(REFINEMENTS):
            rest_a = a - self.hessian @ w - y[:m] @ self.jacobian - y[m:]
            rest_b = np.where(self.active, b - np.concatenate([self.jacobian @ w, w]), 0.0)
            error = max(largest(rest_a), largest(rest_b))
            if not enough < error < 0.5 * last:
                break
            more_w, more = self._once(rest_a, rest_b)
            w, y, last = w + more_w, y + more, error
        return w, y


def _first_state(v: Array, V: Array, given: Array, free: Array) -> Array:
    """Return the first state x (n,) that minimizes 1/2 x'Vx + v'x over its free entries; the others are those of ``given``."""
    x = given.copy()
    factor = cholesky(V[np.ix_(free, free)])[0]
    x[free] = cholesky_solve(factor, -(v + V @ given)[free])
    return x
