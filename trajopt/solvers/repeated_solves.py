"""Repetitions of a solve: goals relaxed by rounding, margins between the knots, detours of the guess, and more substeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from trajopt.guesses.guesses import WarmStart, detour
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.direct.program_parts import may_expand_again
from trajopt.solvers.goal_tolerance import with_goal_tolerance, with_goals_of
from trajopt.solvers.methods.delegation import Continued, iterations_of, not_begun
from trajopt.solvers.registry import DEFAULT_SOLVER, SOLVERS
from trajopt.solvers.scaling import SCALED, Scaling
from trajopt.solvers.solution_checks import checked, violations_between_knots
from trajopt.solvers.success import AFTER_MARGINS, sentences_of_checks, with_descent
from trajopt.solvers.time_limits import enough_time, interrupting, start_of_solve
from trajopt.validation.between_knots import may_be_violated
from trajopt.validation.limit_violations import impossible_goal

DETOURS = 8
"""Maximum number of solves of ``auto`` from detours of a guess whose motion violates inequalities between the knots."""


class RepeatedSolves:
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
        failed check. check: also check the solution. margins: allow tightened inequalities if the option between_knots is set. The
        returned problem has relaxed goals or more substeps if these were needed.
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
            Margins(ocp, partial(violations_between_knots, ocp, self._options), self.has_time, near_only=near_only),
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
