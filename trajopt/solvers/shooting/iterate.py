"""Iterates and steps of a shooting solver, with their error measures and the rollout of a guess."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy, shared_lq
from trajopt.results.records import Journal
from trajopt.stage.evaluation import Candidates, Direction, Evaluator, Expansion, Shooting

FALLEN = 2.0
"""A guess is rolled out with feedback if its open-loop rollout costs more than this multiple of its own cost, and feedback less."""
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

    parabola: second derivative of the parabola along the step (:mod:`trajopt.solvers.shooting.curve`), or None.
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
    """Return the iterate with its error measures, or None if the expansion is not finite; bounds on u."""
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
    """Projected gradient us - P(us - gradient), with P the projection on the bounds: zero at a constrained minimum."""
    if bounds is None:
        return gradient
    lower, upper = bounds
    return np.clip(gradient, us - upper, us - lower)


def violation(us: Array, bounds: Bounds | None) -> float:
    """Return the largest violation of the bounds by controls us (N, m)."""
    return 0.0 if bounds is None else float(np.maximum(bounds[0] - us, us - bounds[1]).max(initial=0.0))


def step_of(iterate: Iterate, policy: Policy, linear: LQStep, D2: float) -> Step:
    """Return the step along the linear trajectory of a policy, with its slope D1."""
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
    """Second-order correction: the step that also closes the gaps of ``step``, under its policy (Nocedal & Wright, sec. 18.3).

    It avoids the Maratos effect: the merit rejects good steps because of second-order gaps. bounds: on du.
    """
    lq = iterate.expansion.lq._replace(d=defects, dx0=np.zeros_like(step.linear.dx[0]))
    feedback = step.policy._replace(k=np.zeros_like(step.policy.k))
    workspace = None if bounds is None else (bounds[0] - step.linear.du, bounds[1] - step.linear.du)
    extra, _ = shared_lq().forward(lq, feedback, workspace)
    return step._replace(linear=LQStep(step.linear.dx + extra.dx, step.linear.du + extra.du))


def rolled_out(xs: Array, us: Array, nodes: Shooting, evaluator: Evaluator, journal: Journal) -> tuple[Array, Array]:
    """Roll out a guess between its nodes; feedback holds it if the open-loop rollout diverges and feedback costs less.

    journal: times derivatives and sweeps. `hold` of shooting_slot.h is the C equivalent.
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
    """Roll out a guess under the policy of its LQ problem and under its gains alone; return the cheaper rollout.

    None if the backward pass fails or neither rollout is finite.
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
