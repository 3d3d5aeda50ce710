"""A batch by Newton's method, that of DDP: windows of problems on threads, with one problem in each lane.

Few problems are solved one after the other on each thread, with the knots of a problem in the lanes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, default_threads
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.lq.compiled_lq import CompiledLQ
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.batch.problems.batch import Batch
from trajopt.solvers.batch.problems.values import NOT_BEGUN, Rows, measures_of
from trajopt.solvers.batch.second_starts import firsts_of, with_seconds
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.batch.threads import ENDED, STOP, Ran, lanes_at_work, run_workers, with_referred
from trajopt.solvers.ddp import by_newton, ddp
from trajopt.solvers.methods.method import End, Ended, Size, Solve
from trajopt.solvers.methods.newton import Newton
from trajopt.solvers.methods.requests import GAUSS_NEWTON, Gains
from trajopt.solvers.options import DDPOptions, MethodOptions
from trajopt.solvers.shooting.restart import restarted
from trajopt.solvers.window.driver import run_alone, run_window
from trajopt.solvers.window.newton_slot import NewtonSlot, layout, serves, sizes_of
from trajopt.solvers.window.newton_status import Blamed, status_of, to_blame
from trajopt.solvers.window.newton_window import NewtonWindow, WindowSlot, attempts_doubles
from trajopt.stage.compiled.newton_abreast import newton_libraries
from trajopt.stage.numerics import numerics_for

FULL = 4
"""From so many problems for each lane of all threads on, lanes hold problems: toward the end of a batch they are empty, while
knots of a problem fill them all the time."""
SLOTS = 4
"""Slots of a window for each lane: problems wait for several kinds of work."""
MEMORY = 1 << 30
"""Bytes that the slots of all windows may take; large problems on many processors get fewer slots."""
RESULT = np.dtype(
    [("code", np.int64), ("iterations", np.int64)]
    + [(name, float) for name in ("cost", "gradient", "defect", "kkt", "change", "seconds")]
)
"""The result of one problem."""


def fits_newton(ocp: OCP, options: Any) -> bool:
    """Whether compiled kernels answer all requests of DDP, or of a registered method, for this problem."""
    if ocp.constraints() or not isinstance(options, (DDPOptions, MethodOptions)):
        return False
    if isinstance(options, DDPOptions) and not by_newton(ocp, options):
        return False
    return serves(_evaluators(ocp, options), curved=True)


def _evaluators(ocp: OCP, options: DDPOptions | MethodOptions) -> tuple[Any, Any]:
    """The evaluator of the Gauss-Newton Hessian of the cost, and the one that the curvature is added to; maybe one."""
    plain = numerics_for(ocp).evaluator
    return plain, plain if options.hessian == "gauss_newton" else numerics_for(ocp, options.hessian).evaluator


def in_newton(
    batch: Batch,
    guess: tuple[Array, Array],
    options: DDPOptions | MethodOptions,
    *,
    gains: bool,
    threads: int | None,
    told: Callable[[int], None] | None,
    max_iterations: Array | None = None,
    method: Callable[..., Any] = Newton,
) -> BatchSolution:
    """Solve a batch; guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). max_iterations (n,): of each, where they differ.

    method: makes the method of a size, options and a maximum number of iterations. An error that it raises ends its problem;
    one that it raises for every problem is raised.
    """
    began = time.perf_counter()
    limits = np.full(len(batch), options.max_iterations) if max_iterations is None else max_iterations
    members = _Members(batch, guess, options, gains, threads, limits, method)
    how = members.solve(told)
    if len(members.errors) == len(batch):
        raise next(iter(members.errors.values()))
    lq, r = members.lq, members.results
    status = tuple(members.status(i, options, lq) for i in range(len(batch)))
    arrays = members.xs, members.us, r["cost"].copy(), r["iterations"].copy()
    times = (r["seconds"] / how.pop("together", 1.0)).tolist()
    meta = {**how, "solve_times": times, "seconds": time.perf_counter() - began, **measures_of(r)}
    found = BatchSolution(*arrays, status, batch.times(), members.K, members.k, meta)
    if NOT_BEGUN in r["code"] or not isinstance(options, DDPOptions):
        return found
    found = _second_starts(batch, guess, options, found, r, told)
    few: dict[str, Any] = {"gains": gains, "threads": threads, "told": told}
    return with_referred(batch, guess, options, "ddp", found, _without_interior(batch), **few)


def _without_interior(batch: Batch) -> list[int]:
    """The problems of which a control has one value that it may take: Newton's loop is not for these."""
    bounds = batch.bounds()
    if bounds is None:
        return []
    closed, crossed = (of.any(axis=(1, 2)) for of in (bounds[0] >= bounds[1], bounds[0] > bounds[1]))
    return np.flatnonzero(np.broadcast_to(closed & ~crossed, len(batch))).tolist()


def _stopped(ran: Ran) -> dict[str, Any]:
    return {"stopped": True} if ran.stopped else {}


def _second_starts(
    batch: Batch,
    guess: tuple[Array, Array],
    options: DDPOptions,
    found: BatchSolution,
    results: Any,
    told: Callable[[int], None] | None,
) -> BatchSolution:
    """Those whose linear gaps have blown up once more, with nonlinear ones, one after the other; told: how many have ended."""
    began, firsts = time.perf_counter(), firsts_of(found, results["defect"], options)
    seconds: dict[int, Solution] = {}
    for i, first in firsts.items():
        if not _goes_on(told, len(batch) - len(firsts) + len(seconds)):
            break
        own = Guess(*(rows[i if len(rows) == len(batch) else 0] for rows in guess))
        start = time.perf_counter()
        second = ddp(batch[i], own, restarted(options, first, float(results["seconds"][i])))
        seconds[i] = replace(second, meta={**second.meta, "solve_time": time.perf_counter() - start})
        if seconds[i].status.code is StatusCode.INTERRUPTED:
            break
    else:
        _goes_on(told, len(batch))
    return with_seconds(found, firsts, seconds, time.perf_counter() - began) if seconds else found


def _goes_on(told: Callable[[int], None] | None, ended: int) -> bool:
    """Tell how many problems have ended; whether whoever is told lets the others go on."""
    try:
        if told is not None:
            told(ended)
    except KeyboardInterrupt:
        return False
    return True


class _Members(Rows):
    """newton_problem_t of newton_slot.h for each problem, and where the solutions come to be."""

    def __init__(
        self,
        batch: Batch,
        guess: tuple[Array, Array],
        options: DDPOptions | MethodOptions,
        gains: bool,
        threads: int | None,
        max_iterations: Array,
        method: Callable[..., Any],
    ) -> None:
        ocp, n = batch[0], len(batch)
        super().__init__(n)
        N, nx, nu, ndx = ocp.horizon, ocp.manifold.nx, ocp.nu, ocp.manifold.ndx
        self.batch, self.guess, self.options, self.max_iterations = batch, guess, options, max_iterations
        self.ocp, self.lq, self.method = ocp, CompiledLQ(ndx, nu), method
        self.errors: dict[int, Exception] = {}
        self.threads = min(threads or default_threads(), n)
        self.plain, self.exact = _evaluators(ocp, options)
        self.xs, self.us = np.full((n, N + 1, nx), np.nan), np.full((n, N, nu), np.nan)
        self.K = np.zeros((n, N, nu, ndx)) if gains else None
        self.k = np.zeros((n, N, nu)) if gains else None
        self.results = np.zeros(n, RESULT)
        self.results["code"], self.results["cost"] = NOT_BEGUN, np.nan
        own: Any = [self.exact.stages[:-1], self.plain.stages[:-1]]
        bounds = batch.bounds() or (None, None)
        widest = 0 if isinstance(options, DDPOptions) or options.hessian == "exact" else GAUSS_NEWTON
        self.size = Size(widest, N * nu, bounds[0] is not None)
        few = n < FULL * self.plain.stages[0].library.lanes * (threads or default_threads())
        self.libraries = None if few else newton_libraries(ocp, own[0])
        curved = zip(own[0], self.libraries or [s.curved for s in own[0]], strict=True)
        data = [[s.data for s in stages] for stages in own] + [[s.data_in(library) for s, library in curved]]
        phases = [np.stack([self.stages(batch, i, d) for i, d in enumerate(of)], axis=1) for of in data]
        evaluators: Any = self.exact, self.plain
        ends = [np.stack(self.end(batch, e.stages[-1]), axis=1) for e in evaluators]
        columns = [*phases, *ends, batch.x0(), *guess, *bounds, self.xs, self.us, self.K, self.k]
        self.rows = self.table(columns)

    def solve(self, told: Callable[[int], None] | None) -> dict[str, Any]:
        """Solve all on threads; how the work was shared."""
        self._numbers, lanes = itertools.count(), self.plain.stages[0].library.lanes
        windows: list[NewtonWindow] = []
        slots: list[NewtonSlot] = []
        given = self.ocp, self.plain, self.exact, self.lq

        def in_window(stop: Array) -> None:
            window = NewtonWindow(*given, self.libraries or [], self.options.max_backtracks + 1, count)
            windows.append(window)
            self._run_window(window, stop)

        def one_by_one(stop: Array) -> None:
            slot = NewtonSlot(*given, self.options.max_backtracks + 1, own_rooms=True)
            slots.append(slot)
            self._run_each(slot, stop)

        try:
            if not self.libraries:
                ran = run_workers(one_by_one, self.threads, told)
                return {"how": ran.how, "lanes": lanes_at_work(ran.threads, self.plain.stages[:-1])} | _stopped(ran)
            count = self._slots_of_a_thread(lanes)
            ran = run_workers(in_window, self.threads, told)
        finally:
            for window in windows:
                window.close()
            for slot in slots:
                slot.close()
        shares = [sum(w.busy[i] for w in windows) / max(1, sum(w.all[i] for w in windows)) for i in range(2)]
        alone = sum(w.made_alone for w in windows) / max(1, int(self.results["iterations"].sum()))
        use = {"threads": ran.threads, "seats": ran.threads * count, "sweeps": shares[0], "rollouts": shares[1]}
        return {"how": "lanes", "lanes": {**use, "alone": alone}, "together": count} | _stopped(ran)

    def _slots_of_a_thread(self, lanes: int) -> int:
        """As many as there are problems for, and memory."""
        windowed, alone = (sizes_of(self.ocp, self.options.max_backtracks + 1, windowed=w) for w in (True, False))
        room = MEMORY // self.threads - 8 * (layout(alone)[1] + attempts_doubles(self.ocp))
        return max(1, min(SLOTS * lanes, -(-self.count // self.threads), room // (8 * layout(windowed)[1])))

    def _next(self, stop: Array) -> int | None:
        """The number of the next problem; None where there is none, or the batch is stopped."""
        number = next(self._numbers)
        return None if stop[STOP] or number >= self.count else number

    def _method(self, number: int) -> Any:
        return self.method(self.size, self.options, int(self.max_iterations[number]))

    def _run_window(self, window: NewtonWindow, stop: Array) -> None:
        methods: dict[WindowSlot, tuple[int, Any]] = {}

        def start(slot: WindowSlot) -> Solve | None:
            number = self._next(stop)
            if number is None:
                return None
            slot.slot.problem = address(self.rows) + number * self.rows.strides[0]
            methods[slot] = number, (method := self._method(number))
            window.active += 1
            return method.solve(gains=self.K is not None)

        def end(slot: WindowSlot, ended: Ended | Exception) -> None:
            window.active -= 1
            number, method = methods.pop(slot)
            self._note(number, slot.slot, method, ended)
            stop[ENDED] += 1

        def stopped() -> bool:
            return bool(stop[STOP])

        run_window(window, window.slots, start, end, stopped)
        for slot, (number, method) in methods.items():  # where it was stopped

            def answer(request: Gains, own: WindowSlot = slot) -> Any:
                return window.borrowed(own).answer(request)

            self._note_stopped(number, slot.slot, method, answer)

    def _run_each(self, slot: NewtonSlot, stop: Array) -> None:
        while (number := self._next(stop)) is not None:
            slot.problem = address(self.rows) + number * self.rows.strides[0]
            method = self._method(number)
            ended: Any
            try:
                ended = run_alone(method.solve(gains=self.K is not None), slot.answer, lambda: bool(stop[STOP]))
            except Exception as error:  # of a user's method
                ended = error
            if ended is None:
                self._note_stopped(number, slot, method, slot.answer)
                return
            self._note(number, slot, method, ended)
            stop[ENDED] += 1

    def _note_stopped(self, number: int, slot: NewtonSlot, method: Any, answer: Callable[[Any], Any]) -> None:
        if method.begun:
            if self.K is not None:
                answer(Gains(self.size.widest))
            self._note(number, slot, method, method.ended(End.INTERRUPTED))

    def _note(self, number: int, slot: NewtonSlot, method: Any, ended: Ended | Exception) -> None:
        """Take what a solve has come to: where it is, also where its method has raised an error."""
        slot.put()
        r = self.results[number]
        if isinstance(ended, Exception):
            self.errors[number] = ended
            ended = method.ended(End.NO_STEP)
        assert isinstance(ended, Ended)
        r["code"], r["iterations"], r["cost"] = int(ended.end), ended.iterations, slot.cost
        r["gradient"], r["defect"], r["kkt"], r["change"] = ended[2:]
        r["seconds"] = time.perf_counter() - method.began

    def status(self, i: int, o: DDPOptions | MethodOptions, lq: CompiledLQ) -> Status:
        """The status of problem i: that of a single solve. What was refused leaves its guess behind."""
        r: Any = self.results[i]
        if r["code"] == NOT_BEGUN:
            return termination.not_started()
        if i in self.errors:
            return termination.error(self.errors[i])
        end, xs, us = End(int(r["code"])), self.xs[i].copy(), self.us[i].copy()
        ended = Ended(end, int(r["iterations"]), *(float(r[name]) for name in ("gradient", "defect", "kkt", "change")))
        if end is End.NOT_FINITE:
            rows = (guess[i if len(guess) == self.count else 0] for guess in self.guess)
            self.xs[i], self.us[i], r["cost"] = *rows, np.nan

        def refused() -> Blamed:
            ocp = self.batch[i]
            with np.errstate(all="ignore"):
                return to_blame(ocp, xs, us, _evaluators(ocp, o), lq)

        return status_of(ended, o, refused)
