"""Surroundings of an arm: static bodies and a walking person, which the capsules of its links avoid.

    D(capsule i at q, body o) >= radii + margin        for all pairs of a capsule that moves and of a body

All pairs are constrained, without a broad phase: for few bodies this costs less than the dynamics. A person is a body whose
position, the parameter ``center`` of the term :data:`PERSON`, is measured during replanning and predicted at the knots. Relaxed
by slacks (:func:`trajopt.softened`), the distances never make a plan infeasible; with infinite weight they are constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import trajopt as to
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.clearance import WORLD, Clearances, Slot
from dynamics_backends.rigid_body.geometry.covers import RobotCover
from dynamics_backends.rigid_body.geometry.scene import Body, BodyPath, Scene
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.config.task import Checked, Checks, not_negative
from trajopt.problem.constraints import Constraint
from .scene_settings import SceneBody

BODIES, PERSON = "bodies", "person"
"""Names of the terms or constraints; replanning updates the position in the second (``replan.obstacle.term``)."""


@dataclass(frozen=True, kw_only=True)
class Surroundings(Checked):
    """Bodies and a person that an arm avoids.

    body: static bodies, a table or a list of tables. person: moving body; its position is the initial one, its name appears
    in reports and plots. margin: required distance [m]. weight: weight of the slack for smaller distances; inf makes the
    distances constraints. width: width of the smoothed corner of the slack cost [m]. cover_tolerance: maximum distance of a
    capsule surface from its link [m]. cover_pieces: maximum number of capsules per link.
    """

    body: SceneBody | tuple[SceneBody, ...] | None = None
    person: SceneBody | None = None
    margin: float = 0.05
    weight: float = 1e4
    width: float = 0.02
    cover_tolerance: float = 0.03
    cover_pieces: int = 3

    def unbounded(self) -> tuple[str, ...]:
        """See :meth:`trajopt.config.task.Checked.unbounded`."""
        return ("weight",)

    def checks(self) -> Checks:
        return {
            "margin": not_negative(self.margin),
            "weight": (self.weight > 0, "a positive weight, or inf for constraints"),
            "width": (self.width > 0, "a positive length [m]"),
            "cover_tolerance": (self.cover_tolerance > 0, "a positive length [m]"),
            "cover_pieces": (self.cover_pieces >= 1, "at least 1"),
            "person": (self.person is not None or self.body is not None, "a person or a body"),
        }

    @property
    def static_bodies(self) -> tuple[Body, ...]:
        """Static bodies."""
        several = () if self.body is None else self.body if isinstance(self.body, tuple) else (self.body,)
        return tuple(body.body(Path()) for body in several)

    @property
    def moving_body(self) -> Body | None:
        """The moving person, or None."""
        return None if self.person is None else self.person.body(Path())

    @property
    def scene(self) -> Scene:
        """All bodies, at their initial positions."""
        return Scene((*self.static_bodies, *(() if self.moving_body is None else (self.moving_body,))))


def clearance_constraints(cover: RobotCover, manifold: Manifold, s: Surroundings, q0: Array) -> list[Constraint]:
    """Return the distance constraints of bodies and person. Raises ValueError if the arm collides with them at q0 (nq,)."""
    found = []
    if s.static_bodies:
        _require_free(cover, s.static_bodies, q0)
        found.append(_constraint(BODIES, cover, manifold, s.static_bodies, s.margin, moving=False))
    if s.moving_body is not None:
        _require_free(cover, (s.moving_body,), q0)
        at = s.moving_body.p
        origin = (replace(s.moving_body, p=np.zeros(3)),)
        person = _constraint(PERSON, cover, manifold, origin, s.margin, moving=True)
        found.append(person.updated(center=at))
    return found


def _constraint(
    name: str, cover: RobotCover, manifold: Manifold, bodies: Sequence[Body], margin: float, *, moving: bool
) -> Constraint:
    pieces = np.flatnonzero(cover.bodies >= 0).tolist()
    cores = [(body, core) for body in bodies for core in body.cores()]
    pairs = [(i, body, core) for i in pieces for body, core in cores]
    slots = [Slot(int(cover.bodies[i]), WORLD, core.kind) for i, _, core in pairs]
    numbers = [
        [*cover.a[i], *cover.b[i], *(body.R @ core.R).ravel(), *(body.p + body.R @ core.p), *core.size]
        for i, body, core in pairs
    ]
    lower = np.array([cover.radii[i] + core.radius + margin for i, _, core in pairs])
    names = [body.name for _, body, _ in pairs]
    residual = Clearances(cover.model, slots, manifold, moving=moving, bodies=names)
    values = {"pairs": np.concatenate(numbers)} | ({"center": np.zeros(3)} if moving else {})
    return Constraint(name, residual, lower, np.full(len(pairs), np.inf), values)


def _require_free(cover: RobotCover, bodies: tuple[Body, ...], q0: Array) -> None:
    """Raise ValueError if the arm collides at q0, with the pair and depth."""
    pairs = CollisionPairs(cover, Scene(bodies))
    gaps = pairs.gaps(q0[None], np.zeros(1))[0]
    i, o = np.unravel_index(int(np.argmin(gaps)), gaps.shape)
    if gaps[i, o] < 0.0:
        body = bodies[pairs.cores[o][0]].name
        depth = -1e3 * float(gaps[i, o])
        raise ValueError(
            f"the start is in collision: {cover.links[i]} and {body}, {depth:.3g} mm deep; move it or the body, or reduce "
            "cover_tolerance"
        )


def distances_from_person(cover: RobotCover, s: Surroundings, qs: Array, centers: Array) -> Array:
    """Return the smallest distance (M,) [m] of the capsules at configurations (M, nq) from a person at centers (M, 3)."""
    assert s.moving_body is not None  # else nothing moves
    offsets = tuple(tuple(row) for row in (centers - s.moving_body.p).tolist())
    times = np.arange(float(len(qs)))
    path = BodyPath(tuple(times.tolist()), offsets) if len(qs) > 1 else None
    body = replace(s.moving_body, path=path) if path else replace(s.moving_body, p=centers[0])
    return CollisionPairs(cover, Scene((body,)), reach=np.inf).smallest_gaps(qs, times)


def relaxed(constraints: Sequence[Constraint], s: Surroundings) -> tuple[list[to.CostTerm], list[Constraint]]:
    """Convert the constraints to softened cost terms, unless the weight is infinite."""
    if np.isinf(s.weight):
        return [], list(constraints)
    return [to.softened(c, s.weight, s.width) for c in constraints], []
