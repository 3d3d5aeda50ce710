"""The Newton systems of an interior-point method on an optimal-control problem, solved by a Riccati recursion.

    H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C           (:mod:`trajopt.solvers.qp.interior_point`)

In the QP of an optimal-control problem (:class:`~trajopt.solvers.qp.qp.StageLayout`) the terms C'DC of bounds and inequalities
that lie within a stage add to the stage's own Hessian: this is an LQ problem (C. Rao, S. Wright, J. Rawlings, Application of
interior-point methods to model predictive control, J. Optim. Theory Appl. 99, 1998).

Fixed controls are substituted.  What the reduction to dw loses in dC = D (C dw - b_C), where D is large, refinement against
the full system brings back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem
from trajopt.lq.lq_solver import LQSolver
from trajopt.solvers.qp.qp import QP, StageLayout
from trajopt.solvers.qp.stage_hessian import StageHessian, StagePlaces

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = deferred("scipy.sparse")
REFINEMENTS = 3
NO_STAGES = "this program has no stages (a first-order hold couples them); use qp_solver = 'interior_point'"


class UnstructuredQP(ValueError):
    """A QP that is not an LQ problem with inequalities within its stages; row: the row of A in the way, or None."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


def stage_hessian_of(qp: QP, layout: StageLayout) -> StageHessian:
    """H by its stages, as it comes, or from a sparse matrix. Raises UnstructuredQP where that couples stages."""
    if isinstance(qp.H, StageHessian):
        return qp.H
    places = StagePlaces(layout.states, layout.controls, len(qp.g))
    if (places.stage < 0).any():
        raise UnstructuredQP("a variable belongs to no stage; use qp_solver = 'interior_point'")
    H = places.taken_apart(qp.H)
    if H is None:
        raise UnstructuredQP("the Hessian couples stages; use qp_solver = 'interior_point'")
    return H


class RiccatiKKT:
    """A :class:`~trajopt.solvers.qp.interior_point.KKTSystem`."""

    def __init__(self, qp: QP, lq_solver: LQSolver) -> None:
        if qp.layout is None:
            raise UnstructuredQP(NO_STAGES)
        self.qp, self.lq_solver, self.layout = qp, lq_solver, qp.layout
        self.N, self.n, self.m = len(qp.layout.controls), qp.layout.states.shape[1], qp.layout.controls.shape[1]
        self.hessian = stage_hessian_of(qp, qp.layout)
        self.stage, self.place = self.hessian.places.stage, self.hessian.places.place
        self._dynamics(qp.A)
        self._inequalities(qp.A)
        self.fixed = qp.lb == qp.ub
        if self.fixed[self.layout.states[1:]].any():
            raise UnstructuredQP("a state after the first is fixed by its bounds; use qp_solver = 'interior_point'")
        self.fixed_controls = self.fixed[self.layout.controls]

    # -- the rows by their stages ---------------------------------------------------------------------------------------
    def _dynamics(self, A: sp.csc_matrix) -> None:
        """A_k and B_k, and the signs s (N, n) of the rows."""
        wanted = np.full(A.shape[0], -1)
        wanted[self.layout.dynamics] = np.arange(self.N)[:, None]
        component = np.zeros(A.shape[0], dtype=int)
        component[self.layout.dynamics] = np.arange(self.n)
        M = A.tocoo()
        own = wanted[M.row] >= 0
        row, column, data = M.row[own], M.col[own], M.data[own]
        knot, ahead = wanted[row], self.stage[column] == wanted[row] + 1
        identity = np.zeros((self.N, self.n, self.n))
        identity[knot[ahead], component[row[ahead]], self.place[column[ahead]]] = data[ahead]
        self.sign = np.einsum("kii->ki", identity).copy()
        off_diagonal = np.abs(identity).sum(axis=2) != 1.0
        if off_diagonal.any() or (np.abs(self.sign) != 1.0).any() or (self.stage[column] - knot < 0).any():
            raise UnstructuredQP("the rows of the dynamics are not x_(k+1) - A x_k - B u_k; use 'interior_point'")
        blocks = np.zeros((self.N, self.n, self.n + self.m))
        here = ~ahead
        blocks[knot[here], component[row[here]], self.place[column[here]]] = data[here]
        blocks *= -self.sign[:, :, None]
        self.A, self.B = np.ascontiguousarray(blocks[:, :, : self.n]), np.ascontiguousarray(blocks[:, :, self.n :])

    def _inequalities(self, A: sp.csc_matrix) -> None:
        """The other rows: their numbers, and what they are within their stages."""
        others = np.ones(A.shape[0], dtype=bool)
        others[self.layout.dynamics] = others[self.layout.initial] = False
        self.others = np.flatnonzero(others)
        equal = self.others[self.qp.l[self.others] == self.qp.u[self.others]]
        if len(equal):
            raise UnstructuredQP("is an equality, for which a Riccati recursion has no room", int(equal[0]))
        self.within = self.hessian.places.rows(A.tocsr()[self.others])
        crossing = self.others[self.within.crossing]
        if len(crossing):
            raise UnstructuredQP("couples several knots", int(crossing[0]))

    # -- the linear system ----------------------------------------------------------------------------------------------
    def factorize(self, weights: Array) -> bool:
        """See :class:`~trajopt.solvers.qp.interior_point.KKTSystem`."""
        self.weights = weights
        m = self.qp.A.shape[0]
        diagonal = np.where(self.fixed, 0.0, weights[m:])
        self.blocks = self.hessian.plus_squares(self.within, weights[self.others]).plus_diagonal(diagonal).blocks
        zero = np.zeros(self.qp.A.shape[1])
        return self.lq_solver.solve_riccati(self._lq(zero, np.zeros(len(weights)))).failed_at is None

    def _lq(self, a: Array, b: Array) -> LQProblem:
        """The LQ problem whose solution is dw; a (n_w,) with the barrier terms, b (m + n_w,)."""
        n, layout, m = self.n, self.layout, self.qp.A.shape[0]
        x0 = b[m:][layout.states[0]]
        if len(layout.initial):
            signs = self.qp.A.tocsr()[layout.initial][:, layout.states[0]].diagonal()
            x0 = signs * b[layout.initial]
        Q, S, R = self.blocks[:, :n, :n], self.blocks[:-1, n:, :n], self.blocks[:-1, n:, n:]
        q, r, d, B = -a[layout.states], -a[layout.controls], self.sign * b[layout.dynamics], self.B
        held = self.fixed_controls
        if held.any():
            u = np.where(held, b[m:][layout.controls], 0.0)
            d = d + np.einsum("kij,kj->ki", B, u)
            q[:-1] += np.einsum("kji,kj->ki", S, u)
            r = np.where(held, -u, r + np.einsum("kij,kj->ki", R, u))
            B, S = np.where(held[:, None, :], 0.0, B), np.where(held[:, :, None], 0.0, S)
            R = np.where(held[:, :, None] | held[:, None, :], np.eye(self.m), R)
        return LQProblem(self.A, B, d, Q, q, S, R, r, x0)

    def _once(self, a: Array, b: Array) -> tuple[Array, Array]:
        """dw and (dE, dC) by one sweep."""
        qp, m = self.qp, self.qp.A.shape[0]
        finite = np.where(np.isinf(self.weights), 0.0, self.weights)
        pushed = finite * b
        lq = self._lq(a + qp.A.T @ pushed[:m] + pushed[m:], b)
        policy = self.lq_solver.solve_riccati(lq)
        (dx, du), _ = self.lq_solver.forward(lq, policy)
        costate = policy.Vx + (policy.Vxx @ dx[:, :, None])[:, :, 0]
        dw, both = np.zeros_like(a), np.zeros_like(b)
        dw[self.layout.states], dw[self.layout.controls] = dx, du
        both[:m], both[m:] = finite[:m] * (qp.A @ dw - b[:m]), finite[m:] * (dw - b[m:])
        both[self.layout.dynamics] = -self.sign * costate[1:]
        if len(self.layout.initial):
            signs = qp.A.tocsr()[self.layout.initial][:, self.layout.states[0]].diagonal()
            both[self.layout.initial] = -signs * costate[0]
        force = a - qp.H @ dw - qp.A.T @ both[:m]
        both[m:] = np.where(self.fixed, force, both[m:])
        return dw, both

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """See :class:`~trajopt.solvers.qp.interior_point.KKTSystem`; ``b`` counts in rows and bounds with D > 0."""
        qp, m = self.qp, self.qp.A.shape[0]
        compliance = np.where(self.weights > 0.0, 1.0 / np.where(self.weights > 0.0, self.weights, 1.0), 0.0)
        b = np.where(self.weights > 0.0, b, 0.0)
        (dw, both), last = self._once(a, b), np.inf
        for _ in range(REFINEMENTS):
            rest_a = a - qp.H @ dw - qp.A.T @ both[:m] - both[m:]
            rest_b = np.where(self.weights > 0.0, b - np.concatenate([qp.A @ dw, dw]) + compliance * both, 0.0)
            error = max(float(np.abs(rest_a).max()), float(np.abs(rest_b).max()))
            if not error < 0.5 * last:
                break
            more_w, more = self._once(rest_a, rest_b)
            dw, both, last = dw + more_w, both + more, error
        return dw, both
