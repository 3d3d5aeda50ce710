"""Searches along parabolas: the geodesic acceleration of least squares, for trajectories.

Along a step (dx, du) that solves an LQ problem, the dynamics leave defects that grow with the square of its length,

    c_k = d^2/da^2 f(x_k + a dx_k, u_k + a du_k) at a = 0.

The acceleration (ddx, ddu) is what meets them at the least cost of the same quadratic model,

    minimize 1/2 sum (ddx, ddu)' H (ddx, ddu)    subject to  ddx_(k+1) = A ddx_k + B ddu_k + c_k,     ddx_0 = 0,

and the motion is searched along x + a dx + a^2/2 ddx as well as along the straight line.  In the valleys of least squares, which
are narrow and bent, the parabola stays on the floor for longer (M. Transtrum, B. Machta, J. Sethna, Phys. Rev. E 83, 2011, section
VI; second derivatives of the residuals themselves are left out: those of trajectories are nearly linear in states and controls).
It takes one more roll-out and one more sweep of Riccati, and no second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem, LQStep
from trajopt.lq.lq_solver import LQSolver
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting.iterate import Iterate, Step
from trajopt.solvers.shooting.search.globalization import Merit, SearchResult
from trajopt.stage.evaluation import Candidates, Direction, Evaluator, Shooting

PROBE = 0.1
"""The share of a step at which its second derivative is measured (Transtrum & Sethna, arXiv:1201.5885, section 3)."""
BENT = 4
"""Lengths 1, 1/2, ... tried along a parabola; shorter ones are as good as straight."""

STRETCHED = 2
"""Doublings of the straight step that are tried."""


def bend_of(at: Iterate, step: Step, lq: LQProblem, evaluator: Evaluator, lq_solver: LQSolver) -> LQStep | None:
    """The acceleration along a step, which solves lq; None where it is not finite."""
    d = at.expansion.lq.d
    probe = Direction(PROBE * step.linear.dx, PROBE * step.linear.du, step.policy.K, d)
    left = evaluator.rollout(at.xs, at.us, probe, np.ones(1), Shooting.every("all", lq.horizon, "linear")).defects[0]
    c = 2.0 * (left - (1.0 - PROBE) * d) / PROBE**2
    if not np.isfinite(c).all():
        return None
    bent = lq._replace(d=c, q=np.zeros_like(lq.q), r=np.zeros_like(lq.r), dx0=np.zeros_like(lq.dx0))
    policy = lq_solver.solve_riccati(bent)
    return lq_solver.forward(bent, policy)[0] if policy.failed_at is None else None


def along_curve(step: Step, halvings: int) -> Iterator[tuple[Array, LQStep | None]]:
    """Lengths with the bend they belong to: none for the straight step, and that of the parabola."""
    yield 0.5 ** np.arange(-STRETCHED, halvings + 1.0), None
    if step.bend is not None:
        yield 0.5 ** np.arange(min(BENT, halvings + 1)), step.bend


def most_reduced(
    tries: Sequence[tuple[Array, Candidates]],
    merit: Merit,
    start: float,
    expected: Callable[[Array], Array],
    options: SLQOptions,
) -> SearchResult:
    """The candidate of the lowest merit, accepted if it realizes its share of what its length promises."""
    best: SearchResult | None = None
    for alphas, c in tries:
        actual = start - np.asarray(merit(c.cost, c.defects))
        finite = np.isfinite(c.xs).all(axis=(1, 2)) & np.isfinite(actual)
        actual = np.where(finite, actual, -np.inf)
        i = int(np.argmax(actual))
        if best is None or actual[i] > best.actual:
            hoped = float(np.asarray(expected(np.minimum(alphas, 1.0)))[i])
            accepted = bool(actual[i] >= options.accept_ratio * hoped > 0.0)
            numbers = float(alphas[i]), hoped, float(actual[i])
            best = SearchResult(accepted, *numbers, c.xs[i], c.us[i], c.defects[i], float(c.cost[i]))
    assert best is not None
    return best
