"""Constant rotations of a model: roll-pitch-yaw, turning of joint axes to +z, snapping of rounded numbers.

R with the columns of frame b in frame a takes coordinates from b to a. These are plain float64 functions,
used while a model is built; the scalar-generic ones of the algorithms live elsewhere.
"""

from __future__ import annotations

import numpy as np

SNAP_TOLERANCE = 1e-4  # a rounded pi/2 = 1.5708 is off by 3.7e-6, 1.571 by 2.0e-4

# Signed permutations T with T axis = +z, for the six axes along a coordinate axis. Entries are exact.
_X_TO_Z = np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
_Y_TO_Z = np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])
_HALF_TURN_X = np.diag([1.0, -1, -1])
_EXACT_TURNS = {
    (1.0, 0.0, 0.0): _X_TO_Z,
    (0.0, 1.0, 0.0): _Y_TO_Z,
    (0.0, 0.0, 1.0): np.eye(3),
    (-1.0, 0.0, 0.0): _HALF_TURN_X @ _X_TO_Z,
    (0.0, -1.0, 0.0): _HALF_TURN_X @ _Y_TO_Z,
    (0.0, 0.0, -1.0): _HALF_TURN_X,
}


def rpy_matrix(rpy) -> np.ndarray:
    """Return Rz(yaw) Ry(pitch) Rx(roll), (3, 3), of the angles rpy (3,) [rad]: the URDF's convention."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy), np.cos(rpy)
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return np.array(rows)


def z_rotation(angle: float) -> np.ndarray:
    """Return the rotation (3, 3) by `angle` [rad] about z."""
    return rpy_matrix((0.0, 0.0, angle))


def unit_axis(axis) -> np.ndarray:
    """Return axis (3,) at unit length. Raises ValueError for a zero axis."""
    axis = np.asarray(axis, dtype=float)
    length = np.linalg.norm(axis)
    if axis.shape != (3,) or not 0 < length < np.inf:
        raise ValueError(f"a joint axis needs three finite numbers, not all zero; got {axis.tolist()}")
    return axis / length


def turn_to_z(axis) -> np.ndarray:
    """Return a rotation T (3, 3) with T axis = (0, 0, 1); an exact signed permutation for a coordinate axis.

    +x and +y give the cyclic permutations, any other direction an orthonormal completion of the axis.
    """
    axis = unit_axis(axis)
    exact = _EXACT_TURNS.get(tuple((axis + 0.0).tolist()))  # + 0: no negative zeros in the key
    if exact is not None:
        return exact.copy()
    least = np.eye(3)[np.argmin(np.abs(axis))]
    x = np.cross(least, axis)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(axis, x), axis])


def snap_rotation(R: np.ndarray, tolerance: float = SNAP_TOLERANCE) -> np.ndarray:
    """Return R (3, 3) with entries within `tolerance` of 0 or +-1 made exact, still a rotation.

    A quarter-turn rotation becomes a signed permutation; one that keeps, or swaps, a coordinate axis becomes
    exact in that row and column, and its 2 x 2 rest is normalized; any other is returned unchanged.
    """
    whole = np.round(R)
    near = np.abs(R - whole) <= tolerance
    if near.all():
        return whole + 0.0
    for i, j in np.argwhere(near & (whole != 0)):
        if near[i].all() and near[:, j].all():
            return _snap_about_axis(R, whole, int(i), int(j))
    return R


def snap_vector(axis: np.ndarray, tolerance: float = SNAP_TOLERANCE) -> np.ndarray:
    """Return a unit vector (3,) with all entries made exact if all are within `tolerance` of 0 or +-1."""
    whole = np.round(axis)
    return whole + 0.0 if np.all(np.abs(axis - whole) <= tolerance) else axis


def _snap_about_axis(R: np.ndarray, whole: np.ndarray, i: int, j: int) -> np.ndarray:
    """Make row i and column j exact; the remaining block is a rotation or a reflection of the plane."""
    rows, columns = [k for k in range(3) if k != i], [k for k in range(3) if k != j]
    (a, b), (c, d) = R[np.ix_(rows, columns)]
    sign = np.sign(a * d - b * c)
    cosine, sine = (a + sign * d) / 2, (c - sign * b) / 2
    length = np.hypot(cosine, sine)
    cosine, sine = cosine / length, sine / length
    snapped = whole.copy()
    snapped[np.ix_(rows, columns)] = [[cosine, -sign * sine], [sine, sign * cosine]]
    return snapped + 0.0
