"""A batch by the interior-point method: kernels/interior_loop.h, with a problem in each lane (:mod:`.abreast.interior_lanes`) where
that is faster, else one problem after the other on each thread, with its knots in the lanes.

Nothing of Python runs inside a solve. What it asks of Python (steps for feasibility alone, a program with other places of rows) is
solved there as a whole, one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, bound
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.batch.abreast.interior_lanes import Lanes
from trajopt.solvers.batch.problems.batch import Batch
from trajopt.solvers.batch.problems.values import NOT_BEGUN, Rows
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.batch.threads import lanes_at_work, run_on_threads, with_referred
from trajopt.solvers.direct.program_parts import with_rows
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.ipm import ends, ipm
from trajopt.solvers.ipm.compiled_ipm import GO_ON, RESULT, InteriorLoop, kernels, serves
from trajopt.solvers.ipm.ends import End
from trajopt.solvers.ipm.newton import NewtonSystem
from trajopt.solvers.ipm.stage_program import Point, StageProgram
from trajopt.solvers.options import IPMOptions

REFERRED = -2
"""The code of a problem whose rows are at other places than those of the others."""
LOOKS = 3
"""Iterations whose seconds tell what lanes would save."""
TRIES = 3
"""So many problems are taken for an example of the others, where theirs are not those of half of them."""
_REFERRED = (REFERRED, End.NOT_FINITE, End.NO_STEP, End.CREEPS)
"""Codes of problems that single solves are to have."""


def fits_interior(ocp: OCP, options: Any) -> bool:
    """Whether kernels/interior_loop.h has all that the solver does with a problem."""
    if type(options) is not IPMOptions:
        return False
    return serves(ipm.prepared(ocp, _still(ocp), options).program, alone=False)


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
    began, members = time.perf_counter(), _Members(batch, guess, options)
    stopped, how = _run(members, options, threads, told)
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


def _run(
    members: _Members, options: IPMOptions, threads: int | None, told: Callable[[int], None] | None
) -> tuple[bool, dict[str, Any]]:
    """Solve the members: whether that was stopped, how the work was shared, and the share of lanes at work."""
    program, rows = members.program, members.rows
    lanes = Lanes(program, options, len(rows), threads, lambda: _share(members, options))
    if lanes.pay:
        ran, use = lanes.run(members.batch[0], rows, told)
        members.results["seconds"] /= lanes.seats  # whose problems take turns
        return ran.stopped, {"how": "lanes", "lanes": use}
    run = bound(kernels(program.n, program.m).library, "interior_run", "p")
    ran = run_on_threads(run, lambda shared: _worker(members, options, shared), members.count, threads, told)
    return ran.stopped, {"how": ran.how, "lanes": lanes_at_work(ran.threads, program.stages[:-1])}


def _share(members: _Members, options: IPMOptions) -> float:
    """The share of derivatives and trials in an iteration, of the least seconds in the first ones of a problem."""
    loop = _worker(members, options, np.zeros(3, np.int64))
    if not loop.begin(*members.first):
        return 0.0
    loop.multipliers(given=False)
    seconds: list[tuple[float, float, float]] = []
    while len(seconds) < LOOKS and loop.iterate() == GO_ON:
        seconds.append(loop.seconds)
    derivatives, system, trials = np.min(seconds or [(0.0, 1.0, 0.0)], axis=0)
    return float((derivatives + trials) / (derivatives + system + trials))


def _with_gains(batch: Batch, found: BatchSolution) -> BatchSolution:
    """The feedback about each trajectory, as the single solve has it."""
    n, N, m = found.us.shape
    K = np.zeros((n, N, m, batch.ocp.manifold.ndx))
    for i in np.flatnonzero(np.isfinite(found.cost)):
        K[i] = tracking_gains(batch[int(i)], found.xs[i], found.us[i])
    return replace(found, K=K, k=np.zeros((n, N, m)))


class _Members(Rows):
    """member_t of interior_state.h for each problem, and where the solutions come to be.

    program: of one of the problems, first: its guess.
    """

    def __init__(self, batch: Batch, guess: tuple[Array, Array], options: IPMOptions) -> None:
        ocp, n = batch.ocp, len(batch)
        super().__init__(n)
        N, nx = ocp.horizon, ocp.manifold.nx
        self.batch, self.guess = batch, guess
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
        self.rows = self.table([*columns, self.xs, self.us, self.results])
        self.chosen = np.flatnonzero(self.results["code"] == NOT_BEGUN)
        self.rows = np.ascontiguousarray(self.rows[self.chosen])

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
            alike[i], sound[i] = p.alike(own), ends.crossed_bounds(own) is None
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
        return ipm.prepared(self.batch[i], self._guess(i), options).program

    def status(self, i: int, options: IPMOptions) -> Status:
        """The status of problem i: that of a single solve."""
        r: Any = self.results[i]
        code = int(r["code"])
        if code in (NOT_BEGUN, *_REFERRED):
            return termination.not_started()
        end, at = End(code), Guess(self.xs[i], self.us[i])
        program = self._program(i, options) if end is End.STOPPED else self.program
        gradient = float(r["gradient"]) / float(r["scale"])
        errors = termination.Errors(float(r["error"]), gradient, violation=float(r["violation"]))
        measured = termination.Measured(int(r["iterations"]), errors, options.tolerances)
        return ends.status_of(end, measured, float(r["cost"]), options, program, at)


def _path(i: int) -> Callable[[OCP], Any]:
    return lambda ocp: with_rows(ocp)[i]


def _worker(members: _Members, options: IPMOptions, shared: Array) -> InteriorLoop:
    """What solves members on a thread."""
    program = members.program
    system = NewtonSystem(program, kernels(program.n, program.m))
    points, steps = (Point(program), Point(program)), (system.empty_step(), system.empty_step())
    loop = InteriorLoop(program, system, points, steps, program.multipliers(), own_rooms=True)
    loop.prepare(options, shared)
    loop.data.members, loop.data.total = address(members.rows), len(members.rows)
    return loop
