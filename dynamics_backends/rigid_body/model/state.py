"""Configuration and state of a robot: their manifolds, and conversion to Pinocchio's conventions.

Quaternions, the base and local velocities agree with Pinocchio's. Two things differ. Pinocchio sorts the joints of a URDF by
name, while bodies here have the order of the file. Pinocchio represents an angle without limits by its cosine and sine (a
continuous joint, the angle of a planar one); here it is one number. Joints are matched by name. A planar joint converts correctly
only if its normal is z (which is not checked), since Pinocchio ignores the axis of a planar joint in a URDF.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.manifold import SE2, SE3, SO2, SO3, LieGroup, Manifold, vector_space
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, Model

GROUPS = {"spherical": SO3, "planar": SE2, "floating": SE3}


def configuration_groups(model: Model) -> list[LieGroup]:
    """Lie groups of q in order; consecutive single-DoF joints form one vector space, except circular ones: each is an SO(2)."""
    groups: list[LieGroup] = []
    for joint, joint_type in zip(model.joint_names, model.joint_types, strict=True):
        group = SO2 if joint in model.circular else GROUPS.get(joint_type)
        if group is not None:
            groups.append(group)
        elif groups and groups[-1].is_vector_space:
            groups[-1] = vector_space(groups[-1].nq + 1)
        else:
            groups.append(vector_space(1))
    return groups


def configuration_manifold(model: Model) -> Manifold:
    """Manifold of q."""
    return Manifold(configuration_groups(model), [f"q[{n}]" for n in model.dof_names])


def state_manifold(model: Model) -> Manifold:
    """Manifold of x = (q, v)."""
    names = [f"q[{n}]" for n in model.dof_names] + [f"v[{n}]" for n in model.dof_names]
    return Manifold([*configuration_groups(model), vector_space(model.nv)], names)


_CIRCLE = 1  # additional entries of q where an angle is stored as cosine and sine


class PinocchioConverter:
    """Converter of arrays (..., n) between a `Model` and the Pinocchio model of the same robot.

    pin_model is a `pinocchio.Model`; the package itself is not imported here. Raises ValueError if the joints of the two models
    differ in their names, or in their numbers of coordinates or degrees of freedom.
    """

    def __init__(self, model: Model, pin_model):
        self.nq, self.nv = model.nq, model.nv
        self.pin_nq, self.pin_nv = int(pin_model.nq), int(pin_model.nv)
        joints = {str(name): joint for name, joint in zip(pin_model.names, pin_model.joints, strict=True)}
        joints.pop("universe", None)
        _check_joints(model, joints)
        plain: list[tuple[int, int]] = []  # (entry of q, entry of Pinocchio's q)
        angles: list[tuple[int, int]] = []  # (entry of q, entry of the cosine; the sine follows)
        velocities: list[tuple[int, int]] = []
        for b, name in enumerate(model.joint_names):
            nq, nv = JOINT_TYPES[model.joint_types[b]]
            here, there = int(model.q_index[b]), joints[name].idx_q
            circle = joints[name].nq == nq + _CIRCLE
            plain += [(here + i, there + i) for i in range(nq - circle)]
            angles += [(here + nq - 1, there + nq - 1)] * circle
            velocities += [(int(model.v_index[b]) + i, joints[name].idx_v + i) for i in range(nv)]
        self._q, self._pin_q = _columns(plain)
        self._angle, self._cosine = _columns(angles)
        self._v, self._pin_v = _columns(velocities)

    def q_to_pin(self, q: np.ndarray) -> np.ndarray:
        """Return Pinocchio's configurations (..., pin_nq) for q (..., nq)."""
        q = _sized("q", q, self.nq)
        pin_q = np.zeros((*q.shape[:-1], self.pin_nq))
        pin_q[..., self._pin_q] = q[..., self._q]
        pin_q[..., self._cosine] = np.cos(q[..., self._angle])
        pin_q[..., self._cosine + 1] = np.sin(q[..., self._angle])
        return pin_q

    def q_from_pin(self, pin_q: np.ndarray) -> np.ndarray:
        """Return configurations (..., nq) for Pinocchio's (..., pin_nq); angles from cosine and sine are in [-pi, pi]."""
        pin_q = _sized("Pinocchio's q", pin_q, self.pin_nq)
        q = np.zeros((*pin_q.shape[:-1], self.nq))
        q[..., self._q] = pin_q[..., self._pin_q]
        q[..., self._angle] = np.arctan2(pin_q[..., self._cosine + 1], pin_q[..., self._cosine])
        return q

    def v_to_pin(self, v: np.ndarray) -> np.ndarray:
        """Return v (..., nv), or accelerations or joint forces, in Pinocchio's order."""
        v = _sized("v", v, self.nv)
        pin_v = np.zeros((*v.shape[:-1], self.pin_nv))
        pin_v[..., self._pin_v] = v[..., self._v]
        return pin_v

    def v_from_pin(self, pin_v: np.ndarray) -> np.ndarray:
        """Return Pinocchio's v (..., pin_nv), or accelerations or joint forces, in this model's order."""
        pin_v = _sized("Pinocchio's v", pin_v, self.pin_nv)
        v = np.zeros((*pin_v.shape[:-1], self.nv))
        v[..., self._v] = pin_v[..., self._pin_v]
        return v


def _check_joints(model: Model, joints: dict):
    """Raise ValueError if the names, or the numbers of coordinates or DoFs, of Pinocchio's joints differ from the model's.

    A revolute or planar joint may have one more coordinate in Pinocchio.
    """
    missing = sorted(set(model.joint_names) - set(joints))
    extra = sorted(set(joints) - set(model.joint_names))
    if missing or extra:
        raise ValueError(
            f"the models have different joints: only here {missing[:8]}, only in Pinocchio {extra[:8]}; load"
            " both with the same base (fixed or floating) and lock the same joints"
        )
    for name, kind in zip(model.joint_names, model.joint_types, strict=True):
        nq, nv = JOINT_TYPES[kind]
        circles = (nq, nq + _CIRCLE) if kind in ("revolute", "planar") else (nq,)
        if joints[name].nv != nv or joints[name].nq not in circles:
            raise ValueError(
                f"joint {name!r} is {kind} here, with nq {nq} and nv {nv}, and {joints[name].shortname()} in"
                f" Pinocchio, with nq {joints[name].nq} and nv {joints[name].nv}: they cannot be converted"
            )


def _columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """First and second entries of the pairs, as index arrays."""
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _sized(what: str, array, size: int) -> np.ndarray:
    """Convert to an array (..., size) of floats. Raises ValueError for another last axis."""
    array = np.asarray(array, dtype=float)
    if array.shape[-1:] != (size,):
        raise ValueError(f"{what} has shape {array.shape}, expected (..., {size})")
    return array
