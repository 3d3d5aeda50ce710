"""Holonomic constraints of the dynamics: unmet at x0, opened by a motion, redundant, and repeated by terminal constraints.

The dynamics keep the accelerations of constraints at zero. An error of x0 in positions or velocities remains, or grows, and time
steps add drift; gains (kp, kd) reduce both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array, HasConstraints
from trajopt.problem.expansion import residual_batch, residual_jacobians
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import parameters_at

UNMET, MOVING = 1e-4, 1e-3
"""Position errors [m or rad], and velocities of constraint rows [m/s or rad/s], of x0 above which a warning reports them."""
SAME, BESIDE = 1e-8, 0.01
"""Relative remainder below which a row is a combination of others, and displacement at which Jacobians are compared."""
NOTABLE_ERROR, LARGEST_ERROR = 1e-3, 1e-2
"""Position errors [m or rad] of a motion above which a finding reports it, and above which the motion does not hold."""


def constrained_system(phase: Phase) -> HasConstraints | None:
    """Return the system of a phase if its dynamics satisfy constraints, else None."""
    return phase.system if hasattr(phase.system, "position_errors") else None


def unmet_at_start(ocp: OCP) -> Iterator[str]:
    """Yield warnings about constraints of the first phase that x0 does not meet: position errors, and velocities.

    Positions are those of loops, relations and contacts with a reference.
    """
    phase = ocp.phases[0]
    system = constrained_system(phase)
    if system is None:
        return
    p, x0 = parameters_at(phase.parameters, 0), _states(system, ocp.x0)
    remedy = "pass to.closed_state(system.constraints, x0)"
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
        found = system.position_errors(own, parameters_at(phase.parameters, 0))
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
        system, p = constrained_system(phase), parameters_at(phase.parameters, 0)
        if system is not None and (rows := system.redundant_rows(_states(system, ocp.x0), p)):
            yield (
                f"constraint rows are redundant at x0 ({', '.join(rows)}), and nearly so around it, which causes huge forces: "
                "remove them, or let them yield by damping_ratio = 1e-3 of to.Holonomic"
            )
            return


def repeated_at_end(ocp: OCP) -> Iterator[str]:
    """Yield a warning about terminal equalities that follow from each other and from the constraints of the last phase, if any.

    The drift of the integration makes such equalities contradict each other. They are compared at x0 without velocities.
    Constraints with a constant Jacobian, such as relations of joints, do not drift.
    """
    phase = ocp.phases[-1]
    system = constrained_system(phase)
    if system is None or ocp.model is None or not ocp.terminal_constraints:
        return
    n, x, p = ocp.model.nv, ocp.x0.copy(), parameters_at(phase.parameters, 0)
    x[ocp.model.nq : ocp.model.nq + n] = 0.0
    J = system.jacobian(_states(system, x), p)
    beside = ocp.manifold.integrate(x[:, None], np.full((ocp.manifold.ndx, 1), BESIDE))[:, 0]
    if np.abs(system.jacobian(_states(system, beside), p) - J).max(initial=0.0) <= SAME:
        return
    tangent = np.zeros((2 * len(J), ocp.manifold.ndx))
    tangent[: len(J), :n] = tangent[len(J) :, n : 2 * n] = J
    _, sizes, rows = np.linalg.svd(tangent, full_matrices=False)
    known, own = rows[sizes > SAME * sizes.max(initial=1.0)], np.zeros((0, ocp.manifold.ndx))
    found = list[str]()
    for c in ocp.terminal_constraints:
        at = residual_batch(c.residual, x[None], np.zeros((1, ocp.nu)), ocp.times[-1:], c.parameters)
        fx = np.zeros((c.residual.n_out, ocp.manifold.ndx))
        fx[:, : c.residual.manifold.ndx] = residual_jacobians(c.residual, at).fx[0]
        for i in np.flatnonzero(np.broadcast_to(c.lower == c.upper, len(fx))):
            row = fx[i] - fx[i] @ own.T @ own
            left = row - row @ known.T @ known
            size = SAME * np.linalg.norm(fx[i])
            if np.linalg.norm(left) > size:
                known = np.vstack([known, left / np.linalg.norm(left)])
            elif np.linalg.norm(row) > size:
                found.append(f"{c.residual.output_names[i]} of {c.name!r}")
            if np.linalg.norm(row) > size:
                own = np.vstack([own, row / np.linalg.norm(row)])
    if found:
        yield (
            f"terminal constraints repeat constraints of the dynamics: {', '.join(found)} follow from these and from the other "
            "terminal constraints but for the drift of the integration, so that solvers take many iterations or fail; leave "
            "these rows out, with zero weights or infinite bounds"
        )


def _states(system: Any, x: Array) -> Array:
    """Return the entries of states (..., nx) that belong to a system, without durations."""
    return x[..., : system.manifold.nx]
