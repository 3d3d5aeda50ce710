"""Newton's method on the optimality conditions of a trajectory whose states are all variables, by Riccati sweeps.

Each iteration solves the LQ problem with the Hessian

    H(share, delta) = H_GN + share (H_exact - H_GN) + delta I

of the Lagrangian in states and controls, H_GN the Gauss-Newton one.  The whole curvature is used wherever the problem stays
convex on the linearized motion, which a Riccati sweep tells; else as large a share of it as does.  Far from a solution that is
often none, and then the next steps do not ask for it either.  delta shortens steps that
the search refuses, in the states as well as in the controls, so that the gaps, which grow with the square of the step in the
states, stay small.  Multipliers of the dynamics are costates under feedback (:mod:`trajopt.solvers.shooting.optimality`).
Bounds on the controls are a barrier (:mod:`trajopt.solvers.shooting.newton.barrier`), a step is judged by a filter
(:mod:`trajopt.solvers.shooting.search.filter`); where short steps follow each other, damped ones compete with them; and where the
filter accepts none, the motion is restored: rolled out from x0 under the last policy, without gaps.
"""

from __future__ import annotations

import time

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.lq.lq import LQProblem, Policy
from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.results.status import SOLVED, Status
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting.newton.barrier import Barrier, interior
from trajopt.solvers.shooting.newton.newton_ends import Blamed, End, Ended, is_finite, verdict
from trajopt.solvers.shooting.newton.newton_model import NewtonModel
from trajopt.solvers.shooting.newton.newton_point import Found, Point, damped, name, size
from trajopt.solvers.shooting.optimality import scaled
from trajopt.solvers.shooting.search.filter import Filter
from trajopt.stage.evaluation import Candidates, Direction, Evaluator, Expansion, Shooting

FIRST, LEAP, GROWTH, DECAY = 1e-4, 100.0, 8.0, 1.0 / 3.0
"""The first delta, its factors until one has served and after, and what a later one starts from (Waechter & Biegler 2006, IC)."""
LARGEST = 1e20
SHORT, PATIENCE, RIVALS = 0.25, 4, 3
"""From the fourth step in a row on that is no longer than this share of what the bounds allow, it is taken only if damped ones, at
most so many, do no better."""
FAR, PLAIN = 0.1, 4
"""Behind a step that took none of the curvature at most so many others are first looked for without it, while they are not short
and the gradient is above this share of the size of its terms."""
WIDE = 1e2
"""Steps are refused that open gaps above this, relative to those at the start (at least 1): in motions torn farther, costates and
curvature tell nothing, and dozens of iterations go into closing them (Waechter and Biegler have 1e4 here)."""
MAX_RESTORED = 5
"""Restorations before giving up."""
STALLED = 10
"""Iterations at the level of rounding without a better measure before giving up."""
BETTER, LITTLE = 0.9, 1e-10
"""A measure is better that is below this share of the least before; a step is at the level of rounding that promises no more of
the cost than that share."""
AT_ROUNDING = 1e-13
"""A slope below this share of the cost tells no direction."""
NEARLY_SOLVED = 1e3
"""A search that fails with errors below so many times those of a solution has met rounding."""


class NewtonLoop:
    """One solve. ``run`` may be called once; it always returns a Solution, also after Ctrl-C.

    exact: see :class:`~trajopt.solvers.shooting.newton.newton_model.NewtonModel`.
    """

    def __init__(
        self,
        ocp: OCP,
        evaluator: Evaluator,
        options: SLQOptions,
        callback: Callback | None,
        lq_solver: LQSolver,
        exact: Evaluator | None = None,
    ) -> None:
        self.ocp, self.evaluator, self.options, self.lq_solver = ocp, evaluator, options, lq_solver
        self.journal = Journal(callback)
        self.model = NewtonModel(evaluator, exact, lq_solver, self.journal)
        self.shooting = Shooting.every("all", ocp.horizon, "linear")
        self.barrier: Barrier | None = None
        self.policy: Policy | None = None
        self.point: Point | None = None
        self.last_delta = 0.0
        self.iteration = self.restored = self.idle = self.short = self.plain = 0
        self.least, self.change = np.inf, 0.0

    def run(self, guess: Guess) -> Solution:
        """Iterate from a guess until a test fires."""
        self.began = time.perf_counter()
        with np.errstate(all="ignore"):  # non-finite numbers are found and reported, not warned about
            try:
                status = self._solve(guess)
            except KeyboardInterrupt:
                status = self._verdict(End.INTERRUPTED)
            return self._solution(status, guess)

    def _verdict(self, end: End, refused: tuple[Array, Expansion] | None = None) -> Status:
        """The words for an end; refused: a guess whose expansion is not finite."""
        at, errors = self.point, (np.nan, np.nan, np.nan)
        if at is not None:
            refused, errors = (at.xs, at.expansion), (at.gradient, at.defect, at.kkt)
        ended = Ended(end, self.iteration, *errors, self.change)
        return verdict(ended, self.options, lambda: Blamed(self.ocp, *refused))  # type: ignore[misc]

    def _solve(self, guess: Guess) -> Status:
        xs, us = np.array(guess.xs, dtype=float), np.array(guess.us, dtype=float)
        xs[0] = self.ocp.x0
        if self.ocp.control_bounds is not None:
            us = interior(us, self.ocp.control_bounds)
        start = self._start(xs, us)
        if isinstance(start, Status):
            return start
        self.point = start
        self.filter = Filter(max(1.0, start.theta), largest=WIDE)
        while (end := self._ends()) is None:
            pass
        status = self._verdict(end)
        if self.barrier is not None and status.success:
            self.point = self._on_bounds(self.point, self.barrier)
        self._record(self.point)
        return status

    # -- iterates -------------------------------------------------------------------------------------------------------
    def _start(self, xs: Array, us: Array) -> Point | Status:
        """The guess, with the gains of its LQ problem for the first costates."""
        with self.journal.timed("derivatives"):
            e = self.evaluator.expand(xs, us)
            at = e if self.model.alike else self.model.expanded(xs, us)
        if not self._finite(e) or not self._finite(at):
            return self._refused(xs, e if not self._finite(e) else at)
        if self.ocp.control_bounds is not None:
            self.barrier = Barrier.of(self.ocp.control_bounds, us, e.cost)
        with self.journal.timed("backward"):
            delta = 0.0
            while self.policy is None and delta < LARGEST:
                policy = self.lq_solver.solve_riccati(damped(self._imposed(e.lq, us), delta))
                self.policy = policy if policy.failed_at is None and np.isfinite(policy.K).all() else None
                delta = max(FIRST, LEAP * delta)
            return self._measured(xs, us, at)

    def _finite(self, e: Expansion) -> bool:
        return is_finite(e, self.lq_solver)

    def _refused(self, xs: Array, e: Expansion) -> Status:
        self.journal.refused()
        return self._verdict(End.NOT_FINITE, (xs, e))

    def _measured(self, xs: Array, us: Array, e: Expansion) -> Point:
        """The point, with costates under the last gains."""
        at = self.lq_solver.stationarity(self._forced(e.lq), None if self.policy is None else self.policy.K)
        defect = float(np.abs(e.lq.d).max(initial=0.0))
        gradient = float(np.abs(at.gradient).max(initial=0.0))
        point = Point(xs, us, e, at, gradient, defect, float(np.abs(e.lq.d).sum()), np.inf)
        return point._replace(kkt=self._error(point, 0.0))

    def _forced(self, lq: LQProblem) -> LQProblem:
        """The problem whose gradient is that of the Lagrangian."""
        return lq if self.barrier is None else lq._replace(r=lq.r + self.barrier.force())

    def _error(self, at: Point, mu: float) -> float:
        """The scaled measure, with complementarity at mu."""
        product = 0.0 if self.barrier is None else self.barrier.complementarity(at.us, mu) / size(at.cost)
        return max(_relative(at), product, at.defect)

    def _phi(self, cost: float, us: Array) -> float:
        return cost if self.barrier is None else cost + float(self.barrier.value(us))

    def _imposed(self, lq: LQProblem, us: Array) -> LQProblem:
        return lq if self.barrier is None else self.barrier.imposed(lq, us)

    # -- one iteration --------------------------------------------------------------------------------------------------
    def _ends(self) -> End | None:
        """One iteration, if the solve is not at its end: that end, or None."""
        assert self.point is not None
        end = self._finished(self.point)
        return self._advance(self.point) if end is None else end

    def _finished(self, at: Point) -> End | None:
        o = self.options
        if self._stop(at) <= 1.0 or (at.kkt <= o.kkt_tolerance and at.defect <= o.defect_tolerance):
            return End.OPTIMAL
        if self.iteration >= o.max_iterations:
            return End.MOST_ITERATIONS
        late = o.time_limit is not None and time.perf_counter() - self.began > o.time_limit
        return End.OUT_OF_TIME if late else None

    def _stop(self, at: Point) -> float:
        """The largest of gradient, complementarity and gaps, each by its tolerance."""
        o = self.options
        product = 0.0 if self.barrier is None else self.barrier.complementarity(at.us, 0.0)
        return max(max(at.gradient, product) / o.gradient_tolerance, at.defect / o.defect_tolerance)

    def _advance(self, at: Point) -> End | None:
        """One iteration: a direction, a search along it, the next point."""
        if self.barrier is not None:
            while self.barrier.lowered(self._error(at, self.barrier.mu), size(at.cost)):
                self.filter.pairs.clear()
        found = self._step(at)
        if found is None:
            return self._restore(at)
        start, stop = (at.theta, self._phi(at.cost, at.us)), self._stop(at)
        if not self.filter.decides_by_cost(start, found.slope * found.alpha):
            self.filter.add(start)
        new = self._next(at, found)
        self._record(at, found, stop)
        self.iteration += 1
        self.point = new
        return self._judge(at, new, found)

    def _next(self, at: Point, found: Found) -> Point:
        with self.journal.timed("derivatives"):
            e = self.model.expanded(found.xs, found.us)
        if self.barrier is not None:
            self.barrier.stepped(at.us, found.linear.du, found.us)
        self.policy = found.policy
        with self.journal.timed("backward"):
            return self._measured(found.xs, found.us, e)

    def _judge(self, at: Point, new: Point, found: Found) -> End | None:
        """The end, if the solve ends here: at a small change of the cost if asked, or where rounding rules."""
        o, change = self.options, abs(at.cost - new.cost)
        if change < o.cost_tolerance * abs(new.cost) and new.defect <= o.defect_tolerance:
            self.change = change / abs(new.cost)
            return End.CHEAPER
        better = new.kkt < BETTER * self.least or abs(found.expected) > LITTLE * size(at.cost)
        self.least, self.idle = min(self.least, new.kkt), 0 if better else self.idle + 1
        return End.ROUNDED if self.idle > STALLED else None

    def _step(self, at: Point) -> Found | None:
        """A step that the filter accepts; None if there is none. Where short ones follow each other, damped ones compete."""
        found, exact, shares = None, None, self.model.shares
        if len(shares) > 1 and self.plain > 0 and _relative(at) > FAR:
            self.plain -= 1
            found = self._damped_step(at, at.expansion.lq, shares[-1:], 0.0)
        if found is None:
            exact = self.model.exact(at)
            found = self._damped_step(at, exact, shares, 0.0)
            self.plain = PLAIN if found is not None and found.share == 0.0 else 0
        self.short = self.short + 1 if found is not None and self._is_short(at, found) else 0
        self.plain = 0 if found is None or self.short else self.plain
        if found is None or self.short < PATIENCE:
            return found
        best, delta, before = found, found.delta, self.last_delta
        exact = self.model.exact(at) if exact is None else exact
        for _ in range(RIVALS):
            rival = self._damped_step(at, exact, shares[:1], self._raised(delta))
            if rival is None:
                break
            best, delta = min(best, rival, key=lambda step: step.merit(at)), rival.delta
            if not self._is_short(at, rival):
                break
        self.last_delta = best.delta or before
        return best

    def _damped_step(self, at: Point, exact: LQProblem, shares: tuple[float, ...], delta: float) -> Found | None:
        """A step that the filter accepts, with more damping than delta until there is one."""
        while delta < LARGEST:
            share, policy, lq = self.model.convex(at, exact, shares, delta, self.barrier)
            if policy is not None:
                found = self._searched(at, lq, policy, delta, share)
                if found is not None:
                    self.last_delta = delta or self.last_delta * DECAY
                    return found
                if self._at_rounding(at, lq, policy):
                    return None
                shares = (share,)
            delta = self._raised(delta)
        return None

    def _is_short(self, at: Point, found: Found) -> bool:
        longest = 1.0 if self.barrier is None else self.barrier.longest(at.us, found.linear.du)
        return found.alpha <= SHORT * longest

    def _raised(self, delta: float) -> float:
        if delta == 0.0:
            return max(FIRST, DECAY * self.last_delta)
        return delta * (GROWTH if self.last_delta else LEAP)

    def _searched(self, at: Point, lq: LQProblem, policy: Policy, delta: float, share: float) -> Found | None:
        """The first of the steps 1, 1/2, ... that the filter accepts; the full one is tried alone."""
        with self.journal.timed("backward"):
            linear, (slope, _) = self.lq_solver.forward(lq, policy)
        longest = 1.0 if self.barrier is None else self.barrier.longest(at.us, linear.du)
        alphas = longest * 0.5 ** np.arange(self.options.max_backtracks + 1)
        start = (at.theta, self._phi(at.cost, at.us))
        for chosen in (alphas[:1], alphas[1:]):
            if not len(chosen):
                continue
            with self.journal.timed("rollout"):
                tried = self.evaluator.rollout(
                    at.xs, at.us, Direction(*linear, policy.K, at.expansion.lq.d), chosen, self.shooting
                )
            for i, alpha in enumerate(chosen):
                new = self._pair(tried, i)
                if np.isfinite(new).all() and self.filter.accepts(start, new, slope * alpha):
                    numbers = float(alpha), -slope * float(alpha), start[1] - new[1]
                    return Found(policy, linear, slope, delta, share, tried.xs[i], tried.us[i], *numbers, *new)
        return None

    def _pair(self, tried: Candidates, i: int) -> tuple[float, float]:
        """theta and phi of a candidate."""
        if not np.isfinite(tried.xs[i]).all():
            return np.inf, np.inf
        return float(np.abs(tried.defects[i]).sum()), self._phi(float(tried.cost[i]), tried.us[i])

    def _at_rounding(self, at: Point, lq: LQProblem, policy: Policy) -> bool:
        """Whether a step promises no more than rounding."""
        with self.journal.timed("backward"):
            _, (slope, _) = self.lq_solver.forward(lq, policy)
        return abs(slope) <= AT_ROUNDING * abs(self._phi(at.cost, at.us)) and at.defect <= self.options.defect_tolerance

    def _restore(self, at: Point) -> End | None:
        """Go on from the roll-out of the last policy, without gaps; or the end."""
        if at.kkt <= SOLVED or at.theta == 0.0 or self.restored >= MAX_RESTORED:
            return self._no_progress(at)
        self.restored += 1
        gaps = at.expansion.lq.d
        K = np.zeros((*at.us.shape, gaps.shape[1])) if self.policy is None else self.policy.K
        still = Direction(np.zeros_like(at.expansion.lq.q), np.zeros_like(at.us), K, gaps)
        with self.journal.timed("rollout"):
            tried = self.evaluator.rollout(at.xs, at.us, still, np.zeros(1), Shooting((), "linear"))
        if not (np.isfinite(tried.cost[0]) and np.isfinite(tried.xs[0]).all()):
            return self._no_progress(at)
        us = tried.us[0] if self.barrier is None else interior(tried.us[0], (self.barrier.lower, self.barrier.upper))
        with self.journal.timed("derivatives"):
            e = self.model.expanded(tried.xs[0], us)
        if not self._finite(e):
            return self._no_progress(at)
        self._record(at)
        self.iteration += 1
        if self.barrier is not None:
            self.barrier.z = self.barrier.mu / self.barrier.slacks(us)
        with self.journal.timed("backward"):
            self.point = self._measured(tried.xs[0], us, e)
        self.filter = Filter(max(1.0, self.point.theta), largest=WIDE)
        return None

    def _on_bounds(self, at: Point, barrier: Barrier) -> Point:
        """The point with controls on the bounds that hold them, its motion rolled out; itself where that spoils it."""
        us, held = barrier.snapped(at.us)
        K = np.where(held[:, :, None], 0.0, 0.0 if self.policy is None else self.policy.K)
        self.policy = None if self.policy is None else self.policy._replace(K=K)
        still = Direction(np.zeros_like(at.expansion.lq.q), np.zeros_like(us), K, at.expansion.lq.d)
        with self.journal.timed("rollout"):
            tried = self.evaluator.rollout(at.xs, us, still, np.zeros(1), Shooting((), "linear"))
        if not abs(tried.cost[0] - at.cost) <= SOLVED * abs(at.cost):
            return at
        with self.journal.timed("derivatives"):
            e = self.model.expanded(tried.xs[0], tried.us[0])
        with self.journal.timed("backward"):
            new = self._measured(tried.xs[0], tried.us[0], e) if self._finite(e) else at
        return new if new.kkt <= max(SOLVED, at.kkt) else at

    def _no_progress(self, at: Point) -> End:
        if at.kkt <= NEARLY_SOLVED * SOLVED and at.defect <= NEARLY_SOLVED * self.options.defect_tolerance:
            return End.ROUNDED
        return End.NO_STEP

    # -- the account ----------------------------------------------------------------------------------------------------
    def _record(self, at: Point, found: Found | None = None, stop: float | None = None) -> None:
        """Tell of a point and the step from it, if there was one; stop: that of the point, if multipliers have moved since."""
        length = 0.0 if found is None else max(float(np.abs(part).max(initial=0.0)) for part in found.linear)
        self.journal.add(
            lambda: (at.xs, at.us),
            iteration=self.iteration,
            cost=at.cost,
            merit=self._phi(at.cost, at.us),
            stop=self._stop(at) if stop is None else stop,
            gradient=at.gradient,
            regularization=0.0 if found is None else found.delta,
            step_norm=0.0 if found is None else found.alpha * length,
            defect=at.defect,
            constraint_violation=0.0,
            expected_decrease=0.0 if found is None else found.expected,
            actual_decrease=0.0 if found is None else found.actual,
            step_length=0.0 if found is None else found.alpha,
            hessian=name(None if found is None else found.share),
            kkt=at.kkt,
        )

    def _solution(self, status: Status, guess: Guess) -> Solution:
        N, ndx, nu = self.ocp.horizon, self.ocp.manifold.ndx, self.ocp.nu
        (xs, us), cost = guess, float("nan")
        K, k = np.zeros((N, nu, ndx)), np.zeros((N, nu))
        if self.point is not None:
            xs, us, cost = self.point.xs, self.point.us, self.point.cost
            exact, shares = self.model.exact(self.point), self.model.shares
            _, policy, _ = self.model.convex(self.point, exact, shares, 0.0, self.barrier)
            policy = policy or self.policy
            K, k = (K, k) if policy is None else (policy.K, policy.k)
            if self.barrier is not None:
                held = self.barrier.snapped(us)[1]
                K, k = np.where(held[:, :, None], 0.0, K), np.where(held, 0.0, k)
        return Solution(xs, us, K, k, status, cost, self.iteration, self.journal.history(), self.ocp.times)


def _relative(at: Point) -> float:
    """The largest entry of the gradient, relative to the size of its terms."""
    return float(np.abs(scaled(at.optimality, at.optimality.gradient)).max(initial=0.0))
