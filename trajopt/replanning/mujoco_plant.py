"""MuJoCo as a plant: an independent simulator, loaded from the URDF or MJCF of the same robot, with its ground.

The file provides only the kinematic tree, its inertias and its joints; its shapes touch nothing. Damping, rotor inertia and springs
are those of the model, and equality constraints between bodies (connect, weld) those of an MJCF; joint limits, dry friction,
equalities of joints, actuators and mimic joints are not enforced. Joints are matched by name; for conventions see
:mod:`~dynamics_backends.rigid_body.mjcf.mujoco_states`.

MuJoCo rejects links with physically impossible inertias, such as massless roots and cameras, although the moving bodies that
contain them may be valid. For a URDF of such a robot, the kinematics are MuJoCo's, and each moving body gets the mass and inertia
of the model, including all links fixed to it. MuJoCo balances inertias that still violate A + B >= C.

The ground is a level or tilted plane, with boxes on it, and balls at the contact points of the robot. MuJoCo's contacts differ from
those of plans in law, friction and shape, like real contacts. The ground of MuJoCo is lowered by the radius of the balls (a plane
along its normal), so that contact points touch the ground at the height of the plan's ground.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.mjcf.mujoco_states import MujocoStates
from dynamics_backends.rigid_body.mjcf.source import Names, compiled, is_mjcf, source_path
from dynamics_backends.rigid_body.model.model import Frame, Model, root_joint
from dynamics_backends.rigid_body.spatial.rotations import quaternion_matrices, rpy_angles
from dynamics_backends.rigid_body.urdf.xml_source import Element, read_xml
from trajopt.replanning.arguments import positive_seconds
from trajopt.replanning.sampled_plant import Push, checked_limit, checked_pushes, pushed
from trajopt.replanning.workers import steps_of

SMALLEST = 1e-9
"""Smallest mass and moment of inertia of a body, relative to the robot's; MuJoCo rejects zeros, as of a link with a rotor only."""
PARTS = {
    "robot": ("link", "joint"),
    "link": ("inertial",),
    "inertial": ("origin", "mass", "inertia"),
    "joint": ("parent", "child", "origin", "axis", "dynamics"),
}
"""Elements of a URDF that MuJoCo gets: no shapes, limits, extensions and repetitions."""
WORLD = "world_of_the_plant"


def mujoco_urdf(source: str | os.PathLike[str], floating: bool, *, inertial: bool = True) -> str:
    """URDF text for MuJoCo of a file, or of text that starts with "<", with the elements of PARTS as the loader reads them.

    floating: add a link above the root link with a floating joint between them, unless the only joint below the root link is
    floating. inertial: keep masses and inertias. Raises URDFError for a file that cannot be read.
    """
    root = _for_mujoco(read_xml(source))
    for link in root.findall("link") if not inertial else ():
        for element in link.findall("inertial"):
            link.remove(element)
    if floating:
        joints = root.findall("joint")
        children = {joint.find("child").get("link") for joint in joints}
        base = next(link.get("name") for link in root.findall("link") if link.get("name") not in children)
        if [joint.get("type") for joint in joints if joint.find("parent").get("link") == base] != ["floating"]:
            name = root_joint([joint.get("name") for joint in joints])
            ElementTree.SubElement(root, "link", name=WORLD)
            joint = ElementTree.SubElement(root, "joint", name=name, type="floating")
            ElementTree.SubElement(joint, "parent", link=WORLD)
            ElementTree.SubElement(joint, "child", link=base)
    return ElementTree.tostring(root, encoding="unicode")


def _for_mujoco(element: Element) -> Any:
    """Copy of an element (xml.etree) with its PARTS. Missing products of inertia are 0, quaternions (URDF 1.1) become angles."""
    copied = ElementTree.Element(
        element.tag, {key: value for key, value in element.attributes.items() if "{" not in key}
    )
    if element.tag == "inertia":
        copied.attrib = {"ixy": "0", "ixz": "0", "iyz": "0"} | copied.attrib
    if quaternion := copied.attrib.pop("quat_xyzw", "") if element.tag == "origin" else "":
        angles = rpy_angles(quaternion_matrices(np.array(quaternion.split(), dtype=float), "quat_xyzw"))
        copied.set("rpy", " ".join(map(str, angles.tolist())))
    parts = PARTS.get(element.tag, ())
    for child in element.children:
        if child.tag in parts and (element.tag == "robot" or child is element.first(child.tag)):
            copied.append(_for_mujoco(child))
    return copied


def urdf_spec(source: str | os.PathLike[str], model: Model) -> Any:
    """MuJoCo specification (mujoco.MjSpec) of a robot's URDF, a file or text.

    If MuJoCo rejects masses or inertias of the file, those of the model's moving bodies replace them. Raises ValueError if it
    rejects the robot for another reason.
    """
    import mujoco

    try:
        spec = mujoco.MjSpec.from_string(mujoco_urdf(source, model.floating_base))
        spec.copy().compile()
        return spec
    except ValueError as error:
        if "inertia" not in str(error) and "mass" not in str(error):
            raise
    spec = mujoco.MjSpec.from_string(mujoco_urdf(source, model.floating_base, inertial=False))
    spec.compiler.balanceinertia = True
    for b, name in enumerate(model.body_names):
        _set_inertia(spec.body(name), model, b)
    return spec


def link_of(model: Model, body: int) -> Frame:
    """Frame of the link that a moving body is named after, whose axes MuJoCo uses for the body."""
    name = model.body_names[body]
    return next(f for f in model.frames if f.body == body and f.name == name and f.kind == "link")


def _set_inertia(target: Any, model: Model, b: int) -> None:
    """Set mass, center of mass and inertia of a body of a specification to those of moving body b of the model."""
    link = link_of(model, b)
    about_joints = model.mass * np.square(model.com).sum(axis=1)  # the only inertia of point masses
    rotor = float(model.armature.max())  # the only inertia of a robot without masses
    least = SMALLEST * max(float(np.abs(model.inertia).max()), float(about_joints.max()), rotor)
    inertia = link.R.T @ np.asarray(model.inertia[b]) @ link.R
    if np.linalg.eigvalsh(inertia)[0] < least:
        inertia = inertia + least * np.eye(3)
    target.mass, target.explicitinertial = max(float(model.mass[b]), SMALLEST * max(model.total_mass, rotor)), True
    target.ipos, target.iquat = link.R.T @ (model.com[b] - link.p), [1.0, 0.0, 0.0, 0.0]
    target.fullinertia = [*np.diag(inertia), inertia[0, 1], inertia[0, 2], inertia[1, 2]]


def _between_bodies() -> tuple[Any, ...]:
    """Types of MuJoCo's equalities that connect bodies, which the plant keeps."""
    import mujoco

    return mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD


def _ancestors(body: Any) -> Iterator[str]:
    """Names of the bodies that a body of a specification hangs on, up to the world."""
    while body.parent is not None:
        body = body.parent
        yield body.name


def fix_locked_joints(spec: Any, model: Model) -> Mapping[str, np.ndarray]:
    """Remove joints from a specification (mujoco.MjSpec) that are locked in the model, with their bodies at its values.

    Bodies that the model omits, such as free objects, are removed with all that hangs on them. A free joint of a robot whose base
    is fixed in the model, a mimic joint, and a locked joint beside another one on its body stay. All bodies get names. Returns
    MuJoCo's data of the equalities between bodies by name, with anchors that it would compute anew from the moved bodies.
    """
    import mujoco

    whole = spec.compile()
    names = Names(whole)
    for equality in spec.equalities:
        equality.name = names.equalities[equality.id]
    for body in spec.bodies:
        body.name = names.bodies[body.id]
        for joint in body.joints:
            joint.name = names.joints[joint.id]
    moved = [body for body in spec.bodies if any(joint.name not in model.joint_names for joint in body.joints)]
    if not moved:
        return {}
    spec.compiler.fusestatic = False
    coupled = [e for e in spec.equalities if e.type not in _between_bodies()]
    for unused in (*spec.keys, *spec.sensors, *spec.actuators, *coupled, *spec.tendons, *spec.pairs, *spec.excludes):
        spec.delete(unused)  # what the plant does not use may name joints that are gone
    places = {frame.name: frame for frame in model.frames if frame.kind == "link"}
    world = Frame("world", -1, np.eye(3), np.zeros(3))
    omitted = {body.name for body in moved if body.name not in places}
    for body in [b for b in moved if not omitted & set(_ancestors(b))]:
        child, parent = places.get(body.name), places.get(body.parent.name, world)
        if child is None:
            spec.delete(body)
        elif child.body == parent.body and all(j.type != mujoco.mjtJoint.mjJNT_FREE for j in body.joints):
            quaternion = np.zeros(4)
            mujoco.mju_mat2Quat(quaternion, (parent.R.T @ child.R).ravel())
            body.set_frame(body.parent.add_frame())  # its own one may place it elsewhere
            body.pos, body.quat = parent.R.T @ (child.p - parent.p), quaternion
            body.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
            for joint in list(body.joints):
                spec.delete(joint)
    data = dict(zip(names.equalities, whole.eq_data, strict=True))
    return {equality.name: data[equality.name] for equality in spec.equalities}


ROBOT, GROUND = 1, 2
"""Contact bits: only feet and ground collide."""
TORSIONAL, ROLLING = 5e-3, 1e-4
"""Torsional and rolling friction [m], MuJoCo's defaults."""
CONTACT_TIME_CONSTANT = 0.005
"""Time constant [s] of the ground contact; with MuJoCo's default, 0.02, feet penetrate deeply into the side of a box."""
IMPEDANCE_RATIO = 10.0
"""Ratio of frictional to normal impedance, which reduces slow slip (MuJoCo's impratio, with the elliptic cone)."""


@dataclass(frozen=True, kw_only=True)
class MujocoGround:
    """Ground of a MuJoCo plant.

    feet: frames of the robot that touch the ground. radius: of the balls about them [m]. friction: Coulomb coefficient. slope:
    upward slope of the ground along x [rad]. boxes: rows (x, y, half size along x, half size along y, height) [m] of boxes on the
    plane z = 0, which the slope does not tilt.

    Raises ValueError for no feet, a radius that is not positive, a negative friction, and a slope of a right angle or more.
    """

    feet: tuple[str, ...]
    radius: float = 0.02
    friction: float = 0.7
    slope: float = 0.0
    boxes: Sequence[tuple[float, float, float, float, float]] = ()

    def __post_init__(self) -> None:
        if not self.feet:
            raise ValueError("feet is empty; name the frames that touch the ground")
        if not (self.radius > 0 and self.friction >= 0 and abs(self.slope) < 0.5 * np.pi):
            raise ValueError(
                f"radius = {self.radius}, friction = {self.friction}, slope = {self.slope}: give a positive radius, a friction "
                "of at least 0 and a slope below a right angle"
            )

    def add_to(self, spec: Any, model: Model) -> None:
        """Add the ground and a massless ball at each foot to a specification (mujoco.MjSpec), and disable all other contacts.

        Raises UnknownName for a foot that the robot does not have, ValueError for one that does not move, or whose body MuJoCo does
        not have.
        """
        import mujoco

        for geom in spec.geoms:
            geom.contype = geom.conaffinity = 0
        for pair in list(spec.pairs):
            spec.delete(pair)
        kinds, grip = mujoco.mjtGeom, [self.friction, TORSIONAL, ROLLING]
        for foot in self.feet:
            body, place = _foot_position(model, foot)
            common = {"contype": ROBOT, "conaffinity": GROUND, "friction": grip}
            _body(spec, body, foot).add_geom(
                type=kinds.mjGEOM_SPHERE, size=[self.radius, 0, 0], pos=place, mass=0.0, **common
            )
        common = {"contype": GROUND, "conaffinity": ROBOT, "friction": grip}
        half = -0.5 * self.slope
        tilted, upward = (
            [np.cos(half), 0.0, np.sin(half), 0.0],
            np.array([-np.sin(self.slope), 0.0, np.cos(self.slope)]),
        )
        below = -self.radius * upward
        spec.worldbody.add_geom(type=kinds.mjGEOM_PLANE, size=[0, 0, 1], pos=below, quat=tilted, **common)
        for x, y, half_x, half_y, height in self.boxes:
            size, at = [half_x, half_y, 0.5 * height], [x, y, 0.5 * height - self.radius]
            spec.worldbody.add_geom(type=kinds.mjGEOM_BOX, size=size, pos=at, **common)

    def configure(self, simulated: Any) -> None:
        """Enable contacts in the compiled model (mujoco.MjModel), and disable its automatic reset of diverged states.

        Sets time constant, priority, friction cone and impedance ratio of the contacts, and the integrator "implicitfast".
        """
        import mujoco

        simulated.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
        simulated.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # diverged states must be reported
        simulated.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        simulated.geom_solref[simulated.geom_contype == GROUND, 0] = CONTACT_TIME_CONSTANT
        simulated.geom_priority[simulated.geom_contype == GROUND] = 1  # use the parameters of the ground, not a mean
        simulated.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        simulated.opt.impratio = IMPEDANCE_RATIO


def _foot_position(model: Model, foot: str) -> tuple[str, np.ndarray]:
    """Name of the body of a frame, and the position of the frame in the axes of that body [m].

    Raises UnknownName for an unknown frame, ValueError for one that is fixed to the world.
    """
    frame = model.frames[model.frame_id(foot)]
    if frame.body < 0:
        raise ValueError(
            f"the foot {foot!r} is fixed to the world and touches no ground; name a frame of a moving body"
        )
    link = link_of(model, frame.body)
    return link.name, link.R.T @ (frame.p - link.p)


def _body(spec: Any, name: str, foot: str) -> Any:
    """Body of a specification by its name. Raises ValueError for a body that MuJoCo does not have; ``foot`` is for the message."""
    result = spec.body(name)
    if result is None:
        raise ValueError(
            f"the foot {foot!r} is on the body {name!r}, which MuJoCo does not have; name a frame of another body"
        )
    return result


MISSING = "the plant 'mujoco' needs the package mujoco: pip install 'urdf-trajopt[sim]'"


def load_mujoco(
    source: str | os.PathLike[str], model: Model, ground: MujocoGround | None = None
) -> tuple[Any, MujocoStates]:
    """Load a URDF or MJCF, file or text, as a MuJoCo model (mujoco.MjModel) with the free dynamics of ``model``.

    Also returns the conversion of its states. ground: ground under the robot; None: no contacts. Raises ModuleNotFoundError without
    mujoco, ValueError for a robot that MuJoCo rejects or that has other joints, and the errors of :meth:`MujocoGround.add_to`.
    """
    try:
        import mujoco
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING, name="mujoco") from error
    if is_mjcf(source):
        whole = compiled(source).simulated
        if ground is None and set(Names(whole).joints) <= set(model.joint_names):
            simulated = copy(whole)
        else:
            simulated = _grounded(_mjcf_spec(source), model, ground)
        states = MujocoStates(model, simulated, Names(simulated).joints)
    else:
        simulated = _grounded(urdf_spec(source, model), model, ground)
        states = MujocoStates(model, simulated)
    off = mujoco.mjtDisableBit
    simulated.opt.disableflags |= off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS | off.mjDSBL_CONTACT | off.mjDSBL_ACTUATION
    simulated.eq_active0[[i for i in range(simulated.neq) if not _ties_moving_bodies(simulated, i)]] = 0
    simulated.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    simulated.opt.gravity[:] = model.gravity
    simulated.body_gravcomp[:] = 0.0  # joint forces of the model carry the weight
    states.set_joints(simulated, model)
    if ground is not None:
        ground.configure(simulated)
    return simulated, states


def _ties_moving_bodies(simulated: Any, i: int) -> bool:
    """True if equality number i connects two bodies that move relative to each other: not joints, or parts of one body."""
    import mujoco

    ids = np.array([simulated.eq_obj1id[i], simulated.eq_obj2id[i]])
    if mujoco.mjtEq(int(simulated.eq_type[i])) not in _between_bodies():
        return False
    if simulated.eq_objtype[i] == int(mujoco.mjtObj.mjOBJ_SITE):
        ids = simulated.site_bodyid[ids]
    first, second = simulated.body_weldid[ids]
    return bool(first != second)


def _mjcf_spec(source: str | os.PathLike[str]) -> Any:
    """MuJoCo specification of an MJCF, a file or a text that starts with "<"."""
    import mujoco

    return mujoco.MjSpec.from_string(source) if not source_path(source) else mujoco.MjSpec.from_file(str(source))


def _grounded(spec: Any, model: Model, ground: MujocoGround | None) -> Any:
    """Compiled MuJoCo model of a robot, without the joints that are locked in the model, and with ground if given."""
    places = fix_locked_joints(spec, model)
    if ground is not None:
        ground.add_to(spec, model)
    simulated = spec.compile()
    for name, data in places.items():
        simulated.equality(name).data[:] = data
    return simulated


class MujocoPlant:
    """Robot in MuJoCo with time steps of at most ``step`` [s]; by RK4 without ground, by "implicitfast" with ground.

    Limits, dry friction, equalities of joints and actuators of the file are not enforced; connected bodies stay connected. Joints
    that are locked in the model are fixed (:func:`fix_locked_joints`). Controls carry the weight of bodies with `gravcomp`.

    source: path or text of its URDF or MJCF. x0 (nx,): initial state. forces: (nv, nu) maps the controls u (nu,) of the plan to
    joint forces (nv,), default the identity; pushes, forces (nv,), are added to these. limit: largest magnitude of the controls, a
    number or (nu,). mass_factor: multiplies all masses and inertias. ground: ground under the robot, or None. Raises ValueError for
    an x0, a push or a limit of another size and a step that is not positive, and the errors of :func:`load_mujoco`.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        model: Model,
        x0: Array,
        step: float,
        *,
        forces: Array | None = None,
        pushes: Sequence[Push] = (),
        limit: Array | float = np.inf,
        mass_factor: float = 1.0,
        ground: MujocoGround | None = None,
    ) -> None:
        simulated, states = load_mujoco(source, model, ground)
        import mujoco

        x0 = np.asarray(x0, dtype=float)
        if x0.shape != (model.nq + model.nv,):
            follow = ", also of mimic joints: load the robot with mimic = 'free' or 'lock'" if model.coupling else ""
            raise ValueError(
                f"x0 has shape {x0.shape}; expected (nq + nv = {model.nq + model.nv},), q and v of all joints{follow}"
            )
        self._mujoco, self._model, self._states = mujoco, simulated, states
        self._data = mujoco.MjData(simulated)
        simulated.body_mass *= mass_factor
        simulated.body_inertia *= mass_factor
        anchors = simulated.eq_data.copy()
        mujoco.mj_setConst(simulated, self._data)
        simulated.eq_data[:] = anchors  # mj_setConst computes those of bodies anew, without the angles of locked joints
        self._forces = np.eye(model.nv) if forces is None else np.asarray(forces, dtype=float)
        self._step, self._limit = positive_seconds("step", step), checked_limit(limit, self._forces.shape[1])
        self._pushes = checked_pushes(pushes, model.nv)
        self._data.qpos[:], self._data.qvel[:] = self._states.to_mujoco(x0)

    def state(self) -> Array:
        """True state (nx,) in the conventions of the model."""
        return self._states.from_mujoco(self._data.qpos, self._data.qvel)

    def step(self, u: Array, dt: float) -> None:
        """Advance by dt [s] under the constant control u (nu,), clipped to its limit, and the pushes at each time step.

        Raises ValueError for a control that is not finite, or of another size than ``forces`` maps.
        """
        if not np.isfinite(u).all():
            raise ValueError(f"a control is not finite: {u}")
        if np.shape(u) != self._forces.shape[1:]:
            nv, nu = self._forces.shape
            raise ValueError(
                f"u has shape {np.shape(u)}, and the plant maps {nu} controls to the forces of {nv} joints; for a robot with "
                "undriven joints give forces (nv, nu), such as np.eye(model.nv)[:, list(system.actuated)]"
            )
        count = steps_of(dt, self._step)
        self._model.opt.timestep = dt / count
        force = self._forces @ np.clip(u, -self._limit, self._limit)
        for _ in range(count):
            total = force + pushed(self._pushes, self._data.time, len(force))
            self._data.qfrc_applied[:] = self._states.force_to_mujoco(self.state()[: self._states.nq], total)
            self._mujoco.mj_step(self._model, self._data)

    def acceleration(self, x: Array, tau: Array) -> Array:
        """Acceleration (nv,) in the state x (nq + nv,) under joint forces tau (nv,), without changing the state of the plant."""
        data = self._mujoco.MjData(self._model)
        data.qpos[:], data.qvel[:] = self._states.to_mujoco(x)
        data.qfrc_applied[:] = self._states.force_to_mujoco(x[: self._states.nq], tau)
        self._mujoco.mj_forward(self._model, data)
        return self._states.acceleration_from_mujoco(x, np.array(data.qacc))
