"""The interior-point method in C: kernels/interior_loop.h, the twin of ipm.py, for single solves and for the threads of batches.

One library for n states and m controls holds the linear algebra of :mod:`trajopt.solvers.ipm.library` and the loop.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import (
    CompilerError,
    address,
    aligned,
    bound,
    code_of,
    has_compiler,
    load,
    loaded_soon,
    struct_of,
)
from dynamics_backends.protocol import Array
from trajopt.solvers import barrier_rules
from trajopt.solvers.ipm import barrier, ends, library, line_search, measure, newton
from trajopt.solvers.ipm.library import Kernels, Multipliers
from trajopt.solvers.ipm.measure import Optimality, Violation
from trajopt.solvers.ipm.newton import NewtonSystem, Step
from trajopt.solvers.ipm.stage_program import EXACT, MIXED, Point, StageProgram
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.rules import filter as filters
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.compiled.library import StagesData
from trajopt.stage.pool import numbers_filled, worth_sharing
from trajopt.stage.start import starts_at_once

GO_ON = -1
"""What an iteration says that ends nothing."""
RESULT = np.dtype(
    [("code", np.int64), ("iterations", np.int64)]
    + [(name, float) for name in ("cost", "gradient", "violation", "complementarity", "error", "scale", "seconds")]
)
"""result_t."""
_CONSTANTS = {
    **{
        name: getattr(barrier_rules, name)
        for name in ("KAPPA_EPS", "KAPPA_MU", "THETA_MU", "KAPPA_SIGMA", "TAU", "PUSH", "NEAR_PUSH", "NEAR")
    },
    **{name: getattr(barrier, name) for name in ("PROGRESS", "REMEMBERED", "AFTER", "LARGEST")},
    **{
        name: getattr(filters, name)
        for name in ("MARGIN", "ARMIJO", "SWITCH_PHI", "SWITCH_THETA", "SMALL", "LARGE", "NOISE")
    },
    **{
        name: getattr(line_search, name)
        for name in ("CORRECTIONS", "WORTH", "BLOCKED", "EMPTIED", "SAFETY", "CREEPING", "CREPT")
    },
    **{name: getattr(newton, name) for name in ("SLOW", "LITTLE", "SHORT", "LARGEST_ESTIMATE")},
    **{name: getattr(ends, name) for name in ("ACCEPTABLE", "BOTTOM")},
    "STEEPEST": measure.STEEPEST,
    "SMALLEST_SIGMA": barrier.SIGMA[0],
    "LARGEST_SIGMA": barrier.SIGMA[1],
    "SCALED_FROM": measure.LARGE,
}
PartData = struct_of("part_t", "first:l last:l row:l count:l exact:l values expand curve room curve_room")
_KERNELS = "interior_stages.h", "interior_state.h", "interior_search.h", "interior_loop.h"
_PLACE = "v d g A B lx lu gx gu Q S R cost x_next kept xs"
_STRUCTURE = [name for name, *_ in library.StructureData._fields_]
_Interior = struct_of(
    "interior_t",
    "parts count:l end_row:l end_count:l end_exact:l end_values end_expand end_curve end_room still nx:l moved carried "
    "N:l rows:l fixes:l row fix fixed kind held lower upper target at system "
    + " ".join(f"place_{i}_{name}" for i in range(2) for name in _PLACE.split())
    + " lam y zl zu f step_0 step_1 pairs d own_rows own_fixes new_rows new_fixes most_pairs:l equations:l adaptive:l "
    "max_iterations:l barrier:d least:d gradient_tolerance:d constraint_tolerance:d time_limit:d members total:l next done stop",
)
_Member = struct_of("member_t", "stages end x0 xs us lower upper target at to_xs to_us result")
_VIOLATION, _STEP = ["theta", "largest", "gap", "barrier", "squares"], ["own", "alpha:d", "alpha_z:d", "slope:d"]


def _numbers(prefix: str, names: list[str]) -> str:
    return " ".join(f"{prefix}_{name}:d" for name in names)


_Solve = struct_of(
    "solve_t",
    " ".join(
        (
            f"interior member point other {_numbers('at', _VIOLATION)} scale:d objective:d mu:d most:d filter_scale:d",
            _numbers("error", [str(i) for i in range(barrier.REMEMBERED)]),
            _numbers("slow_error", [str(i) for i in range(newton.SLOW)]),
            "is_free:l remembered:l oldest:l pairs:l matched:l blocked:l emptied:l hopeful:l slow:l slow_count:l crept:l",
            "iteration:l found:l began:d",
            _numbers("now", ["gradient", "violation", "plain", "error", "shifted", "mean", "squares"]),
            f"products:l {' '.join(f'step_{name}' for name in _STEP)} {_numbers('there', _VIOLATION)}",
            "alpha:d objective_there:d size:d derivatives:d backward:d rollout:d since:d",
        )
    ),
)
_SIZES = [
    ctypes.sizeof(_Interior),
    ctypes.sizeof(PartData),
    RESULT.itemsize,
    ctypes.sizeof(_Member),
    ctypes.sizeof(_Solve),
]
_PLACE_SIZE = _Interior.place_1_v.offset - _Interior.place_0_v.offset


def source(ndx: int, nu: int) -> str:
    """The text of the functions."""
    constants = [f"#define {name} {value!r}" for name, value in _CONSTANTS.items()]
    ended = f"enum {{ {', '.join(f'{end.name} = {end.value}' for end in ends.End)} }};"
    types = (files("trajopt.stage") / "kernels" / "stage_types.h").read_text()
    folder = files("trajopt.solvers.ipm") / "kernels"
    texts = [(folder / name).read_text() for name in _KERNELS]
    return "\n".join([library.source(ndx, nu), *constants, ended, types, *texts])


def kernels(ndx: int, nu: int) -> Kernels:
    """The functions for n = ndx states and m = nu controls; of a compiler in a hurry where a solve starts at once.

    Raises CompilerError without a compiler.
    """
    return _kernels(ndx, nu, starts_at_once())


@lru_cache(maxsize=16)
def _kernels(ndx: int, nu: int, soon: bool) -> Kernels:
    if not has_compiler():
        raise CompilerError("solver 'ipm' needs a C compiler, and no working one was found; use 'dms' or 'sqp'")
    return checked((loaded_soon if soon else load)(source(ndx, nu)))


def checked(found: ctypes.CDLL) -> Kernels:
    """The functions of a library. Raises RuntimeError where its structs are others."""
    size = bound(found, "interior_size", "i", ctypes.c_long)
    if [size(i) for i in range(len(_SIZES))] != _SIZES:
        raise RuntimeError("interior_state.h and compiled_ipm.py disagree about their structs")
    return Kernels(found)


def serves(program: StageProgram, *, alone: bool) -> bool:
    """Whether the C has all that the method does with a program; alone: and one thread does the work.

    These are stages that are compiled as wholes.
    """
    *stages, end = program.stages
    if MIXED in program.orders or type(end) is not CompiledEnd:
        return False
    if not all(type(s) is CompiledStages and hasattr(s.library, "values") for s in stages):
        return False
    kinds = zip(program.stages, program.orders, strict=True)
    if not all("second" in s.library.shape.parts for s, order in kinds if order == EXACT):  # type: ignore[attr-defined]
        return False
    own, numbers = cast(Any, stages), numbers_filled(program.n, program.m)
    blocks = ((-(-len(s.plain.t) // s.library.lanes), s.library.lanes) for s in own)
    return not alone or not any(worth_sharing(*block, numbers) for block in blocks)


class InteriorLoop:
    """interior_t and solve_t with their memory, for solves of one structure, one after the other.

    own_rooms: whether the kernels work in memory of its own, as where another thread calls them. seated: whether it asks others for
    their work: it has no memory for kernels then.
    """

    def __init__(
        self,
        program: StageProgram,
        system: NewtonSystem,
        points: tuple[Point, Point],
        steps: tuple[Step, Step],
        z: Multipliers,
        *,
        own_rooms: bool = False,
        seated: bool = False,
    ) -> None:
        self._program, self._own_rooms, self._seated = program, own_rooms, seated
        *stages, end = self._stages = list[Any](program.stages)
        kept = [[self._room_kept(s, order) for s, order in zip(stages, program.orders, strict=False)] for _ in points]
        tables = [(ctypes.c_void_p * len(k))(*[None if a is None else address(a) for a in k]) for k in kept]
        self._work = [
            aligned(max(size, 1)) for size in (program.N * program.n, *2 * (program.rows, len(program.fixed)))
        ]
        self._alive: list[Any] = [system, steps, z, points, kept, tables]
        self.parts = (PartData * len(stages))(*(self._part(i) for i in range(len(stages))))
        _, rows, count = program.parts[-1]
        exact = program.orders[-1] == EXACT
        d = self.data = _Interior()
        d.parts, d.count, d.end_row, d.end_count, d.end_exact = (
            ctypes.addressof(self.parts),
            len(stages),
            rows.start,
            count,
            exact,
        )
        d.end_values, d.end_expand = code_of(end.library.end_values), code_of(end.library.end_first)
        d.end_curve, d.end_room = code_of(end.library.end_second) if exact else None, self._room(end.library.rooms)
        for i, (p, table) in enumerate(zip(points, tables, strict=True)):
            own = (*(getattr(p.data, name) for name in _PLACE.split()[:12]), address(p.cost), address(p.x_next))
            for name, at in zip(_PLACE.split(), (*own, ctypes.addressof(table), address(p.xs)), strict=True):
                setattr(d, f"place_{i}_{name}", at)
        d.nx = program.ocp.manifold.nx
        if not program.flat:
            d.moved, d.carried = code_of(stages[0].library.moved), code_of(stages[0].library.carried)
        d.lam, d.y, d.zl, d.zu, d.f = z.addresses
        d.step_0, d.step_1 = (step.ref for step in steps)
        d.d, d.own_rows, d.own_fixes, d.new_rows, d.new_fixes = map(address, self._work)
        d.system, d.equations = ctypes.addressof(system.data), system.equations
        self._pairs, self.state, self._member = np.zeros((0, 2)), _Solve(), _Member()
        self.address = ctypes.addressof(d)
        self._state = ctypes.addressof(self.state)
        library = system.kernels.library
        self._begin: Callable[..., int] = bound(library, "interior_begin", "ppp", ctypes.c_long)
        self._multipliers = bound(library, "interior_multipliers", "pi")
        self._resume = bound(library, "interior_resume", "p")
        self._iterate = bound(library, "interior_iterate", "p", ctypes.c_long)

    def _room(self, rooms: Any) -> int | None:
        if self._seated:
            return None
        room = aligned(rooms.doubles) if self._own_rooms else rooms[0]
        self._alive.append(room)
        return address(room)

    def _room_kept(self, stages: Any, order: str) -> Array | None:
        """What first derivatives leave for second ones."""
        if order != EXACT or self._seated:
            return None
        own, knots = stages.library, len(stages.plain.t)
        return aligned(-(-knots // own.lanes) * own.kept * stages.data.substeps * own.lanes)

    def _part(self, i: int) -> Any:
        stages, (knots, rows, count) = self._stages[i], self._program.parts[i]
        own, exact = stages.library, self._program.orders[i] == EXACT
        curve = code_of(own.second) if exact else None
        room = self._room(own.second_rooms(stages.data.substeps)) if exact else None
        calls = code_of(own.values), code_of(own.first), curve, self._room(own.rooms), room
        return PartData(knots.start, knots.stop, rows.start, count, exact, *calls)

    def prepare(self, o: IPMOptions, shared: Array) -> None:
        """Take the program's structure as it is now, and options; shared: the numbers next, done and stop of all threads."""
        d, program = self.data, self._program
        for name in _STRUCTURE:
            setattr(d, name, getattr(program.structure, name))
        d.still = address(program.still_read) if program.any_read else None
        most = filters.most_pairs(o.max_iterations)
        if len(self._pairs) < most:
            self._pairs = np.zeros((most, 2))
        d.pairs, d.most_pairs = address(self._pairs), most
        d.adaptive, d.max_iterations, d.barrier = o.barrier_strategy == "adaptive", o.max_iterations, o.barrier
        d.least, d.gradient_tolerance = barrier.LEAST * o.gradient_tolerance, o.gradient_tolerance
        d.constraint_tolerance, d.time_limit = o.constraint_tolerance, o.time_limit or 0.0
        d.next, d.done, d.stop = (address(shared) + 8 * i for i in range(3))
        self._shared = shared

    # -- a solve, call by call --------------------------------------------------------------------------------------------
    def begin(self, xs: Array, us: Array) -> bool:
        """Begin a solve of the program at a guess, without multipliers; False where its numbers are not finite."""
        program, (*stages, end) = self._program, self._stages
        phases = (StagesData * len(stages))(*[s.data for s in stages])
        given = [np.ascontiguousarray(rows, float) for rows in (program.ocp.x0, xs, us)]
        bounds = map(address, (program.lower, program.upper, program.target, program.fixed_at))
        own = ctypes.addressof(phases), ctypes.addressof(end.data), *map(address, given), *bounds
        self._member = _Member(*own)
        self._given: Any = phases, given
        return self._begin(self._state, self.address, ctypes.addressof(self._member)) == GO_ON

    def multipliers(self, given: bool) -> None:
        """Find multipliers for the start; given: some are there."""
        self._multipliers(self._state, given)

    def iterate(self) -> int:
        """Take the last step and find the next: :data:`GO_ON`, or an end."""
        return self._iterate(self._state)

    def resume(self) -> None:
        """Go on from the point where the solve is, which was changed from outside."""
        self._resume(self._state)

    @property
    def place(self) -> int:
        """The number of the point where the solve is."""
        return int((self.state.point - self.address - _Interior.place_0_v.offset) // _PLACE_SIZE)

    def go_to(self, place: int) -> None:
        """Let the solve be at a point."""
        at = [self.address + _Interior.place_0_v.offset + i * _PLACE_SIZE for i in (place, 1 - place)]
        self.state.point, self.state.other = at

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """What the filter holds."""
        kept = min(self.state.pairs, self.data.most_pairs)
        return [(theta, phi) for theta, phi in self._pairs[:kept].tolist()]

    @pairs.setter
    def pairs(self, held: list[tuple[float, float]]) -> None:
        kept = held[-self.data.most_pairs :]
        self._pairs[: len(kept)] = np.reshape(kept, (-1, 2))
        self.state.pairs = len(kept)

    @property
    def now(self) -> Optimality:
        """The measure of the last iterate."""
        s = self.state
        errors = s.now_gradient, s.now_violation, s.now_plain, s.now_error, s.now_shifted
        return Optimality(*errors, s.now_mean, 0.0, s.products, s.now_squares)

    @property
    def at(self) -> Violation:
        """The violation where the solve is."""
        return Violation(*(getattr(self.state, f"at_{name}") for name in _VIOLATION))

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Seconds of the last call in derivatives, sweeps and roll-outs."""
        return self.state.derivatives, self.state.backward, self.state.rollout
