"""Window of problems in shooting methods: kernels/shooting_window.h answers requests for several problems, one in each lane."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
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
from trajopt.solvers.methods.shooting_requests import Correct, Direction, Expand, Gains, Roll, Start
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.window.groups import GroupedWindow
from trajopt.solvers.window.memory import PACKAGE
from trajopt.solvers.window.shooting_slot import ShootingSlot, reads_linear_steps
from trajopt.solvers.window.slots import functions
from trajopt.stage.evaluation import StageEvaluator

ROLLS = 4
"""First operation that is a rollout; each phase has two."""

_Window, _Phase = structs_in(kernel_text(PACKAGE, "shooting_window.h"), "shooting_window_t", "window_phase_t")


class ShootingWindow(GroupedWindow):
    """Window of ``count`` slots for problems of one structure."""

    def __init__(self, ocp: OCP, evaluator: StageEvaluator, options: SLQOptions, count: int) -> None:
        *stages, end = cast(Any, evaluator.stages)
        library, dims = kernels(lanes_in_use()), (ocp.manifold.ndx, ocp.nu)
        workspace = aligned(max(s.library.rooms.doubles for s in (*stages, end)))
        sweep_workspace = aligned(bound(library, "lq_abreast_room", "ii", ctypes.c_long)(*dims))
        directions_workspace = aligned(directions_doubles(ocp, options))
        self.slots = [ShootingSlot(ocp, evaluator, options, workspace=workspace) for _ in range(count)]
        phases = (_Phase * len(stages))()
        for i, s in enumerate(stages):
            phases[i] = _Phase(code_of(s.library.first_abreast), code_of(s.library.rollout_abreast))
        workspaces = workspace, sweep_workspace, directions_workspace
        self._data = _Window(
            ctypes.addressof(phases), code_of(end.library.end_first_abreast), *map(address, workspaces)
        )
        self._memory = phases, workspaces
        super().__init__(ROLLS + 2 * len(stages), lanes_in_use(), _ANSWERS)
        self._bind(library)

    def _bind(self, library: ctypes.CDLL) -> None:
        at = ctypes.addressof(self._data)
        function = functions(library, "shooting_window", ctypes.c_long)
        start, direction, gains = function("start", "pppd"), function("direction", "ppdll"), function("gains", "pd")
        roll, correct, expand = function("roll", "ppll"), function("correct", "ppl"), function("expand", "ppld")
        serve = function("serve", "ppll", None)
        self._asks = {
            Start: lambda s, r: start(at, s.address, s.problem, r.mu),
            Direction: lambda s, r: direction(at, s.address, r.mu, r.going, r.rolled),
            Roll: lambda s, r: roll(at, s.address, r.first, r[2]),
            Correct: lambda s, r: correct(at, s.address, r.again),
            Expand: lambda s, r: expand(at, s.address, r.row, r.mu),
            Gains: lambda s, r: gains(s.address, r.mu),
        }
        self._serve = lambda kind, count: serve(at, self._group_address, count, kind)

    @property
    def active(self) -> int:
        """Number of running problems; if they leave lanes empty, the knots of one problem fill the lanes."""
        return int(self._data.active)

    @active.setter
    def active(self, count: int) -> None:
        self._data.active = count

    def _work(self, kind: int, count: int) -> int | None:
        self._serve(kind, count)
        return int(kind >= ROLLS)


_ANSWERS: dict[type, Callable[[ShootingSlot], Any]] = {
    **dict.fromkeys((Start, Expand), ShootingSlot.point),
    Direction: ShootingSlot.step,
    Roll: lambda slot: slot.trials(slot.data.rolling_count),
    Correct: lambda slot: slot.trials(1)[0],
    Gains: lambda _: None,
}


def directions_doubles(ocp: OCP, options: SLQOptions) -> int:
    """Return the workspace size, in doubles, of directions for several problems in lanes."""
    doubles = bound(kernels(lanes_in_use()), "lq_directions_room", "iil", ctypes.c_long)
    knots = ocp.horizon if reads_linear_steps(ocp, options) else 1
    return int(doubles(ocp.manifold.ndx, ocp.nu, knots))
