"""A window of problems in the interior point: the requests of all are answered by kernels/interior_window.h, with a problem in each
lane.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from math import sqrt
from typing import Any, cast

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, code_of, load, struct_of
from trajopt.lq import equality_lq
from trajopt.problem.ocp import OCP
from trajopt.solvers.interior.library import Kernels
from trajopt.solvers.interior.newton import NewtonSystem
from trajopt.solvers.interior.stage_program import EXACT, Point, StageProgram
from trajopt.solvers.methods.interior_point import InteriorPoint
from trajopt.solvers.methods.interior_requests import Center, Newton, Request, Start, Take
from trajopt.solvers.window import interior_slot
from trajopt.solvers.window.driver import WAIT
from trajopt.solvers.window.interior_slot import InteriorSlot, kept_by
from trajopt.stage.compiled import builds
from trajopt.stage.compiled.library import ABREAST, Library

DONE, SWEEPS, REFLECTIONS, STAGES = range(4)
"""What a slot waits for; STAGES + i: derivatives of phase i."""

_Window = struct_of("interior_window_t", "phases room sweeps kept_for busy_back:l busy_ahead:l all_back:l all_ahead:l")
_Phase = struct_of("window_phase_t", "expand curve kept")
_Slot = struct_of(
    "window_slot_t",
    "o ahead lam y waits:l then:l phase:l foresees:l along:l soon:l centered:l first:l failed:l end:l push:d alpha:d scale:d",
)


@lru_cache(maxsize=16)
def kernels(ndx: int, nu: int) -> Kernels:
    """The functions of a window for n = ndx states and m = nu controls, compiled or from the cache."""
    text = (files("trajopt.solvers.window") / "kernels" / "interior_window.h").read_text()
    found = load("\n".join(["#include <limits.h>", interior_slot.source(ndx, nu), text]))
    size = bound(found, "interior_window_size", "i", ctypes.c_long)
    structs = (_Window, _Phase, _Slot)
    if [size(i) for i in range(len(structs))] != [ctypes.sizeof(s) for s in structs]:
        raise RuntimeError("interior_window.h and interior_window.py disagree about their structs")
    return interior_slot.checked(found)


def libraries_abreast(ocp: OCP, program: StageProgram) -> list[Library]:
    """The libraries of the phases for several problems, compiled or from the cache."""
    wanted = [
        builds.search(
            cast(Any, phase.dynamics.sampling).called,
            cast(Any, s).library.shape._replace(parts=(*cast(Any, s).library.shape.parts, ABREAST)),
        )
        for phase, s in zip(ocp.phases, program.stages, strict=False)
    ]
    builds.make_here(wanted)
    return [search.wait() for search in wanted]


class WindowSlot:
    """A slot of a window. method: what runs there. request, since: what it waits for, from which turn on."""

    def __init__(self, program: StageProgram, shared: tuple[Any, list[Any]] | None) -> None:
        system = NewtonSystem(program, kernels(program.n, program.m))
        points, steps = (Point(program), Point(program)), (system.empty_step(), system.empty_step())
        self.slot = InteriorSlot(program, system, points, steps, program.multipliers(), shared=shared)
        self.slot.look_at_structure()
        self._ahead, self._foreseen = (ctypes.c_void_p * len(program.parts))(), program.multipliers()
        self.data = _Slot(self.slot.address, ctypes.addressof(self._ahead), *self._foreseen.addresses[:2])
        self.address = ctypes.addressof(self.data)
        self.method: InteriorPoint | None = None
        self.request: Any = None
        self.since = 0
        blocks: list[Any] = [*(p.v for p in points), *(s.z.lam for s in steps), system.lq.A, system.rows]
        self.bytes = sum(b.base.nbytes for b in blocks) + system.lq.knots.nbytes


class InteriorWindow:
    """Slots for problems of a program's structure. libraries: by phase, see :func:`libraries_abreast`.

    busy, all: lanes that worked, and all there were, summed over knots: in sweeps and in derivatives.
    """

    def __init__(self, program: StageProgram, libraries: Sequence[Library], count: int) -> None:
        *stages, end = cast(Any, program.stages)
        rooms = [
            library.second_rooms(s.data.substeps) if "second" in library.shape.parts else library.rooms
            for s, own in zip(stages, libraries, strict=True)
            for library in (s.library, own)
        ]
        rooms.append(end.library.rooms)
        room, kept = aligned(max(of.doubles for of in rooms)), [aligned(max(size, 1)) for size in kept_by(program)]
        self.slots = [WindowSlot(program, (room, kept)) for _ in range(count)]
        phases = (_Phase * len(stages))()
        for i, (library, own, order) in enumerate(zip(libraries, kept, program.orders, strict=False)):
            phases[i] = _Phase(
                code_of(library.first), code_of(library.second) if order == EXACT else None, address(own)
            )
        sweeps = bound(equality_lq.abreast(program.n, program.m), "elq_factor_abreast", "pi")
        self.data = _Window(ctypes.addressof(phases), address(room), code_of(sweeps))
        self._memory = phases, room, kept
        self._turn = 0
        self._lanes = cast(Any, stages[0]).library.lanes
        self._group = (ctypes.c_void_p * self._lanes)()
        self._address, self._group_address = ctypes.addressof(self.data), ctypes.addressof(self._group)
        self._waiting: dict[int, list[WindowSlot]] = {kind: [] for kind in range(SWEEPS, STAGES + len(stages))}
        self._bind(kernels(program.n, program.m).library)

    def _bind(self, own: ctypes.CDLL) -> None:
        def function(name: str, arguments: str, returns: type | None = ctypes.c_long) -> Callable[..., Any]:
            return bound(own, f"interior_window_{name}", arguments, returns)

        self._start, self._step, self._take = (
            function("start", "pppd"),
            function("step", "ppii"),
            function("take", "pp"),
        )
        self._stages, self._sweeps, self._reflections = (
            function(name, "ppl", None) for name in ("stages", "sweeps", "reflections")
        )
        self._asks: dict[type, Callable[[WindowSlot, Any], int]] = {
            Start: lambda s, r: self._start(self._address, s.address, s.slot.problem, r.push),
            Newton: self._begin_step,
            Center: self._begin_step,
            Take: self._begin_take,
        }

    @property
    def busy(self) -> tuple[int, int]:
        """Lanes that worked."""
        return self.data.busy_back, self.data.busy_ahead

    @property
    def all(self) -> tuple[int, int]:
        """All lanes of those calls."""
        return self.data.all_back, self.data.all_ahead

    def ask(self, slot: WindowSlot, request: Request) -> Any:
        """The answer for a slot, or WAIT."""
        own = self._asks.get(type(request))
        if own is None:
            return slot.slot.answer(request)
        kind = own(slot, request)
        slot.request = request
        if kind == DONE:
            return _ANSWERS[type(request)](slot.slot)
        slot.since = self._turn
        self._waiting[kind].append(slot)
        return WAIT

    def _begin_step(self, slot: WindowSlot, r: Newton | Center) -> int:
        slot.slot.hand_over(r)
        return int(self._step(self._address, slot.address, _ends_soon(slot), type(r) is Center))

    def _begin_take(self, slot: WindowSlot, r: Take) -> int:
        slot.slot.hand_over(r)
        return int(self._take(self._address, slot.address))

    def serve(self) -> list[tuple[WindowSlot, Any]]:
        """Do some work of the kind that most slots wait for: those that have their answer, with it.

        What Newton systems ask for goes first: behind it slots are in step again.
        """
        kind = next((k for k in (SWEEPS, REFLECTIONS) if self._waiting[k]), None)
        if kind is None:
            kind = max(self._waiting, key=lambda k: len(self._waiting[k]))
        waiting = self._waiting[kind]
        group, self._waiting[kind] = waiting[: self._lanes], waiting[self._lanes :]
        if not group:
            return []
        self._turn += 1
        for lane, slot in enumerate(group):
            self._group[lane] = slot.address
        work = self._sweeps if kind == SWEEPS else self._reflections if kind == REFLECTIONS else self._stages
        work(self._address, self._group_address, len(group))
        answered: list[tuple[WindowSlot, Any]] = []
        for slot in group:
            waits = slot.data.waits
            if waits == DONE:
                answered.append((slot, _ANSWERS[type(slot.request)](slot.slot)))
            else:
                self._waiting[waits].append(slot)
        return answered


def _ends_soon(slot: WindowSlot) -> bool:
    """Whether the step leads to the end, as far as Newton's steps square the error: no second derivatives follow."""
    method = slot.method
    return method is not None and method.now.error <= sqrt(method.options.gradient_tolerance)


_ANSWERS: dict[type, Callable[[InteriorSlot], Any]] = {
    Start: InteriorSlot.begun,
    Take: InteriorSlot.sums,
    **dict.fromkeys((Newton, Center), InteriorSlot.direction),
}
