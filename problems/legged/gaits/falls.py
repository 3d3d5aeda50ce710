"""What no gait is meant to do: falling, and ending far from where it was to go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from problems.legged.robot.legs import hips
from trajopt.config.task import position_of

LOW = 0.4
"""A robot whose hips are lower above its lowest foot than this share of the height they stand at has fallen; walks and jumps of the
bundled robots stay above 0.9."""
TILTED = 60.0
"""[deg] So far is a base from upright that has fallen."""
FAR, NEAR = 0.06, 0.05
"""An end farther from its goal than this share of the way, and than this [m], has missed it: costs leave gaits a little short."""
HIGH, LEVEL = 0.1, 0.03
"""An end farther from the height asked for than this share of it, and than this [m], has missed that."""


def falls(model: Model, feet: Sequence[str], xs: Array, times: Array) -> list[str]:
    """Sentences about a robot that comes down or turns over in states xs (M, nx) at times (M,) [s], the first of which stands."""
    height = heights(model, feet, xs)
    low, tilt = height / height[0], tilts(xs)
    found = []
    if (low < LOW).any():
        k = int(np.argmin(low))
        found.append(
            f"the robot falls: {_during(low < LOW, times)} its hips are below {LOW:g} of their initial height above the feet"
            f" ({low[k]:.2f} at {times[k]:.2f} s)"
        )
    if (tilt > TILTED).any():
        k = int(np.argmax(tilt))
        found.append(
            f"the robot falls: {_during(tilt > TILTED, times)} its base is tilted by more than {TILTED:g} deg"
            f" ({tilt[k]:.0f} deg at {times[k]:.2f} s)"
        )
    return found


def heights(model: Model, feet: Sequence[str], xs: Array) -> Array:
    """The middle of the hips above the lowest foot (M,) [m], in states (M, nx)."""
    lowest = np.min([np.atleast_2d(position_of(model, foot, xs[:, : model.nq]))[:, 2] for foot in feet], axis=0)
    x, y, z, w = xs[:, 3:7].T
    up = np.stack([2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)], axis=1)
    return np.asarray(xs[:, 2] + up @ hips(model, feet) - lowest)


def tilts(xs: Array) -> Array:
    """Tilt of the base (M,) [deg] in states (M, nx), relative to the first one."""
    x, y, z, w = xs[:, 3:7].T
    up = _turned(-xs[0, 3:6], xs[0, 6], np.array([0.0, 0.0, 1.0]))  # in the axes of the base
    vertical = 2.0 * (x * z - w * y) * up[0] + 2.0 * (y * z + w * x) * up[1] + (1.0 - 2.0 * (x * x + y * y)) * up[2]
    return np.degrees(np.arccos(np.clip(vertical, -1.0, 1.0)))


def _turned(v: Array, w: float, a: Array) -> Array:
    """A vector (3,) turned by the quaternion (v, w)."""
    return np.asarray(a + 2.0 * np.cross(v, np.cross(v, a) + w * a))


def _during(when: Array, times: Array) -> str:
    """The time from the first to the last of some knots."""
    at = times[np.flatnonzero(when)]
    return f"at {at[0]:.2f} s" if at[0] == at[-1] else f"from {at[0]:.2f} to {at[-1]:.2f} s"


def ends_away(goal: Sequence[float], height: float | None, xs: Array) -> list[str]:
    """Sentences about a base whose last position is far from the goal (x, y) [m], or from a height [m]."""
    start, end, found = xs[0, :2], xs[-1, :2], []
    away, way = float(np.linalg.norm(end - goal[:2])), float(np.linalg.norm(np.asarray(goal[:2]) - start))
    if away > max(FAR * way, NEAR):
        found.append(f"the base ends {away:.2f} m from its goal, {way:.2f} m from its start: {MORE}")
    if height is not None and abs(xs[-1, 2] - height) > max(HIGH * height, LEVEL):
        found.append(f"the base ends {xs[-1, 2]:.2f} m high; the target is {height:.2f} m")
    return found


MORE = "allow more time, use a better guess, or increase the terminal weights"
