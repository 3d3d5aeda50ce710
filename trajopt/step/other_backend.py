"""Problems with other backends of their dynamics: a chosen one, or the package's library for rollouts.

Time steps by the library serve rollouts of problems whose dynamics NumPy evaluates a hundred times slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dynamics_backends.protocol import DynamicsBackend, is_generic, unwrapped
from dynamics_backends.registry import make_backend, source_of
from trajopt.problem.ocp import OCP, DiscreteMap, Phase
from trajopt.step.sensitivities import SampledSystem

BackendChoice = str | Mapping[str, Any]
"""Name of a backend, or a mapping with "name", "engine" and options of the backend."""


def with_backend(ocp: OCP, backend: BackendChoice) -> OCP:
    """Problem with the backend of every phase replaced, on the same engine unless the choice names one.

    A user-defined backend has no such engine; its system gets the default one. Raises UnknownName for an unknown backend,
    ValueError for a choice without a name, for time steps that are neither a sampled system nor an impact, and for dynamics that
    only their own backend can evaluate, MissingCapability if the dynamics lack a method that the backend needs.
    """
    choice = {"name": backend} if isinstance(backend, str) else dict(backend)
    if "name" not in choice:
        raise ValueError(
            f"backend = {backend!r} has no name; expected a name or a mapping such as {{'name': 'analytic'}}"
        )
    return replace(ocp, phases=tuple(_phase_with_backend(phase, i, choice) for i, phase in enumerate(ocp.phases)))


def _phase_with_backend(phase: Phase, i: int, choice: Mapping[str, Any]) -> Phase:
    """Phase i with the chosen backend. Raises ValueError for time steps that are not a SampledSystem or an impact."""
    dynamics: Any = phase.dynamics
    if dynamics.sampling is None:
        raise ValueError(
            f"the time steps of phase {i} ({type(dynamics).__name__}) are not a SampledSystem, so their backend cannot be replaced"
        )
    return replace(phase, dynamics=dynamics.under(_other_backend(dynamics.sampling.backend, i, choice)))


def _other_backend(backend: DynamicsBackend, i: int, choice: Mapping[str, Any]) -> DynamicsBackend:
    """Backend ``choice`` (name, engine, options) for the system of another backend, of phase i.

    Returns the given backend if name and engine are its own and the choice has no options. Raises ValueError if only the given
    backend can evaluate the system.
    """
    name, engine = choice["name"], choice.get("engine", backend.engine)
    options = {key: value for key, value in choice.items() if key not in ("name", "engine")}
    if name == backend.name and not options and engine == backend.engine:
        return backend
    system = source_of(backend)
    if system is None:
        raise ValueError(
            f"only the backend {backend.name} can evaluate the dynamics of phase {i}; register it, and make it from a system "
            "(trajopt.register_backend)"
        )
    return make_backend(
        system, name, engine=engine if is_generic(backend.map) or "engine" in choice else None, **options
    )


def on_library(ocp: OCP) -> OCP:
    """Problem for rollouts: the dynamics, on the engine "compiled", without costs and constraints.

    Only values are traced: the derivatives are finite differences. Impacts, and dynamics of a user's own backend or step, stay as
    they are.

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
    """Dynamics with values by the C library and derivatives by finite differences.

    Unchanged for impacts, user-defined steps and user-defined backends.
    """
    if type(dynamics) is not SampledSystem or not is_generic(dynamics.backend.map):
        return dynamics
    return dynamics.under(make_backend(unwrapped(dynamics.backend.map), "central_difference", engine="compiled"))
