"""Violations of constraints between the knots, where no solver looks.

The motion within time step k is that of the plan: from x_k, under the control u_k held, for the shares SHARES of the step.  There
the inequalities of the phase are evaluated, with the looser one of the bounds at the two knots.  Equations are left out: they hold
at the knots by construction, and between them as far as the time steps are accurate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, MeetsInSteps
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import residual_batch
from trajopt.problem.ocp import OCP, Phase
from trajopt.stage.evaluation import StageEvaluator
from trajopt.step.sensitivities import SampledSystem

SHARES = (0.25, 0.5, 0.75)
"""Where in a time step constraints are evaluated."""
TOLERANCE = 1e-3
"""Tolerance on violations between knots, in the unit of a row; relative where its bound is beyond 1."""


class BetweenKnots(NamedTuple):
    """Violations between the knots.

    excess: by phase and constraint, (K, nr) by how much each row is violated within each time step, at most. amount, limit: of the
    row that is worst relative to its tolerance, ``ratio`` times that; name: of the row. time [s]: where; knot: before it.
    """

    excess: tuple[tuple[Array, ...], ...]
    ratio: float = 0.0
    amount: float = 0.0
    limit: float = 0.0
    name: str = ""
    knot: int = 0
    time: float = 0.0

    def sentence(self) -> str:
        """The worst violation; "" where there is none."""
        if not self.ratio:
            return ""
        return (
            f"constraint {self.name} is violated by {self.amount:.2g} between knots {self.knot} and {self.knot + 1}, "
            f"at t = {self.time:.3g} s"
        )


def may_be_violated(ocp: OCP) -> bool:
    """Whether a problem has inequalities that may be violated between its knots."""
    return any(_is_watched(phase, c) for phase in ocp.phases for c in phase.constraints)


def between_knots(ocp: OCP, xs: Array, us: Array, evaluator: StageEvaluator) -> BetweenKnots:
    """The violations between the knots of a finite plan xs (N + 1, nx), us (N, nu)."""
    excess = [[np.zeros((phase.knots, c.residual.n_out)) for c in phase.constraints] for phase in ocp.phases]
    found = BetweenKnots(())
    for share in SHARES:
        states = evaluator.within_steps(xs, us, share)
        for i, (phase, knots) in enumerate(zip(ocp.phases, ocp.phase_slices, strict=True)):
            t = ocp.t[knots] + share * phase.dt
            for j, c in enumerate(phase.constraints):
                if not _is_watched(phase, c):
                    continue
                over, limits = _excess(c, states[knots], us[knots], t)
                excess[i][j] = np.maximum(excess[i][j], over)
                ratio = over / (TOLERANCE * np.maximum(1.0, np.abs(limits)))
                k, row = (int(v) for v in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
                if ratio[k, row] > found.ratio:
                    at = knots.start + k
                    time = float(ocp.times_of(xs)[at] + share * (ocp.times_of(xs)[at + 1] - ocp.times_of(xs)[at]))
                    worst = float(ratio[k, row]), float(over[k, row]), float(limits[k, row])
                    found = BetweenKnots((), *worst, c.component_names[row], at, time)
    return found._replace(excess=tuple(map(tuple, excess)))


def tightened(ocp: OCP, found: BetweenKnots, share: float) -> OCP:
    """The problem with its inequalities tighter by this share of their violations between knots, at the knots beside them."""
    phases = []
    for phase, violated in zip(ocp.phases, found.excess, strict=True):
        constraints = []
        for c, over in zip(phase.constraints, violated, strict=True):
            if over.any():
                margin = share * np.maximum(over, np.vstack([over[:1], over[:-1]]))
                lower, upper = c.bounds(phase.knots)
                c = replace(c, lower=lower + margin, upper=upper - margin)
            constraints.append(c)
        phases.append(replace(phase, constraints=tuple(constraints)))
    return replace(ocp, phases=tuple(phases))


def _is_watched(phase: Phase, c: Constraint) -> bool:
    """Whether a constraint has inequalities, and its phase steps in whose midst they can be evaluated."""
    d = phase.dynamics
    if not isinstance(d, SampledSystem) or isinstance(d.system, MeetsInSteps):
        return False
    return bool((c.lower < c.upper).any())


def _excess(c: Constraint, x: Array, u: Array, t: Array) -> tuple[Array, Array]:
    """By how much (K, nr) inequalities are violated at states (K, nx), and the bounds beyond which they are."""
    lower, upper = c.bounds(len(x))
    low, high = np.minimum(lower, _next(lower)), np.maximum(upper, _next(upper))
    with np.errstate(all="ignore"):
        g = np.asarray(c.residual(*residual_batch(c.residual, x, u, t, c.parameters))).T
        over = np.maximum(np.maximum(low - g, g - high), 0.0)
    limits = np.where(g > high, high, low)
    return np.where(np.isfinite(over) & (lower < upper), over, 0.0), np.where(np.isfinite(limits), limits, 0.0)


def _next(bounds: Array) -> Array:
    return np.vstack([bounds[1:], bounds[-1:]])
