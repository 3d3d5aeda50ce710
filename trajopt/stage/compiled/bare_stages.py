"""Stages whose time steps are compiled, and whose cost terms and constraints are NumPy's: for terms that are new."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array, Hessians
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.numpy_stages import NumpyStages, phase_cost
from trajopt.stage.pool import Pool
from trajopt.stage.stages import StageDerivatives, StageValues, Trials, room_for


class BareStages:
    """See :class:`~trajopt.stage.stages.Stages`. steps: without terms and constraints. plain: with them, in NumPy."""

    compiled = True

    def __init__(self, steps: CompiledStages, plain: NumpyStages) -> None:
        self.steps, self.plain = steps, plain
        self._costs = replace(plain, dynamics=None)
        self._sizes = (
            plain.manifold.nx,
            plain.manifold.ndx,
            plain.nu,
            sum(c.residual.n_out for c in plain.constraints),
        )

    def values(self, x: Array, u: Array, nodes: Array) -> StageValues:
        """See :class:`~trajopt.stage.stages.Stages`."""
        step, cost = self.steps.values(x, u, nodes), self._costs.values(x, u, nodes)
        return StageValues(step.x_next, step.d, cost.cost, cost.g)

    def first(
        self,
        x: Array,
        u: Array,
        nodes: Array,
        *,
        quadratic: bool = True,
        out: StageDerivatives | None = None,
        pool: Pool | None = None,
    ) -> StageDerivatives:
        """See :class:`~trajopt.stage.stages.Stages`."""
        nx, n, m, ng = self._sizes
        K, out = len(x), out or room_for(len(x), (nx, n, n, m, ng), quadratic)
        none = np.empty((K, 0))
        step = out._replace(values=out.values._replace(g=none), gx=none[:, :, None], gu=none[:, :, None])
        self.steps.first(x, u, nodes, quadratic=quadratic, out=step)
        no_step = (none, none)
        cost = out._replace(values=StageValues(*no_step, out.values.cost, out.values.g))
        self._costs.first(x, u, nodes, quadratic=quadratic, out=cost)
        return out

    def second(
        self,
        x: Array,
        u: Array,
        nodes: Array,
        sigma: float,
        lam: Array | None = None,
        y: Array | None = None,
        first: int = 0,
        out: Hessians | None = None,
    ) -> Hessians:
        """See :class:`~trajopt.stage.stages.Stages`."""
        if not sigma and y is None:
            return self.steps.second(x, u, nodes, 0.0, lam, None, first, out)
        found = self._costs.second(x, u, nodes, sigma, None, y, first, out)
        if lam is not None:
            for block, part in zip(found, self.steps.second(x, u, nodes, 0.0, lam), strict=True):
                block += part
        return found

    def sweep_part(self, x: Array, u: Array, nodes: Array) -> tuple[Any, Any] | None:
        """See :class:`~trajopt.stage.stages.SweptStages`."""
        return self.steps.sweep_part(x, u, nodes)

    def rollout(self, trials: Trials) -> Array:
        """See :class:`~trajopt.stage.stages.Stages`."""
        self.steps.rollout(trials)
        p = self.plain
        knots = slice(p.start, p.start + len(p.t))
        scale = p.dt if p.scale is None else p.scale
        return np.asarray(phase_cost(p.terms, trials.X[:, knots], trials.U[:, knots], p.t, scale).sum(axis=1))
