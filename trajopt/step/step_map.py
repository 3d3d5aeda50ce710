"""The time step of a sampled system as a map, generic in the scalar, and its second derivatives from that.

With charts, delta and delta_next are the coordinates of states about the parameters ``chart`` and ``next chart``:

    step(delta, u) = F(chart (+) delta, u) (-) next chart

Its Hessian is exact on Lie groups too, away from delta = 0 as well: the charts are part of the map.  It costs a complex step
over dual numbers; on vector spaces, backends of second order are much faster.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array, Hessians, Parameters
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.expansion import contracted_hessian, residual_batch
from trajopt.step.integrators import step_rows
from trajopt.step.sensitivities import SampledSystem

DT, CHART, NEXT_CHART = "step length", "chart", "next chart"
"""Parameters: dt (1,) [s]; the states (nx,) about which delta and delta_next are taken."""


class StepMap:
    """x_next as a map of x and u; of charts, where the system's manifold is no vector space."""

    def __init__(self, sampled: SampledSystem) -> None:
        self.sampled = sampled
        self.charted = not sampled.manifold.is_vector_space
        n = sampled.manifold.ndx
        self.manifold = Manifold.vector(n, sampled.manifold.tangent_names)
        self.nu, self.n_out = sampled.nu, n
        self.output_names, self.control_names = sampled.manifold.tangent_names, sampled.control_names

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (ndx, N)."""
        s, manifold = self.sampled, self.sampled.manifold
        own = {key: value for key, value in p.items() if key not in (DT, CHART, NEXT_CHART)}
        start = manifold.integrate(p[CHART], x) if self.charted else x
        end = step_rows(s.system, s.scheme, s.substeps, start, u, t, p[DT][0], own)
        return manifold.difference(p[NEXT_CHART], end) if self.charted else end


def contracted_step(step: StepMap, x: Array, u: Array, t: Array, dt: Array, p: Parameters, lam: Array) -> Hessians:
    """Second derivatives of lam' x_next in (x, u): xx (N, n, n), ux (N, nu, n), uu (N, nu, nu), from lam (N, n)."""
    values = {**p, DT: np.broadcast_to(np.asarray(dt, float), (len(x),))[:, None]}
    H = contracted_hessian(step, residual_batch(step, x, u, t, values), lam)
    n = step.manifold.ndx
    return Hessians(H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])
