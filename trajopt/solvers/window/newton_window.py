"""Window of problems in Newton's method: kernels/newton_window.h answers requests for several problems, one in each lane.

An extra slot that stores expansions answers rare requests (damped steps, and the iterations after them) for one problem at a
time. It also serves the last problems of a batch, whose knots fill lanes better.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

from dynamics_backends.compiled.interface.libraries import (
    address,
    aligned,
    bound,
    code_of,
    kernel_text,
    kernels,
    lanes_in_use,
    structs_in,
)
from trajopt.problem.ocp import OCP
from trajopt.solvers.methods.driver import WAIT
from trajopt.solvers.methods.requests import (
    FRACTIONS,
    Accept,
    AcceptOnBounds,
    FirstGains,
    Gains,
    IsFinite,
    OnBounds,
    Request,
    Restore,
    Roll,
    Start,
    Step,
)
from trajopt.solvers.window.groups import GroupedWindow
from trajopt.solvers.window.memory import PACKAGE
from trajopt.solvers.window.newton_slot import NewtonSlot
from trajopt.solvers.window.slots import functions
from trajopt.stage.compiled.library import Library
from trajopt.stage.evaluation import StageEvaluator

TRIALS, ATTEMPTS = 1, 2
"""Operations: trial steps, and LQ solves (ATTEMPTS + bit mask of the requested curvature fractions)."""
KINDS = ATTEMPTS + (1 << len(FRACTIONS))
IN_A_ROW = 8
"""Consecutive iterations of one problem in the extra slot before other problems get a step."""

_Window, _Phase = structs_in(kernel_text(PACKAGE, "newton_window.h"), "newton_window_t", "window_phase_t")


class WindowSlot(NewtonSlot):
    """Slot of a window. request, since: pending request, and the scheduler step of its start.

    damped: True if the last step was damped. deltas, borrowed, by place of a step: its damping; True if the extra slot holds it.
    in_a_row: iterations made in the extra slot.
    """

    request: Any = None
    since = in_a_row = 0

    def clear(self) -> None:
        """Reset the state of the previous problem."""
        self.damped, self.borrowed, self.deltas = False, [False, False], [0.0, 0.0]


class NewtonWindow(GroupedWindow):
    """Window of slots for problems of one structure.

    plain, exact: evaluators with the Gauss-Newton Hessian of the cost, and with the Hessian to which the curvature is added.
    libraries: by phase, see :func:`~trajopt.stage.compiled.newton_abreast.newton_libraries`. lengths: maximum number of step
    lengths. count: number of slots. active: running problems.
    """

    def __init__(
        self,
        ocp: OCP,
        plain: StageEvaluator,
        exact: StageEvaluator,
        libraries: Sequence[Library],
        lengths: int,
        count: int,
    ) -> None:
        *stages, end = cast(Any, plain.stages)
        doubles = [part.second_rooms(s.data.substeps).doubles for part, s in zip(libraries, stages, strict=True)]
        workspace = aligned(max(*(s.library.rooms.doubles for s in (*stages, end)), *doubles))
        attempts_workspace = aligned(attempts_doubles(ocp))
        given = ocp, plain, exact, lengths
        self.alone = NewtonSlot(*given, curved=libraries, own_workspace=True)
        self.slots = [WindowSlot(*given, curved=libraries, workspace=workspace) for _ in range(count)]
        phases = (_Phase * len(stages))()
        parts = zip(stages, plain.slices, plain.controls_read, libraries, strict=False)
        for i, (s, knots, read, part) in enumerate(parts):
            own = s.library
            functions = own.first_abreast, part.newton_abreast, own.terms_abreast, part.tried_abreast
            phases[i] = _Phase(knots.start, knots.stop, read, *map(code_of, functions))
        ends = end.library.end_first_abreast, libraries[0].end_first_abreast, libraries[0].end_tried_abreast
        self._data = _Window(
            len(stages),
            ctypes.addressof(phases),
            *map(code_of, ends),
            *map(address, (workspace, attempts_workspace)),
        )
        self._memory = phases, workspace, attempts_workspace
        super().__init__(KINDS, lanes_in_use(), _ANSWERS)
        self._later: list[tuple[WindowSlot, Any]] = []
        self._data_address = ctypes.addressof(self._data)
        self._lent = cast("WindowSlot | None", None)
        self.active = self.made_alone = 0
        self._bind()

    def _bind(self) -> None:
        function = functions(kernels(lanes_in_use()), "newton_window", ctypes.c_long)
        self._start = function("start", "pp", None)
        self._first_gains, self._accept = function("first_gains", "pdd"), function("accept", "plll d")
        self._step, self._try = function("step", "plll d"), function("try", "pll")
        self._restore, self._on_bounds = function("restore", "pl d"), function("on_bounds", "p")
        self._gains = function("gains", "pl")
        self._lend, self._return = function("lend", "pp", None), function("return", "pp", None)
        self._attempts, self._trials = function("attempts", "ppll", None), function("trials", "ppl", None)
        self._asks: dict[type, Callable[[WindowSlot, Any], Any]] = {
            Start: self._started,
            FirstGains: lambda s, r: self._wait(
                s, r, self._first_gains(s.address, -1.0 if r.delta is None else r.delta, r.mu)
            ),
            IsFinite: lambda s, r: self.alone_at(s, reload=True).answer(r),
            Step: self._stepped,
            Roll: self._rolled,
            Accept: self._accepted,
            Restore: lambda s, r: self._moved(s, r, self._restore(s.address, *r)),
            OnBounds: lambda s, r: self._moved(s, r, self._on_bounds(s.address)),
            AcceptOnBounds: lambda s, r: s.answer(r),
            Gains: lambda s, r: self._wait(s, r, self._gains(s.address, r.first)),
        }

    def close(self) -> None:
        """Release the memory of all slots."""
        for slot in (self.alone, *self.slots):
            slot.close()

    # -- requests ---------------------------------------------------------------------------------------------------------------
    def ask(self, slot: WindowSlot, request: Request) -> Any:
        """Return the answer to the request of a slot, or WAIT."""
        return self._asks[type(request)](slot, request)

    def _started(self, slot: WindowSlot, _: Start) -> float:
        slot.clear()
        self._forget(slot)
        self._start(slot.address, slot.problem)
        return float(slot.data.answer_0)

    def alone_at(self, slot: WindowSlot, *, reload: bool = False) -> NewtonSlot:
        """Return the extra slot, moved to the iterate of a slot; ``reload`` moves it even if it is already lent to that slot."""
        if self._lent is not slot or reload:
            self._lend(self.alone.address, slot.address)
            self._lent = slot
        return self.alone

    def _stepped(self, slot: WindowSlot, r: Step) -> Any:
        alone = r.delta != 0.0 or slot.damped or slot.borrowed[1 - r.place] or self.active <= self.lanes
        slot.borrowed[r.place], slot.deltas[r.place] = alone, r.delta
        if alone:
            return self.alone_at(slot).answer(r)
        return self._wait(slot, r, self._step(slot.address, r.place, r.first, r.past, r.mu))

    def _rolled(self, slot: WindowSlot, r: Roll) -> Any:
        if slot.borrowed[r.place]:
            return self._lent_to(slot, r.place).answer(r)
        return self._wait(slot, r, self._try(slot.address, r.place, r.first))

    def _accepted(self, slot: WindowSlot, r: Accept) -> Any:
        slot.damped, alone = slot.deltas[r.place] != 0.0, slot.borrowed[r.place]
        if not alone:
            return self._moved(slot, r, self._accept(slot.address, *r))
        point = self._lent_to(slot, r.place).answer(r)
        slot.borrowed = [False, False]
        self._return(self.alone.address, slot.address)
        self.made_alone += 1
        slot.in_a_row += 1
        if slot.in_a_row % IN_A_ROW:
            return point
        self._later.append((slot, point))
        return WAIT

    def _lent_to(self, slot: WindowSlot, place: int) -> NewtonSlot:
        """Return the extra slot, which holds the step in a place of a slot; raises RuntimeError if it moved to another slot."""
        if self._lent is not slot:
            raise RuntimeError(
                f"the step in place {place} is gone: use damped steps before the next request for others"
            )
        return self.alone

    def _forget(self, slot: WindowSlot) -> None:
        """Invalidate the copy of a slot's iterate in the extra slot, as the slot moves."""
        slot.borrowed = [False, False]
        if self._lent is slot:
            self._lent = None

    def _moved(self, slot: WindowSlot, request: Request, kind: int) -> Any:
        self._forget(slot)
        return self._wait(slot, request, kind)

    # -- operations for several slots -----------------------------------------------------------------------------------
    def serve(self) -> list[tuple[WindowSlot, Any]]:
        """Return postponed answers of the extra slot, else run the next operation for several slots."""
        if self._later:
            later, self._later = self._later, []
            return later
        return super().serve()

    def _work(self, kind: int, count: int) -> int | None:
        if kind == TRIALS:
            self._trials(self._data_address, self._group_address, count)
        else:
            self._attempts(self._data_address, self._group_address, count, kind - ATTEMPTS)
        return int(kind == TRIALS)


_ANSWERS: dict[type, Callable[[NewtonSlot], Any]] = {
    **dict.fromkeys((FirstGains, Accept, Restore, OnBounds), NewtonSlot.point),
    Step: NewtonSlot.direction,
    Roll: lambda slot: slot.trials(1),
    Gains: lambda _: None,
}


def attempts_doubles(ocp: OCP) -> int:
    """Return the workspace size, in doubles, of LQ solves for several problems in lanes."""
    doubles = bound(kernels(lanes_in_use()), "lq_attempts_room", "iil", ctypes.c_long)
    return int(doubles(ocp.manifold.ndx, ocp.nu, ocp.horizon))
