"""Constant rotations of a model: roll-pitch-yaw, rotation of joint axes to +z, snapping of rounded numbers.

R, with the columns of frame b in frame a, transforms coordinates from b to a. These are plain float64 functions, used while a model
is built; the scalar-generic ones of the algorithms are elsewhere.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.rigid_body.spatial.spatial import leaves, rotation_of_quaternion

ROUNDED = 1e-3
"""Maximum deviation that counts as rounding: of a quaternion's norm from 1, of an entry of R'R from the identity, and of an angle
[rad] beyond 2 pi.
"""
EXACT = 1e-12
"""A matrix R is used unchanged if no entry of R'R deviates from the identity by more than this."""
GIMBAL_LOCK = 1e-9
"""Cosine of the pitch below which roll and yaw count as rotations about the same axis."""
DECIMALS = 12
"""Maximum number of decimals of numbers that count as rounded."""
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


def rpy_angles(R: np.ndarray) -> np.ndarray:
    """Return roll, pitch, yaw (..., 3) [rad] of rotations (..., 3, 3), the inverse of :func:`rpy_matrix`; pitch in [-pi/2, pi/2].

    At a pitch of +-pi/2 (cosine below GIMBAL_LOCK) only the sum or difference of roll and yaw is defined; the roll is set to 0.
    """
    R = np.asarray(R, dtype=float)
    cosine = np.hypot(R[..., 0, 0], R[..., 1, 0])
    singular = cosine < GIMBAL_LOCK
    roll = np.where(singular, 0.0, np.arctan2(R[..., 2, 1], R[..., 2, 2]))
    pitch = np.arctan2(-R[..., 2, 0], cosine)
    yaw = np.where(singular, np.arctan2(-R[..., 0, 1], R[..., 1, 1]), np.arctan2(R[..., 1, 0], R[..., 0, 0]))
    return np.stack([roll, pitch, yaw], axis=-1)


def rotation_matrix(orientation, what: str = "the orientation") -> np.ndarray:
    """Return the rotation matrix of an orientation in one of three forms.

    | shape | form |
    |---|---|
    | (3,), or (N, 3) | roll, pitch, yaw [rad], Rz(yaw) Ry(pitch) Rx(roll), as in a URDF |
    | (4,), or (N, 4) | a unit quaternion, in the order x, y, z, w |
    | (3, 3), or (N, 3, 3) | a rotation matrix |

    An array (3, 3) is a matrix. Rounded numbers are made exact: a quaternion is normalized, a matrix replaced by the nearest
    rotation, and a single orientation of at most DECIMALS decimals that maps a coordinate axis to one within SNAP_TOLERANCE does so
    exactly (:func:`snap_rotation`), as [3.1416, 0, 0]: an arm without a roll joint reaches a tool that points down, but hardly one
    that is tilted by 7e-6 rad.

    Raises ValueError with the name ``what`` for another shape, numbers that are not finite, a quaternion whose norm deviates from 1
    by more than 1e-3, a matrix with a negative determinant or an entry of R'R that deviates from the identity by more than 1e-3,
    and angles beyond 2 pi by more than 1e-3.

    >>> rotation_matrix([0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)]).round(12) + 0.0
    array([[ 0., -1.,  0.],
           [ 1.,  0.,  0.],
           [ 0.,  0.,  1.]])
    """
    given = np.asarray(orientation, dtype=float)
    if not np.isfinite(given).all():
        raise ValueError(f"{what} is {given.tolist()}: give finite numbers")
    R = _matrices(given, what)
    rounded = R.ndim == 2 and np.array_equal(np.round(given, DECIMALS), given)
    return snap_rotation(R) if rounded else R


def _matrices(given: np.ndarray, what: str) -> np.ndarray:
    """Return the rotation matrices of finite numbers in one of the forms of :func:`rotation_matrix`, with its errors."""
    if given.shape[-2:] == (3, 3):
        return _nearest_rotations(given, what)
    if given.ndim in (1, 2) and given.shape[-1] == 4:
        return quaternion_matrices(given, what)
    if given.ndim in (1, 2) and given.shape[-1] == 3:
        if np.abs(given).max() > 2.0 * np.pi + ROUNDED:
            raise ValueError(f"{what} is {given.tolist()}: roll, pitch, yaw are in radians, within +-2 pi (degrees?)")
        return np.array([rpy_matrix(angles) for angles in given]) if given.ndim == 2 else rpy_matrix(given)
    raise ValueError(
        f"{what} has shape {given.shape}; expected roll, pitch, yaw (3,), a quaternion x, y, z, w (4,), or a rotation"
        " matrix (3, 3)"
    )


def _nearest_rotations(R: np.ndarray, what: str) -> np.ndarray:
    """Nearest rotations to R (..., 3, 3), which itself is returned if R'R is the identity within EXACT.

    Raises ValueError with the name ``what`` for a negative determinant, or an entry of R'R off the identity by more than ROUNDED.
    """
    error = np.abs(np.swapaxes(R, -1, -2) @ R - np.eye(3)).max()
    if error > ROUNDED or np.any(np.linalg.det(R) < 0.0):
        mirrored = ", and it mirrors (determinant -1)" if error <= ROUNDED else ""
        raise ValueError(f"{what} is not a rotation (R'R - 1 reaches {error:.1e}{mirrored}): orthonormalize it")
    if error <= EXACT:
        return R.copy()
    U, _, Vt = np.linalg.svd(R)
    return U @ Vt


def quaternion_matrices(quaternion: np.ndarray, what: str) -> np.ndarray:
    """Rotations (..., 3, 3) of quaternions x y z w (..., 4). Raises ValueError if a norm is not 1 up to ROUNDED."""
    norm = np.linalg.norm(quaternion, axis=-1, keepdims=True)
    worst = norm.ravel()[np.argmax(np.abs(norm - 1.0))]
    if not abs(worst - 1.0) <= ROUNDED:
        raise ValueError(
            f"{what} is {quaternion.tolist()}: a quaternion x, y, z, w of norm {worst:.4g}; divide it by its norm"
        )
    return np.moveaxis(unit_quaternion_matrix(np.moveaxis(quaternion / norm, -1, 0)), (0, 1), (-2, -1))


def unit_quaternion_matrix(quaternion) -> np.ndarray:
    """Return the rotation (3, 3) of a unit quaternion x y z w (4,), or rotations (3, 3, N) of quaternions (4, N)."""
    R = rotation_of_quaternion(*quaternion).transpose()
    return np.array([leaves(row) for row in (R.a, R.b, R.c)])


def rotation_angle(a: np.ndarray, b: np.ndarray) -> float:
    """Return the angle [rad] between two rotations (3, 3)."""
    relative = a.T @ b
    skew = [relative[2, 1] - relative[1, 2], relative[0, 2] - relative[2, 0], relative[1, 0] - relative[0, 1]]
    return float(np.arctan2(np.linalg.norm(skew), np.trace(relative) - 1.0))


def z_rotation(angle: float) -> np.ndarray:
    """Return the rotation (3, 3) by `angle` [rad] about z."""
    return rpy_matrix((0.0, 0.0, angle))


def unit_axis(axis) -> np.ndarray:
    """Return axis (3,) at unit length. Raises ValueError for a zero axis, another shape, or numbers that are not finite."""
    axis = np.asarray(axis, dtype=float)
    length = np.linalg.norm(axis)
    if axis.shape != (3,) or not 0 < length < np.inf:
        raise ValueError(f"a joint axis needs three finite numbers, not all zero; got {axis.tolist()}")
    return axis / length


def turn_to_z(axis) -> np.ndarray:
    """Return a rotation T (3, 3) with T axis = (0, 0, 1); an exact signed permutation for a coordinate axis.

    +z gives the identity, +x and +y cyclic permutations, -x, -y and -z the same followed by a half turn about x. Any other
    direction gives an orthonormal completion of the axis. Raises ValueError as :func:`unit_axis`.
    """
    axis = unit_axis(axis)
    exact = _EXACT_TURNS.get(tuple((axis + 0.0).tolist()))  # + 0: no negative zeros in the key
    if exact is not None:
        return exact.copy()
    return frame_along(axis).T


def frame_along(z: np.ndarray) -> np.ndarray:
    """Return a rotation (3, 3) whose third column is the unit vector z (3,)."""
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z])


def segment_frame(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return a rotation (3, 3) with its z axis along the segment from a to b (3,), the middle (3,) and the length.

    The z axis of a segment without length is (0, 0, 1).
    """
    along = b - a
    length = float(np.linalg.norm(along))
    return frame_along(along / length if length else np.array([0.0, 0.0, 1.0])), 0.5 * (a + b), length


def snap_rotation(R: np.ndarray, tolerance: float = SNAP_TOLERANCE) -> np.ndarray:
    """Return a rotation R (3, 3) without the rounding errors of turns that map coordinate axes to coordinate axes.

    If all entries are within `tolerance` of 0 or +-1, R becomes a signed permutation.  If those of one row and of one column are,
    both become exact, and the remaining 2 x 2 block is normalized.  Otherwise R is returned unchanged.
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
    """Return a unit vector (3,), with all entries made exact if all are within `tolerance` of 0 or +-1, else unchanged."""
    whole = np.round(axis)
    return whole + 0.0 if np.all(np.abs(axis - whole) <= tolerance) else axis


def _snap_about_axis(R: np.ndarray, whole: np.ndarray, i: int, j: int) -> np.ndarray:
    """Return R with row i and column j of ``whole``, the rounded R, and a normalized remaining block.

    The block is a rotation or a reflection of the plane.
    """
    rows, columns = [k for k in range(3) if k != i], [k for k in range(3) if k != j]
    (a, b), (c, d) = R[np.ix_(rows, columns)]
    sign = np.sign(a * d - b * c)
    cosine, sine = (a + sign * d) / 2, (c - sign * b) / 2
    length = np.hypot(cosine, sine)
    cosine, sine = cosine / length, sine / length
    snapped = whole.copy()
    snapped[np.ix_(rows, columns)] = [[cosine, -sign * sine], [sine, sign * cosine]]
    return snapped + 0.0
