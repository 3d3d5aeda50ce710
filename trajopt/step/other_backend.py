"""Replacement of the dynamics backend of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dynamics_backends.protocol import DynamicsBackend, is_generic
from dynamics_backends.registry import make_backend, source_of
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP, Phase
from trajopt.step.sensitivities import SampledSystem

BackendChoice = str | Mapping[str, Any]
"""Name of a backend, or a mapping with "name", "engine" and options of the backend."""


def with_backend(ocp: OCP, backend: BackendChoice) -> OCP:
    """Problem with the backend of every phase replaced, on the same engine unless the choice names one.

    Raises UnknownName for an unknown backend, ValueError for time steps that are not a sampled system and for dynamics that only
    their own backend can evaluate, MissingCapability if the dynamics lack a method that the backend needs.
    """
    choice = {"name": backend} if isinstance(backend, str) else dict(backend)
    if "name" not in choice:
        raise ValueError(
            f"backend = {backend!r} has no name; expected a name or a mapping such as {{'name': 'analytic'}}"
        )
    return replace(ocp, phases=tuple(_phase_with_backend(phase, i, choice) for i, phase in enumerate(ocp.phases)))


def _phase_with_backend(phase: Phase, i: int, choice: Mapping[str, Any]) -> Phase:
    dynamics: Any = phase.dynamics
    if dynamics.sampling is None:
        raise ValueError(
            f"the time steps of phase {i} ({type(dynamics).__name__}) are not a SampledSystem, so their backend cannot be replaced"
        )
    backend = _other_backend(dynamics.sampling.backend, i, choice)
    if isinstance(dynamics, ImpactStage):
        return replace(phase, dynamics=dynamics.under(backend))
    return replace(phase, dynamics=SampledSystem(backend, dynamics.scheme, dynamics.substeps))


def _other_backend(backend: DynamicsBackend, i: int, choice: Mapping[str, Any]) -> DynamicsBackend:
    """Backend ``choice`` for the system of another backend."""
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
