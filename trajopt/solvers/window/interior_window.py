"""Window of interior-point problems: kernels/interior_window.h answers requests for several problems, one in each lane."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import sqrt
from typing import Any, cast

from dynamics_backends.compiled.interface.libraries import (
    address,
    aligned,
    bound,
    code_of,
    kernel_text,
    kernels,
    structs_in,
)
from trajopt.solvers.interior.stage_program import EXACT, StageProgram
from trajopt.solvers.methods.interior_requests import Newton, Start, Take
from trajopt.solvers.window.groups import GroupedWindow
from trajopt.solvers.window.interior_slot import InteriorSlot, reused_sizes
from trajopt.solvers.window.memory import PACKAGE
from trajopt.solvers.window.slots import functions

SWEEPS, REFLECTIONS, STAGES = 1, 2, 3
"""Operations; STAGES + i: derivatives of phase i."""

_Window, _Phase = structs_in(kernel_text(PACKAGE, "interior_window.h"), "interior_window_t", "window_phase_t")


class InteriorWindow(GroupedWindow):
    """Window of ``count`` slots for problems with the structure of a program."""

    def __init__(self, program: StageProgram, count: int) -> None:
        *stages, end = cast(Any, program.stages)
        rooms = [s.library.second_rooms(s.data.substeps) if s.library.shape.second else s.library.rooms for s in stages]
        rooms.append(end.library.rooms)
        workspace, kept = (
            aligned(max(of.doubles for of in rooms)),
            [aligned(size) if size else None for size in reused_sizes(program)],
        )
        library = kernels(stages[0].library.lanes)
        self.slots = [InteriorSlot.for_batch(program, (workspace, kept)) for _ in range(count)]
        phases = (_Phase * len(stages))()
        for i, (s, memory, order) in enumerate(zip(stages, kept, program.orders, strict=False)):
            second = code_of(s.library.second_lanes) if order == EXACT else None
            phases[i] = _Phase(code_of(s.library.first_lanes), second, None if memory is None else address(memory))
        rows = self.slots[0].system.lq.most
        sweep_workspace = aligned(bound(library, "elq_abreast_room", "iil", ctypes.c_long)(program.n, program.m, rows))
        self._data = _Window(ctypes.addressof(phases), address(workspace), address(sweep_workspace))
        self._memory = phases, workspace, sweep_workspace, kept
        super().__init__(STAGES + len(stages), stages[0].library.lanes, _ANSWERS)
        self.active = 0
        self._bind(library)

    def _bind(self, library: ctypes.CDLL) -> None:
        at = ctypes.addressof(self._data)
        function = functions(library, "interior_window", ctypes.c_long)
        start, step, take = function("start", "pppd"), function("step", "ppi"), function("take", "pp")
        serve = function("serve", "ppll")

        def stepped(slot: InteriorSlot, r: Newton) -> int:
            slot.hand_over(r)
            return int(step(at, slot.address, _ends_soon(slot)))

        def taken(slot: InteriorSlot, r: Take) -> int:
            slot.hand_over(r)
            return int(take(at, slot.address))

        self._asks = {
            Start: lambda s, r: start(at, s.address, s.problem, r.push),
            Newton: stepped,
            Take: taken,
        }
        self._serve = lambda kind, count: serve(at, self._group_address, count, kind)

    def _wanted(self) -> int | None:
        """Prefer the sweeps and reflections of Newton systems, after which slots run in step again."""
        first = next((kind for kind in (SWEEPS, REFLECTIONS) if self._waiting[kind]), None)
        return super()._wanted() if first is None else first

    def _work(self, kind: int, count: int) -> int | None:
        return int(kind >= STAGES) if self._serve(kind, count) else None


def _ends_soon(slot: InteriorSlot) -> bool:
    """True if this step should converge, as Newton steps square the error; no second derivatives are needed after it."""
    method = slot.method
    return method is not None and method.now.error <= sqrt(method.options.gradient_tolerance)


_ANSWERS: dict[type, Callable[[InteriorSlot], Any]] = {
    Start: InteriorSlot.begun,
    Take: InteriorSlot.sums,
    Newton: InteriorSlot.direction,
}
