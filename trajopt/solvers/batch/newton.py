"""Newton's method (DDP) for batches, on threads.

In a large batch, lanes hold one problem each (a window). In a small batch, each thread solves one problem after the other, and
lanes hold the knots of the problem.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import default_threads
from dynamics_backends.protocol import Array
from trajopt.lq.compiled_lq import compiled_lq
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers.batch.threads import lanes_at_work
from trajopt.solvers.batch.window_batch import WindowBatch, shares_of
from trajopt.solvers.ddp import by_newton
from trajopt.solvers.methods.driver import ProgressCallback
from trajopt.solvers.methods.method import Size
from trajopt.solvers.methods.newton import Newton
from trajopt.solvers.methods.requests import GAUSS_NEWTON
from trajopt.solvers.options import DDPOptions, MethodOptions
from trajopt.solvers.problems.batch import Batch
from trajopt.solvers.window.newton_slot import NewtonSlot, layout, serves, sizes_of
from trajopt.solvers.window.newton_window import NewtonWindow, attempts_doubles
from trajopt.solvers.window.status import FailedExpansion, failed_expansion
from trajopt.stage.compiled.newton_abreast import newton_libraries
from trajopt.stage.numerics import numerics_for

FULL = 4
"""Minimum number of problems per lane and thread for lanes of problems, which run empty toward the end of a batch."""
SLOTS = 4
"""Slots of a window per lane; more than one keeps lanes full, as problems request different operations."""


def _evaluators(ocp: OCP, options: DDPOptions | MethodOptions) -> tuple[Any, Any]:
    """Return the evaluators of the Gauss-Newton Hessian and of the Hessian of the options; the same object if both agree."""
    plain = numerics_for(ocp).evaluator
    return plain, plain if options.hessian == "gauss_newton" else numerics_for(ocp, options.hessian).evaluator


class NewtonBatch(WindowBatch):
    """newton_problem_t of newton_slot.h for each problem.

    method: makes the method of a size, options and a maximum number of iterations. An error that it raises ends its problem;
    one that it raises for every problem is raised.
    """

    @classmethod
    def fits(cls, ocp: OCP, options: Any) -> bool:
        """See :class:`WindowBatch`; also covers registered user-defined methods."""
        if ocp.constraints() or not isinstance(options, (DDPOptions, MethodOptions)):
            return False
        if isinstance(options, DDPOptions) and not by_newton(ocp, options):
            return False
        return serves(_evaluators(ocp, options), curved=True)

    def __init__(
        self,
        batch: Batch,
        guess: tuple[Array, Array],
        options: DDPOptions | MethodOptions,
        *,
        threads: int | None,
        method: Callable[..., Any] = Newton,
        **rest: Any,
    ) -> None:
        super().__init__(batch, guess, options, threads=threads, **rest)
        ocp = self.ocp
        self.method = method
        self.plain, self.exact = _evaluators(ocp, options)
        own: Any = [self.exact.stages[:-1], self.plain.stages[:-1]]
        bounds = batch.bounds() or (None, None)
        widest = 0 if isinstance(options, DDPOptions) or options.hessian == "exact" else GAUSS_NEWTON
        self.size = Size(widest, ocp.horizon * ocp.nu, bounds[0] is not None)
        few = self.count < FULL * self.plain.stages[0].library.lanes * (threads or default_threads())
        self.libraries = None if few else newton_libraries(ocp, own[0])
        curved = zip(own[0], self.libraries or [s.curved for s in own[0]], strict=True)
        data = [[s.data for s in stages] for stages in own] + [[s.data_in(library) for s, library in curved]]
        phases = [np.stack([self.stages(batch, i, d) for i, d in enumerate(of)], axis=1) for of in data]
        evaluators: Any = self.exact, self.plain
        ends = [np.stack(self.end(batch, e.stages[-1]), axis=1) for e in evaluators]
        to = self.xs, self.us, self.K, self.k
        self.rows = self.table([*phases, *ends, batch.x0(), *guess, *bounds, *to])

    def solve(self, on_finished: ProgressCallback) -> dict[str, Any]:
        """Solve all problems on threads; return metadata on how threads and lanes shared the work."""
        given, lengths = (self.ocp, self.plain, self.exact), self.options.max_backtracks + 1
        if not self.libraries:
            ran = self.solve_one_by_one(lambda: NewtonSlot(*given, lengths, own_workspace=True), on_finished)
            how = {"how": ran.how, "lanes": lanes_at_work(ran.threads, self.plain.stages[:-1])}
        else:
            sizes = [layout(sizes_of(self.ocp, lengths, windowed=w)).doubles for w in (True, False)]
            shared = sizes[1] + attempts_doubles(self.ocp)
            count = self.slots_of_a_thread(SLOTS * self.plain.stages[0].library.lanes, 8 * sizes[0], 8 * shared)
            libraries = self.libraries
            ran, windows = self.solve_in_windows(lambda: NewtonWindow(*given, libraries, lengths, count), on_finished)
            self.seconds /= count  # problems of a window share its wall time
            made = sum(0 if e is None else e.iterations for e in self.ended)
            alone = sum(w.made_alone for w in windows) / max(1, made)
            use = {"threads": ran.threads, "slots": ran.threads * count, **shares_of(windows), "alone": alone}
            how = {"how": "lanes", "lanes": use}
        return how | ({"stopped": True} if ran.stopped else {})

    def _method(self, number: int, slot: Any) -> Any:
        return self.method(self.size, self.options, int(self.limits[number]))

    def status(self, i: int) -> Status:
        """Return the status of problem i, equal to that of a single solve."""

        def find_culprit(xs: Array, us: Array) -> FailedExpansion:
            ocp = self.batch[i]
            return failed_expansion(ocp, xs, us, _evaluators(ocp, self.options), compiled_lq(ocp.manifold.ndx, ocp.nu))

        return self._status(i, find_culprit)
