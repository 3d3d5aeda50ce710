"""Real-time iteration: planners that take one step per call about the shifted plan (xs, us), in two parts.

    prepare   work that does not need the current state
    respond   the solution from the current state, as fast as possible

A solve is a generator: it prepares, yields to receive the state, and returns the solution from that state.

SLQ, one Gauss-Newton step:

    prepare   derivatives and Riccati sweep about the shifted plan, before the state is known
    respond   dx_0 = x0 (-) xs_0, linear rollout (dx, du) of the policy with gains K, and the new plan

With finite bounds on controls, the response solves a bounded LQ problem in place of sweep and linear rollout.

| search | new plan | reference |
|---|---|---|
| no | xs (+) dx, us + du: the full step of multiple shooting | Diehl, Bock, Schloeder, SIAM J. Control Optim. 43, 2005 |
| yes | the cheapest motion from x0 under u = us + alpha du + K (x (-) (xs (+) alpha dx)) | Tassa, Erez, Todorov, IROS 2012 |

Full steps are suitable for slowly changing problems. After a jump of a goal, or with an unreachable goal, they may oscillate
forever. The search tries alpha = 1, 1/2, 1/4, 1/8 and 0 (the feedback of the plan alone) in one batch. Shortened steps raise the
regularization of the next sweep, full steps lower it.

With large residuals, such as those of an unreachable goal, the neglected second-order terms dominate the Gauss-Newton Hessian:
steps overshoot, and gains drive the robot away from its plan. So after MAX_SHORTENED consecutive shortened steps, all later steps
use the exact Hessian of the cost, if that is compiled. Its blocks Q are replaced by the nearest positive semidefinite ones, without
negative eigenvalues (N. J. Higham, Linear Algebra Appl. 103, 1988). The unmodified Q may also give a convex problem, but often one
whose gains make a robot fall. The option ``curved`` selects the exact Hessian from the first step on.

One step may also fail by far: from a state far from the plan, or after a jump of the goal behind the robot, the cheapest of these
motions may cost a multiple of the plan, and later ones diverge. If the cost exceeds that of the plan, and the cost that the LQ
problem predicts, by more than their size (:func:`_cost_explodes`), the solution is that of a complete solve from the state at rest
(:func:`restarted`), if it is cheaper. It takes some ten iterations, and does not occur while a plan is followed.

For problems with constraints see :mod:`trajopt.replanning.real_time_sqp`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import SolverCache, WarmStart, constant_guess
from trajopt.lq.lapack import lapack, symmetric_eigen
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.replanning.plan import fault_of
from trajopt.results.records import IterationRecord
from trajopt.results.solution import Solution, uninterrupted
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.rules.regularization import Regularization
from trajopt.solvers.solve import solve
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator
from trajopt.stage.evaluators import evaluator_for
from trajopt.validation.validation import reject_constraints

SolveGenerator = Generator[None, Array, Solution]
"""Generator that yields once to receive the state (nx,), and returns the solution."""


class RealTimePlanner(ABC):
    """Base of a :class:`~trajopt.replanning.planning.Planner`: :meth:`prepare` and :meth:`respond` run one generator together."""

    _running: SolveGenerator | None = None

    @abstractmethod
    def solve(self, ocp: OCP, warm: WarmStart) -> SolveGenerator:
        """One solve as a generator: the preparation before ``x0 = yield``, the response after it."""

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """Run the preparation of :meth:`solve`, up to its ``yield``. Raises its errors."""
        self._running, running = None, self.solve(ocp, warm)
        next(running)
        self._running = running

    def respond(self, x0: Array) -> Solution:
        """Resume :meth:`solve` with the current state x0 (nx,), and return its solution.

        Raises RuntimeError unless :meth:`prepare` was called since the last response, TypeError if the generator yields again, and
        the errors of :meth:`solve`.
        """
        if self._running is None:
            raise RuntimeError("call prepare before respond")
        running, self._running = self._running, None
        try:
            running.send(x0)
        except StopIteration as ended:
            return ended.value
        raise TypeError(f"solve() of {type(self).__name__} yielded twice; it must yield once, for the state")


STEP_LENGTHS = np.array([1.0, 0.5, 0.25, 0.125, 0.0])
MAX_SHORTENED = 2
"""Number of consecutive shortened steps before the exact Hessian is used; single ones also occur in good runs."""
ROUNDING = 1e-12
"""Relative difference of costs below which the longer step is preferred; also the size of costs that are rounding errors, and the
relative size below which steps are not shortened."""
RESTART = SLQOptions(globalization="filter", max_iterations=50)
"""Options of :func:`slq` for a solve from the state at rest. The filter closes gaps of cold starts that the merit leaves open."""


class Trajectory(NamedTuple):
    """Trajectory xs (N + 1, nx), us (N, nu) after a step, and numbers of the step for its record.

    cost: of the trajectory, or of the guess if only that is known. alpha: step length. defect: largest gap of the guess; 0 for a
    rollout.
    """

    xs: Array
    us: Array
    cost: float
    alpha: float
    defect: float


class RealTimeSLQ(RealTimePlanner):
    """:class:`~trajopt.replanning.planning.Planner` for problems without constraints but control bounds: one SLQ step per plan.

    After a step that fails by far, as after a jump of the goal, the plan is that of a complete solve. hessian: Hessian of the
    cost, "gauss_newton" (until steps are shortened), or "exact", with Q without negative eigenvalues. regularization: minimum
    regularization on the diagonal of Quu. search: roll out the step with the lengths 1, 1/2, 1/4, 1/8 and 0 and take the
    cheapest motion; False: the full step of multiple shooting, for goals that move slowly. curved: use the exact Hessian from
    the first step on, if it is compiled. With finite bounds on controls, the response solves a bounded LQ problem
    (:mod:`trajopt.lq.lq_solver`). Raises ValueError for another hessian.
    """

    def __init__(
        self, hessian: str = "gauss_newton", regularization: float = 0.0, *, search: bool = True, curved: bool = False
    ) -> None:
        if hessian not in ("gauss_newton", "exact"):
            raise ValueError(f"hessian = {hessian!r}; expected 'gauss_newton' or 'exact'")
        self.hessian, self.min_regularization, self.search, self.curved = hessian, regularization, search, curved
        self._may_curve, self._curved, self._shortened = False, hessian == "exact", 0
        self._regularization = Regularization.from_options(SLQOptions())
        self._started = False
        self._cached: dict[str, StageEvaluator] = {}
        self._restarts = SolverCache()

    @property
    def mu(self) -> float:
        """Regularization of the next sweep: the adapted one, but at least ``regularization`` of the constructor."""
        return max(self.min_regularization, self._regularization.mu)

    def solve(self, ocp: OCP, warm: WarmStart) -> SolveGenerator:
        """One SLQ step about the guess of a warm start, as a generator that receives the state x0 after its preparation.

        The preparation computes the derivatives and, without finite bounds on controls, the Riccati sweep. The solution has the
        gains of the step and no feed-forward (k = 0). If Quu is not positive definite, it is the guess. If the search finds no
        step of reasonable cost, it is that of a complete solve if that is cheaper. Raises ValueError for constraints other than
        bounds on controls.
        """
        reject_constraints(ocp, "RealTimeSLQ")
        if not self._started and (self.search or self.curved) and not self._curved:
            self._may_curve = evaluator_for(ocp, "exact").may_follow  # tracing it later would delay a step
            lapack()
            self._curved = self.curved and self._may_curve
        self._started, hessian = True, "exact" if self._curved else "gauss_newton"
        evaluator = self._evaluator(ocp, hessian)
        (xs, us), bounds = warm.guess, _finite_bounds(ocp, warm.guess.us)
        expansion = evaluator.expand(xs, us)
        lq = expansion.lq._replace(Q=_semidefinite(expansion.lq.Q)) if self._curved else expansion.lq
        policy = None if bounds is not None else shared_lq().solve_riccati(lq, self.mu)

        x0 = yield

        lq = lq._replace(dx0=evaluator.manifold.gap(xs[0], x0))
        if bounds is not None:
            policy, step = shared_lq().solve_bounded(lq, bounds, self.mu)
        else:
            assert policy is not None
            step = shared_lq().forward(lq, policy)[0]
        defect, mu = float(np.abs(lq.d).max(initial=0.0)), self.mu
        if policy.failed_at is not None:
            motion = Trajectory(xs, us, expansion.cost, 0.0, defect)
            self._regularization = self._regularization.raised()
        elif self.search:
            motion = self._searched(evaluator, Guess(xs, us), x0, policy, step)
            mu = self.mu
            if _cost_explodes(motion.cost, expansion.cost, lq, step):
                found = restarted(ocp, x0, "slq", RESTART, self._restarts)
                if not motion.cost <= found.cost:
                    self._regularization, self._shortened = Regularization.from_options(SLQOptions()), 0
                    return found
        else:  # the full step, whose gaps are of second order; the cost is that before the step
            plan = us + step.du if bounds is None else np.clip(us + step.du, us + bounds[0], us + bounds[1])
            moved = np.ascontiguousarray(evaluator.manifold.integrate(xs.T, step.dx.T).T)
            motion = Trajectory(moved, plan, expansion.cost, 1.0, defect)
        size = motion.alpha * max(float(np.abs(part).max(initial=0.0)) for part in step)
        record = step_record(motion.cost, size, motion.defect, hessian, mu=mu, length=motion.alpha)
        status = _slq_status(policy, motion, mu, hessian)
        k = np.zeros_like(motion.us)
        return Solution(motion.xs, motion.us, policy.K, k, status, motion.cost, 1, (record,), ocp.times_of(motion.xs))

    def _evaluator(self, ocp: OCP, hessian: str) -> StageEvaluator:
        """Cached evaluator with this Hessian of the cost, set to a new problem; a new one if the structure has changed."""
        made = self._cached.get(hessian)
        if made is None or not made.follow(ocp):
            made = self._cached[hessian] = evaluator_for(ocp, hessian)
        return made

    def _searched(self, evaluator: StageEvaluator, plan: Guess, x0: Array, policy: Policy, step: LQStep) -> Trajectory:
        """Cheapest rollout from x0 among the step lengths alpha of STEP_LENGTHS; the feedback on dx_0 is applied in full with each.

        Without a finite rollout, it is that for alpha = 0; a step as small as rounding errors is full. Full steps lower the
        regularization, shortened ones raise it. After MAX_SHORTENED consecutive shortened steps, or if no rollout is finite, later
        steps use the exact Hessian, if it is compiled.
        """
        answer = policy.K[0] @ step.dx[0]
        xs, us, dx, du = plan.xs.copy(), plan.us.copy(), step.dx.copy(), step.du.copy()
        xs[0], us[0], dx[0], du[0] = x0, us[0] + answer, 0.0, du[0] - answer
        with np.errstate(all="ignore"):  # non-finite rollouts are not selected
            direction = Direction(dx, du, policy.K, np.zeros_like(dx[1:]))
            tried = evaluator.rollout(xs, us, direction, STEP_LENGTHS, Shooting())
            costs = np.where(np.isfinite(tried.cost), tried.cost, np.inf)
        rejected = not np.isfinite(costs).any()
        best = len(costs) - 1 if rejected else int(np.argmax(costs <= costs.min() + ROUNDING * np.abs(costs.min())))
        if np.isfinite(costs[0]) and _is_rounding(step.dx, plan.xs) and _is_rounding(step.du, plan.us):
            best = 0
        self._regularization = self._regularization.raised() if best else self._regularization.lowered()
        self._shortened = self._shortened + 1 if best else 0
        self._curved = self._curved or (self._may_curve and (rejected or self._shortened >= MAX_SHORTENED))
        return Trajectory(tried.xs[best], tried.us[best], float(tried.cost[best]), float(STEP_LENGTHS[best]), 0.0)


def _slq_status(policy: Policy, motion: Trajectory, mu: float, hessian: str) -> Status:
    """Status of an SLQ step: completed, Quu not positive definite (with regularization mu), or a motion that is not finite."""
    if policy.failed_at is not None:
        return termination.not_positive_definite(policy.failed_at, mu, hessian)
    if not (np.isfinite(motion.xs).all() and np.isfinite(motion.us).all()):
        return termination.non_finite(termination.NonFinite("the step"), "Start from a converged plan.")
    return termination.real_time_iteration()


def _is_rounding(move: Array, about: Array) -> bool:
    """True if a move is at most ROUNDING, relative to the largest number that is moved if that is above 1."""
    return bool(np.abs(move).max(initial=0.0) <= ROUNDING * np.abs(about).max(initial=1.0))


def _cost_explodes(cost: float, planned: float, lq: LQProblem, step: LQStep) -> bool:
    """True if the cost after a step exceeds that of the guess plus its predicted rise by more than the sum of their magnitudes.

    planned: cost of the guess. Also True for a cost that is not finite.
    """
    most = planned + abs(planned) + ROUNDING
    if cost <= most:  # no rise is needed
        return False
    with np.errstate(all="ignore"):
        dx, du = step
        curved = (lq.Q @ dx[..., None])[..., 0], (lq.R @ du[..., None] + 2.0 * (lq.S @ dx[:-1, :, None]))[..., 0]
        rise = max(0.0, float(np.vdot(dx, lq.q + 0.5 * curved[0]) + np.vdot(du, lq.r + 0.5 * curved[1])))
        return not cost <= most + 2.0 * rise


def restarted(ocp: OCP, x0: Array, solver: str, options: Any, cache: SolverCache) -> Solution:
    """Solution by a solver with these options from the state x0 (nx,), which is the guess at every knot.

    A solution that can be executed but has only zero gains gets tracking gains. Raises KeyboardInterrupt after Ctrl-C.
    """
    here = replace(ocp, x0=x0)
    start = WarmStart(constant_guess(here), cache=cache)
    found = uninterrupted(solve(here, solver=solver, options=options, warm_start=start, check=False))
    if fault_of(found) is None and not found.K.any():
        return replace(found, K=tracking_gains(here, found.xs, found.us))
    return found


def _semidefinite(Q: Array) -> Array:
    """Nearest positive semidefinite matrices to Q (N + 1, ndx, ndx); Q itself if it is not finite."""
    if not np.isfinite(Q).all():
        return Q
    values, vectors = map(np.stack, zip(*map(symmetric_eigen, Q), strict=True))
    return np.asarray((vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1))


def _finite_bounds(ocp: OCP, us: Array) -> Bounds | None:
    """Bounds on du = u - us, each (N, nu); None if no bound is finite."""
    if ocp.control_bounds is None:
        return None
    lower, upper = ocp.control_bounds
    if not (np.isfinite(lower).any() or np.isfinite(upper).any()):
        return None
    return lower - us, upper - us


def step_record(
    cost: float,
    size: float,
    defect: float,
    hessian: str,
    *,
    violation: float = 0.0,
    mu: float = 0.0,
    length: float = 1.0,
) -> IterationRecord:
    """Record of a step with largest entry ``size`` and step length ``length``; numbers that a step does not compute are NaN.

    defect: largest gap. violation: largest violation of constraints. mu: regularization. The merit is the cost.
    """
    unknown = float("nan")
    return IterationRecord(
        iteration=0,
        cost=cost,
        merit=cost,
        stop=unknown,
        gradient=unknown,
        regularization=mu,
        step_norm=size,
        defect=defect,
        constraint_violation=violation,
        expected_decrease=unknown,
        actual_decrease=unknown,
        step_length=length,
        hessian=hessian,
    )
