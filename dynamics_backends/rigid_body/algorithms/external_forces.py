"""External forces on named frames, converted to forces on the bodies for RNEA, ABA and their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import run
from dynamics_backends.rigid_body.passes.passes import field_of, row
from dynamics_backends.rigid_body.spatial.spatial import Force, Transform, Vec
from dynamics_backends.scalar import Rows


class Wrench(NamedTuple):
    """Force and moment (6, N) [N; N m] = [linear; angular] on a frame, in LOCAL, WORLD or LOCAL_WORLD_ALIGNED reference.

    frame: index into the model's frames. LOCAL: in the frame's axes, the moment about its origin. WORLD: in world axes, the
    moment about the world's origin. LOCAL_WORLD_ALIGNED: in world axes, the moment about the frame's origin.
    """

    frame: int
    value: Rows
    reference: str = "LOCAL"


def body_forces(model: Model, q: Rows, wrenches: Sequence[Wrench]) -> Force:
    """Sum of the wrenches on each body, in body frames: the argument ``f_ext`` of the dynamics.

    Raises ValueError for an unknown reference; a wrench on a frame of the world has no effect.
    """
    zero = 0.0 * q[0]
    null = Force(Vec(zero, zero, zero), Vec(zero, zero, zero))
    total = [null] * model.nb
    poses = run(kinematics.PLACEMENT, model, {"q": q})["X"]
    for wrench in wrenches:
        if wrench.reference not in kinematics.REFERENCES:
            raise ValueError(f"reference = {wrench.reference!r}; known: {', '.join(kinematics.REFERENCES)}")
        body = model.frames[wrench.frame].body
        if body >= 0:
            total[body] = total[body] + _body_force(model, row(poses, body), wrench)
    return field_of(total)


def _body_force(model: Model, pose: Transform, wrench: Wrench) -> Force:
    """Force on the frame's body in the body's frame; pose: that of the body in the world."""
    w = wrench.value
    force = Force(Vec(w[3], w[4], w[5]), Vec(w[0], w[1], w[2]))
    frame = kinematics.constant_pose(model.frames[wrench.frame])
    if wrench.reference == "LOCAL":
        return frame.force_to_parent(force)
    if wrench.reference == "WORLD":
        return pose.force_to_child(force)
    arm = pose.R @ frame.p
    turned = Force(force.n + arm.cross(force.f), force.f)
    return Force(pose.R.transpose_times(turned.n), pose.R.transpose_times(turned.f))
