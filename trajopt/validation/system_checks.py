"""Warnings of a system about the initial state of a problem."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dynamics_backends.protocol import HasWarnings, unwrapped


def system_warnings(ocp: Any) -> Iterator[str]:
    """Yield the warnings of a problem's first system about its initial state, if it issues any."""
    phase = ocp.phases[0]
    sampling = phase.dynamics.sampling
    system: Any = None if sampling is None else unwrapped(sampling.backend.map)
    if isinstance(system, HasWarnings):
        yield from system.state_warnings(ocp.x0, {k: v if v.ndim == 1 else v[0] for k, v in phase.parameters.items()})
