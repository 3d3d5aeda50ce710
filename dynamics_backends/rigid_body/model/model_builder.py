"""Construction of a `Model` link by link, from code or from a file, and changed copies of a model.

Links with fixed joints are merged into the parent body and joint axes rotated to +z only here: the internal frame of a moving
body is its link's frame rotated by T (T axis = +z), with the origin at the joint's anchor (by default the link's origin). Links
merged into a body have a placement in its internal frame, which determines frames, inertias and the joints of their children.

A copy has locked joints, a load on one of its frames, or other properties of its joints:

armature a_r [kg m^2, kg]     rotor inertia at the joint, added to the diagonal of the mass matrix
damping d [N m s, N s]        -d v
friction c [N m, N]           -c tanh(v / v_s), Coulomb friction smoothed over a velocity v_s of the system
stiffness k [N m, N/m]        -k (q - spring_reference) of a spring
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from dynamics_backends.names import unknown_name, unmatched_pattern
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.mass_properties import MassProperties, composite
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, STANDARD_GRAVITY, Frame, Model
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix, turn_to_z, z_rotation

Q_FIELDS, V_FIELDS = (
    ("q_lower", "q_upper"),
    ("velocity_limit", "effort_limit", "damping", "friction", "armature", "stiffness", "spring_reference"),
)
"""Values of a joint for each coordinate, and for each degree of freedom."""
AXIAL = ("revolute", "prismatic", "helical", "planar")
"""Joint types with an axis."""
Values = float | Sequence[float] | np.ndarray
"""One number, or one for each coordinate or degree of freedom."""


@dataclass(frozen=True, eq=False)
class JointSpec:
    """Joint of one of JOINT_TYPES, or "fixed".

    name: default that of its link + "_joint", none for a fixed joint.  axis (3,), or the normal of a planar joint, in the link's
    frame.  pitch [m/rad] of a helical joint.  Units are SI by degree of freedom, with angles in rad: limits of position [m, rad],
    velocity [m/s, rad/s] and effort [N, N m]; viscous damping [N s/m, N m s/rad]; dry friction [N, N m]; armature, the rotor
    inertia at the joint [kg, kg m^2]; stiffness [N/m, N m/rad] of a spring with the force -stiffness (q - spring_reference), at
    joints of one degree of freedom.
    """

    kind: str = "revolute"
    name: str | None = None
    axis: Sequence[float] | np.ndarray = (0.0, 0.0, 1.0)
    pitch: float = 0.0
    q_lower: Values = -np.inf
    q_upper: Values = np.inf
    velocity_limit: Values = np.inf
    effort_limit: Values = np.inf
    damping: Values = 0.0
    friction: Values = 0.0
    armature: Values = 0.0
    stiffness: Values = 0.0
    spring_reference: Values = 0.0

    def values(self, name: str) -> dict[str, np.ndarray]:
        """Values of Q_FIELDS (nq,) and V_FIELDS (nv,) of the joint ``name``, repeated for its coordinates and degrees of freedom.

        Raises ValueError for an unknown type, or values that do not fit it.
        """
        if self.kind not in JOINT_TYPES:
            known = ", ".join([*JOINT_TYPES, "fixed"])
            raise ValueError(f"joint {name!r} has the unknown type {self.kind!r}; known: {known}")
        nq, nv = JOINT_TYPES[self.kind]
        spread = {key: self._spread(name, key, nq) for key in Q_FIELDS}
        spread |= {key: self._spread(name, key, nv) for key in V_FIELDS}
        if nq > nv and (np.isfinite(spread["q_lower"]).any() or np.isfinite(spread["q_upper"]).any()):
            raise ValueError(f"joint {name!r}: a {self.kind} joint takes no position limits (a quaternion has none)")
        return spread

    def _spread(self, name: str, key: str, size: int) -> np.ndarray:
        """One value repeated ``size`` times, or ``size`` values. Raises ValueError for another number."""
        try:
            return np.broadcast_to(np.asarray(getattr(self, key), dtype=float), (size,))
        except ValueError:
            raise ValueError(f"joint {name!r}: {key} needs one number, or {size}") from None


SYMMETRY_TOLERANCE = 1e-9
"""Largest asymmetry of an inertia tensor, relative to its largest entry, that counts as rounding."""


@dataclass
class _Body:
    """Moving body under construction; arrays in its internal frame."""

    name: str
    joint_name: str
    joint: str
    parent: int
    R: np.ndarray
    p: np.ndarray
    pitch: float
    values: dict[str, np.ndarray]  # of its joint: see JointSpec.values
    parts: list[MassProperties] = field(default_factory=list)


class ModelBuilder:
    """Builder of a model from links and frames; `build` returns the model. Parents are added before their children.

    >>> builder = ModelBuilder("pendulum")
    >>> builder.add_body("rod", joint=JointSpec(axis=(0, 1, 0)), mass=1.0, com=(0, 0, -0.5), inertia=np.diag([0.1, 0.1, 0.0]))
    >>> builder.add_frame("tip", "rod", xyz=(0, 0, -1))
    >>> builder.build().nv
    1
    """

    def __init__(self, name: str = "robot"):
        self.name = name
        self._bodies: list[_Body] = []
        self._frames: list[Frame] = []
        self._links: dict[str, tuple[int, np.ndarray, np.ndarray]] = {}  # link -> body, placement in it

    def add_body(
        self,
        name: str,
        parent: str | None = None,
        joint: JointSpec | str = "revolute",
        *,
        xyz=(0.0, 0.0, 0.0),
        rpy=(0.0, 0.0, 0.0),
        R=None,
        anchor=(0.0, 0.0, 0.0),
        mass: float = 0.0,
        com=(0.0, 0.0, 0.0),
        inertia=None,
    ) -> None:
        """Add the link `name`, connected to the link `parent` (None: the world) by a joint or a joint type.

        A joint of type "fixed" merges the link into its parent. xyz [m] and rpy [rad], or the rotation R (3, 3): placement of the
        link in the parent link at q = 0; anchor (3,) [m]: position of the joint in the link's frame. mass [kg], com (3,) [m],
        inertia (3, 3) about the center of mass [kg m^2], in the link's frame. The frames of link and joint are added.

        Raises UnknownName for an unknown parent, ValueError for a repeated name or a wrong number.
        """
        if name in self._links:
            raise ValueError(f"there already is a link named {name!r}: choose another name")
        host, R_host, p_host = self._place(parent)
        R = rpy_matrix(rpy) if R is None else np.asarray(R, dtype=float)
        R, p = R_host @ R, R_host @ np.asarray(xyz, dtype=float) + p_host
        part = _mass_properties(name, mass, com, inertia)
        spec = JointSpec(joint) if isinstance(joint, str) else joint
        joint_name = spec.name
        if spec.kind == "fixed":
            self._links[name] = (host, R, p)
        else:
            joint_name = joint_name or f"{name}_joint"
            T = turn_to_z(spec.axis) if spec.kind in AXIAL else np.eye(3)
            pitch = spec.pitch if spec.kind == "helical" else 0.0
            pivot = np.asarray(anchor, dtype=float)
            at = p + R @ pivot
            self._bodies.append(_Body(name, joint_name, spec.kind, host, R @ T.T, at, pitch, spec.values(joint_name)))
            self._links[name] = (len(self._bodies) - 1, T, -(T @ pivot))
        self._merge(name, part)
        self._add_frames(name, joint_name, anchor)

    def add_frame(self, name: str, parent: str | None = None, *, xyz=(0, 0, 0), rpy=(0, 0, 0), R=None, kind="user"):
        """Add a named frame on the link `parent` (None: the world), at xyz [m] and rpy [rad] or R (3, 3) in it.

        kind: see :class:`Frame`. Raises UnknownName for an unknown parent, ValueError if a frame of this name and kind exists.
        """
        if any(frame.name == name and frame.kind == kind for frame in self._frames):
            raise ValueError(f"there already is a {kind} frame named {name!r}: choose another name")
        body, R_link, p_link = self._place(parent)
        R = rpy_matrix(rpy) if R is None else np.asarray(R, dtype=float)
        p = R_link @ np.asarray(xyz, dtype=float) + p_link
        self._frames.append(Frame(name, body, R_link @ R, p, kind))

    def build(self, gravity=STANDARD_GRAVITY) -> Model:
        """Return the model under gravity (3,) [m/s^2].

        Raises ValueError as `Model` does, and if the masses of links merged into a body cancel.
        """
        bodies = self._bodies
        merged = [_merged(body) for body in bodies]
        values: dict[str, Any] = {
            key: np.concatenate([np.zeros(0), *(body.values[key] for body in bodies)]) for key in (*Q_FIELDS, *V_FIELDS)
        }
        return Model(
            name=self.name,
            body_names=tuple(body.name for body in bodies),
            joint_names=tuple(body.joint_name for body in bodies),
            joint_types=tuple(body.joint for body in bodies),
            parent=np.array([body.parent for body in bodies], dtype=np.int64),
            placement_R=np.reshape([body.R for body in bodies], (-1, 3, 3)),
            placement_p=np.reshape([body.p for body in bodies], (-1, 3)),
            mass=np.array([part.mass for part in merged], dtype=float),
            com=np.reshape([part.com for part in merged], (-1, 3)),
            inertia=np.reshape([part.inertia for part in merged], (-1, 3, 3)),
            pitch=np.array([body.pitch for body in bodies], dtype=float),
            gravity=gravity,
            frames=tuple(self._frames),
            **values,
        )

    def _place(self, link: str | None) -> tuple[int, np.ndarray, np.ndarray]:
        """Body and placement in it (R, p) of a link; None: the world. Raises UnknownName."""
        if link is None:
            return -1, np.eye(3), np.zeros(3)
        if link not in self._links:
            raise unknown_name("parent link", link, list(self._links))
        return self._links[link]

    def _merge(self, link: str, part: MassProperties):
        """Add mass properties in a link's frame to its body; those of links of the world are ignored."""
        body, R, p = self._links[link]
        if body >= 0:
            self._bodies[body].parts.append(part.moved(R, p))

    def _add_frames(self, link: str, joint_name: str | None, anchor):
        """Add the frames of a link and of its joint; none for a joint without a name."""
        self.add_frame(link, link, kind="link")
        if joint_name is not None:
            self.add_frame(joint_name, link, xyz=anchor, kind="joint")


def lock_joints(model: Model, joints: Iterable[str] | Mapping[str, float]) -> Model:
    """Return a model in which these joints are rigid, at the given values (0 for names without a value).

    joints: names, or name -> value [rad, m]. A name may be a pattern of :mod:`fnmatch`, such as "*finger*"; a pattern never
    matches floating joints, and a joint's name takes precedence over a pattern.
    Joints with several DoFs can be locked at their neutral configuration only, by the value 0. Bodies are merged into the
    parents; all frames remain. Raises UnknownName for a name or pattern that matches no joint, and ValueError for another value
    of a joint with several DoFs and for a model with a coupling.

    >>> import trajopt as to
    >>> to.lock_joints(to.load_robot("iiwa7"), {"iiwa_joint_7": 0.5}).nv
    6
    >>> to.lock_joints(to.load_robot("iiwa7"), ["iiwa_joint_[567]"]).nv
    4
    """
    if model.coupling is not None:
        raise ValueError("cannot lock joints of a model with followers: load it with mimic='lock' or 'free'")
    joints = [joints] if isinstance(joints, str) else joints
    values = dict(joints) if isinstance(joints, Mapping) else dict.fromkeys(joints, 0.0)
    locked = _locked_values(model, values)
    for b, value in locked.items():
        if JOINT_TYPES[model.joint_types[b]] != (1, 1) and value:
            kind = model.joint_types[b]
            raise ValueError(
                f"joint {model.joint_names[b]!r} is {kind}: it locks where it is neutral only, at 0, not at {value}"
            )
    builder = ModelBuilder(model.name)
    for b in range(model.nb):
        _add_again(builder, model, b, locked.get(b))
    builder._frames.clear()  # the model's frames below have the public names
    for frame in model.frames:
        parent = model.body_names[frame.body] if frame.body >= 0 else None
        builder.add_frame(frame.name, parent, xyz=frame.p, R=frame.R, kind=frame.kind)
    metadata = {key: getattr(model, key) for key in ("source", "notes", "package_dirs")}
    built = builder.build(model.gravity)
    return built.replace(circular=tuple(n for n in model.circular if n in built.joint_names), **metadata)


WILDCARDS = "*?["
"""Characters that make a name a pattern."""


def _locked_values(model: Model, values: Mapping[str, float]) -> dict[int, float]:
    """Values by joint index, of names and patterns; exact names override patterns, a later pattern an earlier one.

    Raises UnknownName for a name or pattern without a joint.
    """
    by_pattern: dict[int, float] = {}
    by_name: dict[int, float] = {}
    for name, value in values.items():
        if name in model.joint_names or not any(c in name for c in WILDCARDS):
            by_name[model.joint_id(name)] = float(value)
        else:
            by_pattern |= dict.fromkeys(_matching_joints(model, name), float(value))
    return by_pattern | by_name


def _matching_joints(model: Model, pattern: str) -> list[int]:
    """Indices of the joints, except floating ones, whose name matches a pattern. Raises UnknownName if none does."""
    names = [name for name, kind in zip(model.joint_names, model.joint_types, strict=True) if kind != "floating"]
    matching = [model.joint_names.index(name) for name in names if fnmatchcase(name, pattern)]
    if not matching:
        raise unmatched_pattern("joint", pattern, names)
    return matching


def _add_again(builder: ModelBuilder, model: Model, b: int, value: float | None):
    """Add body b, with its internal frame as link frame.

    value: None for the joint of the model, else the coordinate at which it is rigid; a joint of several DoFs is
    rigid where it is neutral.
    """
    R, p, kind = model.placement_R[b], model.placement_p[b], model.joint_types[b]
    joint = JointSpec("fixed")
    if value is None:
        q = slice(int(model.q_index[b]), int(model.q_index[b]) + JOINT_TYPES[kind][0])
        v = slice(int(model.v_index[b]), int(model.v_index[b]) + JOINT_TYPES[kind][1])
        values = {key: getattr(model, key)[q] for key in Q_FIELDS} | {key: getattr(model, key)[v] for key in V_FIELDS}
        joint = JointSpec(kind, model.joint_names[b], pitch=float(model.pitch[b]), **values)
    elif JOINT_TYPES[kind] == (1, 1):
        slide = value if kind == "prismatic" else float(model.pitch[b]) * value
        p = p + R @ np.array([0.0, 0.0, slide])
        R = R if kind == "prismatic" else R @ z_rotation(value)
    parent = model.body_names[model.parent[b]] if model.parent[b] >= 0 else None
    inertia = {"mass": model.mass[b], "com": model.com[b], "inertia": model.inertia[b]}
    builder.add_body(model.body_names[b], parent, joint, xyz=p, R=R, **inertia)


def _mass_properties(name: str, mass, com, inertia) -> MassProperties:
    """Mass properties of a link (inertia default zero). Raises ValueError for wrong shapes or an asymmetric tensor."""
    com = np.array(com, dtype=float)
    inertia = np.zeros((3, 3)) if inertia is None else np.array(inertia, dtype=float)
    if com.shape != (3,) or inertia.shape != (3, 3):
        raise ValueError(f"link {name!r}: com needs 3 numbers and inertia 3 x 3")
    if np.abs(inertia - inertia.T).max() > SYMMETRY_TOLERANCE * np.abs(inertia).max():
        raise ValueError(f"link {name!r}: the inertia tensor is not symmetric")
    return MassProperties(float(mass), com, inertia)


def _merged(body: _Body) -> MassProperties:
    """Mass properties of all links merged into a body. Raises ValueError with the link's name if their masses cancel."""
    try:
        return composite(body.parts)
    except ValueError as error:
        raise ValueError(f"link {body.name!r}: {error}") from None


PROPERTIES = ("armature", "damping", "friction", "stiffness", "spring_reference")
PropertyValues = float | Mapping[str, float] | None
"""One number for all joints of one degree of freedom, numbers by joint name, or None to use the model's."""


def with_joint_properties(model: Model, **values: PropertyValues) -> Model:
    """Return a model with some of PROPERTIES changed, by keyword; one number is for all joints of one degree of freedom.

    A named joint of several degrees of freedom uses its number for each of them. Raises UnknownName for a joint that the model
    does not have; ValueError for an infinite value, a negative one (except spring_reference), and a stiffness of a joint of
    several degrees of freedom; TypeError for another property.
    """
    changes = {}
    for key, value_or_values in values.items():
        if key not in PROPERTIES:
            raise TypeError(f"joints have no property {key!r}; known: {', '.join(PROPERTIES)}")
        if value_or_values is not None:
            changes[key] = _values_by_dof(model, key, value_or_values)
    return model.replace(**changes) if changes else model


def _values_by_dof(model: Model, key: str, value_or_values: float | Mapping[str, float]) -> np.ndarray:
    """Values (nv,) of a property with those of the given joints, or of all joints of one degree of freedom, replaced."""
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

    load: mass properties in the load's frame. Raises UnknownName for an unknown frame, ValueError for a frame fixed to the
    ground, or an existing name.
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
