"""Soles of flat feet, their frames and extents, and tips of legs whose last link has no frame at its end.

The *sole* of a foot is a frame on its body, level and aligned with the robot's heading in the neutral configuration. Its origin
is below the foot's last joint, at the height of the lowest point of the foot's shapes.  The sole is the bounding rectangle of the
shape points near this height.  Without readable shapes, the sole has the proportions of a human foot for the leg
length (R. Drillis, R. Contini, Body Segment Parameters, 1966).

The *tip* of a leg is at the height of the lowest point of its last body's shapes in the neutral configuration, of those at least
NEAR of the largest distance from its joint, and below the middle of the points near this height.  It is the foot if the found one
lies at the joint, which cannot move it, and the shapes do not surround the joint, as those of a wheel do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.link_shapes import Purpose, link_shapes
from dynamics_backends.rigid_body.model.model import Frame, Model
from .legs import Leg, Posed, leg_of, rotate_z

FLAT = 0.02
"""Maximum height of sole points above the lowest point [leg lengths]."""
HUMAN = (0.07, 0.21, 0.05)
"""Heel behind the ankle, toe before the ankle, and half the width of a human foot [leg lengths]."""
HIGH = 0.07
"""Height of the ankle above the ground without shapes [leg lengths]."""
NEAR, AROUND = 0.9, 0.25
"""Fractions of the largest distance of shape points from the joint: smallest distance of a tip, and largest distance of the middle
of shapes that surround the joint."""
SOURCES: tuple[Purpose, ...] = ("collision", "visual")


class Sole(NamedTuple):
    """Sole of a foot. frame: its name. back, front, right, left [m]: extents from the frame's origin along -x, x, -y, y.
    measured: derived from shapes."""

    frame: str
    back: float
    front: float
    right: float
    left: float
    measured: bool = True

    @property
    def half(self) -> tuple[float, float]:
        """Half the length and half the width [m]."""
        return 0.5 * (self.back + self.front), 0.5 * (self.right + self.left)

    @property
    def sentence(self) -> str:
        """Size as text, for reports."""
        along, across = (
            f"from {-100 * a:.1f} to {100 * b:.1f} cm" for a, b in ((self.back, self.front), (self.right, self.left))
        )
        source = "" if self.measured else ", proportions of a human foot: no shapes were read"
        return f"{self.frame}: {along} along x and {across} along y{source}"

    @property
    def marks(self) -> tuple[tuple[float, float, float], ...]:
        """Three points of the sole in its frame [m] that define its pose: toe and both heel corners."""
        middle = 0.5 * (self.left - self.right)
        return ((self.front, middle, 0.0), (-self.back, self.left, 0.0), (-self.back, -self.right, 0.0))


def with_soles(model: Model, legs: Sequence[Leg], heading: float) -> tuple[Model, tuple[Leg, ...], tuple[Sole, ...]]:
    """Add a frame to each sole of a robot. Returns the model, legs that end at the soles, and the soles."""
    posed = Posed.neutral(model)
    frames, soles = [], []
    for leg in legs:
        body = model.frames[model.frame_id(leg.foot)].body
        R = rotate_z(np.eye(3), heading).T
        ankle = posed.p[body]
        points = _points(model, body, posed)
        name = f"{leg.foot} sole"
        local = rotate_z(points - ankle, -heading)
        height, sole = _measured(name, local, leg.length)
        at = ankle + np.array([0.0, 0.0, height])
        frames.append(Frame(name, body, posed.R[body].T @ R, posed.R[body].T @ (at - posed.p[body])))
        soles.append(sole)
    found = replace(model, frames=(*model.frames, *frames))
    return found, tuple(leg_of(found, frame.name, heading) for frame in frames), tuple(soles)


def with_tips(model: Model, legs: Sequence[Leg], heading: float) -> tuple[Model, tuple[Leg, ...]]:
    """Add a frame at the tip of each leg whose foot is at its last joint. Returns the model, and legs that end at the tips.

    Raises ValueError if the shapes of such a leg cannot be read.
    """
    posed, feet = Posed.neutral(model), list[str]()
    for leg in legs:
        feet.append(leg.foot)
        frame = model.frames[model.frame_id(leg.foot)]
        if frame.p.any():
            continue
        points = _points(model, frame.body, posed) - posed.p[frame.body]
        if not len(points):
            raise ValueError(
                f"feet: {leg.foot} of {model.name} is at the last joint of its leg, which cannot move it, and no shapes of it were "
                "read; add a link at the end of the leg, or name the feet"
            )
        if (tip := _tip(points)) is not None:
            feet[-1] = f"{leg.foot} tip"
            added = Frame(feet[-1], frame.body, np.eye(3), posed.R[frame.body].T @ tip, "contact")
            model = replace(model, frames=(*model.frames, added))
    return model, tuple(leg_of(model, foot, heading) for foot in feet)


def _tip(points: Array) -> Array | None:
    """Return the tip (3,) [m] of shapes with points (n, 3), relative to the joint; None for shapes around the joint."""
    away, middle = np.linalg.norm(points, axis=1), 0.5 * (points.min(axis=0) + points.max(axis=0))
    longest = away.max()
    if np.linalg.norm(middle) <= AROUND * longest:
        return None
    far = points[away >= NEAR * longest]
    low = far[far[:, 2] <= far[:, 2].min() + FLAT * longest]
    middle = 0.5 * (low.min(axis=0) + low.max(axis=0))
    return np.array([*middle[:2], low[:, 2].min()])


def _measured(name: str, points: Array, length: float) -> tuple[float, Sole]:
    """Return the height [m] of the sole relative to the ankle, and the sole, from points (n, 3) relative to the ankle."""
    if not len(points):
        back, front, width = (length * fraction for fraction in HUMAN)
        return -HIGH * length, Sole(name, back, front, width, width, measured=False)
    low = points[points[:, 2] <= points[:, 2].min() + FLAT * length]
    (x0, y0, z), (x1, y1, _) = low.min(axis=0), low.max(axis=0)
    return float(z), Sole(name, float(-x0), float(x1), float(-y0), float(y1))


def _points(model: Model, body: int, posed: Posed) -> Array:
    """Return vertices (n, 3) [m] of the shapes on a body in the neutral configuration; none if they cannot be read."""
    links = {f.name: f for f in model.frames if f.body == body and f.kind == "link"}
    for purpose in SOURCES if model.source else ():
        try:
            placed = link_shapes(model.source, purpose, links=links, package_dirs=model.package_dirs).placed
        except (ModuleNotFoundError, OSError, ValueError):
            continue
        own = [links[s.link].R @ s.triangles().vertices.T + links[s.link].p[:, None] for s in placed]
        if own:
            return (posed.R[body] @ np.concatenate(own, axis=1)).T + posed.p[body]
    return np.zeros((0, 3))
