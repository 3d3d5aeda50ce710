"""Iterates and steps of a shooting solver: the rollout of a guess, error measures, and steps along a parabola.

Scaled KKT error. With costates lambda of the linearized motion under a feedback K,

    lambda_N = q_N,   lambda_k = q + A'lambda_(k+1) + K'g_k        g_k = r + B'lambda_(k+1)

g_k is the gradient of the Lagrangian in u_k, and K'g_k the remaining gradient in x_k.  Both vanish with g, so that any K
certifies a solution.  K = 0 is the adjoint sweep: its costates grow on unstable motions until rounding errors exceed the gradient
of a light wrist.  With the gains of the last Riccati sweep, costates have the size of V'x.

The error is the largest of the following. :func:`optimality` computes the first, where the outward part of a gradient at a bound
is the multiplier of the bound, and the gaps; :meth:`trajopt.solvers.methods.requests.Point.kkt` computes all but the violations.

    |g_i| / s_i          s_i = max_k (|r_i| + sum_j |B_ji| |lambda_j|), the size of the terms that cancel in it, for each control
    z (u - bound) / |J|  complementarity relative to the cost, where bounds have multipliers z
    gaps and violations  in the units of the states and constraints

The first two do not depend on the units of controls and cost, so that a tolerance has the same meaning for every robot.

Line search along a parabola (:func:`parabola_of`): geodesic acceleration of least squares, applied to trajectories. Along a step
(dx, du) that solves an LQ problem, the defects of the dynamics grow with the square of the step length,

    c_k = d^2/da^2 f(x_k + a dx_k, u_k + a du_k) at a = 0.

The acceleration (ddx, ddu) removes these defects at the least cost of the same quadratic model,

    minimize 1/2 sum (ddx, ddu)' H (ddx, ddu)    subject to  ddx_(k+1) = A ddx_k + B ddu_k + c_k,     ddx_0 = 0,

and the line search tries x + a dx + a^2/2 ddx in addition to the straight line.  Least-squares costs often have narrow, curved
valleys, and the parabola follows them for longer (M. Transtrum, B. Machta, J. Sethna, Phys. Rev. E 83, 2011, section VI).  Second
derivatives of the residuals are omitted, because residuals of trajectories are nearly linear in states and controls.  The cost is
one more rollout and one more Riccati sweep, without second derivatives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy, Stationarity
from trajopt.lq.lq_solver import shared_lq
from trajopt.results.records import Journal
from trajopt.stage.evaluation import Candidates, Direction, Evaluator, Expansion, Shooting

FALLEN = 2.0
"""A guess is rolled out with feedback if its open-loop rollout costs more than this multiple of its own cost (at least 1), and
feedback less."""
HOLDING = 1e-6
"""Regularization of the gains for the rollout of a guess."""
GAP_ROUNDING = 2e-13
"""Gaps below this fraction of the states are rounding errors. A penalty computed from such gaps would be the expected decrease
divided by noise, and would let the cost rise."""


class Iterate(NamedTuple):
    """Trajectory xs, us with its expansion, reduced gradient (N, m) and costates (N + 1, n).

    evaluator: computed the expansion. gradient, defect: largest entries of the projected gradient and of the gaps. gap: l1 norm
    of the gaps, 0 at rounding level. others: cache of the LQ problems of other evaluators.
    """

    xs: Array
    us: Array
    expansion: Expansion
    evaluator: Evaluator
    reduced: Array
    costates: Array
    gradient: float
    defect: float
    gap: float
    others: dict[Evaluator, LQProblem]

    @property
    def cost(self) -> float:
        """Cost of the trajectory."""
        return self.expansion.cost


class Step(NamedTuple):
    """A policy, its linear trajectory, and the predicted cost change alpha D1 + alpha^2/2 D2.

    parabola: second derivative of the parabola along the step (:mod:`trajopt.solvers.shooting.iterate`), or None.
    """

    policy: Policy
    linear: LQStep
    D1: float
    D2: float
    parabola: LQStep | None = None


def measured(
    xs: Array,
    us: Array,
    expansion: Expansion,
    evaluator: Evaluator,
    bounds: Bounds | None,
) -> Iterate | None:
    """Return the iterate with its error measures, or None if cost or LQ problem are not finite; bounds: on u.

    Gaps at rounding level are set to zero in its LQ problem; ``defect`` keeps their size.
    """
    lq = expansion.lq
    if not (np.isfinite(expansion.cost) and shared_lq().is_finite(lq)):
        return None
    defect = float(np.abs(lq.d).max(initial=0.0))
    if defect <= GAP_ROUNDING * (1.0 + float(np.abs(xs).max())):
        lq = lq._replace(d=np.zeros_like(lq.d))  # multiplied by costates, noise would outweigh small gradients
        expansion = expansion._replace(lq=lq)
    lam, reduced = shared_lq().adjoint(lq)
    gradient = float(np.abs(_projected(us, reduced, bounds)).max(initial=0.0))
    return Iterate(xs, us, expansion, evaluator, reduced, lam, gradient, defect, float(np.abs(lq.d).sum()), {})


def _projected(us: Array, gradient: Array, bounds: Bounds | None) -> Array:
    """Return the projected gradient us - P(us - gradient), P the projection on the bounds: zero at a constrained minimum.

    Without bounds, it is the gradient.
    """
    if bounds is None:
        return gradient
    lower, upper = bounds
    return np.clip(gradient, us - upper, us - lower)


def violation(us: Array, bounds: Bounds | None) -> float:
    """Return the largest violation of the bounds by controls us (N, m); 0 if they hold or without bounds."""
    return 0.0 if bounds is None else float(np.maximum(bounds[0] - us, us - bounds[1]).max(initial=0.0))


def step_of(iterate: Iterate, policy: Policy, linear: LQStep, D2: float) -> Step:
    """Return the step along the linear trajectory of a policy, with its slope D1 from the iterate; D2: second derivative."""
    lq = iterate.expansion.lq
    return Step(policy, linear, slope(lq, policy.K, linear, lq.d), D2)


def slope(lq: LQProblem, K: Array, linear: LQStep, closed: Array) -> float:
    """Return the derivative of the cost along a step that closes the gaps ``closed`` (N, n), under the gains K (N, m, n).

    It is sum_k g_k'(du - K dx)_k + lambda_(k+1)'closed_k, with costates and gradient under K. This form avoids the cancellation in
    q'dx + r'du and the growth of open-loop costates on unstable motions.
    """
    at = shared_lq().stationarity(lq, K)
    free = linear.du - (K @ linear.dx[:-1, :, None])[:, :, 0]
    return float(np.sum(at.gradient * free) + np.sum(at.costates[1:] * closed))


def second_order(iterate: Iterate, step: Step, defects: Array, bounds: Bounds | None) -> Step:
    """Second-order correction: the step that also closes ``defects``, the gaps of the trial of ``step``, under its policy.

    It avoids the Maratos effect: the merit rejects good steps because of second-order gaps (Nocedal & Wright, sec. 18.3). bounds:
    on du, which the corrected step satisfies. Slope and D2 of the step stay unchanged.
    """
    lq = iterate.expansion.lq._replace(d=defects, dx0=np.zeros_like(step.linear.dx[0]))
    feedback = step.policy._replace(k=np.zeros_like(step.policy.k))
    workspace = None if bounds is None else (bounds[0] - step.linear.du, bounds[1] - step.linear.du)
    extra, _ = shared_lq().forward(lq, feedback, workspace)
    return step._replace(linear=LQStep(step.linear.dx + extra.dx, step.linear.du + extra.du))


def rolled_out(xs: Array, us: Array, nodes: Shooting, evaluator: Evaluator, journal: Journal) -> tuple[Array, Array]:
    """Roll out a guess between its nodes; feedback holds it if the open-loop rollout diverges and feedback costs less.

    It diverges if its cost exceeds FALLEN times that of the guess (at least 1), or is not finite. If every knot is a node,
    nothing is rolled out. journal: times derivatives and sweeps. Returns states and controls. `hold` of shooting_slot.h is the C
    equivalent.
    """
    N, nu = us.shape
    ndx = evaluator.manifold.ndx
    still = Direction(np.zeros((N + 1, ndx)), np.zeros((N, nu)), np.zeros((N, nu, ndx)), np.zeros((N, ndx)))
    first = evaluator.rollout(xs, us, still, np.zeros(1), nodes)
    follows = len(nodes.nodes) < N  # if every knot is a node, nothing is rolled out
    if not follows:
        return first.xs[0], first.us[0]
    with journal.timed("derivatives"):
        expansion = evaluator.expand(xs, us)
    if not first.cost[0] <= FALLEN * max(1.0, abs(float(expansion.cost))):
        held = held_rollout(xs, us, expansion.lq, nodes, evaluator, journal)
        first = held if held is not None and not first.cost[0] <= held.cost[0] else first
    return first.xs[0], first.us[0]


def held_rollout(
    xs: Array,
    us: Array,
    lq: LQProblem,
    nodes: Shooting,
    evaluator: Evaluator,
    journal: Journal,
) -> Candidates | None:
    """Roll out a guess under the policy of its LQ problem ``lq``, and under its gains alone; return the cheaper rollout.

    None if lq is not finite, the backward pass fails, or neither rollout has a finite cost.
    """
    if not shared_lq().is_finite(lq):
        return None
    with journal.timed("backward"):
        policy = shared_lq().solve_riccati(lq, HOLDING)
    if policy.failed_at is not None:
        return None
    tried = [
        evaluator.rollout(xs, us, Direction(np.zeros_like(lq.q), du, policy.K, np.zeros_like(lq.d)), np.ones(1), nodes)
        for du in (np.zeros_like(us), policy.k)
    ]
    finite = [c for c in tried if np.isfinite(c.cost[0])]
    return min(finite, key=lambda c: float(c.cost[0]), default=None)


PROBE = 0.1
"""Step length of the finite difference for the second derivative (Transtrum & Sethna, arXiv:1201.5885, section 3)."""


def parabola_of(at: Iterate, step: Step, lq: LQProblem, evaluator: Evaluator) -> LQStep | None:
    """Return the geodesic acceleration (ddx, ddu) of a step that solves lq; None if it is not finite or has no solution.

    A rollout at PROBE times the step gives the second-order defects; the LQ problem without gradient closes them.
    """
    d = at.expansion.lq.d
    probe = Direction(PROBE * step.linear.dx, PROBE * step.linear.du, step.policy.K, d)
    left = evaluator.rollout(at.xs, at.us, probe, np.ones(1), Shooting.every("all", lq.horizon, "linear")).defects[0]
    c = 2.0 * (left - (1.0 - PROBE) * d) / PROBE**2
    if not np.isfinite(c).all():
        return None
    second = lq._replace(d=c, q=np.zeros_like(lq.q), r=np.zeros_like(lq.r), dx0=np.zeros_like(lq.dx0))
    policy = shared_lq().solve_riccati(second)
    return shared_lq().forward(second, policy)[0] if policy.failed_at is None else None


def scaled(found: Stationarity, gradient: Array) -> Array:
    """Return a gradient (N, m) divided by the sizes of its terms, for each control; zero for controls of size zero."""
    return np.divide(gradient, found.size, out=np.zeros_like(gradient), where=found.size > 0.0)


def optimality(lq: LQProblem, us: Array, bounds: Bounds | None, K: Array | None = None) -> tuple[float, float]:
    """Return the scaled KKT error and the largest entry of the gradient of controls us (N, m) within bounds, under gains K.

    The error is the larger of the largest scaled gradient and the largest gap. Controls on a bound have zero gains; the outward
    part of their gradient is the multiplier of the bound, and no error.
    """
    gap = float(np.abs(lq.d).max(initial=0.0))
    if bounds is None or not (held := (us <= bounds[0]) | (us >= bounds[1])).any():
        found = shared_lq().stationarity(lq, K)
        inward = found.gradient
    else:
        lower, upper = bounds
        found = shared_lq().stationarity(lq, None if K is None else np.where(held[:, :, None], 0.0, K))
        inward = np.where(us <= lower, np.minimum(found.gradient, 0.0), found.gradient)
        inward = np.where(us >= upper, np.maximum(inward, 0.0), inward)
    kkt = float(np.abs(scaled(found, inward)).max(initial=0.0))
    return max(kkt, gap), float(np.abs(inward).max(initial=0.0))
