"""Stages with compiled time steps, cost terms partly compiled and partly in NumPy, and constraints compiled or in NumPy.

They serve phases that cannot be compiled as a whole (:mod:`trajopt.stage.compiled.choice`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array, Hessians
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.numpy_stages import NumpyStages, phase_cost
from trajopt.stage.stages import Knots, StageDerivatives, StageValues, Trials, workspace_for


class BareStages:
    """Evaluation of the K knots of a phase: time steps and some cost terms compiled, other terms in NumPy.

    steps: the time steps and the compiled cost terms, maybe none, and all constraints or none. plain: the remaining terms and
    constraints, in NumPy.
    """

    compiled = True

    def __init__(self, steps: CompiledStages, plain: NumpyStages) -> None:
        self.steps, self.plain = steps, plain
        self._costs = replace(plain, dynamics=None)
        self._sizes = (
            plain.manifold.nx,
            plain.manifold.ndx,
            plain.nu,
            sum(c.residual.n_out for c in (*steps.plain.constraints, *plain.constraints)),
        )

    def values(self, at: Knots) -> StageValues:
        """Return next states and defects by compiled code, summed costs of compiled and NumPy terms, and constraints."""
        step, cost = self.steps.values(at), self._costs.values(at)
        return StageValues(step.x_next, step.d, step.cost + cost.cost, np.concatenate([step.g, cost.g], axis=1))

    def first(self, at: Knots, *, quadratic: bool = True, out: StageDerivatives | None = None) -> StageDerivatives:
        """Return values and first derivatives, in ``out`` if given, with Q, S, R of the cost if ``quadratic``."""
        nx, n, m, ng = self._sizes
        out = out or workspace_for(len(at.x), (nx, n, n, m, ng), quadratic)
        step = self.steps.first(at, quadratic=quadratic)
        own = self._costs.first(at, quadratic=quadratic)
        out.values.x_next[:], out.values.d[:], out.A[:], out.B[:] = step.values.x_next, step.values.d, step.A, step.B
        if ng:
            constrained = own if self.plain.constraints else step
            out.values.g[:], out.gx[:], out.gu[:] = constrained.values.g, constrained.gx, constrained.gu
        out.values.cost[:] = step.values.cost + own.values.cost
        for key in ("lx", "lu", *(("Q", "S", "R") if quadratic else ())):
            getattr(out, key)[:] = getattr(step, key) + getattr(own, key)
        return out

    def second(
        self, at: Knots, sigma: float, lam: Array | None = None, y: Array | None = None, out: Hessians | None = None
    ) -> Hessians:
        """Return the Hessian blocks of sigma l + lam'(x_next (-) node) + y'g, in ``out`` if given.

        The part of lam and compiled terms and constraints come from ``steps``, the others from ``plain``. lam, y: None omits a
        part.
        """
        if not sigma and y is None:
            return self.steps.second(at, 0.0, lam, None, out)
        in_numpy, compiled = (y, None) if self.plain.constraints else (None, y)
        result = self._costs.second(at, sigma, None, in_numpy, out)
        if lam is not None:
            for block, part in zip(result, self.steps.second(at, 0.0, lam, None), strict=True):
                block += part
        if (sigma and self.steps.plain.terms) or compiled is not None:
            for block, part in zip(result, self.steps.second(at, sigma, None, compiled), strict=True):
                block += part
        return result

    def sweep_part(self, at: Knots) -> tuple[Any, Any] | None:
        """Return the CurvaturePart with which a C sweep evaluates second derivatives of the time steps, and its memory.

        See :meth:`CompiledStages.sweep_part`. Returns None if these second derivatives are not compiled.
        """
        return self.steps.sweep_part(at)

    def finer(self, pieces: int) -> BareStages:
        """Return stages with ``pieces`` times as many substeps in each compiled time step, for rollouts."""
        return BareStages(self.steps.finer(pieces), self.plain)

    def shortened(self, share: float) -> BareStages:
        """Return stages with the time steps multiplied by ``share``.

        So are the costs of compiled terms; those of NumPy terms are not if their weights ``plain.scale`` are given.
        """
        return BareStages(self.steps.shortened(share), replace(self.plain, dt=share * self.plain.dt))

    def rollout(self, trials: Trials) -> Array:
        """Write the trajectories of ``trials`` over these knots by compiled code, in place.

        Returns the costs (L,) of these knots, NumPy terms included.
        """
        compiled, p = self.steps.rollout(trials), self.plain
        knots = slice(p.start, p.start + len(p.t))
        scale = p.dt if p.scale is None else p.scale
        return compiled + phase_cost(p.terms, trials.X[:, knots], trials.U[:, knots], p.t, scale).sum(axis=1)
