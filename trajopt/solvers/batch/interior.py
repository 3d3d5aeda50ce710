"""A batch by the interior point, on threads: windows of problems with one in each lane where that is faster, else one problem after
the other on each thread, with its knots in the lanes.

What a problem asks for beyond the kernels (steps for feasibility alone, a program with other places of rows) is solved by single
solves as a whole, one by one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, default_threads, find_toolchain
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.batch.problems.batch import Batch
from trajopt.solvers.batch.problems.values import NOT_BEGUN, Rows
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.batch.threads import ENDED, STOP, Ran, lanes_at_work, run_workers, with_referred
from trajopt.solvers.direct.program_parts import with_rows
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.interior.newton import NewtonSystem
from trajopt.solvers.interior.stage_program import Point, StageProgram
from trajopt.solvers.ipm import prepared
from trajopt.solvers.methods.interior_point import End, Ended, InteriorPoint, Solve
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.window import interior_status
from trajopt.solvers.window.driver import run_alone, run_window
from trajopt.solvers.window.interior_slot import InteriorSlot, kept_by, kernels, serves
from trajopt.solvers.window.interior_window import InteriorWindow, WindowSlot, libraries_abreast

REFERRED = -2
"""The code of a problem whose rows are at other places than those of the others."""
LOOKS = 3
"""Iterations whose seconds tell what lanes would save."""
TRIES = 3
"""So many problems are taken for an example of the others, where theirs are not those of half of them."""
WORTH = 0.09
"""Share of an iteration that lanes must save: less is lost again, since the memory of several problems does not fit the cache."""
ROUNDS = 8
"""Problems for each lane, below which libraries are not worth compiling, nor are lanes full."""
MEMORY = 1 << 30
"""Bytes that the slots of all windows may take; with less than a slot for each lane, problems are solved one by one."""
RESULT = np.dtype(
    [("code", np.int64), ("iterations", np.int64)]
    + [(name, float) for name in ("cost", "gradient", "violation", "complementarity", "error", "scale", "seconds")]
)
"""The result of one problem."""
_REFERRED = (REFERRED, End.NOT_FINITE, End.REFERRED)
"""Codes of problems that single solves are to have."""


def fits_interior(ocp: OCP, options: Any) -> bool:
    """Whether compiled kernels answer all requests of the interior point for this problem."""
    if type(options) is not IPMOptions:
        return False
    return serves(prepared(ocp, _still(ocp), options).program, alone=False)


def _still(ocp: OCP) -> Guess:
    return Guess(np.repeat(ocp.x0[None], ocp.horizon + 1, axis=0), np.zeros((ocp.horizon, ocp.nu)))


def in_interior(
    batch: Batch,
    guess: tuple[Array, Array],
    options: IPMOptions,
    *,
    gains: bool,
    threads: int | None,
    told: Callable[[int], None] | None,
) -> BatchSolution:
    """Solve a batch; guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu)."""
    began, members = time.perf_counter(), _Problems(batch, guess, options)
    ran, how = members.solve(threads, told)
    stopped = ran.stopped
    r, us, limits = members.results, members.us, batch.bounds()
    if limits is not None:  # those of the programs are relaxed
        us = np.where(members.program.held, us, np.clip(us, *limits))
    status = tuple(members.status(i, options) for i in range(len(batch)))
    measures = {"gradients": r["gradient"], "kkts": r["error"], "violations": r["violation"]}
    meta = {**how, "solve_times": r["seconds"].tolist(), **{name: of.tolist() for name, of in measures.items()}}
    meta |= {"stopped": True} if stopped else {}
    arrays = members.xs, us, r["cost"].copy(), r["iterations"].copy()
    found = BatchSolution(*arrays, status, batch.times(), meta=meta)
    if gains:
        found = _with_gains(batch, found)
    if not stopped:
        rest: dict[str, Any] = {"gains": gains, "threads": threads, "told": told}
        found = with_referred(
            batch,
            guess,
            options,
            "ipm",
            found,
            np.flatnonzero(np.isin(r["code"], _REFERRED)),
            **rest,
        )
    return replace(found, meta={**found.meta, "seconds": time.perf_counter() - began})


def pays(program: StageProgram, options: IPMOptions, count: int, threads: int, share: Callable[[], float]) -> bool:
    """Whether lanes are to hold ``count`` problems, and not the knots of one.

    That saves the share of :func:`empty` lanes in derivatives. share: tells that of derivatives in an iteration, if asked. A limit
    of time counts what a problem alone takes, and asks for problems one by one.
    """
    many = count >= ROUNDS * find_toolchain().lanes * max(threads, 1)
    return options.time_limit is None and many and empty(program) > WORTH and empty(program) * share() > WORTH


def empty(program: StageProgram) -> float:
    """The share of lanes that the knots of a problem leave empty in derivatives."""
    lanes = find_toolchain().lanes
    knots = np.array([len(s.plain.t) for s in cast(Any, program.stages[:-1])])
    return float(1.0 - knots.sum() / (-(-knots // lanes) * lanes).sum())


def _with_gains(batch: Batch, found: BatchSolution) -> BatchSolution:
    """The feedback about each trajectory, as the single solve has it."""
    n, N, m = found.us.shape
    K = np.zeros((n, N, m, batch.ocp.manifold.ndx))
    for i in np.flatnonzero(np.isfinite(found.cost)):
        K[i] = tracking_gains(batch[int(i)], found.xs[i], found.us[i])
    return replace(found, K=K, k=np.zeros((n, N, m)))


class _Problems(Rows):
    """interior_problem_t of interior_slot.h for each problem, and where the solutions come to be.

    program: of one of the problems, first: its guess.
    """

    def __init__(self, batch: Batch, guess: tuple[Array, Array], options: IPMOptions) -> None:
        ocp, n = batch.ocp, len(batch)
        super().__init__(n)
        N, nx = ocp.horizon, ocp.manifold.nx
        self.batch, self.guess, self.options = batch, guess, options
        self.xs, self.us = np.full((n, N + 1, nx), np.nan), np.full((n, N, ocp.nu), np.nan)
        self.results = np.zeros(n, RESULT)
        self.results["code"], self.results["cost"] = NOT_BEGUN, np.nan
        limits, us = batch.bounds(), guess[1]
        if limits is not None:
            us = np.where(limits[0] == limits[1], limits[0], us)
        one = not batch.bounds_differ and (limits is None or len(limits[0]) == 1)
        program, numbers = self._structured(options, 1 if one else n)
        self.program = program
        *stages, end = cast(Any, program.stages)
        data = [self.stages(batch, i, s.data, batch.path(_path(i), len(s.plain.t))) for i, s in enumerate(stages)]
        phases = np.ascontiguousarray(np.stack(data, axis=1))
        final = self.end(batch, end, batch.path(_path(-1), 1))
        columns = [phases, np.ascontiguousarray(np.stack(final, axis=1)), batch.x0(), guess[0], us, *numbers]
        self.rows = self.table([*columns, self.xs, self.us])
        self.chosen = np.flatnonzero(self.results["code"] == NOT_BEGUN)

    # -- solves -----------------------------------------------------------------------------------------------------------
    def solve(self, threads: int | None, told: Callable[[int], None] | None) -> tuple[Ran, dict[str, Any]]:
        """Solve those that are chosen, on threads; whether that was stopped, and how the work was shared."""
        self._turns = itertools.count()
        threads = min(threads or default_threads(), max(1, len(self.chosen)))
        if pays(self.program, self.options, len(self.chosen), threads, self._share) and self._fit(threads):
            return self._in_windows(threads, told)
        ran = run_workers(self._run_each, threads, told)
        return ran, {"how": ran.how, "lanes": lanes_at_work(threads, self.program.stages[:-1])}

    def _fit(self, threads: int) -> bool:
        """Whether there is memory for a slot of each lane."""
        one = WindowSlot(self.program, None).bytes
        return bool(threads * (find_toolchain().lanes * one + 8 * sum(kept_by(self.program))) <= MEMORY)

    def _in_windows(self, threads: int, told: Callable[[int], None] | None) -> tuple[Ran, dict[str, Any]]:
        lanes, libraries = find_toolchain().lanes, libraries_abreast(self.batch[0], self.program)
        windows: list[InteriorWindow] = []

        def work(stop: Array) -> None:
            windows.append(InteriorWindow(self.program, libraries, lanes))
            self._run_window(windows[-1], stop)

        ran = run_workers(work, threads, told)
        use: dict[str, float] = {"threads": threads, "slots": threads * lanes}
        for i, name in ((1, "expansions"), (0, "sweeps")):
            busy, every = (
                sum(of[i] for of in counts) for counts in zip(*((w.busy, w.all) for w in windows), strict=True)
            )
            use |= {name: busy / every} if every else {}
        self.results["seconds"] /= lanes  # whose problems take turns
        return ran, {"how": "lanes", "lanes": use}

    def _run_window(self, window: InteriorWindow, stop: Array) -> None:
        running: dict[WindowSlot, int] = {}

        def start(slot: WindowSlot) -> Solve | None:
            number = self._next(stop)
            if number is None:
                return None
            slot.slot.problem = address(self.rows) + number * self.rows.strides[0]
            running[slot], slot.method = number, self._method(slot.slot)
            return slot.method.solve()

        def end(slot: WindowSlot, ended: Ended) -> None:
            assert slot.method is not None
            self._note(running.pop(slot), slot.slot, slot.method, ended, stop)

        run_window(window, window.slots, start, end, lambda: bool(stop[STOP]))
        for slot, number in running.items():  # where it was stopped
            self._note_stopped(number, slot.slot, slot.method)

    def _run_each(self, stop: Array) -> None:
        slot = self._slot()
        while (number := self._next(stop)) is not None:
            slot.problem = address(self.rows) + number * self.rows.strides[0]
            method = self._method(slot)
            ended = run_alone(method.solve(), slot.answer, lambda: bool(stop[STOP]))
            if ended is None:
                self._note_stopped(number, slot, method)
                return
            self._note(number, slot, method, ended, stop)

    def _slot(self) -> InteriorSlot:
        """What answers for problems, one after the other, on any thread."""
        program = self.program
        system = NewtonSystem(program, kernels(program.n, program.m))
        points, steps = (Point(program), Point(program)), (system.empty_step(), system.empty_step())
        slot = InteriorSlot(program, system, points, steps, program.multipliers(), own_rooms=True)
        slot.look_at_structure()
        return slot

    def _next(self, stop: Array) -> int | None:
        """The number of the next problem; None where there is none, or the batch is stopped."""
        place = next(self._turns)
        return None if stop[STOP] or place >= len(self.chosen) else int(self.chosen[place])

    def _method(self, slot: InteriorSlot) -> InteriorPoint:
        return InteriorPoint(slot.size, self.options)

    def _note(self, number: int, slot: InteriorSlot, method: InteriorPoint, ended: Ended, stop: Array) -> None:
        """Take what a solve has come to."""
        slot.put()
        r = self.results[number]
        r["code"], r["iterations"], r["cost"] = int(ended.end), ended.iterations, ended.objective
        r["gradient"], r["violation"], r["complementarity"], r["error"], r["scale"] = ended[3:]
        r["seconds"] = time.perf_counter() - method.began
        if ended.end not in _REFERRED:
            stop[ENDED] += 1

    def _note_stopped(self, number: int, slot: InteriorSlot, method: InteriorPoint | None) -> None:
        if method is not None and method.begun:
            self._note(number, slot, method, method.ended(End.INTERRUPTED), np.zeros(3, np.int64))

    def _share(self) -> float:
        """The share of derivatives and trials in an iteration, of the least seconds in the first ones of a problem."""
        slot, seconds = self._slot(), list[tuple[float, float, float]]()
        slot.take(self.first)
        method = InteriorPoint(slot.size, replace(self.options, max_iterations=LOOKS + 1))

        def begin_iteration(*, step_length: float, **_: float) -> None:
            spent = slot.seconds
            if method.iteration and step_length:  # neither with the start nor without a step
                seconds.append(spent)

        method.report = begin_iteration
        run_alone(method.solve(), slot.answer)
        derivatives, system, trials = np.min(seconds or [(0.0, 1.0, 0.0)], axis=0)
        return float((derivatives + trials) / (derivatives + system + trials))

    # -- programs -----------------------------------------------------------------------------------------------------------

    def _structured(self, options: IPMOptions, count: int) -> tuple[StageProgram, list[Array]]:
        """The program of a problem whose bounds are at the places of many, and what :meth:`_numbers` finds of all with it.

        Who has them at other places, or such as contradict each other, is referred.
        """
        tries: list[tuple[int, StageProgram, Array, list[Array]]] = []
        at = 0
        for _ in range(TRIES):
            at, program = self._from(at, options)
            alike, sound, numbers = self._numbers(program, count)
            tries.append((at, program, alike & sound, numbers))
            if 2 * alike.sum() >= count:
                break
            at = int(np.flatnonzero(~alike)[0])
        at, program, fits, numbers = max(tries, key=lambda tried: tried[2].sum())
        self.first = self._guess(at)
        self.results["code"][~np.broadcast_to(fits, self.count)] = REFERRED
        return program, numbers

    def _numbers(self, p: StageProgram, count: int) -> tuple[Array, Array, list[Array]]:
        """Bounds, targets and fixed numbers (count, ..) of each problem, or, with a count of 1, those of all.

        Before these, whose rows are at the places of a program, and whose bounds do not contradict each other, both (count,).
        """
        numbers = [np.empty((count, size)) for size in (p.numbers, p.numbers, p.rows, len(p.fixed))]
        alike, sound = np.zeros(count, bool), np.zeros(count, bool)
        for i in range(count):
            own = p.rebound(self.batch[i], self._guess(i).us)
            alike[i], sound[i] = p.alike(own), interior_status.crossed_bounds(own) is None
            if not alike[i]:
                continue
            for rows, values in zip(numbers, (own.lower, own.upper, own.target, own.fixed_at), strict=True):
                rows[i] = values
        return alike, sound, numbers

    def _guess(self, i: int) -> Guess:
        return Guess(*(rows[i if len(rows) == self.count else 0] for rows in self.guess))

    def _from(self, start: int, options: IPMOptions) -> tuple[int, StageProgram]:
        """The first problem from one on whose bounds are numbers, else that one, and its program."""
        for i in range(start, self.count):
            found = self._program(i, options)
            if not np.isnan(found.row_bounds).any():
                return i, found
        return start, self._program(start, options)

    def _program(self, i: int, options: IPMOptions) -> StageProgram:
        return prepared(self.batch[i], self._guess(i), options).program

    def status(self, i: int, options: IPMOptions) -> Status:
        """The status of problem i: that of a single solve."""
        r: Any = self.results[i]
        code = int(r["code"])
        if code in (NOT_BEGUN, *_REFERRED):
            return termination.not_started()
        end, at = End(code), Guess(self.xs[i], self.us[i])
        program = self._program(i, options) if end is End.STOPPED else self.program
        errors = (float(r[name]) for name in ("cost", "gradient", "violation", "complementarity", "error", "scale"))
        return interior_status.status_of(Ended(end, int(r["iterations"]), *errors), options, program, at)


def _path(i: int) -> Callable[[OCP], Any]:
    return lambda ocp: with_rows(ocp)[i]
