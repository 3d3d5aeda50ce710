"""Functions ``solve`` and ``validate``: one solver run with its margins, repetitions and checks.

A solve validates the problem, runs the solver within its time limit, repeats it if goals contradict other constraints by rounding,
inequalities are violated between the knots, or the replay fails, and decides the status by the checks of
:mod:`trajopt.solvers.success`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import WarmStart, constant_guess, detour
from trajopt.problem.annotations import problem_annotations
from trajopt.problem.guess import Guess, Motion, as_guess
from trajopt.problem.ocp import OCP, Sampling, fitting
from trajopt.results.records import Callback
from trajopt.results.solution import LAST_CONTROL, Solution
from trajopt.results.status import STOPPED, Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.direct.program_parts import may_expand_again
from trajopt.solvers.goal_tolerance import with_goal_tolerance, with_goals_of
from trajopt.solvers.measures import FEASIBLE, Measures
from trajopt.solvers.methods.delegation import Continued, iterations_of, not_begun
from trajopt.solvers.options import (
    AutoOptions,
    DDPOptions,
    DMSOptions,
    IPMOptions,
    MethodOptions,
    SLQOptions,
    SQPOptions,
    scaled_kkt_tolerance,
)
from trajopt.solvers.scaling import SCALED, Scaling, scaling_of
from trajopt.solvers.shooting import shooting_diagnosis
from trajopt.solvers.success import (
    AFTER_MARGINS,
    Tolerances,
    assessed,
    cost_of_guess,
    sentences_of_checks,
    solver_measures,
    unchecked,
    with_descent,
    with_end_held,
)
from trajopt.solvers.time_limits import enough_time, interrupting, start_of_solve, timed_solve
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.not_compiled import gathered
from trajopt.stage.solver_cache import SolverCache, borrowed
from trajopt.step.other_backend import BackendChoice, on_library, with_backend
from trajopt.step.sensitivities import missing_curvature
from trajopt.validation.between_knots import BetweenKnots, between_knots, may_be_violated
from trajopt.validation.evaluation_warnings import explained
from trajopt.validation.holonomic_constraints import open_constraints, redundancy_notes
from trajopt.validation.limit_violations import durations_at_bounds, impossible_goal, weak_postures
from trajopt.validation.running_costs import has_quadrature_error, kinked_cost, quadrature_error
from trajopt.validation.stability import stability_warnings
from trajopt.validation.validation import (
    ERROR,
    START_TOLERANCE,
    WARNING,
    Finding,
    InvalidProblem,
    large_states,
    require_valid,
    tiny_bounds,
    tiny_distances,
    validate as findings_of,
)

if TYPE_CHECKING:
    from trajopt.validation.replay import Deviation, Replay
from trajopt.solvers.registry import DEFAULT_SOLVER, SOLVERS, chosen_options


def solve(
    ocp: OCP,
    guess: Motion | tuple[Array, Array] | None = None,
    options: AutoOptions | SLQOptions | DMSOptions | SQPOptions | Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    solver: str | None = None,
    *,
    backend: BackendChoice | None = None,
    warm_start: WarmStart | None = None,
    check: bool = True,
) -> Solution:
    """Solve an optimal control problem.

    guess: states and controls, such as those of a solution; default: that of the warm start, else x0 at every knot and zero
    controls. Angles on SO(2) are shifted by whole turns, so that they begin near x0 and do not jump.
    solver: name of a solver; default: "auto", or the solver of the given options. options: of the solver, as its dataclass or a
    mapping; a name that implies options ("gnms") overrides those of a dataclass.
    callback: called with an :class:`~trajopt.results.records.IterationRecord` after each iteration.
    backend: derivative method of all phases, in place of those of the problem: a name, or a mapping with "name", "engine" and
    options (:mod:`trajopt.step.other_backend`). warm_start: of an earlier solution.
    check: validate the problem before the solve, and decide the status by all checks of :mod:`trajopt.solvers.success`: feasible,
    optimal, confirmed by a replay with finer time steps, goals met. Use False in loops that solve one problem repeatedly with
    other values: the status then covers feasibility and optimality only, by the numbers of the solver, and "auto" starts from the
    guess alone and does not solve again with margins or more substeps. The shapes of x0 and of the guess are always validated.

    Systems on vector spaces with very large or small numbers are scaled (:mod:`trajopt.solvers.scaling`).

    Raises UnknownName for a solver or option, :class:`~trajopt.validation.validation.InvalidProblem` with all errors found,
    ValueError for bad options, TypeError for arguments of a wrong type. Non-convergence is no exception: see ``Solution.status``.

    >>> import trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    >>> step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "semi_implicit_euler")
    >>> terminal = [to.state_cost(cart.manifold, [1.0, 0.0], 1e4)]
    >>> ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1, [to.control_cost(1)], terminal)
    >>> solution = to.solve(ocp, solver="slq")
    >>> solution.status.success, solution.iterations, bool(abs(solution.xs[-1, 0] - 1.0) < 0.01)
    (True, 1, True)
    """
    _require_problem(ocp)
    ocp = ocp if backend is None else with_backend(ocp, backend)
    name, chosen = chosen_options(solver, options)
    if warm_start is not None and not isinstance(warm_start, WarmStart):
        raise TypeError(
            f"warm_start is a {type(warm_start).__name__}; expected trajopt.WarmStart(guess, multipliers=...), or give it as guess"
        )
    warm = warm_start or WarmStart(constant_guess(ocp) if guess is None else as_guess(guess))
    if guess is not None:
        warm = replace(warm, guess=as_guess(guess))
    return _solved(ocp, warm, name, chosen, callback, check=check, margins=check)[0]


def solve_with_margins(
    ocp: OCP, warm: WarmStart, options: Any, callback: Callback | None = None, solver: str | None = None
) -> tuple[Solution, OCP]:
    """Solve without checks, but with margins between the knots if the options request them; return solution and solved problem.

    The solved problem has the margins, that is, tightened inequalities.
    """
    return _solved(ocp, warm, *chosen_options(solver, options), callback, check=False, margins=True)


def _solved(
    ocp: OCP,
    warm: WarmStart,
    solver: str,
    chosen: Any,
    callback: Callback | None,
    *,
    check: bool,
    margins: bool,
) -> tuple[Solution, OCP]:
    """Solve a problem, with repeated solves, checks and metadata; return the solution and the problem with margins.

    That is the problem whose inequalities are tightened because the option between_knots is set; later solves of "auto" with
    checks may tighten others. If the problem was scaled, the inequalities are not tightened. chosen: the options of the solver.
    check: validate the problem and check the solution as in :func:`solve`. margins: allow solves with tightened inequalities if the
    option between_knots is set.
    """
    if isinstance(chosen, AutoOptions) and not check:
        chosen = replace(chosen, starts=1)
    approximated = approximated_hessian(ocp, solver, chosen)
    with gathered() as slow, timed_solve():
        warnings = _validated(ocp, warm.guess, solver, chosen, check)
        warm = replace(warm, guess=warm.guess._replace(xs=ocp.manifold.without_jumps(ocp.x0, warm.guess.xs)))
        scaling = scaling_of(ocp, warm.guess)
        numbers, start = (ocp, warm) if scaling is None else (scaling.problem(), scaling.warm_start(warm))
        shown = callback if scaling is None else scaling.callback(callback)
        solves = _Solves(solver, chosen, shown, lambda: replace(slow, parts=[*slow.parts]))
        found, problem, tight = solves.with_repetitions(numbers, start, check=check, margins=margins)
        found = found if check else unchecked(found, scaled_kkt_tolerance(chosen))
        solution = found
        if scaling is not None:
            solution, problem = solves.in_units(scaling, found, problem, check=check)
        elapsed, slow = solves.seconds, solves.work
        meta = {**solution.meta, **_meta(ocp, solver, dict(vars(chosen))), "solve_time": elapsed}
        meta["engines"] = slow.engines([s.backend.engine for s in _samplings(ocp)])
        meta["findings"] = [*warnings, *_findings(ocp, solution, check=check)]
        if check:
            meta["findings"] += _findings_on_numbers(numbers, solver, start.guess, found, scaling)
        meta["findings"] += [approximated] if approximated else []
        if slow.parts:
            meta["not_compiled"] = slow.sentences(elapsed)
        if ocp.in_scaled_time and np.isfinite(solution.xs).all():
            solution = replace(solution, times=ocp.times_of(solution.xs))
        annotations = problem_annotations(ocp) if check else ocp.annotations
        solution = replace(solution, meta=meta, model=ocp.model, annotations=annotations, problem=problem)
        if not check:
            solution = replace(solution, status=with_end_held(ocp, solution.status, solution.xs[-1]))
    if solution.status.code in _WITHOUT_OPTIMUM:
        approximated = approximated or no_curvature(ocp, solver, chosen, solution)
    status = _final_status(ocp, warm.guess, solution, approximated, check=check)
    return replace(solution, status=status), tight if scaling is None else problem


def _validated(ocp: OCP, guess: Guess, solver: str, options: Any, check: bool) -> list[str]:
    """Return the warnings about a problem and a guess; without ``check`` none, and only shapes and requirements are validated.

    Raises InvalidProblem for errors; ValueError for wrong shapes without ``check``.
    """
    if check:
        return [f.message for f in require_solvable(ocp, guess, solver, options)]
    _require_shapes(ocp, guess)
    _require(requirement_errors(ocp, solver, options))
    return []


def _findings_on_numbers(
    ocp: OCP, solver: str, guess: Guess, solution: Solution, scaling: Scaling | None
) -> Iterator[str]:
    """Yield findings about numbers below tolerances, and about a guess that was not left, of the problem as it was solved.

    scaling: that of ``ocp``, if it is a scaled problem.
    """
    still = bool(np.abs(solution.xs[-1] - ocp.x0).max() <= START_TOLERANCE)
    yield from _below_tolerances(ocp, scaling, distances=still)
    yield from _not_left(solver, ocp, guess, solution)


def _below_tolerances(ocp: OCP, scaling: Scaling | None, *, distances: bool = True) -> Iterator[str]:
    """Yield findings about bounds and, with ``distances``, about goals that are nearer than the tolerances of the checks.

    scaling: that of ``ocp``, if it is a scaled problem; sentences then say so.
    """
    unit = "" if scaling is None else ", in scaled numbers"
    yield from (f"{finding}{unit}" for finding in (*(tiny_distances(ocp) if distances else ()), *tiny_bounds(ocp)))


def _findings(ocp: OCP, solution: Solution, *, check: bool) -> Iterator[str]:
    """Yield findings about a solution; without ``check`` only those about free durations and margins."""
    status, finite = solution.status, bool(np.isfinite(solution.xs).all())
    if ocp.in_scaled_time and finite and status.code not in STOPPED:
        yield from durations_at_bounds(ocp, solution.xs, beyond_only=status.code is StatusCode.MAX_ITERATIONS)
    rise = solution.meta.get("margins_rise", 0.0)
    if status.success and rise > NOTABLE_RISE:
        yield (
            f"margins for the motion between the knots raised the cost by {100.0 * rise:.3g} %: shorter time steps (to.refine, or "
            "more knots) need smaller ones"
        )
    yield from _exploited_quadrature(solution)
    if check and not status.success and status.code is not StatusCode.INTERRUPTED:
        yield from redundancy_notes(ocp)
    if check and finite:
        yield from open_constraints(ocp, solution.xs)
        yield from weak_postures(ocp, solution.xs)


def _exploited_quadrature(solution: Solution) -> Iterator[str]:
    """Yield a finding if meta["quadrature_error"] is large: the solution may exploit the rectangle rule of the running costs."""
    excess = solution.meta.get("quadrature_error", 0.0)
    size = max(abs(solution.cost), OF_GUESS * abs(cost_of_guess(solution)))
    if solution.status.acceptable and excess > NOTABLE_EXCESS * size:
        yield (
            f"integrated along the motion, the cost is {solution.cost + excess:.4g} instead of {solution.cost:.4g} by the "
            "rectangle rule, which the solution may exploit: use shorter time steps (to.refine), or integrate the running cost in "
            "a state, and make that a terminal cost"
        )


def _final_status(ocp: OCP, guess: Guess, solution: Solution, approximated: str, *, check: bool) -> Status:
    """Return the status of a solution, with the first NaN or infinity named, and advice on the most likely reason of a failure.

    guess: of the solve. approximated: warning about a Hessian that is approximated or without curvature, "" for none.
    """
    status = explained(solution.status, ocp, solution.xs, solution.us)
    if ocp.in_scaled_time and status.code in (StatusCode.LOCALLY_INFEASIBLE, StatusCode.STALLED):
        limits = (f"{limit[0].upper()}{limit[1:]}." for limit in durations_at_bounds(ocp, solution.xs))
        status = replace(status, advice=" ".join([*limits, status.advice]))
    if approximated and status.code in _WITHOUT_OPTIMUM:
        status = replace(status, advice=f"{approximated[0].upper()}{approximated[1:]}.")
    if check and status.code in _OF_FUNCTIONS and (kink := kinked_cost(ocp, solution.xs, solution.us)):
        status = replace(status, advice=f"{status.advice} {kink}".lstrip())
    scaled = "scaling" in solution.meta
    if check and status.code in _OF_FUNCTIONS and not scaled and (units := large_states(ocp, guess.xs)):
        status = replace(status, advice=f"{status.advice} {units}".lstrip())
    if check and status.code in _OF_UNSTABLE_STEPS and (unstable := next(stability_warnings(ocp, extremes=True), "")):
        status = replace(status, advice=f"{unstable[0].upper()}{unstable[1:]}.")
    return status


_WITHOUT_OPTIMUM = (StatusCode.MAX_ITERATIONS, StatusCode.LINE_SEARCH_FAILED, StatusCode.ACCEPTABLE)
"""Statuses for which a poor Hessian is the most likely reason, if the Hessian is poor."""
_OF_FUNCTIONS = (*_WITHOUT_OPTIMUM, StatusCode.STALLED, StatusCode.NOT_POSITIVE_DEFINITE)
"""Statuses for which kinks of costs, or numbers of very different sizes, may be the reason."""
_OF_UNSTABLE_STEPS = (
    StatusCode.NOT_POSITIVE_DEFINITE,
    StatusCode.LINE_SEARCH_FAILED,
    StatusCode.MAX_ITERATIONS,
    StatusCode.STALLED,
    StatusCode.NON_FINITE,
    StatusCode.UNBOUNDED,
    StatusCode.DOES_NOT_HOLD,
)
"""Statuses for which unstable time steps at x0 are the most likely reason, if there are any."""


def _not_left(solver: str, ocp: OCP, guess: Guess, solution: Solution) -> Iterator[str]:
    """Yield a finding on a solution that may be a saddle point or a maximum; the solver ``auto`` leaves those itself.

    Such are solutions with an indefinite Hessian, and guesses at rest, unless the cost is least: zero, of squares alone.
    """
    if solver == DEFAULT_SOLVER or not solution.status.success:
        return
    from trajopt.solvers.auto_starts import is_unmoved
    from trajopt.solvers.competing_starts import is_at_rest

    if solution.meta.get("indefinite"):
        yield (
            "the Hessian of the Lagrangian is indefinite at the solution, which may be a saddle point or a maximum: use "
            "solver = 'auto', or another guess"
        )
    if not (is_at_rest(ocp, guess) and is_unmoved(ocp, solution, guess)):
        return
    if solution.cost > 0.0 or not all(term.squared for term in ocp.terms()):
        yield (
            "the solver did not leave the guess, which is a stationary point, and may be a saddle point or a maximum: change its "
            "controls, or use solver = 'auto'"
        )


NOTABLE_RISE = 0.01
"""Relative rise of the cost by margins between the knots above which a finding reports it."""
NOTABLE_EXCESS, OF_GUESS = 0.05, 1e-6
"""Excess of the integral of the running costs over their rectangle rule above which a finding reports it, relative to the cost, at
least to OF_GUESS times that of the guess. A cost that the rule overestimates is not exploited."""
DETOURS = 8
"""Maximum number of solves of ``auto`` from detours of a guess whose motion violates inequalities between the knots."""


class _Solves:
    """Solves by one solver and options.

    work: returns the record of parts that are not compiled. Attributes: seconds: total time of the solves without checks; work:
    that record after the last one.
    """

    def __init__(self, solver: str, options: Any, callback: Callback | None, work: Callable[[], Any]) -> None:
        self._solver, self._options, self._callback, self._work = solver, options, callback, work
        self._records = 0
        self.seconds, self.work = 0.0, work()

    def with_repetitions(self, ocp: OCP, warm: WarmStart, *, check: bool, margins: bool) -> tuple[Solution, OCP, OCP]:
        """Solve, and repeat the solve as needed; return the solution, its problem, and the problem with margins.

        The repetitions relax goals within their tolerance, add margins between the knots, and for the solver ``auto`` follow a
        failed check. check, margins: as in :func:`_solved`. The returned problem has relaxed goals or more substeps if these were
        needed.
        """
        options, held = self._options, ocp
        tolerance = max(2.0 * options.goal_tolerance, getattr(options, "constraint_tolerance", None) or 0.0)
        if check and (reason := impossible_goal(ocp, tolerance)):
            solution = replace(not_begun(ocp, warm.guess), status=termination.impossible(reason))
        else:
            solution = self.plain(ocp, warm)
            if self.has_time():
                solution, held = with_goal_tolerance(ocp, warm, solution, self.plain, options.goal_tolerance)
        solution, tight = self.with_margins(held, solution) if margins else (solution, held)
        if not check:
            return solution, held, tight
        solution = self.checked(held, solution, tight)
        if self._solver != DEFAULT_SOLVER:
            return solution, held, tight
        return *self._after_failed_check(held, warm.guess, solution), tight

    def in_units(self, scaling: Scaling, found: Solution, solved: OCP, *, check: bool) -> tuple[Solution, OCP]:
        """Return the solution of a scaled problem, and that problem, in the units of the problem.

        check: the solution was checked, and checks of it in these units give the amounts in sentences. The status is that of the
        scaled numbers.
        """
        problem = scaling.original(solved)
        solution = scaling.solution(found)
        problem, status = with_goals_of(problem, solution), solution.status
        if not check or not np.isfinite(solution.xs).all() or status.code in STOPPED:
            return replace(solution, status=replace(status, message=f"{status.message} {SCALED}")), problem
        meta = self.checked(problem, solution, problem).meta
        message, own = status.message, sentences_of_checks(meta) | {"impossible": impossible_goal(problem)}
        for key, sentence in (sentences_of_checks(solution.meta) | {"impossible": impossible_goal(solved)}).items():
            message = message.replace(sentence, own.get(key) or sentence) if sentence else message
        if measures := solution.meta.get("measures"):
            if measures["violation_ratio"] > 1.0 and own["violation"] not in message:
                message = f"{message} In the units of the problem, {own['violation']}."
            meta = {**meta, "measures": {**measures, "violation": own["violation"]}}
        return replace(solution, status=replace(status, message=f"{message} {SCALED}"), meta=meta), problem

    def _after_failed_check(self, ocp: OCP, guess: Guess, solution: Solution) -> tuple[Solution, OCP]:
        """Repeat a solve of ``auto`` whose checks failed, with margins, from detours and with more substeps.

        Returns the best solution, checked, and its problem.
        """
        solution = self.until_held_between_knots(ocp, solution)
        usable = solution.status.success or solution.status.code is StatusCode.VIOLATED_BETWEEN_KNOTS
        if usable and solution.meta.get("margins_at_all_knots"):
            solution = self.from_detours(ocp, guess, solution)
        solution, problem = self.until_replayed(ocp, solution)
        if solution.status.code is StatusCode.DOES_NOT_HOLD and self.may_repeat(ocp, solution):
            solution = self.from_detours(ocp, guess, solution)
        return solution, problem

    def has_time(self) -> bool:
        """Return True if there is no time limit, or at least the fraction ENOUGH_TIME of it is left."""
        return enough_time(self._options.time_limit, start_of_solve())

    def plain(self, ocp: OCP, warm: WarmStart, options: Any = None) -> Solution:
        """Run the solver once, interrupted at the time limit of the whole solve.

        The status of a failure whose objective fell far is "unbounded". Iteration numbers of records continue earlier runs. Adds
        to ``seconds`` and updates ``work``. options: default those of the object.
        """
        options = options or self._options
        callback = self._callback
        if callback is not None and self._records:
            callback = Continued(callback, self._records)
        began = time.perf_counter()
        solution = _within_limit(SOLVERS[self._solver][0], ocp, warm, options, callback)
        self.seconds += time.perf_counter() - began
        self._records += len(solution.history)
        self.work = self._work()
        return with_descent(ocp, warm.guess, solution)

    def with_margins(self, ocp: OCP, solution: Solution) -> tuple[Solution, OCP]:
        """Solve again with margins between the knots if ``between_knots`` is set; return the best solution and its problem.

        The arguments are returned unchanged if the option is False or no inequality can be violated between knots.
        """
        if not self._options.between_knots or not may_be_violated(ocp):
            return solution, ocp
        return self._with_margins(ocp, solution)

    def _with_margins(self, ocp: OCP, solution: Solution, *, near_only: bool = False) -> tuple[Solution, OCP]:
        """Solve again with larger and larger margins; return the best solution and its problem.

        near_only: margins near violations only, none at all knots.
        """
        from trajopt.solvers.refinement import Margins, consecutive_solves, with_near_barrier

        margins, options = (
            Margins(ocp, partial(_between_knots, ocp, self._options), self.has_time, near_only=near_only),
            with_near_barrier(self._options),
        )
        solutions = consecutive_solves(solution, margins, lambda again: self.plain(again.ocp, again.warm, options))
        found = margins.result(solutions, "margins", margins.rounds)
        rise = (found.cost - solution.cost) / max(abs(solution.cost), np.finfo(float).tiny)
        return replace(
            found, meta={**found.meta, "margins_at_all_knots": margins.everywhere, "margins_rise": float(rise)}
        ), margins.solved

    def until_held_between_knots(self, ocp: OCP, solution: Solution, *, near_only: bool = False) -> Solution:
        """Solve again with larger and larger margins while a checked solution violates inequalities between the knots only.

        The solves end if larger margins do not help. Returns the best solution, checked; the given solution for any other status,
        or if the option between_knots is set, as margins were then tried before. near_only: no margins at all knots.
        """
        if solution.status.code is not StatusCode.VIOLATED_BETWEEN_KNOTS or self._options.between_knots:
            return solution
        found, tight = self._with_margins(ocp, solution, near_only=near_only)
        if tight is ocp:  # no margin helped
            return replace(found, status=replace(found.status, advice=AFTER_MARGINS))
        return self.checked(ocp, found, tight)

    @staticmethod
    def may_repeat(ocp: OCP, solution: Solution) -> bool:
        """True if a solve took at most the work that a competition of starts may take, so that detours are affordable."""
        from trajopt.solvers.competing_starts import ALL_WORK, problem_size

        return solution.iterations * problem_size(ocp) <= ALL_WORK

    def from_detours(self, ocp: OCP, guess: Guess, solution: Solution) -> Solution:
        """Solve from random detours of the guess: margins left violations between the knots, or more substeps do not help.

        A guess that leads through a closed gap has no solution nearby, and a chaotic motion fails in every replay. At most DETOURS
        solves, each with margins as needed, until one succeeds; none without ``fallback``. Returns the cheaper one of that and the
        given solution, or the one that succeeds, with iterations and records of all.
        """
        if not self._options.fallback:
            return solution
        from trajopt.solvers.refinement import most_iterations

        rng, given, count, found = np.random.default_rng(0), solution, 0, solution
        once, limit = replace(self._options, starts=1, fallback=False), given.iterations + most_iterations(given)
        while count < DETOURS and self.has_time() and solution.iterations < limit:
            count += 1
            found = self.plain(ocp, WarmStart(detour(ocp, guess, rng)), once)
            if found.status.code is not StatusCode.INTERRUPTED:
                found = self.until_held_between_knots(ocp, self.checked(ocp, found, ocp), near_only=True)
            both = iterations_of(solution, found)
            solution = replace(solution, **both)
            if found.status.code is StatusCode.INTERRUPTED:
                return replace(solution, status=found.status)
            if not found.status.success:
                continue
            if given.status.success and given.cost <= found.cost:
                return solution
            message = f"{found.status.message} This solve began from detour {count} of the guess."
            return replace(found, status=replace(found.status, message=message), **both)
        if given.status.success or not count:
            return solution
        message = f"{given.status.message} Solves from {count} random detours of the guess did not succeed."
        return replace(solution, status=replace(given.status, message=message))

    def until_replayed(self, ocp: OCP, solution: Solution) -> tuple[Solution, OCP]:
        """Solve again with twice the substeps while the replay fails; return the best solution, checked, and its problem.

        solution: checked. Returned with ocp if no further solve runs.
        """
        from trajopt.solvers.refinement import Again, Substeps, consecutive_solves

        def solve_again(again: Again) -> Solution:
            """Solve once with margins, and check the solution."""
            found, tight = self.with_margins(again.ocp, self.plain(again.ocp, again.warm))
            return self.until_held_between_knots(again.ocp, self.checked(again.ocp, found, tight))

        substeps = Substeps(ocp, self.has_time)
        solutions = consecutive_solves(solution, substeps, solve_again)
        if len(solutions) == 1:
            return solution, ocp
        return substeps.result(solutions, "substeps", substeps.factor), substeps.solved

    def checked(self, ocp: OCP, solution: Solution, tight: OCP) -> Solution:
        """Return the solution with the status of the success checks; if the time limit ends them, a success becomes "time_limit".

        An interrupted solve is not checked. tight: the problem with margins that was solved.
        """
        found: Any = None
        limit = self._options.time_limit
        if solution.status.code is StatusCode.INTERRUPTED:
            return _without_replay(solution, "the solve was interrupted")
        if may_expand_again(ocp, limit):
            with interrupting(limit):
                found = checked(ocp, solution, self._options, tight)
        if found is not None:
            return found
        found = _without_replay(solution, f"time_limit = {limit:g} s left no time for it")
        return replace(found, status=termination.unchecked_at_limit(solution.status, limit))


def _without_replay(solution: Solution, reason: str) -> Solution:
    """Return the solution with the reason why its checks were left out."""
    return replace(solution, meta={**solution.meta, "replay": {"left_out": reason}})


def _within_limit(run: Any, ocp: OCP, warm: WarmStart, options: Any, callback: Callback | None) -> Solution:
    """Run a solver, interrupted after the time limit; return the guess if it was interrupted before its first iteration.

    An interruption at the limit has the status "time_limit".
    """
    limit, found = options.time_limit, None
    with interrupting(limit) as watchdog:
        found = run(ocp, warm, options, callback)
    found = not_begun(ocp, warm.guess) if found is None else found
    if watchdog is not None and watchdog.expired and found.status.code is StatusCode.INTERRUPTED:
        found = replace(found, status=termination.interrupted_at_limit(limit, found.iterations))
    return found


def approximated_hessian(ocp: OCP, solver: str, options: Any) -> str:
    """Return a warning if "auto", or IPM or SQP with hessian = "auto", approximates its Hessian, else "".

    They do if a time step has no second derivatives.
    """
    kinds = {AutoOptions: "gauss_newton", IPMOptions: "gauss_newton", SQPOptions: "scqp"}
    if type(options) not in kinds or getattr(options, "hessian", "auto") != "auto":
        return ""
    reason, kind = missing_curvature(ocp), kinds[type(options)]
    exact_later = type(options) is AutoOptions and missing_curvature(ocp, from_source=True) is None
    uses = "first uses" if exact_later else "uses"  # later attempts differentiate the source
    return (
        f"{reason}; until then {solver} {uses} hessian = {kind!r}, which may take many times the iterations"
        if reason
        else ""
    )


def no_curvature(ocp: OCP, solver: str, options: Any, solution: Solution) -> str:
    """Return a warning if a shooting solver without second derivatives of the dynamics has no curvature in some control, else "".

    The Hessian of the running cost, with the penalties of constraints, is zero in that control at all knots of the solution.
    """
    if not isinstance(options, SLQOptions) or isinstance(options, DDPOptions) or not np.isfinite(solution.xs).all():
        return ""
    if not may_expand_again(ocp, options.time_limit):
        return ""
    with _evaluators(ocp, options) as (traced, evaluator):
        R = evaluator(traced, with_costs=True).expand(solution.xs, solution.us).lq.R
    names = [ocp.control_names[i] for i in np.flatnonzero(~R.any(axis=(0, 2)))]
    if not names:
        return ""
    where = ", ".join([*names[:2], *(["..."] if names[2:] else [])])
    return (
        f"the Hessian of the running cost is zero in {where}, and {solver} omits the "
        "second derivatives of the dynamics; choose solver = 'auto', 'ipm' or 'ddp', or add a cost of the controls"
    )


def validate(ocp: OCP, guess: Guess | None = None, solver: str | None = None, options: Any = None) -> list[Finding]:
    """Return all findings about a problem, errors that prevent a solve and warnings.

    One warning names NaN or infinity of dynamics, costs or their derivatives along the guess, default x0 at every knot and zero
    controls. guess: validated if given. solver, options: as in :func:`solve`; missing derivatives that this solver needs are
    errors, reported only if there is no other error. Raises UnknownName for an unknown solver or option, ValueError for invalid
    options.
    """
    findings = findings_of(ocp, guess)
    if any(f.severity == ERROR for f in findings):
        return findings
    found = [*requirement_errors(ocp, *chosen_options(solver, options)), *findings]
    if any(f.severity == ERROR for f in found):
        return found
    start = as_guess(guess or constant_guess(ocp))
    scaling = scaling_of(ocp, start)
    numbers = ocp if scaling is None else scaling.problem()
    tiny = (Finding(WARNING, message) for message in _below_tolerances(numbers, scaling))
    return [*found, *tiny, *_non_finite(ocp, start)]


def _non_finite(ocp: OCP, guess: Guess) -> Iterator[Finding]:
    """Yield a warning that names the first NaN or infinity of the time steps or their derivatives along a guess, if any.

    Those of terms and constraints are among the other findings.
    """
    xs, us = as_guess(guess)
    with np.errstate(all="ignore"):
        expansion = StageEvaluator(ocp, engine="numpy").expand(xs, us)
    steps = expansion.x_next, expansion.lq.A, expansion.lq.B
    if not all(np.isfinite(values).all() for values in steps):
        status = termination.non_finite(shooting_diagnosis.non_finite_entry(ocp, xs, expansion))
        yield Finding(WARNING, f"along the guess: {status.message} {status.advice}")


def require_solvable(ocp: OCP, guess: Guess | None, solver: str, options: Any) -> list[Finding]:
    """Return the warnings about a problem and a guess.

    Raises InvalidProblem with all their errors or, if there are none, with those of this solver (:func:`requirement_errors`).
    """
    warnings = require_valid(ocp, guess)
    _require(requirement_errors(ocp, solver, options))
    return warnings


def _require(errors: list[Finding]) -> None:
    """Raise InvalidProblem with these errors, if there are any."""
    if errors:
        raise InvalidProblem(errors)


def _require_problem(given: Any) -> None:
    """Raise TypeError for objects other than an OCP, with the advice to pass .ocp if they have one."""
    if not isinstance(given, OCP):
        advice = "; solve its .ocp" if hasattr(given, "ocp") else ""
        raise TypeError(f"the problem is a {type(given).__name__}, not a trajopt.OCP{advice}")


def _require_shapes(ocp: OCP, guess: Guess) -> None:
    """Raise ValueError for wrong shapes of x0 or the guess, which compiled code does not check."""
    if np.shape(ocp.x0) != (ocp.manifold.nx,):
        raise ValueError(f"x0 has shape {np.shape(ocp.x0)}; expected (nx = {ocp.manifold.nx},)")
    fitting(ocp, guess.xs, guess.us)


def checked(ocp: OCP, solution: Solution, options: Any, solved: OCP | None = None) -> Solution:
    """Return a solution with the status of the checks (feasible, optimal, replay, between knots, goals), and results in meta.

    meta["quadrature_error"]: integral of the running costs minus their rectangle rule (:mod:`trajopt.validation.running_costs`), if
    the status is "converged" or "acceptable". options: of its solver. solved: the problem with margins that was solved, if it
    differs from ``ocp``.
    """
    tolerances = Tolerances(getattr(options, "constraint_tolerance", None) or 0.0, scaled_kkt_tolerance(options))
    limit = max(FEASIBLE, tolerances.constraints)
    found = solver_measures(solution, limit) if LAST_CONTROL in solution.meta else None
    between = partial(_between_knots, ocp, options, solution)
    solution = assessed(ocp, solution, tolerances, partial(_replay, ocp, options, solution), between, found, solved)
    return _with_quadrature_error(ocp, solution, options)


def _with_quadrature_error(ocp: OCP, solution: Solution, options: Any) -> Solution:
    """Return a checked solution with meta["quadrature_error"] if its status is "converged" or "acceptable"; see :func:`checked`."""
    if not solution.status.acceptable or LAST_CONTROL in solution.meta or not has_quadrature_error(ocp):
        return solution
    with _evaluators(ocp, options) as (served, evaluator):
        error = quadrature_error(ocp, solution.xs, solution.us, evaluator(served))
    return replace(solution, meta={**solution.meta, "quadrature_error": error})


def checked_motion(ocp: OCP, solution: Solution, options: Any) -> Solution:
    """Return a success of a batch with the status of the checks of its motion: replay, inequalities between knots, and goals.

    Whether it is feasible and optimal was decided by the numbers of its solver. meta["findings"]: on its running costs. options: of
    the solver.
    """
    between, replayed = partial(_between_knots, ocp, options, solution), partial(_replay, ocp, options, solution)
    found = assessed(ocp, solution, Tolerances(), replayed, between, Measures(None, 0.0, 0.0))
    return _with_finding(_with_quadrature_error(ocp, found, options))


def _with_finding(solution: Solution) -> Solution:
    """Return a checked solution whose meta["findings"] has that on its running costs, if any."""
    findings = [*solution.meta.get("findings", ()), *_exploited_quadrature(solution)]
    return replace(solution, meta={**solution.meta, "findings": findings})


def checked_afterwards(ocp: OCP, solution: Solution, options: Any, solved: OCP | None = None) -> Solution:
    """Return a solution of ``check=False`` with the status of the success checks, and in meta the findings on problem and costs.

    Goals count as relaxed if the solve relaxed them. Raises InvalidProblem if the problem has errors. options, solved: as in
    :func:`checked`.
    """
    findings = [*(f.message for f in require_valid(ocp)), *solution.meta.get("findings", ())]
    found = replace(solution, meta={**solution.meta, "findings": findings})
    return _with_finding(checked(with_goals_of(ocp, solution), found, options, solved))


def _replay(ocp: OCP, options: Any, solution: Solution, holds: Callable[[Deviation], bool]) -> Replay | str:
    """Return the replay of a finite trajectory on finer dynamics, or the reason why there is none (indivisible time steps).

    holds: test of a replay run; the first run that passes ends the replay.
    """
    from trajopt.validation.replay import replay, replay_first_order_hold

    if LAST_CONTROL in solution.meta:
        us = np.vstack([solution.us, solution.meta[LAST_CONTROL]])
        return replay_first_order_hold(ocp, solution.xs, us, solution.K, holds) or INDIVISIBLE
    with _evaluators(ocp, options) as (served, evaluator):
        found = replay(served, solution.xs, solution.us, solution.K, evaluator, holds)
    return INDIVISIBLE if found is None else found


def _between_knots(ocp: OCP, options: Any, solution: Solution) -> BetweenKnots | None:
    """Return the violations of a finite solution between its knots.

    Returns None with a first-order hold or without inequalities to check.
    """
    if LAST_CONTROL in solution.meta or not may_be_violated(ocp):
        return None
    with _evaluators(ocp, options) as (served, evaluator):
        return between_knots(ocp, solution.xs, solution.us, evaluator(served))


@contextmanager
def _evaluators(ocp: OCP, options: Any) -> Iterator[tuple[OCP, Callable[..., StageEvaluator]]]:
    """Yield the problem as it was traced for its solve, and a function that returns a stage evaluator of such problems.

    For shooting solvers that is the problem of the augmented Lagrangian, if there are constraints. The evaluator uses the cached
    stages of the solve; if these run in NumPy, the package's library evaluates the dynamics, without costs and constraints
    unless ``with_costs``.
    """
    from trajopt.stage.evaluators import cached_evaluator

    shooting = isinstance(options, SLQOptions)
    kind = options.hessian if shooting and not isinstance(options, DDPOptions) else "gauss_newton"
    if shooting and ocp.constraints():
        from trajopt.solvers.shooting.penalized import augmented

        ocp = augmented(ocp, options.constraint_penalty)  # as it was traced for the solve
    with borrowed(ocp) as own:

        def evaluator(other: OCP, *, with_costs: bool = False) -> StageEvaluator:
            """Return an evaluator of a problem from the cache; by the package's library if its stages run in NumPy."""
            cache = own
            if own is not None and other is not ocp:  # with slower contacts
                cache = own.prepared.setdefault("replay", SolverCache())
            made = cached_evaluator(cache, other, kind)
            return made if made.compiled or with_costs else StageEvaluator(on_library(other), kind, "auto")

        yield ocp, evaluator


INDIVISIBLE = "its time steps cannot be divided"
"""Reason why there is no replay of a problem with time steps that cannot be divided, such as discrete maps."""


def _meta(ocp: OCP, solver: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a solution: problem, solver, options, backends, schemes, names and model."""
    samplings = _samplings(ocp)
    model = None if ocp.model is None else {"name": ocp.model.name, "digest": ocp.model.digest}
    return {
        "problem": ocp.name,
        "solver": solver,
        "options": options,
        "backends": _unique(s.backend.name for s in samplings),
        "schemes": _unique(s.scheme for s in samplings),
        "state_names": list(ocp.state_names),
        "control_names": list(ocp.control_names),
        "model": model,
    }


def _samplings(ocp: OCP) -> list[Sampling]:
    """Return the integration methods of the phases; none for user-defined discrete dynamics."""
    return [s for s in (phase.dynamics.sampling for phase in ocp.phases) if s is not None]


def _unique(names: Iterable[str | None]) -> list[str]:
    """Return the names without duplicates and None, in order."""
    return list(dict.fromkeys(name for name in names if name is not None))


def requirement_errors(ocp: OCP, solver: str, options: Any) -> list[Finding]:
    """Return errors about second derivatives that a solver with these options needs and a backend lacks, with the remedy.

    Returns [] if none.
    """
    exact = getattr(options, "hessian", "") == "exact"
    sparse = isinstance(options, (DMSOptions, SQPOptions))  # these can differentiate the source itself
    needed = isinstance(options, DDPOptions) or (exact and (sparse or isinstance(options, (IPMOptions, MethodOptions))))
    reason = missing_curvature(ocp, from_source=sparse) if needed else None
    if reason is None:
        return []
    who = solver if isinstance(options, DDPOptions) else f"{solver} with hessian = exact"
    return [Finding(ERROR, f"{who} needs hessian_contraction: {reason}")]
