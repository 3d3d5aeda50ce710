"""An iterate of a shooting solver, and a step from it: what is measured of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy
from trajopt.lq.lq_solver import LQSolver
from trajopt.results.records import Journal
from trajopt.stage.evaluation import Candidates, Direction, Evaluator, Expansion, Shooting

FALLEN = 2.0
"""A guess whose open-loop roll-out costs that many times more than it promised is held by feedback, where that costs less."""
HOLDING = 1e-6
"""Regularization of the gains that hold a guess."""
GAP_ROUNDING = 2e-13
"""Gaps below this share of the states are noise, of a step that is computed on two ways. A penalty that makes a step one of descent
in them would be what the step promises, divided by noise, and would let the cost rise."""


class Iterate(NamedTuple):
    """xs, us with their expansion, reduced gradient (N, m) and costates (N + 1, n).

    evaluator: that made the expansion. gradient, defect: largest entries, of the projected gradient and the gaps. gap: l1 norm
    of the gaps, 0 at rounding level. others: LQ problems by other evaluators, once they are known.
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
        """The cost."""
        return self.expansion.cost


class Step(NamedTuple):
    """A policy, its linear trajectory, the change alpha D1 + alpha^2/2 D2 of the cost along it; bend: the second derivative of the
    parabola that begins with it (:mod:`trajopt.solvers.shooting.curve`), where that is searched too."""

    policy: Policy
    linear: LQStep
    D1: float
    D2: float
    bend: LQStep | None = None


def measured(
    xs: Array,
    us: Array,
    expansion: Expansion,
    evaluator: Evaluator,
    lq_solver: LQSolver,
    bounds: Bounds | None,
) -> Iterate | None:
    """The iterate with its residuals, or None if the expansion is not finite; bounds on u."""
    lq = expansion.lq
    if not (np.isfinite(expansion.cost) and lq_solver.is_finite(lq)):
        return None
    defect = float(np.abs(lq.d).max(initial=0.0))
    if defect <= GAP_ROUNDING * (1.0 + float(np.abs(xs).max())):
        lq = lq._replace(d=np.zeros_like(lq.d))  # multiplied by costates, noise would outweigh small gradients
        expansion = expansion._replace(lq=lq)
    lam, reduced = lq_solver.adjoint(lq)
    gradient = float(np.abs(_projected(us, reduced, bounds)).max(initial=0.0))
    return Iterate(xs, us, expansion, evaluator, reduced, lam, gradient, defect, float(np.abs(lq.d).sum()), {})


def _projected(us: Array, gradient: Array, bounds: Bounds | None) -> Array:
    """us - P(us - gradient), P the projection on the bounds: zero at a constrained minimum."""
    if bounds is None:
        return gradient
    lower, upper = bounds
    return np.clip(gradient, us - upper, us - lower)


def violation(us: Array, bounds: Bounds | None) -> float:
    """Violation of the bounds by controls (N, m)."""
    return 0.0 if bounds is None else float(np.maximum(bounds[0] - us, us - bounds[1]).max(initial=0.0))


def step_of(iterate: Iterate, policy: Policy, linear: LQStep, D2: float, lq_solver: LQSolver) -> Step:
    """A step along the linear trajectory of a policy."""
    lq = iterate.expansion.lq
    return Step(policy, linear, slope(lq, policy.K, linear, lq.d, lq_solver), D2)


def slope(lq: LQProblem, K: Array, linear: LQStep, closed: Array, lq_solver: LQSolver) -> float:
    """The derivative of the cost along a step as gaps ``closed`` (N, n) are closed, under the gains K (N, m, n).

    It is sum_k g_k'(du - K dx)_k + lambda_(k+1)'closed_k, with costates and gradient under K: free of the cancellation in
    q'dx + r'du, and of costates that grow with every instability of the open-loop motion.
    """
    at = lq_solver.stationarity(lq, K)
    free = linear.du - (K @ linear.dx[:-1, :, None])[:, :, 0]
    return float(np.sum(at.gradient * free) + np.sum(at.costates[1:] * closed))


def second_order(iterate: Iterate, step: Step, defects: Array, lq_solver: LQSolver, bounds: Bounds | None) -> Step:
    """The step that closes the gaps left by ``step`` too, under the same policy (Nocedal & Wright, section 18.3).

    Without it the merit may refuse good steps for gaps that are of second order (the Maratos effect). bounds: on du.
    """
    lq = iterate.expansion.lq._replace(d=defects, dx0=np.zeros_like(step.linear.dx[0]))
    feedback = step.policy._replace(k=np.zeros_like(step.policy.k))
    room = None if bounds is None else (bounds[0] - step.linear.du, bounds[1] - step.linear.du)
    extra, _ = lq_solver.forward(lq, feedback, room)
    return step._replace(linear=LQStep(step.linear.dx + extra.dx, step.linear.du + extra.du))


def rolled_out(
    xs: Array, us: Array, nodes: Shooting, evaluator: Evaluator, lq_solver: LQSolver, journal: Journal
) -> tuple[Array, Array]:
    """A guess with the parts between nodes rolled out, held by feedback where it falls and that costs less.

    journal: times derivatives and sweeps. `hold` of shooting_slot.h is the twin.
    """
    N, nu = us.shape
    ndx = evaluator.manifold.ndx
    still = Direction(np.zeros((N + 1, ndx)), np.zeros((N, nu)), np.zeros((N, nu, ndx)), np.zeros((N, ndx)))
    first = evaluator.rollout(xs, us, still, np.zeros(1), nodes)
    follows = len(nodes.nodes) < N  # where every knot is a node, no state follows from another
    if not follows:
        return first.xs[0], first.us[0]
    with journal.timed("derivatives"):
        expansion = evaluator.expand(xs, us)
    if not first.cost[0] <= FALLEN * max(1.0, abs(float(expansion.cost))):
        held = held_rollout(xs, us, expansion.lq, nodes, evaluator, lq_solver, journal)
        first = held if held is not None and not first.cost[0] <= held.cost[0] else first
    return first.xs[0], first.us[0]


def held_rollout(
    xs: Array,
    us: Array,
    lq: LQProblem,
    nodes: Shooting,
    evaluator: Evaluator,
    lq_solver: LQSolver,
    journal: Journal,
) -> Candidates | None:
    """A guess rolled out under the policy of its LQ problem, or under its gains alone, whichever costs less; None where neither is
    finite."""
    if not lq_solver.is_finite(lq):
        return None
    with journal.timed("backward"):
        policy = lq_solver.solve_riccati(lq, HOLDING)
    if policy.failed_at is not None:
        return None
    tried = [
        evaluator.rollout(xs, us, Direction(np.zeros_like(lq.q), du, policy.K, np.zeros_like(lq.d)), np.ones(1), nodes)
        for du in (np.zeros_like(us), policy.k)
    ]
    finite = [c for c in tried if np.isfinite(c.cost[0])]
    return min(finite, key=lambda c: float(c.cost[0]), default=None)
