"""Contact points of bodies: their motion, its first and second derivatives, and forces on them.

Ground-frame quantities at the working origin (:func:`~.ground.at_base`); at(m, p) = l + w x p is the velocity field of
a motion m at p.  For a point p fixed to body c, a motion m_i = m_p + S_i rate_i of the tree (velocity with rates
v, or any other), and a DoF j that moves c:

    J_j = at(S_j, p),                  s(m) = at(m_c, p) = sum_j J_j rate_j
    d p / d q_j = J_j,                 d s(m) / d q_j = at(m_p x S_j, p) + S_j.w x s(m)         m_p of j's parent body
    d^2 p / d q_j d q_k = S_k.w x J_j
    d^2 s(m) / d q_j d q_k = S_k.w x d s(m)/d q_j + (m_p x S_k).w x J_j                          for k above j

because a displacement of k rotates everything below it rigidly and changes m there by m_p x S_k (as in
:mod:`~.rnea_second_order`, with points in place of inertias).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import field_of, row
from dynamics_backends.rigid_body.spatial.spatial import Force, Motion, Vec
from dynamics_backends.scalar import Scalar

Columns = dict[int, Vec]
"""3 x nv matrix by its nonzero columns: those of the DoFs that move the point's body."""


class Point(NamedTuple):
    """Point of a body: a name, the body, coordinates (3,) [m] in the body's internal frame."""

    name: str
    body: int
    at: tuple[float, float, float]


def point_of_frame(
    model: Model, frame: str, offset: Sequence[float] = (0.0, 0.0, 0.0), name: str | None = None
) -> Point:
    """Point at ``offset`` (3,) [m] from a frame's origin, in the frame's axes; name: default that of the frame.

    Raises UnknownName for an unknown frame, ValueError for a frame of the world, and an offset that is not 3 finite numbers.
    """
    f = model.frames[model.frame_id(frame)]
    if f.body < 0:
        raise ValueError(f"frame {frame!r} is fixed to the world and cannot touch it; name a frame of a moving body")
    given = np.asarray(offset, float)
    if given.shape != (3,) or not np.isfinite(given).all():
        raise ValueError(f"the offset from frame {frame!r} is {offset}; expected 3 finite numbers [m]")
    x, y, z = (f.p + f.R @ given).tolist()
    return Point(name or frame, f.body, (x, y, z))


def points_of_frames(model: Model, points: Sequence[str | tuple[str, Sequence[float]]]) -> tuple[Point, ...]:
    """Points that touch the ground: names of frames, or pairs (frame, offset (3,) [m] in its axes).

    A point is named by its frame; several points of one frame are numbered, such as "foot 1" and "foot 2". Raises ValueError for no
    points, and the errors of :func:`point_of_frame`.
    """
    if not points:
        raise ValueError("points is empty; name the frames that touch the ground, or use FreeBody")
    placed = [(p, (0.0, 0.0, 0.0)) if isinstance(p, str) else p for p in points]
    count, seen = Counter(frame for frame, _ in placed), Counter[str]()
    found = []
    for frame, offset in placed:
        seen[frame] += 1
        found.append(point_of_frame(model, frame, offset, f"{frame} {seen[frame]}" if count[frame] > 1 else frame))
    return tuple(found)


def field_at(m: Motion, p: Vec) -> Vec:
    """Velocity at p of the motion m."""
    return m.l + m.w.cross(p)


class PointMotion(NamedTuple):
    """Position p [m] relative to the working origin, velocity [m/s], Jacobian columns J, and rotation axes of a point's DoFs.

    J, axes: by DoF, for those that move the point's body.
    """

    point: Point
    p: Vec
    velocity: Vec
    J: Columns
    axes: Columns


def point_motion(model: Model, fields: Mapping[str, Any], point: Point) -> PointMotion:
    """Position [m] relative to the working origin, velocity [m/s], Jacobian columns and rotation axes of a point of a body.

    fields: those of a recursion in the ground frame, by name: poses X and spatial velocities vel by body, joint axes S by DoF.
    """
    p = row(fields["X"], point.body).components().point(Vec(*point.at))
    S = {j: row(fields["S"], j) for j in model.ancestors(point.body)}
    J = {j: field_at(s, p) for j, s in S.items()}
    return PointMotion(point, p, field_at(row(fields["vel"], point.body), p), J, {j: s.w for j, s in S.items()})


def slopes_in_q(m: PointMotion, motion: Vec, turns: Columns, changes: Mapping[int, Motion]) -> Columns:
    """Derivatives in q, by DoF, of the velocity ``motion`` of a point in a motion of the tree (velocity, or any other rates).

    m: the point; turns: rotation axes of the DoFs j; changes: the motion of the parent body of j, times S_j (cross product).
    """
    return {j: field_at(changes[j], m.p) + turns[j].cross(motion) for j in m.J}


def rows_of_dofs(field: Any, dofs: Sequence[int]) -> dict[int, Any]:
    """Rows of a field for these DoFs, by DoF."""
    return {j: row(field, j) for j in dofs}


def add_joint_forces(tau: list[Scalar], model: Model, S: Any, forces: Sequence[tuple[int, Force]]) -> None:
    """Add the joint forces S_j' f_j to tau (nv) in place; f_j: the sum of the forces on bodies that the DoF j moves.

    forces: pairs (body, force about the working origin).
    """
    beyond: dict[int, Force] = {}
    for body, force in forces:
        for j in model.ancestors(body):
            beyond[j] = beyond[j] + force if j in beyond else force
    for j, total in beyond.items():
        tau[j] = tau[j] + row(S, j).dot(total)


def ground_forces(model: Model, forces: Sequence[tuple[int, Force]], zero: Scalar) -> Force:
    """Field ``f_ground``: on each body, the sum of forces about the working origin in world axes; zero where there are none.

    forces: pairs (body, force). zero: a zero scalar of the kind of the forces.
    """
    null = Force(Vec(zero, zero, zero), Vec(zero, zero, zero))
    total = [null] * model.nb
    for body, force in forces:
        total[body] = total[body] + force
    return field_of(total)


def force_at(p: Vec, force: Vec) -> Force:
    """Force at p as a force vector about the working origin."""
    return Force(p.cross(force), force)
