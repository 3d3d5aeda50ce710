"""Ground for a robot in MuJoCo: a level or tilted plane, boxes on it, and balls at the contact points of the robot.

MuJoCo's contacts differ from those of plans in law, friction and shape, like real contacts. The ground of MuJoCo is lowered by the
radius of the balls, so that contact points touch the ground at the height of the plan's ground.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.mjcf.source import Names
from dynamics_backends.rigid_body.model.model import Model
from trajopt.replanning.plants.mujoco_urdf import link_of

ROBOT, GROUND = 1, 2
"""Contact bits: only feet and ground collide."""
TORSIONAL, ROLLING = 5e-3, 1e-4
"""Torsional and rolling friction [m], MuJoCo's defaults."""
CONTACT_TIME_CONSTANT = 0.005
"""Time constant [s] of the ground contact; with MuJoCo's default, 0.02, feet penetrate deeply into the side of a box."""
IMPEDANCE_RATIO = 10.0
"""Ratio of frictional to normal impedance, which reduces slow slip (MuJoCo's impratio, with the elliptic cone)."""


@dataclass(frozen=True, kw_only=True)
class MujocoGround:
    """Ground of a MuJoCo plant.

    feet: frames of the robot that touch the ground. radius: of the balls about them [m]. friction: Coulomb coefficient. slope:
    upward slope of the ground along x [rad]. boxes: rows (x, y, half size along x, half size along y, height) [m] of boxes on the
    plane z = 0.

    Raises ValueError for values out of range.
    """

    feet: tuple[str, ...]
    radius: float = 0.02
    friction: float = 0.7
    slope: float = 0.0
    boxes: Sequence[tuple[float, float, float, float, float]] = ()

    def __post_init__(self) -> None:
        if not self.feet:
            raise ValueError("feet is empty; name the frames that touch the ground")
        if not (self.radius > 0 and self.friction >= 0 and abs(self.slope) < 0.5 * np.pi):
            raise ValueError(
                f"radius = {self.radius}, friction = {self.friction}, slope = {self.slope}: give a positive radius, a friction "
                "of at least 0 and a slope below a right angle"
            )

    def add_to(self, spec: Any, model: Model) -> None:
        """Add ground and feet to a specification (mujoco.MjSpec) of the robot, and disable all other contacts.

        Raises UnknownName for a foot that the robot does not have, ValueError for one that does not move.
        """
        import mujoco

        for geom in spec.geoms:
            geom.contype = geom.conaffinity = 0
        for pair in list(spec.pairs):
            spec.delete(pair)
        kinds, grip = mujoco.mjtGeom, [self.friction, TORSIONAL, ROLLING]
        for foot in self.feet:
            body, place = _foot_position(model, foot)
            common = {"contype": ROBOT, "conaffinity": GROUND, "friction": grip}
            _body(spec, body, foot).add_geom(
                type=kinds.mjGEOM_SPHERE, size=[self.radius, 0, 0], pos=place, mass=0.0, **common
            )
        common = {"contype": GROUND, "conaffinity": ROBOT, "friction": grip}
        half = -0.5 * self.slope
        tilted, upward = (
            [np.cos(half), 0.0, np.sin(half), 0.0],
            np.array([-np.sin(self.slope), 0.0, np.cos(self.slope)]),
        )
        below = -self.radius * upward
        spec.worldbody.add_geom(type=kinds.mjGEOM_PLANE, size=[0, 0, 1], pos=below, quat=tilted, **common)
        for x, y, half_x, half_y, height in self.boxes:
            size, at = [half_x, half_y, 0.5 * height], [x, y, 0.5 * height - self.radius]
            spec.worldbody.add_geom(type=kinds.mjGEOM_BOX, size=size, pos=at, **common)

    def configure(self, simulated: Any) -> None:
        """Enable contacts and set their options in the compiled model (mujoco.MjModel)."""
        import mujoco

        simulated.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
        simulated.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # diverged states must be reported
        simulated.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        simulated.geom_solref[simulated.geom_contype == GROUND, 0] = CONTACT_TIME_CONSTANT
        simulated.geom_priority[simulated.geom_contype == GROUND] = 1  # use the parameters of the ground, not a mean
        simulated.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        simulated.opt.impratio = IMPEDANCE_RATIO


def _foot_position(model: Model, foot: str) -> tuple[str, np.ndarray]:
    """Name of the body of a frame, and the position of the frame in the axes of that body [m]."""
    frame = model.frames[model.frame_id(foot)]
    if frame.body < 0:
        raise ValueError(
            f"the foot {foot!r} is fixed to the world and touches no ground; name a frame of a moving body"
        )
    link = link_of(model, frame.body)
    return link.name, link.R.T @ (frame.p - link.p)


def _body(spec: Any, name: str, foot: str) -> Any:
    """Body of a specification by its name in the model; unnamed bodies are found by their number (Names)."""
    result = spec.body(name)
    if result is not None:
        return result
    names = Names(spec.compile())
    if name not in names.bodies:
        raise ValueError(
            f"the foot {foot!r} is on the body {name!r}, which MuJoCo does not have; name a frame of another body"
        )
    number = names.bodies.index(name)
    return next(body for body in spec.bodies if body.id == number)
