"""Window of problems in shooting methods: kernels/shooting_window.h answers requests for several problems, one in each lane.

A slot waits for operations, numbered from 1 on; kernel functions return the number of the next operation of a request. Each
scheduler step runs one operation for as many waiting slots as SIMD lanes hold.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any, cast

from dynamics_backends.compiled.loops.kernel import kernel_text
from dynamics_backends.compiled.runtime.memory import address, aligned, bound, code_of, structs_in
from dynamics_backends.machine.library import kernels, lanes as lanes_in_use
from trajopt.problem.ocp import OCP
from trajopt.solvers.methods.driver import WAIT
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.window.memory import PACKAGE
from trajopt.solvers.window.shooting_slot import ShootingSlot, reads_linear_steps
from trajopt.stage.evaluation import StageEvaluator

DONE, ROLLS = 0, 2
"""Operation code of a slot whose answer is ready; first operation that is a rollout, of which each phase has two."""
PATIENCE = 100
"""Scheduler steps after which a waiting operation runs even if more slots wait for another operation."""

_Window, _Phase = structs_in(kernel_text(PACKAGE, "shooting_window.h"), "shooting_window_t", "window_phase_t")


class ShootingWindow:
    """Window of ``count`` slots of shooting methods, for problems of one structure; answers requests together, in SIMD lanes.

    busy, all: busy lanes and all lanes, summed over calls: [0] of expansions with directions, [1] of rollouts.
    """

    def __init__(self, ocp: OCP, evaluator: StageEvaluator, options: SLQOptions, count: int) -> None:
        *stages, end = cast(Any, evaluator.stages)
        workspace = aligned(max(s.library.workspaces.doubles for s in (*stages, end)))
        directions_workspace = aligned(directions_doubles(ocp, options))
        self.slots = [ShootingSlot(ocp, evaluator, options, workspace=workspace) for _ in range(count)]
        phases = (_Phase * len(stages))()
        for i, s in enumerate(stages):
            phases[i] = _Phase(code_of(s.library.first_in_lanes), code_of(s.library.rollout_in_lanes))
        workspaces = workspace, directions_workspace
        self._data = _Window(
            ctypes.addressof(phases), code_of(end.library.end_first_in_lanes), *map(address, workspaces)
        )
        self._memory = phases, workspaces
        self.lanes = lanes_in_use()
        self._waiting: list[deque[ShootingSlot]] = [deque() for _ in range(ROLLS + 2 * len(stages))]
        self._turn = 0
        self.busy, self.all = [0, 0], [0, 0]
        self._group_of = (ctypes.c_void_p * self.lanes)()
        self._group_address = ctypes.addressof(self._group_of)
        at, serve = ctypes.addressof(self._data), bound(kernels(), "shooting_window_serve", "ppll")
        self._serve = lambda kind, count: serve(at, self._group_address, count, kind)
        for slot in self.slots:
            slot.data.window = at

    @property
    def active(self) -> int:
        """Number of running problems, set by the driver.

        If they are at most half as many as SIMD lanes, or controls have bounds, an expansion does not wait for other problems:
        its knots fill the lanes.
        """
        return int(self._data.active)

    @active.setter
    def active(self, count: int) -> None:
        """Set the number of running problems."""
        self._data.active = count

    def ask(self, slot: ShootingSlot, request: Any) -> Any:
        """Return the answer to the request of a slot; or queue it for an operation shared with other problems and return WAIT."""
        slot.calls[type(request)](request)
        kind = slot.data.waits
        if kind == DONE:
            return slot.readers[type(request)]()
        slot.request, slot.since = request, self._turn
        self._waiting[kind].append(slot)
        return WAIT

    def serve(self) -> list[tuple[ShootingSlot, Any]]:
        """Run one operation for at most as many waiting slots as SIMD lanes; return pairs of a slot and its answer, where ready.

        It is the operation most slots wait for, or one that has waited more than PATIENCE steps; slots that wait longest come
        first. Slots of the call without an answer wait for their next operation, or again for this one if their rollouts did not
        fit. Returns [] if no slot waits. Busy lanes are counted.
        """
        kind = self._wanted()
        if kind is None:
            return []
        self._turn += 1
        waiting, forward = self._waiting[kind], int(kind >= ROLLS)
        group = [waiting.popleft() for _ in range(min(self.lanes, len(waiting)))]  # longest waiting first
        for lane, slot in enumerate(group):
            self._group_of[lane] = slot.address
        self._serve(kind, len(group))
        self.busy[forward] += len(group)
        self.all[forward] += self.lanes
        answered: list[tuple[ShootingSlot, Any]] = []
        for slot in group:
            waits = slot.data.waits
            if waits == DONE:
                answered.append((slot, slot.readers[type(slot.request)]()))
            else:
                slot.since = self._turn
                self._waiting[waits].append(slot)
        return answered

    def _wanted(self) -> int | None:
        """Return the number of the operation that most slots wait for; None if no slot waits.

        An operation that has waited for more than PATIENCE scheduler steps comes first, the oldest of several.
        """
        waiting = [kind for kind, slots in enumerate(self._waiting) if slots]
        oldest = min(waiting, key=lambda kind: self._waiting[kind][0].since, default=None)
        if oldest is None or self._waiting[oldest][0].since < self._turn - PATIENCE:
            return oldest
        return max(waiting, key=lambda kind: len(self._waiting[kind]))


def directions_doubles(ocp: OCP, options: SLQOptions) -> int:
    """Return the workspace size, in doubles, of the kernel that computes search directions of several problems in lanes."""
    doubles = bound(kernels(), "lq_directions_workspace", "iill", ctypes.c_long)
    return int(doubles(ocp.manifold.ndx, ocp.nu, ocp.horizon, reads_linear_steps(ocp, options)))
