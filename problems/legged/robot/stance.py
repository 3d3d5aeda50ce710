"""Stance of a legged robot: a posture with the feet at given places relative to the hips.

The *place* of a foot is (foot - hip) / L: forward, left and up from its hip, in leg lengths
(:mod:`~problems.legged.robot.legs`). Robots of all sizes have similar stances for equal places.  The posture for given places is
found by inverse kinematics of each leg, with a level base.  Among several solutions, those with knees toward the
middle of the robot (over flat feet: forward) are preferred, then those near the neutral configuration, or near the middle of the
range of joints whose neutral position is out of range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.kinematics import point_positions
from dynamics_backends.rigid_body.model.model import Frame, Model
from dynamics_backends.rigid_body.model.model_builder import lock_joints
from trajopt.config.task import positions_of
from .legs import Leg, heading, leg_of, lowest_ends, rotate_z, trunk
from .soles import Sole, with_soles, with_tips
from .sprawl import at_height

CROUCH, UPRIGHT = 0.75, 0.9
"""Height of the hips above the feet, for robots on point feet and on flat feet [leg lengths]."""
BASE = (7, 6)
"""Numbers of coordinates and velocities of a floating base."""
ALL = 6
"""Minimum number of joints of a leg that can keep its foot level."""
BEND = 1.2
"""Knee offset of the starts of inverse kinematics [rad]."""
STARTS = 4
"""Number of starts of inverse kinematics."""
UNEVEN = 0.005
"""Largest height of a foot above or below the mean height of all feet [m] without a warning."""
OUTWARD = 0.02
"""Distance of a knee from its hip, away from the middle of the robot, from which on it points outward [leg lengths]."""


@dataclass(frozen=True)
class Stance:
    """Legs of a floating-base robot. legs: in the order of the feet. heading: yaw [rad] of the robot's forward direction in its
    base frame. soles: soles of flat feet, for two legs that can keep them level; the model then has a frame on each sole, and
    these frames are the feet. So are the tips of legs that end at a joint (:func:`~problems.legged.robot.soles.with_tips`)."""

    model: Model
    legs: tuple[Leg, ...]
    heading: float = 0.0
    soles: tuple[Sole, ...] = ()

    @classmethod
    def from_model(cls, model: Model, feet: Sequence[str] = ()) -> Stance:
        """Create the stance. feet: frame names; default: found automatically; left before right, front before hind.

        Raises ValueError for a robot without a floating base, or if feet are not found; UnknownName for an unknown foot.
        """
        if not model.floating_base:
            raise ValueError(f"{model.name} has a fixed base; load it with base = 'floating'")
        found = tuple(feet) or lowest_ends(model)
        facing = heading(model, found)
        legs = tuple(leg_of(model, foot, facing) for foot in found)
        if len(legs) == 2 and all(len(leg.joints) >= ALL for leg in legs):
            model, legs, soles = with_soles(model, legs, facing)
            return cls(model, legs, facing, soles)
        if not feet:
            model, legs = with_tips(model, legs, facing)
        return cls(model, legs, facing)

    @property
    def feet(self) -> tuple[str, ...]:
        """Names of the feet."""
        return tuple(leg.foot for leg in self.legs)

    @property
    def leg_length(self) -> float:
        """Mean leg length L [m]."""
        return float(np.mean([leg.length for leg in self.legs]))

    @property
    def joint_units(self) -> Array:
        """Displacements (nv - 6,) [rad or m] of the joints that weights and gains treat as equal: a radian, or for prismatic joints
        the extension of a leg per radian of its knee [m], at the height CROUCH of a leg of two equal links."""
        sliding = [unit == "m" for unit in self.model.dof_units[6:]]
        return np.where(sliding, 0.5 * self.leg_length * np.sqrt(1.0 - CROUCH**2), 1.0)

    def places(self, joints: Array) -> Array:
        """Return the places (F, 3) [leg lengths] of the feet in a posture (nq - 7,) [rad]."""
        at = [*positions_of(self.model, self.feet, self._level(joints))]
        return np.stack([(p - leg.hip) / leg.length for p, leg in zip(at, self.legs, strict=True)])

    def posture(self, places: Array | None = None) -> Array:
        """Return joints (nq - 7,) [rad] with the feet at places (F, 3), default: below the hips; other joints are at
        :meth:`rest`.

        A leg that cannot reach its place sideways is placed beside it, or at its height only. Raises ValueError for a place out
        of reach.
        """
        height = UPRIGHT if self.soles else CROUCH
        wanted = np.tile([0.0, 0.0, -height], (len(self.legs), 1)) if places is None else places
        joints = self.rest()
        for leg, place in zip(self.legs, wanted, strict=True):
            joints = self._with_foot(leg, place, joints)
        return joints

    def rest(self) -> Array:
        """Return the neutral joint positions (nq - 7,); out-of-range joints are in the middle of their range."""
        nq = BASE[0]
        q, lower, upper = self.model.neutral()[nq:], self.model.q_lower[nq:], self.model.q_upper[nq:]
        low, high = np.where(np.isfinite(lower), lower, upper), np.where(np.isfinite(upper), upper, lower)
        outside = (q < lower) | (q > upper)
        return np.where(outside, 0.5 * (np.where(outside, low, 0.0) + np.where(outside, high, 0.0)), q)

    def configuration(self, joints: Array) -> Array:
        """Return q (nq,) of a posture, with the robot facing along x and the mean foot height at z = 0."""
        q = self._level(joints)
        q[2] = -positions_of(self.model, self.feet, q)[:, 2].mean()
        return q

    def uneven_feet(self, joints: Array) -> tuple[str, ...]:
        """Return a warning if the feet of a posture differ in height by more than UNEVEN, else none."""
        q = self.configuration(joints)
        heights = dict(zip(self.feet, positions_of(self.model, self.feet, q)[:, 2].tolist(), strict=True))
        if max(map(abs, heights.values())) <= UNEVEN:
            return ()
        listed = ", ".join(f"{foot} {1e3 * z:+.0f} mm" for foot, z in heights.items())
        return (
            f"the feet of the posture differ in height from the ground, their mean: {listed}; contacts hold them there: change "
            "problem.joints so that they are level",
        )

    def _level(self, joints: Array) -> Array:
        """Return q (nq,) with a level base at the origin, facing along x."""
        return np.concatenate(
            [np.zeros(3), [0.0, 0.0, np.sin(-0.5 * self.heading), np.cos(0.5 * self.heading)], joints]
        )

    def _with_foot(self, leg: Leg, place: Array, joints: Array) -> Array:
        """Return a posture with another place of one foot; a foot of a leg with six or more joints stays level."""
        rotation = leg.level if len(leg.joints) >= ALL else None
        for aim in (place, place * [1.0, 0.0, 1.0]):
            goal = rotate_z(leg.hip + leg.length * aim, self.heading)
            tried = [
                to.inverse_kinematics(self._bolted, leg.foot, goal, rotation, q0=q0, starts=STARTS)
                for q0 in self._knee_starts(leg, joints)
            ]
            found = np.concatenate([one.solutions[0] for one in tried])
            if len(found):
                return min(found, key=lambda q: (self._points_outward(leg, q), float(np.abs(q - joints).max())))
        sprawled = at_height(self._bolted, leg, leg.hip[2] + leg.length * place[2], joints)
        if sprawled is not None:
            return sprawled
        raise ValueError(
            f"{leg.foot} of {self.model.name} cannot be at {np.round(place, 3).tolist()} leg lengths of {leg.length:.3g} m from "
            f"its hip: {min(one.position_error for one in tried):.2g} m remain; set joints to another posture"
        )

    def _knee_starts(self, leg: Leg, joints: Array) -> list[Array]:
        """Return postures with a leg's knee bent to either side, as starts of inverse kinematics."""
        knee = int(self.model.q_index[leg.knee]) - BASE[0]
        return [joints + bend * np.eye(len(joints))[knee] for bend in (BEND, -BEND)]

    def _points_outward(self, leg: Leg, joints: Array) -> bool:
        """True if a knee points away from the middle of the robot, or backward over a flat foot."""
        at = point_positions(self.model, self._level(joints)[:, None], [(leg.knee, (0.0, 0.0, 0.0))])[0][0, 0]
        from_middle = -1.0 if self.soles else leg.hip[0] - np.mean([other.hip[0] for other in self.legs])
        return bool((at - leg.hip[0]) * np.sign(np.round(from_middle, 6)) > OUTWARD * leg.length)

    def with_legs_only(self) -> Stance:
        """Return the robot with all joints outside the legs locked at :meth:`rest`. Raises ValueError if a joint cannot be
        locked."""
        moved = {i for leg in self.legs for i in leg.joints}
        rest, first = self.rest(), BASE[0]
        places = dict(zip(self.model.joint_names[1:], (self.model.q_index[1:] - first).tolist(), strict=True))
        others = {name: float(rest[i]) for name, i in places.items() if i not in moved}
        if not others:
            return self
        model = lock_joints(self.model, others)
        return replace(self, model=model, legs=tuple(leg_of(model, foot, self.heading) for foot in self.feet))

    @cached_property
    def _bolted(self) -> Model:
        """The robot on a fixed base, with the trunk joints fixed at :meth:`rest`."""
        lower, upper = self.model.q_lower.copy(), self.model.q_upper.copy()
        for b in trunk(self.model):
            i = int(self.model.q_index[b])
            lower[i] = upper[i] = self.rest()[i - BASE[0]]
        return bolted(self.model.replace(q_lower=lower, q_upper=upper))


def bolted(model: Model) -> Model:
    """Fix the floating base of a robot at the origin; q and v are those of the joints."""
    nq, nv = BASE
    cut: Mapping[str, int] = dict.fromkeys(_OF_BODIES, 1) | {"q_lower": nq, "q_upper": nq} | dict.fromkeys(_OF_DOFS, nv)
    parts = {name: getattr(model, name)[first:] for name, first in cut.items()}
    frames = tuple(Frame(f.name, max(f.body - 1, -1), f.R, f.p, f.kind) for f in model.frames)
    return replace(model, **{**parts, "parent": model.parent[1:] - 1, "frames": frames, "coupling": None})


_OF_BODIES = (
    *("body_names", "joint_names", "joint_types", "placement_R", "placement_p"),
    *("mass", "com", "inertia", "pitch"),
)
_OF_DOFS = ("velocity_limit", "effort_limit", "damping", "friction", "armature", "stiffness", "spring_reference")
