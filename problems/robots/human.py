"""Sagittal-plane human model, built in code: ankle, knee, hip, lumbar, neck, shoulder, elbow, wrist; left and right merged.

Lengths, masses and centers of mass are those of RBDL's Human36 model (zlib license), with limbs counted twice.  Its radii of
gyration are in meters, not relative to the length; so they are replaced by those of P. de Leva, J. Biomechanics 29, 1996, about
the transverse axis.  Two rows there look like errors and are replaced: the pelvis weighs 11 kg, the head's center of mass
is 0.1214 m above the neck.  Torque limits are for both sides, of the order of published maximal joint moments;
damping represents tissue and muscle, up to some tens of N m s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder

ANKLE_HEIGHT = 0.1037
HEEL, TOE = -0.06, 0.20
"""Ends of the foot [m], forward of the ankle."""
BOX = (0.3, 0.3, 0.25)
"""Edge lengths of the box [m], if there is one."""


class Segment(NamedTuple):
    """A body and its joint: names, parent link, joint position in the parent (z) [m], mass [kg] of both sides, center of mass (z)
    [m], radius of gyration [m], joint limits [rad], torque limit [N m] and passive damping [N m s] of the joint."""

    name: str
    joint: str
    parent: str
    at: float
    mass: float
    com: float
    radius: float
    lower: float
    upper: float
    torque: float
    damping: float


SHANK, THIGH, PELVIS, TRUNK, UPPER_ARM, FOREARM, HAND = 0.4403, 0.4222, 0.1457, 0.4576, 0.2817, 0.2689, 0.0862
SEGMENTS = (  # positive angles bend forward; the trunk is the middle and the upper one of the table
    Segment("shank", "ankle", "foot", ANKLE_HEIGHT, 6.3218, SHANK - 0.1963, 0.1123, -0.5, 0.7, 300.0, 30.0),
    Segment("thigh", "knee", "shank", SHANK, 20.6736, THIGH - 0.1729, 0.1389, -2.4, 0.0, 500.0, 20.0),
    Segment("pelvis", "hip", "thigh", THIGH, 11.0, 0.0891, 0.0897, -0.3, 2.2, 600.0, 10.0),
    Segment("trunk", "lumbar", "pelvis", PELVIS, 32.29, 0.2258, 0.1590, -0.3, 1.0, 500.0, 10.0),
    Segment("head", "neck", "trunk", TRUNK, 5.0662, 0.1214, 0.0736, -0.8, 0.8, 60.0, 1.0),
    Segment("upper_arm", "shoulder", "trunk", TRUNK, 3.9566, -0.1626, 0.0803, -2.8, 0.8, 200.0, 2.0),
    Segment("forearm", "elbow", "upper_arm", -UPPER_ARM, 2.3652, -0.1230, 0.0742, -2.4, 0.0, 160.0, 0.5),
    Segment("hand", "wrist", "forearm", -FOREARM, 0.8906, -0.0680, 0.0541, -1.0, 1.0, 60.0, 0.1),
)
FOOT_MASS, FOOT_COM = 2.002, (0.1254 - 0.06, 0.0, ANKLE_HEIGHT - 0.0516)


def sagittal_human(load: float = 0.0, ground_wrench: bool = False) -> Model:
    """Create the human with a box of ``load`` [kg] in the hands; upright with hanging arms at q = 0; frame ``hands`` holds the
    box.

    The feet are fixed to the ground.  With ``ground_wrench``, they have joints along x and z and about y, at the ground below the
    ankle: inverse dynamics then gives the ground force and moment as the forces of these joints.
    Raises ValueError for a negative load.
    """
    if not load >= 0:
        raise ValueError(f"load = {load}; expected a number of at least 0")
    builder = ModelBuilder("sagittal_human")
    foot = {"mass": FOOT_MASS, "com": FOOT_COM, "inertia": np.eye(3) * FOOT_MASS * 0.0267**2}
    if ground_wrench:
        builder.add_body("slide", joint=JointSpec("prismatic", name="ground_x", axis=(1, 0, 0)))
        builder.add_body("lift", "slide", JointSpec("prismatic", name="ground_z", axis=(0, 0, 1)))
        builder.add_body("foot", "lift", JointSpec(name="ground_pitch", axis=(0, 1, 0)), **foot)  # type: ignore[arg-type]
    else:
        builder.add_body("foot", joint="fixed", **foot)  # type: ignore[arg-type]
    for s in SEGMENTS:
        builder.add_body(
            s.name,
            s.parent,
            JointSpec(
                name=s.joint, axis=(0, 1, 0), q_lower=s.lower, q_upper=s.upper, effort_limit=s.torque, damping=s.damping
            ),
            xyz=(0, 0, s.at),
            mass=s.mass,
            com=(0, 0, s.com),
            inertia=np.eye(3) * s.mass * s.radius**2,
        )
    x, y, z = (c * c for c in BOX)
    box = np.diag([y + z, x + z, x + y]) * load / 12.0
    builder.add_body("hands", "hand", "fixed", xyz=(0, 0, -HAND), mass=load, inertia=box)
    builder.add_frame("crown", "head", xyz=(0, 0, 0.2429))
    builder.add_frame("heel", "foot", xyz=(HEEL, 0, 0))
    builder.add_frame("toe", "foot", xyz=(TOE, 0, 0))
    return builder.build()
