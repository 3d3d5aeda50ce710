"""Actuators and equality constraints of an MJCF as records.

An actuator's force f moves the joint by gear f.  MuJoCo's force is gain ctrl + b0 + b1 length + b2 velocity: a motor for b = 0, a
position servo for gain = kp, b = (0, -kp, -kv), a velocity servo for gain = kv, b = (0, 0, -kv).  The model's controls are joint
forces, so that gains are reported in notes but not used.

An equality couples bodies, sites or joints:

    connect   the point data[0:3] of the first body is the point data[3:6] of the second
    weld      the frame at data[3:6], rotated by data[6:10], of the first body is the frame at data[0:3] of the second
    joint     q1 - r1 = a0 + a1 (q2 - r2) + a2 (q2 - r2)^2 + ...,  r the references
    tendon    its length is a constant; with a length c1 q1 + c2 q2 it is a joint equality

The first two lines are for bodies; between sites, the sites coincide (connect: their origins).  MuJoCo's constraints are soft:
the error e follows e'' = -b e' - k e with the stiffness k and the damping b of `solref`, softened by the impedance; as a hard
constraint it has the Baumgarte gains (k, b).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.mjcf.source import Names, enabled, joint_kind, moves, rotation
from dynamics_backends.rigid_body.urdf.mimic import Follower

Range = tuple[float, float]
JOINT_WRAP, SITE_WRAP = 1, 3
"""Types of the elements of a tendon (mjtWrap)."""
NO_LIMIT: Range = (-np.inf, np.inf)


class Actuator(NamedTuple):
    """Actuator of an MJCF.

    joint: the joint of one degree of freedom that it drives directly, or ""; joints, bodies: names of the joints that it drives
    and numbers of the bodies that it moves, as far as known; target: description of the driven object. gear: force of the joint
    per force of the actuator; kind: "motor", "position", "velocity" or "general"; kp, kv: gains of a servo, else 0; force: its
    range at the joint [N, N m]; armature, damping: added to those of the joint; activation: True if it has an activation state.
    """

    name: str
    joint: str
    joints: tuple[str, ...]
    bodies: tuple[int, ...]
    target: str
    gear: float
    kind: str
    kp: float
    kv: float
    force: Range
    armature: float = 0.0
    damping: float = 0.0
    activation: bool = False


def actuators(m: Any, names: Names) -> tuple[Actuator, ...]:
    """Actuators of an MjModel."""
    return tuple(_actuator(m, names, i) for i in range(m.nu))


def _actuator(m: Any, names: Names, i: int) -> Actuator:
    """Actuator number i."""
    import mujoco

    transmission = mujoco.mjtTrn(int(m.actuator_trntype[i])).name.removeprefix("mjTRN_")
    target, gear = int(m.actuator_trnid[i][0]), float(m.actuator_gear[i][0])
    direct = transmission in ("JOINT", "JOINTINPARENT") and joint_kind(m, target) in ("revolute", "prismatic")
    joint = names.joints[target] if transmission in ("JOINT", "JOINTINPARENT") else ""
    driven, moved = _driven(m, transmission, target)
    kind, kp, kv = _gains(m, i)
    return Actuator(
        name=m.actuator(i).name or f"actuator{i}",
        joint=joint if direct else "",
        joints=tuple(names.joints[j] for j in driven),
        bodies=moved,
        target=f"joint {joint!r}" if joint else f"a {transmission.lower()}",
        gear=gear,
        kind=kind,
        kp=kp,
        kv=kv,
        force=_scaled_range(_force_range(m, i, kind), gear),
        armature=gear**2 * _extra(m, "actuator_armature", i),
        damping=gear**2 * _extra(m, "actuator_damping", i),
        activation=int(m.actuator_dyntype[i]) != int(mujoco.mjtDyn.mjDYN_NONE),
    )


def _driven(m: Any, transmission: str, target: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers of the joints that a transmission drives, and of the bodies that it moves; both empty for an unknown one."""
    if transmission in ("JOINT", "JOINTINPARENT"):
        return (target,), (int(m.jnt_bodyid[target]),)
    if transmission in ("SITE", "SLIDERCRANK"):
        return (), (int(m.site_bodyid[target]),)
    if transmission == "BODY":
        return (), (target,)
    if transmission != "TENDON":
        return (), ()
    first, count = int(m.tendon_adr[target]), int(m.tendon_num[target])
    wraps = [(int(m.wrap_type[k]), int(m.wrap_objid[k])) for k in range(first, first + count)]
    joints = tuple(obj for kind, obj in wraps if kind == JOINT_WRAP)
    sites = tuple(int(m.site_bodyid[obj]) for kind, obj in wraps if kind == SITE_WRAP)
    return joints, (*(int(m.jnt_bodyid[j]) for j in joints), *sites)


def undriven(m: Any, names: Names, found: tuple[Actuator, ...]) -> tuple[str, ...]:
    """Names of the joints, except free ones, that no actuator drives directly or through a tendon; () without actuators."""
    driven = {joint for actuator in found for joint in actuator.joints}
    free = {names.joints[j] for j in range(m.njnt) if joint_kind(m, j) == "floating"}
    return tuple(name for name in names.joints if found and name not in driven and name not in free)


def _extra(m: Any, field: str, i: int) -> float:
    """Value i of a field (its first entry, if it is an array); 0 in older versions of MuJoCo, which do not have it."""
    return float(np.atleast_1d(getattr(m, field)[i])[0]) if hasattr(m, field) else 0.0


def _gains(m: Any, i: int) -> tuple[str, float, float]:
    """Kind of an actuator, kp and kv, from its gain and bias.

    With a fixed gain, it is a "motor" without bias, and "position" or "velocity" for a servo's gain and bias; all others are
    "general". Gains that do not apply are 0.
    """
    import mujoco

    fixed = int(m.actuator_gaintype[i]) == int(mujoco.mjtGain.mjGAIN_FIXED)
    bias, gain = int(m.actuator_biastype[i]), float(m.actuator_gainprm[i][0])
    b0, b1, b2 = m.actuator_biasprm[i][:3].tolist()
    if fixed and bias == int(mujoco.mjtBias.mjBIAS_NONE):
        return "motor", 0.0, 0.0
    if fixed and bias == int(mujoco.mjtBias.mjBIAS_AFFINE) and b0 == 0.0:
        if gain == -b1 and gain != 0.0:
            return "position", gain, 0.0 - b2
        if b1 == 0.0 and gain == -b2:
            return "velocity", 0.0, gain
    return "general", 0.0, 0.0


def _force_range(m: Any, i: int, kind: str) -> Range:
    """Force range of an actuator before its gear: its forcerange, within which for a motor the control range times the gain.

    NO_LIMIT if neither is limited.
    """
    low, high = m.actuator_forcerange[i].tolist() if m.actuator_forcelimited[i] else NO_LIMIT
    if kind == "motor" and m.actuator_ctrllimited[i]:
        own = _scaled_range(tuple(m.actuator_ctrlrange[i].tolist()), float(m.actuator_gainprm[i][0]))
        low, high = (min(max(value, low), high) for value in own)
    return low, high


def _scaled_range(limits: Range, factor: float) -> Range:
    """Range times a factor, which may be negative; (0, 0) for a factor of 0."""
    if factor == 0.0:
        return 0.0, 0.0
    low, high = (factor * value for value in limits)
    return min(low, high), max(low, high)


def effort_limits(m: Any, names: Names, found: tuple[Actuator, ...]) -> dict[str, Range]:
    """Force range [N, N m] by joint, of joints with an actuator (:attr:`Actuator.joint`) or a force range of their own.

    It is the sum of the ranges of the joint's actuators, intersected with its own range (actuatorfrcrange).
    """
    limits: dict[str, Range] = {}
    for actuator in found:
        if actuator.joint:
            low, high = limits.get(actuator.joint, (0.0, 0.0))
            limits[actuator.joint] = low + actuator.force[0], high + actuator.force[1]
    for i in np.flatnonzero(m.jnt_actfrclimited).tolist():
        low, high = limits.get(names.joints[i], NO_LIMIT)
        own = m.jnt_actfrcrange[i].tolist()
        limits[names.joints[i]] = max(low, own[0]), min(high, own[1])
    return limits


def effort_limit(limits: Range) -> float:
    """Symmetric bound of a force range: the smaller side; for a one-sided range the larger side; infinite for (0, 0)."""
    sides = [abs(limits[0]), abs(limits[1])]
    return (max(sides) or np.inf) if one_sided(limits) else min(sides)


def one_sided(limits: Range) -> bool:
    """True if a range contains forces of at most one direction, as (0, 0) does."""
    return limits[0] >= 0.0 or limits[1] <= 0.0


class Place(NamedTuple):
    """Named frame on a body (0: the world): R (3, 3), p (3,) [m] in the body's frame."""

    name: str
    body: int
    R: np.ndarray
    p: np.ndarray


class Equality(NamedTuple):
    """Equality constraint.

    sides: the two frames of a connect or weld. joints: the two of a joint equality, the second "" if it fixes a single joint;
    polynomial: its coefficients a0 .. a4; references (r1, r2). gains: Baumgarte gains (kp [1/s^2], kd [1/s]).
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
        """First joint as an affine function of the second.

        None for a connect or weld, for a polynomial of higher degree, and for a single joint.
        """
        a, (r1, r2) = self.polynomial, self.references
        if self.kind != "joint" or not self.joints[1] or any(a[2:]):
            return None
        return Follower(self.joints[1], a[1], r1 + a[0] - a[1] * r2)


IDLE = "is not active", "ties bodies that do not move"
"""Reasons for which an equality has no effect, in MuJoCo either."""


def equalities(m: Any, names: Names) -> tuple[tuple[Equality, ...], tuple[str, ...], tuple[str, ...]]:
    """Supported active equalities, and a sentence about each unsupported one and about each one without effect.

    All are empty if the file disables equalities.
    """
    found: list[Equality] = []
    left: list[str] = []
    idle: list[str] = []
    for i in range(m.neq if enabled(m, "EQUALITY", "CONSTRAINT") else 0):
        one, reason = _equality(m, names, i)
        if one is not None:
            found.append(one)
        else:
            (idle if reason in IDLE else left).append(f"the equality {names.equalities[i]!r} {reason}: ignored")
    return tuple(found), tuple(left), tuple(idle)


def _equality(m: Any, names: Names, i: int) -> tuple[Equality | None, str]:
    """Equality number i and "", or None and the reason why it is ignored."""
    import mujoco

    kind, name = mujoco.mjtEq(int(m.eq_type[i])).name.removeprefix("mjEQ_").lower(), names.equalities[i]
    if not m.eq_active0[i]:
        return None, IDLE[0]
    if kind in ("connect", "weld"):
        sides = _coupled_places(m, names, i, kind)
        if not any(moves(m, side.body) for side in sides):
            return None, IDLE[1]
        return Equality(name, "weld" if kind == "weld" else "connect", _baumgarte_gains(m, i), sides), ""
    if kind == "joint":
        return _joint_equality(m, names, i, name)
    if kind == "tendon":
        return _tendon_equality(m, names, i, name)
    return None, f"is one of a {kind}, which the model does not have"


def _joint_equality(m: Any, names: Names, i: int, name: str) -> tuple[Equality | None, str]:
    """Equality number i, of joints, and ""; or None and the reason why it is ignored.

    The first joint follows the second, unless the first alone has an actuator, and no other equality of joints names the second.
    """
    ids = [int(j) for j in (m.eq_obj1id[i], m.eq_obj2id[i]) if j >= 0]
    if any(joint_kind(m, j) not in ("revolute", "prismatic") for j in ids):
        return None, "ties a joint of several degrees of freedom"
    references = [float(m.qpos0[m.jnt_qposadr[j]]) for j in ids] + [0.0]
    tied = [names.joints[j] for j in ids] + [""]
    polynomial = tuple(m.eq_data[i][:5].tolist())
    if len(ids) == 2 and any(polynomial[2:]):
        return None, "is a polynomial of higher degree between two joints"
    joints, at = (tied[0], tied[1]), (references[0], references[1])
    if len(ids) == 2 and polynomial[1] and _is_led_by_first(m, i):
        joints, at = joints[::-1], at[::-1]
        polynomial = (-polynomial[0] / polynomial[1], 1.0 / polynomial[1], 0.0, 0.0, 0.0)
    return Equality(name, "joint", _baumgarte_gains(m, i), joints=joints, polynomial=polynomial, references=at), ""


def _is_led_by_first(m: Any, i: int) -> bool:
    """True if only the first joint of equality number i has an actuator, and no other equality of joints names the second."""
    of_joints = np.flatnonzero(m.eq_type == m.eq_type[i])
    first, second = m.eq_obj1id[i], m.eq_obj2id[i]
    names = [*m.eq_obj1id[of_joints], *m.eq_obj2id[of_joints]]
    driven = _driven_joints(m)
    return first in driven and second not in driven and names.count(second) == 1


def _tendon_equality(m: Any, names: Names, i: int, name: str) -> tuple[Equality | None, str]:
    """Equality number i, of the length c1 q1 + c2 q2 of one tendon, as a joint equality, and ""; or None and the reason.

    The joint with the larger number follows the other one, unless it alone has an actuator.
    """
    tendon, driven = int(m.eq_obj1id[i]), _driven_joints(m)
    wraps = range(int(m.tendon_adr[tendon]), int(m.tendon_adr[tendon]) + int(m.tendon_num[tendon]))
    of_joints = all(m.wrap_type[k] == JOINT_WRAP and m.wrap_prm[k] for k in wraps)
    if m.eq_obj2id[i] >= 0 or not of_joints or len(wraps) != 2 or len({int(m.wrap_objid[k]) for k in wraps}) != 2:
        return None, "is not of one fixed tendon of two joints"
    source, joint = sorted(wraps, key=lambda k: (m.wrap_objid[k] not in driven, m.wrap_objid[k]))
    a, b = (float(m.wrap_prm[k]) for k in (joint, source))
    length = float(m.tendon_length0[tendon] + m.eq_data[i][0])
    joints = names.joints[m.wrap_objid[joint]], names.joints[m.wrap_objid[source]]
    polynomial = (length / a, -b / a, 0.0, 0.0, 0.0)
    return Equality(name, "joint", _baumgarte_gains(m, i), joints=joints, polynomial=polynomial), ""


def _driven_joints(m: Any) -> set[int]:
    """Numbers of the joints that actuators drive directly, not by a tendon."""
    import mujoco

    kinds = [int(kind) for kind in (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)]
    return {int(j) for j in m.actuator_trnid[np.isin(m.actuator_trntype, kinds), 0]}


def _coupled_places(m: Any, names: Names, i: int, kind: str) -> tuple[Place, Place]:
    """Frames that a weld makes coincide; of a connect, only their origins coincide."""
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


def _baumgarte_gains(m: Any, i: int) -> tuple[float, float]:
    """Gains (kp, kd) of equality i from `solref`, (time constant, damping ratio), or (-stiffness, -damping) if negative.

    kd is divided by the largest impedance of `solimp`, kp by its square, as in MuJoCo.
    """
    a, b = m.eq_solref[i].tolist()
    strength = float(m.eq_solimp[i][1])
    if a <= 0.0:
        return -a / strength**2, -b / strength
    return 1.0 / (strength * a * b) ** 2, 2.0 / (strength * a)


def weld_frames(m: Any, names: Names) -> tuple[Place, ...]:
    """Frames "NAME:1" and "NAME:2" of each supported weld, NAME that of the equality; the loader adds them to the model."""
    welds = [equality for equality in equalities(m, names)[0] if equality.kind == "weld"]
    return tuple(side._replace(name=f"{side.name}:{i}") for weld in welds for i, side in enumerate(weld.sides, start=1))


def followers(m: Any, names: Names) -> tuple[dict[str, Follower], dict[str, str]]:
    """Follower of each joint that equalities make an affine function of an independent joint, and names of equalities by joint.

    Of several equalities of a joint, the first counts. Joints in a cycle have no follower.
    """
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
    """Follower of joint ``name``, with the chain of joints that it follows replaced by the independent joint at the end.

    direct: relations of the equalities. None if the chain runs into a cycle.
    """
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
