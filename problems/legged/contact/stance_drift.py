"""Displacement of standing feet on rigid ground, which time steps cause.

Rigid contacts keep the accelerations of the feet at zero, so that errors of the time steps add up to a displacement, for example
into the ground. Gains with kp > 0 draw the feet back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import frame_placement
from dynamics_backends.rigid_body.model.model import Model
from trajopt import OCP
from trajopt.problem.impact_stage import ImpactStage
from trajopt.validation.limit_violations import LimitViolation, worst_of

DRIFT = 5e-3
"""Largest displacement of a standing foot [leg lengths] without a warning."""


def stance_drift(
    ocp: OCP, marks: Mapping[str, Sequence[Sequence[float]]], stances: Sequence[Sequence[str]], limit: float, xs: Array
) -> list[LimitViolation]:
    """Return the feet that move by more than ``limit`` [m] while they stand, in states xs (N + 1, nx).

    marks: points of each foot in its frame [m], the farthest of which counts. stances: standing feet of each phase, without
    phases of impacts.
    """
    if not np.isfinite(xs).all() or ocp.model is None:
        return []
    slices = [
        s for phase, s in zip(ocp.phases, ocp.phase_slices, strict=True) if not isinstance(phase.dynamics, ImpactStage)
    ]
    found: list[LimitViolation] = []
    for foot, points in marks.items():
        at = _positions(ocp.model, foot, points, xs[:, : ocp.model.nq])
        drift, landed = np.zeros(len(xs)), None
        for stance, knots in zip(stances, slices, strict=True):
            standing = slice(knots.start, knots.stop + 1)
            landed = None if foot not in stance else at[knots.start] if landed is None else landed
            if landed is not None:
                drift[standing] = np.linalg.norm(at[standing] - landed, axis=2).max(axis=1)
        excess = np.where(drift > limit, drift - limit, 0.0)[:, None]
        found += [b._replace(limit=limit) for b in worst_of("stance drift", [foot], excess, ocp.times_of(xs), "m")]
    return found


def _positions(model: Model, foot: str, points: Sequence[Sequence[float]], q: Array) -> Array:
    """Return the positions (M, P, 3) [m] of points of a foot at q (M, nq)."""
    R, p = frame_placement(model, q, foot)
    return np.asarray(p[:, None] + np.einsum("mij,pj->mpi", R, np.asarray(points)))
