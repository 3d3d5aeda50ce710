"""A window of problems in Newton's method: kernels/newton_window.h answers all of them, with a problem in each lane.

What few problems ask for (steps with damping, and the iterations behind them) is answered for one at a time by a slot that has
expansions; so are the last problems of a batch, whose knots fill lanes better.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast

from dynamics_backends.compiled.interface.libraries import (
    address,
    aligned,
    bound,
    code_of,
    find_toolchain,
    load,
    struct_of,
)
from trajopt.lq.compiled_lq import CompiledLQ, abreast
from trajopt.problem.ocp import OCP
from trajopt.solvers.methods.requests import (
    FRACTIONS,
    Accept,
    FirstGains,
    Gains,
    IsFinite,
    Keep,
    OnBounds,
    Request,
    Restore,
    Roll,
    Start,
    Step,
    Turn,
)
from trajopt.solvers.window import newton_slot
from trajopt.solvers.window.driver import WAIT
from trajopt.solvers.window.newton_slot import NewtonSlot
from trajopt.stage.compiled.library import Library
from trajopt.stage.evaluation import StageEvaluator

DONE, TRIALS, ATTEMPTS = range(3)
"""What a slot waits for; ATTEMPTS + the bits of the fractions of the curvature that are asked for."""
KINDS = ATTEMPTS + (1 << len(FRACTIONS))
IN_A_ROW = 8
"""Iterations that one problem makes alone while others wait."""
PATIENCE = 100
"""Turns after which a kind of work is done although more problems wait for another."""

_Window = struct_of("newton_window_t", "count:l phases plain_end exact_end tried_end attempts room attempts_room alone")
_Phase = struct_of("window_phase_t", "first:l last:l read:l plain exact terms tried")


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The functions of a window, compiled or from the cache."""
    lanes = f"#ifndef LANES\n#define LANES {find_toolchain().lanes}\n#endif"
    text = (files("trajopt.solvers.window") / "kernels" / "newton_window.h").read_text()
    found = load("\n".join([newton_slot.source(), lanes, text]))
    size = bound(found, "window_size", "i", ctypes.c_long)
    if [ctypes.sizeof(_Window), ctypes.sizeof(_Phase)] != [size(i) for i in range(2)]:
        raise RuntimeError("newton_window.h and newton_window.py disagree about their structs")
    return found


class WindowSlot:
    """A slot of a window. request, since: what it waits for, from which turn on.

    damped: whether its last step was. By place, deltas: of the step there, borrowed: whether that is one of the slot with
    expansions. in_a_row: iterations that were made there.
    """

    __slots__ = ("borrowed", "damped", "deltas", "in_a_row", "request", "since", "slot")

    def __init__(self, slot: NewtonSlot) -> None:
        self.slot, self.request = slot, cast(Any, None)
        self.since = self.in_a_row = 0
        self.clear()

    def clear(self) -> None:
        """Forget the last problem."""
        self.damped, self.borrowed, self.deltas = False, [False, False], [0.0, 0.0]


class NewtonWindow:
    """Slots for problems of one structure.

    plain, exact: the evaluators of the Gauss-Newton Hessian of the cost, and of the one that the curvature is added to.
    libraries: by phase, see :func:`~trajopt.stage.compiled.newton_abreast.newton_libraries`. lengths: step lengths at most.
    count: slots. busy, lanes: by kind of work, lanes with a problem and all, summed over the calls.
    """

    def __init__(
        self,
        ocp: OCP,
        plain: StageEvaluator,
        exact: StageEvaluator,
        lq: CompiledLQ,
        libraries: Sequence[Library],
        lengths: int,
        count: int,
    ) -> None:
        *stages, end = cast(Any, plain.stages)
        sweep = abreast(ocp.manifold.ndx, ocp.nu)
        doubles = [part.newton_doubles(s.data.substeps) for part, s in zip(libraries, stages, strict=True)]
        room = aligned(max(*(s.library.rooms.doubles for s in (*stages, end)), *doubles))
        attempts_room = aligned(attempts_doubles(ocp))
        given = ocp, plain, exact, lq, lengths
        self.alone = NewtonSlot(*given, own_rooms=True)
        self.slots = [WindowSlot(NewtonSlot(*given, room=room)) for _ in range(count)]
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
            *map(code_of, (*ends, sweep.lq_attempts)),
            *map(address, (room, attempts_room)),
            self.alone.address,
        )
        self._memory = phases, room, attempts_room
        self.lanes = find_toolchain().lanes
        self._waiting: list[deque[WindowSlot]] = [deque() for _ in range(KINDS)]
        self._later: list[tuple[WindowSlot, Any]] = []
        self._data_address = ctypes.addressof(self._data)
        self._turn, self._lent = 0, cast("WindowSlot | None", None)
        self.active = 0
        self.busy, self.all = [0, 0], [0, 0]
        self.made_alone = 0
        self._addresses = (ctypes.c_void_p * self.lanes)()
        self._bind()

    def _bind(self) -> None:
        own = library()

        def function(name: str, arguments: str, returns: type | None = ctypes.c_long) -> Callable[..., Any]:
            return bound(own, f"window_{name}", arguments, returns)

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
                s, r, self._first_gains(s.slot.address, -1.0 if r.delta is None else r.delta, r.mu)
            ),
            IsFinite: lambda s, r: self.borrowed(s, anew=True).answer(r),
            Step: self._stepped,
            Roll: self._rolled,
            Keep: self._kept,
            Accept: self._accepted,
            Restore: lambda s, r: self._moved(s, r, self._restore(s.slot.address, *r)),
            OnBounds: lambda s, r: self._moved(s, r, self._on_bounds(s.slot.address)),
            Turn: lambda s, r: s.slot.answer(r),
            Gains: lambda s, r: self._wait(s, r, self._gains(s.slot.address, r.first)),
        }

    @property
    def bytes(self) -> int:
        """Bytes of its memory."""
        return self.alone.bytes + sum(s.slot.bytes for s in self.slots) + sum(a.nbytes for a in self._memory[1:])

    def close(self) -> None:
        """Give memory back."""
        for slot in (self.alone, *(s.slot for s in self.slots)):
            slot.close()

    # -- requests ---------------------------------------------------------------------------------------------------------------
    def ask(self, slot: WindowSlot, request: Request) -> Any:
        """The answer for a slot, or WAIT."""
        return self._asks[type(request)](slot, request)

    def _wait(self, slot: WindowSlot, request: Request, kind: int) -> Any:
        """Let a slot wait for a kind of work, or answer at once."""
        if kind == DONE:
            return _ANSWERS[type(request)](slot.slot)
        slot.request, slot.since = request, self._turn
        self._waiting[kind].append(slot)
        return WAIT

    def _started(self, slot: WindowSlot, _: Start) -> float:
        slot.clear()
        self._forget(slot)
        self._start(slot.slot.address, slot.slot.problem)
        return float(slot.slot.data.answer_0)

    def borrowed(self, slot: WindowSlot, *, anew: bool = False) -> NewtonSlot:
        """The slot with expansions, where this one is."""
        if self._lent is not slot or anew:
            self._lend(self.alone.address, slot.slot.address)
            self._lent = slot
        return self.alone

    def _stepped(self, slot: WindowSlot, r: Step) -> Any:
        alone = r.delta != 0.0 or slot.damped or slot.borrowed[1 - r.place] or self.active <= self.lanes
        slot.borrowed[r.place], slot.deltas[r.place] = alone, r.delta
        if alone:
            return self.borrowed(slot).answer(r)
        return self._wait(slot, r, self._step(slot.slot.address, r.place, r.first, r.past, r.mu))

    def _rolled(self, slot: WindowSlot, r: Roll) -> Any:
        if slot.borrowed[r.place]:
            return self._lent_to(slot, r.place).answer(r)
        return self._wait(slot, r, self._try(slot.slot.address, r.place, r.first))

    def _kept(self, slot: WindowSlot, r: Keep) -> None:
        (self._lent_to(slot, r.place) if slot.borrowed[r.place] else slot.slot).answer(r)

    def _accepted(self, slot: WindowSlot, r: Accept) -> Any:
        slot.damped, alone = slot.deltas[r.place] != 0.0, slot.borrowed[r.place]
        if not alone:
            return self._moved(slot, r, self._accept(slot.slot.address, *r))
        point = self._lent_to(slot, r.place).answer(r)
        slot.borrowed = [False, False]
        self._return(self.alone.address, slot.slot.address)
        self.made_alone += 1
        slot.in_a_row += 1
        if slot.in_a_row % IN_A_ROW:
            return point
        self._later.append((slot, point))
        return WAIT

    def _lent_to(self, slot: WindowSlot, place: int) -> NewtonSlot:
        """The slot with expansions, which has the step in a place of this one."""
        if self._lent is not slot:
            raise RuntimeError(
                f"the step in place {place} is gone: use damped steps before the next request for others"
            )
        return self.alone

    def _forget(self, slot: WindowSlot) -> None:
        """The slot moves: the one with expansions is not where it is any more."""
        slot.borrowed = [False, False]
        if self._lent is slot:
            self._lent = None

    def _moved(self, slot: WindowSlot, request: Request, kind: int) -> Any:
        self._forget(slot)
        return self._wait(slot, request, kind)

    # -- work that is done together -------------------------------------------------------------------------------------
    def serve(self) -> list[tuple[WindowSlot, Any]]:
        """Do the work that most slots wait for, for as many as there are lanes: those that have their answer, with it."""
        if self._later:
            later, self._later = self._later, []
            return later
        kind = self._wanted()
        if kind is None:
            return []
        self._turn += 1
        group = self._group(kind)
        for lane, slot in enumerate(group):
            self._addresses[lane] = slot.slot.address
        if kind == TRIALS:
            self._trials(self._data_address, ctypes.addressof(self._addresses), len(group))
        else:
            self._attempts(self._data_address, ctypes.addressof(self._addresses), len(group), kind - ATTEMPTS)
        work = kind == TRIALS
        self.busy[work] += len(group)
        self.all[work] += self.lanes
        answered: list[tuple[WindowSlot, Any]] = []
        for slot in group:
            waits = slot.slot.data.waits
            if waits == DONE:
                answered.append((slot, _ANSWERS[type(slot.request)](slot.slot)))
            else:
                slot.since = self._turn
                self._waiting[waits].append(slot)
        return answered

    def _wanted(self) -> int | None:
        """The kind of work that most slots wait for, unless one has waited for long; None: none waits."""
        most, best, oldest, longest = 0, None, self._turn - PATIENCE, None
        for kind, waiting in enumerate(self._waiting):
            if waiting:
                if len(waiting) > most:
                    most, best = len(waiting), kind
                if waiting[0].since < oldest:
                    oldest, longest = waiting[0].since, kind
        return best if longest is None else longest

    def _group(self, kind: int) -> list[WindowSlot]:
        """The slots that have waited the longest for a kind; lanes that are left are for those that ask for some of its
        fractions.
        """
        group: list[WindowSlot] = []
        kinds = [kind]
        if kind > ATTEMPTS:
            asked = kind - ATTEMPTS
            kinds += [ATTEMPTS + fewer for fewer in range(asked - 1, -1, -1) if not fewer & ~asked]
        for own in kinds:
            waiting = self._waiting[own]
            while waiting and len(group) < self.lanes:
                group.append(waiting.popleft())
        return group


_ANSWERS: dict[type, Callable[[NewtonSlot], Any]] = {
    **dict.fromkeys((FirstGains, Accept, Restore, OnBounds), NewtonSlot.point),
    Step: NewtonSlot.direction,
    Roll: lambda slot: slot.trials(1),
    Gains: lambda _: None,
}


def attempts_doubles(ocp: OCP) -> int:
    """Doubles that attempts for several problems take on their way."""
    sweep = abreast(ocp.manifold.ndx, ocp.nu)
    return int(bound(sweep, "lq_attempts_room", "l", ctypes.c_long)(ocp.horizon))
