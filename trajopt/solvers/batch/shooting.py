"""SLQ's family in batches: windows of problems on threads, and second starts of those whose linear gaps blew up."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import find_toolchain
from dynamics_backends.protocol import Array
from trajopt.lq.compiled_lq import CompiledLQ
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers.batch.problems.batch import Batch
from trajopt.solvers.batch.second_starts import firsts_of, with_seconds
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.batch.window_batch import Told, WindowBatch, shares_of
from trajopt.solvers.methods.shooting import ShootingMethod
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting.restart import restarted
from trajopt.solvers.window.newton import filtered
from trajopt.solvers.window.shooting import corrects_of, models_of
from trajopt.solvers.window.shooting_slot import layout, sizes_of
from trajopt.solvers.window.shooting_window import ShootingWindow, directions_doubles
from trajopt.solvers.window.status import Blamed
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.numerics import numerics_for

SLOTS = 2
"""Slots of a window for each lane: problems wait for several kinds of work; the memory of more does not fit the caches."""


def fits_lanes(ocp: OCP, options: Any) -> bool:
    """Whether compiled kernels answer all requests of shooting by a line search for this problem."""
    if type(options) is not SLQOptions or ocp.constraints() or filtered(ocp, options):
        return False
    return StageEvaluator(ocp, options.hessian, "auto").compiled


def in_lanes(
    batch: Batch,
    guess: tuple[Array, Array],
    options: SLQOptions,
    *,
    gains: bool,
    threads: int | None,
    told: Told,
    max_iterations: Array | None = None,
) -> BatchSolution:
    """Solve a batch; guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). max_iterations (n,): of each, where they differ.

    Raises ValueError where the problem is not compiled.
    """
    began = time.perf_counter()
    problems = _Problems(batch, guess, options, gains=gains, threads=threads, max_iterations=max_iterations)
    meta = problems.solve(told)
    found = problems.solution(time.perf_counter() - began, meta)
    return _second_starts(batch, guess, options, found, threads=threads)


class _Problems(WindowBatch):
    """shooting_problem_t of shooting_slot.h for each problem."""

    def __init__(self, batch: Batch, guess: tuple[Array, Array], options: SLQOptions, **rest: Any) -> None:
        super().__init__(batch, guess, options, **rest)
        self.evaluator = evaluator = StageEvaluator(self.ocp, options.hessian, "auto")
        if not evaluator.compiled:
            raise ValueError("the problem is not compiled as a whole")
        self.lq = CompiledLQ(self.ocp.manifold.ndx, self.ocp.nu)
        *stages, end = cast(Any, evaluator.stages)
        phases = np.stack([self.stages(batch, i, s.data) for i, s in enumerate(stages)], axis=1)
        bounds = batch.bounds() or (None, None)
        to = self.xs, self.us, self.K, self.k
        self.rows = self.table([phases, np.stack(self.end(batch, end), axis=1), batch.x0(), *guess, *bounds, *to])
        self.models, self.corrects = models_of((), options), corrects_of(self.ocp, options)

    def solve(self, told: Told) -> dict[str, Any]:
        """Solve all in windows; how the work was shared."""
        each, shared = layout(sizes_of(self.ocp, windowed=True)).doubles, directions_doubles(self.ocp, self.options)
        count = self.slots_of_a_thread(SLOTS * find_toolchain().lanes, 8 * each, 8 * shared)
        given = self.ocp, self.evaluator, self.lq, self.options
        ran, windows = self.solve_in_windows(lambda: ShootingWindow(*given, count), told)
        self.seconds /= count  # whose problems take turns
        use = {"threads": ran.threads, "slots": ran.threads * count, **shares_of(windows)}
        return {"how": "lanes", "lanes": use} | ({"stopped": True} if ran.stopped else {})

    def _method(self, number: int, slot: Any) -> ShootingMethod:
        return ShootingMethod(self.models, self.options, self.corrects, int(self.limits[number]))

    def status(self, i: int) -> Status:
        """The status of problem i: that of a single solve."""

        def blamed(xs: Array, us: Array) -> Blamed:
            ocp = self.batch[i]
            return Blamed(ocp, xs, numerics_for(ocp, self.options.hessian).evaluator.expand(xs, us))

        return self._status(i, blamed)


def _second_starts(
    batch: Batch, guess: tuple[Array, Array], options: SLQOptions, found: BatchSolution, *, threads: int | None
) -> BatchSolution:
    """Those whose linear gaps have blown up once more, with nonlinear ones: see :mod:`trajopt.solvers.shooting.restart`."""
    firsts = firsts_of(found, np.array(found.meta["defects"]), options)
    if not firsts:
        return found
    chosen = list(firsts)
    again = [restarted(options, s, 0.0) for s in firsts.values()]
    guesses = tuple(g[chosen] if len(g) == len(batch) else g for g in guess)
    limits = np.array([o.max_iterations for o in again])
    common = replace(again[0], max_iterations=options.max_iterations)
    rest: dict[str, Any] = {"gains": found.K is not None, "threads": threads, "told": None}
    second = in_lanes(batch.subset(chosen), guesses, common, max_iterations=limits, **rest)  # type: ignore[arg-type]
    return with_seconds(found, firsts, {i: second[j] for j, i in enumerate(chosen)}, second.meta["seconds"])
