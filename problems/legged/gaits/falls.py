"""Checks of a gait's outcome: falls, and a final position far from the goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from trajopt.config.task import positions_of
from ..robot.legs import hips

LOW = 0.4
"""A robot has fallen if the height of its hips above the lowest foot is below this fraction of its initial value; walks and jumps
of the bundled robots stay above 0.9."""
TILTED = 60.0
"""Tilt of the base above which a robot has fallen [deg]."""
FAR, NEAR = 0.06, 0.05
"""A goal is missed if the final distance from it exceeds this fraction of the path, and this distance [m]; costs leave a small
error. For a foothold, the path is a step."""
HIGH, LEVEL = 0.1, 0.03
"""A height is missed if the error exceeds this fraction of the height of the hips, and this distance [m]."""
OF_HIPS = 0.08
"""Largest fraction of the initial height of the hips above the feet for the distances NEAR and LEVEL, which suit large robots."""


def falls(model: Model, feet: Sequence[str], xs: Array, times: Array) -> list[str]:
    """Return sentences about falls or tilting in states xs (M, nx) at times (M,) [s]; the robot stands in the first state."""
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
    """Return the height (M,) [m] of the midpoint of the hips above the lowest foot, in states (M, nx)."""
    lowest = positions_of(model, feet, xs[:, : model.nq])[:, :, 2].min(axis=0)
    return np.asarray(hip_heights(model, feet, xs) - lowest)


def hip_heights(model: Model, feet: Sequence[str], xs: Array) -> Array:
    """Return the height (M,) [m] of the midpoint of the hips above the ground, in states (M, nx)."""
    x, y, z, w = xs[:, 3:7].T
    up = np.stack([2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)], axis=1)
    return np.asarray(xs[:, 2] + up @ hips(model, feet))


def tilts(xs: Array) -> Array:
    """Return the tilt of the base (M,) [deg] in states (M, nx), relative to the first one."""
    x, y, z, w = xs[:, 3:7].T
    up = _rotate(-xs[0, 3:6], xs[0, 6], np.array([0.0, 0.0, 1.0]))  # in the axes of the base
    vertical = 2.0 * (x * z - w * y) * up[0] + 2.0 * (y * z + w * x) * up[1] + (1.0 - 2.0 * (x * x + y * y)) * up[2]
    return np.degrees(np.arccos(np.clip(vertical, -1.0, 1.0)))


def _rotate(v: Array, w: float, a: Array) -> Array:
    """Rotate a vector (3,) by the quaternion (v, w)."""
    return np.asarray(a + 2.0 * np.cross(v, np.cross(v, a) + w * a))


def _during(when: Array, times: Array) -> str:
    """Return the time range of the masked knots as text."""
    at = times[np.flatnonzero(when)]
    return f"at {at[0]:.2f} s" if at[0] == at[-1] else f"from {at[0]:.2f} to {at[-1]:.2f} s"


def goal_misses(hip_height: float, goal: Sequence[float], height: float | None, xs: Array) -> list[str]:
    """Return sentences about a base that ends far from the goal (x, y) [m], or from a height [m].

    hip_height: initial height of the hips above the feet [m].
    """
    start, end, found = xs[0, :2], xs[-1, :2], []
    away, distance = float(np.linalg.norm(end - goal[:2])), float(np.linalg.norm(np.asarray(goal[:2]) - start))
    if away > max(FAR * distance, min(NEAR, OF_HIPS * hip_height)):
        found.append(f"the base ends {away:.2f} m from its goal, {distance:.2f} m from its start: {MORE}")
    if height is not None and abs(xs[-1, 2] - height) > max(HIGH * hip_height, min(LEVEL, OF_HIPS * hip_height)):
        found.append(f"the base ends {xs[-1, 2]:.2f} m high; the target is {height:.2f} m")
    return found


def foothold_misses(hip_height: float, step: float, away: Mapping[str, float]) -> list[str]:
    """Return a sentence about feet that end far from their footholds, if any.

    hip_height: initial height of the hips above the feet [m]. step: length of a step [m]. away: final distance of each foot from
    its foothold [m].
    """
    near = max(FAR * abs(step), min(NEAR, OF_HIPS * hip_height))
    found = {foot: d for foot, d in away.items() if d > near}
    if not found:
        return []
    listed = ", ".join(f"{foot} ends {d:.2g} m" for foot, d in found.items())
    return [
        f"{listed} from its foothold, with steps of {step:.2g} m: allow more time, or increase problem.foot_weights.terminal"
    ]


MORE = "allow more time, use a better guess, or increase problem.terminal.position"
