"""A user's own method: what drivers ask of a method beside its requests is kept here for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from math import nan
from typing import Any

from trajopt.solvers.methods.method import End, Ended, Report, Size, Solve
from trajopt.solvers.methods.requests import (
    FRACTIONS,
    NOWHERE,
    Accept,
    Direction,
    Gains,
    Point,
    Request,
    Roll,
    Step,
    hessian_name,
)
from trajopt.solvers.options import MethodOptions

OwnSolve = Generator[Request, Any, End]
MethodFunction = Callable[[Size, Any], OwnSolve]
"""A generator function of the size of a problem and the options, which returns how its solve ends."""


class OwnMethod:
    """One solve by a user's method; the attributes are those of :class:`trajopt.solvers.methods.newton.Newton`.

    Errors, iterations and records come from the answers that the method gets; its limits of iterations and time are kept here.
    """

    def __init__(
        self,
        method: MethodFunction,
        size: Size,
        options: MethodOptions,
        max_iterations: int,
        report: Report | None = None,
    ) -> None:
        self.method, self.size, self.options = method, size, options
        self.max_iterations, self.report = max_iterations, report
        self.at = NOWHERE
        self.change, self.iteration, self.begun = 0.0, 0, False
        self.began = time.perf_counter()
        self._step: tuple[Step, Direction] | None = None
        self._first = 0

    @property
    def kkt(self) -> float:
        """The scaled KKT error."""
        return self.at.kkt()

    def solve(self, *, gains: bool = True) -> Solve:
        """Pass the requests of the method on until it returns an end, or a limit is met."""
        end = yield from self._passed_on()
        ended = self.ended(end)
        if gains and self.begun:
            yield Gains(self.size.widest)
        return ended

    def _passed_on(self) -> OwnSolve:
        method, reply = self.method(self.size, self.options), None
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
                self._report(request)
            reply = yield request
            self._note(request, reply)

    def _limit(self) -> End | None:
        if self.iteration >= self.max_iterations:
            return End.MOST_ITERATIONS
        limit = self.options.time_limit
        return End.OUT_OF_TIME if limit is not None and time.perf_counter() - self.began > limit else None

    def _note(self, request: Request, reply: Any) -> None:
        """Take what an answer tells of where the solve is."""
        if isinstance(request, Step):
            self._step, self._first = (None if reply is None else (request, reply)), 0
        elif isinstance(request, Roll):
            self._first = request.first
        elif isinstance(reply, Point) and (reply.found or not self.begun):
            if isinstance(request, Accept):
                self.iteration += 1
                self.change = abs(self.at.cost - reply.cost) / max(abs(reply.cost), 1e-300)
            self.at, self.begun = reply, True

    def stopped(self, *, gains: bool = True) -> Solve:
        """Gains where the solve is."""
        if gains:
            yield Gains(self.size.widest)
        return self.ended(End.INTERRUPTED)

    def ended(self, end: End) -> Ended:
        """An end where the solve is."""
        return Ended(end, self.iteration, self.at.gradient, self.at.defect, self.kkt, self.change)

    def _report(self, request: Accept | None) -> None:
        assert self.report is not None
        step = self._step if request is not None else None
        alpha, delta, size, slope, name = 0.0, 0.0, 0.0, 0.0, hessian_name(None)
        if request is not None and step is not None:
            (asked, found), row = step, max(request.row, 0)
            alpha, delta = found.longest * 0.5 ** (self._first + row), asked.delta
            size, slope, name = found.size, found.slope, hessian_name(FRACTIONS[found.fraction])
        at, o = self.at, self.options
        self.report(
            iteration=self.iteration,
            cost=at.cost,
            merit=at.cost,
            stop=max(at.gradient / o.gradient_tolerance, at.defect / o.defect_tolerance),
            gradient=at.gradient,
            regularization=delta,
            step_norm=alpha * size,
            defect=at.defect,
            constraint_violation=0.0,
            expected_decrease=-slope * alpha,
            actual_decrease=nan if step is not None else 0.0,
            step_length=alpha,
            hessian=name,
            kkt=self.kkt,
        )

    def report_end(self) -> None:
        """The record of the solution, without a step."""
        if self.report is not None:
            self._report(None)
