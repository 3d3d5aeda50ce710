"""Sample models for tests and experiments: chains, binary trees, a four-bar linkage, random trees of mixed joints.

All inertias are physical: the tensor is tr(J) 1 - J with a positive definite second moment J.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynamics_backends.rigid_body.model.model import JOINT_TYPES, Model
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix

ROD_LENGTH = 0.5  # [m], along x of the link
ROD_MASS = 1.0  # [kg]
ROD_RADIUS = 0.05  # [m]
_AXES = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))  # of the rods, alternating: no chain is planar
_RECENT_BODIES = 3  # a random parent is one of the latest bodies, or any body: for both long and bushy trees


def chain(n: int, joint: str = "revolute", rng: np.random.Generator | int | None = None) -> Model:
    """Return a chain of n bodies with one type of joint.

    rng: None for equal rods, whose axes alternate between z and y; a generator or its seed for random axes, placements and
    masses.
    """
    if rng is not None:
        return _random_model(np.random.default_rng(rng), f"random_chain_{n}", [joint] * n, range(-1, n - 1))
    builder = ModelBuilder(f"chain_{n}")
    for b in range(n):
        _add_rod(builder, b, b - 1, joint, yaw=0.0)
    return builder.build()


def binary_tree(n: int, joint: str = "revolute") -> Model:
    """Return a tree of n equal rods: the parent of body b is body (b - 1) // 2; two branches of a body are 60 degrees apart."""
    builder = ModelBuilder(f"binary_tree_{n}")
    for b in range(n):
        yaw = 0.0 if b == 0 else np.pi / 6 * (1 if b % 2 else -1)
        _add_rod(builder, b, (b - 1) // 2 if b else -1, joint, yaw)
    return builder.build()


def four_bar(crank: float = 0.3, coupler: float = 0.8, rocker: float = 0.6, base: float = 0.9) -> Model:
    """Return the open tree of a four-bar linkage: three rods of these lengths [m], along z at q = 0 and hinged about y.

    The crank hangs at the origin, the coupler at the end of the crank, the rocker at (base, 0, 0). The frames coupler_tip and
    rocker_tip coincide when the linkage is closed; a rod weighs 1 kg per meter.
    """
    builder = ModelBuilder("four_bar")
    for name, parent, xyz, length in (
        ("crank", None, (0.0, 0.0, 0.0), crank),
        ("coupler", "crank", (0.0, 0.0, crank), coupler),
        ("rocker", None, (base, 0.0, 0.0), rocker),
    ):
        inertia = np.diag([length**2 / 12.0, length**2 / 12.0, 1e-4]) * length
        com = (0.0, 0.0, 0.5 * length)
        builder.add_body(name, parent, JointSpec(axis=(0.0, 1.0, 0.0)), xyz=xyz, mass=length, com=com, inertia=inertia)
    builder.add_frame("coupler_tip", "coupler", xyz=(0.0, 0.0, coupler))
    builder.add_frame("rocker_tip", "rocker", xyz=(0.0, 0.0, rocker))
    return builder.build()


def random_tree(
    rng: np.random.Generator | int,
    n: int,
    joints: Sequence[str] = tuple(JOINT_TYPES),
    floating_base: bool = False,
) -> Model:
    """Return a tree of n bodies with random shape, joints of the given types, placements and inertias.

    Equal seeds give equal models. joints: types to choose from. floating_base: a floating joint connects body 0 to the world, and
    all other bodies descend from it.
    """
    rng = np.random.default_rng(rng)
    kinds = [str(kind) for kind in rng.choice(list(joints), n)]
    recent = [int(rng.integers(max(-1, b - _RECENT_BODIES), b)) for b in range(n)]
    parents = [int(rng.integers(-1, b)) if rng.random() < 0.5 else recent[b] for b in range(n)]
    if floating_base:
        kinds[0] = "floating"
        parents = [-1, *(max(parent, 0) for parent in parents[1:])]
    return _random_model(rng, f"random_tree_{n}", kinds, parents)


def _add_rod(builder: ModelBuilder, b: int, parent: int, joint: str, yaw: float):
    """Add rod b at the end of its parent (-1: at the world's origin), turned by ``yaw``; joint axes alternate between z and y."""
    across = ROD_MASS * (3 * ROD_RADIUS**2 + ROD_LENGTH**2) / 12
    builder.add_body(
        f"body{b}",
        f"body{parent}" if parent >= 0 else None,
        JointSpec(joint, name=f"joint{b}", axis=_AXES[b % 2], pitch=0.1 if joint == "helical" else 0.0),
        xyz=(ROD_LENGTH if parent >= 0 else 0.0, 0.0, 0.0),
        rpy=(0.0, 0.0, yaw),
        mass=ROD_MASS,
        com=(ROD_LENGTH / 2, 0.0, 0.0),
        inertia=np.diag([ROD_MASS * ROD_RADIUS**2 / 2, across, across]),
    )


def _random_model(rng: np.random.Generator, name: str, kinds: Sequence[str], parents: Sequence[int]) -> Model:
    """Return a model with these joint types and parents, and random axes, placements, masses and inertias."""
    builder = ModelBuilder(name)
    for b, (kind, parent) in enumerate(zip(kinds, parents, strict=True)):
        mass = rng.uniform(0.5, 2.0)
        axis, xyz, rpy = _random_axis(rng), rng.uniform(-0.5, 0.5, 3), rng.uniform(-np.pi, np.pi, 3)
        com, inertia = rng.uniform(-0.2, 0.2, 3), mass * _random_inertia(rng)
        joint = JointSpec(kind, f"joint{b}", axis, pitch=rng.uniform(-0.3, 0.3))
        host = f"body{parent}" if parent >= 0 else None
        builder.add_body(f"body{b}", host, joint, xyz=xyz, rpy=rpy, mass=mass, com=com, inertia=inertia)
    return builder.build()


def _random_axis(rng: np.random.Generator) -> np.ndarray:
    """Return a vector (3,), not normalized: half of the time one of the six coordinate directions, else normally distributed."""
    if rng.random() < 0.5:
        return np.eye(3)[rng.integers(3)] * rng.choice([-1.0, 1.0])
    return rng.standard_normal(3)


def _random_inertia(rng: np.random.Generator) -> np.ndarray:
    """Return a tensor (3, 3) [m^2] of unit mass that spreads with standard deviations of 5 to 20 cm along three random axes."""
    R = rpy_matrix(rng.uniform(-np.pi, np.pi, 3))
    second_moment = R @ np.diag(rng.uniform(0.05, 0.2, 3) ** 2) @ R.T
    inertia = np.trace(second_moment) * np.eye(3) - second_moment
    return (inertia + inertia.T) / 2
