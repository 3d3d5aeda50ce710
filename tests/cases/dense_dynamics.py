"""Reference rigid-body dynamics with dense 6 x 6 matrices (Featherstone, RBDA 5.3), one configuration at a time.

It shares no code with the library. Spatial vectors are (angular; linear); numbers may be complex, so that every
function can be differentiated by complex step along `moved`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STEP = 1e-30  # complex step


def skew(a) -> np.ndarray:
    """The matrix of a x."""
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def motion_cross(v) -> np.ndarray:
    """The matrix of v x on motions; that on forces is minus its transpose."""
    return np.block([[skew(v[:3]), np.zeros((3, 3))], [skew(v[3:]), skew(v[:3])]])


def force_cross(v) -> np.ndarray:
    """The matrix of v x* on forces."""
    return -motion_cross(v).T


def motion_transform(R, p) -> np.ndarray:
    """Return the transform of motions from a child frame at (R, p) to its parent."""
    return np.block([[R, np.zeros((3, 3))], [skew(p) @ R, R]])


def spatial_inertia(mass, com, central) -> np.ndarray:
    """The inertia about the origin of a body with its center of mass at com."""
    c = skew(com)
    return np.block([[central + mass * c @ c.T, mass * c], [mass * c.T, mass * np.eye(3)]])


def turn_about_z(angle) -> np.ndarray:
    """The rotation about z."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0.0 * c], [s, c, 0.0 * c], [0.0 * c, 0.0 * c, 1.0 + 0.0 * c]])


def quaternion_rotation(q) -> np.ndarray:
    """The rotation of a unit quaternion x y z w."""
    r = skew(q[:3])
    return np.eye(3) + 2.0 * q[3] * r + 2.0 * r @ r


def joint_pose(kind: str, pitch: float, q) -> tuple[np.ndarray, np.ndarray]:
    """(R, p) of a joint of this type."""
    zero = 0.0 * q[0]
    if kind in ("revolute", "helical"):
        return turn_about_z(q[0]), np.array([zero, zero, pitch * q[0] if kind == "helical" else zero])
    if kind == "prismatic":
        return np.eye(3), np.array([zero, zero, q[0]])
    if kind == "planar":
        return turn_about_z(q[2]), np.array([q[0], q[1], zero])
    if kind == "spherical":
        return quaternion_rotation(q), np.zeros(3)
    return quaternion_rotation(q[3:]), q[:3]


def joint_subspace(kind: str, pitch: float) -> np.ndarray:
    """(6, nv): velocity of the child in its own frame for unit rates."""
    unit = np.eye(6)
    if kind == "helical":
        return (unit[2] + pitch * unit[5])[:, None]
    columns = {"revolute": [2], "prismatic": [5], "spherical": [0, 1, 2], "planar": [3, 4, 2]}
    return unit[:, columns.get(kind, [3, 4, 5, 0, 1, 2])]


class Body(NamedTuple):
    """X: motions of the body to its parent; S (6, n); I (6, 6); its slices of q and v; its parent, -1 the world."""

    X: np.ndarray
    S: np.ndarray
    I: np.ndarray
    dofs: slice
    parent: int


def bodies(model, q) -> list[Body]:
    """The tree at configuration q (nq,)."""
    ends_q, ends_v = [*model.q_index[1:], model.nq], [*model.v_index[1:], model.nv]
    result = []
    for b in range(model.nb):
        kind, pitch = model.joint_types[b], model.pitch[b]
        R, p = joint_pose(kind, pitch, q[model.q_index[b] : ends_q[b]])
        X = motion_transform(model.placement_R[b], model.placement_p[b]) @ motion_transform(R, p)
        inertia = spatial_inertia(model.mass[b], model.com[b], model.inertia[b])
        dofs = slice(int(model.v_index[b]), int(ends_v[b]))
        result.append(Body(X, joint_subspace(kind, pitch), inertia, dofs, int(model.parent[b])))
    return result


def inverse_dynamics(model, q, v, a) -> np.ndarray:
    """Joint forces (nv,)."""
    tree = bodies(model, q)
    ground = np.concatenate([np.zeros(3), -model.gravity])
    velocity, acceleration, force = [], [], []
    for b in tree:
        down = np.linalg.inv(b.X)
        rate = b.S @ v[b.dofs]
        velocity.append(rate + (down @ velocity[b.parent] if b.parent >= 0 else 0.0))
        carried = down @ (acceleration[b.parent] if b.parent >= 0 else ground)
        acceleration.append(carried + b.S @ a[b.dofs] + motion_cross(velocity[-1]) @ rate)
        force.append(b.I @ acceleration[-1] + force_cross(velocity[-1]) @ b.I @ velocity[-1])
    tau = np.zeros(model.nv, dtype=np.result_type(q, v, a))
    for i in reversed(range(model.nb)):
        tau[tree[i].dofs] = tree[i].S.T @ force[i]
        if tree[i].parent >= 0:
            force[tree[i].parent] = force[tree[i].parent] + np.linalg.inv(tree[i].X).T @ force[i]
    for b in tree:  # a rotor of a translation has the momentum r V along an axis that the joint's rotations turn
        momentum = b.S @ (model.armature[b.dofs] * v[b.dofs])
        momentum[:3] = 0.0
        tau[b.dofs] += b.S.T @ force_cross(b.S @ v[b.dofs]) @ momentum
    return tau + model.armature * a


def body_jacobians(model, q) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each body X (its motions to the world's), J (6, nv) in the body's frame, and its inertia."""
    result = []
    for b in bodies(model, q):
        J = np.zeros((6, model.nv), dtype=np.result_type(q, 1.0))
        X = b.X
        if b.parent >= 0:
            X = result[b.parent][0] @ b.X
            J = np.linalg.inv(b.X) @ result[b.parent][1]
        J[:, b.dofs] = b.S
        result.append((X, J, b.I))
    return result


def mass_matrix(model, q) -> np.ndarray:
    """M (nv, nv) = sum of J' I J, and rotors."""
    return sum(J.T @ inertia @ J for _, J, inertia in body_jacobians(model, q)) + np.diag(model.armature)


def momentum(model, q, v) -> np.ndarray:
    """Angular and linear momentum (6,) about the world's origin, without rotors."""
    return sum(np.linalg.inv(X).T @ inertia @ J @ v for X, J, inertia in body_jacobians(model, q))


def energy(model, q, v):
    """Kinetic and potential energy."""
    height = 0.0
    for (X, _, _), mass, com in zip(body_jacobians(model, q), model.mass, model.com, strict=True):
        R, cross = X[:3, :3], X[3:, :3] @ X[:3, :3].T
        p = np.array([cross[2, 1], cross[0, 2], cross[1, 0]])
        height = height - mass * model.gravity @ (R @ com + p)
    return 0.5 * v @ mass_matrix(model, q) @ v, height


def moved(model, q, d) -> np.ndarray:
    """q (+) d to first order in d: exact for the infinitesimal d of a complex step."""
    q = np.array(q, dtype=np.result_type(q, d))
    ends = [*model.q_index[1:], model.nq]
    for b, kind in enumerate(model.joint_types):
        at, step = slice(int(model.q_index[b]), int(ends[b])), d[list(model.dofs(b))]
        if kind in ("spherical", "floating"):
            if kind == "floating":
                q[at][:3] += quaternion_rotation(q[at][3:]) @ step[:3]
            r, half = q[at][-4:].copy(), step[-3:] / 2
            q[at][-4:-1] += r[3] * half + np.cross(r[:3], half)
            q[at][-1] -= r[:3] @ half
        elif kind == "planar":
            q[at] += turn_about_z(q[at][2]) @ step
        else:
            q[at] += step
    return q


def along(function, model, q, direction) -> np.ndarray:
    """The derivative of function(q) along a tangent direction (nv,), by complex step."""
    return np.imag(function(moved(model, q, 1j * STEP * np.asarray(direction)))) / STEP


def configuration_derivative(function, model, q) -> np.ndarray:
    """Derivatives of function(q) along all unit tangents, (..., nv)."""
    return np.stack([along(function, model, q, e) for e in np.eye(model.nv)], axis=-1)
