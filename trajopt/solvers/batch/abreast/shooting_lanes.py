"""A batch by SLQ's family in lanes: kernels/shooting_seats.h, whose groups of seats run on threads.

Nothing of Python runs inside; the calling thread waits, and sets ``stop`` on Ctrl-C.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, code_of, struct_of
from dynamics_backends.protocol import Array
from trajopt.lq.compiled_lq import CompiledLQ, abreast
from trajopt.problem.ocp import OCP
from trajopt.results.status import SOLVED, STATIONARY
from trajopt.solvers.batch.abreast.iteration import CompiledIteration, source
from trajopt.solvers.batch.abreast.iteration_memory import FinalData, PhaseData, SolveData, SweepsData
from trajopt.solvers.batch.abreast.seats import Seats, TurnsData, Use, how_many, run_parts, with_seats
from trajopt.solvers.batch.problems.values import ENDS, RESULT, Members
from trajopt.solvers.methods.shooting import NEARLY
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.rules.regularization import Regularization
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.evaluation import Shooting, StageEvaluator

SEATS = 2
"""Seats of a group for each lane: with more seats than lanes, those that wait for the same fill the lanes."""
SIDE_BY_SIDE = 2
"""Step lengths that one problem of many tries side by side."""

_Group = struct_of(
    "group_t",
    "seats count:l turn:l serve own busy_back:l busy_ahead:l all_back:l all_ahead:l "
    "phase_count:l phases end_expand end_values end end_room n:l m:l riccati adjoint stationarity finite rollout "
    "riccati_abreast directions end_first room sweep_room directions_room members total:l next done stop penalty:d mu:d delta:d "
    "drift_gap:d idle:l drift:l near:d solved:d time_limit:d nearly:d kkt_tolerance:d steps:l",
)
_Place = struct_of("place_t", "s phases group member")
_SharedPhase = struct_of("shared_phase_t", "first:l last:l read:l expand roll stages room abreast first_abreast")


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The functions of a batch, compiled or from the cache."""
    ends = f"enum {{ {', '.join(f'{name.upper()} = {value}' for name, value in ENDS.items())} }};"
    found = with_seats(f"{source()}\n{ends}", ("shooting_seats.h",))
    size = bound(found, "batch_size", "i", ctypes.c_long)
    if bound(found, "shooting_size", "", ctypes.c_long)() != ctypes.sizeof(SolveData):
        raise RuntimeError("iterate.h and iteration_memory.py disagree about shooting_t")
    if [ctypes.sizeof(_Place), ctypes.sizeof(_Group), RESULT.itemsize] != [size(i) for i in range(3)]:
        raise RuntimeError("shooting_seats.h and shooting_lanes.py disagree about their structs")
    return found


class Lanes:
    """What solves batches of a problem's structure. Raises ValueError for a problem that is not compiled as a whole."""

    def __init__(self, ocp: OCP, options: SLQOptions) -> None:
        evaluator = StageEvaluator(ocp, options.hessian, "auto")
        if not evaluator.compiled or not isinstance(evaluator.stages[-1], CompiledEnd):
            raise ValueError("the problem is not compiled as a whole")
        self.ocp, self.options, self.evaluator = ocp, options, evaluator
        self.stages = [s for s in evaluator.stages if isinstance(s, CompiledStages)]
        self.end: CompiledEnd = evaluator.stages[-1]
        self.lq_solver = CompiledLQ(ocp.manifold.ndx, ocp.nu)
        self.shooting = Shooting.every(options.shooting, ocp.horizon, options.gaps)
        one = self.iteration()
        self._bytes, self._bytes_shared = one.size, 8 * self.directions_room
        one.close()

    def iteration(self) -> CompiledIteration:
        """Memory for one problem, and the struct that describes it."""
        return CompiledIteration(
            self.ocp, self.evaluator, self.lq_solver, self.options, self.shooting, SIDE_BY_SIDE, shared=True
        )

    @property
    def linear_steps(self) -> bool:
        """Whether roll-outs read more of a linear step than du - K dx: they start at nodes, or deviations are not differences."""
        return self.shooting.gaps == "linear" or not self.ocp.manifold.is_vector_space

    @property
    def directions_room(self) -> int:
        """Doubles that directions of several problems take on their way."""
        sweep = abreast(self.ocp.manifold.ndx, self.ocp.nu)
        knots = self.ocp.horizon if self.linear_steps else 1
        return int(bound(sweep, "lq_directions_room", "l", ctypes.c_long)(knots))

    def run(self, members: Members, threads: int | None, told: Callable[[int], None] | None) -> Use:
        """Solve the members; their arrays are filled. told: called with the number of problems that have ended."""
        groups, seats = how_many(members.count, threads, SEATS, self._bytes, self._bytes_shared)
        run = bound(library(), "batch_run", "p")
        return run_parts(run, lambda shared: _Part(self, members, shared, seats), groups, seats, told)


class _Part:
    """A group of seats with its memory."""

    def __init__(self, lanes: Lanes, members: Members, shared: Array, seats: int) -> None:
        phases = len(lanes.stages)
        self._own_phases = (PhaseData * (phases * seats))()
        self._iterations = [lanes.iteration() for _ in range(seats)]
        size = phases * ctypes.sizeof(PhaseData)
        at = [ctypes.addressof(self._own_phases) + i * size for i in range(seats)]
        own = [_Place(ctypes.addressof(o.data), p) for o, p in zip(self._iterations, at, strict=True)]
        self._places = (_Place * seats)(*own)
        first = ctypes.addressof(self._places)
        self._seats = Seats(library(), [first + i * ctypes.sizeof(_Place) for i in range(seats)])
        self.group = self._group(lanes, members, shared)
        self.address = ctypes.addressof(self.group)

    def _group(self, lanes: Lanes, members: Members, shared: Array) -> Any:
        sweep = abreast(lanes.ocp.manifold.ndx, lanes.ocp.nu)
        libraries = [*(s.library for s in lanes.stages), lanes.end.library]
        self._room = aligned(max(own.rooms.doubles for own in libraries))
        self._sweep_room = aligned(bound(sweep, "lq_abreast_room", "", ctypes.c_long)())
        self._directions_room = aligned(lanes.directions_room)
        first = self._iterations[0].data
        given = ctypes.cast(first.phases, ctypes.POINTER(PhaseData))
        self._phases = (_SharedPhase * len(lanes.stages))()
        for i, s in enumerate(lanes.stages):
            own = given[i]
            abreast_ = map(code_of, (s.library.rollout_abreast, s.library.first_abreast))
            functions = own.expand, own.roll, own.stages, own.room, *abreast_
            self._phases[i] = _SharedPhase(own.first, own.last, own.read, *functions)
        end, sweeps, o = first.end, first.sweeps, lanes.options
        start = Regularization.of(o)
        at = [address(shared) + 8 * i for i in range(3)]
        return _Group(
            *(getattr(self._seats.data, name) for name, *_ in TurnsData._fields_),
            *(len(lanes.stages), ctypes.addressof(self._phases)),
            *(getattr(end, name) for name, *_ in FinalData._fields_),
            *(getattr(sweeps, name) for name, *_ in SweepsData._fields_),
            *map(code_of, (sweep.lq_riccati_abreast, sweep.lq_directions, lanes.end.library.end_first_abreast)),
            *map(address, (self._room, self._sweep_room, self._directions_room)),
            *(members.address, members.count, *at),
            *(o.penalty, start.mu, start.delta, 0.0, 0, 0),
            *(STATIONARY, SOLVED, o.time_limit or 0.0, NEARLY * o.kkt_tolerance, o.kkt_tolerance),
            lanes.linear_steps,
        )

    def close(self) -> None:
        """Give memory back."""
        for iteration in self._iterations:
            iteration.close()
