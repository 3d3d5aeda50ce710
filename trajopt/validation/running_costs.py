"""Integral of the running costs along a motion, compared with the rectangle rule by which solvers add them.

The rule takes the value at the beginning of each time step, when the control of the step has not changed the state yet.  A solver
exploits this if a cost depends on both, as the power of a motor does: the optimum may then be far from that of the integral.

Simpson's rule integrates: the state in the middle of the step follows from the dynamics with the control held.
"""

from __future__ import annotations

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
