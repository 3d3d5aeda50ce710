"""The soles of feet that stand flat: where they are, and how far they reach.

The *sole* of a foot is a frame on its body, level and turned to where the robot faces at the neutral configuration, whose origin
lies below the foot's last joint at the height of the lowest point of its shapes.  It is the rectangle about the points of these
shapes that are nearly as low.  Where the robot's file has no shapes that can be read, it is that of a human foot for the leg's
length (R. Drillis, R. Contini, Body Segment Parameters, 1966).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.links.link_shapes import link_shapes
from dynamics_backends.rigid_body.geometry.links.urdf_shapes import Purpose
from dynamics_backends.rigid_body.model.model import Frame, Model
from problems.legged.robot.legs import Leg, Posed, leg_of, turned

FLAT = 0.02
"""[leg lengths]: points of a foot at most so far above its lowest one are part of the sole."""
HUMAN = (0.07, 0.21, 0.05)
"""Heel behind and toe before the ankle, half the width, in leg lengths."""
HIGH = 0.07
"""The ankle over the ground, in leg lengths, where no shape tells."""
SOURCES: tuple[Purpose, ...] = ("collision", "visual")


class Sole(NamedTuple):
    """frame: its name. back, front, right, left [m]: how far the rectangle reaches from the frame's origin along -x, x, -y, y.
    measured: whether shapes told so."""

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
        source = "" if self.measured else ", as a human foot is: no shapes of it were read"
        return f"{self.frame}: {along} along x and {across} along y{source}"

    @property
    def marks(self) -> tuple[tuple[float, float, float], ...]:
        """Three points of the sole in its frame [m] that tell its pose: toe and both corners of the heel."""
        middle = 0.5 * (self.left - self.right)
        return ((self.front, middle, 0.0), (-self.back, self.left, 0.0), (-self.back, -self.right, 0.0))


def with_soles(model: Model, legs: Sequence[Leg], heading: float) -> tuple[Model, tuple[Leg, ...], tuple[Sole, ...]]:
    """The robot with a frame on each sole, its legs down to them, and the soles."""
    posed = Posed.neutral(model)
    frames, soles = [], []
    for leg in legs:
        body = model.frames[model.frame_id(leg.foot)].body
        R = turned(np.eye(3), heading).T
        ankle = posed.p[body]
        points = _points(model, body, posed)
        name = f"{leg.foot} sole"
        local = turned(points - ankle, -heading)
        height, sole = _measured(name, local, leg.length)
        at = ankle + np.array([0.0, 0.0, height])
        frames.append(Frame(name, body, posed.R[body].T @ R, posed.R[body].T @ (at - posed.p[body])))
        soles.append(sole)
    found = replace(model, frames=(*model.frames, *frames))
    return found, tuple(leg_of(found, frame.name, heading) for frame in frames), tuple(soles)


def _measured(name: str, points: Array, length: float) -> tuple[float, Sole]:
    """The height [m] of the sole over the ankle, and the sole, from points (n, 3) about the ankle."""
    if not len(points):
        back, front, width = (length * share for share in HUMAN)
        return -HIGH * length, Sole(name, back, front, width, width, measured=False)
    low = points[points[:, 2] <= points[:, 2].min() + FLAT * length]
    (x0, y0, z), (x1, y1, _) = low.min(axis=0), low.max(axis=0)
    return float(z), Sole(name, float(-x0), float(x1), float(-y0), float(y1))


def _points(model: Model, body: int, posed: Posed) -> Array:
    """Vertices (n, 3) [m] of the shapes on a body at the neutral configuration; none where they cannot be read."""
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
