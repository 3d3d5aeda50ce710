"""Adapter of a user-defined method to the interface that drivers expect: iterations, records, time limit and status."""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf, nan
from typing import Any

from trajopt.solvers.methods import requests as ask
from trajopt.solvers.methods.method import SUCCESSES, End, Size
from trajopt.solvers.methods.newton import Found, Newton
from trajopt.solvers.methods.requests import FRACTIONS, Direction, Point, Request
from trajopt.solvers.options import MethodOptions

OwnSolve = Generator[Request, Any, End]
MethodFunction = Callable[[Size, Any], OwnSolve]
"""Generator function of the problem size and the options; returns the reason of its end."""


class UserMethod(Newton):
    """One solve by a user-defined method.

    Errors, iterations and records are derived from the answers to its requests, as in
    :class:`trajopt.solvers.methods.newton.Newton`. The limit of iterations is checked before each Step request, the time limit
    before each request after the first point.
    """

    def __init__(self, method: MethodFunction, size: Size, options: MethodOptions, max_iterations: int) -> None:
        super().__init__(size, options, max_iterations)
        self.method = method
        self._last: tuple[ask.Step, Direction] | None = None
        self._first = 0
        self._trials = dict[int, int]()
        self._available = set[int]()
        self._on_bounds = False

    def _iterate(self) -> OwnSolve:
        """Yield the method's requests and send it the answers; return its End, or that of a limit.

        Each Accept request is reported, if ``report`` is set. Raises TypeError if the method is not a generator, yields an object
        that is not a request, or returns an object that is not an End; ValueError for a request that the slot cannot answer, an End
        before the first Start, or a success before the first Point.
        """
        method, reply = self.method(self.size, self.options), None
        if not isinstance(method, Generator):
            raise TypeError(
                f"the method returned {method!r} without a request; it must be a generator, which yields requests"
            )
        while True:
            try:
                request = method.send(reply)
            except StopIteration as returned:
                if not isinstance(returned.value, End):
                    raise TypeError(
                        f"the method returned {returned.value!r}; expected an End, such as End.OPTIMAL"
                    ) from None
                if not self._available:
                    raise ValueError(f"the method returned {returned.value!r} before its first Start") from None
                if returned.value in SUCCESSES and not self.begun:
                    raise ValueError(f"the method returned {returned.value!r} before its first Point") from None
                return returned.value
            if not isinstance(request, Request):
                raise TypeError(f"the method yielded a {type(request).__name__}; expected a request, such as Step(...)")
            self._require_possible(request)
            limit = self._limit() if isinstance(request, ask.Step) else None
            if limit is not None or (self.begun and self._is_late()):
                method.close()
                return End.OUT_OF_TIME if limit is None else limit
            if isinstance(request, ask.Accept) and self.report is not None:
                self._report_step(request)
            reply = yield request
            self._record_answer(request, reply)

    def _require_possible(self, request: Request) -> None:
        """Raise ValueError for an invalid place, row, fraction, number of trials or weight, and before Start."""
        if not self._available and not isinstance(request, ask.Start):
            raise ValueError(f"{request} comes before the first Start")
        least, count, wrong = self.size.widest, len(FRACTIONS), ""
        weights = [getattr(request, key, 0.0) for key in ("delta", "mu")]
        if not all(value is None or 0.0 <= value < inf for value in weights):
            wrong = "delta and mu must be finite and at least 0"
        elif isinstance(request, ask.Start) and not 0.0 < request.push < 0.5:
            wrong = "push must be between 0 and 0.5"
        elif isinstance(request, ask.Step | ask.Roll | ask.Accept) and request.place not in (0, 1):
            wrong = "the place must be 0 or 1"
        elif isinstance(request, ask.Step) and not set() < set(range(request.first, request.past)) <= self._available:
            wrong = f"at this point there are the fractions with indices {sorted(self._available)}"
        elif isinstance(request, ask.Roll | ask.Accept) and request.place not in self._trials:
            wrong = f"no Step in place {request.place} since the last Accept has found a direction"
        elif isinstance(request, ask.Roll) and not (request.first >= 0 and request.max_trials >= 1):
            wrong = "first must be at least 0, and max_trials at least 1"
        elif isinstance(request, ask.Accept) and not 0 <= request.row < self._trials[request.place]:
            wrong = f"the last trials of place {request.place} have rows 0 to {self._trials[request.place] - 1}"
        elif isinstance(request, ask.Accept | ask.Restore) and not set() < _indices(request.fractions) <= {
            *range(least, count)
        }:
            wrong = f"fractions must have at least one of the bits {least} to {count - 1}, and no others"
        elif isinstance(request, ask.OnBounds) and not self.size.bounded:
            wrong = "the controls have no bounds"
        elif isinstance(request, ask.AcceptOnBounds) and not self._on_bounds:
            wrong = "it must follow OnBounds"
        elif isinstance(request, ask.Gains) and not least <= request.first < count:
            wrong = f"first must be {least} to {count - 1}"
        if wrong:
            raise ValueError(f"{request}: {wrong}")

    def _record_answer(self, request: Request, reply: Any) -> None:
        """Update the last step, iteration count, relative cost change and current point from the answer to a request.

        Each answered Point becomes the current point, also that of OnBounds; after the first one, only points with ``found``. An
        Accept request with such an answer counts as an iteration. Also stores which trials and curvature fractions exist.
        """
        if isinstance(request, ask.Start):
            self._available = {*range(self.size.widest, len(FRACTIONS))}
            self._trials.clear()
        elif isinstance(request, ask.Restore) and reply.found:
            self._available = _indices(request.fractions)
        elif isinstance(request, ask.Step):
            self._trials.pop(request.place, None)
            self._trials |= {} if reply is None else {request.place: 1}
        elif isinstance(request, ask.Roll):
            self._trials[request.place] = len(reply)
        elif isinstance(request, ask.Accept):
            self._available = _indices(request.fractions)
            self._trials.clear()
        self._on_bounds = isinstance(request, ask.OnBounds)
        if isinstance(request, ask.Step):
            self._last, self._first = (None if reply is None else (request, reply)), 0
        elif isinstance(request, ask.Roll):
            self._first = request.first
        elif isinstance(reply, Point) and (reply.found or not self.begun):
            if isinstance(request, ask.Accept):
                self.iteration += 1
                self.change = abs(self.at.cost - reply.cost) / max(abs(reply.cost), 1e-300)
            self._arrive(reply)
            self.begun = True

    def _report_step(self, request: ask.Accept) -> None:
        """Report the trial that an Accept request names, with the numbers of the last Step request; its merit is NaN.

        The current point alone is reported if there was no Step request, or if its answer was None.
        """
        if self._last is None:
            self._report(None)
            return
        (asked, step), row = self._last, max(request.row, 0)
        alpha = step.longest * 0.5 ** (self._first + row)
        lengths = step.slope, step.longest, step.size, alpha
        self._report(Found(request.place, row, step.fraction, asked.delta, *lengths, nan, nan))


def _indices(fractions: int) -> set[int]:
    """Indices of the curvature fractions in a bit mask."""
    return {i for i in range(fractions.bit_length()) if fractions >> i & 1}
