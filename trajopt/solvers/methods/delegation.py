"""Solves that a method asks for: the request, and what is read of the answer, which is a solution."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from trajopt.guesses.guesses import Guess
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, Status
from trajopt.solvers import termination
from trajopt.solvers.time_limits import remaining, start_of_solve


class SolveRequest(NamedTuple):
    """Request: solve the problem. options: but for max_iterations and time_limit [s]. guess: None for that of the problem."""

    options: Any
    max_iterations: int
    time_limit: float | None
    guess: Guess | None = None

    @property
    def limited(self) -> Any:
        """The options with the limits."""
        o, limits = self.options, self[1:3]
        same = (o.max_iterations, o.time_limit) == limits
        return o if same else replace(o, max_iterations=limits[0], time_limit=limits[1])


def at_end(found: Solution) -> Mapping[str, Any]:
    """The measures at the end of a solve by name: "gradient", "defect", "kkt"."""
    return vars(found.history[-1]) if found.history else found.meta


class Continued:
    """A callback that numbers the records of several solves through, from ``count`` on."""

    def __init__(self, callback: Callback, count: int = 0) -> None:
        self.callback, self.count = callback, count

    def __call__(self, record: IterationRecord) -> None:
        """Pass a record on."""
        record = record if record.iteration == self.count else replace(record, iteration=self.count)
        self.count += 1
        self.callback(record)


class Second(NamedTuple):
    """Another start. first_end: a sentence on how the first one ended. start: what is new. guess: None for that of the problem."""

    options: Any
    first_end: str
    start: str
    guess: Guess | None = None


def started_twice(
    options: Any, max_iterations: int, second: Callable[[Solution], Second | None]
) -> Generator[SolveRequest, Any, Solution | Status]:
    """A solve, and where ``second`` finds another start, one from there with what is left of iterations and time.

    Answers are solutions, or None where the solve was stopped before. Returns the status of a problem without a solve.
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
    return found if other is None else of_both(found, other, again)


def of_both(found: Solution, second: Solution, again: Second) -> Solution:
    """The second solution if it is one, else the first; with the records of both.

    Where neither is one, the advice is that of the second, whose start the first would advise; unless the first names a place. A
    second start that was stopped by hand or by its time limit ends the solve as such, with the first one's trajectory.
    """
    best = second if second.status.success else found
    how = "converged" if second.status.success else f"ended with {second.status.code}"
    last = second.status if second.status.code in STOPPED else best.status
    message = last.message if again.first_end in last.message else f"{last.message} {again.first_end}"
    advice = last.advice if last.knot is not None else second.status.advice
    times = [s.meta["solve_time"] for s in (found, second) if "solve_time" in s.meta]
    return replace(
        best,
        status=replace(last, message=f"{message} A second start {again.start} {how}.", advice=advice),
        meta={**best.meta, **({"solve_time": sum(times)} if times else {})},
        **iterations_of(found, second),
    )


def iterations_of(before: Solution, after: Solution) -> dict[str, Any]:
    """The fields ``iterations`` and ``history`` of two solves that follow each other, with records numbered through."""
    first = len(before.history)
    records = (replace(record, iteration=record.iteration + first) for record in after.history)
    return {"iterations": before.iterations + after.iterations, "history": (*before.history, *records)}
