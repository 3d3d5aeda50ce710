"""A primal-dual interior-point method on the stages of an optimal control problem, by multiple shooting.

    minimize    f(x, u) - mu sum log (v - l) - mu sum log (u - v)    subject to   F_k(x_k, u_k) (-) x_(k+1) = 0,  g - s = 0,  e = 0

for mu that goes to zero: the primal-dual Newton system, solved along the horizon (:mod:`trajopt.solvers.ipm.newton`); a line
search on a filter of the violation and the barrier's objective with second-order corrections; where it finds no step, steps for
feasibility alone (:mod:`trajopt.solvers.ipm.feasibility`).  A. Waechter, L. T. Biegler, On the implementation of an
interior-point filter line-search algorithm for large-scale nonlinear programming, Math. Program. 106, 2006; the structure is used
as by C. V. Rao, S. J. Wright, J. B. Rawlings, J. Optim. Theory Appl. 99, 1998, and in FATROP (L. Vanroye et al., IROS 2023).

States on a Lie group are moved by their retraction and every linear system is about the iterate: no charts, no second derivatives
of them.  Each record is of the iterate at its start and of the step taken from there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.barrier_rules import KAPPA_EPS, KAPPA_SIGMA, NEAR, NEAR_PUSH, PUSH, TAU
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.ipm import ends
from trajopt.solvers.ipm.barrier import Barrier
from trajopt.solvers.ipm.compiled_ipm import GO_ON, InteriorLoop
from trajopt.solvers.ipm.ends import End
from trajopt.solvers.ipm.feasibility import BACK, HOPELESS, LEAST_VIOLATION, STUCK, Restoration
from trajopt.solvers.ipm.line_search import CREEPING, CREPT, Accepted, BarrierFilter, BarrierProblem, LineSearch, Start
from trajopt.solvers.ipm.measure import STEEPEST, Optimality
from trajopt.solvers.ipm.named_multipliers import by_name, from_names, of_start
from trajopt.solvers.ipm.newton import LARGEST_ESTIMATE, Step
from trajopt.solvers.ipm.stage_program import Point, StageProgram
from trajopt.solvers.ipm.workspace import Workspace, workspace
from trajopt.solvers.options import IPMOptions
from trajopt.stage.kept import Kept, borrowed

PARTLY = 1
"""So many restorations may end at points that the filter takes; later ones go on to feasible points, or one of least violation."""


def ipm(
    ocp: OCP,
    guess: Guess,
    options: IPMOptions | None = None,
    callback: Callback | None = None,
    multipliers: Mapping[str, Array] | None = None,
    kept: Kept | None = None,
) -> Solution:
    """Solve a valid problem from a guess, whose states need not satisfy the dynamics.

    multipliers: of an earlier solution of the same structure; with a small ``barrier`` they make a warm start. kept: what earlier
    solves of this structure have left, default what the thread has kept. Raises CompilerError without a C compiler,
    MissingCapability for hessian = "exact" where a time step has no second derivatives.
    """
    options = options or IPMOptions()
    with (
        borrowed(ocp, kept) as own,
        np.errstate(all="ignore"),
    ):  # non-finite numbers are found and reported, not warned about
        room = prepared(ocp, guess, options, own)
        run = _Run(room, guess, options, callback, multipliers)
        found = run.solve()
        final = room.program.final_equalities(run.point)
        return replace(found, K=tracking_gains(ocp, found.xs, found.us, final, room.feedback()))


def prepared(ocp: OCP, guess: Guess, options: IPMOptions, kept: Kept | None = None) -> Workspace:
    """All that a solve needs before its first iteration."""
    return workspace(kept, ocp, np.asarray(guess.us, dtype=float), options.hessian)


def solve_program(
    program: StageProgram,
    guess: Guess,
    options: IPMOptions,
    callback: Callback | None = None,
    multipliers: Mapping[str, Array] | None = None,
) -> Solution:
    """Solve a problem given by its stages; the solution has no gains."""
    with np.errstate(all="ignore"):  # non-finite numbers are found and reported, not warned about
        return _Run(Workspace(program), guess, options, callback, multipliers).solve()


class _Run:
    """One solve."""

    def __init__(
        self,
        room: Workspace,
        guess: Guess,
        options: IPMOptions,
        callback: Callback | None,
        multipliers: Mapping[str, Array] | None,
    ) -> None:
        program = room.program
        self.ocp, self.guess, self.options, self.given = program.ocp, guess, options, multipliers
        self.journal = Journal(callback)
        self.program, self.kernels, self.system, self.measures = program, room.kernels, room.system, room.measures
        (self.point, self.other), self.z, (self.step, self.spare) = room.points, room.z, room.steps
        self.barrier = Barrier(options.barrier, options.gradient_tolerance, options.barrier_strategy == "adaptive")
        self.search = LineSearch(program, self.system, self.measures, self.journal)
        self.loop, self.points = room.loop(), room.points
        self.scale, self.objective, self.iteration = 1.0, float("nan"), 0
        self.restorations, self.crept, self.hopeless = 0, 0, False
        self.began = time.perf_counter()

    # -- the solve ------------------------------------------------------------------------------------------------------
    def solve(self) -> Solution:
        """Iterate to an end, or to that of the user's patience."""
        status = ends.crossed_bounds(self.program)
        try:
            if status is None:
                status = self._started() if self.loop is None else self._begun(self.loop)
            while status is None:
                status = self._iterated() if self.loop is None else self._called(self.loop)
        except KeyboardInterrupt:
            status = termination.interrupted(self.iteration)
        return self._solution(status)

    def _started(self) -> Status | None:
        """Place the guess within its bounds, and find multipliers; a status where something is not finite."""
        p, o = self.point, self.options
        self.program.place(p, self.guess.xs, self.guess.us)
        push = NEAR_PUSH if o.barrier < NEAR else PUSH
        self._push(p, push, slacks=False)
        with self.journal.timed("derivatives"):
            self.objective = self.program.first(p)
        self._push(p, push, slacks=True)
        with self.journal.timed("backward"):
            self.at = self.measures.violation(p)
        if not np.isfinite(self.objective + self.at.theta):
            self.journal.refused()
            return ends.non_finite(self.program, self.guess)
        steepest = max(float(np.abs(p.lx[1:]).max(initial=0.0)), float(np.abs(p.lu).max(initial=0.0)))
        self.scale = min(1.0, STEEPEST / steepest) if steepest > 0.0 else 1.0
        with self.journal.timed("backward"):
            self._start_multipliers()
        self.search.restart(self.at.theta)
        return None

    def _push(self, p: Point, push: float, slacks: bool) -> None:
        self.kernels.push(self.program.ref, address(p.g) if slacks else None, push, push, address(p.v))

    def _start_multipliers(self) -> None:
        z, p, program = self.z, self.point, self.program
        bounded = np.isfinite(program.lower), np.isfinite(program.upper)
        if self.given:
            from_names(program, self.given, self.scale, z)
        mu = self.barrier.mu
        for own, distance, is_bounded in (
            (z.zl, p.v - program.lower, bounded[0]),
            (z.zu, program.upper - p.v, bounded[1]),
        ):
            if self.given or self.options.barrier < NEAR:
                np.copyto(own, np.maximum(own, mu / distance), where=is_bounded)
            else:  # on wide bounds no more than mu asks for: their products would set the barrier's first mean
                np.copyto(own, np.minimum(1.0, mu / distance), where=is_bounded)
            own[~is_bounded] = 0.0
        if not self.given:
            self._estimate()

    def _estimate(self) -> None:
        """Least-squares multipliers, or zero ones."""
        z, found = self.z, self.step.z
        self.system.estimate(self.point, z, self.scale, self.step)
        arrays = ((z.lam, found.lam), (z.y, found.y), (z.f, found.f))
        largest = np.max([np.abs(new).max(initial=0.0) for _, new in arrays])  # NaN if any is
        for own, new in arrays:
            own[:] = new if largest <= LARGEST_ESTIMATE else 0.0

    # -- in C -----------------------------------------------------------------------------------------------------------
    def _begun(self, loop: InteriorLoop) -> Status | None:
        """The start; a status where something is not finite."""
        loop.prepare(self.options, np.zeros(3, np.int64))
        finite = loop.begin(self.guess.xs, np.where(self.program.held, self.program.held_at, self.guess.us))
        self._look_at(loop)
        if not finite:
            self.journal.refused()
            return ends.non_finite(self.program, self.guess)
        if self.given:
            from_names(self.program, self.given, self.scale, self.z)
        with self.journal.timed("backward"):
            loop.multipliers(bool(self.given))
        return None

    def _called(self, loop: InteriorLoop) -> Status | None:
        """One iteration, which takes the step that the last one has found and told of; a status where it is the last."""
        try:
            end = loop.iterate()
        finally:  # Ctrl-C during the call is raised behind it
            self._look_at(loop)
        now, state = loop.now, loop.state
        if end == GO_ON:
            self._record(now, state.alpha, state.size)
            self.iteration = state.iteration  # with the step told of, which the next call takes
            return None
        self.iteration = state.iteration
        if end not in (End.NO_STEP, End.CREEPS):
            self._record(now, 0.0, 0.0)
            return self._status(End(end), now)
        self.search.filter = BarrierFilter(state.filter_scale)
        self.search.filter.pairs.extend(loop.pairs)
        status = self._restored(now, crept=end == End.CREEPS)
        loop.pairs = list(self.search.filter.pairs)
        state.iteration = self.iteration
        loop.go_to(self.points.index(self.point))
        with self.journal.timed("derivatives"):
            loop.resume()
        return status

    def _look_at(self, loop: InteriorLoop) -> None:
        """Where the last call led to."""
        state, place = loop.state, loop.place
        self.journal.spent(*loop.seconds)
        self.point, self.other = self.points[place], self.points[1 - place]
        self.scale, self.objective, self.at = state.scale, state.objective, loop.at
        self.barrier.mu = state.mu

    # -- an iteration ---------------------------------------------------------------------------------------------------
    def _iterated(self) -> Status | None:
        """One iteration; a status where it is the last."""
        p, z, barrier = self.point, self.z, self.barrier
        with self.journal.timed("backward"):
            now = self._measured()
        end = self._ended(now)
        if end is not None:
            self._record(now, 0.0, 0.0)
            return self._status(end, now)
        if barrier.watch(now.error, now.mean):
            self.search.restart(self.at.theta)
        if not barrier.free:
            with self.journal.timed("backward"):
                now = self._lowered(now)
        with self.journal.timed("derivatives"):
            self.program.second(p, self.scale, z)
        with self.journal.timed("backward"):
            step = self._direction(now)
        accepted = None
        if step is not None:
            with self.journal.timed("rollout"):
                problem = self._problem()
                start = Start(p, z, self.at, (self.at.theta, problem.merit(self.objective, self.at)))
                accepted = self.search.search(start, self.other, step, self.spare, problem)
        crept = accepted is not None and self._creeps(accepted.alpha, now)
        if accepted is None or crept:
            self.iteration += 1
            if crept or now.error > ends.ACCEPTABLE:
                return self._restored(now, crept=crept)
            self._record(now, 0.0, 0.0)
            return self._status(End.PRECISION, now)
        system = self.system
        system.curvature.watch(now.error, accepted.alpha, system.reflected > 0 or system.shift > 0.0)
        self._record(now, accepted.alpha, float(np.abs(accepted.step.v).max(initial=0.0)))
        self._take(accepted)
        self.iteration += 1
        return None

    def _measured(self) -> Optimality:
        return self.measures.optimality(self.point, self.z, self.at.largest, self.scale, self.barrier.mu)

    def _lowered(self, now: Optimality) -> Optimality:
        """Lower mu as long as the barrier problem is solved well enough."""
        barrier = self.barrier
        while now.barrier_error <= KAPPA_EPS * barrier.mu and barrier.lowered() < barrier.mu:
            barrier.mu = barrier.lowered()
            self.search.restart(self.at.theta)
            now = self._measured()
        return now

    def _tau(self) -> float:
        return max(TAU, 1.0 - self.barrier.mu)

    def _problem(self) -> BarrierProblem:
        return BarrierProblem(self.scale, self.barrier.mu, self._tau())

    def _direction(self, now: Optimality) -> Step | None:
        """The Newton step; with a free barrier, for the mu that a step for mu = 0 suggests."""
        p, z, system, barrier = self.point, self.z, self.system, self.barrier
        probing = barrier.free and now.products > 0
        system.condense(p, z, 0.0 if probing else barrier.mu, self.scale)
        if not system.factor():
            return None
        if not probing:
            return system.solve(p, z, self._tau(), self.step)
        limits, tau = barrier.range_of_sigma(now.mean), max(TAU, 1.0 - now.error)
        step, mu = system.centered(p, z, now, self.at.squares, limits, tau, self.spare, self.step)
        if mu != barrier.mu:
            self.search.restart(self.at.theta)
        barrier.mu = mu
        return step

    def _take(self, accepted: Accepted) -> None:
        """Move to an accepted point, whose values and first derivatives are known."""
        z, alpha, step = self.z, accepted.alpha, accepted.step
        self.point, self.other = self.other, self.point
        lengths = alpha, step.alpha_z, self.barrier.mu, KAPPA_SIGMA
        self.kernels.take(self.program.ref, self.point.at, step.z.ref, *lengths, z.ref)
        if not self.program.flat:
            self._carry(alpha * step.v)
        self.objective, self.at = accepted.objective, accepted.at

    def _carry(self, step: Array) -> None:
        """The multipliers of gaps, from the tangent spaces at the old nodes to those at the new ones."""
        n, N = self.program.n, self.program.N
        E = self.ocp.manifold.d_integrate(step[n : (N + 1) * n].reshape(N, n))[1]
        self.z.lam[:] = np.linalg.solve(E.transpose(0, 2, 1), self.z.lam[:, :, None])[:, :, 0]

    def _creeps(self, alpha: float, now: Optimality) -> bool:
        """Whether steps that were found have been short for long; the last one is left then."""
        self.crept = self.crept + 1 if alpha < CREPT and now.violation > self.options.constraint_tolerance else 0
        if self.crept < CREEPING:
            return False
        self.crept = 0
        return True

    def _restored(self, now: Optimality, *, crept: bool = False) -> Status | None:
        """Steps for feasibility alone; a status where they do not lead back.

        A solve that crept goes on from where it was then, and what this means is said at its end.
        """
        if crept and self.hopeless:
            return None
        restoration = Restoration(self.program, self.kernels, self.system, self.measures, self.journal)
        kept = self.point.v.copy(), self.point.xs.copy()
        if not crept:
            self.search.remember(self.at.theta, self.scale * self.objective + self.barrier.mu * self.at.barrier)
        self.restorations += not crept
        wholly = crept or (self.restorations > PARTLY and not self.hopeless)
        found = restoration.run(
            self.point,
            self.other,
            self.z,
            self.at,
            self.barrier.mu,
            self.search.filter,
            self.scale,
            max(self.options.max_iterations - self.iteration, 1),
            self._out_of_time,
            wholly=wholly,
        )
        self.iteration += found.iterations
        self.point, self.other = found.point, found.other
        self.objective, self.at = found.objective, found.at
        self._record(now, 0.0, 0.0)
        self.hopeless |= found.verdict == HOPELESS or (crept and found.verdict in (LEAST_VIOLATION, STUCK))
        if crept and self.hopeless:
            self.point.v[:], self.point.xs[:] = kept
            with self.journal.timed("derivatives"):
                self.objective = self.program.first(self.point)
            self.at = self.measures.violation(self.point)
            return None
        if found.verdict not in (BACK, HOPELESS):
            return ends.restoration_failed(found, self.program, self.iteration, self.options, hopeless=self.hopeless)
        if wholly:  # to a point that its pairs may refuse
            self.search.restart(self.at.theta)
        self._start_again()
        return None

    def _start_again(self) -> None:
        """Multipliers for a point that steps for feasibility have led to."""
        z, program, p, mu = self.z, self.program, self.point, self.barrier.mu
        for own, distance in ((z.zl, p.v - program.lower), (z.zu, program.upper - p.v)):
            np.copyto(own, np.minimum(mu / distance, LARGEST_ESTIMATE))
        with self.journal.timed("backward"):
            self._estimate()

    # -- the end --------------------------------------------------------------------------------------------------------
    def _ended(self, now: Optimality) -> End | None:
        o = self.options
        if not np.isfinite(now.error):
            return End.NOT_FINITE
        if now.error <= o.gradient_tolerance and now.violation <= o.constraint_tolerance:
            return End.CONVERGED
        if self.iteration >= o.max_iterations or self._out_of_time():
            return End.STOPPED
        if self.objective < ends.BOTTOM and now.violation <= o.constraint_tolerance:
            return End.UNBOUNDED
        return None

    def _status(self, end: End, now: Optimality) -> Status:
        """The status of an end other than NO_STEP and CREEPS."""
        if self.hopeless and end is End.STOPPED and now.violation > self.options.constraint_tolerance:
            return ends.locally_infeasible(self.program, self.point, self.iteration)
        errors = termination.Errors(now.error, now.gradient / self.scale, violation=now.violation)
        at = termination.Measured(self.iteration, errors, self.options.tolerances)
        return ends.status_of(end, at, self.objective, self.options, self.program, self.point)

    def _out_of_time(self) -> bool:
        limit = self.options.time_limit
        return limit is not None and time.perf_counter() - self.began > limit

    def _record(self, now: Optimality, alpha: float, size: float) -> None:
        o = self.options
        self.journal.add(
            lambda: (self.point.xs, self.point.us),
            iteration=len(self.journal.records),
            cost=self.objective,
            merit=self.objective + self.barrier.mu * self.at.barrier / self.scale,
            stop=max(now.error / o.gradient_tolerance, now.violation / o.constraint_tolerance),
            gradient=now.gradient / self.scale,
            regularization=self.system.shift,
            step_norm=alpha * size,
            defect=self.at.gap,
            constraint_violation=self.at.largest,
            expected_decrease=0.0,
            actual_decrease=0.0,
            step_length=alpha,
            hessian="mixed" if self.system.reflected else self.program.hessian,
            kkt=now.error,
        )

    def _solution(self, status: Status) -> Solution:
        ocp, p = self.ocp, self.point
        xs, us = (p.xs.copy(), p.us.copy()) if np.isfinite(self.objective) else (self.guess.xs, self.guess.us)
        N, m = self.program.N, self.program.m
        if ocp.control_bounds is not None:  # those of the program are relaxed
            us = np.where(self.program.held, us, np.clip(us, *ocp.control_bounds))
        multipliers = by_name(self.program, self.z, self.scale)
        multipliers["bounds on x"][0] = of_start(self.program, p, self.z, self.scale)
        return Solution(
            xs,
            us,
            np.zeros((N, m, self.program.n)),
            np.zeros((N, m)),
            status,
            self.objective,
            self.iteration,
            self.journal.history(),
            ocp.times,
            multipliers=multipliers,
            meta={"barrier": self.barrier.mu, "hessian": self.program.hessian},
        )
