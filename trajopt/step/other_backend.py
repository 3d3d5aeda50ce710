"""A problem with the same dynamics by another backend."""

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
"""A name, or a mapping with "name", "engine" and options of the backend."""


def with_backend(ocp: OCP, backend: BackendChoice) -> OCP:
    """The problem with the backend of every phase replaced, on the engine that it has unless the choice names one.

    Raises UnknownName for a backend, ValueError for time steps that are no sampled system and for dynamics that their backend alone
    can evaluate, MissingCapability where the dynamics lack what the backend needs.
    """
    choice = {"name": backend} if isinstance(backend, str) else dict(backend)
    if "name" not in choice:
        raise ValueError(
            f"backend = {backend!r} has no name; expected a name or a mapping such as {{'name': 'analytic'}}"
        )
    return replace(ocp, phases=tuple(_phase(phase, i, choice) for i, phase in enumerate(ocp.phases)))


def _phase(phase: Phase, i: int, choice: Mapping[str, Any]) -> Phase:
    dynamics: Any = phase.dynamics
    if dynamics.sampling is None:
        raise ValueError(
            f"the time steps of phase {i} ({type(dynamics).__name__}) are no sampled system, so that no other backend can take them"
        )
    backend = _made(dynamics.sampling.backend, i, choice)
    if isinstance(dynamics, ImpactStage):
        return replace(phase, dynamics=dynamics.under(backend))
    return replace(phase, dynamics=SampledSystem(backend, dynamics.scheme, dynamics.substeps))


def _made(own: DynamicsBackend, i: int, choice: Mapping[str, Any]) -> DynamicsBackend:
    """Another backend of the system of a backend."""
    name, engine = choice["name"], choice.get("engine", own.engine)
    options = {key: value for key, value in choice.items() if key not in ("name", "engine")}
    if name == own.name and not options and engine == own.engine:
        return own
    system = source_of(own)
    if system is None:
        raise ValueError(
            f"the dynamics of phase {i} are known to their backend {own.name} alone; register it, and make it of a system "
            "(trajopt.register_backend)"
        )
    return make_backend(system, name, engine=engine if is_generic(own.map) or "engine" in choice else None, **options)
