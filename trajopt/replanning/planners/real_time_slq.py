"""The real-time iteration: one Gauss-Newton step per call, about the shifted plan (xs, us), for an initial state that comes last.

    prepare   derivatives and Riccati sweep about the shifted plan, before the state is known
    respond   dx_0 = x0 (-) xs_0 and the linear roll-out (dx, du) of the policy with gains K, from which the plan is

| search | the plan | reference |
|---|---|---|
| no | xs (+) dx, us + du: the full step of multiple shooting | Diehl, Bock, Schloeder, SIAM J. Control Optim. 43, 2005 |
| yes | the cheapest motion from x0 under u = us + alpha du + K (x (-) (xs (+) alpha dx)) | Tassa, Erez, Todorov, IROS 2012 |

Full steps are right while the problem changes slowly; after a jump of a goal, or with one out of reach, they may swing for ever.
The search tries alpha = 1, 1/2, 1/4, 1/8 and 0, the plan's own feedback, all at once; shortened steps raise the regularization of
the next sweep.

Where residuals stay large, as those of a goal out of reach, their curvature outweighs what Gauss and Newton keep of the Hessian:
steps overshoot, and gains drive the robot from its plan.  So when ENOUGH steps in a row have been shortened, Q comes from the exact
Hessian of the cost from then on, if that is compiled: the nearest semidefinite blocks, those without negative eigenvalues (N. J.
Higham, Linear Algebra Appl. 103, 1988).  Q as it is may leave a convex problem, too, but often one whose gains make a robot fall.
Whoever knows a problem to be of that kind, as one that Gauss and Newton's steps do not solve, has it so from the first step on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.guesses.warm_start import WarmStart
from trajopt.lq.bounded_lq import solve_bounded_lq
from trajopt.lq.lq import Bounds, LQStep, Policy
from trajopt.problem.ocp import OCP
from trajopt.replanning.planners.real_time import AsksForState, RealTimePlanner
from trajopt.results.records import IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.rules.regularization import Regularization
from trajopt.stage.evaluation import Direction, Evaluator, Shooting
from trajopt.stage.numerics import Numerics, numerics_for
from trajopt.validation.validation import refuse_constraints

STEP_LENGTHS = np.array([1.0, 0.5, 0.25, 0.125, 0.0])
ENOUGH = 2
"""Single steps are shortened in good runs too, where the problem jumps."""
ROUNDING = 1e-12
"""Relative difference of costs below which the longer step is taken."""


class Motion(NamedTuple):
    """A trajectory, its cost, the length of the step that led to it, and its largest gap before that."""

    xs: Array
    us: Array
    cost: float
    alpha: float
    defect: float


class RealTimeSLQ(RealTimePlanner):
    """A :class:`~trajopt.replanning.planning.Planner`; see the module docstring.

    hessian: of the cost, "gauss_newton", until steps are shortened, or "exact", without its negative eigenvalues.
    regularization: the least on the diagonal of Quu. search: see the module docstring. Finite bounds on controls make the
    response a bounded LQ problem (:mod:`trajopt.lq.bounded_lq`), solved once the state is known. curved: whether the exact
    Hessian is taken from the first step on where it is compiled.
    """

    def __init__(
        self, hessian: str = "gauss_newton", regularization: float = 0.0, *, search: bool = True, curved: bool = False
    ) -> None:
        self.hessian, self.least, self.search, self.curved = hessian, regularization, search, curved
        self._may_curve, self._curved, self._shortened = False, hessian == "exact", 0
        self._regularization = Regularization.of(SLQOptions())
        self._begun = False
        self._made: dict[str, Numerics] = {}

    @property
    def mu(self) -> float:
        """The regularization of the next sweep."""
        return max(self.least, self._regularization.mu)

    def solve(self, ocp: OCP, warm: WarmStart) -> AsksForState:
        """One iteration about the plan of a warm start. Raises ValueError for constraints other than bounds on controls."""
        refuse_constraints(ocp, "RealTimeSLQ")
        if not self._begun and (self.search or self.curved) and not self._curved:
            self._may_curve = numerics_for(ocp, "exact").evaluator.may_follow  # compiled on the way, it would be late
            self._curved = self.curved and self._may_curve
        self._begun, hessian = True, "exact" if self._curved else "gauss_newton"
        evaluator, lq_solver = self._numerics(ocp, hessian)
        (xs, us), bounds = warm.guess, _finite_bounds(ocp, warm.guess.us)
        expansion = evaluator.expand(xs, us)
        lq = expansion.lq._replace(Q=_semidefinite(expansion.lq.Q)) if self._curved else expansion.lq
        policy = None if bounds is not None else lq_solver.solve_riccati(lq, self.mu)

        x0 = yield

        lq = lq._replace(dx0=evaluator.manifold.gap(xs[0], x0))
        if bounds is not None:
            policy, step = solve_bounded_lq(lq, bounds, self.mu, lq_solver=lq_solver)
        else:
            assert policy is not None
            step = lq_solver.forward(lq, policy)[0]
        defect, mu = float(np.abs(lq.d).max(initial=0.0)), self.mu
        if policy.failed_at is not None:
            motion = Motion(xs, us, expansion.cost, 0.0, defect)
            self._regularization = self._regularization.raised()
        elif self.search:
            motion = self._searched(evaluator, Guess(xs, us), x0, policy, step)
            mu = self.mu
        else:  # the full step, whose gaps are of second order; the cost is that before it
            plan = us + step.du if bounds is None else np.clip(us + step.du, us + bounds[0], us + bounds[1])
            moved = np.ascontiguousarray(evaluator.manifold.integrate(xs.T, step.dx.T).T)
            motion = Motion(moved, plan, expansion.cost, 1.0, defect)
        record, status = _record(motion, step, mu, hessian), _status(policy, motion, mu, hessian)
        k = np.zeros_like(motion.us)
        return Solution(motion.xs, motion.us, policy.K, k, status, motion.cost, 1, (record,), ocp.times_of(motion.xs))

    def _numerics(self, ocp: OCP, hessian: str) -> Numerics:
        """Those with that Hessian of the cost, made anew where the structure is another."""
        made = self._made.get(hessian)
        if made is None or not made.evaluator.follow(ocp):
            made = self._made[hessian] = numerics_for(ocp, hessian)
        return made

    def _searched(self, evaluator: Evaluator, plan: Guess, x0: Array, policy: Policy, step: LQStep) -> Motion:
        """The cheapest roll-out from x0; it begins with what the feedback makes of dx_0, whatever alpha."""
        answer = policy.K[0] @ step.dx[0]
        xs, us, dx, du = plan.xs.copy(), plan.us.copy(), step.dx.copy(), step.du.copy()
        xs[0], us[0], dx[0], du[0] = x0, us[0] + answer, 0.0, du[0] - answer
        with np.errstate(all="ignore"):  # what is not finite is not chosen
            direction = Direction(dx, du, policy.K, np.zeros_like(dx[1:]))
            tried = evaluator.rollout(xs, us, direction, STEP_LENGTHS, Shooting())
            costs = np.where(np.isfinite(tried.cost), tried.cost, np.inf)
        refused = not np.isfinite(costs).any()
        best = len(costs) - 1 if refused else int(np.argmax(costs <= costs.min() + ROUNDING * np.abs(costs.min())))
        self._regularization = self._regularization.raised() if best else self._regularization.lowered()
        self._shortened = self._shortened + 1 if best else 0
        self._curved = self._curved or (self._may_curve and (refused or self._shortened >= ENOUGH))
        return Motion(tried.xs[best], tried.us[best], float(tried.cost[best]), float(STEP_LENGTHS[best]), 0.0)


def _record(motion: Motion, step: LQStep, mu: float, hessian: str) -> IterationRecord:
    unknown = float("nan")
    return IterationRecord(
        iteration=0,
        cost=motion.cost,
        merit=motion.cost,
        stop=unknown,
        gradient=unknown,
        regularization=mu,
        step_norm=motion.alpha * max(float(np.abs(part).max(initial=0.0)) for part in step),
        defect=motion.defect,
        constraint_violation=0.0,
        expected_decrease=unknown,
        actual_decrease=unknown,
        step_length=motion.alpha,
        hessian=hessian,
    )


def _status(policy: Policy, motion: Motion, mu: float, hessian: str) -> Status:
    if policy.failed_at is not None:
        return termination.not_positive_definite(policy.failed_at, mu, hessian)
    if not (np.isfinite(motion.xs).all() and np.isfinite(motion.us).all()):
        return termination.non_finite(termination.NonFinite("the step"), "Start from a converged plan.")
    return termination.real_time_iteration()


def _semidefinite(Q: Array) -> Array:
    """The nearest positive semidefinite matrices to Q (N + 1, ndx, ndx)."""
    if not np.isfinite(Q).all():
        return Q
    values, vectors = np.linalg.eigh(Q)
    return np.asarray((vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1))


def _finite_bounds(ocp: OCP, us: Array) -> Bounds | None:
    """Bounds on du, or None where no control is bounded."""
    if ocp.control_bounds is None:
        return None
    lower, upper = ocp.control_bounds
    if not (np.isfinite(lower).any() or np.isfinite(upper).any()):
        return None
    return lower - us, upper - us
