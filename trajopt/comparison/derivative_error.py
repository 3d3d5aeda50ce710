"""Error of a problem's first derivatives along a trajectory: linearized time steps, compared with complex step.

The reference applies complex step in NumPy to the source of the dynamics, which is all that it shares with a backend.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.derivative_check import REFERENCE as REFERENCE, worst_entry
from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.numpy_stages import NumpyStages

KNOTS = 4
"""Number of evenly spaced knots per phase to compare; the reference at all knots of a humanoid takes minutes."""


def derivative_error(evaluator: StageEvaluator, reference: OCP, xs: Array, us: Array) -> float:
    """Return the largest error of A = dx_next/dx and B = dx_next/du along xs (N + 1, nx), us (N, nu), at KNOTS knots per phase.

    evaluator: linearizes the problem with its backend and engine. reference: the problem with derivatives of :data:`REFERENCE` in
    NumPy. Errors are relative to the largest entry of the matrix at the same knot.
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
