"""Parabolas for line searches: geodesic acceleration of least squares, applied to trajectories.

Along a step
(dx, du) that solves an LQ problem, the defects of the dynamics grow with the square of the step length,

    c_k = d^2/da^2 f(x_k + a dx_k, u_k + a du_k) at a = 0.

The acceleration (ddx, ddu) removes these defects at the least cost of the same quadratic model,

    minimize 1/2 sum (ddx, ddu)' H (ddx, ddu)    subject to  ddx_(k+1) = A ddx_k + B ddu_k + c_k,     ddx_0 = 0,

and the line search tries x + a dx + a^2/2 ddx in addition to the straight line.  Least-squares costs often have narrow, curved
valleys, and the parabola follows them for longer (M. Transtrum, B. Machta, J. Sethna, Phys. Rev. E 83, 2011, section VI).  Second
derivatives of the residuals are omitted, because residuals of trajectories are nearly linear in states and controls.  The cost is
one more rollout and one more Riccati sweep, without second derivatives.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem, LQStep
from trajopt.lq.lq_solver import shared_lq
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator

PROBE = 0.1
"""Step length of the finite difference for the second derivative (Transtrum & Sethna, arXiv:1201.5885, section 3)."""


def parabola_of(
    xs: Array, us: Array, d: Array, step: LQStep, K: Array, lq: LQProblem, evaluator: StageEvaluator
) -> LQStep | None:
    """Return the geodesic acceleration (ddx, ddu) of a step with gains K from xs, us with the gaps d; the step solves lq.

    A rollout at PROBE times the step gives the second-order defects; the LQ problem without gradient closes them. None if they are
    not finite, or the problem has no solution.
    """
    probe = Direction(PROBE * step.dx, PROBE * step.du, K, d)
    left = evaluator.rollout(xs, us, probe, np.ones(1), Shooting.every("all", lq.horizon, "linear")).defects[0]
    c = 2.0 * (left - (1.0 - PROBE) * d) / PROBE**2
    if not np.isfinite(c).all():
        return None
    second = lq._replace(d=c, q=np.zeros_like(lq.q), r=np.zeros_like(lq.r), dx0=np.zeros_like(lq.dx0))
    policy = shared_lq().solve_riccati(second)
    return shared_lq().forward(second, policy)[0] if policy.failed_at is None else None
