"""Keyframes of an MJCF as reference postures, and excluded body pairs, in the form of an SRDF."""

from __future__ import annotations

import os
from typing import Any

from dynamics_backends.rigid_body.mjcf.source import Names, compiled, joint_kind
from dynamics_backends.rigid_body.model.model import JOINT_TYPES
from dynamics_backends.rigid_body.urdf.srdf import SRDF

GROUP = "keyframe"


def mjcf_postures(source: str | os.PathLike) -> SRDF:
    """Keyframes and excluded pairs of an MJCF file or text. Raises MJCFError."""
    m = compiled(source).simulated
    names = Names(m, source)
    postures = {(GROUP, m.key(k).name): _posture(m, names, k) for k in range(m.nkey) if m.key(k).name}
    pairs = [divmod(int(signature), 1 << 16) for signature in m.exclude_signature]
    disabled = [(names.bodies[a], names.bodies[b], "exclude") for a, b in pairs]
    return SRDF(str(source), names.robot, postures, tuple(disabled))


def _posture(m: Any, names: Names, key: int) -> dict[str, tuple[float, ...]]:
    """Values of each joint, with quaternions as x y z w."""
    posture = {}
    for j, name in enumerate(names.joints):
        nq, nv = JOINT_TYPES[joint_kind(m, j)]
        values = m.key_qpos[key][m.jnt_qposadr[j] :][:nq].tolist()
        posture[name] = (*values[:-4], *values[-3:], values[-4]) if nq > nv else tuple(values)
    return posture
