"""Soles of flat feet: their frames and extents.

The *sole* of a foot is a frame on its body, level and aligned with the robot's heading in the neutral configuration. Its origin
is below the foot's last joint, at the height of the lowest point of the foot's shapes.  The sole is the bounding rectangle of the
shape points near this height.  Without readable shapes, the sole has the proportions of a human foot for the leg
length (R. Drillis, R. Contini, Body Segment Parameters, 1966).
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
