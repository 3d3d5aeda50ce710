"""Constrained problems for DMS and the interior point: a mass from rest to rest, a cart-pole on a short track."""

import itertools
from functools import cached_property

import numpy as np
import textbook_systems as textbook

from dynamics_backends.registry import make_backend
from trajopt import OCP, SampledSystem, bounded, control_cost, interpolated_guess, state_bounds, state_cost
from trajopt.solvers.direct.constraint_derivatives import jacobian_pattern
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.qp.blocks.sparse_assembly import Assembly


class SparseProgram(Transcription):
    """Multiple-shooting program with derivatives as csc matrices, assembled from the blocks of its parts."""

    @cached_property
    def _jacobian(self):
        places = []
        places.append((self._defect_rows, self.ix[1:], np.eye(self.n, dtype=bool)))
        for part in self.parts:
            if part.stepped:
                places.append((self._defect_rows[part.knots], part.ix, True))
                places.append((self._defect_rows[part.knots], part.iu, True))
            mask = jacobian_pattern(part.constraints, self.n, part.iu.shape[1])
            places.append((part.rows, part.ix, mask[:, : self.n]))
            places.append((part.rows, part.iu, mask[:, self.n :]))
        return Assembly((self.rows, self.size), *places)

    @cached_property
    def _hessian(self):
        places = []
        for part in self.parts:
            for rows, columns in itertools.product((part.ix, part.iu), repeat=2):
                places.append((rows, columns, True))
        return Assembly((self.size, self.size), *places)

    def differentiate(self, w):
        gradient, found = self._linearized(w)
        blocks = [np.broadcast_to(-np.eye(self.n), (self.N, self.n, self.n))]
        for part, d in zip(self.parts, found, strict=True):
            blocks += ([d.A, d.B] if part.stepped else []) + [d.gx, d.gu]
        return gradient, self._jacobian(blocks)

    def hessian(self, w, sigma, multipliers):
        found = self._part_hessians(self.parts, w, sigma, multipliers, self.kind)
        return self._hessian([block for xx, ux, uu in found for block in (xx, ux.transpose(0, 2, 1), ux, uu)])


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
        dynamics,
        np.zeros(4),
        25,
        0.06,
        [control_cost(1, reference=0.0, weight=0.1)],
        u_lower=[-20.0],
        u_upper=[20.0],
        **fields,
    )
    return ocp, interpolated_guess(ocp, goal)
