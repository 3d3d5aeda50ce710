"""LQ problems solved in NumPy: oracle of the C kernels (see trajopt/lq/lq.py for the mathematics)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Hessians
from trajopt.lq.lapack import cholesky, cholesky_solve
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy, Stationarity, least_size
from trajopt.lq.lq_solver import ARMIJO, FLOOR, GRADIENT_TOLERANCE, MARGIN, MAX_BOX_ITERATIONS, SHORTEN, SHORTEST
from trajopt.solvers.shooting.ddp_model import Damping


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
    Vx_next = Vx + Vxx @ lq.d[i]
    VA, VB = Vxx @ A, Vxx @ B
    return QFunction(
        lq.q[i] + A.T @ Vx_next, lq.r[i] + B.T @ Vx_next, lq.Q[i] + A.T @ VA, lq.S[i] + B.T @ VA, lq.R[i] + B.T @ VB
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


class BoxQPResult(NamedTuple):
    """Minimizer x (n,), free variables (n,) bool, lower Cholesky factor of H[free, free]; failed: H[free, free] is not definite."""

    x: Array
    free: Array
    factor: Array
    failed: bool = False


def solve_box_qp(H: Array, g: Array, lower: Array, upper: Array, start: Array | None = None) -> BoxQPResult:
    """Solve the QP with H (n, n), g (n,), bounds (n,) (infinite if absent), from start (n,) (default 0), projected on the box."""
    x = np.clip(np.zeros_like(g) if start is None else start, lower, upper)
    for _ in range(MAX_BOX_ITERATIONS):
        gradient = g + H @ x
        free = ~(((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0)))
        factor, info = _factorized(H[np.ix_(free, free)])
        if info:
            return BoxQPResult(x, free, factor, failed=True)
        scale = np.abs(g) + np.abs(H) @ np.abs(x)
        if not np.any(np.abs(gradient) > GRADIENT_TOLERANCE * scale, where=free):
            break
        new = _projected_step(H, g, lower, upper, x, gradient, free, factor)
        if np.array_equal(new, x):
            break
        x = new
    return BoxQPResult(x, free, factor)


def _factorized(H: Array) -> tuple[Array, int]:
    return cholesky(H) if H.size else (H, 0)


def _projected_step(H, g, lower, upper, x, gradient, free, factor) -> Array:
    """Projected Newton step from x, shortened until it decreases the objective; returns x itself if rounding allows no decrease."""
    direction = np.zeros_like(x)
    if free.any():
        direction[free] = -cholesky_solve(factor, gradient[free])
    alpha = 1.0
    while alpha > SHORTEST:
        new = np.clip(x + alpha * direction, lower, upper)
        move = new - x
        decrease = -(gradient @ move + 0.5 * move @ H @ move)
        if decrease >= -ARMIJO * (gradient @ move) and gradient @ move < 0:
            return new
        alpha *= SHORTEN
    return x


def definite_shift(H: Array) -> Array | None:
    """Shift (m, m) such that H + shift is positive definite, for symmetric H (m, m); None if H already is."""
    values, vectors = np.linalg.eigh(0.5 * (H + H.T))
    floor = FLOOR * np.abs(values).max(initial=0.0)
    if values.min(initial=np.inf) > MARGIN * floor:
        return None
    wanted = np.maximum(np.abs(values), floor) if floor > 0.0 else np.ones_like(values)
    return (vectors * (wanted - values)) @ vectors.T


class NumpyLQ:
    """The functions above with the interface of :class:`~trajopt.lq.lq_solver.LQSolver`."""

    solve_riccati = staticmethod(solve_riccati)
    stationarity = staticmethod(stationarity)
    is_finite = staticmethod(is_finite)

    def forward(self, lq: LQProblem, policy: Policy, bounds: Bounds | None = None):
        step = forward(lq, policy, bounds)
        return step, cost_change(lq, step)

    def adjoint(self, lq: LQProblem):
        lam = costates(lq)
        return lam, reduced_gradient(lq, lam)

    def convex(self, lq, mu=0.0, regularize="control", bounds=None, curvature=None, modify=True):
        """curvature: function of a knot and its costates."""
        damping = Damping(mu, regularize, bounds)
        lq = convex_lq(lq, damping, curvature, modify)
        return lq, solve_riccati(lq, *damping)


def convex_lq(
    lq: LQProblem, damping: Damping, curvature: Callable[[int, Array], Hessians] | None = None, modify: bool = True
) -> LQProblem:
    """Make Quu positive definite at every knot by a backward sweep that modifies R where needed.

    curvature: contraction of single knots, added during the sweep. modify: True to modify R. Otherwise, and at NaN, the sweep ends
    at the knot where Quu is not positive definite, and the LQ solver reports the failure.
    """
    lq = lq._replace(Q=lq.Q.copy(), S=lq.S.copy(), R=lq.R.copy())
    Vx, Vxx = lq.q[-1], lq.Q[-1]
    for i in range(lq.horizon - 1, -1, -1):
        if curvature is not None:
            for block, part in zip((lq.Q, lq.S, lq.R), curvature(i, Vx + Vxx @ lq.d[i]), strict=True):
                block[i] += part[0]
        q = q_function(lq, i, Vx, Vxx)
        Quu, Qux = damped(q, lq.A[i], lq.B[i], damping.mu, damping.regularize)
        if not np.isfinite(Quu).all():
            break
        shift = definite_shift(Quu) if modify else None
        if shift is not None:
            lq.R[i] += shift
            q, Quu = q._replace(uu=q.uu + shift), Quu + shift
        bounds = damping.bounds
        gains = gains_of(Quu, Qux, q.u, None if bounds is None else (bounds[0][i], bounds[1][i]))
        if gains is None:
            break
        Vx, Vxx = value_of(q, *gains)
    return lq
