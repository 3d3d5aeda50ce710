"""Violations of inequality constraints between the knots, where solvers do not enforce them.

Within time step k, the motion starts at x_k with held control u_k and is evaluated after the FRACTIONS of the step.
There the inequalities of the phase are checked, with interpolated parameters and the looser bound of the two knots.  For state
constraints, the larger of the violations at both ends of the step is subtracted: x0 is given, and after the last knot of a phase
other constraints apply.  Equality constraints are not checked: between knots they hold up to the accuracy of the time steps.
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

FRACTIONS = (0.25, 0.5, 0.75)
"""Fractions of a time step after which constraints are evaluated."""
TOLERANCE, OF_BOUND, OF_RANGE, SMALL, LEAST = 1e-3, 5e-3, 0.05, 0.01, 1e-3
"""Tolerances on violations between knots: TOLERANCE relative to the smaller magnitude of a row's values at both knots, or to 1 if
this is larger, or OF_BOUND relative to the bound, whichever is larger. The 1 becomes the range of the row along the plan over SMALL
if that is less, but not below LEAST. The tolerance is at most OF_RANGE relative to the range between two bounds. Values far from
the bound, such as those of an obstacle far away, do not count.
"""


class BetweenKnots(NamedTuple):
    """Violations between the knots.

    excess: by phase and constraint, largest violation (K, nr) of each row within each of the K time steps; zero for constraints
    that are not checked. ratio: largest quotient of a violation and its tolerance, 0 without violations; amount, name: violation
    and name of that row; time [s], knot: its time and the knot before it.
    """

    excess: tuple[tuple[Array, ...], ...]
    ratio: float = 0.0
    amount: float = 0.0
    name: str = ""
    knot: int = 0
    time: float = 0.0

    def sentence(self) -> str:
        """Describe the violation that is worst relative to its tolerance, also one within it; "" if there is none."""
        if not self.ratio:
            return ""
        return (
            f"constraint {self.name} is violated by {self.amount:.2g} between knots {self.knot} and {self.knot + 1}, "
            f"at t = {self.time:.3g} s"
        )


def may_be_violated(ocp: OCP) -> bool:
    """True if a problem has inequalities that are checked between its knots, see :func:`_is_watched`."""
    return any(_is_watched(phase, c) for phase in ocp.phases for c in phase.constraints)


def between_knots(ocp: OCP, xs: Array, us: Array, evaluator: StageEvaluator) -> BetweenKnots:
    """Compute the violations between the knots of a finite plan xs (N + 1, nx), us (N, nu), after FRACTIONS of each time step.

    Checked are the inequalities for which :func:`_is_watched` is true. For constraints on the state alone, the larger of the
    violations at both ends of the step is subtracted. evaluator: evaluates parts of the time steps of the problem.
    """
    excess = [[np.zeros((phase.knots, c.residual.n_out)) for c in phase.constraints] for phase in ocp.phases]
    inside = [evaluator.within_steps(xs, us, fraction) for fraction in FRACTIONS]
    times, found = np.asarray(ocp.times_of(xs)), BetweenKnots(())
    for i, (phase, knots) in enumerate(zip(ocp.phases, ocp.phase_slices, strict=True)):
        for j, c in enumerate(phase.constraints):
            if not _is_watched(phase, c):
                continue
            at = _Inequality(c, us[knots], ocp.t[knots], phase.dt)
            ends = slice(knots.start + 1, knots.stop + 1)
            within = np.stack([xs[knots], *(states[knots] for states in inside), xs[ends]])
            (before, *over, after), values = at.excess(within, np.array([0.0, *FRACTIONS, 1.0]))
            given = 0.0 if c.residual.nu else np.maximum(before, after)
            size = np.minimum(np.abs(values[0]), np.abs(values[-1]))
            least = np.clip(np.ptp(values, axis=(0, 1)) / SMALL, LEAST, 1.0)
            allowed = np.maximum(TOLERANCE * np.maximum(least, size), OF_BOUND * at.limits)
            allowed = np.minimum(allowed, OF_RANGE * at.range)
            added = np.maximum(np.array(over) - given, 0.0)
            excess[i][j], ratio = added.max(axis=0), added / allowed
            f, k, row = (int(v) for v in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
            if ratio[f, k, row] > found.ratio:
                first, last = times[knots.start + k : knots.start + k + 2]
                worst = float(ratio[f, k, row]), float(added[f, k, row]), c.component_names[row], knots.start + k
                found = BetweenKnots((), *worst, float(first + FRACTIONS[f] * (last - first)))
    return found._replace(excess=tuple(map(tuple, excess)))


class _Inequality:
    """Inequalities of a constraint within time steps dt (K,) [s] from t (K,), with controls us (K, nu)."""

    def __init__(self, c: Constraint, us: Array, t: Array, dt: Array) -> None:
        self.c, self.us, self.t, self.dt = c, us, t, dt
        lower, upper = c.bounds(len(t))
        self._low, self._high = np.minimum(lower, _next_rows(lower)), np.maximum(upper, _next_rows(upper))
        self._imposed = lower < upper
        bounds = [np.where(np.isfinite(b), np.abs(b), 0.0) for b in (self._low, self._high)]
        self.limits = np.maximum(*bounds)
        self.range = np.where(self._imposed, self._high - self._low, np.inf)

    def excess(self, x: Array, fractions: Array) -> tuple[Array, Array]:
        """Return violations (F, K, nr) by states x (F, K, nx) after fractions (F,) of the steps, and the values of the constraint.

        Parameters are interpolated between the knots of a step; the looser bound of both knots counts. Violations are 0 for
        equations, and violations and values for values that are not finite.
        """
        c, (F, K) = self.c, x.shape[:2]
        share = fractions[:, None, None]

        def rows(values: Array) -> Array:
            """Rows (F K, n) from values (F, K, n), or (K, n) for all fractions."""
            return np.broadcast_to(values, (F, K, values.shape[-1])).reshape(F * K, -1)

        p = {key: rows(v + share * (_next_rows(v) - v)) if v.ndim == 2 else v for key, v in c.parameters.items()}
        t = (self.t + fractions[:, None] * self.dt).ravel()
        with np.errstate(all="ignore"):
            batch = residual_batch(c.residual, rows(x), rows(self.us), t, p)
            g = np.asarray(c.residual(*batch)).T.reshape(F, K, -1)
            over = np.maximum(np.maximum(self._low - g, g - self._high), 0.0)
        return np.where(np.isfinite(over) & self._imposed, over, 0.0), np.where(np.isfinite(g), g, 0.0)


def tightened(ocp: OCP, found: BetweenKnots, fraction: float) -> OCP:
    """Return the problem with tighter inequalities at the knots next to violations, by ``fraction`` times the violation.

    Both bounds move inward, at the knots of the phase before and after the violation, the larger of two violations counting.
    Constraints at the first knot of the problem, where x0 is given, terminal constraints, and equations are unchanged; two-sided
    bounds keep an interior.
    """
    phases = []
    for phase, knots, violated in zip(ocp.phases, ocp.phase_slices, found.excess, strict=True):
        constraints = []
        for c, over in zip(phase.constraints, violated, strict=True):
            if over.any():
                margin = fraction * np.maximum(over, np.vstack([np.zeros_like(over[:1]), over[:-1]]))
                if knots.start == 0:
                    margin[0] = 0.0
                lower, upper = c.bounds(phase.knots)
                margin = np.minimum(margin, 0.49 * (upper - lower))
                c = replace(c, lower=lower + margin, upper=upper - margin)
            constraints.append(c)
        phases.append(replace(phase, constraints=tuple(constraints)))
    return replace(ocp, phases=tuple(phases))


def _is_watched(phase: Phase, c: Constraint) -> bool:
    """True if a constraint has inequalities, is to be checked between knots, and its phase's time steps can be evaluated in part.

    Time steps cannot if they are no :class:`SampledSystem`, or if contact forces depend on their length.
    """
    d = phase.dynamics
    if not isinstance(d, SampledSystem) or isinstance(d.system, MeetsInSteps):
        return False
    return c.between_knots and bool((c.lower < c.upper).any())


def _next_rows(rows: Array) -> Array:
    """Rows of the next knots; the last row is repeated."""
    return np.vstack([rows[1:], rows[-1:]])
