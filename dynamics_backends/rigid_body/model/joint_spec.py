"""Specification of a joint without its placement: type, axis, limits, friction, springs and rotor inertia."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynamics_backends.rigid_body.model.model import JOINT_TYPES

Q_FIELDS, V_FIELDS = (
    ("q_lower", "q_upper"),
    ("velocity_limit", "effort_limit", "damping", "friction", "armature", "stiffness", "spring_reference"),
)
"""Values of a joint for each coordinate, and for each degree of freedom."""
AXIAL = ("revolute", "prismatic", "helical", "planar")
"""Joint types with an axis."""
Values = float | Sequence[float] | np.ndarray
"""One number, or one for each coordinate or degree of freedom."""


@dataclass(frozen=True, eq=False)
class JointSpec:
    """Joint of one of JOINT_TYPES, or "fixed".

    name: default that of its link + "_joint", none for a fixed joint.  axis (3,), or the normal of a planar joint, in the link's
    frame.  pitch [m/rad] of a helical joint.  Units are SI by degree of freedom, with angles in rad: limits of position [m, rad],
    velocity [m/s, rad/s] and effort [N, N m]; viscous damping [N s/m, N m s/rad]; dry friction [N, N m]; armature, the rotor
    inertia at the joint [kg, kg m^2]; stiffness [N/m, N m/rad] of a spring with the force -stiffness (q - spring_reference), at
    joints of one degree of freedom.
    """

    kind: str = "revolute"
    name: str | None = None
    axis: Sequence[float] | np.ndarray = (0.0, 0.0, 1.0)
    pitch: float = 0.0
    q_lower: Values = -np.inf
    q_upper: Values = np.inf
    velocity_limit: Values = np.inf
    effort_limit: Values = np.inf
    damping: Values = 0.0
    friction: Values = 0.0
    armature: Values = 0.0
    stiffness: Values = 0.0
    spring_reference: Values = 0.0

    def values(self, name: str) -> dict[str, np.ndarray]:
        """Values of Q_FIELDS (nq,) and V_FIELDS (nv,) of the joint ``name``, repeated for its coordinates and degrees of freedom.

        Raises ValueError for an unknown type, or values that do not fit it.
        """
        if self.kind not in JOINT_TYPES:
            known = ", ".join([*JOINT_TYPES, "fixed"])
            raise ValueError(f"joint {name!r} has the unknown type {self.kind!r}; known: {known}")
        nq, nv = JOINT_TYPES[self.kind]
        spread = {key: self._spread(name, key, nq) for key in Q_FIELDS}
        spread |= {key: self._spread(name, key, nv) for key in V_FIELDS}
        if nq > nv and (np.isfinite(spread["q_lower"]).any() or np.isfinite(spread["q_upper"]).any()):
            raise ValueError(f"joint {name!r}: a {self.kind} joint takes no position limits (a quaternion has none)")
        return spread

    def _spread(self, name: str, key: str, size: int) -> np.ndarray:
        try:
            return np.broadcast_to(np.asarray(getattr(self, key), dtype=float), (size,))
        except ValueError:
            raise ValueError(f"joint {name!r}: {key} needs one number, or {size}") from None
