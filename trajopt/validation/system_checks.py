"""Warnings that only the system of a problem can raise about its start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dynamics_backends.protocol import HasWarnings, unwrapped


def system_warnings(ocp: Any) -> Iterator[str]:
    """Sentences about the start of a problem whose first system has warnings of its own."""
    phase = ocp.phases[0]
    sampling = phase.dynamics.sampling
    system: Any = None if sampling is None else unwrapped(sampling.backend.map)
    if isinstance(system, HasWarnings):
        yield from system.state_warnings(ocp.x0, {k: v if v.ndim == 1 else v[0] for k, v in phase.parameters.items()})
