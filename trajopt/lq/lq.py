"""Linear-quadratic (LQ) problem with defects, and its solution by the Riccati recursion.

    minimize    sum_k [1/2 dx'Q dx + du'S dx + 1/2 du'R du + q'dx + r'du]_k + 1/2 dx_N'Q_N dx_N + q_N'dx_N
    subject to  dx_0 given,  dx_(k+1) = A_k dx_k + B_k du_k + d_k
    and, with bounds,  lower_k <= du_k <= upper_k

The defects d_k are the gaps of a multiple-shooting trajectory. V'(dx) = 1/2 dx'V'xx dx + V'x dx is the value function of the next
knot, with V'x evaluated after the gap, V'x + V'xx d:

    Qx  = q + A'V'x          Qxx = Q + A'V'xx A
    Qu  = r + B'V'x          Qux = S + B'V'xx A          Quu = R + B'V'xx B
    k = -Quu^-1 Qu,  K = -Quu^-1 Qux

Regularization adds mu I to Quu ("control") or to V'xx in Quu and Qux ("state"), for k and K only. The value function is that of the
resulting policy. (Y. Tassa, T. Erez, E. Todorov, Synthesis and stabilization of complex behaviors through online trajectory
optimization, IROS 2012, eq. 10-11; with gaps: M. Giftthaler et al., A family of iterative Gauss-Newton shooting methods for
nonlinear optimal control, IROS 2018, eq. 14-17.) With bounds, k solves the box QP at dx = 0, and rows of K of clamped controls are
zero (Tassa 2014, section III-C).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.box_qp import solve_box_qp
from trajopt.lq.lapack import cholesky, cholesky_solve

Bounds = tuple[Array, Array]
"""Lower and upper bounds on du, each (N, m)."""


class LQProblem(NamedTuple):
    """Data of an LQ problem, n = ndx, m = nu.

    A (N, n, n), B (N, n, m), d (N, n), Q (N + 1, n, n), q (N + 1, n), S (N, m, n), R (N, m, m), r (N, m), dx0 (n,).
    """

    A: Array
    B: Array
    d: Array
    Q: Array
    q: Array
    S: Array
    R: Array
    r: Array
    dx0: Array

    @property
    def horizon(self) -> int:
        """Number of time steps N."""
        return len(self.A)


class Policy(NamedTuple):
    """Policy du = k + K dx with its value function.

    K (N, m, n), k (N, m), Vx (N + 1, n), Vxx (N + 1, n, n). failed_at: knot where Quu was not positive definite, or None; the
    policy is then valid only after that knot.
    """

    K: Array
    k: Array
    Vx: Array
    Vxx: Array
    failed_at: int | None = None


def solve_riccati(lq: LQProblem, mu: float = 0.0, regularize: str = "control", bounds: Bounds | None = None) -> Policy:
    """Backward sweep. mu: regularization on "control" or "state"; bounds on du. ``failed_at`` of the policy reports a failure."""
    N, (n, m) = lq.horizon, lq.B.shape[1:]
    K, k = np.zeros((N, m, n)), np.zeros((N, m))
    Vx, Vxx = np.empty((N + 1, n)), np.empty((N + 1, n, n))
    Vx[N], Vxx[N] = lq.q[N], lq.Q[N]
    for i in range(N - 1, -1, -1):
        q = q_function(lq, i, Vx[i + 1], Vxx[i + 1])
        limits = None if bounds is None else (bounds[0][i], bounds[1][i])
        gains = gains_of(*damped(q, lq.A[i], lq.B[i], mu, regularize), q.u, limits)
        if gains is None:
            return Policy(K, k, Vx, Vxx, failed_at=i)
        k[i], K[i] = gains
        Vx[i], Vxx[i] = value_of(q, *gains)
    return Policy(K, k, Vx, Vxx)


class QFunction(NamedTuple):
    """Quadratic Q-function of (dx, du) at a knot: Qx (n,), Qu (m,), Qxx (n, n), Qux (m, n), Quu (m, m)."""

    x: Array
    u: Array
    xx: Array
    ux: Array
    uu: Array


def q_function(lq: LQProblem, i: int, Vx: Array, Vxx: Array) -> QFunction:
    """Q-function at knot i from the value function of knot i + 1."""
    A, B = lq.A[i], lq.B[i]
    ahead = Vx + Vxx @ lq.d[i]
    VA, VB = Vxx @ A, Vxx @ B
    return QFunction(
        lq.q[i] + A.T @ ahead, lq.r[i] + B.T @ ahead, lq.Q[i] + A.T @ VA, lq.S[i] + B.T @ VA, lq.R[i] + B.T @ VB
    )


def damped(q: QFunction, A: Array, B: Array, mu: float, regularize: str) -> tuple[Array, Array]:
    """Quu and Qux with regularization mu on "control" or "state"."""
    if not mu:
        return q.uu, q.ux
    if regularize == "state":
        return q.uu + mu * (B.T @ B), q.ux + mu * (B.T @ A)
    return q.uu + mu * np.eye(len(q.uu)), q.ux


def value_of(q: QFunction, k: Array, K: Array) -> tuple[Array, Array]:
    """Value function of the policy du = k + K dx: Vx (n,), Vxx (n, n)."""
    KQux = K.T @ q.ux
    V = q.xx + K.T @ q.uu @ K + KQux + KQux.T
    return q.x + K.T @ (q.uu @ k + q.u) + q.ux.T @ k, 0.5 * (V + V.T)


def gains_of(Quu: Array, Qux: Array, Qu: Array, limits: tuple[Array, Array] | None) -> tuple[Array, Array] | None:
    """Gains k (m,) and K (m, n), or None if Quu is not positive definite on the free controls."""
    if limits is not None:
        return _box_gains(Quu, Qux, Qu, *limits)
    factor, info = cholesky(Quu)
    if info or not np.isfinite(factor[-1, -1]):  # LAPACK lets NaN pass
        return None
    both = -cholesky_solve(factor, np.column_stack([Qu, Qux]))
    return both[:, 0], both[:, 1:]


def _box_gains(Quu: Array, Qux: Array, Qu: Array, lower: Array, upper: Array) -> tuple[Array, Array] | None:
    result = solve_box_qp(Quu, Qu, lower, upper)
    if result.failed:
        return None
    K = np.zeros_like(Qux)
    if result.free.any():
        K[result.free] = -cholesky_solve(result.factor, Qux[result.free])
    return result.x, K


class LQStep(NamedTuple):
    """Trajectory of the LQ problem: dx (N + 1, n), du (N, m)."""

    dx: Array
    du: Array


def forward(lq: LQProblem, policy: Policy, bounds: Bounds | None = None) -> LQStep:
    """Linear rollout of a policy, with du clipped to the bounds."""
    dx, du = np.empty_like(lq.q), np.empty_like(lq.r)
    dx[0] = lq.dx0
    for i in range(lq.horizon):
        du[i] = policy.k[i] + policy.K[i] @ dx[i]
        if bounds is not None:
            np.clip(du[i], bounds[0][i], bounds[1][i], out=du[i])
        dx[i + 1] = lq.A[i] @ dx[i] + lq.B[i] @ du[i] + lq.d[i]
    return LQStep(dx, du)


def cost_change(lq: LQProblem, step: LQStep) -> tuple[float, float]:
    """Coefficients (D1, D2) of the cost change alpha D1 + alpha^2/2 D2 along alpha (dx, du)."""
    dx, du = step
    linear = np.sum(lq.q * dx) + np.sum(lq.r * du)
    Qdx = (lq.Q @ dx[:, :, None])[:, :, 0]
    cross = (lq.S @ dx[:-1, :, None])[:, :, 0]
    Rdu = (lq.R @ du[:, :, None])[:, :, 0]
    return float(linear), float(np.sum(dx * Qdx) + np.sum(du * (2.0 * cross + Rdu)))


def costates(lq: LQProblem, step: LQStep | None = None) -> Array:
    """Costates lambda (N + 1, n), which make the Lagrangian stationary in dx_1 .. dx_N at ``step`` (default 0): the adjoint sweep.

    lambda_k = q + Q dx + S'du + A'lambda_(k+1) is the gradient of the cost-to-go in the state at knot k.
    """
    slope = lq.q
    if step is not None:
        slope = lq.q + (lq.Q @ step.dx[:, :, None])[:, :, 0]
        slope[:-1] += (step.du[:, None, :] @ lq.S)[:, 0]
    lam = np.array(slope)
    for i in range(lq.horizon - 1, -1, -1):
        lam[i] += lam[i + 1] @ lq.A[i]
    return lam


def reduced_gradient(lq: LQProblem, lam: Array | None = None) -> Array:
    """Gradient of the cost in u_k through the linearized dynamics, (N, m): r + B' lambda_(k+1); lam: the costates, if known."""
    lam = costates(lq) if lam is None else lam
    return lq.r + (lam[1:, None, :] @ lq.B)[:, 0]


HALF_OF_DIGITS = 2.0**-26
"""Square root of the machine epsilon."""


class Stationarity(NamedTuple):
    """Costates (N + 1, n), gradient g (N, m) of the Lagrangian in the controls, and sizes s (m,) of its terms."""

    costates: Array
    gradient: Array
    size: Array


def stationarity(lq: LQProblem, K: Array | None = None) -> Stationarity:
    """Costates and gradient under the feedback du = K dx, K (N, m, n), None for du = 0, by one sweep:

    lambda_k = q + A'lambda_(k+1) + K'g_k,   g_k = r + B'lambda_(k+1),   s_i = max_k (|r_i| + sum_j |B_ji| |lambda_j|).

    Sizes are at least :func:`least_size`, because all terms may be rounding errors.
    """
    if K is None:
        lam = costates(lq)
    else:
        q = lq.q.copy()
        q[:-1] += (lq.r[:, None, :] @ K)[:, 0]
        lam = costates(lq._replace(A=lq.A + lq.B @ K, q=q))
    with np.errstate(over="ignore", invalid="ignore"):
        terms = np.abs(lq.r) + (np.abs(lam[1:, None, :]) @ np.abs(lq.B))[:, 0]
    sizes = terms.max(axis=0, initial=0.0)
    return Stationarity(lam, reduced_gradient(lq, lam), np.maximum(sizes, least_size(sizes)))


def least_size(sizes: Array) -> float:
    """Return the smallest size of the terms of a gradient that are no rounding errors.

    Terms of a control with little effect are rounding errors of the other ones; terms far below 1 are rounding errors of states and
    references of magnitude 1, for example at a cost of zero.
    """
    return float(HALF_OF_DIGITS * max(1.0, sizes.max(initial=0.0)))


def is_finite(lq: LQProblem) -> bool:
    """True if all entries of a problem are finite."""
    return all(bool(np.isfinite(block).all()) for block in lq)


class KKTResidual(NamedTuple):
    """Residuals of stationarity in du (N, m) and of the dynamics (N, n); stationarity in dx defines the multipliers."""

    control: Array
    dynamics: Array


def kkt_residual(lq: LQProblem, step: LQStep) -> KKTResidual:
    """KKT residual of a trajectory of the problem without bounds."""
    dx, du = step
    lam = costates(lq, step)
    control = lq.r + (lq.S @ dx[:-1, :, None] + lq.R @ du[:, :, None])[:, :, 0] + (lam[1:, None, :] @ lq.B)[:, 0]
    dynamics = (lq.A @ dx[:-1, :, None] + lq.B @ du[:, :, None])[:, :, 0] + lq.d - dx[1:]
    return KKTResidual(control, dynamics)
