"""Solver ``auto`` from one or several starts, each a sequence of attempts of :mod:`trajopt.solvers.auto`.

In order: the best of competing starts if the guess is at rest (:mod:`trajopt.solvers.competing_starts`), else the guess; beside
the guess, or the solution, if this is a saddle point; other starts if no motion is feasible. In single solves with checks follow,
for every solver: goals relaxed within their tolerance if they contradict each other (:mod:`trajopt.solvers.goal_tolerance`),
margins if ``between_knots`` is set; for ``auto`` then margins if inequalities are violated between the knots, more substeps if
the replay fails, and detours of the guess if margins or substeps do not help (:mod:`trajopt.solvers.repeated_solves`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import WarmStart, constant_guess
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.auto import Attempt, Try, attempts, in_turn, is_feasible
from trajopt.solvers.competing_starts import (
    MAX_ITERATIONS,
    NEAR,
    TIME_SHARE,
    TOLERANCE,
    Choice,
    choose_starts,
    is_at_rest,
    may_compete,
    merge_factors,
    pushed,
    random_motions,
)
from trajopt.solvers.direct.program_parts import runs_compiled
from trajopt.solvers.methods.delegation import Continued, iterations_of, not_begun
from trajopt.solvers.methods.driver import run_alone
from trajopt.solvers.options import AutoOptions
from trajopt.solvers.rules.cost_size import cost_size
from trajopt.solvers.time_limits import enough_time, start_of_solve

SolveAttempt = Callable[[Attempt, WarmStart, AutoOptions, "Callback | None", "float | None"], Solution]
"""Solves by the method of an attempt. The last argument is the tolerance on the scaled KKT error, None for that of the options."""


def auto(solve: SolveAttempt, ocp: OCP, warm: WarmStart, options: AutoOptions, callback: Callback | None) -> Solution:
    """Run ``auto``: from competing starts if the guess is at rest (:func:`may_compete`), else from the guess.

    If all end infeasible, other starts follow. With options.starts = 1, or multipliers or a barrier in the warm start, it runs from
    the guess alone. Records of all attempts have continuous numbers.
    """
    run = _Auto(solve, ocp, options, None if callback is None else Continued(callback))
    if options.starts == 1 or warm.multipliers or warm.barrier is not None:
        return run.from_guess(warm, options)
    competed = may_compete(ocp, warm.guess)
    found = run.from_best_start(warm) if competed else run.from_guess(warm, options)
    stayed = is_at_rest(ocp, warm.guess) and is_unmoved(ocp, found, warm.guess)
    if found.status.success and stayed:
        found = run.off_saddle_point(warm, found, "The guess is")
    elif found.status.success and found.meta.get("indefinite"):
        own = replace(warm, guess=Guess(found.xs, found.us))
        found = run.off_saddle_point(own, found, "From the guess, solves end at")
    return run.with_other_starts(warm.guess, found)


UNMOVED, LOWER, SAME = 1e-6, 1e-6, 1e-6
"""Largest change of controls or states that counts as none, relative decrease of the cost that shows a saddle point, and relative
difference below which costs are the same."""

RANDOM = 3
"""Number of random motions from which ``auto`` starts if it has found no feasible motion."""


def is_unmoved(ocp: OCP, found: Solution, guess: Guess) -> bool:
    """True if a solution has the controls of its guess, or stays at x0: to UNMOVED, and to LOWER of its cost, for tiny motions."""
    rest = np.tile(found.xs[0], (len(found.xs), 1))

    def is_none(change: Array, xs: Array, us: Array) -> bool:
        """True if a change from a motion (xs, us) to the solution counts as none."""
        small = np.abs(change).max(initial=0.0) <= UNMOVED
        return bool(small and abs(ocp.cost(xs, us) - found.cost) <= LOWER * cost_size(found.cost))

    return is_none(found.us - guess.us, found.xs, guess.us) or is_none(found.xs - rest, rest, found.us)


_FINAL = (*STOPPED, StatusCode.UNBOUNDED, StatusCode.INFEASIBLE)
"""Statuses after which ``auto`` does not start again."""


def _with_sentence(found: Solution, sentence: str) -> Solution:
    """Return a solution with a sentence at the end of its status message."""
    return replace(found, status=replace(found.status, message=f"{found.status.message} {sentence}"))


def _was_misled(choice: Choice, solutions: Sequence[Solution], standing: Sequence[Solution]) -> bool:
    """True if no solve was stopped and the solutions ``standing`` all cost more than the cheapest coarse motion.

    They cost more by NEAR - 1 times its size, which is at least a fraction of the cost of the guess. Such a motion may jump over an
    obstacle between its knots.
    """
    if not choice.starts or any(s.status.code in STOPPED for s in solutions):
        return False
    least = min(start.objective for start in choice.starts)
    size = cost_size(least, float(choice.starts[0].record["cost_of_guess"]))
    return min((s.cost for s in standing), default=least) - least > (NEAR - 1.0) * size


def _cheapest(solutions: Sequence[Solution]) -> Solution:
    """Return the cheapest of solutions, of those that agree to SAME the first."""
    best = solutions[0]
    for other in solutions[1:]:
        best = other if other.cost < best.cost - SAME * abs(best.cost) else best
    return best


class _Auto:
    """Solves of ``auto`` for a problem, from one start or several."""

    def __init__(self, solve: SolveAttempt, ocp: OCP, options: AutoOptions, callback: Callback | None) -> None:
        self.solve, self.ocp, self.options, self.callback = solve, ocp, options, callback

    def has_time(self) -> bool:
        """True if the time limit leaves time for another start."""
        return enough_time(self.options.time_limit, start_of_solve())

    def from_guess(self, warm: WarmStart, options: AutoOptions) -> Solution:
        """Run the attempts of ``auto`` from a guess, with options in place of those of the solve (:func:`_in_turn`)."""
        return _in_turn(self.solve, self.ocp, warm, options, self.callback)

    def off_saddle_point(self, warm: WarmStart, found: Solution, where: str) -> Solution:
        """Solve again from a slightly moved guess; return that solution if it is cheaper or unbounded, else ``found``.

        found: a solution that is the guess, or whose Hessian is indefinite. At a symmetric guess gradients may be zero although
        the cost falls to both sides. where: begins the sentence on the saddle point in the message.
        """
        again = self.from_guess(replace(warm, guess=pushed(self.ocp, warm.guess)), self.options)
        both = iterations_of(found, again)
        if again.status.code is StatusCode.UNBOUNDED:
            return replace(again, **both)
        if not (again.status.success and again.cost < found.cost - LOWER * max(1.0, abs(found.cost))):
            return replace(found, **both)
        sentence = f"{where} a saddle point (cost {found.cost:.4g}): the solve began beside it."
        return replace(_with_sentence(again, sentence), **both)

    def with_other_starts(self, guess: Guess, found: Solution) -> Solution:
        """Return ``found``, a solution of ``auto``; if it is infeasible, the first feasible one from :meth:`_other_starts`, if any.

        Ctrl-C and the time limit end them. Iterations, records and attempts are those of all starts; the status names the start
        that succeeded, or all. No starts without ``fallback`` or constraints, or after a status in _FINAL.
        """
        first, names = found.status, list[str]()
        if not (self.options.fallback and self.ocp.constraints()) or first.code in _FINAL or self._is_usable(found):
            return found
        starts = self._other_starts(guess)
        try:
            while self.has_time() and (start := next(starts, None)) is not None:
                name, again = start
                names.append(name)
                both = iterations_of(found, again)
                attempts = [*found.meta.get("attempts", ()), *again.meta.get("attempts", ())]
                if self._is_usable(again):
                    sentence = f"This solve began from {name}, since the given guess led to {first.code}."
                    return replace(_with_sentence(again, sentence), meta={**again.meta, "attempts": attempts}, **both)
                found = replace(found, meta={**found.meta, "attempts": attempts}, **both)
                if again.status.code in STOPPED:
                    return replace(found, status=again.status)
        except KeyboardInterrupt:
            return replace(found, status=termination.interrupted(found.iterations))
        if not names:
            return found
        return _with_sentence(found, f"Solves from {', '.join(dict.fromkeys(names))} found no feasible motion either.")

    def _other_starts(self, guess: Guess) -> Iterator[tuple[str, Solution]]:
        """Solve from one start after the other; yield the name of each start and its solution.

        The starts are x0 at rest, if the guess moves, and then, for a compiled problem, RANDOM random motions, these with the first
        attempt only.
        """
        rest = WarmStart(constant_guess(self.ocp))
        if not is_at_rest(self.ocp, guess):
            competes = may_compete(self.ocp, rest.guess)
            yield "x0 at rest", self.from_best_start(rest) if competes else self.from_guess(rest, self.options)
        once = replace(self.options, fallback=False)
        motions = random_motions(self.ocp, rest.guess, np.random.default_rng(0))
        for motion in islice(motions, RANDOM) if runs_compiled(self.ocp) else ():
            yield "a random motion to the goal", self.from_guess(WarmStart(motion), once)

    def _is_usable(self, found: Solution) -> bool:
        """True for a success and for a feasible motion."""
        return found.status.success or is_feasible(self.ocp, found)

    def from_best_start(self, warm: WarmStart) -> Solution:
        """Run ``auto`` from each of the best competing starts, and from the guess if all fail, or if durations are free.

        A second competition on a finer grid needs ``fallback``; it follows if motions are feasible on the coarse grid, but all
        solves from them fail (:meth:`_standing`) or end at much higher costs (:func:`_was_misled`). No further start follows at a
        time limit or after Ctrl-C. Ctrl-C in the first competition returns the best coarse motion, else the guess, in the second
        one the best solution, as interrupted.

        Returns the best solution (:meth:`_best`), with iterations and records of all solves on the problem's grid;
        meta["starts"] describes the competitions, which took meta["starts_seconds"].
        """
        solutions, records, seconds = list[Solution](), list[dict[str, Any]](), 0.0
        for factor in merge_factors(self.ocp):
            began = time.perf_counter()
            choice = self._compete(warm.guess, factor)
            if choice.interrupted and not solutions:
                motion = choice.guesses[0][0] if choice.any_feasible else warm.guess
                status = termination.interrupted_competition(len(choice.starts), motion is warm.guess)
                return replace(not_begun(self.ocp, motion), status=status)
            if choice.interrupted:
                status = termination.interrupted(sum(s.iterations for s in solutions))
                return replace(self._best(solutions), status=status, **iterations_of(*solutions))
            records += [start.record for start in choice.starts]
            seconds += time.perf_counter() - began
            solutions += self._from_starts(warm, choice, bool(solutions))
            standing = self._standing(solutions)
            over = standing or any(s.status.code in STOPPED for s in solutions)
            over = over and not _was_misled(choice, solutions, standing)
            if over or not (choice.any_feasible and self.options.fallback and self.has_time()):
                break
        solutions += self._from_the_guess(warm, solutions, choice)
        best = self._best(solutions)
        meta = {**best.meta, "starts": records, "starts_seconds": seconds} if records else best.meta
        return replace(best, meta=meta, **iterations_of(*solutions))

    def _standing(self, solutions: Sequence[Solution]) -> list[Solution]:
        """Return the successes, and the feasible solutions that used all their iterations, of several solutions."""
        used = StatusCode.MAX_ITERATIONS
        return [s for s in solutions if s.status.success or (s.status.code is used and is_feasible(self.ocp, s))]

    def _best(self, solutions: Sequence[Solution]) -> Solution:
        """Return the cheapest success (:func:`_cheapest`), else the cheapest of :meth:`_standing`, else the last solution."""
        standing = self._standing(solutions)
        return _cheapest([s for s in standing if s.status.success] or standing or solutions[-1:])

    def _compete(self, guess: Guess, factor: int) -> Choice:
        """Let starts compete on a grid with ``factor`` time steps merged into one, with few iterations and a large tolerance."""
        o = self.options
        limit = None if o.time_limit is None else TIME_SHARE * o.time_limit
        iterations = MAX_ITERATIONS if o.max_iterations is None else min(MAX_ITERATIONS, o.max_iterations)
        rough = replace(o, max_iterations=iterations, time_limit=limit, fallback=False)

        def solve_roughly(coarse: OCP, guess: Guess, cutoff: Callback | None) -> Solution:
            """Run ``auto`` on the coarse problem."""
            return _in_turn(self.solve, coarse, WarmStart(guess), rough, cutoff, TOLERANCE)

        has_time = partial(enough_time, limit, start_of_solve())
        return choose_starts(self.ocp, guess, o.starts, solve_roughly, has_time, factor)

    def _from_starts(self, warm: WarmStart, choice: Choice, tried: bool) -> Iterator[Solution]:
        """Yield the solutions from the starts of a competition, until one is stopped or the time limit leaves no time.

        After a solution that is feasible, but used all its iterations, the others use no other methods: costs with kinks have no
        optimum that a method finds. tried: True if other starts were solved before, so that the first one also needs time.
        """
        options = self.options
        for guess, sentence in choice.guesses:
            if tried and not self.has_time():
                return
            tried, found = True, self.from_guess(replace(warm, guess=guess), options)
            if self._standing([found]) and not found.status.success:
                options = replace(options, fallback=False)
            yield _with_sentence(found, sentence) if sentence else found
            if found.status.code in STOPPED:
                return

    def _from_the_guess(self, warm: WarmStart, solutions: Sequence[Solution], choice: Choice) -> Iterator[Solution]:
        """Yield solutions from the guess itself, if the starts were not enough.

        They are not if none was solved or, with ``fallback``, if none stands (:meth:`_standing`) or durations are free, unless the
        guess was one of them or a solve was stopped. With free durations the coarse motion of the guess may lead to another optimum
        than the guess, whose solve then uses no other methods if a solution stands, and continues if it uses all its iterations and
        is feasible at a lower cost.
        """
        costs = [s.cost for s in self._standing(solutions)]
        stopped = not choice.starts or any(s.status.code in STOPPED for s in solutions)
        missing = self.options.fallback and not stopped and (self.ocp.in_scaled_time or not costs)
        if solutions and not (missing and self.has_time()):
            return
        options = replace(self.options, fallback=False) if costs else self.options
        found, least = self.from_guess(warm, options), min(costs, default=-np.inf)
        yield found
        cheaper = found.cost < least - SAME * abs(least)
        if found.status.code is StatusCode.MAX_ITERATIONS and cheaper and is_feasible(self.ocp, found):
            yield self.from_guess(WarmStart(Guess(found.xs, found.us)), options)


def _in_turn(
    solve: SolveAttempt,
    ocp: OCP,
    warm: WarmStart,
    options: AutoOptions,
    callback: Callback | None,
    kkt_tolerance: float | None = None,
) -> Solution:
    """Run the solvers ("attempts") of ``auto`` from a guess, one after the other, until one succeeds.

    From a warm start with multipliers or a barrier parameter, the direct methods come first, with the multipliers at its guess.
    kkt_tolerance: tolerance on the scaled KKT error, in place of that of the options.
    """
    near = bool(warm.multipliers) or warm.barrier is not None

    def answer(request: Try) -> Solution:
        """Solve by an attempt from the guess and within the time limit of a request."""
        attempt, start, left = request
        limited = options if left is None else replace(options, time_limit=left)
        multipliers = warm.multipliers if start is warm.guess else {}
        own = WarmStart(start, multipliers=multipliers, barrier=warm.barrier)
        return solve(attempt, own, limited, callback, kkt_tolerance)

    plan = attempts(ocp, relaxed=not near)
    return run_alone(in_turn(plan, lambda: ocp, warm.guess, options), answer)
