"""Slot of shooting methods for a problem that is not compiled as a whole, or with other models: its kernels call Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem, LQStep
from trajopt.problem.ocp import OCP
from trajopt.solvers.options import DDPOptions, SLQOptions
from trajopt.solvers.shooting.ddp_model import Damping, Iterate, Model, PlainModel
from trajopt.solvers.shooting.parabola import parabola_of
from trajopt.solvers.window.calling_slot import CallingSlot, array_at
from trajopt.solvers.window.memory import TRIALS
from trajopt.solvers.window.shooting_slot import ShootingSlot
from trajopt.stage.compiled.library import TrialsData
from trajopt.stage.evaluation import Shooting, StageEvaluator


class CallingShootingSlot(CallingSlot, ShootingSlot):
    """Slot of shooting methods whose kernels call the models and their evaluators.

    evaluator: of rollouts. models: LQ models of the step. curved: also give each step a parabola that starts along the step.
    """

    def __init__(
        self, ocp: OCP, evaluator: StageEvaluator, options: SLQOptions, models: Sequence[Model], *, curved: bool = False
    ) -> None:
        self._models, self._curved = models, curved
        self._iterates = dict[int, Iterate]()
        self._lq: LQProblem | None = None
        self._bounds = ocp.control_bounds
        self._nodes = Shooting.every(options.shooting, ocp.horizon, options.gaps).nodes
        first = isinstance(options, DDPOptions) and options.switch >= 1.0
        self._model, self._definite = len(models) - 1 if first else 0, False
        super().__init__(ocp, evaluator, options, modeled=not _is_plain(models))

    def _take_stages(self) -> None:
        """Write the functions that call Python to the struct, and no phases."""
        d = self.data
        d.python_expand = self._called("double(long)", self._expanded_at)
        d.python_roll = self._called("void(intptr_t, long)", self._rolled_out)
        if self.sizes.modeled:
            d.python_model = self._called("double(long, double)", self._modeled)
        if self._curved:
            d.python_bend = self._called("double(long, intptr_t, intptr_t, intptr_t)", self._bent)

    def _trials_together(self, parts: int) -> tuple[int, int]:
        """Return TRIALS step lengths that are rolled out together, and the single one of a direction."""
        return TRIALS, 1

    def _restored_arrays(self) -> list[Array]:
        """Return no arrays: a failed request leaves the iterate, which the struct chooses among several."""
        return []

    def answer(self, request: Any) -> Any:
        """Return the answer of the kernels to a request, with the model that it names."""
        self._model, self._definite = getattr(request, "model", self._model), getattr(request, "definite", False)
        return super().answer(request)

    # -- functions that the kernels call -----------------------------------------------------------------------------------
    def _expanded_at(self, number: int) -> float:
        """Expand about an iterate with the evaluator of the current model, and return its cost."""
        prefix, evaluator = f"slots_{number}_", self._models[self._model].evaluator
        xs, us = self.view(prefix + "xs"), self.view(prefix + "us")
        lq, cost, _ = evaluator.expand(xs, us)
        blocks = {name: getattr(lq, name) for name in LQProblem._fields if name != "dx0"}
        self._store(prefix, **blocks)
        own = lq._replace(**{name: self.view(prefix + name) for name in blocks}, dx0=np.zeros_like(lq.dx0))
        self._iterates[number] = Iterate(xs, us, own, evaluator, self.view(prefix + "lambda"), {})
        return float(cost)

    def _modeled(self, number: int, mu: float) -> float:
        """Write the Hessian of the LQ problem of the current model about an iterate; return the knot of a failure, or -1."""
        at, bounds, o = self._iterates[number], self._bounds, self._options
        assert o is not None
        damping = Damping(mu, o.regularize, None if bounds is None else (bounds[0] - at.us, bounds[1] - at.us))
        self._lq, failed = self._models[self._model].problem(at, damping, self._definite)
        self._store("m", Q=self._lq.Q, S=self._lq.S, R=self._lq.R)
        return -1.0 if failed is None else float(failed)

    def _bent(self, number: int, dx: int, du: int, K: int) -> float:
        """Write the parabola of a step from an iterate; return 1, or 0 if there is none. dx, du, K: addresses of the step."""
        assert self._lq is not None
        (N, _, n, m), at = self.sizes[:4], self._iterates[number]
        step = LQStep(array_at(dx, N + 1, n), array_at(du, N, m))
        bend = parabola_of(at.xs, at.us, at.lq.d, step, array_at(K, N, m, n), self._lq, self._evaluator)
        if bend is None:
            return 0.0
        self._store("bend_", dx=bend.dx, du=bend.du)
        return 1.0

    def _rolled_out(self, trials: int, count: int) -> None:
        """Roll out step lengths. trials: address of a trials_t; count: number of lengths."""
        t = TrialsData.from_address(trials)
        self._roll_out(self._evaluator, t, count, Shooting(self._nodes, "nonlinear" if t.nonlinear else "linear"))


def _is_plain(models: Sequence[Model]) -> bool:
    """True if the only model is the plain expansion."""
    return len(models) == 1 and isinstance(models[0], PlainModel)
