"""SLQ-type shooting solvers for batches: windows of problems on threads."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import lanes_in_use
from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers.batch.window_batch import WindowBatch, shares_of
from trajopt.solvers.methods.driver import ProgressCallback
from trajopt.solvers.methods.shooting import ShootingMethod
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.problems.batch import Batch
from trajopt.solvers.window.newton import filtered
from trajopt.solvers.window.shooting import corrects_of, models_of
from trajopt.solvers.window.shooting_slot import layout, sizes_of
from trajopt.solvers.window.shooting_window import ShootingWindow, directions_doubles
from trajopt.solvers.window.status import FailedExpansion
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.numerics import numerics_for

SLOTS = 2
"""Slots of a window per lane: more than one, as problems request different operations; more than two overflow the caches."""


class ShootingBatch(WindowBatch):
    """Batch of shooting_problem_t (shooting_slot.h). Raises ValueError if the problem is not compiled."""

    @classmethod
    def fits(cls, ocp: OCP, options: Any) -> bool:
        """See :class:`WindowBatch`."""
        if type(options) is not SLQOptions or ocp.constraints() or filtered(ocp, options):
            return False
        return StageEvaluator(ocp, options.hessian, "auto").compiled

    def __init__(self, batch: Batch, guess: tuple[Array, Array], options: SLQOptions, **rest: Any) -> None:
        super().__init__(batch, guess, options, **rest)
        self.evaluator = evaluator = StageEvaluator(self.ocp, options.hessian, "auto")
        if not evaluator.compiled:
            raise ValueError("a part of the problem is evaluated in NumPy; lanes need all stages compiled")
        *stages, end = cast(Any, evaluator.stages)
        phases = np.stack([self.stages(batch, i, s.data) for i, s in enumerate(stages)], axis=1)
        bounds = batch.bounds() or (None, None)
        to = self.xs, self.us, self.K, self.k
        self.rows = self.table([phases, np.stack(self.end(batch, end), axis=1), batch.x0(), *guess, *bounds, *to])
        self.models, self.corrects = models_of((), options), corrects_of(self.ocp, options)

    def solve(self, on_finished: ProgressCallback) -> dict[str, Any]:
        """Solve all problems in windows; return metadata on how threads and lanes shared the work."""
        each, shared = layout(sizes_of(self.ocp, windowed=True)).doubles, directions_doubles(self.ocp, self.options)
        count = self.slots_of_a_thread(SLOTS * lanes_in_use(), 8 * each, 8 * shared)
        given = self.ocp, self.evaluator, self.options
        ran, windows = self.solve_in_windows(lambda: ShootingWindow(*given, count), on_finished)
        self.seconds /= count  # problems of a window share its wall time
        use = {"threads": ran.threads, "slots": ran.threads * count, **shares_of(windows)}
        return {"how": "lanes", "lanes": use} | ({"stopped": True} if ran.stopped else {})

    def _method(self, number: int, slot: Any) -> ShootingMethod:
        return ShootingMethod(self.models, self.options, self.corrects, int(self.limits[number]))

    def status(self, i: int) -> Status:
        """Return the status of problem i, equal to that of a single solve."""

        def find_culprit(xs: Array, us: Array) -> FailedExpansion:
            ocp = self.batch[i]
            return FailedExpansion(ocp, xs, numerics_for(ocp, self.options.hessian).evaluator.expand(xs, us))

        return self._status(i, find_culprit)
