"""A batch by Newton's loop, that of DDP: kernels/newton_loop.h, with one problem in each lane.

Few problems are solved one after the other on each thread, with the knots of a problem in the lanes.  Nothing of Python runs inside
a solve.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, bound, default_threads
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.lq.compiled_lq import CompiledLQ
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.batch.abreast.newton_lanes import NewtonLanes
from trajopt.solvers.batch.problems.batch import Batch
from trajopt.solvers.batch.problems.values import NOT_BEGUN, Rows, measures_of
from trajopt.solvers.batch.second_starts import firsts_of, with_seconds
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.batch.threads import lanes_at_work, run_on_threads, with_referred
from trajopt.solvers.options import DDPOptions
from trajopt.solvers.shooting.ddp import by_newton, ddp
from trajopt.solvers.shooting.newton.compiled_newton import CompiledNewton, library, serves
from trajopt.solvers.shooting.newton.newton_ends import Blamed, End, Ended, to_blame, verdict
from trajopt.solvers.shooting.newton.newton_memory import RESULT
from trajopt.solvers.shooting.restart import restarted
from trajopt.stage.compiled.newton_abreast import newton_libraries
from trajopt.stage.numerics import numerics_for

FULL = 4
"""From so many problems for each lane of all threads on, lanes hold problems: toward the end of a batch they are empty, while
knots of a problem fill them all the time."""


def fits_newton(ocp: OCP, options: Any) -> bool:
    """Whether kernels/newton_loop.h has all that the solver does with a problem."""
    if type(options) is not DDPOptions or ocp.constraints():
        return False
    return by_newton(ocp, options) and serves(_evaluators(ocp, options), curved=True)


def _evaluators(ocp: OCP, options: DDPOptions) -> tuple[Any, Any]:
    """The evaluator of the Gauss-Newton Hessian of the cost, and the one that the curvature is added to; maybe one."""
    plain = numerics_for(ocp).evaluator
    return plain, plain if options.hessian == "gauss_newton" else numerics_for(ocp, options.hessian).evaluator


def in_newton(
    batch: Batch,
    guess: tuple[Array, Array],
    options: DDPOptions,
    *,
    gains: bool,
    threads: int | None,
    told: Callable[[int], None] | None,
    max_iterations: Array | None = None,
) -> BatchSolution:
    """Solve a batch; guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). max_iterations (n,): of each, where they differ."""
    began = time.perf_counter()
    limits = np.full(len(batch), options.max_iterations) if max_iterations is None else max_iterations
    members = _Members(batch, guess, options, gains, threads, limits)
    lq = CompiledLQ(batch[0].manifold.ndx, batch[0].nu)
    how = (
        _in_lanes(members, options, threads, told) if members.libraries else _whole(members, options, lq, threads, told)
    )
    r = members.results
    status = tuple(members.status(i, options, lq) for i in range(len(batch)))
    arrays = members.xs, members.us, r["cost"].copy(), r["iterations"].copy()
    times = (r["seconds"] / how.pop("together", 1.0)).tolist()
    meta = {**how, "solve_times": times, "seconds": time.perf_counter() - began, **measures_of(r)}
    found = BatchSolution(*arrays, status, batch.times(), members.K, members.k, meta)
    if NOT_BEGUN in r["code"]:
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


def _in_lanes(
    members: _Members, options: DDPOptions, threads: int | None, told: Callable[[int], None] | None
) -> dict[str, Any]:
    """Solve the members, one in each lane; what did the work."""
    lanes = NewtonLanes(members.batch[0], options, members.plain, members.exact, members.libraries or [])
    use, alone = lanes.run(members.rows, threads, told)
    share = alone / max(1, int(members.results["iterations"].sum()))
    return {"how": "lanes", "lanes": {**use.told, "alone": share}, "together": use.together} | _stopped(use)


def _stopped(ran: Any) -> dict[str, Any]:
    return {"stopped": True} if ran.stopped else {}


def _whole(
    members: _Members, options: DDPOptions, lq: CompiledLQ, threads: int | None, told: Callable[[int], None] | None
) -> dict[str, Any]:
    """Solve the members one after the other on each thread; what did the work."""
    workers: list[CompiledNewton] = []

    def worker(shared: Array) -> CompiledNewton:
        made = CompiledNewton(members.batch[0], members.plain, members.exact, lq, options, shared, own_rooms=True)
        made.data.members, made.data.total = address(members.rows), members.count
        workers.append(made)
        return made

    try:
        shared = run_on_threads(bound(library(), "newton_run", "p"), worker, members.count, threads, told)
    finally:
        for made in workers:
            made.close()
    return {"how": shared.how, "lanes": lanes_at_work(shared.threads, members.plain.stages[:-1])} | _stopped(shared)


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
    """newton_member_t of newton_point.h for each problem, and where the solutions come to be."""

    def __init__(
        self,
        batch: Batch,
        guess: tuple[Array, Array],
        options: DDPOptions,
        gains: bool,
        threads: int | None,
        max_iterations: Array,
    ) -> None:
        ocp, n = batch[0], len(batch)
        super().__init__(n)
        N, nx, nu, ndx = ocp.horizon, ocp.manifold.nx, ocp.nu, ocp.manifold.ndx
        self.batch, self.guess = batch, guess
        self.plain, self.exact = _evaluators(ocp, options)
        self.xs, self.us = np.full((n, N + 1, nx), np.nan), np.full((n, N, nu), np.nan)
        self.K = np.zeros((n, N, nu, ndx)) if gains else None
        self.k = np.zeros((n, N, nu)) if gains else None
        self.results = np.zeros(n, RESULT)
        self.results["code"], self.results["cost"] = NOT_BEGUN, np.nan
        own: Any = [self.exact.stages[:-1], self.plain.stages[:-1]]
        bounds = batch.bounds() or (None, None)
        few = n < FULL * self.plain.stages[0].library.lanes * (threads or default_threads())
        self.libraries = None if few else newton_libraries(ocp, own[0])
        curved = zip(own[0], self.libraries or [s.curved for s in own[0]], strict=True)
        data = [[s.data for s in stages] for stages in own] + [[s.data_in(library) for s, library in curved]]
        phases = [np.stack([self.stages(batch, i, d) for i, d in enumerate(of)], axis=1) for of in data]
        evaluators: Any = self.exact, self.plain
        ends = [np.stack(self.end(batch, e.stages[-1]), axis=1) for e in evaluators]
        columns = [*phases, *ends, batch.x0(), *guess, *bounds, self.xs, self.us, self.K, self.k, self.results]
        limits = np.asarray(max_iterations, np.int64)[:, None]
        self.rows = np.ascontiguousarray(np.concatenate([self.table(columns), limits], axis=1))

    def status(self, i: int, o: DDPOptions, lq: CompiledLQ) -> Status:
        """The status of problem i: that of a single solve. What was refused leaves its guess behind."""
        r: Any = self.results[i]
        if r["code"] == NOT_BEGUN:
            return termination.not_started()
        end, xs, us = End(int(r["code"])), self.xs[i].copy(), self.us[i].copy()
        ended = Ended(end, int(r["iterations"]), *(float(r[name]) for name in ("gradient", "defect", "kkt", "change")))
        if end is End.NOT_FINITE:
            rows = (guess[i if len(guess) == self.count else 0] for guess in self.guess)
            self.xs[i], self.us[i], r["cost"] = *rows, np.nan

        def refused() -> Blamed:
            ocp = self.batch[i]
            with np.errstate(all="ignore"):
                return to_blame(ocp, xs, us, _evaluators(ocp, o), lq)

        return verdict(ended, o, refused)
