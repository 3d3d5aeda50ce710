"""SLQ-type shooting solvers for batches: windows of problems on threads, or large problems one after the other."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from dynamics_backends.machine.library import lanes as lanes_in_use
from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP
from trajopt.solvers.batch.slot_batch import SlotBatch
from trajopt.solvers.batch.threads import STOP
from trajopt.solvers.methods.driver import ProgressCallback, run_window
from trajopt.solvers.methods.method import Solve
from trajopt.solvers.methods.shooting import ShootingMethod
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.window.newton import filtered
from trajopt.solvers.window.shooting import corrects_of, models_of
from trajopt.solvers.window.shooting_slot import ShootingSlot, layout, sizes_of
from trajopt.solvers.window.shooting_window import ShootingWindow, directions_doubles
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.evaluators import evaluator_for

SLOTS = 2
"""Slots of a window per lane: more than one, as problems request different operations; more than two overflow the caches."""

MEMORY = 1 << 30
"""Memory [bytes] of all windows, which limits the slots of each window, of which there is one at least, on many processors."""
LARGE = 1 << 18
"""Number of entries of a problem's LQ Hessians, N (n + m)^2, above which lanes hold knots of one problem: an expansion of several
problems leaves the cache, is no faster, and delays Ctrl-C and time limits."""


class ShootingBatch(SlotBatch):
    """Batch solved by compiled kernels of SLQ (shooting_slot.h). Raises ValueError if the problem is not compiled."""

    @classmethod
    def fits(cls, ocp: OCP, options: Any) -> bool:
        """True for SLQOptions themselves that do not select Newton's method, without constraints and with all stages compiled."""
        if type(options) is not SLQOptions or ocp.constraints() or filtered(ocp, options):
            return False
        return StageEvaluator(ocp, options.hessian, "auto").may_follow

    def __init__(self, batch: Batch, guess: tuple[Array, Array], options: SLQOptions, **rest: Any) -> None:
        super().__init__(batch, guess, options, **rest)
        self.evaluator = evaluator = StageEvaluator(self.ocp, options.hessian, "auto")
        *stages, end = cast(Any, evaluator.stages)
        phases = np.stack([self.stages(batch, i, s.data) for i, s in enumerate(stages)], axis=1)
        bounds = batch.bounds() or (None, None)
        to = self.xs, self.us, self.K, self.k
        self.rows = self.table([phases, np.stack(self.end(batch, end), axis=1), batch.x0(), *guess, *bounds, *to])
        self.models, self.corrects = models_of((), options), corrects_of(self.ocp, options)

    def solve(self, on_finished: ProgressCallback) -> dict[str, Any]:
        """Solve all problems in windows of several slots, one window on each thread; return metadata on threads and lanes.

        ``seconds``: each problem's wall time divided by the number of slots of its window. Large problems are solved one after
        the other on each thread.
        """
        ocp, given = self.ocp, (self.ocp, self.evaluator, self.options)
        if ocp.horizon * (ocp.manifold.ndx + ocp.nu) ** 2 > LARGE:
            stages = self.evaluator.stages[:-1]
            return self.solve_one_by_one(lambda: ShootingSlot(*given, own_workspace=True), stages, on_finished)
        each, shared = layout(sizes_of(ocp, windowed=True)).doubles, directions_doubles(ocp, self.options)
        memory = (MEMORY // self.threads - 8 * shared) // (8 * each)
        count = max(1, min(SLOTS * lanes_in_use(), -(-self.count // self.threads), memory))
        windows: list[Any] = []

        def work(stop: Array) -> None:
            """Solve problems in a new window, in one thread."""
            windows.append(ShootingWindow(*given, count))
            self._run_window(windows[-1], stop)

        stopped = self._run(work, on_finished)
        self.seconds /= count  # its slots run side by side
        sweeps, rollouts = (sum(w.busy[i] for w in windows) / max(1, sum(w.all[i] for w in windows)) for i in (0, 1))
        use = {"threads": self.threads, "slots": self.threads * count, "sweeps": sweeps, "rollouts": rollouts}
        return {"how": "lanes", "lanes": use, **stopped}

    def _run_window(self, window: Any, stop: Array) -> None:
        """Solve problems in the slots of one window until none remains or the batch is stopped."""
        running: dict[Any, tuple[int, Any]] = {}

        def start(slot: Any) -> Solve | None:
            """Load the next problem into a slot and return its method; None if none remains."""
            own = self._take(slot, stop)
            if own is None:
                return None
            running[slot] = own
            window.active = len(running)
            return self._solve(own[1])

        def end(slot: Any, ended: Any) -> None:
            """Store the result of a slot's problem."""
            self._store_result(*running.pop(slot), slot, ended, stop)
            window.active = len(running)

        run_window(window, window.slots, start, end, lambda: bool(stop[STOP]))
        for slot, (number, method) in running.items():  # only after a stop
            self._store_stopped(number, method, slot)

    def _method(self, number: int, slot: Any) -> ShootingMethod:
        """Return the shooting method for problem ``number``, with that problem's iteration limit; slot: unused."""
        return ShootingMethod(self.models, self.options, self.corrects, int(self.limits[number]))

    def _evaluators(self, ocp: OCP) -> tuple[StageEvaluator]:
        """Return the evaluator with the Hessian of the options."""
        return (evaluator_for(ocp, self.options.hessian),)
