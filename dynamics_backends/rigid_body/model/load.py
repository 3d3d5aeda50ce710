"""Loads of a robot: a rigid body added to the body of a frame, with a new frame of its name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.mass_properties import MassProperties, composite
from dynamics_backends.rigid_body.model.model import Frame, Model


def with_load(model: Model, name: str, frame: str, R: Array, p: Array, load: MassProperties) -> Model:
    """Return a model with a load whose frame ``name`` is placed at R (3, 3), p (3) [m] in a frame of the model.

    load: mass properties in the load's frame. Raises UnknownName for an unknown frame, ValueError for a frame fixed to the ground,
    or an existing name.
    """
    at = model.frames[model.frame_id(frame)]
    if at.body < 0:
        raise ValueError(
            f"{frame!r} is fixed to the ground and cannot carry {name!r}: name a frame of a link that moves"
        )
    if name in {known.name for known in model.frames}:
        raise ValueError(f"{model.name} has a frame named {name!r} already: choose another name for the load")
    placed_R, placed_p = at.R @ R, at.R @ p + at.p
    mass, com, inertia = (np.array(values) for values in (model.mass, model.com, model.inertia))
    b = at.body
    whole = composite([MassProperties(float(mass[b]), com[b], inertia[b]), load.moved(placed_R, placed_p)])
    mass[b], com[b], inertia[b] = whole
    frames = (*model.frames, Frame(name, b, placed_R, placed_p))
    return replace(model, mass=mass, com=com, inertia=inertia, frames=frames)
