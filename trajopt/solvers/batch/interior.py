"""Interior-point solver for batches: each thread solves one problem after the other, with the knots of the problem in SIMD lanes.

Single solves handle problems that the kernels do not cover: those that need feasibility steps (restoration), whose program has a
different row structure, or whose values are not finite or bounds contradictory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.batch.slot_batch import SlotBatch
from trajopt.solvers.batch.solution import BatchSolution, guess_of
from trajopt.solvers.direct.program_parts import with_rows
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.interior.stage_program import StageProgram
from trajopt.solvers.methods.driver import ProgressCallback
from trajopt.solvers.methods.interior_point import InteriorEnd, InteriorEnded, InteriorPoint
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.window import interior_status
from trajopt.solvers.window.interior import program_of
from trajopt.solvers.window.interior_slot import InteriorSlot, serves

_REFERRED = (InteriorEnd.NOT_FINITE, InteriorEnd.REFERRED)
"""Terminations after which a single solve repeats the problem."""


def _with_gains(batch: Batch, found: BatchSolution) -> BatchSolution:
    """Add LQR feedback gains K about each trajectory with a finite cost; zero gains for others, zero feed-forward k for all."""
    n, N, m = found.us.shape
    K = np.zeros((n, N, m, batch.ocp.manifold.ndx))
    for i in np.flatnonzero(np.isfinite(found.cost)):
        K[i] = tracking_gains(batch[int(i)], found.xs[i], found.us[i])
    return replace(found, K=K, k=np.zeros((n, N, m)))


class InteriorBatch(SlotBatch):
    """Batch solved by compiled kernels of the interior-point method (interior_slot.h). ``program``: that of most problems."""

    measures: ClassVar = {"gradient": "gradient", "kkt": "error", "violation": "violation"}

    @classmethod
    def fits(cls, ocp: OCP, options: Any) -> bool:
        """True for IPMOptions (not a subclass), if compiled kernels answer all requests of the interior-point method."""
        if type(options) is not IPMOptions:
            return False
        return serves(program_of(ocp, np.zeros((ocp.horizon, ocp.nu)), options.hessian))

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

    def solution(self, began: float, meta: dict[str, Any]) -> BatchSolution:
        """Return the solutions, with gains if requested, and controls clipped to their bounds except for held ones.

        ``meta["referred"]`` lists the problems that need a single solve: other row structure, contradictory bounds, restoration,
        or non-finite values. It is missing if there are none, or if Ctrl-C stopped the batch.
        """
        found, limits, chosen = super().solution(began, meta), self.batch.bounds(), set(self.order)
        if limits is not None:  # bounds of the programs are relaxed
            found = replace(found, us=np.where(self.program.held, found.us, np.clip(found.us, *limits)))
        left = [i for i, e in enumerate(self.ended) if i not in chosen or (e is not None and e.end in _REFERRED)]
        if left and "stopped" not in meta:
            found = replace(found, meta={**found.meta, "referred": left})
        return _with_gains(self.batch, found) if self.gains else found

    def solve(self, on_finished: ProgressCallback) -> dict[str, Any]:
        """Solve the problems of :attr:`order`, one after the other on each thread; return metadata on threads and lanes."""
        stages = self.program.stages[:-1]
        return self.solve_one_by_one(lambda: InteriorSlot.for_batch(self.program), stages, on_finished)

    def _method(self, number: int, slot: Any) -> InteriorPoint:
        """Return the interior-point method for the problem in a slot; number: unused."""
        return InteriorPoint(slot.size, self.options)

    def _cost(self, slot: Any, ended: InteriorEnded) -> float:
        """Return the objective at the end of a solve."""
        return ended.objective

    # -- programs -----------------------------------------------------------------------------------------------------------

    def _structured(self, count: int) -> tuple[StageProgram, Array, list[Array]]:
        """Return a program with the most common structure of bounds, a mask of the problems that fit it, and their values.

        A problem fits if its bounds are on the same rows and do not contradict each other. Values: lower and upper bounds, targets
        of equality rows, and values of fixed state entries, (count, ..) each; those of the program for problems that do not fit.
        count: 1 if all problems have the same bounds, else their number.
        """
        first, programs = self._program(0), dict[Any, StageProgram]()
        structures, values = list[Any](), list[tuple[Array, ...]]()
        for i in range(count):
            own = first.rebound(self.batch[i], guess_of(self.guess, i, self.count).us)
            structures.append(own.bound_structure if interior_status.crossed_bounds(own) is None else None)
            values.append((own.lower, own.upper, own.target, own.fixed_at))
            programs.setdefault(structures[-1], own)
        counts = Counter(structures)
        common = max(programs, key=lambda structure: (structure is not None, counts[structure]))
        fits = [structure is not None and structure == common for structure in structures]
        template = values[structures.index(common)]
        rows = zip(*(own if fit else template for own, fit in zip(values, fits, strict=True)), strict=True)
        return programs[common], np.array(fits), [np.array(column) for column in rows]

    def _program(self, i: int) -> StageProgram:
        """Return the program of problem i as in a single solve."""
        return program_of(self.batch[i], guess_of(self.guess, i, self.count).us, self.options.hessian)

    def status(self, i: int) -> Status:
        """Return the status of problem i, equal to that of a single solve; "interrupted" if it was not solved here."""
        ended: InteriorEnded | None = self.ended[i]
        if ended is None or ended.end in _REFERRED:
            return termination.not_started()
        program = self._program(i) if ended.end is InteriorEnd.STOPPED else self.program
        return interior_status.status_of(ended, self.options, program, Guess(self.xs[i], self.us[i]))


def _path(i: int) -> Callable[[OCP], Any]:
    """Return a function that selects from a problem the constraints with rows of phase i; -1: those of the final knot."""
    return lambda ocp: with_rows(ocp)[i]
