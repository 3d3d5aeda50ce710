"""Time steps by the package's library, for rollouts of problems whose dynamics NumPy evaluates a hundred times slower."""

from __future__ import annotations

from dataclasses import replace

from dynamics_backends.protocol import is_generic, unwrapped
from dynamics_backends.registry import make_backend
from trajopt.problem.ocp import OCP, DiscreteMap
from trajopt.step.sensitivities import SampledSystem


def on_library(ocp: OCP) -> OCP:
    """Problem for rollouts: the dynamics, on the engine "compiled", without costs and constraints.

    Only values are traced: the derivatives are finite differences. Dynamics of a user's own backend or step stay as they are.

    >>> import numpy as np, trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    >>> step = to.SampledSystem(to.make_backend(cart, "forward_ad", engine="numpy"), "rk4", substeps=64)
    >>> ocp = on_library(to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1))
    >>> bool(np.allclose(ocp.phases[0].dynamics.step([[0.0, 0.0]], [[2.0]], 0.0, 0.1), [[0.01, 0.2]]))
    True
    """
    phases = [replace(p, dynamics=_on_library(p.dynamics), terms=(), constraints=()) for p in ocp.phases]
    return replace(ocp, phases=tuple(phases), terminal=(), terminal_constraints=())


def _on_library(dynamics: DiscreteMap) -> DiscreteMap:
    if type(dynamics) is not SampledSystem or not is_generic(dynamics.backend.map):
        return dynamics
    backend = make_backend(unwrapped(dynamics.backend.map), "central_difference", engine="compiled")
    return SampledSystem(backend, dynamics.scheme, dynamics.substeps)
