"""Equality constraints of an MJCF between bodies, sites or joints.

    connect   the point data[0:3] of the first body is the point data[3:6] of the second
    weld      the frame at data[3:6], rotated by data[6:10], of the first body is the frame at data[0:3] of the second
    joint     q1 - r1 = a0 + a1 (q2 - r2) + a2 (q2 - r2)^2 + ...,  r the references

between bodies; between sites, the sites coincide.  MuJoCo's constraints are soft: the error e follows e'' = -b e' - k e with the
stiffness k and the damping b of `solref`, softened by the impedance; as a hard constraint it has the Baumgarte gains (k, b).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.mjcf.source import Names, enabled, joint_kind, moves, rotation
from dynamics_backends.rigid_body.urdf.mimic import Follower


class Place(NamedTuple):
    """Named frame on a body (0: the world): R (3, 3), p (3,) [m] in the body's frame."""

    name: str
    body: int
    R: np.ndarray
    p: np.ndarray


class Equality(NamedTuple):
    """Equality constraint.

    sides: the two frames of a connect or weld. joints: the two of a joint equality, the second "" if it has one; polynomial a0 ..
    a4 and references (r1, r2). gains (kp [1/s^2], kd [1/s]).
    """

    name: str
    kind: Literal["connect", "weld", "joint"]
    gains: tuple[float, float]
    sides: tuple[Place, ...] = ()
    joints: tuple[str, str] = ("", "")
    polynomial: tuple[float, ...] = ()
    references: tuple[float, float] = (0.0, 0.0)

    @property
    def follower(self) -> Follower | None:
        """First joint as an affine function of the second; None for a polynomial of higher degree, or a single joint."""
        a, (r1, r2) = self.polynomial, self.references
        if self.kind != "joint" or not self.joints[1] or any(a[2:]):
            return None
        return Follower(self.joints[1], a[1], r1 + a[0] - a[1] * r2)


def equalities(m: Any, names: Names) -> tuple[tuple[Equality, ...], tuple[str, ...]]:
    """Supported active equalities, and sentences about the others."""
    found, left = [], []
    for i in range(m.neq if enabled(m, "EQUALITY", "CONSTRAINT") else 0):
        one, reason = _equality(m, names, i)
        if one is not None:
            found.append(one)
        else:
            left.append(f"the equality {names.equalities[i]!r} {reason}: ignored")
    return tuple(found), tuple(left)


def _equality(m: Any, names: Names, i: int) -> tuple[Equality | None, str]:
    import mujoco

    kind, name = mujoco.mjtEq(int(m.eq_type[i])).name.removeprefix("mjEQ_").lower(), names.equalities[i]
    if not m.eq_active0[i]:
        return None, "is not active"
    if kind in ("connect", "weld"):
        sides = _coupled_places(m, names, i, kind)
        if not any(moves(m, side.body) for side in sides):
            return None, "ties bodies that do not move"
        return Equality(name, "weld" if kind == "weld" else "connect", _gains(m, i), sides), ""
    if kind == "joint":
        return _joint_equality(m, names, i, name)
    return None, f"is one of a {kind}, which the model does not have"


def _joint_equality(m: Any, names: Names, i: int, name: str) -> tuple[Equality | None, str]:
    ids = [int(j) for j in (m.eq_obj1id[i], m.eq_obj2id[i]) if j >= 0]
    if any(joint_kind(m, j) not in ("revolute", "prismatic") for j in ids):
        return None, "ties a joint of several degrees of freedom"
    references = [float(m.qpos0[m.jnt_qposadr[j]]) for j in ids] + [0.0]
    tied = [names.joints[j] for j in ids] + [""]
    polynomial = tuple(m.eq_data[i][:5].tolist())
    if len(ids) == 2 and any(polynomial[2:]):
        return None, "is a polynomial of higher degree between two joints"
    joints, at = (tied[0], tied[1]), (references[0], references[1])
    return Equality(name, "joint", _gains(m, i), joints=joints, polynomial=polynomial, references=at), ""


def _coupled_places(m: Any, names: Names, i: int, kind: str) -> tuple[Place, Place]:
    import mujoco

    ids, data = (int(m.eq_obj1id[i]), int(m.eq_obj2id[i])), m.eq_data[i]
    if int(m.eq_objtype[i]) == int(mujoco.mjtObj.mjOBJ_SITE):
        return tuple(  # type: ignore[return-value]
            Place(names.equalities[i], int(m.site_bodyid[s]), rotation(m.site_quat[s]), np.array(m.site_pos[s]))
            for s in ids
        )
    one, name = np.eye(3), names.equalities[i]
    if kind == "connect":
        return Place(name, ids[0], one, np.array(data[:3])), Place(name, ids[1], one, np.array(data[3:6]))
    return Place(name, ids[0], rotation(data[6:10]), np.array(data[3:6])), Place(name, ids[1], one, np.array(data[:3]))


def _gains(m: Any, i: int) -> tuple[float, float]:
    """Gains (kp, kd) of `solref`: (time constant, damping ratio), or (-stiffness, -damping) if negative."""
    a, b = m.eq_solref[i].tolist()
    strength = float(m.eq_solimp[i][1])
    if a <= 0.0:
        return -a / strength**2, -b / strength
    return 1.0 / (strength * a * b) ** 2, 2.0 / (strength * a)


def weld_frames(m: Any, names: Names) -> tuple[Place, ...]:
    """Frames "NAME:1" and "NAME:2" of each weld, which are added to the model."""
    welds = [equality for equality in equalities(m, names)[0] if equality.kind == "weld"]
    return tuple(side._replace(name=f"{side.name}:{i}") for weld in welds for i, side in enumerate(weld.sides, start=1))


def followers(m: Any, names: Names) -> tuple[dict[str, Follower], dict[str, str]]:
    """Follower of each joint that an equality couples to an independent one, and the name of the (first) equality."""
    direct, ties = {}, {}
    for equality in equalities(m, names)[0]:
        follower = equality.follower
        if follower is not None and equality.joints[0] not in direct:
            direct[equality.joints[0]], ties[equality.joints[0]] = follower, equality.name
    return {name: found for name in direct if (found := _resolved(direct, name)) is not None}, ties


def locked_instead(equality: str, joint: str) -> str:
    """Note on a joint that is locked (`mimic="lock"`) because an equality couples it to another one."""
    return f"joint {joint!r} is locked where the equality {equality!r} holds with the other joint at zero"


def _resolved(direct: dict[str, Follower], name: str) -> Follower | None:
    """Follower of an independent joint; None for a cycle."""
    source, multiplier, offset = direct[name]
    seen = {name}
    while source in direct:
        if source in seen:
            return None
        seen.add(source)
        following = direct[source]
        offset, multiplier = offset + multiplier * following.offset, multiplier * following.multiplier
        source = following.source
    return Follower(source, multiplier, offset)
