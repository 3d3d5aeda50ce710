"""Goal orientations in configurations: roll-pitch-yaw, quaternion, matrix, or the initial orientation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import frame_placement
from dynamics_backends.rigid_body.spatial.rotations import rotation_angle, rotation_matrix
from .arm import Arm
from .obstacle import Point

AT_START = "q0"
Orientation = Literal["q0"] | Point | tuple[float, float, float, float] | tuple[Point, Point, Point]
"""Roll, pitch, yaw [rad]; unit quaternion x, y, z, w; rotation matrix by rows; or "q0": the initial orientation."""
KEY = "goal_rotation"
HALF_TURN = 1e-3
"""Maximum |w| of a quaternion that counts as a half turn."""


def orientation_check(value: Orientation | None, by_frame: bool) -> tuple[bool, str]:
    """Check a setting goal_rotation. by_frame: goal_position is set."""
    if value is not None and not by_frame:
        return False, "goal_position to be set too"
    if value is None or value == AT_START:
        return True, ""
    try:
        rotation_matrix(value, "this")
    except ValueError as error:
        return False, f"an orientation; {error}"
    return True, ""


def goal_orientation(arm: Arm, value: Orientation | None) -> Array | None:
    """Return the rotation (3, 3), world from frame, of a setting goal_rotation; None without one."""
    if value is None:
        return None
    if value == AT_START:
        return np.asarray(frame_placement(arm.model, arm.q0, arm.frame)[0])
    return rotation_matrix(value, KEY)


def orientation_warnings(
    arm: Arm, value: Orientation | None, reaches: Callable[[Array], bool], missed: bool
) -> tuple[str, ...]:
    """Return a warning about a quaternion that seems to be in the order w, x, y, z.

    This is assumed if x, y, z, w is a half turn farther from the orientation at q0 than w, x, y, z, or if the goal is missed but
    would be reached with w, x, y, z. missed: no configuration reaches the goal. reaches: returns True if a configuration reaches
    the goal with a rotation (3, 3).
    """
    if value is None or isinstance(value, str) or len(value) != 4:
        return ()
    as_given, reordered = rotation_matrix(value, KEY), rotation_matrix(np.roll(np.array(value), -1), KEY)
    start = frame_placement(arm.model, arm.q0, arm.frame)[0]
    nearer = rotation_angle(start, reordered) < rotation_angle(start, as_given)
    half_turn = abs(float(np.array(value)[3])) < HALF_TURN
    swapped = np.roll(np.array(value), -1).tolist()
    if missed and reaches(reordered):
        return (
            f"{KEY} is read as x, y, z, w, and the goal is not reached; as w, x, y, z it would be: write {swapped}",
        )
    if half_turn and nearer:
        return (
            f"{KEY} is read as x, y, z, w, a half turn; if it is w, x, y, z, write {swapped}, else give roll, pitch, yaw",
        )
    return ()
