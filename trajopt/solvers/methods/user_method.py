"""Adapter of a user-defined method to the interface that drivers expect: iterations, records, time limit and status."""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import nan
from typing import Any

from trajopt.solvers.methods.method import End, Size, Solve
from trajopt.solvers.methods.newton import Found, Newton
from trajopt.solvers.methods.requests import Accept, Direction, Gains, Point, Request, Roll, Step
from trajopt.solvers.options import MethodOptions

OwnSolve = Generator[Request, Any, End]
MethodFunction = Callable[[Size, Any], OwnSolve]
"""Generator function of the problem size and the options; returns the reason of its end."""


class UserMethod(Newton):
    """One solve by a user-defined method.

    Errors, iterations and records are derived from the answers to its requests, as in
    :class:`trajopt.solvers.methods.newton.Newton`. Iteration and time limits are checked before each Step request.
    """

    def __init__(self, method: MethodFunction, size: Size, options: MethodOptions, max_iterations: int) -> None:
        super().__init__(size, options, max_iterations)
        self.method = method
        self._last: tuple[Step, Direction] | None = None
        self._first = 0

    def solve(self, *, gains: bool = True) -> Solve:
        """Forward the requests of the method until it returns an end or a limit is reached; return the result.

        After that, requests gains if ``gains`` and a point exists.
        """
        end = yield from self._forward_requests()
        ended = self.ended(end)
        if gains and self.begun:
            yield Gains(self.size.widest)
        return ended

    def _forward_requests(self) -> OwnSolve:
        """Yield the method's requests and send it the answers; return its End, or that of a limit, checked before each Step.

        Each Accept request is reported, if ``report`` is set. Raises TypeError if the method is not a generator, yields an object
        that is not a request, or returns an object that is not an End.
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
                return returned.value
            if not isinstance(request, Request):
                raise TypeError(f"the method yielded a {type(request).__name__}; expected a request, such as Step(...)")
            if isinstance(request, Step) and (limit := self._limit()) is not None:
                method.close()
                return limit
            if isinstance(request, Accept) and self.report is not None:
                self._report_step(request)
            reply = yield request
            self._record_answer(request, reply)

    def _record_answer(self, request: Request, reply: Any) -> None:
        """Update the last step, iteration count, relative cost change and current point from the answer to a request.

        Each answered Point becomes the current point, also that of OnBounds; after the first one, only points with ``found``. An
        Accept request with such an answer counts as an iteration.
        """
        if isinstance(request, Step):
            self._last, self._first = (None if reply is None else (request, reply)), 0
        elif isinstance(request, Roll):
            self._first = request.first
        elif isinstance(reply, Point) and (reply.found or not self.begun):
            if isinstance(request, Accept):
                self.iteration += 1
                self.change = abs(self.at.cost - reply.cost) / max(abs(reply.cost), 1e-300)
            self._arrive(reply)
            self.begun = True

    def _report_step(self, request: Accept) -> None:
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
