"""A batch by the interior-point method: kernels/interior.h, whose solves run one after the other on each thread.

Nothing of Python runs inside a solve; lanes hold the knots of a problem. What a solve asks of Python (steps for feasibility alone,
a program with other places of rows) is solved there as a whole, one by one.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, load, struct_of
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers.batch.batch import Batch
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.batch.threads import lanes_at_work, prefixed, run_on_threads, with_referred
from trajopt.solvers.batch.values import NOT_BEGUN, Rows
from trajopt.solvers.direct.program_parts import with_rows
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.ipm import barrier, ends, ipm, line_search, measure, newton
from trajopt.solvers.ipm.library import kernels, source
from trajopt.solvers.ipm.measure import Optimality
from trajopt.solvers.ipm.newton import NewtonSystem
from trajopt.solvers.ipm.stage_program import EXACT, MIXED, Point, StageProgram
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.shooting import verdicts
from trajopt.solvers.shooting.compiled.compiled_iteration import code_of
from trajopt.solvers.shooting.search import filter as filters
from trajopt.solvers.shooting.search.filter import most_pairs
from trajopt.stage.compiled.compiled_stages import CompiledEnd, CompiledStages

CONVERGED, STOPPED, PRECISION, INTERRUPTED, REFERRED = range(5)
"""How a solve ended: see interior.h."""
RESULT = np.dtype(
    [("code", np.int64), ("iterations", np.int64)]
    + [(name, float) for name in ("cost", "gradient", "violation", "complementarity", "error", "scale", "seconds")]
)
_SMALL_NUMBERS = {
    **{
        name: getattr(barrier, name)
        for name in ("KAPPA_EPS", "KAPPA_MU", "THETA_MU", "PROGRESS", "REMEMBERED", "AFTER")
    },
    **{
        name: getattr(filters, name)
        for name in ("MARGIN", "ARMIJO", "SWITCH_PHI", "SWITCH_THETA", "SMALL", "LARGE", "NOISE")
    },
    **{name: getattr(line_search, name) for name in ("CORRECTIONS", "WORTH", "SAFETY")},
    **{name: getattr(newton, name) for name in ("SLOW", "LITTLE", "SHORT")},
    **{name: getattr(ends, name) for name in ("ACCEPTABLE", "BOTTOM")},
    **{
        name: getattr(ipm, name)
        for name in ("STEEPEST", "PUSH", "NEAR_PUSH", "LARGEST_ESTIMATE", "KAPPA_SIGMA", "TAU", "NEAR")
    },
    "LARGEST": barrier.LARGEST,
    "SMALLEST_SIGMA": barrier.SIGMA[0],
    "LARGEST_SIGMA": barrier.SIGMA[1],
    "SCALED_FROM": measure.LARGE,
}
_Part = struct_of("part_t", "first:l last:l row:l count:l exact:l values expand curve room curve_room")
_PLACE = "v d g A B lx lu gx gu Q S R cost x_next kept"
_Interior = struct_of(
    "interior_t",
    "parts count:l end_row:l end_count:l end_exact:l end_values end_expand end_curve end_room still "
    "N:l rows:l fixes:l row fix fixed kind held lower upper target at system "
    + " ".join(prefixed(f"place_{i}", _PLACE) for i in range(2))
    + " lam y zl zu f step_0 step_1 pairs d own_rows own_fixes new_rows new_fixes most_pairs:l equations:l adaptive:l "
    "max_iterations:l barrier:d least:d gradient_tolerance:d constraint_tolerance:d time_limit:d members total:l next done stop",
)


@lru_cache(maxsize=16)
def library(ndx: int, nu: int) -> ctypes.CDLL:
    """The functions for n = ndx states and m = nu controls, compiled or from the cache."""
    constants = [f"#define {name} {value!r}" for name, value in _SMALL_NUMBERS.items()]
    types = (files("trajopt.stage") / "kernels" / "stage_types.h").read_text()
    folder = files("trajopt.solvers.batch") / "kernels"
    texts = [(folder / name).read_text() for name in ("interior_stages.h", "interior.h")]
    found = load("\n".join([source(ndx, nu), *constants, types, *texts]))
    size = bound(found, "interior_size", "i", ctypes.c_long)
    if [size(i) for i in range(3)] != [ctypes.sizeof(_Interior), ctypes.sizeof(_Part), RESULT.itemsize]:
        raise RuntimeError("interior.h and interior.py disagree about their structs")
    return found


def fits_interior(ocp: OCP, options: Any) -> bool:
    """Whether kernels/interior.h has all that the solver does with a problem."""
    if type(options) is not IPMOptions or not ocp.manifold.is_vector_space:
        return False
    return _is_compiled(ipm.prepared(ocp, _still(ocp), options).program)


def _still(ocp: OCP) -> Guess:
    return Guess(np.repeat(ocp.x0[None], ocp.horizon + 1, axis=0), np.zeros((ocp.horizon, ocp.nu)))


def _is_compiled(program: StageProgram) -> bool:
    *stages, end = program.stages
    if MIXED in program.orders or not isinstance(end, CompiledEnd):
        return False
    if not all(isinstance(s, CompiledStages) and hasattr(s.library, "values") for s in stages):
        return False
    kinds = zip(program.stages, program.orders, strict=True)
    return all("second" in s.library.shape.parts for s, order in kinds if order == EXACT)  # type: ignore[attr-defined]


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
    run = bound(members.library, "interior_run", "p")
    shared = run_on_threads(run, lambda shared: _Worker(members, options, shared), len(batch), threads, told)
    r, us, limits = members.results, members.us, batch.bounds()
    if limits is not None:  # those of the programs are relaxed
        us = np.where(members.program.held, us, np.clip(us, *limits))
    status = tuple(members.status(i, options) for i in range(len(batch)))
    meta = {
        "how": shared.how,
        "lanes": lanes_at_work(shared.threads, members.program.stages[:-1]),
        "solve_times": r["seconds"].tolist(),
    }
    arrays = members.xs, us, r["cost"].copy(), r["iterations"].copy()
    found = BatchSolution(*arrays, status, batch.times(), meta=meta)
    if gains:
        found = _with_gains(batch, found)
    if not shared.stopped:
        rest: dict[str, Any] = {"gains": gains, "threads": threads, "told": told}
        found = with_referred(batch, guess, options, "ipm", found, np.flatnonzero(r["code"] == REFERRED), **rest)
    return replace(found, meta={**found.meta, "seconds": time.perf_counter() - began})


def _with_gains(batch: Batch, found: BatchSolution) -> BatchSolution:
    """The feedback about each trajectory, as the single solve has it."""
    n, N, m = found.us.shape
    K = np.zeros((n, N, m, batch.ocp.manifold.ndx))
    for i in np.flatnonzero(np.isfinite(found.cost)):
        K[i] = tracking_gains(batch[int(i)], found.xs[i], found.us[i])
    return replace(found, K=K, k=np.zeros((n, N, m)))


class _Members(Rows):
    """member_t of interior.h for each problem, and where the solutions come to be."""

    def __init__(self, batch: Batch, guess: tuple[Array, Array], options: IPMOptions) -> None:
        ocp, n = batch.ocp, len(batch)
        super().__init__(n)
        N, nx = ocp.horizon, ocp.manifold.nx
        self.batch, self.guess = batch, guess
        self.program = program = self._first(options)
        self.library = library(program.n, program.m)
        self.xs, self.us = np.full((n, N + 1, nx), np.nan), np.full((n, N, ocp.nu), np.nan)
        self.results = np.zeros(n, RESULT)
        self.results["code"], self.results["cost"] = NOT_BEGUN, np.nan
        us = np.empty((n, N, ocp.nu))
        numbers = [np.empty((n, size)) for size in (program.numbers, program.numbers, program.rows, len(program.fixed))]
        for i in range(n):
            own = program.rebound(batch[i], self._guess(i).us)
            us[i] = np.where(own.held, own.held_at, self._guess(i).us)
            fits = program.alike(own) and ends.contradiction(own) is None
            self.results["code"][i] = NOT_BEGUN if fits else REFERRED
            if fits:
                for rows, values in zip(numbers, (own.lower, own.upper, own.target, own.fixed_at), strict=True):
                    rows[i] = values
        *stages, end = stages_of_program(program)
        data = [self.stages(batch, i, s.data, batch.path(_path(i), len(s.plain.t))) for i, s in enumerate(stages)]
        phases = np.ascontiguousarray(np.stack(data, axis=1))
        final = self.end(batch, end, batch.path(_path(-1), 1))
        columns = [phases, np.ascontiguousarray(np.stack(final, axis=1)), batch.x0(), guess[0], us, *numbers]
        self.rows = self.table([*columns, self.xs, self.us, self.results])
        self.chosen = np.flatnonzero(self.results["code"] == NOT_BEGUN)
        self.rows = np.ascontiguousarray(self.rows[self.chosen])

    def _guess(self, i: int) -> Guess:
        return Guess(*(rows[i if len(rows) == self.count else 0] for rows in self.guess))

    def _first(self, options: IPMOptions) -> StageProgram:
        """The program of the first problem whose bounds are numbers: the others are compared with it."""
        programs = (self._program(i, options) for i in range(self.count))
        told = (p for p in programs if not np.isnan(p.row_bounds).any())
        return next(told, None) or self._program(0, options)

    def _program(self, i: int, options: IPMOptions) -> StageProgram:
        return ipm.prepared(self.batch[i], self._guess(i), options).program

    def status(self, i: int, options: IPMOptions) -> Status:
        """The verdict of problem i: that of a single solve."""
        r: Any = self.results[i]
        code, iterations, scale = int(r["code"]), int(r["iterations"]), float(r["scale"])
        told = [float(r[name]) for name in ("gradient", "violation", "complementarity", "error")]
        now = Optimality._make([*told, 0.0, 0.0, 0.0, 0, 0.0])
        if code == CONVERGED:
            return ends.converged(iterations, now, scale)
        if code == PRECISION:
            return ends.precision(iterations, now, scale)
        if code == INTERRUPTED:
            return ends.interrupted(iterations)
        if code == STOPPED:
            at: Any = Guess(self.xs[i], self.us[i])
            return ends.stopped(self._program(i, options), at, now, iterations, options, scale)
        return verdicts.not_begun()


def stages_of_program(program: StageProgram) -> Any:
    """The stages, all of them compiled."""
    return program.stages


def _path(i: int) -> Callable[[OCP], Any]:
    return lambda ocp: with_rows(ocp)[i]


class _Worker:
    """interior_t of a thread, with its memory."""

    def __init__(self, members: _Members, options: IPMOptions, shared: Array) -> None:
        program, o = members.program, options
        N, n, rows, fixes = program.N, program.n, program.rows, len(program.fixed)
        system = NewtonSystem(program, kernels(n, program.m))
        steps, z = [system.empty_step() for _ in range(2)], program.multipliers()
        points = [Point(program) for _ in range(2)]
        most = most_pairs(o.max_iterations)
        own = [aligned(max(size, 1)) for size in (2 * most, N * n, rows, fixes, rows, fixes)]
        *stages, end = stages_of_program(program)
        kept = [[self._kept(s, order) for s, order in zip(stages, program.orders, strict=False)] for _ in points]
        tables = [pointers_or_none(k) for k in kept]
        self._alive: Any = members, system, steps, z, points, own, kept, tables, shared
        self._rooms: list[Array] = []
        parts = (_Part * len(stages))(*(self._part(program, i) for i in range(len(stages))))
        self._parts = parts
        _, of_end, count = program.parts[-1]
        exact = program.orders[-1] == EXACT
        curve = code_of(end.library.end_second) if exact else None
        calls = code_of(end.library.end_values), code_of(end.library.end_first), curve
        places = [
            (
                *(getattr(p.data, name) for name in _PLACE.split()[:12]),
                *map(address, (p.cost, p.x_next)),
                ctypes.addressof(table),
            )
            for p, table in zip(points, tables, strict=True)
        ]
        structure = (getattr(program.structure, name) for name, *_ in program.structure._fields_)
        still = address(program._still_read) if program._any_read else None
        at = [address(shared) + 8 * i for i in range(3)]
        self.data = _Interior(
            *(ctypes.addressof(parts), len(stages), of_end.start, count, exact),
            *(*calls, self._room(end.library.rooms.doubles), still),
            *(*structure, system._ref, *places[0], *places[1], *z.addresses, *(s.ref for s in steps)),
            *map(address, own),
            *(most, system._equations, o.barrier_strategy == "adaptive", o.max_iterations, o.barrier),
            *(barrier.LEAST * o.gradient_tolerance, o.gradient_tolerance, o.constraint_tolerance, o.time_limit or 0.0),
            *(address(members.rows), len(members.rows), *at),
        )
        self.address = ctypes.addressof(self.data)

    @staticmethod
    def _kept(stages: Any, order: str) -> Array | None:
        """What first derivatives leave for second ones."""
        if order != EXACT:
            return None
        own, knots = stages.library, len(stages.plain.t)
        return aligned(-(-knots // own.lanes) * own.kept * stages.data.substeps * own.lanes)

    def _room(self, doubles: int) -> int:
        self._rooms.append(aligned(doubles))
        return address(self._rooms[-1])

    def _part(self, program: StageProgram, i: int) -> Any:
        stages = stages_of_program(program)[i]
        knots, rows, count = program.parts[i]
        own, exact = stages.library, program.orders[i] == EXACT
        curve = code_of(own.second) if exact else None
        room = self._room(own.second_rooms(stages.data.substeps).doubles) if exact else None
        calls = code_of(own.values), code_of(own.first), curve, self._room(own.rooms.doubles), room
        return _Part(knots.start, knots.stop, rows.start, count, exact, *calls)


def pointers_or_none(arrays: list[Array | None]) -> ctypes.Array:
    """A C array of the addresses; none of what is not there."""
    return (ctypes.c_void_p * max(len(arrays), 1))(*[None if a is None else address(a) for a in arrays])
