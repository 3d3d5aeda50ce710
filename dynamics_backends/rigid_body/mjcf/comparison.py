"""Comparison of a model with MuJoCo's: mass matrix, bias and passive forces in a few states.

It finds differences that :mod:`~dynamics_backends.rigid_body.mjcf.left_out` does not list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import mass_matrix, nonlinear_effects
from dynamics_backends.rigid_body.mjcf.mujoco_states import MujocoStates
from dynamics_backends.rigid_body.mjcf.source import Names
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, Model

TOLERANCE = 1e-8
"""Tolerance relative to the largest entry."""
STATES, NAMED = 2, 6


class Terms(NamedTuple):
    """Mass matrix (nv, nv), bias (nv,) and passive forces (nv,) of one state, in one set of conventions."""

    mass: Array
    bias: Array
    passive: Array


def differences(model: Model, simulated: Any, names: Names) -> list[str]:
    """Sentences about the terms of the equations of motion that differ from MuJoCo's."""
    reported: dict[str, str] = {}
    for own, theirs in _compared(model, simulated, names):
        for what, a, b in zip(("mass matrix", "bias", "passive forces"), own, theirs, strict=True):
            scale = max(np.abs(b).max(), np.abs(a).max(), 1.0)
            apart = np.abs(a - b).reshape(model.nv, -1).max(axis=1)
            if apart.max() > TOLERANCE * scale:
                joints = [model.dof_names[d] for d in np.flatnonzero(apart > TOLERANCE * scale)]
                reported.setdefault(what, _sentence(what, apart.max() / scale, joints))
    return list(reported.values())


def largest_difference(model: Model, simulated: Any, names: Names) -> float:
    """Largest difference of mass matrix and bias from MuJoCo's, relative to the largest entry of each."""
    pairs = [
        pair for own, theirs in _compared(model, simulated, names) for pair in zip(own[:2], theirs[:2], strict=True)
    ]
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)) for a, b in pairs)


def _compared(model: Model, simulated: Any, names: Names) -> Iterator[tuple[Terms, Terms]]:
    """Terms of the model and of MuJoCo in a few states."""
    rng, states = np.random.default_rng(0), MujocoStates(model, simulated, names.joints)
    for _ in range(STATES):
        x = np.concatenate([model.random_configuration(rng), rng.standard_normal(model.nv)])
        yield model_terms(model, x), simulated_terms(states, simulated, x)


def _sentence(what: str, fraction: float, joints: list[str]) -> str:
    more = f" and {len(joints) - NAMED} others" if len(joints) > NAMED else ""
    at = ", ".join(joints[:NAMED]) + more
    return f"{what}: the difference from MuJoCo's is up to {100 * fraction:.2g} % of the largest, at {at}"


def model_terms(model: Model, x: Array) -> Terms:
    """Terms of the model at x (nq + nv,)."""
    q, v = x[: model.nq], x[model.nq :]
    passive = -model.damping * v
    for b, kind in enumerate(model.joint_types):
        if JOINT_TYPES[kind] == (1, 1):
            d = int(model.v_index[b])
            passive[d] -= model.stiffness[d] * (q[model.q_index[b]] - model.spring_reference[d])
    return Terms(mass_matrix(model, q), nonlinear_effects(model, q, v), passive)


def simulated_terms(states: MujocoStates, simulated: Any, x: Array) -> Terms:
    """Terms of MuJoCo at x (nq + nv,), in the model's conventions."""
    import mujoco

    data = mujoco.MjData(simulated)
    data.qpos[:], data.qvel[:] = states.to_mujoco(x)
    mujoco.mj_fwdPosition(simulated, data)
    mujoco.mj_fwdVelocity(simulated, data)
    theirs, column = np.zeros((states.nv, states.nv)), np.zeros(states.nv)
    for d, unit in enumerate(np.eye(states.nv)):
        mujoco.mj_mulM(simulated, data, column, states.velocity_to_mujoco(x, unit))
        theirs[:, d] = states.force_from_mujoco(x, column)
    bias, passive = np.array(data.qfrc_bias), np.array(data.qfrc_passive)
    # M (R (a + w x v)) + bias is the force: the term of the rotating axes belongs to the bias
    mujoco.mj_mulM(simulated, data, column, states.acceleration_to_mujoco(x, np.zeros(states.nv)))
    return Terms(theirs, states.force_from_mujoco(x, bias + column), states.force_from_mujoco(x, passive))
