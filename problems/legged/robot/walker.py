"""Settings of a legged robot: feet, posture, and scaling of settings from another robot."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.robots import named_posture
from trajopt.config.task import Checked, Checks
from ...robots.loading import load_floating_base
from .similarity import Change, Scale, Units, scaled_values, value_at, with_values
from .stance import Stance


class StandingPose(NamedTuple):
    """A robot in its standing posture. joints (nq - 7,) [rad]."""

    stance: Stance
    joints: Array

    @property
    def model(self) -> Model:
        """The robot."""
        return self.stance.model

    @property
    def q(self) -> Array:
        """Configuration (nq,) with the feet on the ground z = 0."""
        return self.stance.configuration(self.joints)

    @property
    def yaw(self) -> float:
        """Yaw of the base [rad] for which the robot faces along x."""
        return -self.stance.heading

    @property
    def weight_per_foot(self) -> float:
        """Weight per foot [N]."""
        weight = self.model.total_mass * float(np.linalg.norm(self.model.gravity))
        return weight / len(self.stance.legs)

    def control_weights(self, weight: float) -> Array:
        """Return the weights (nu,) of the torques and of the forces of prismatic joints, for a weight of torques [1/(N m)^2]."""
        return weight * self.stance.joint_units**2

    def notes(self) -> tuple[str, ...]:
        """Return a sentence about the standing posture, and one for each sole, for ``trajopt validate``."""
        model, s = self.model, self.stance
        stands = f"{model.name} stands on {', '.join(s.feet)}, its base {self.q[2]:.3f} m high on legs of {s.leg_length:.3f} m"
        if s.heading:
            stands += "; it faces along the y axis of its base"
        return (stands, *(sole.sentence for sole in s.soles))


@dataclass(frozen=True, kw_only=True)
class LeggedRobot(Checked):
    """Settings of the robot.

    Defaults of all settings are those of HyQ; configurations scale them to their robot.

    robot: a bundled name, "erd:NAME", or the path of a URDF or MJCF file. package_dirs: folders that contain the packages
    of its meshes (package://), in addition to those of ROS_PACKAGE_PATH. feet: frames that touch the ground, left front,
    right front, left hind, right hind; default: found automatically. joints: posture [rad], or the name of a posture of the
    robot's SRDF; default: feet below the hips. other_joints: joints that belong to no leg, "free" or "rigid" at their
    neutral positions. torque_limits: bound the controls by the effort limits of the robot. position_limits: constrain the
    joint positions to their limits. velocity_limits: constrain the joint velocities to their limits.
    """

    robot: str = "hyq"
    package_dirs: tuple[str, ...] = ()
    feet: tuple[str, ...] = ()
    joints: str | tuple[float, ...] = ()
    other_joints: Literal["free", "rigid"] = "free"
    torque_limits: bool = False
    position_limits: bool = False
    velocity_limits: bool = False

    def checks(self) -> Checks:
        return super().checks() | {"feet": (len(set(self.feet)) == len(self.feet), "distinct names of frames")}

    def stand(self) -> StandingPose:
        """Return the robot in its standing posture.

        Raises UnknownName for an unknown robot or foot, FileNotFoundError, URDFError, ValueError if feet are not found or a
        posture does not match the robot.
        """
        stance = self._stance()
        return StandingPose(stance, posture(stance.model, self.joints, "joints") if self.joints else stance.posture())

    def units(self) -> dict[str, Units]:
        """Return the units of all settings that scale with the robot's size, by dotted key."""
        return {}

    def heights(self) -> tuple[str, ...]:
        """Return the dotted keys of base heights that are set."""
        return ()

    def postures(self) -> tuple[str, ...]:
        """Return the dotted keys of postures other than ``joints`` that are set."""
        return ()

    def completed(self) -> Self:
        """Return these settings with the defaults of schemaless tables written out."""
        return self

    @classmethod
    def robot_settings(cls) -> type[LeggedRobot]:
        """Return the class of the ``reference`` of :meth:`carried_over`."""
        return LeggedRobot

    def carried_over(self, reference: LeggedRobot, given: Collection[str] = ()) -> tuple[Self, tuple[str, ...]]:
        """Scale settings that were chosen for another robot to ``robot``; also return a sentence for each change.

        Numbers are scaled by dynamic similarity (:mod:`~problems.legged.robot.similarity`). Postures keep the foot places, in leg
        lengths. Base heights keep their difference from the standing height, in leg lengths.

        reference: the robot that the numbers are for, with its feet, joints and other_joints. given: dotted keys whose values are
        already for ``robot`` and are not scaled. Raises the errors of :meth:`stand`, SettingsError.
        """
        settings, changes, scaled = self._carried_over(reference, given)
        head = f"numbers for {scaled}; settings given for that robot are unchanged:"
        return settings, (head, *(f"  {change.sentence()}" for change in changes))

    def with_scaled_defaults(self, given: Collection[str]) -> tuple[Self, tuple[str, ...]]:
        """Scale defaults from the default robot to ``robot``; also return a sentence about it, if a number changes.

        given: dotted keys whose values are not defaults. Raises the errors of :meth:`carried_over`.
        """
        given = {*given, "feet", "joints", *self.heights(), *self.postures()}
        settings, changes, scaled = self._carried_over(LeggedRobot(), given)
        note = f"defaults for {scaled}; the config.toml of results contains them"
        return (settings, (note,)) if changes else (self, ())

    def _carried_over(self, reference: LeggedRobot, given: Collection[str]) -> tuple[Self, list[Change], str]:
        """Return the settings of :meth:`carried_over`, the changes, and a clause about the robots and their scale."""
        before = reference.stand()
        feet = self.feet if "feet" in given else ()
        stance = LeggedRobot(
            robot=self.robot, feet=feet, other_joints=self.other_joints, package_dirs=self.package_dirs
        )._stance()
        old, new = before.stance, stance.model
        alike = len(old.legs) == len(stance.legs)
        scale = Scale(new.total_mass / old.model.total_mass, stance.leg_length / old.leg_length)
        settings = replace(self.completed(), feet=feet)
        changes = scaled_values(settings, scale, settings.units(), given)
        if reference.feet and not feet:
            changes.append(Change("feet", reference.feet, stance.feet, f"found in {new.name}"))
        if "joints" in given:
            joints = posture(new, self.joints, "joints") if self.joints else stance.posture()
        else:
            joints = stance.posture(old.places(before.joints) if alike else None)
            changes.append(Change("joints", before.joints.tolist(), joints.tolist(), PLACES))
        for key in settings.postures():
            if key not in given:
                given_joints = posture(old.model, value_at(settings, key), key)
                after = stance.posture(old.places(given_joints)) if alike else joints
                changes.append(Change(key, given_joints.tolist(), after.tolist(), PLACES))
        standing = float(stance.configuration(joints)[2])
        for key in settings.heights():
            if key not in given:
                height = value_at(settings, key)
                level = standing + scale.length * (height - float(before.q[2]))
                changes.append(Change(key, height, level, "as many leg lengths above the height of standing"))
        values = {c.key: tuple(c.after) if isinstance(c.after, list) else c.after for c in changes if c.key != "feet"}
        scaled = f"{old.model.name} are scaled to {new.name} ({scale.sentence()})"
        return with_values(settings, values), changes, scaled

    def _stance(self) -> Stance:
        stance = Stance.from_model(load_floating_base(self.robot, self.package_dirs), self.feet)
        return stance.with_legs_only() if self.other_joints == "rigid" else stance


PLACES = "the feet in the same places, in leg lengths"


def posture(model: Model, joints: str | tuple[float, ...], key: str) -> Array:
    """Return a posture (nq - 7,) [rad] from numbers or from a posture name of the robot's SRDF. key: name of the setting in
    errors.

    Raises UnknownName, ValueError for a wrong number of joints.
    """
    names = model.q_names[7:]
    if isinstance(joints, str):
        try:
            return named_posture(model, joints)[7:]
        except FileNotFoundError as error:
            raise ValueError(f"{key} = {joints!r}: {error}") from error
    if len(joints) != len(names):
        raise ValueError(f"{key} has {len(joints)} entries; {model.name} has {len(names)} joints: {', '.join(names)}")
    if not np.isfinite(joints).all():
        raise ValueError(
            f"{key} contains NaN or infinity at {names[int(np.argmin(np.isfinite(joints)))]!r}: give finite numbers"
        )
    return np.array(joints, dtype=float)


def joint_gains(joint_units: Array, position: float, velocity: float) -> Array:
    """Return K (nu, ndx) of the controller u = K (x (-) x0) that holds the joints. position [N m/rad], velocity [N m s/rad];
    joint_units (nu,): those of :class:`~problems.legged.robot.stance.Stance`."""
    stiffness, none = np.diag(1.0 / joint_units**2), np.zeros((len(joint_units), 6))
    return np.hstack([none, -position * stiffness, none, -velocity * stiffness])
