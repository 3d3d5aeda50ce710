"""Reference forward kinematics of one configuration; it shares no algorithm with the library."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation


def homogeneous(R, p) -> np.ndarray:
    """Return the (4, 4) matrix of a placement."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = R, p
    return matrix


def joint_matrix(kind: str, pitch: float, q: np.ndarray) -> np.ndarray:
    """Return the (4, 4) placement of a joint of this type at q."""
    if kind in ("revolute", "helical"):
        return homogeneous(Rotation.from_rotvec([0, 0, q[0]]).as_matrix(), [0, 0, pitch * q[0]])
    if kind == "prismatic":
        return homogeneous(np.eye(3), [0, 0, q[0]])
    if kind == "planar":
        return homogeneous(Rotation.from_rotvec([0, 0, q[2]]).as_matrix(), [q[0], q[1], 0])
    if kind == "spherical":
        return homogeneous(Rotation.from_quat(q).as_matrix(), np.zeros(3))
    return homogeneous(Rotation.from_quat(q[3:]).as_matrix(), q[:3])


def body_matrices(model, q: np.ndarray) -> list[np.ndarray]:
    """Return the (4, 4) placement in the world of each internal frame; the world's own is last."""
    placements = [np.eye(4)] * (model.nb + 1)
    ends = [*model.q_index[1:], model.nq]
    for b in range(model.nb):
        here = homogeneous(model.placement_R[b], model.placement_p[b])
        joint = joint_matrix(model.joint_types[b], model.pitch[b], q[model.q_index[b] : ends[b]])
        placements[b] = placements[model.parent[b]] @ here @ joint  # parent -1 is the last entry
    return placements


def frame_matrices(model, q: np.ndarray) -> list[np.ndarray]:
    """Return the (4, 4) placement in the world of each frame of the model."""
    bodies = body_matrices(model, q)
    return [bodies[frame.body] @ homogeneous(frame.R, frame.p) for frame in model.frames]


def world_inertias(model, q: np.ndarray) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Return mass, center of mass and inertia about it, in the world's axes, of each body."""
    result = []
    for b, placement in enumerate(body_matrices(model, q)[:-1]):
        R, p = placement[:3, :3], placement[:3, 3]
        result.append((model.mass[b], R @ model.com[b] + p, R @ model.inertia[b] @ R.T))
    return result
