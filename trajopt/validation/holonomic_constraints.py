"""Holonomic constraints of the dynamics: unmet at x0, opened by a motion, and redundant.

The dynamics keep the accelerations of constraints at zero. An error of x0 in positions or velocities remains, or grows, and time
steps add drift; gains (kp, kd) reduce both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array, HasConstraints, unwrapped
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP, Phase

UNMET, MOVING = 1e-4, 1e-3
"""Position errors [m or rad], and velocities of constraint rows [m/s or rad/s], of x0 above which a warning reports them."""
NOTABLE_ERROR, LARGEST_ERROR = 1e-3, 1e-2
"""Position errors [m or rad] of a motion above which a finding reports it, and above which the motion does not hold."""


def constrained_system(phase: Phase) -> HasConstraints | None:
    """Return the system of a phase if its dynamics satisfy constraints, else None."""
    sampling = phase.dynamics.sampling
    system = None if sampling is None else unwrapped(sampling.backend.map)
    return system if isinstance(system, HasConstraints) else None


def unmet_at_start(ocp: OCP) -> Iterator[str]:
    """Yield warnings about constraints of the first phase that x0 does not meet: position errors, and velocities.

    Positions are those of loops, relations and contacts with a reference.
    """
    phase = ocp.phases[0]
    system = constrained_system(phase)
    if system is None:
        return
    p, x0, remedy = _first_rows(phase), _states(system, ocp.x0), "pass to.closed_state(system.constraints, x0)"
    for name, (error,) in system.position_errors(x0[None], p).items():
        if error > UNMET:
            yield f"x0 does not meet constraint {name!r} of the dynamics: its error is {error:.3g} m or rad; {remedy}"
    if x0[ocp.model.nq if ocp.model is not None else 0 :].any():
        name, speed = max(system.speeds(x0, p).items(), key=lambda item: item[1])
        if speed > MOVING:
            yield f"x0 moves against constraint {name!r} of the dynamics, with {speed:.3g} m/s or rad/s; {remedy}"


def open_constraints(ocp: OCP, xs: Array, least: float = NOTABLE_ERROR) -> Iterator[str]:
    """Yield sentences about loops, relations and contacts with a reference whose error exceeds ``least`` [m or rad] in states
    xs (N + 1, nx).

    Up to LARGEST_ERROR, the error that a contact has when it begins in a later phase, by its landing, does not count.
    """
    times, worst = ocp.times_of(xs), dict[str, tuple[float, float, int]]()
    begun: dict[str, float] = {}
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        system = constrained_system(phase)
        if system is None:
            begun = begun if isinstance(phase.dynamics, ImpactStage) else {}
            continue
        own = _states(system, xs[knots.start : knots.stop + 1])
        found = system.position_errors(own, _first_rows(phase))
        begun = {name: begun.get(name, float(e[0]) if knots.start else 0.0) for name, e in found.items()}
        for name, errors in found.items():
            counted = np.where(errors > LARGEST_ERROR, errors, errors - begun[name])
            k = int(np.argmax(counted))
            worst[name] = max(worst.get(name, (0.0, 0.0, 0)), (float(counted[k]), float(errors[k]), knots.start + k))
    for name, (counts, error, k) in worst.items():
        if counts > least:
            yield (
                f"constraint {name!r} of the dynamics is not met: its error is {error:.3g} m or rad at t = {times[k]:.3g} s, "
                f"knot {k}; start from to.closed_state, and use gains (kp, kd) or shorter time steps"
            )


def redundancy_notes(ocp: OCP) -> Iterator[str]:
    """Yield a sentence for the first constrained dynamics with little damping and redundant rows at x0, if any.

    Redundant rows that agree do no harm, but in states nearby they nearly contradict each other, which causes huge forces.
    """
    for phase in ocp.phases:
        system = constrained_system(phase)
        if system is not None and (rows := system.redundant_rows(_states(system, ocp.x0), _first_rows(phase))):
            yield (
                f"constraint rows are redundant at x0 ({', '.join(rows)}), and nearly so around it, which causes huge forces: "
                "remove them, or let them yield by damping_ratio = 1e-3 of to.Holonomic"
            )
            return


def _states(system: Any, x: Array) -> Array:
    """Return the entries of states (..., nx) that belong to a system, without durations."""
    return x[..., : system.manifold.nx]


def _first_rows(phase: Phase) -> Mapping[str, Array]:
    """Return the parameters of a phase at its first knot."""
    return {key: value if value.ndim == 1 else value[0] for key, value in phase.parameters.items()}
