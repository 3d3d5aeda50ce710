"""Which robot walks, on which feet, in which posture it stands, and for which robot the numbers of a problem were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.robots import named_posture
from problems.legged.robot.similarity import Scale
from problems.legged.robot.stance import Stance
from problems.task import Checked, Checks, load_floating_base


class Standing(NamedTuple):
    """A robot in its posture. joints (nq - 7,) [rad]; scale: what numbers of a length, a mass, a time are to be multiplied by.

    reference: the robot that they were found for, where it is another one.
    """

    stance: Stance
    joints: Array
    scale: Scale = Scale()
    reference: Standing | None = None

    @property
    def model(self) -> Model:
        """The robot."""
        return self.stance.model

    @property
    def q(self) -> Array:
        """Its configuration (nq,) with the feet on the ground z = 0."""
        return self.stance.configuration(self.joints)

    @property
    def yaw(self) -> float:
        """The yaw of the base [rad] where the robot faces along x."""
        return -self.stance.heading

    @property
    def share(self) -> float:
        """The share of a foot in the weight [N]."""
        weight = self.model.total_mass * float(np.linalg.norm(self.model.gravity))
        return weight / len(self.stance.legs)

    def posture(self, joints: str | tuple[float, ...], key: str) -> Array:
        """A posture (nq - 7,) that is given for the reference robot, or for this one: the feet in the same places, in leg lengths.

        key: what it is called in errors. Raises ValueError for another number of joints.
        """
        of = self if self.reference is None else self.reference
        given = _posture(of.model, joints, key)
        if self.reference is None:
            return given
        if len(of.stance.legs) != len(self.stance.legs):
            return self.joints
        return self.stance.posture(of.stance.places(given))

    def height(self, height: float) -> float:
        """A height of the base [m]: as far above that of standing as it is for the reference robot, in its lengths."""
        if self.reference is None:
            return height
        return float(self.q[2] + self.scale.length * (height - self.reference.q[2]))

    def notes(self) -> tuple[str, ...]:
        """How the robot stands, and what its numbers were multiplied by, for `validate`."""
        model, s = self.model, self.stance
        told = [
            f"{model.name} stands on {', '.join(s.feet)}, its base {self.q[2]:.3f} m high on legs of {s.leg_length:.3f} m"
        ]
        told += [sole.sentence for sole in s.soles]
        return (*told, *self.carried)

    @property
    def carried(self) -> tuple[str, ...]:
        """What numbers that were found for another robot were multiplied by, for reports; nothing where there is none."""
        if self.reference is None:
            return ()
        of, name = self.reference.model.name, self.model.name
        return (f"numbers are those of {of} carried over to {name}: {self.scale.sentence()}",)


@dataclass(frozen=True, kw_only=True)
class LeggedRobot(Checked):
    """Settings of the robot.

    robot: a bundled name, "erd:NAME", or the path of a URDF or MJCF file. feet: frames that touch the ground, left front, right
    front, left hind, right hind; default those found. joints: of the posture [rad], or the name of a posture of the
    robot's SRDF; default the feet under the hips.
    other_joints: those of no leg, "free" or "rigid" at their neutral places.
    torque_limits: whether the controls keep the effort limits of the robot's file. position_limits, velocity_limits: whether its
    joints keep those limits, as constraints.
    sized_for: the robot that all numbers, ``joints`` among them, were found for, by name; where it is another one, they are carried
    over by dynamic similarity (:mod:`~problems.legged.robot.similarity`). Default: the robot itself.
    """

    robot: str = "hyq"
    feet: tuple[str, ...] = ()
    joints: str | tuple[float, ...] = ()
    other_joints: Literal["free", "rigid"] = "free"
    torque_limits: bool = False
    position_limits: bool = False
    velocity_limits: bool = False
    sized_for: str = ""

    def checks(self) -> Checks:
        return super().checks() | {"feet": (len(set(self.feet)) == len(self.feet), "names of frames, each once")}

    def stand(self) -> Standing:
        """The robot in its posture.

        Raises UnknownName for a robot or a foot, FileNotFoundError, URDFError, ValueError for feet that cannot be found and for a
        posture that does not fit.
        """
        stance = self._stance(self.robot, self.feet)
        if self.sized_for in ("", self.robot):
            joints = _posture(stance.model, self.joints, "joints") if self.joints else stance.posture()
            return Standing(stance, joints)
        other = self._stance(self.sized_for)
        reference = Standing(other, _posture(other.model, self.joints, "joints") if self.joints else other.posture())
        scale = Scale(stance.model.total_mass / other.model.total_mass, stance.leg_length / other.leg_length)
        found = Standing(stance, stance.rest(), scale, reference)
        alike = len(other.legs) == len(stance.legs)
        return found._replace(joints=stance.posture(other.places(reference.joints) if alike else None))

    def _stance(self, robot: str, feet: tuple[str, ...] = ()) -> Stance:
        stance = Stance.of(load_floating_base(robot), feet)
        return stance.on_legs_alone() if self.other_joints == "rigid" else stance


def _posture(model: Model, joints: str | tuple[float, ...], key: str) -> Array:
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
            f"{key} holds NaN or infinity at {names[int(np.argmin(np.isfinite(joints)))]!r}: give finite numbers"
        )
    return np.array(joints, dtype=float)


def joint_gains(model: Model, position: float, velocity: float) -> Array:
    """K (nu, ndx) of the controller u = K (x (-) x0) that holds the joints [N m/rad, N m s/rad]."""
    joints = model.nv - 6
    K = np.zeros((joints, 2 * model.nv))
    K[:, 6 : model.nv] = -position * np.eye(joints)
    K[:, model.nv + 6 :] = -velocity * np.eye(joints)
    return K
