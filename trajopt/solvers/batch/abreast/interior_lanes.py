"""A batch by the interior point in lanes: kernels/interior_seats.h, whose groups of seats run on threads.

Nothing of Python runs inside; the calling thread waits, and sets ``stop`` on Ctrl-C.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import (
    address,
    aligned,
    bound,
    code_of,
    default_threads,
    find_toolchain,
    struct_of,
)
from dynamics_backends.protocol import Array
from trajopt.lq import equality_lq
from trajopt.problem.ocp import OCP
from trajopt.solvers.batch.abreast.seats import STACK, Seats, TurnsData, how_many, with_seats
from trajopt.solvers.batch.threads import Ran, run_groups
from trajopt.solvers.ipm import compiled_ipm
from trajopt.solvers.ipm.compiled_ipm import InteriorLoop, PartData
from trajopt.solvers.ipm.library import Kernels
from trajopt.solvers.ipm.newton import NewtonSystem
from trajopt.solvers.ipm.stage_program import EXACT, Point, StageProgram
from trajopt.solvers.options import IPMOptions
from trajopt.stage.compiled import builds
from trajopt.stage.compiled.library import ABREAST, Library

SEATS = 1
"""Seats of a group for each lane: all are in step, since they wait for each other's derivatives behind their Newton systems."""
WORTH = 0.09
"""Share of an iteration that lanes must save: less is lost again, since the memory of several problems does not fit the cache."""
ROUNDS = 8
"""Problems for each lane, below which libraries are not worth compiling, nor are lanes full."""

_SharedPart = struct_of(
    "shared_part_t",
    "first:l last:l row:l count:l exact:l values expand curve room curve_room expand_abreast curve_abreast kept",
)
_Solver = struct_of("solver_t", "interior solve parts ahead lam y")
_TURNS = [name for name, *_ in TurnsData._fields_]
_Group = struct_of(
    "group_t",
    "seats count:l turn:l serve own busy_back:l busy_ahead:l all_back:l all_ahead:l parts part_count:l end_row:l end_count:l "
    "end_exact:l end_values end_expand end_curve end_room room kept_for sweeps",
)
_PART = [name for name, *_ in PartData._fields_]
_END = [f"end_{name}" for name in ("row", "count", "exact", "values", "expand", "curve")]


@lru_cache(maxsize=16)
def kernels(ndx: int, nu: int) -> Kernels:
    """The functions for n = ndx states and m = nu controls, compiled or from the cache."""
    found = with_seats(compiled_ipm.source(ndx, nu), ("interior_seats.h",))
    size = bound(found, "interior_seats_size", "i", ctypes.c_long)
    structs = (_SharedPart, _Solver, _Group)
    if [size(i) for i in range(len(structs))] != [ctypes.sizeof(s) for s in structs]:
        raise RuntimeError("interior_seats.h and interior_lanes.py disagree about their structs")
    return compiled_ipm.checked(found)


def empty(program: StageProgram) -> float:
    """The share of lanes that the knots of a problem leave empty in derivatives."""
    lanes = find_toolchain().lanes
    knots = np.array([len(s.plain.t) for s in cast(Any, program.stages[:-1])])
    return float(1.0 - knots.sum() / (-(-knots // lanes) * lanes).sum())


class Lanes:
    """What solves ``count`` problems of a program's structure on some threads.

    ``pay``: whether that is worth it, and there is room for a problem in each lane. Lanes that hold problems, and not knots, save
    the share of :func:`empty` lanes in derivatives. share: tells that of derivatives in an iteration, if asked. A limit of time
    counts what a problem alone takes, and asks for problems one by one.
    """

    def __init__(
        self, program: StageProgram, options: IPMOptions, count: int, threads: int | None, share: Callable[[], float]
    ) -> None:
        self.program, self.options = program, options
        *self.stages, self.end = cast(Any, program.stages)
        self.groups = min(threads or default_threads(), count)
        lanes = find_toolchain().lanes
        many = count >= ROUNDS * lanes * max(self.groups, 1)
        self.pay = options.time_limit is None and many and empty(program) > WORTH and empty(program) * share() > WORTH
        if not self.pay:
            return
        self.kernels = kernels(program.n, program.m)
        one = _Seat(self, np.zeros(3, np.int64), np.zeros((0, 1), np.int64))
        _, self.seats = how_many(count, self.groups, SEATS, one.bytes, 8 * sum(self.kept))
        self.pay = self.seats >= lanes

    def run(self, ocp: OCP, rows: Array, told: Callable[[int], None] | None) -> tuple[Ran, dict[str, float]]:
        """Solve the members, whose rows are those of member_t; and the share of lanes at work. ocp: one of the problems."""
        self.libraries = self._abreast(ocp)
        run = bound(self.kernels.library, "interior_seats_run", "p")
        made: list[_Part] = []

        def worker(shared: Array) -> _Part:
            made.append(_Part(self, [_Seat(self, shared, rows) for _ in range(self.seats)]))
            return made[-1]

        ran = run_groups(run, worker, self.groups, told)
        use: dict[str, float] = {"threads": self.groups, "seats": self.groups * self.seats}
        for name, of in (("expansions", "ahead"), ("sweeps", "back")):
            busy, every = (sum(getattr(part.data, f"{what}_{of}") for part in made) for what in ("busy", "all"))
            use |= {name: busy / every} if every else {}
        return ran, use

    def _abreast(self, ocp: OCP) -> list[Library]:
        """The libraries of the phases for several problems."""
        wanted = [
            builds.search(
                cast(Any, phase.dynamics.sampling).called,
                s.library.shape._replace(parts=(*s.library.shape.parts, ABREAST)),
            )
            for phase, s in zip(ocp.phases, self.stages, strict=True)
        ]
        builds.make_here(wanted)
        return [search.wait() for search in wanted]

    @property
    def kept(self) -> list[int]:
        """Numbers that first derivatives of a phase leave for second ones: of all knots of a problem, or of a knot of several."""
        sizes = []
        for s, order in zip(self.stages, self.program.orders, strict=False):
            own = s.library
            blocks = -(-len(s.plain.t) // own.lanes) if order == EXACT else 0
            sizes.append(blocks and blocks * own.kept * s.data.substeps * own.lanes)
        return sizes


class _Seat:
    """A solver, and the memory of a problem."""

    def __init__(self, lanes: Lanes, shared: Array, rows: Array) -> None:
        program, count = lanes.program, len(lanes.stages)
        system = NewtonSystem(program, lanes.kernels)
        points, steps = (Point(program), Point(program)), (system.empty_step(), system.empty_step())
        self.loop = InteriorLoop(program, system, points, steps, program.multipliers(), seated=True)
        self.loop.prepare(lanes.options, shared)
        self.loop.data.members, self.loop.data.total = address(rows), len(rows)
        self._parts, self._ahead, foreseen = (PartData * count)(), (ctypes.c_void_p * count)(), program.multipliers()
        own = self.loop.state, self._parts, self._ahead
        self._foreseen = foreseen
        self.solver = _Solver(self.loop.address, *(ctypes.addressof(a) for a in own), *foreseen.addresses[:2])
        blocks: list[Any] = [*(p.v for p in points), *(s.z.lam for s in steps), system.lq.A, system.rows]
        self.bytes = sum(b.base.nbytes for b in blocks) + system.lq.knots.nbytes
        n, most = program.n + program.m, int(np.diff(program.row).max())
        most += program.n
        self.stack = STACK + 8 * (4 * n * n + most * (most + 2 * n))  # of a step back with its equations


class _Part:
    """A group of seats with its memory."""

    def __init__(self, lanes: Lanes, seats: Sequence[_Seat]) -> None:
        self._own, first = seats, seats[0].loop
        self._seats = Seats(lanes.kernels.library, [ctypes.addressof(s.solver) for s in seats], seats[0].stack)
        rooms = [
            library.second_rooms(s.data.substeps) if "second" in library.shape.parts else library.rooms
            for s, own in zip(lanes.stages, lanes.libraries, strict=True)
            for library in (s.library, own)
        ]
        rooms.append(lanes.end.library.rooms)
        self._room, self._kept = aligned(max(room.doubles for room in rooms)), [aligned(size) for size in lanes.kept]
        shared = [self._shared(*own) for own in zip(first.parts, lanes.libraries, self._kept, strict=True)]
        self._parts = (_SharedPart * len(shared))(*shared)
        d = self.data = _Group()
        for name in _TURNS:
            setattr(d, name, getattr(self._seats.data, name))
        for name in _END:
            setattr(d, name, getattr(first.data, name))
        d.parts, d.part_count = ctypes.addressof(self._parts), len(shared)
        d.room = d.end_room = address(self._room)
        d.sweeps = code_of(bound(equality_lq.abreast(lanes.program.n, lanes.program.m), "elq_factor_abreast", "pi"))
        self.address = ctypes.addressof(d)

    @staticmethod
    def _shared(part: Any, library: Any, kept: Array) -> Any:
        """A phase with its library abreast, and what is kept of it."""
        curve = code_of(library.second) if part.exact else None
        own = (getattr(part, name) for name in _PART)
        return _SharedPart(*own, code_of(library.first), curve, address(kept) if part.exact else None)
