"""Holonomic constraints of the dynamics: unmet at x0, opened by a motion, and redundant.

The dynamics keep the accelerations of constraints at zero. An error of x0 in positions or velocities remains, or grows, and time
steps add drift; gains (kp, kd) reduce both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dynamics_backends.protocol import Array, unwrapped
from dynamics_backends.systems.constraints.consistency import known_errors, redundant_constraints, rows_at
from dynamics_backends.systems.constraints.constraint_set import ConstraintSet
from trajopt.problem.ocp import OCP, Phase

UNMET, MOVING = 1e-4, 1e-3
"""Position errors [m or rad], and velocities of constraint rows [m/s or rad/s], of x0 above which a warning reports them."""
OPEN, TORN = 1e-3, 1e-2
"""Position errors [m or rad] of a motion above which a finding reports it, and above which the motion does not hold."""
LITTLE_DAMPING = 1e-6
"""Damping ratio of constraints up to which rows that are nearly redundant cause huge forces."""


def constraints_of(phase: Phase) -> ConstraintSet | None:
    """Return the holonomic constraints of the dynamics of a phase; None without any."""
    sampling = phase.dynamics.sampling
    found = getattr(None if sampling is None else unwrapped(sampling.backend.map), "constraints", None)
    return found if isinstance(found, ConstraintSet) else None


def unmet_at_start(ocp: OCP) -> Iterator[str]:
    """Yield warnings about constraints of the first phase that x0 does not meet: position errors, and velocities.

    Positions are those of loops, relations and contacts with a reference.
    """
    phase = ocp.phases[0]
    constraints = constraints_of(phase)
    if constraints is None:
        return
    p, remedy = _first_rows(phase), "pass to.closed_state(system.constraints, x0)"
    x0 = ocp.x0[: constraints.model.nq + constraints.model.nv]
    for name, (error,) in known_errors(constraints, x0[None], p).items():
        if error > UNMET:
            yield f"x0 does not meet constraint {name!r} of the dynamics: its error is {error:.3g} m or rad; {remedy}"
    v = x0[constraints.model.nq :]
    speeds = np.abs(rows_at(constraints, x0, p)[0] @ v) if v.any() else np.zeros(1)
    if speeds.max() > MOVING:
        row = int(np.argmax(speeds))
        name = [c.name for c in constraints.bound for _ in c.labels][row]
        yield f"x0 moves against constraint {name!r} of the dynamics, with {speeds[row]:.3g} m/s or rad/s; {remedy}"


def open_constraints(ocp: OCP, xs: Array, least: float = OPEN) -> Iterator[str]:
    """Yield sentences about loops, relations and contacts with a reference whose error exceeds ``least`` [m or rad] in states
    xs (N + 1, nx).
    """
    times, worst = ocp.times_of(xs), dict[str, tuple[float, int]]()
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        constraints = constraints_of(phase)
        if constraints is None:
            continue
        nx = constraints.model.nq + constraints.model.nv
        for name, errors in known_errors(
            constraints, xs[knots.start : knots.stop + 1, :nx], _first_rows(phase)
        ).items():
            k = int(np.argmax(errors))
            worst[name] = max(worst.get(name, (0.0, 0)), (float(errors[k]), knots.start + k))
    for name, (error, k) in worst.items():
        if error > least:
            yield (
                f"constraint {name!r} of the dynamics is not met: its error is {error:.3g} m or rad at t = {times[k]:.3g} s, "
                f"knot {k}; start from to.closed_state, and use gains (kp, kd) or shorter time steps"
            )


def redundancy_notes(ocp: OCP) -> Iterator[str]:
    """Yield a sentence for the first constrained dynamics with little damping and redundant rows at x0, if any.

    Redundant rows that agree do no harm, but in states nearby they nearly contradict each other, which causes huge forces.
    """
    for phase in ocp.phases:
        constraints = constraints_of(phase)
        if constraints is None or constraints.damping_ratio > LITTLE_DAMPING:
            continue
        x0 = ocp.x0[: constraints.model.nq + constraints.model.nv]
        if found := redundant_constraints(constraints, x0, _first_rows(phase)):
            rows = ", ".join(f"{d.constraint}.{d.row}" for d in found)
            yield (
                f"constraint rows are redundant at x0 ({rows}), and nearly so around it, which causes huge forces: remove them, or "
                "let them yield by damping_ratio = 1e-3 of to.Holonomic"
            )
            return


def _first_rows(phase: Phase) -> Mapping[str, Array]:
    """Return the parameters of a phase at its first knot."""
    return {key: value if value.ndim == 1 else value[0] for key, value in phase.parameters.items()}
