"""A batch by Newton's loop in lanes: kernels/newton_seats.h, whose groups of seats run on threads.

Nothing of Python runs inside; the calling thread waits, and sets ``stop`` on Ctrl-C.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, struct_of
from dynamics_backends.protocol import Array
from trajopt.lq.compiled_lq import CompiledLQ, abreast
from trajopt.problem.ocp import OCP
from trajopt.solvers.batch.abreast.seats import STACK, Seats, TurnsData, Use, how_many, run_parts, with_seats
from trajopt.solvers.options import DDPOptions
from trajopt.solvers.shooting.compiled.compiled_iteration import code_of
from trajopt.solvers.shooting.newton.compiled_newton import CompiledNewton, source
from trajopt.stage.compiled.library import Library
from trajopt.stage.evaluation import StageEvaluator

SEATS = 4
"""Seats of a group for each lane: problems wait for more kinds of work than those of SLQ's family, and take less room."""

_Group = struct_of(
    "newton_group_t",
    "seats seat_count:l turn:l serve own busy_back:l busy_ahead:l all_back:l all_ahead:l "
    "count:l phases plain_end exact_end tried_end end_values attempts room attempts_room alone made_alone:l",
)
_Shared = struct_of("newton_shared_t", "first:l last:l read:l plain exact terms tried roll")


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The functions of a batch, compiled or from the cache."""
    found = with_seats(source(), ("newton_seats.h",))
    size = bound(found, "newton_group_size", "i", ctypes.c_long)
    if [ctypes.sizeof(_Group), ctypes.sizeof(_Shared)] != [size(i) for i in range(2)]:
        raise RuntimeError("newton_seats.h and newton_lanes.py disagree about their structs")
    return found


class NewtonLanes:
    """What solves batches of a problem's structure.

    plain, exact: the evaluators of the Gauss-Newton Hessian of the cost, and of the one that the curvature is added to. libraries:
    by phase, see :func:`~trajopt.stage.compiled.newton_abreast.newton_libraries`.
    """

    def __init__(
        self,
        ocp: OCP,
        options: DDPOptions,
        plain: StageEvaluator,
        exact: StageEvaluator,
        libraries: Sequence[Library],
    ) -> None:
        self.ocp, self.options, self.plain, self.exact, self.libraries = ocp, options, plain, exact, libraries
        self.lq = CompiledLQ(ocp.manifold.ndx, ocp.nu)
        seated, alone = (self.solver(np.zeros(3, np.int64), seated=seated) for seated in (True, False))
        self._bytes, self._bytes_shared = seated.size + STACK, alone.size + 8 * self.attempts_room
        for one in (seated, alone):
            one.close()

    def solver(self, shared: Array, *, seated: bool) -> CompiledNewton:
        """Memory for one problem, and the struct that describes it; not seated: what finds steps with damping for one at a time."""
        given = self.plain, self.exact, self.lq, self.options, shared
        return CompiledNewton(self.ocp, *given, own_rooms=not seated, seated=seated)

    @property
    def attempts_room(self) -> int:
        """Doubles that attempts for several problems take on their way."""
        sweep = abreast(self.ocp.manifold.ndx, self.ocp.nu)
        return int(bound(sweep, "lq_attempts_room", "l", ctypes.c_long)(self.ocp.horizon))

    def run(self, rows: Array, threads: int | None, told: Callable[[int], None] | None) -> tuple[Use, int]:
        """Solve the problems of some rows, each a newton_member_t; their arrays are filled.

        told: called with the number of problems that have ended. Returns how lanes were used, and how many iterations were
        made alone, beside them.
        """
        groups, seats = how_many(len(rows), threads, SEATS, self._bytes, self._bytes_shared)
        run = bound(library(), "newton_seats_run", "p")
        made: list[_Part] = []

        def part(shared: Array) -> _Part:
            made.append(_Part(self, rows, seats, shared))
            return made[-1]

        return run_parts(run, part, groups, seats, told), sum(one.group.made_alone for one in made)


class _Part:
    """A group of seats with its memory."""

    def __init__(self, lanes: NewtonLanes, rows: Array, seats: int, shared: Array) -> None:
        self._alone = lanes.solver(shared, seated=False)
        self._solves = [lanes.solver(shared, seated=True) for _ in range(seats)]
        for one in self._solves:
            one.data.members, one.data.total = address(rows), len(rows)
        self._seats = Seats(library(), [one.address for one in self._solves])
        self.group = self._group(lanes)
        self.address = ctypes.addressof(self.group)

    def _group(self, lanes: NewtonLanes) -> Any:
        manifold, nu, plain = lanes.ocp.manifold, lanes.ocp.nu, lanes.plain
        *stages, end = cast(Any, plain.stages)
        sweep, own = abreast(manifold.ndx, nu), lanes.libraries
        parts = zip(own, stages, strict=True)
        doubles = [part.newton_doubles(s.data.substeps) for part, s in parts]
        rooms = [*(s.library.rooms.doubles for s in (*stages, end)), *doubles]
        self._room, self._attempts_room = aligned(max(rooms)), aligned(lanes.attempts_room)
        self._phases = (_Shared * len(stages))()
        phases = zip(stages, plain.slices, plain.controls_read, own, strict=False)
        for i, (s, knots, read, part) in enumerate(phases):
            functions = (
                s.library.first_abreast,
                part.newton_abreast,
                s.library.terms_abreast,
                part.tried_abreast,
                s.library.rollout,
            )
            self._phases[i] = _Shared(knots.start, knots.stop, read, *map(code_of, functions))
        ends = end.library.end_first_abreast, own[0].end_first_abreast, own[0].end_tried_abreast, end.library.end_values
        return _Group(
            *(getattr(self._seats.data, name) for name, *_ in TurnsData._fields_),
            *(len(stages), ctypes.addressof(self._phases)),
            *map(code_of, (*ends, sweep.lq_attempts)),
            *map(address, (self._room, self._attempts_room)),
            self._alone.address,
        )

    def close(self) -> None:
        """Give memory back."""
        for one in (self._alone, *self._solves):
            one.close()
