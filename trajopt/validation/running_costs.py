"""Running costs along a motion: their integral, compared with the rectangle rule by which solvers add them, and kinks.

The rule takes the value at the beginning of each time step, when the control of the step has not changed the state yet.  A solver
exploits this if a cost depends on both, as the power of a motor does: the optimum may then be far from that of the integral.

Simpson's rule integrates: the state in the middle of the step follows from the dynamics with the control held.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array, MeetsInSteps
from trajopt.problem.expansion import residual_batch
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import CostTerm, parameters_at, rows_at
from trajopt.stage.evaluation import StageEvaluator
from trajopt.step.sensitivities import SampledSystem


def has_quadrature_error(ocp: OCP) -> bool:
    """True if any running term of a problem reads both the state and controls, and time steps can be evaluated in part."""
    return any(_counts(phase, term) for phase in ocp.phases for term in phase.terms)


def quadrature_error(ocp: OCP, xs: Array, us: Array, evaluator: StageEvaluator) -> float:
    """Return the integral of running costs minus their rectangle rule, along xs (N + 1, nx) under held controls us (N, nu).

    Of each term that reads both the state and controls, the value with zero controls is subtracted first: the error that remains is
    the one that a solver can exploit. Parameters and weights by knot are held. evaluator: evaluates parts of the time steps.
    """
    middle, error = evaluator.within_steps(xs, us, 0.5), 0.0
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        states, u = (xs[knots], middle[knots], xs[knots.start + 1 : knots.stop + 1]), us[knots]
        for term in (term for term in phase.terms if _counts(phase, term)):
            first, half, last = (
                _values(term, x, u, t) - _values(term, x, np.zeros_like(u), t)
                for x, t in zip(states, (ocp.t[knots] + share * phase.dt for share in (0.0, 0.5, 1.0)), strict=True)
            )
            with np.errstate(all="ignore"):  # infinite costs of zero controls
                change = float(phase.dt @ (4.0 * half + last - 5.0 * first)) / 6.0
            error += change if np.isfinite(change) else 0.0
    return error


WINDOW, BEND, SUDDEN = 1e-2, 0.5, 0.5
"""Change of a number relative to its largest magnitude along a phase; change of the slope of the cost across that window, relative
to the largest slope, and fraction of that change at one point, above which the cost has a kink there."""
POINTS = np.linspace(-1.0, 1.0, 9)
"""Points in the window at which the cost is evaluated."""


def kinked_cost(ocp: OCP, xs: Array, us: Array) -> str:
    """Return advice on the first running cost with a kink, such as that of abs, in a control or a state of a motion; "" for none.

    Costs are evaluated at POINTS around the controls us (N, nu), and around the states xs (N + 1, nx) of a vector space, except
    those of a robot.
    """
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        x, u, t = xs[knots], us[knots], ocp.t[knots]
        width = WINDOW * np.abs(u).max(axis=0, initial=0.0)
        widths = WINDOW * np.abs(x).max(axis=0, initial=0.0) * (ocp.manifold.is_flat and ocp.model is None)
        for term in phase.terms:
            for i in np.flatnonzero(width[: term.residual.nu]):
                move = width[i] * (np.arange(ocp.nu) == i)
                if (k := _kink(_along(term, x, u, t, u_move=move))) is not None:
                    where = _place(ocp.control_names[i], u[k, i], width[i])
                    remedy = "for abs, split the control into a - b with a, b >= 0, which the cost reads"
                    return _advice(term.name, where, knots.start + k, remedy)
            for i in np.flatnonzero(widths[: term.residual.manifold.nx]):
                move = widths[i] * (np.arange(xs.shape[1]) == i)
                if (k := _kink(_along(term, x, u, t, x_move=move))) is not None:
                    where = _place(ocp.state_names[i], x[k, i], widths[i])
                    remedy = "for max(f, g), take a new control s as the cost, and require s >= f and s >= g"
                    return _advice(term.name, where, knots.start + k, remedy)
    return ""


def _along(
    term: CostTerm, x: Array, u: Array, t: Array, x_move: Array | float = 0.0, u_move: Array | float = 0.0
) -> Array:
    """Return the costs (P, K) of a running term at POINTS along a direction from states x (K, nx) and controls u (K, nu)."""
    P, knots = POINTS[:, None, None], np.tile(np.arange(len(t)), len(POINTS))
    states, controls = ((z + P * move).reshape(len(knots), -1) for z, move in ((x, x_move), (u, u_move)))
    weight, parameters = rows_at(term.weight, knots), parameters_at(term.parameters, knots)
    repeated = replace(term, weight=weight, parameters=parameters)
    return _values(repeated, states, controls, t[knots]).reshape(len(POINTS), -1)


def _kink(values: Array) -> int | None:
    """Return the index of the largest kink of a cost from its values (P, K) at POINTS, or None without a kink."""
    middle, bends = len(values) // 2, np.abs(np.diff(values, n=2, axis=0))
    before, after = values[middle] - values[0], values[-1] - values[middle]
    slope = np.maximum(np.abs(before), np.abs(after)).max(initial=0.0)
    change = np.abs(after - before) * (bends.max(axis=0) > SUDDEN * bends.sum(axis=0))
    k = int(np.argmax(change))
    return k if 0.0 < slope < np.inf and change[k] > BEND * slope else None


def _place(name: str, value: float, width: float) -> str:
    """Describe a value of a control or state, rounded to zero within a width."""
    return f"{name} = {value if abs(value) > width else 0.0:.3g}"


def _advice(name: str, where: str, knot: int, remedy: str) -> str:
    """Return the advice on a kink of a cost at a knot."""
    return f"The cost {name!r} has a kink, like abs and max, near {where} at knot {knot}: {remedy}, or smooth the cost."


def _counts(phase: Phase, term: CostTerm) -> bool:
    """True if a term reads both the state and controls, and the time steps of its phase can be evaluated in part."""
    d, r = phase.dynamics, term.residual
    both = r.nu > 0 and r.manifold.ndx > 0
    return both and isinstance(d, SampledSystem) and not isinstance(d.system, MeetsInSteps)


def _values(term: CostTerm, x: Array, u: Array, t: Array) -> Array:
    """Return the costs (K,) of a running term at states x (K, nx), controls u (K, nu) and times t (K,)."""
    with np.errstate(all="ignore"):
        r = np.asarray(term.residual(*residual_batch(term.residual, x, u, t, term.parameters))).T
        return np.asarray((term.weight * (0.5 * r * r if term.squared else r)).sum(axis=1))
