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
from trajopt.problem.terms import next_rows
from trajopt.stage.evaluation import StageEvaluator
from trajopt.step.sensitivities import SampledSystem

FRACTIONS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
"""Fractions of a time step after which constraints are evaluated."""
TOLERANCE, OF_BOUND, OF_RANGE, SMALL, LEAST, ZERO = 1e-3, 5e-3, 0.05, 0.01, 1e-3, 1e-6
"""Tolerances on violations between knots: TOLERANCE relative to the smaller magnitude of a row's values at both knots, or to 1 if
this is larger, or OF_BOUND relative to the bound, whichever is larger. The 1 becomes the range of the row along the plan over SMALL
if that is less, but not below LEAST. The tolerance is at most OF_RANGE relative to the range between two bounds, and to a bound
above ZERO, such as the squared radius of an obstacle. Values far from the bound, such as those of an obstacle far away, do not
count.
"""


class BetweenKnots(NamedTuple):
    """Violations between the knots.

    rises: by phase and constraint, largest violation (K, nr) of each row within each of the K time steps, for constraints on
    controls plus the distance from the bound at the knot before it; zero without a violation or a check. ratio: largest quotient of
    a violation and its tolerance, 0 without violations; amount, name: violation and name of that row; time [s], knot: its time and
    the knot before it.
    """

    rises: tuple[tuple[Array, ...], ...]
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
            f"constraint {self.name} is violated by {self.amount:.2g} (tolerance {self.amount / self.ratio:.2g}) between knots "
            f"{self.knot} and {self.knot + 1}, at t = {self.time:.3g} s"
        )


def may_be_violated(ocp: OCP) -> bool:
    """True if a problem has inequalities that are checked between its knots, see :func:`_is_watched`."""
    return any(_is_watched(phase, c) for phase in ocp.phases for c in phase.constraints)


def between_knots(ocp: OCP, xs: Array, us: Array, evaluator: StageEvaluator) -> BetweenKnots:
    """Compute the violations between the knots of a finite plan xs (N + 1, nx), us (N, nu), after FRACTIONS of each time step.

    Checked are the inequalities for which :func:`_is_watched` is true. For constraints on the state alone, the larger of the
    violations at both ends of the step is subtracted. evaluator: evaluates parts of the time steps of the problem.
    """
    rises = [[np.zeros((phase.knots, c.residual.n_out)) for c in phase.constraints] for phase in ocp.phases]
    inside = [evaluator.within_steps(xs, us, fraction) for fraction in FRACTIONS]
    watched = list[tuple[int, _Inequality, Array, Array]]()
    lowest, highest = dict[str, float](), dict[str, float]()
    for i, (phase, knots) in enumerate(zip(ocp.phases, ocp.phase_slices, strict=True)):
        for j, c in enumerate(phase.constraints):
            if not _is_watched(phase, c):
                continue
            at = _Inequality(c, us[knots], ocp.t[knots], phase.dt)
            ends = slice(knots.start + 1, knots.stop + 1)
            within = np.stack([xs[knots], *(states[knots] for states in inside), xs[ends]])
            outside, values = at.outside(within, np.array([0.0, *FRACTIONS, 1.0]))
            before, after = outside[0], outside[-1]
            given = before if c.residual.nu else np.maximum(before, after)
            known = 0.0 if c.residual.nu else np.maximum(given, 0.0)
            added = np.maximum(at.highest(within, outside, known) - known, 0.0)
            slack = np.maximum(-before, 0.0) if c.residual.nu else 0.0
            rises[i][j] = np.where(added > 0.0, added + slack, 0.0).max(axis=0)
            watched.append((knots.start, at, values, added))
            for name, low, high in zip(
                c.component_names, values.min(axis=(0, 1)), values.max(axis=(0, 1)), strict=True
            ):
                lowest[name], highest[name] = min(low, lowest.get(name, low)), max(high, highest.get(name, high))
    times, found = np.asarray(ocp.times_of(xs)), BetweenKnots(())
    for start, at, values, added in watched:
        names = at.c.component_names
        ratio = added / at.allowed(values, np.array([highest[name] - lowest[name] for name in names]))
        f, k, row = (int(v) for v in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
        if ratio[f, k, row] > found.ratio:
            first, last = times[start + k : start + k + 2]
            worst = float(ratio[f, k, row]), float(added[f, k, row]), names[row], start + k
            found = BetweenKnots((), *worst, float(first + FRACTIONS[f] * (last - first)))
    return found._replace(rises=tuple(map(tuple, rises)))


def _peaks(values: Array) -> tuple[Array, Array]:
    """Return places and values (F - 2, ...) of the peaks near the inner ones of values (F, ...) at equal distances.

    A peak is that of the parabola through a value and its neighbors if it is nearer to the value than to them, or lies between it
    and the first or last value: thin obstacles may begin at a knot. Places are relative to that of the value, in distances of
    values. Without a peak the place is 0.
    """
    a, b, c = values[:-2], values[1:-1], values[2:]
    bend = a - 2.0 * b + c
    left, right = np.full((2, *b.shape), 0.5)
    left[0] = right[-1] = 1.0
    concave = bend < 0.0
    place = np.where(concave, a - c, np.inf) / np.where(concave, 2.0 * bend, 1.0)
    place = np.where((-left < place) & (place < right), place, 0.0)
    return place, b + 0.5 * place * (c - a + place * bend)


class _Inequality:
    """Inequalities of a constraint within time steps dt (K,) [s] from t (K,), with controls us (K, nu)."""

    def __init__(self, c: Constraint, us: Array, t: Array, dt: Array) -> None:
        self.c, self.us, self.t, self.dt = c, us, t, dt
        lower, upper = c.bounds(len(t))
        self._low, self._high = np.minimum(lower, next_rows(lower)), np.maximum(upper, next_rows(upper))
        self._imposed = lower < upper
        bounds = [np.where(np.isfinite(b), np.abs(b), 0.0) for b in (self._low, self._high)]
        self.limits = np.maximum(*bounds)
        self.range = np.where(self._imposed, self._high - self._low, np.inf)

    def allowed(self, values: Array, ranges: Array) -> Array:
        """Return the tolerances (K, nr) on violations, of values (F, K, nr) and ranges (nr,) of the rows along the plan."""
        size = np.minimum(np.abs(values[0]), np.abs(values[-1]))
        least = np.clip(ranges / SMALL, LEAST, 1.0)
        allowed = np.maximum(TOLERANCE * np.maximum(least, size), OF_BOUND * self.limits)
        small = np.where(self.limits > ZERO, np.maximum(OF_RANGE * self.limits, ZERO), np.inf)
        return np.minimum(allowed, np.minimum(OF_RANGE * self.range, small))

    def highest(self, x: Array, outside: Array, known: Array | float) -> Array:
        """Return the largest distances from the bounds (F - 2, K, nr) near the inner ones of ``outside`` (F, K, nr).

        Where a peak between two of the equally distant states x (F, K, nx) is expected above ``known`` (K, nr), the constraint is
        evaluated there, at the state on the parabola through the three nearest states: it may jump, as where ``np.where`` chooses.
        """
        place, expected = _peaks(outside)
        inner = outside[1:-1]
        f, k, row = np.nonzero((place != 0.0) & (expected > np.maximum(inner, known)))
        if not len(f):
            return inner
        at, fractions = place[f, k, row], np.array([0.0, *FRACTIONS, 1.0])
        before, state, after = (x[f + i, k].T for i in range(3))
        state = state + 0.5 * at * (after - before + at * (before - 2.0 * state + after))
        found, _ = self.outside_at(k, fractions[f + 1] + at * fractions[1], state.T)
        highest = inner.copy()
        highest[f, k, row] = np.maximum(inner[f, k, row], found[np.arange(len(f)), row])
        return highest

    def outside(self, x: Array, fractions: Array) -> tuple[Array, Array]:
        """Return :meth:`outside_at` (F, K, nr) of states x (F, K, nx) after fractions (F,) of all steps."""
        F, K, nx = x.shape
        outside, values = self.outside_at(np.tile(np.arange(K), F), np.repeat(fractions, K), x.reshape(-1, nx))
        return outside.reshape(F, K, -1), values.reshape(F, K, -1)

    def outside_at(self, k: Array, fractions: Array, x: Array) -> tuple[Array, Array]:
        """Return how far states x (M, nx) after fractions (M,) of steps k (M,) lie outside the bounds (M, nr), and the values.

        Negative inside the bounds. Parameters are interpolated between the knots of a step; the looser bound of both knots counts.
        Zero for equations, and for values that are not finite.
        """
        c, share = self.c, fractions[:, None]
        p = {key: v[k] + share * (next_rows(v) - v)[k] if v.ndim == 2 else v for key, v in c.parameters.items()}
        with np.errstate(all="ignore"):
            batch = residual_batch(c.residual, x, self.us[k], self.t[k] + fractions * self.dt[k], p)
            g = np.asarray(c.residual(*batch)).T
            outside = np.maximum(self._low[k] - g, g - self._high[k])
        return np.where(np.isfinite(outside) & self._imposed[k], outside, 0.0), np.where(np.isfinite(g), g, 0.0)


WIDEST = 0.49
"""Largest margin, relative to the range between two bounds."""


def leaves_room(ocp: OCP, found: BetweenKnots, fraction: float) -> bool:
    """True if margins of ``fraction`` times each rise are at most WIDEST of the range between two bounds."""
    for phase, risen in zip(ocp.phases, found.rises, strict=True):
        for c, rise in zip(phase.constraints, risen, strict=True):
            lower, upper = c.bounds(phase.knots)
            if (fraction * rise > WIDEST * (upper - lower)).any():
                return False
    return True


def tightened(ocp: OCP, found: BetweenKnots, fraction: float, *, everywhere: bool = False) -> OCP:
    """Return the problem with tighter inequalities at the knots next to violations, by ``fraction`` times their rise.

    Both bounds move inward, at the knot of the phase before the violation, and for constraints on the state alone also at the one
    after it, the larger of two rises counting. everywhere: at all knots, by the largest rise of the row. Constraints on the state
    alone at the first knot of the problem, where x0 is given, terminal constraints, and equations are unchanged; two-sided bounds
    keep an interior.
    """
    phases = []
    for phase, knots, risen in zip(ocp.phases, ocp.phase_slices, found.rises, strict=True):
        constraints = []
        for c, rise in zip(phase.constraints, risen, strict=True):
            if rise.any():
                margin = fraction * rise
                if everywhere:
                    margin = np.tile(margin.max(axis=0), (phase.knots, 1))
                elif not c.residual.nu:
                    margin = np.maximum(margin, np.vstack([np.zeros_like(margin[:1]), margin[:-1]]))
                if knots.start == 0 and not c.residual.nu:
                    margin[0] = 0.0
                lower, upper = c.bounds(phase.knots)
                margin = np.minimum(margin, WIDEST * (upper - lower))
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
