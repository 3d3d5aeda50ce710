"""Links and joints of a URDF as records, element by element, with the numbers of the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np

from dynamics_backends.names import nearest_names
from dynamics_backends.rigid_body.spatial.rotations import snap_rotation, snap_vector, unit_axis
from dynamics_backends.rigid_body.urdf.xml_source import Element

JOINT_KINDS = {  # URDF type -> joint type of the model
    "revolute": "revolute",
    "continuous": "revolute",
    "prismatic": "prismatic",
    "fixed": "fixed",
    "floating": "floating",
    "planar": "planar",
}
_LIMITED = ("revolute", "prismatic")  # URDF types that must have position limits
DEGREES = 15.0, 360.0
"""Position limits of revolute joints in this range seem to be degrees."""
LONG, STROKE = 20.0, 50.0
"""Lengths [m] above which the offset of a joint, and a position limit of a prismatic one, seem to be in other units."""
_AXIAL = ("revolute", "continuous", "prismatic", "planar")
SMALLEST_AXIS = 1e-100  # shorter axes have no direction in double precision
ONCE = {
    "link": ("inertial",),
    "inertial": ("origin", "mass", "inertia"),
    "joint": ("parent", "child", "origin", "axis", "limit", "dynamics", "mimic"),
}
"""Children that an element has at most once."""
_XACRO = ("xacro", "://ros.org/wiki/xacro", "://wiki.ros.org/xacro")


@dataclass(eq=False)
class Link:
    """Link: mass [kg], com (3,) [m], inertia (3, 3) about the center of mass in the link's axes [kg m^2]."""

    name: str
    element: Element
    mass: float = 0.0
    com: np.ndarray = field(default_factory=lambda: np.zeros(3))
    inertia: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))


@dataclass(eq=False)
class Mimic:
    """Mimic relation: the joint's coordinate is multiplier * that of `joint` + offset."""

    joint: str
    multiplier: float
    offset: float


@dataclass(eq=False)
class Joint:
    """Joint. kind: a joint type of the model, or "fixed". xyz (3,) [m] and R (3, 3): placement in the parent link.

    parent, child: names of links. axis (3,): unit vector in the frame of the child link, z for fixed and floating joints. lower,
    upper, effort, velocity are infinite if missing; armature is the rotor inertia at the joint; the force of a spring is
    -stiffness (q - spring_reference).
    """

    name: str
    element: Element
    kind: str
    parent: str
    child: str
    xyz: np.ndarray
    R: np.ndarray
    axis: np.ndarray
    lower: float = -np.inf
    upper: float = np.inf
    effort: float = np.inf
    velocity: float = np.inf
    damping: float = 0.0
    friction: float = 0.0
    armature: float = 0.0
    stiffness: float = 0.0
    spring_reference: float = 0.0
    mimic: Mimic | None = None


@dataclass(eq=False)
class Robot:
    """All links and joints of a file, in its order; `warnings` are sentences about implausible elements."""

    name: str
    element: Element
    links: dict[str, Link]
    joints: dict[str, Joint]
    warnings: list[str]


def read_robot(root: Element, snap: float | None) -> Robot:
    """Return the links and joints under <robot>. snap: see :func:`read_joint`.

    Raises URDFError for another root element, xacro, repeated names, missing elements, wrong numbers and unknown joint types.
    """
    if root.tag == "mujocoinclude":
        raise root.error("this is a part of an MJCF: load the file that includes it, whose first element is <mujoco>")
    if root.tag == "sdf":
        raise root.error("this is an SDF, which is not read here: convert it to a URDF or MJCF")
    if root.tag != "robot":
        raise root.error("the root element of a URDF is <robot>, that of an MJCF <mujoco>: is this another format?")
    _refuse_xacro(root)
    robot = Robot(root.attributes.get("name", "robot"), root, {}, {}, [])
    for element in root.all("link"):
        _insert(robot.links, read_link(element))
    for element in root.all("joint"):
        _insert(robot.joints, read_joint(element, snap, robot.warnings))
    far = [name for name, joint in robot.joints.items() if np.linalg.norm(joint.xyz) > LONG]
    if far:
        robot.warnings.append(
            f"joints more than {LONG:g} m from their parent links (millimeters?): {', '.join(far)}; a URDF has meters"
        )
    for element in (*root.all("link"), *root.all("joint")):
        robot.warnings += _ignored_children(element)
    if not robot.links:
        raise root.error("the robot has no <link>")
    for transmission in root.all("transmission"):
        _add_rotor_inertia(transmission, robot.joints)
    return robot


def _refuse_xacro(root: Element):
    """Raise URDFError, with the command to run, for xacro elements, or expressions in attributes, anywhere below the root."""
    pending = list(root.children)
    while pending:
        element = pending.pop(0)
        values = element.attributes.values()
        if any(mark in element.tag for mark in _XACRO) or any("${" in v or "$(" in v for v in values):
            raise element.error(
                f"this is a xacro file: run `{_xacro_command(root.source)}` and load the file that it writes"
                " (xacro comes with ROS, or by pip install xacro)"
            )
        pending += element.children


def _ignored_children(element: Element) -> list[str]:
    """Warnings about children of a link or joint that are repeated, or unknown with nearly the name of a known one."""
    found = []
    for child in element.children:
        first = element.required(child.tag)
        if child.tag not in ONCE[element.tag]:
            near = [
                n for n in get_close_matches(child.tag, ONCE[element.tag], 1, 0.7) if abs(len(n) - len(child.tag)) <= 2
            ]
            found += [f"{child.place()}: ignored; did you mean <{near[0]}>?"] if near else []
        elif child is not first:
            found.append(f"{child.place()}: ignored; only the first <{child.tag}> (line {first.line}) is used")
        if child.tag in ONCE:
            found += _ignored_children(child)
    return found


def _xacro_command(source: str) -> str:
    """Command that expands a xacro file of this name; a name with a blank, such as "URDF text", becomes robot.urdf."""
    if source.endswith(".xacro"):
        return f"xacro {source} > {source.removesuffix('.xacro').removesuffix('.urdf')}.urdf"
    stem = source.removesuffix(".urdf") if " " not in source else "robot"
    return f"xacro {stem}.urdf > {stem}_expanded.urdf"


def _insert(records: dict, record):
    """Add a record by its name. Raises URDFError for a repeated name."""
    if record.name in records:
        first = records[record.name].element.line
        raise record.element.error(f"the name {record.name!r} is already used in line {first}: rename one of them")
    records[record.name] = record


def read_link(element: Element) -> Link:
    """Return the link of a <link> element; it has no mass without <inertial>, and a zero inertia tensor without <inertia>.

    Raises URDFError for missing or wrong values, and for a negative mass.
    """
    link = Link(element.string("name"), element)
    inertial = element.first("inertial")
    if inertial is None:
        return link
    link.mass = inertial.required("mass").number("value")
    if link.mass < 0:
        raise inertial.required("mass").error(f"the mass is {link.mass:g}: give one that is not negative")
    link.com, R = inertial.origin()
    tensor = inertial.first("inertia")
    if tensor is not None:
        link.inertia = _rotated(_tensor(tensor), R)
    return link


def _tensor(element: Element) -> np.ndarray:
    """Inertia tensor (3, 3) of an <inertia> element; missing products of inertia are zero.

    Raises URDFError for a missing moment of inertia, and for a text that is no number.
    """
    xx, yy, zz = (element.number(key) for key in ("ixx", "iyy", "izz"))
    xy, xz, yz = (element.number(key, 0.0) for key in ("ixy", "ixz", "iyz"))
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _rotated(tensor: np.ndarray, R: np.ndarray) -> np.ndarray:
    """Tensor R tensor R' for a rotation R (3, 3); unchanged for the identity."""
    if np.array_equal(R, np.eye(3)):
        return tensor
    tensor = R @ tensor @ R.T
    return (tensor + tensor.T) / 2


def read_joint(element: Element, snap: float | None, warnings: list[str]) -> Joint:
    """Return the joint of a <joint> element, and append warnings about it to `warnings`.

    snap: tolerance of :func:`snap_rotation` and :func:`snap_vector`, which make rotation and axis exact; None changes neither.
    Raises URDFError for an unknown type, and for missing or wrong values.
    """
    urdf_type = element.string("type")
    if urdf_type not in JOINT_KINDS:
        near = nearest_names(urdf_type, list(JOINT_KINDS), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        if urdf_type in ("spherical", "ball"):
            hint = "write three revolute joints at one point, or an MJCF, which has ball joints. "
        raise element.error(f"unknown joint type {urdf_type!r}; {hint}Known: {', '.join(JOINT_KINDS)}")
    xyz, R = element.origin()
    joint = Joint(
        name=element.string("name"),
        element=element,
        kind=JOINT_KINDS[urdf_type],
        parent=element.required("parent").string("link"),
        child=element.required("child").string("link"),
        xyz=xyz,
        R=R if snap is None else snap_rotation(R, snap),
        axis=_axis(element, snap) if urdf_type in _AXIAL else np.array([0.0, 0.0, 1.0]),
    )
    if joint.kind != "fixed":
        _read_limits(joint, element.first("limit"), urdf_type, warnings)
        _read_dynamics(joint, element.first("dynamics"))
        _read_mimic(joint, element.first("mimic"))
    return joint


def _axis(joint: Element, snap: float | None) -> np.ndarray:
    """Return the unit axis (3,), made exact by ``snap``; the URDF's default is x. Raises URDFError for a zero axis."""
    element = joint.first("axis")
    if element is None:
        return np.array([1.0, 0.0, 0.0])
    axis = element.vector("xyz", (1, 0, 0))
    if not np.abs(axis).max() > SMALLEST_AXIS:
        raise element.error("the axis is zero: give a direction, such as xyz='0 0 1'")
    axis = unit_axis(axis)
    return axis if snap is None else snap_vector(axis, snap)


def _read_limits(joint: Joint, limit: Element | None, urdf_type: str, warnings: list[str]):
    """Set position limits of revolute and prismatic joints, and the limits of effort and velocity, from <limit>.

    An effort or velocity of 0 means "not given", and so do two position limits of 0. Position limits in the wrong order are
    exchanged. Appends warnings about position limits that are missing, zero, exchanged, or seem to be degrees or millimeters.
    Raises URDFError for an attribute that is no number, and for a negative effort or velocity.
    """
    if urdf_type in _LIMITED and limit is not None and limit.attributes.keys() & {"lower", "upper"}:
        joint.lower = limit.number("lower", 0.0, infinite=True)
        joint.upper = limit.number("upper", 0.0, infinite=True)
        if joint.lower > joint.upper:
            warnings.append(
                f"joint {joint.name!r} (line {limit.line}): the lower limit {joint.lower:g} exceeds the upper {joint.upper:g}:"
                " taken as exchanged"
            )
            joint.lower, joint.upper = joint.upper, joint.lower
        elif joint.lower == joint.upper == 0:
            warnings.append(
                f"joint {joint.name!r} (line {limit.line}): both limits are 0, as exporters write where none are given: taken as"
                " unlimited; make the joint fixed if it shall not move"
            )
            joint.lower, joint.upper = -np.inf, np.inf
        elif urdf_type == "revolute" and DEGREES[0] < max(abs(joint.lower), abs(joint.upper)) <= DEGREES[1]:
            warnings.append(
                f"joint {joint.name!r} (line {limit.line}): position limits of {joint.lower:g} to {joint.upper:g} rad (degrees?);"
                " a URDF has radians"
            )
        elif urdf_type == "prismatic" and STROKE < max(abs(joint.lower), abs(joint.upper)) < np.inf:
            warnings.append(
                f"joint {joint.name!r} (line {limit.line}): position limits of {joint.lower:g} to {joint.upper:g} m (millimeters?);"
                " a URDF has meters"
            )
    elif urdf_type in _LIMITED:
        warnings.append(f"joint {joint.name!r} is {urdf_type} but has no position limits: taken as unlimited")
    if limit is not None:
        joint.effort = _positive(limit, "effort")
        joint.velocity = _positive(limit, "velocity")


def _positive(limit: Element, attribute: str) -> float:
    """Limit of this name; 0 or missing: infinite. Raises URDFError for a negative one, and for a text that is no number."""
    value = limit.number(attribute, 0.0, infinite=True)
    if value < 0:
        raise limit.error(f"{attribute} is {value:g}: give a positive limit, or 0 for none")
    return value or np.inf


def _read_dynamics(joint: Joint, dynamics: Element | None):
    """Set damping, friction, the extension `armature` [kg m^2 or kg], and SDF's spring from <dynamics>, if any.

    Raises URDFError for negative values, and for springs of joints that are neither revolute nor prismatic.
    """
    if dynamics is None:
        return
    for attribute in ("damping", "friction", "armature", "spring_stiffness"):
        value = dynamics.number(attribute, 0.0)
        if value < 0:
            raise dynamics.error(f"{attribute} is {value:g}: it must not be negative")
        setattr(joint, "stiffness" if attribute == "spring_stiffness" else attribute, value)
    if joint.stiffness and joint.kind not in ("revolute", "prismatic"):
        raise dynamics.error(
            f"spring_stiffness at a joint of type {joint.kind}: only revolute and prismatic joints take a spring"
        )
    joint.spring_reference = dynamics.number("spring_reference", 0.0)


def _read_mimic(joint: Joint, mimic: Element | None):
    """Set the joint's mimic relation from <mimic>, if any; defaults: multiplier 1, offset 0.

    Raises URDFError without the name of a joint, and for a multiplier or offset that is no number.
    """
    if mimic is not None:
        joint.mimic = Mimic(mimic.string("joint"), mimic.number("multiplier", 1.0), mimic.number("offset", 0.0))


def _add_rotor_inertia(transmission: Element, joints: dict[str, Joint]):
    """Add J n^2 to the armature of a <transmission>'s joint: <rotorInertia> or <motorInertia> J, <mechanicalReduction> n or 1.

    The first <joint> and <actuator> of the transmission count. Does nothing without a known joint, an actuator or an inertia.
    Raises URDFError for a text that is no number.
    """
    joint, actuator = transmission.first("joint"), transmission.first("actuator")
    if joint is None or actuator is None or joint.attributes.get("name") not in joints:
        return
    rotor = actuator.first("rotorInertia") or actuator.first("motorInertia")
    if rotor is None:
        return
    reduction = actuator.first("mechanicalReduction") or transmission.first("mechanicalReduction")
    ratio = 1.0 if reduction is None else reduction.content()
    joints[joint.attributes["name"]].armature += rotor.content() * ratio**2
