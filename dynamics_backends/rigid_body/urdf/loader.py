"""Loader of robots from URDF files.

Every link and joint becomes a named frame; fixed joints are merged into the parent body. Bodies are numbered depth first,
siblings in the order of the file. A continuous joint is a revolute one without position limits, whose coordinate is by default an
angle on a circle. Rotations and axes are those of the file, unless `snap` is set.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.rigid_body.model.model import STANDARD_GRAVITY, Model, root_joint
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder, lock_joints
from dynamics_backends.rigid_body.spatial.rotations import SNAP_TOLERANCE
from dynamics_backends.rigid_body.urdf import checks as urdf_checks
from dynamics_backends.rigid_body.urdf.elements import Joint, Link, Robot, read_robot
from dynamics_backends.rigid_body.urdf.mimic import Follower, couple, find_followers, independent_note, without_source
from dynamics_backends.rigid_body.urdf.xml_source import URDFError, is_text, read_xml

__all__ = ["URDFError", "URDFWarning", "load_urdf"]


class URDFWarning(UserWarning):
    """Warning about implausible elements of a URDF, all in one message."""


def load_urdf(
    source: str | os.PathLike,
    *,
    base: str = "fixed",
    mimic: str = "free",
    turns: str = "nearest",
    snap: bool | float = False,
    strict: bool = False,
    gravity=None,
    armature: float | Mapping[str, float] | None = None,
    locked: Iterable[str] | Mapping[str, float] = (),
    package_dirs: str | os.PathLike | Iterable[str | os.PathLike] = (),
) -> Model:
    """Return the model of a URDF file, or of URDF text that starts with "<".

    base: "fixed" (the root link is part of the world) or "floating" (it is body 0, moved by "root_joint", or by another name of
    ROOT_JOINTS if a joint of the file has that name). A root link with a floating joint of the file as its only child joint is
    the world in both cases.
    mimic: joints with <mimic> are independent ("free"; a note of the model lists them), rigid at their offset ("lock"), or follow
    their source by the model's `coupling` ("follow").
    turns: of continuous joints, "nearest" (differences are wrapped to the nearest turn, so that a goal may be any number of turns
    away; with mimic "lock" or "follow", not for joints that follow another by <mimic>, or are followed) or "counted" (their
    coordinates are plain numbers).
    snap: tolerance within which entries of rotations and axes become exactly 0 or +-1 (see :func:`snap_rotation`); True for 1e-4.
    strict: raise URDFError instead of a URDFWarning, for all that it warns of: moving links without mass, implausible inertias of
    single links, missing or doubtful limits, assumed rotor inertias, sources of <mimic> that do not exist or are the joint itself.
    gravity: (3,) [m/s^2], by default (0, 0, -9.81).
    armature: rotor inertia at the joint [kg m^2, or kg], one value for all joints but fixed and floating ones, or values by joint
    name; it replaces that of the file, the attribute `armature` of <dynamics> plus J n^2 of a <transmission> with <rotorInertia>.
    locked: joints made rigid, at these values [rad, m] or 0 for names only, by names or patterns ("*finger*"); they may move no
    inertia.
    package_dirs: one or several folders with the packages of meshes named package://PACKAGE/..., searched before those of the
    environment variables ROS_PACKAGE_PATH and AMENT_PREFIX_PATH.
    Joints of one degree of freedom that move no inertia, for which the equations of motion would be singular, get a rotor inertia
    of 1e-3, with a warning; joints with <mimic> that follow are not checked.

    Raises URDFError, with file, line and element, for a file that is not a valid robot; UnknownName for an unknown joint in
    `armature` or `locked`; ValueError for a wrong option, a missing folder, and for `locked` if joints follow others.
    """
    _check_option("base", base, ("fixed", "floating"))
    _check_option("mimic", mimic, ("free", "lock", "follow"))
    _check_option("turns", turns, ("nearest", "counted"))
    packages = _folders(package_dirs)
    tolerance = None if snap is False else SNAP_TOLERANCE if snap is True else float(snap)
    robot = read_robot(read_xml(source), tolerance)
    root, order = urdf_checks.tree_order(robot)
    _set_armature(robot, armature)
    followers = find_followers(robot) if mimic != "free" else {}
    model = _assemble(robot, root, order, _base_of_file(root, order) or base).build(
        STANDARD_GRAVITY if gravity is None else gravity
    )
    if mimic == "lock":
        model = lock_joints(model, {name: follower.offset for name, follower in followers.items()})
    elif followers:
        model = replace(model, coupling=couple(model, followers))
    if locked:
        model = lock_joints(model, locked)
    exempt = frozenset(followers)
    model, assumed = urdf_checks.with_assumed_rotors(model, exempt)
    _report(robot, model, exempt, [*robot.warnings, *assumed], strict)
    circular = _circular(robot, model, followers) if turns == "nearest" else ()
    notes = independent_note(robot, model) if mimic == "free" else ()
    model = replace(model, package_dirs=packages, circular=circular, notes=tuple(notes))
    return model if is_text(source) else replace(model, source=str(Path(source).resolve()))


def _folders(package_dirs: str | os.PathLike | Iterable[str | os.PathLike]) -> tuple[str, ...]:
    """Absolute paths of folders. Raises ValueError for a missing folder."""
    given = [package_dirs] if isinstance(package_dirs, (str, os.PathLike)) else list(package_dirs)
    folders = [Path(folder).expanduser() for folder in given]
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"package_dirs: there is no folder {str(folder)!r}")
    return tuple(str(folder.resolve()) for folder in folders)


def _circular(robot: Robot, model: Model, followers: Mapping[str, Follower]) -> tuple[str, ...]:
    """Continuous joints of the model, without those that follow others or are followed."""
    coupled = {*followers, *(follower.source for follower in followers.values())}
    joints = (robot.joints[name] for name in model.joint_names if name in robot.joints and name not in coupled)
    return tuple(joint.name for joint in joints if joint.element.string("type") == "continuous")


def _check_option(option: str, value: str, known: tuple[str, ...]):
    """Raise ValueError unless an option has one of the known values."""
    if value not in known:
        raise ValueError(f"{option} is {value!r}; choose one of {', '.join(map(repr, known))}")


def _set_armature(robot: Robot, armature: float | Mapping[str, float] | None):
    """Set the rotor inertia of all joints but fixed and floating ones, or of named joints; None keeps the file's.

    Raises UnknownName for another joint, ValueError for a negative or infinite value.
    """
    moving = {name: joint for name, joint in robot.joints.items() if joint.kind not in ("fixed", "floating")}
    if armature is None:
        return
    values = armature if isinstance(armature, Mapping) else dict.fromkeys(moving, armature)
    for name, value in values.items():
        if name not in moving:
            raise unknown_name("moving joint", name, list(moving))
        if not 0 <= value < np.inf:
            raise ValueError(f"the armature of joint {name!r} is {value}: give a finite number, not negative")
        moving[name].armature = float(value)


def _base_of_file(root: Link, order: list[Joint]) -> str:
    """Return "fixed" if a floating joint is the only child joint of the root link, else ""."""
    return "fixed" if [joint.kind for joint in order if joint.parent == root.name] == ["floating"] else ""


def _assemble(robot: Robot, root: Link, order: list[Joint], base: str) -> ModelBuilder:
    """Return a builder with all links of the robot in it, in the order of the joints.

    base: "floating" connects the root link to the world by a floating joint, any other value makes it part of the world.
    """
    builder = ModelBuilder(robot.name)
    if base == "floating":
        free = JointSpec("floating", name=root_joint([joint.name for joint in order]))
        builder.add_body(root.name, None, free, **_inertia(root))
    else:
        builder.add_body(root.name, None, "fixed", **_inertia(root))
    for joint in order:
        builder.add_body(
            joint.child,
            joint.parent,
            JointSpec(
                joint.kind,
                name=joint.name,
                axis=joint.axis,
                q_lower=joint.lower,
                q_upper=joint.upper,
                velocity_limit=joint.velocity,
                effort_limit=joint.effort,
                damping=joint.damping,
                friction=joint.friction,
                armature=joint.armature,
                stiffness=joint.stiffness,
                spring_reference=joint.spring_reference,
            ),
            xyz=joint.xyz,
            R=joint.R,
            **_inertia(robot.links[joint.child]),
        )
    return builder


def _inertia(link: Link) -> dict:
    """Mass properties of a link as keyword arguments of :meth:`ModelBuilder.add_body`."""
    return {"mass": link.mass, "com": link.com, "inertia": link.inertia}


def _report(robot: Robot, model: Model, exempt: frozenset[str], notes: list[str], strict: bool):
    """Raise URDFError for inertias that make the dynamics wrong; warn about implausible elements (URDFError if ``strict``).

    exempt: joints at which the mass matrix is not checked; notes: warnings so far.
    """
    errors = urdf_checks.inertia_errors(model, exempt)
    if errors:
        raise URDFError("\n".join([f"{robot.element.source}: {errors[0]}", *errors[1:]]))
    moving = [robot.links[frame.name] for frame in model.frames if frame.kind == "link" and frame.body >= 0]
    notes = [*notes, *without_source(robot), *urdf_checks.body_warnings(model)]
    notes += chain.from_iterable(urdf_checks.link_warnings(link) for link in moving)
    if not notes:
        return
    message = f"{robot.element.source}, robot {robot.name!r}:" + "".join(f"\n  {note}" for note in notes)
    if strict:
        raise URDFError(f"{message}\nCorrect the file, or load it without strict=True")
    warnings.warn(message, URDFWarning, stacklevel=3)
