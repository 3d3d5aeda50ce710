"""Diagnosis of failed shooting solves: the time step or number of the trajectory that caused the failure."""

from __future__ import annotations

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.stage.evaluation import Expansion

UNSTABLE = 2.0
"""A time step is unstable if its Jacobian has a negative real eigenvalue of larger magnitude than this."""


def unstable_step(ocp: OCP, lq: LQProblem) -> tuple[int, str, float] | None:
    """Return knot, component and growth factor of the least stable time step; None if no A has a real eigenvalue below -UNSTABLE.

    If an explicit step is too long for a damping, it reverses and amplifies a velocity: A has an eigenvalue below -1. The
    component is the largest one of the eigenvector. Steps whose A is not finite are skipped.
    """
    finite = np.isfinite(lq.A).all(axis=(1, 2))
    values = np.linalg.eigvals(np.where(finite[:, None, None], lq.A, 0.0))
    flipped = np.where(np.abs(values.imag) < 1e-9 * np.abs(values.real), -values.real, 0.0)
    knot = int(np.argmax(flipped.max(axis=1)))
    factor = float(flipped[knot].max())
    if factor <= UNSTABLE:
        return None
    pairs, vectors = np.linalg.eig(lq.A[knot])
    name = ocp.state_names[int(np.argmax(np.abs(vectors[:, int(np.argmin(pairs.real))])))]
    return knot, name, factor


def no_step(ocp: OCP, lq: LQProblem, at: termination.Measured) -> Status:
    """Return the status for a failed line search; an unstable integration step is reported as its cause."""
    if (step := unstable_step(ocp, lq)) is not None:
        return termination.unstable_integration(*step)
    return termination.line_search_failed(termination.NO_STEP_LENGTH, at)


def non_finite_entry(ocp: OCP, xs: Array, e: Expansion) -> termination.NonFinite:
    """Return the first knot and component with NaN or infinity along states xs (N + 1, nx), in evaluation order.

    At one knot, states come before steps, derivatives and costs. If all are finite, it is the total cost.
    """
    states, controls = ocp.state_names, ocp.control_names
    blocks = (
        (xs, "the state {}", (_coordinate_names(ocp.manifold),)),
        (e.x_next, "the step of {}", (_coordinate_names(ocp.manifold),)),
        (e.lq.A, "d {} / d {}", (states, states)),
        (e.lq.B, "d {} / d {}", (states, controls)),
        (e.lq.q, "the cost gradient of {}", (states,)),
        (e.lq.r, "the cost gradient of {}", (controls,)),
        (e.lq.Q, "the cost Hessian of {}, {}", (states, states)),
        (e.lq.R, "the cost Hessian of {}, {}", (controls, controls)),
    )
    found = [(*_first_non_finite(block), i) for i, (block, _, _) in enumerate(blocks) if not np.isfinite(block).all()]
    if not found:
        return termination.NonFinite("the cost")
    knot, entry, i = min(found, key=lambda f: (f[0], f[2]))
    names = [axis[j] for axis, j in zip(blocks[i][2], entry, strict=True)]
    return termination.NonFinite(blocks[i][1].format(*names), knot=knot)


def _first_non_finite(block: Array) -> tuple[int, tuple[int, ...]]:
    """Return the knot and the other indices of the first entry of a block that is NaN or infinite."""
    knot, *entry = (int(i) for i in np.argwhere(~np.isfinite(block))[0])
    return knot, tuple(entry)


def _coordinate_names(manifold: Manifold) -> tuple[str, ...]:
    """Return a name for each of the nx numbers of a state; a quaternion's fourth number has the name of the third."""
    names: list[str] = []
    start = 0
    for group in manifold.groups:
        own = manifold.tangent_names[start : start + group.nv]
        names += [*own, *own[-1:] * (group.nq - group.nv)]
        start += group.nv
    return tuple(names)
