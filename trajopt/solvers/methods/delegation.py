"""Requests of a method that delegates a whole solve, and helpers that merge the solutions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, Status
from trajopt.solvers import termination
from trajopt.solvers.time_limits import remaining, start_of_solve


class SolveRequest(NamedTuple):
    """Request to solve the problem. The limits here replace those in options; time_limit [s]. guess: None for the problem's."""

    options: Any
    max_iterations: int
    time_limit: float | None
    guess: Guess | None = None

    @property
    def limited(self) -> Any:
        """The options with the iteration and time limits of the request; the same object if they already agree."""
        o = self.options
        same = (o.max_iterations, o.time_limit) == (self.max_iterations, self.time_limit)
        return o if same else replace(o, max_iterations=self.max_iterations, time_limit=self.time_limit)


def at_end(found: Solution) -> Mapping[str, Any]:
    """Return a mapping with the final "gradient", "defect" and "kkt" of a solve: the fields of its last record, else its meta."""
    return vars(found.history[-1]) if found.history else found.meta


class Continued:
    """Callback that numbers the records of consecutive solves without a break, starting at ``count``."""

    def __init__(self, callback: Callback, count: int = 0) -> None:
        self.callback, self.count = callback, count

    def __call__(self, record: IterationRecord) -> None:
        """Pass a record to the callback, with the running count as its iteration number, and increment the count."""
        record = record if record.iteration == self.count else replace(record, iteration=self.count)
        self.count += 1
        self.callback(record)


class Second(NamedTuple):
    """A second start. options: those of the second solve. first_end: sentence on the end of the first solve.

    start: what the second start changes, a phrase of its status message. guess: None for the problem's.
    """

    options: Any
    first_end: str
    start: str
    guess: Guess | None = None


def started_twice(
    options: Any, max_iterations: int, second: Callable[[Solution], Second | None]
) -> Generator[SolveRequest, Any, Solution | Status]:
    """Solve, then solve again from the start that ``second`` returns for the first solution; limits hold for both together.

    Answers are solutions, or None if the solve was stopped before it began. Without a second start (None, or no iterations left),
    or if it was stopped before it began, returns the first solution, else both merged (:func:`merged_solution`). Returns a status
    if nothing was solved.
    """
    began = start_of_solve()
    found = yield SolveRequest(options, max_iterations, options.time_limit)
    if found is None:
        return termination.not_started()
    left = max_iterations - found.iterations
    again = second(found) if left > 0 else None
    if again is None:
        return found
    limit = remaining(options.time_limit, began)
    other = yield SolveRequest(again.options, left, limit, again.guess)
    return found if other is None else merged_solution(found, other, again)


def merged_solution(found: Solution, second: Solution, again: Second) -> Solution:
    """Merge two solutions: return the second if it succeeded, else the first, with the records, iterations and solve times of both.

    The last record is of the returned trajectory.

    The status message describes both starts. If both failed, the advice comes from the second solve, because the first would advise
    the start that the second used. The advice of the first is used if its status names a knot. If the user or the time limit
    stopped the second solve, the status says so and the trajectory is that of the first.
    """
    best = second if second.status.success else found
    joined = iterations_of(found, second)
    if best is found and found.history:
        joined["history"] = (
            *joined["history"][:-1],
            replace(found.history[-1], iteration=joined["history"][-1].iteration),
        )
    how = "converged" if second.status.success else f"ended with {second.status.code}"
    last = second.status if second.status.code in STOPPED else best.status
    message = last.message if again.first_end in last.message else f"{last.message} {again.first_end}"
    advice = last.advice if last.knot is not None else second.status.advice
    times = [s.meta["solve_time"] for s in (found, second) if "solve_time" in s.meta]
    return replace(
        best,
        status=replace(last, message=f"{message} A second start {again.start} {how}.", advice=advice),
        meta={**best.meta, **({"solve_time": sum(times)} if times else {})},
        **joined,
    )


def iterations_of(*solutions: Solution) -> dict[str, Any]:
    """Return ``iterations`` and ``history`` of consecutive solves, with continuous record numbers."""
    records = [record for s in solutions for record in s.history]
    history = (r if r.iteration == i else replace(r, iteration=i) for i, r in enumerate(records))
    return {"iterations": sum(s.iterations for s in solutions), "history": tuple(history)}


def not_begun(ocp: OCP, guess: Guess) -> Solution:
    """Return the guess as a solution with status "interrupted", zero gains and cost NaN."""
    N, m, n = ocp.horizon, ocp.nu, ocp.manifold.ndx
    xs, us = np.array(guess.xs), np.array(guess.us)
    gains = np.zeros((N, m, n)), np.zeros((N, m))
    return Solution(xs, us, *gains, termination.interrupted(0), float("nan"), 0, (), ocp.times)
