"""Ground under a robot in MuJoCo: a plane, level or tilted, boxes on it, and balls at the points with which the robot touches it.

MuJoCo's contacts differ from those of plans in law, friction and shape, as the world's do.  A ball of radius r about a contact
point touches ground that lies r lower than the plan's, so that the point is as high over the plan's ground as the plan thinks.
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
"""Bits of what touches what: feet and ground, no others."""
SPIN, ROLL = 5e-3, 1e-4
"""Torsional and rolling friction [m], MuJoCo's defaults."""
YIELDS = 0.005
"""[s] within which the ground throws back what sinks into it; MuJoCo's default, 0.02, lets feet run deep into the side of a box."""
STRENGTH = 10.0
"""Of friction against slow slip, relative to that of normal forces (MuJoCo's impratio, with the elliptic cone)."""


@dataclass(frozen=True, kw_only=True)
class MujocoGround:
    """feet: frames of the robot that touch the ground. radius: of the balls about them [m]. friction: coefficient of Coulomb.
    slope: of the ground along x, upward [rad]. boxes: rows (x, y, half sizes along x and y, height) [m] of boxes that stand on the
    plane z = 0.

    Raises ValueError for numbers that make no ground.
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
        """Add ground and feet to a specification (mujoco.MjSpec) of the robot; nothing else touches anything then.

        Raises UnknownName for a foot that the robot does not have, ValueError for one that does not move.
        """
        import mujoco

        for geom in spec.geoms:
            geom.contype = geom.conaffinity = 0
        for pair in list(spec.pairs):
            spec.delete(pair)
        kinds, grip = mujoco.mjtGeom, [self.friction, SPIN, ROLL]
        for foot in self.feet:
            body, place = _place(model, foot)
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

    def settle(self, simulated: Any) -> None:
        """Switch contacts on in the compiled model (mujoco.MjModel)."""
        import mujoco

        simulated.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
        simulated.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # what diverges stays so, and is told
        simulated.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        simulated.geom_solref[simulated.geom_contype == GROUND, 0] = YIELDS
        simulated.geom_priority[simulated.geom_contype == GROUND] = 1  # contacts are those of the ground, not a mean
        simulated.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        simulated.opt.impratio = STRENGTH


def _place(model: Model, foot: str) -> tuple[str, np.ndarray]:
    """The body that a frame rides on, and where in that body's own axes [m]."""
    frame = model.frames[model.frame_id(foot)]
    if frame.body < 0:
        raise ValueError(
            f"the foot {foot!r} is fixed to the world and touches no ground; name a frame of a moving body"
        )
    link = link_of(model, frame.body)
    return link.name, link.R.T @ (frame.p - link.p)


def _body(spec: Any, name: str, foot: str) -> Any:
    """The body of a specification by the model's name, which for a body without one has its number (Names)."""
    found = spec.body(name)
    if found is not None:
        return found
    names = Names(spec.compile())
    if name not in names.bodies:
        raise ValueError(
            f"the foot {foot!r} is on the body {name!r}, which MuJoCo does not have; name a frame of another body"
        )
    number = names.bodies.index(name)
    return next(body for body in spec.bodies if body.id == number)
