"""Small textbook systems as models built in code: cart-pendulum, multi-pendulum, four-bar linkage.

Cart-pendulum and multi-pendulum: M. Kudruss, P. Manns, K. Mombaur, Efficient derivative evaluation for rigid-body dynamics
based on recursive algorithms subject to kinematic and loop constraints, 2019, with the numbers of their public fixtures.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder

CART_BOX = (0.5, 0.2, 0.2)
"""Width, depth and height [m] of the cart."""
BALL_RADIUS, ARM = 0.1, 0.5
"""Radius of the pendulum's ball, and its distance from the hinge [m]."""


def box_inertia(mass: float, size: tuple[float, float, float]) -> np.ndarray:
    """Return the inertia (3, 3) of a box with edges (x, y, z) [m] about its center."""
    x, y, z = (c * c for c in size)
    return np.diag([y + z, x + z, x + y]) * mass / 12.0


def cart_pendulum(cart_mass: float = 10.0, free: bool = False) -> Model:
    """Create a ball of 1 kg on a massless arm, on a cart; q = (x, angle), upright at zero.

    free: the cart can also rise and pitch, q = (x, z, pitch, angle); constraints must keep it on its rail.
    """
    builder = ModelBuilder("cart_pendulum")
    cart = {"mass": cart_mass, "inertia": box_inertia(cart_mass, CART_BOX)}
    if free:
        builder.add_body("slide", joint=JointSpec("prismatic", name="x", axis=(1, 0, 0)))
        builder.add_body("lift", "slide", JointSpec("prismatic", name="z", axis=(0, 0, 1)))
        builder.add_body("cart", "lift", JointSpec(name="pitch", axis=(0, 1, 0)), **cart)  # type: ignore[arg-type]
    else:
        builder.add_body("cart", joint=JointSpec("prismatic", name="x", axis=(1, 0, 0)), **cart)  # type: ignore[arg-type]
    ball = np.eye(3) * 0.4 * BALL_RADIUS**2
    builder.add_body("ball", "cart", JointSpec(name="hinge", axis=(0, 1, 0)), mass=1.0, com=(0, 0, ARM), inertia=ball)
    builder.add_frame("tip", "ball", xyz=(0, 0, ARM))
    return builder.build()


def multi_pendulum(bodies: int = 10, branches: int = 1, spacing: float = 0.0) -> Model:
    """Create a pendulum of bodies with 1 kg and unit inertia on hinges 1 m apart, gravity along -y, upright at zero.

    The bodies form ``branches`` chains of nearly equal length, ``spacing`` [m] apart along x.
    Raises ValueError for fewer bodies than branches.
    """
    if not 1 <= branches <= bodies:
        raise ValueError(f"branches = {branches} with {bodies} bodies; expected at least one body per branch")
    builder = ModelBuilder("multi_pendulum")
    for branch, chain in enumerate(np.array_split(np.arange(bodies), branches)):
        parent, place = None, (spacing * (branch - 0.5 * (branches - 1)), 1.0, 0.0)
        for i in chain:
            name = f"link{i + 1}"
            builder.add_body(name, parent, JointSpec(name=f"hinge{i + 1}"), xyz=place, mass=1.0, inertia=np.eye(3))
            parent, place = name, (0.0, 1.0, 0.0)
        builder.add_frame(f"tip{branch + 1}", parent, xyz=(0, 1, 0))
    return builder.build(gravity=(0.0, -9.81, 0.0))


def four_bar(ground: float, crank: float, coupler: float, rocker: float, density: float = 2.0) -> Model:
    """Create three slender rods [m] of ``density`` [kg/m] in the x-z plane on hinges along y; zero angles point up.

    The crank turns about the origin and carries the coupler, the rocker turns about (ground, 0, 0); a constraint has to connect
    the frames ``coupler_end`` and ``rocker_end``.
    """
    builder = ModelBuilder("four_bar")

    def rod(name: str, parent: str | None, at: tuple[float, float, float], length: float) -> None:
        mass = density * length
        inertia = np.diag([1.0, 1.0, 0.0]) * mass * length**2 / 12.0
        builder.add_body(
            name,
            parent,
            JointSpec(name=f"{name}_hinge", axis=(0, 1, 0)),
            xyz=at,
            mass=mass,
            com=(0, 0, 0.5 * length),
            inertia=inertia,
        )
        builder.add_frame(f"{name}_end", name, xyz=(0, 0, length))

    rod("crank", None, (0.0, 0.0, 0.0), crank)
    rod("coupler", "crank", (0.0, 0.0, crank), coupler)
    rod("rocker", None, (ground, 0.0, 0.0), rocker)
    return builder.build()


def four_bar_angles(ground: float, crank: float, coupler: float, rocker: float, angle: float) -> np.ndarray:
    """Return q (3,) = crank, coupler relative to it, rocker [rad] of the closed linkage, with the pin above the line from the
    crank's end to the rocker's hinge.

    Raises ValueError if the linkage does not close.
    """
    joint = crank * np.array([np.sin(angle), np.cos(angle)])
    apart = np.array([ground, 0.0]) - joint
    d = float(np.linalg.norm(apart))
    if not abs(coupler - rocker) < d < coupler + rocker:
        raise ValueError(
            f"the linkage does not close at a crank angle of {angle:.3g} rad: coupler = {coupler:g} m and rocker = {rocker:g} m "
            f"have to meet between ends {d:.3g} m apart"
        )
    along = (d * d + coupler**2 - rocker**2) / (2.0 * d)
    up = np.sqrt(coupler**2 - along**2)
    e = apart / d
    pin = joint + along * e + up * np.array([-e[1], e[0]])
    arm, leg = pin - joint, pin - np.array([ground, 0.0])
    return np.array([angle, np.arctan2(arm[0], arm[1]) - angle, np.arctan2(leg[0], leg[1])])
