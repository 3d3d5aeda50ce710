"""Actuators of an MJCF: inertia and damping that they add to joints, force limits, and control gains.

An actuator's force f moves the joint by gear f.  MuJoCo's force is gain ctrl + b0 + b1 length + b2 velocity: a motor for b = 0, a
position servo for gain = kp, b = (0, -kp, -kv), a velocity servo for gain = kv, b = (0, 0, -kv).  The model's controls are joint
forces, so that gains are reported in notes but not used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.mjcf.source import Names, joint_kind

Range = tuple[float, float]
JOINT_WRAP, SITE_WRAP = 1, 3
"""Types of the elements of a tendon (mjtWrap)."""
NO_LIMIT: Range = (-np.inf, np.inf)


class Actuator(NamedTuple):
    """Actuator of an MJCF.

    joint: the single joint that it drives, or ""; joints, bodies: all that it drives or moves, as far as known; target: description
    of the driven object. gear; kind: "motor", "position", "velocity" or "general"; kp, kv: gains of a servo, else 0; force: its
    range at the joint [N, N m]; armature, damping: added to the joint; activation: True if it has an activation state.
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
    """Joints that a transmission drives, and bodies that it moves."""
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
    """Joints, except free ones, that no actuator drives directly or through a tendon; () without actuators."""
    driven = {joint for actuator in found for joint in actuator.joints}
    free = {names.joints[j] for j in range(m.njnt) if joint_kind(m, j) == "floating"}
    return tuple(name for name in names.joints if found and name not in driven and name not in free)


def _extra(m: Any, field: str, i: int) -> float:
    """Value of a field that older versions of MuJoCo do not have."""
    return float(np.atleast_1d(getattr(m, field)[i])[0]) if hasattr(m, field) else 0.0


def _gains(m: Any, i: int) -> tuple[str, float, float]:
    """Kind of an actuator, kp and kv."""
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
    """Force range of an actuator before its gear."""
    if m.actuator_forcelimited[i]:
        low, high = m.actuator_forcerange[i].tolist()
        return low, high
    if kind == "motor" and m.actuator_ctrllimited[i]:
        return _scaled_range(tuple(m.actuator_ctrlrange[i].tolist()), float(m.actuator_gainprm[i][0]))
    return NO_LIMIT


def _scaled_range(limits: Range, factor: float) -> Range:
    if factor == 0.0:
        return 0.0, 0.0
    low, high = (factor * value for value in limits)
    return min(low, high), max(low, high)


def effort_limits(m: Any, names: Names, found: tuple[Actuator, ...]) -> dict[str, Range]:
    """Force range [N, N m] of each driven or limited joint: that of its actuators within the joint's range."""
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
    """Symmetric bound of a force range: the smaller side; for a one-sided range the larger."""
    sides = [abs(limits[0]), abs(limits[1])]
    return (max(sides) or np.inf) if one_sided(limits) else min(sides)


def one_sided(limits: Range) -> bool:
    """True if a range contains forces of one direction only."""
    return limits[0] >= 0.0 or limits[1] <= 0.0
