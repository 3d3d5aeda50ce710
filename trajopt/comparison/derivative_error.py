"""Error of a problem's first derivatives along a trajectory: of its time steps, as solvers get them, against complex step.

The reference differentiates the source of the dynamics by complex step in NumPy; it shares nothing with a backend but that source.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.numpy_stages import NumpyStages

REFERENCE = "complex_step"
KNOTS = 4
"""Knots of each phase at which derivatives are compared, evenly spaced: a reference at all knots of a humanoid takes minutes."""


LEAST = 1e-30
"""Stands in for the scale of a block that vanishes, so that its error is the absolute one."""


def derivative_error(evaluator: StageEvaluator, reference: OCP, xs: Array, us: Array) -> float:
    """The largest error of A = dx_next/dx and B = dx_next/du along xs (N + 1, nx), us (N, nu), at :data:`KNOTS` of each phase.

    evaluator: of the problem with its own backend and engine. reference: the same problem by :data:`REFERENCE` in NumPy. An error
    is relative to the largest entry of its block at its knot.
    """
    with np.errstate(all="ignore"):
        lq, worst = evaluator.expand(xs, us).lq, 0.0
        for phase, knots in zip(reference.phases, reference.phase_slices, strict=True):
            at = np.unique(np.linspace(knots.start, knots.stop - 1, KNOTS).round().astype(int))
            local = at - knots.start
            p = {key: v[local] if v.ndim == 2 else v for key, v in phase.parameters.items()}
            given = phase.dynamics, (), (), reference.t[at], phase.dt[local], reference.nu, p
            exact = NumpyStages(reference.manifold, *given).first(xs[at], us[at], xs[at + 1], quadratic=False)
            for own, right in ((lq.A[at], exact.A), (lq.B[at], exact.B)):
                if right.size:
                    worst = max(worst, worst_entry(own, right)[0])
    return worst


def worst_entry(value: Array, exact: Array, least: Array | float = 0.0) -> tuple[float, tuple[int, ...]]:
    """The largest error relative to the block at its point (N, ...), or to ``least``, and where in the block it is."""
    axes = tuple(range(1, exact.ndim))
    scale = np.maximum(np.abs(exact).max(axis=axes, keepdims=True), least)
    error = np.abs(value - exact) / np.where(scale > LEAST, scale, 1.0)
    error = np.where(np.isfinite(error), error, np.inf)
    point, *entry = np.unravel_index(int(np.argmax(error)), error.shape)
    return float(error[point, *entry]), tuple(int(i) for i in entry)
