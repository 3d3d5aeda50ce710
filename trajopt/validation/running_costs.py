"""Running costs along a motion: their integral, compared with the rectangle rule by which solvers add them, and kinks.

The rule takes the value at the beginning of each time step, when the control of the step has not changed the state yet.  A solver
exploits this if a cost depends on both, as the power of a motor does: the optimum may then be far from that of the integral.

Simpson's rule integrates: the state in the middle of the step follows from the dynamics with the control held.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from dynamics_backends.protocol import Array, MeetsInSteps
from trajopt.problem.expansion import residual_batch
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import CostTerm
from trajopt.stage.evaluation import StageEvaluator
from trajopt.step.sensitivities import SampledSystem


def has_quadrature_error(ocp: OCP) -> bool:
    """True if any running term of a problem reads both the state and controls, and time steps can be evaluated in part."""
    return any(_counts(phase, term) for phase in ocp.phases for term in phase.terms)


def quadrature_error(ocp: OCP, xs: Array, us: Array, evaluator: StageEvaluator) -> float:
    """Return the integral of the running costs minus their rectangle rule, along xs (N + 1, nx) under held controls us (N, nu).

    Only terms that read both the state and controls count. Parameters by knot are interpolated, weights by knot are held.
    evaluator: evaluates parts of the time steps of the problem.
    """
    middle, error = evaluator.within_steps(xs, us, 0.5), 0.0
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        states = xs[knots], middle[knots], xs[knots.start + 1 : knots.stop + 1]
        for term in (term for term in phase.terms if _counts(phase, term)):
            first, half, last = (
                _values(term, x, us[knots], ocp.t[knots] + share * phase.dt, share)
                for x, share in zip(states, (0.0, 0.5, 1.0), strict=True)
            )
            error += float(phase.dt @ (4.0 * half + last - 5.0 * first)) / 6.0
    return error


WINDOW, BEND = 1e-2, 0.5
"""Change of a number relative to its largest magnitude along the motion, and change of the slope of the cost from one side of the
number to the other, relative to the largest slope, above which the cost has a kink there."""


def kinked_cost(ocp: OCP, xs: Array, us: Array) -> str:
    """Return advice on the first running cost with a kink, such as that of abs, in a control or a state of a motion; "" for none.

    Slopes are differences over WINDOW on both sides of the controls us (N, nu), and of the states xs (N + 1, nx) of a vector space,
    except those of a robot.
    """
    width = WINDOW * np.abs(us).max(axis=0, initial=0.0)
    widths = WINDOW * np.abs(xs).max(axis=0, initial=0.0) * (ocp.manifold.is_flat and ocp.model is None)
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        x, u, t = xs[knots], us[knots], ocp.t[knots]
        for term in phase.terms:
            cost = partial(_values, term, t=t, share=0.0)
            here = cost(x, u)
            for i in np.flatnonzero(width[: term.residual.nu]):
                move = width[i] * (np.arange(ocp.nu) == i)
                if (k := _kink(cost(x, u - move), here, cost(x, u + move))) is not None:
                    where = _place(ocp.control_names[i], u[k, i], width[i])
                    remedy = "split the control into a - b with a, b >= 0, which the cost reads"
                    return _advice(term.name, where, knots.start + k, remedy)
            for i in np.flatnonzero(widths[: term.residual.manifold.nx]):
                move = widths[i] * (np.arange(xs.shape[1]) == i)
                if (k := _kink(cost(x - move, u), here, cost(x + move, u))) is not None:
                    where = _place(ocp.state_names[i], x[k, i], widths[i])
                    remedy = "let the cost be a control s, with constraints s >= f for each branch f"
                    return _advice(term.name, where, knots.start + k, remedy)
    return ""


def _kink(left: Array, value: Array, right: Array) -> int | None:
    """Return the index of the largest kink of a cost (K,), from its values on both sides, or None without a kink."""
    before, after = value - left, right - value
    slope = np.maximum(np.abs(before), np.abs(after)).max(initial=0.0)
    k = int(np.argmax(np.abs(after - before)))
    return k if 0.0 < slope < np.inf and abs(after[k] - before[k]) > BEND * slope else None


def _place(name: str, value: float, width: float) -> str:
    """Describe a value of a control or state, rounded to zero within a width."""
    return f"{name} = {value if abs(value) > width else 0.0:.3g}"


def _advice(name: str, where: str, knot: int, remedy: str) -> str:
    """Return the advice on a kink of a cost at a knot."""
    return (
        f"The cost {name!r} has a kink near {where}, as abs and max have, at knot {knot}: {remedy}, or smooth the cost."
    )


def _counts(phase: Phase, term: CostTerm) -> bool:
    """True if a term reads both the state and controls, and the time steps of its phase can be evaluated in part."""
    d, r = phase.dynamics, term.residual
    divisible = isinstance(d, SampledSystem) and not isinstance(d.system, MeetsInSteps)
    return divisible and r.nu > 0 and r.manifold.ndx > 0


def _values(term: CostTerm, x: Array, u: Array, t: Array, share: float) -> Array:
    """Return the costs (K,) of a running term at states x (K, nx) and times t (K,), the fraction ``share`` of each time step."""
    p = {k: v + share * (np.vstack([v[1:], v[-1:]]) - v) if v.ndim == 2 else v for k, v in term.parameters.items()}
    with np.errstate(all="ignore"):
        r = np.asarray(term.residual(*residual_batch(term.residual, x, u, t, p))).T
        return np.asarray((term.weight * (0.5 * r * r if term.squared else r)).sum(axis=1))
