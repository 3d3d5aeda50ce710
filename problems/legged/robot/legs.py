"""Detection of the legs of a floating-base robot from its kinematic tree.

A *limb* is the path from the base to a body without children. Its *end* is a contact frame of that body, if its file defines
one (MJCF), or else the link farthest from the joint.  Bodies that carry legs on both sides, such as a waist or a spine, belong to
the trunk, not to the legs.  The feet are the ends that reach lowest in the neutral configuration, relative to the joint at which
the lowest limb begins; so the height of the base frame has no effect.  If no limb reaches below that joint, as with legs that are
stretched out sideways, the feet are the ends of the limbs with the most frequent number of joints, if there are at least four.
The robot faces along the x axis of its base, or along y if more leg joints turn about x than about y, except on sprawling legs:
legs that point to the left and right and step forward by joints about the vertical axis.
The *flexion joint* of a leg is the first that turns about the lateral axis.  With this joint at h and the foot at f
(neutral configuration, base frame rotated to face along x),

    leg length  L = sum of the sagittal distances from the flexion joint over all joints to the foot
    hip         (x of h, y of f, z of h)
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mode
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model

LOW = 0.8
"""Depth of a limb end, relative to the lowest one, from which on it is a foot."""
LEVEL = 0.05
"""Depth of the lowest limb end, relative to the length of its limb, up to which no limb reaches down."""
QUADRUPED = 4
"""Minimum number of limbs with as many joints that count as legs if no limb reaches down."""
MORE = 1.1
"""Ratio of joint axes along x to those along y from which on a robot faces along y; legs that point outward have no clear
ratio."""
ACROSS = 0.7
"""Cosine of the angle to the lateral direction above which an axis counts as lateral."""


class Leg(NamedTuple):
    """A leg. foot: frame name. hip (3,) [m], length L [m]: see the module. joints: indices in q[7:], from the base on. knee: body
    moved by the joint after the flexion joint. level: rotation (3, 3) of the foot in the neutral configuration."""

    foot: str
    hip: Array
    length: float
    joints: tuple[int, ...]
    knee: int
    level: Array


class Posed(NamedTuple):
    """Rotations (nb, 3, 3) and positions (nb, 3) [m] of all bodies in the base frame."""

    R: Array
    p: Array

    @classmethod
    def neutral(cls, model: Model) -> Posed:
        """Return the poses in the neutral configuration, where joint b turns about the axis R[b][:, 2]."""
        R, p = np.tile(np.eye(3), (model.nb, 1, 1)), np.zeros((model.nb, 3))
        for b in range(1, model.nb):
            parent = int(model.parent[b])
            R[b] = R[parent] @ model.placement_R[b]
            p[b] = R[parent] @ model.placement_p[b] + p[parent]
        return cls(R, p)

    def frame(self, model: Model, name: str) -> Array:
        """Return the position (3,) [m] of a frame."""
        frame = model.frames[model.frame_id(name)]
        return self.R[frame.body] @ frame.p + self.p[frame.body]


def lowest_ends(model: Model) -> tuple[str, ...]:
    """Return the feet, left before right and, for four feet, front before hind.

    Raises ValueError if fewer than two limbs reach down, if these reach farther to one side than down, as in a file whose y axis
    is vertical, or if four feet are not in four quadrants.
    """
    feet = _low_ends(model)
    if len(feet) < 2:
        what = f"only {feet[0]} does" if feet else "none does"
        raise ValueError(
            f"feet: two or more limbs of {model.name} should reach down from its base at the neutral configuration, {what}; "
            "name the feet"
        )
    reach, listed = _reach(model, feet), ", ".join(feet)
    turn = _turn(model, reach)
    if turn and -reach[2] > LEVEL * np.linalg.norm(reach):
        raise ValueError(
            f"feet: {listed} of {model.name} are beside its base, not below it, at the neutral configuration: {turn}; else name "
            "the feet"
        )
    ordered = _in_order(model, feet)
    if not ordered:
        turn = turn and f"{turn}; else "
        raise ValueError(f"feet: {listed} do not stand in four quarters about their middle: {turn}name them in order")
    return ordered


def _reach(model: Model, feet: Sequence[str]) -> Array:
    """Return the mean vector (3,) [m] from the first joints of the limbs to their feet, in the base frame."""
    return np.mean([Posed.neutral(model).frame(model, foot) for foot in feet], axis=0) - hips(model, feet)


def _turn(model: Model, reach: Array) -> str:
    """Return advice to turn the base of a model whose limbs reach farther along x or y than along z, else ""."""
    axis = int(np.argmax(np.abs(reach)))
    if axis == 2:
        return ""
    rpy = np.zeros(3)
    rpy[1 - axis] = np.copysign(0.5 * np.pi, reach[0] if axis == 0 else -reach[1])
    attitude = " ".join(f"{angle:.5g}" for angle in rpy)
    return (
        f"if the {'xy'[axis]} axis of the file is vertical, add a link as its root, and a fixed joint from that to "
        f'{model.body_names[0]} with <origin rpy="{attitude}"/>'
    )


def _low_ends(model: Model) -> list[str]:
    """Return the limb ends that reach lowest in the neutral configuration; if none reaches down, see the module."""
    posed = Posed.neutral(model)
    tips = [b for b in range(1, model.nb) if b not in model.parent]
    heights = {_end(model, b): float(posed.frame(model, _end(model, b))[2]) for b in tips}
    if not heights:
        return []
    lowest = min(heights, key=heights.__getitem__)
    path = _above(model, model.frames[model.frame_id(lowest)].body)
    begin = float(posed.p[path[0], 2])
    depth = {end: begin - z for end, z in heights.items()}
    points = np.array([*(posed.p[b] for b in path), posed.frame(model, lowest)])
    if depth[lowest] > LEVEL * np.linalg.norm(np.diff(points, axis=0), axis=1).sum():
        return [end for end, d in depth.items() if d >= LOW * depth[lowest]]
    counts = {_end(model, b): len(_above(model, b)) for b in tips}
    alike = mode(list(counts.values()))
    ends = [end for end, count in counts.items() if count == alike]
    return ends if len(ends) >= QUADRUPED else []


def _end(model: Model, body: int) -> str:
    links = [f for f in model.frames if f.body == body and f.kind in ("link", "contact")]
    return max(links, key=lambda f: (f.kind == "contact", float(np.linalg.norm(f.p)))).name


def _in_order(model: Model, feet: Sequence[str]) -> tuple[str, ...]:
    """Return the feet in their order; () for four feet that are not in four quadrants about their middle."""
    at = rotate_z(np.stack([Posed.neutral(model).frame(model, foot) for foot in feet]), -heading(model, feet))
    if len(feet) != 4:
        return tuple(feet[i] for i in np.argsort(-at[:, 1]))
    quarters = {(x > at[:, 0].mean(), y > at[:, 1].mean()): foot for (x, y, _), foot in zip(at, feet, strict=True)}
    if len(quarters) != 4:
        return ()
    return tuple(quarters[front, left] for front, left in ((True, True), (True, False), (False, True), (False, False)))


def hips(model: Model, feet: Sequence[str]) -> Array:
    """Return the midpoint (3,) [m], in the base frame, of the joints that connect the limbs of these feet to the base."""
    posed = Posed.neutral(model)
    return posed.p[[_above(model, model.frames[model.frame_id(foot)].body)[0] for foot in feet]].mean(axis=0)


def heading(model: Model, feet: Sequence[str]) -> float:
    """Return the yaw [rad] of the robot's forward direction in its base frame: zero, or a right angle."""
    R = Posed.neutral(model).R
    axes = np.stack([R[b][:, 2] for foot in feet for b in _path(model, foot)])
    along_x, along_y = np.abs(axes[:, :2]).sum(axis=0)
    return 0.5 * np.pi if along_x > MORE * along_y and not _sprawls(model, feet) else 0.0


def _sprawls(model: Model, feet: Sequence[str]) -> bool:
    """Return True if each leg has a joint about the vertical axis, and points to its side of the robot, left or right."""
    posed = Posed.neutral(model)
    paths = [_path(model, foot) for foot in feet]
    turns = all(any(abs(posed.R[b][2, 2]) > ACROSS for b in path) for path in paths)
    hip = np.array([posed.p[path[0]] for path in paths])
    out = np.array([posed.frame(model, foot) for foot in feet]) - hip
    side = np.sign(hip[:, 1] - hip[:, 1].mean())
    return turns and bool((side * out[:, 1] > np.maximum(np.abs(out[:, 0]), LEVEL * np.linalg.norm(out, axis=1))).all())


def leg_of(model: Model, foot: str, heading: float) -> Leg:
    """Return the leg of a foot. Raises UnknownName for an unknown foot, ValueError if no joint moves it."""
    posed, path, frame = Posed.neutral(model), _path(model, foot), model.frames[model.frame_id(foot)]
    if not path:
        raise ValueError(f"feet: no joint moves {foot} of {model.name}; name frames at the ends of its legs")
    across = rotate_z(np.array([0.0, 1.0, 0.0]), heading)
    flexion = next((i for i, b in enumerate(path) if abs(posed.R[b][:, 2] @ across) > ACROSS), 0)
    points = np.stack([*(posed.p[b] for b in path[flexion:]), posed.frame(model, foot)])
    steps = np.diff(points, axis=0)
    planar = steps - np.outer(steps @ across, across)
    local = rotate_z(points, -heading)
    return Leg(
        foot,
        hip=np.array([local[0, 0], local[-1, 1], local[0, 2]]),
        length=float(np.linalg.norm(planar, axis=1).sum()),
        joints=tuple(int(model.q_index[b]) - _BASE for b in path),
        knee=path[min(flexion + 1, len(path) - 1)],
        level=posed.R[frame.body] @ frame.R,
    )


_BASE = 7
"""Number of coordinates of a floating base."""


def _path(model: Model, foot: str) -> list[int]:
    """Return the bodies of a foot's leg, starting after the base and the trunk."""
    above = trunk(model)
    return [b for b in _above(model, model.frames[model.frame_id(foot)].body) if b not in above]


def _above(model: Model, body: int) -> list[int]:
    """Return the bodies on the path from the base (excluded) to a body."""
    path: list[int] = []
    while body > 0:
        path.insert(0, body)
        body = int(model.parent[body])
    return path


def trunk(model: Model) -> frozenset[int]:
    """Return the bodies that carry legs on both sides, such as a waist or a spine, without the base."""
    posed = Posed.neutral(model)
    sides: dict[int, set[bool]] = {}
    for foot in _low_ends(model):
        left = bool(posed.frame(model, foot)[1] > 0.0)
        for b in _above(model, model.frames[model.frame_id(foot)].body):
            sides.setdefault(b, set()).add(left)
    return frozenset(b for b, found in sides.items() if len(found) == 2)


def rotate_z(p: Array, angle: float) -> Array:
    """Rotate points (..., 3) about z."""
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * p[..., 0] - s * p[..., 1], s * p[..., 0] + c * p[..., 1], p[..., 2]], axis=-1)
