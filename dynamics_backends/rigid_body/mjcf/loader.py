"""Loader of robots from MJCF files, the format of MuJoCo.

Every body, joint and named site becomes a frame; bodies without joints are merged into their parents.  q is MuJoCo's qpos in the
model's conventions: joints have the zero of the file (`ref`), quaternions are x y z w, and velocities of a free joint are in the
body's axes (:mod:`~dynamics_backends.rigid_body.mjcf.mujoco_states`).

Ignored elements are listed in the model's `notes`.  Mass matrix, bias and passive forces are compared with MuJoCo's, so that
unexpected differences are reported too.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.rigid_body.mjcf.comparison import differences
from dynamics_backends.rigid_body.mjcf.equalities import followers, locked_instead
from dynamics_backends.rigid_body.mjcf.left_out import left_out
from dynamics_backends.rigid_body.mjcf.reader import Reader
from dynamics_backends.rigid_body.mjcf.source import MJCFError, MJCFWarning, Names, compiled, source_path
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_builder import lock_joints
from dynamics_backends.rigid_body.urdf.mimic import couple
from dynamics_backends.rigid_body.urdf.xml_source import FARTHEST, LARGEST

__all__ = ["MJCFError", "MJCFWarning", "load_mjcf"]

BASES, TREES, MIMICS = ("fixed", "floating"), ("all", "driven"), ("free", "lock", "follow")


def load_mjcf(
    source: str | os.PathLike,
    *,
    base: str | None = None,
    trees: str | None = None,
    mimic: str = "free",
    gravity=None,
    armature: float | Mapping[str, float] | None = None,
    locked: Iterable[str] | Mapping[str, float] = (),
    strict: bool = False,
) -> Model:
    """Return the model of an MJCF file, or of MJCF text that starts with "<"; the package mujoco reads it (extra "sim").

    base: None uses the base of the file; "fixed": the free joint of the root body of the largest tree, if any, is rigid;
    "floating": that body gets a free joint if it has no joint.
    trees: "all" trees of the file, the default without base; or "driven", those with an actuator, else the largest: objects
    without an actuator are not part of the robot. Ignored trees are listed in the notes.
    mimic: joints that an <equality> of joints couples to others are independent ("free"; `mjcf_constraints` returns the
    equalities), rigid at the value for which the other joint is zero ("lock"), or follow by the model's `coupling` ("follow").
    gravity: (3,) [m/s^2], by default the file's.
    armature: rotor inertia at the joint [kg m^2, or kg], for all joints of one degree of freedom or by joint name; by default the
    file's, including that of the actuators.
    locked: joints made rigid, at these values [rad, m] or 0 for names only, by names or patterns ("*finger*").
    strict: raise instead of an MJCFWarning, for elements that make the robot move differently in MuJoCo.

    The model's effort limits are those of actuators and joints, its `notes` list ignored elements.

    Raises MJCFError, with MuJoCo's message on file, element and line, for a file that is not a valid robot; ModuleNotFoundError
    without the package mujoco; UnknownName for an unknown joint in `armature` or `locked`; ValueError for a wrong option.
    """
    for option, value, known in (
        ("base", base, (None, *BASES)),
        ("trees", trees, (None, *TREES)),
        ("mimic", mimic, MIMICS),
    ):
        if value not in known:
            raise ValueError(f"{option} is {value!r}; choose one of {', '.join(name for name in known if name)}")
    simulated, said = compiled(source)
    names, where = Names(simulated, source), source_path(source) or "MJCF text"
    if not simulated.njnt:
        raise MJCFError(f"{where}: no body of {names.robot!r} has a joint, so that nothing can move: give it a <joint>")
    _check_numbers(where, simulated, names)
    read = Reader(simulated, names)
    try:
        model = read.model(None, read.trees("all"))
    except MJCFError:
        raise
    except ValueError as error:
        raise MJCFError(f"{where}: {error}") from error
    different = differences(model, simulated, names)
    selected = read.trees(trees or ("all" if base is None else "driven"))
    if base is not None or selected != read.trees("all"):
        model = read.model(base, selected)
    model = _with_armature(model, armature)
    following, ties = followers(simulated, names)
    tied = {j: f for j, f in following.items() if mimic != "free" and {j, f.source} <= set(model.joint_names)}
    moving, other_notes = left_out(simulated, names, read.actuators, [ties[joint] for joint in tied])
    moving, other_notes = [*moving, *different], [*other_notes, *read.without(selected)]
    if mimic == "lock":
        other_notes += [locked_instead(ties[joint], joint) for joint in tied]
    model = _with_mimic_joints(model, tied, mimic)
    if locked:
        model = lock_joints(model, locked)
    if gravity is not None:
        model = model.with_gravity(gravity)
    if moving:
        _warn(where, names.robot, moving, strict)
    return replace(
        model, source=source_path(source), notes=(*moving, *other_notes, *(f"MuJoCo says: {s}" for s in said))
    )


def _check_numbers(where: str, simulated: Any, names: Names) -> None:
    """Raise MJCFError for positions and masses that are not finite, or above the bounds of a URDF's."""
    m = simulated
    checks = (
        ("body", m.body_pos, FARTHEST, "lies at", "m"),
        ("body", m.body_ipos, FARTHEST, "has its center of mass at", "m"),
        ("body", m.body_mass[:, None], LARGEST, "has the mass", "kg"),
        ("body", m.body_inertia, LARGEST, "has the principal inertias", "kg m^2"),
        ("joint", m.jnt_pos, FARTHEST, "lies at", "m"),
        ("joint", m.jnt_axis, FARTHEST, "has the axis", ""),
        ("geom", m.geom_pos, FARTHEST, "lies at", "m"),
    )
    by_kind = {"body": names.bodies, "joint": names.joints, "geom": names.geoms}
    for kind, values, largest, what, unit in checks:
        wrong = np.flatnonzero(~(np.abs(values) <= largest).all(axis=1))
        if len(wrong):
            found = f"{values[wrong[0]].tolist()} {unit}".rstrip()
            raise MJCFError(
                f"{where}: {kind} {by_kind[kind][wrong[0]]!r} {what} {found}: give finite numbers of at most {largest:.0e}"
            )


def _warn(where: str, robot: str, sentences: list[str], strict: bool) -> None:
    message = f"{where}, robot {robot!r}, moves otherwise here than in MuJoCo:" + "".join(f"\n  {s}" for s in sentences)
    if strict:
        raise MJCFError(f"{message}\nCorrect the file, or load it without strict=True")
    warnings.warn(message, MJCFWarning, stacklevel=3)


def _with_armature(model: Model, armature: float | Mapping[str, float] | None) -> Model:
    if armature is None:
        return model
    single = [name for b, name in enumerate(model.joint_names) if len(model.dofs(b)) == 1]
    values = armature if isinstance(armature, Mapping) else dict.fromkeys(single, armature)
    changed = np.array(model.armature)
    for name, value in values.items():
        if name not in single:
            raise unknown_name("joint of one degree of freedom", name, single)
        if not 0 <= value < np.inf:
            raise ValueError(f"the armature of joint {name!r} is {value}: give a finite number, not negative")
        changed[model.dofs(model.joint_id(name))] = value
    return model.replace(armature=changed)


def _with_mimic_joints(model: Model, tied: Mapping[str, Any], mimic: str) -> Model:
    if not tied:
        return model
    if mimic == "lock":
        return lock_joints(model, {name: follower.offset for name, follower in tied.items()})
    return model.replace(coupling=couple(model, dict(tied)))
