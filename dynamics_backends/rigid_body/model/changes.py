"""Changed copies of a model: other properties of its joints, or a load on one of its frames.

armature a_r [kg m^2, kg]     rotor inertia at the joint, added to the diagonal of the mass matrix
damping d [N m s, N s]        -d v
friction c [N m, N]           -c tanh(v / v_s), Coulomb friction smoothed over a velocity v_s of the system
stiffness k [N m, N/m]        -k (q - spring_reference) of a spring
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.mass_properties import MassProperties, composite
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, Frame, Model

PROPERTIES = ("armature", "damping", "friction", "stiffness", "spring_reference")
Values = float | Mapping[str, float] | None
"""One number for all joints of one degree of freedom, numbers by joint name, or None to use the model's."""


def with_joint_properties(model: Model, **values: Values) -> Model:
    """Return a model with some of PROPERTIES changed; a joint of several degrees of freedom uses its number for each of them.

    Raises UnknownName for a joint that the model does not have, ValueError for a negative or infinite value, and TypeError for
    another property.
    """
    changes = {}
    for key, value_or_values in values.items():
        if key not in PROPERTIES:
            raise TypeError(f"joints have no property {key!r}; known: {', '.join(PROPERTIES)}")
        if value_or_values is not None:
            changes[key] = _values_by_dof(model, key, value_or_values)
    return model.replace(**changes) if changes else model


def _values_by_dof(model: Model, key: str, value_or_values: float | Mapping[str, float]) -> np.ndarray:
    array = getattr(model, key).copy()
    single = [n for n, kind in zip(model.joint_names, model.joint_types, strict=True) if JOINT_TYPES[kind] == (1, 1)]
    named = value_or_values if isinstance(value_or_values, Mapping) else dict.fromkeys(single, value_or_values)
    for name, value in named.items():
        if name not in model.joint_names:
            raise unknown_name("joint", name, model.joint_names)
        if not np.isfinite(value) or (value < 0 and key != "spring_reference"):
            raise ValueError(f"the {key} of joint {name!r} is {value}: give a finite number, not negative")
        array[list(model.dofs(model.joint_id(name)))] = value
    return array


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
