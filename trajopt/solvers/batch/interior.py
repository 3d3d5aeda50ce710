"""Interior-point solver for batches, on threads.

SIMD lanes hold either one problem each (a window), where that is faster, or the knots of one problem; then each thread solves
one problem after the other. Single solves handle problems that the kernels do not cover: those that need feasibility steps
(restoration), or whose program has a different row structure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import lanes_in_use
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.batch.threads import lanes_at_work
from trajopt.solvers.batch.window_batch import MEMORY, WindowBatch, shares_of
from trajopt.solvers.direct.program_parts import with_rows
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.interior.stage_program import StageProgram
from trajopt.solvers.ipm import prepared
from trajopt.solvers.methods.driver import ProgressCallback, run_alone
from trajopt.solvers.methods.interior_point import End, Ended, InteriorPoint
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.problems.batch import Batch
from trajopt.solvers.window import interior_status
from trajopt.solvers.window.interior_slot import InteriorSlot, reused_sizes, serves
from trajopt.solvers.window.interior_window import InteriorWindow

TIMED_ITERATIONS = 3
"""Number of iterations timed to estimate the gain by problems in lanes."""
TRIES = 3
"""Maximum number of problems tried as the template of a batch, which should share its bound structure with most problems."""
WORTH = 0.09
"""Minimum fraction of an iteration that lanes must save, to outweigh cache misses from the memory of several problems."""
ROUNDS = 8
"""Minimum number of problems per lane and thread; with fewer, lanes stay empty."""
_REFERRED = (End.NOT_FINITE, End.REFERRED)
"""Terminations after which a single solve repeats the problem."""


def _still(ocp: OCP) -> Guess:
    return Guess(np.repeat(ocp.x0[None], ocp.horizon + 1, axis=0), np.zeros((ocp.horizon, ocp.nu)))


def pays(program: StageProgram, options: IPMOptions, count: int, threads: int, share: Callable[[], float]) -> bool:
    """True if it is faster that lanes hold ``count`` problems rather than the knots of one problem.

    Lanes of problems save the fraction :func:`empty` of the derivative work. ``share()`` measures the fraction of an iteration
    spent on derivatives. A time limit applies to one problem alone, so it requires problems one by one.
    """
    many = count >= ROUNDS * lanes_in_use() * max(threads, 1)
    return options.time_limit is None and many and empty(program) > WORTH and empty(program) * share() > WORTH


def empty(program: StageProgram) -> float:
    """Return the fraction of lanes that stay empty in derivatives if lanes hold the knots of one problem."""
    lanes = lanes_in_use()
    knots = np.array([len(s.plain.t) for s in cast(Any, program.stages[:-1])])
    return float(1.0 - knots.sum() / (-(-knots // lanes) * lanes).sum())


def _with_gains(batch: Batch, found: BatchSolution) -> BatchSolution:
    """Add feedback gains about each trajectory, computed as in a single solve."""
    n, N, m = found.us.shape
    K = np.zeros((n, N, m, batch.ocp.manifold.ndx))
    for i in np.flatnonzero(np.isfinite(found.cost)):
        K[i] = tracking_gains(batch[int(i)], found.xs[i], found.us[i])
    return replace(found, K=K, k=np.zeros((n, N, m)))


class InteriorBatch(WindowBatch):
    """Batch of interior_problem_t (interior_slot.h). ``program``: that of the template problem; ``first``: the template's guess."""

    measures: ClassVar = {"gradient": "gradient", "kkt": "error", "violation": "violation"}

    @classmethod
    def fits(cls, ocp: OCP, options: Any) -> bool:
        """See :class:`WindowBatch`."""
        if type(options) is not IPMOptions:
            return False
        return serves(prepared(ocp, _still(ocp), options).program, alone=False)

    def __init__(
        self, batch: Batch, guess: tuple[Array, Array], options: IPMOptions, *, gains: bool, **rest: Any
    ) -> None:
        super().__init__(batch, guess, options, gains=False, **rest)
        self.gains = gains
        n, limits, us = self.count, batch.bounds(), guess[1]
        if limits is not None:
            us = np.where(limits[0] == limits[1], limits[0], us)
        one = not batch.bounds_differ and (limits is None or len(limits[0]) == 1)
        program, fits, numbers = self._structured(1 if one else n)
        self.program = program
        *stages, end = cast(Any, program.stages)
        data = [self.stages(batch, i, s.data, batch.path(_path(i), len(s.plain.t))) for i, s in enumerate(stages)]
        final = self.end(batch, end, batch.path(_path(-1), 1))
        columns = [np.stack(data, axis=1), np.stack(final, axis=1), batch.x0(), guess[0], us, *numbers]
        self.rows = self.table([*columns, self.xs, self.us])
        self.order = np.flatnonzero(np.broadcast_to(fits, n)).tolist()
        self.threads = min(self.threads, max(1, len(self.order)))

    # -- solves -----------------------------------------------------------------------------------------------------------
    def solve(self, on_finished: ProgressCallback) -> dict[str, Any]:
        """Solve the problems of :attr:`order` on threads; return metadata on how threads and lanes shared the work."""
        if pays(self.program, self.options, len(self.order), self.threads, self._derivative_fraction) and self._fit():
            lanes = lanes_in_use()
            ran, windows = self.solve_in_windows(lambda: InteriorWindow(self.program, lanes), on_finished)
            self.seconds /= lanes  # problems of a window share its wall time
            use = {"threads": ran.threads, "slots": ran.threads * lanes, **shares_of(windows, "expansions")}
            how: dict[str, Any] = {"how": "lanes", "lanes": use}
        else:
            ran = self.solve_one_by_one(self._slot, on_finished)
            how = {"how": ran.how, "lanes": lanes_at_work(ran.threads, self.program.stages[:-1])}
        return how | ({"stopped": True} if ran.stopped else {})

    def solution(self, began: float, meta: dict[str, Any]) -> BatchSolution:
        """Return the solutions; ``meta["referred"]`` lists the problems that need a single solve."""
        found, limits, chosen = super().solution(began, meta), self.batch.bounds(), set(self.order)
        if limits is not None:  # bounds of the programs are relaxed
            found = replace(found, us=np.where(self.program.held, found.us, np.clip(found.us, *limits)))
        left = [i for i, e in enumerate(self.ended) if i not in chosen or (e is not None and e.end in _REFERRED)]
        if left and "stopped" not in meta:
            found = replace(found, meta={**found.meta, "referred": left})
        return _with_gains(self.batch, found) if self.gains else found

    def _fit(self) -> bool:
        """True if there is memory for a slot of each lane."""
        program, lanes = self.program, lanes_in_use()
        one = InteriorSlot.for_batch(program, (np.zeros(1), [None] * len(program.stages))).bytes
        return bool(self.threads * (lanes * one + 8 * sum(reused_sizes(program))) <= MEMORY)

    def _slot(self) -> InteriorSlot:
        """Return a slot that solves problems one after the other; any thread may use it."""
        return InteriorSlot.for_batch(self.program)

    def _method(self, number: int, slot: Any) -> InteriorPoint:
        slot.method = InteriorPoint(slot.size, self.options)
        return cast(InteriorPoint, slot.method)

    def _cost(self, slot: Any, ended: Ended) -> float:
        return ended.objective

    def _derivative_fraction(self) -> float:
        """Measure the fraction of an iteration spent on derivatives and trial steps: minimum times over the first iterations."""
        slot, seconds = self._slot(), list[tuple[float, float, float]]()
        slot.take(self.first)
        method = InteriorPoint(slot.size, replace(self.options, max_iterations=TIMED_ITERATIONS + 1))

        def begin_iteration(*, step_length: float, **_: float) -> None:
            spent = slot.seconds
            if method.iteration and step_length:  # excludes the start and iterations without a step
                seconds.append(spent)

        method.report = begin_iteration
        run_alone(method.solve(gains=False), slot.answer)
        derivatives, system, trials = np.min(seconds or [(0.0, 1.0, 0.0)], axis=0)
        return float((derivatives + trials) / (derivatives + system + trials))

    # -- programs -----------------------------------------------------------------------------------------------------------

    def _structured(self, count: int) -> tuple[StageProgram, Array, list[Array]]:
        """Return the program of a template problem, a mask of the problems that fit it, and the values from :meth:`_numbers`.

        A problem fits if its bounds are on the same rows as those of the template and do not contradict each other.
        """
        tries: list[tuple[int, StageProgram, Array, list[Array]]] = []
        at = 0
        for _ in range(TRIES):
            at, program = self._from(at)
            alike, valid, numbers = self._numbers(program, count)
            tries.append((at, program, alike & valid, numbers))
            if 2 * alike.sum() >= count:
                break
            at = int(np.flatnonzero(~alike)[0])
        at, program, fits, numbers = max(tries, key=lambda tried: tried[2].sum())
        self.first = self._guess(at)
        return program, fits, numbers

    def _numbers(self, p: StageProgram, count: int) -> tuple[Array, Array, list[Array]]:
        """Return two masks (count,) and the values of each problem; a count of 1 applies to all problems.

        Masks: the bounds are on the rows of program ``p``; the bounds do not contradict each other.
        Values: lower and upper bounds, targets and fixed variables, (count, ..) each.
        """
        numbers = [np.empty((count, size)) for size in (p.numbers, p.numbers, p.rows, len(p.fixed))]
        alike, valid = np.zeros(count, bool), np.zeros(count, bool)
        for i in range(count):
            own = p.rebound(self.batch[i], self._guess(i).us)
            alike[i], valid[i] = p.alike(own), interior_status.crossed_bounds(own) is None
            if not alike[i]:
                continue
            for rows, values in zip(numbers, (own.lower, own.upper, own.target, own.fixed_at), strict=True):
                rows[i] = values
        return alike, valid, numbers

    def _guess(self, i: int) -> Guess:
        return Guess(*(rows[i if len(rows) == self.count else 0] for rows in self.guess))

    def _from(self, start: int) -> tuple[int, StageProgram]:
        """Return the first problem from ``start`` on without NaN bounds, and its program; problem ``start`` if none exists."""
        for i in range(start, self.count):
            found = self._program(i)
            if not np.isnan(found.row_bounds).any():
                return i, found
        return start, self._program(start)

    def _program(self, i: int) -> StageProgram:
        return prepared(self.batch[i], self._guess(i), self.options).program

    def status(self, i: int) -> Status:
        """Return the status of problem i, equal to that of a single solve."""
        ended: Ended | None = self.ended[i]
        if ended is None or ended.end in _REFERRED:
            return termination.not_started()
        program = self._program(i) if ended.end is End.STOPPED else self.program
        return interior_status.status_of(ended, self.options, program, Guess(self.xs[i], self.us[i]))


def _path(i: int) -> Callable[[OCP], Any]:
    return lambda ocp: with_rows(ocp)[i]
