"""Constrained problems for DMS and the interior point: a mass from rest to rest, a cart-pole on a short track."""

import numpy as np
import scipy.sparse as sp
import textbook_systems as textbook

from dynamics_backends.registry import make_backend
from trajopt import OCP, SampledSystem, bounded, control_cost, interpolated_guess, state_bounds, state_cost
from trajopt.solvers.direct.transcription import Transcription


class SparseProgram(Transcription):
    """Multiple-shooting program with derivatives as csc matrices."""

    def differentiate(self, w):
        gradient, J = self.first_entries(w)
        return gradient, _csc(J)

    def hessian(self, w, sigma, multipliers):
        return _csc(self.patterns()[1]._replace(data=self.second_entries(w, sigma, multipliers)))


def _csc(entries):
    return sp.csc_matrix((entries.data, (entries.rows, entries.columns)), entries.shape)


def sampled(system, substeps=1):
    return SampledSystem(make_backend(system, "forward_ad"), "rk4", substeps)


def mass(distance=1.0, limit=None, horizon=10, **fields):
    """Minimum-effort motion of a mass from rest to rest in one second."""
    dynamics = sampled(textbook.double_integrator())
    goal = bounded(state_cost(dynamics.manifold, [distance, 0.0]), name="goal")
    bounds = {} if limit is None else {"u_lower": [-limit], "u_upper": [limit]}
    fields = {"terminal_constraints": [goal]} | bounds | fields
    return OCP.single_phase(dynamics, np.zeros(2), horizon, 1.0 / horizon, [control_cost(1)], **fields)


def swing_up(track=0.5):
    """Swing-up of a cart-pole with a bounded track; its optima exceed the bound slightly between the knots."""
    dynamics = sampled(textbook.cart_pole(), 2)
    goal = np.array([0.0, np.pi, 0.0, 0.0])
    free = [np.inf] * 3
    fields = {
        "constraints": [state_bounds(dynamics.manifold, np.r_[-track, np.negative(free)], np.r_[track, free], "track")],
        "terminal_constraints": [bounded(state_cost(dynamics.manifold, goal), name="goal")],
    }
    ocp = OCP.single_phase(
        dynamics, np.zeros(4), 25, 0.06, [control_cost(1, 0.0, 0.1)], u_lower=[-20.0], u_upper=[20.0], **fields
    )
    return ocp, interpolated_guess(ocp, goal)
