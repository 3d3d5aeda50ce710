"""Newton's method (DDP) for batches: each thread solves one problem after the other, with the knots of the problem in lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP
from trajopt.solvers.batch.slot_batch import SlotBatch
from trajopt.solvers.ddp import by_newton
from trajopt.solvers.methods.driver import ProgressCallback
from trajopt.solvers.methods.method import Size
from trajopt.solvers.methods.newton import Newton
from trajopt.solvers.methods.requests import GAUSS_NEWTON
from trajopt.solvers.options import DDPOptions, MethodOptions
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.window.newton_slot import NewtonSlot, serves
from trajopt.stage.evaluators import evaluator_for


def _evaluators(ocp: OCP, options: DDPOptions | MethodOptions) -> tuple[Any, Any]:
    """Return the stage evaluators with the Gauss-Newton Hessian and with the Hessian of the options; one object if both agree."""
    plain = evaluator_for(ocp)
    return plain, plain if options.hessian == "gauss_newton" else evaluator_for(ocp, options.hessian)


class NewtonBatch(SlotBatch):
    """Batch solved by compiled kernels of Newton's method or a registered method (newton_slot.h).

    method: makes the method of a size, options and a maximum number of iterations. An error that it raises ends its problem;
    one that it raises for every problem is raised.
    """

    @classmethod
    def fits(cls, ocp: OCP, options: Any) -> bool:
        """True if kernels answer all requests: no constraints, and options of a registered method, or of DDP by Newton's method."""
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
        method: Callable[..., Any] = Newton,
        **rest: Any,
    ) -> None:
        super().__init__(batch, guess, options, **rest)
        ocp = self.ocp
        self.method = method
        self.plain, self.exact = _evaluators(ocp, options)
        own: Any = [self.exact.stages[:-1], self.plain.stages[:-1]]
        bounds = batch.bounds() or (None, None)
        widest = 0 if isinstance(options, DDPOptions) or options.hessian == "exact" else GAUSS_NEWTON
        self.size = Size(widest, ocp.horizon * ocp.nu, bounds[0] is not None)
        data = [*([s.data for s in stages] for stages in own), [s.curved_data for s in own[0]]]
        phases = [np.stack([self.stages(batch, i, d) for i, d in enumerate(of)], axis=1) for of in data]
        evaluators: Any = self.exact, self.plain
        ends = [np.stack(self.end(batch, e.stages[-1]), axis=1) for e in evaluators]
        to = self.xs, self.us, self.K, self.k
        self.rows = self.table([*phases, *ends, batch.x0(), *guess, *bounds, *to])

    def solve(self, on_finished: ProgressCallback) -> dict[str, Any]:
        """Solve the problems of :attr:`order`, one after the other on each thread; return metadata on threads and lanes."""
        given = self.ocp, self.plain, self.exact
        stages = self.plain.stages[:-1]
        return self.solve_one_by_one(lambda: NewtonSlot(*given, own_workspace=True), stages, on_finished)

    def _method(self, number: int, slot: Any) -> Any:
        """Return the method for problem ``number``, with its iteration limit; slot: unused."""
        return self.method(self.size, self.options, int(self.limits[number]))

    def _evaluators(self, ocp: OCP) -> tuple[Any, Any]:
        """Return the evaluators with the Gauss-Newton Hessian and with the Hessian of the options."""
        return _evaluators(ocp, self.options)
