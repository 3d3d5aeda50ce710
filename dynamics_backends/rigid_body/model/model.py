"""Model of a robot: a tree of rigid bodies, as parallel arrays and index sets.

One joint connects body b to body parent[b] < b (-1: the world). The *internal frame* of a body is the frame of its joint,
rotated at load so that the axis of every 1-DoF joint, and the normal of a planar one, is +z. The frame of the URDF link, like
every other named place, is a `Frame`: a constant placement in the internal frame of its body.

A placement (R, p) of frame b in frame a transforms coordinates from b to a: x_a = R x_b + p.

| joint type | q | v (in the internal frame of the body) |
|---|---|---|
| revolute, prismatic, helical | angle, displacement, angle | its rate |
| spherical | quaternion x y z w | angular velocity (3) |
| planar | x, y, angle | vx, vy, omega |
| floating | p (3), quaternion x y z w | linear (3), angular velocity (3) |

A helical joint moves by pitch * q along its axis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from dynamics_backends.names import UnknownName, table_lines, unknown_name
from dynamics_backends.rigid_body.model.arrays import check_rotations, checked_array, fingerprint, frozen, starts
from dynamics_backends.rigid_body.model.coupling import Coupling
from dynamics_backends.rigid_body.spatial.joints import JOINTS

__all__ = ["JOINT_TYPES", "STANDARD_GRAVITY", "Coupling", "Frame", "Model", "UnknownName", "root_joint"]

JOINT_TYPES = {name: (joint.nq, joint.nv) for name, joint in JOINTS.items()}
STANDARD_GRAVITY = (0.0, 0.0, -9.81)  # [m/s^2], as in Pinocchio
FRAME_KINDS = ("link", "joint", "contact", "user")
_NEUTRAL = {"spherical": (0, 0, 0, 1), "planar": (0, 0, 0), "floating": (0, 0, 0, 0, 0, 0, 1)}
_LINEAR, _ANGULAR, _QUATERNION = ("x", "y", "z"), ("rx", "ry", "rz"), ("qx", "qy", "qz", "qw")
_V_SUFFIX = {"spherical": _ANGULAR, "planar": ("x", "y", "rz"), "floating": _LINEAR + _ANGULAR}
_V_UNITS = {
    "prismatic": ("m",),
    "spherical": ("rad",) * 3,
    "planar": ("m", "m", "rad"),
    "floating": ("m",) * 3 + ("rad",) * 3,
}
_Q_UNITS = {**_V_UNITS, "spherical": ("",) * 4, "floating": ("m",) * 3 + ("",) * 4}
_Q_SUFFIX = {"spherical": _QUATERNION, "planar": ("x", "y", "rz"), "floating": _LINEAR + _QUATERNION}


ROOT_JOINTS = ("root_joint", "floating_base_joint", "free_base_joint")
"""Names of the joint of a floating base, in order of preference; Pinocchio uses the first."""


def root_joint(taken: Collection[str]) -> str:
    """Return a name for the joint of a floating base: "root_joint", or another one if the file uses that name.

    taken: names of the joints in the file. Raises ValueError if it uses all of them.
    """
    free = [name for name in ROOT_JOINTS if name not in taken]
    if not free:
        raise ValueError(
            f"the file uses all names of a floating base's joint, {', '.join(ROOT_JOINTS)}: rename one of them"
        )
    return free[0]


@dataclass(frozen=True, eq=False)
class Frame:
    """Named frame on a body.

    body: index of the body, -1 for the world. R (3, 3), p (3,) [m]: placement in the internal frame of the body. kind: "link",
    "joint", "contact" (the expected contact point of a body without children) or "user". Raises ValueError for another kind,
    wrong shapes, numbers that are not finite, and an R that is not a rotation.
    """

    name: str
    body: int
    R: np.ndarray
    p: np.ndarray
    kind: str = "user"

    def __post_init__(self):
        object.__setattr__(self, "body", int(self.body))
        object.__setattr__(self, "R", checked_array(f"R of frame {self.name!r}", self.R, (3, 3)))
        object.__setattr__(self, "p", checked_array(f"p of frame {self.name!r}", self.p, (3,)))
        check_rotations(f"frame {self.name!r}", self.R)
        if self.kind not in FRAME_KINDS:
            known = ", ".join(map(repr, FRAME_KINDS))
            raise ValueError(f"frame {self.name!r}: kind is {self.kind!r}; known: {known}")

    def __reduce__(self):
        return type(self), tuple(getattr(self, entry.name) for entry in fields(self))

    def __repr__(self) -> str:
        return f"Frame({self.name!r}: {self.kind}, body {self.body})"


@dataclass(frozen=True, eq=False)
class Model:
    """Immutable robot model with nb bodies, nq coordinates, nv degrees of freedom; SI units, radians.

    body_names, joint_names, joint_types: nb entries; joint b moves body b.
    parent: (nb,) int, -1 for the world. placement_R (nb, 3, 3), placement_p (nb, 3): the internal frame of body b in that of its
    parent, at the neutral configuration. mass (nb,), com (nb, 3), inertia (nb, 3, 3) about the center of mass, all in the
    internal frame.
    pitch: (nb,) [m/rad], used by helical joints only.
    q_lower, q_upper: (nq,), infinite where unlimited. velocity_limit, effort_limit: (nv,), infinite where
    unknown. damping, friction (Coulomb), armature (rotor inertia at the joint): (nv,). stiffness, spring_reference: (nv,),
    the force of a spring is -stiffness (q - spring_reference), default none; only joints of one DoF have springs.
    gravity: (3,) [m/s^2] in the world. frames: named places. coupling: followers of `mimic="follow"`, or None; nq and nv are
    those of the full tree in any case. circular: joints whose coordinate is an angle on a circle, SO(2): it
    may grow beyond a turn, and differences of configurations are wrapped to the nearest turn. source: path of the model's file,
    "" if none; package_dirs: folders of the packages of its meshes (package://); notes: sentences on elements of the file that
    the model ignores. The last four are not part of the digest.

    Raises ValueError for wrong shapes, numbers that are not finite, unordered parents, repeated names, unknown joint types,
    crossed position limits, negative damping, friction, armature or stiffness, and springs at joints of several DoFs; UnknownName
    for circular joints that are not revolute.
    """

    name: str
    body_names: tuple[str, ...]
    joint_names: tuple[str, ...]
    joint_types: tuple[str, ...]
    parent: np.ndarray
    placement_R: np.ndarray
    placement_p: np.ndarray
    mass: np.ndarray
    com: np.ndarray
    inertia: np.ndarray
    pitch: np.ndarray
    q_lower: np.ndarray
    q_upper: np.ndarray
    velocity_limit: np.ndarray
    effort_limit: np.ndarray
    damping: np.ndarray
    friction: np.ndarray
    armature: np.ndarray
    stiffness: np.ndarray = field(default_factory=lambda: np.zeros(0))
    spring_reference: np.ndarray = field(default_factory=lambda: np.zeros(0))
    gravity: np.ndarray = field(default_factory=lambda: np.array(STANDARD_GRAVITY))
    frames: tuple[Frame, ...] = ()
    coupling: Coupling | None = None
    source: str = field(default="", metadata={"digest": False})
    notes: tuple[str, ...] = field(default=(), metadata={"digest": False})
    circular: tuple[str, ...] = field(default=(), metadata={"digest": False})
    package_dirs: tuple[str, ...] = field(default=(), metadata={"digest": False})

    def __post_init__(self):
        for key in ("body_names", "joint_names", "joint_types", "frames", "notes", "circular", "package_dirs"):
            object.__setattr__(self, key, tuple(getattr(self, key)))
        self._check_names()
        self._check_and_store_parents()
        for key in ("stiffness", "spring_reference"):
            if not np.size(getattr(self, key)):
                object.__setattr__(self, key, np.zeros(self.nv))
        for key, shape in self._shapes().items():
            array = checked_array(f"Model.{key}", getattr(self, key), shape, finite=key not in _LIMITS)
            object.__setattr__(self, key, array)
        check_rotations("Model.placement_R", self.placement_R)
        self._check_joint_forces()
        if np.any(self.q_lower > self.q_upper):
            worst = self.q_names[int(np.argmax(self.q_lower > self.q_upper))]
            raise ValueError(f"the lower position limit of {worst!r} lies above the upper one: exchange them")

    def __repr__(self) -> str:
        base = "floating" if self.floating_base else "fixed"
        sizes = f"{self.nb} bodies, nq = {self.nq}, nv = {self.nv}"
        return f"Model({self.name!r}: {sizes}, {self.total_mass:.4g} kg, {base} base)"

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Expected shape of each array by name."""
        nb, nq, nv = self.nb, self.nq, self.nv
        bodies = {"placement_R": (nb, 3, 3), "placement_p": (nb, 3), "mass": (nb,), "com": (nb, 3)}
        bodies |= {"inertia": (nb, 3, 3), "pitch": (nb,), "gravity": (3,)}
        return bodies | dict.fromkeys(("q_lower", "q_upper"), (nq,)) | dict.fromkeys(_DOF_FIELDS, (nv,))

    def _check_names(self):
        """Raise ValueError for repeated or missing names and unknown joint types.

        Raises UnknownName for circular joints that are not revolute.
        """
        if not len(self.body_names) == len(self.joint_names) == len(self.joint_types):
            raise ValueError("body_names, joint_names and joint_types must have one entry for each body")
        for kind, names in (("bodies", self.body_names), ("joints", self.joint_names)):
            repeated = sorted(name for name, count in Counter(names).items() if count > 1)
            if repeated:
                raise ValueError(f"two {kind} of the model are named {repeated[0]!r}: rename one of them")
        for joint, kind in zip(self.joint_names, self.joint_types, strict=True):
            if kind not in JOINT_TYPES:
                raise ValueError(f"joint {joint!r} has the unknown type {kind!r}; known: {', '.join(JOINT_TYPES)}")
        turning = [n for n, kind in zip(self.joint_names, self.joint_types, strict=True) if kind == "revolute"]
        for joint in self.circular:
            if joint not in turning:
                raise unknown_name("revolute joint", joint, turning)

    def _check_and_store_parents(self):
        """Store the parents read-only. Raises ValueError for parents or frames out of range."""
        parent = np.array(self.parent, dtype=np.int64)
        if parent.shape != (self.nb,):
            raise ValueError(f"Model.parent has shape {parent.shape}, expected ({self.nb},)")
        bad = np.flatnonzero((parent < -1) | (parent >= np.arange(self.nb)))
        if bad.size:
            b = int(bad[0])
            raise ValueError(f"parent[{b}] is {parent[b]}: number the bodies so that -1 <= parent[b] < b")
        if any(not -1 <= frame.body < self.nb for frame in self.frames):
            raise ValueError(f"a frame names a body outside of -1..{self.nb - 1}")
        parent.flags.writeable = False
        object.__setattr__(self, "parent", parent)

    def __reduce__(self):  # the constructor makes arrays read-only again after unpickling
        return type(self), tuple(getattr(self, entry.name) for entry in fields(self))

    def _check_joint_forces(self):
        """Raise ValueError for negative damping, friction, armature or stiffness, and for springs at joints of several DoFs."""
        for key in ("damping", "friction", "armature", "stiffness"):
            value = getattr(self, key)
            if np.any(value < 0):
                d = int(np.argmin(value))
                raise ValueError(f"the {key} of {self.dof_names[d]!r} is {value[d]:g}: it must not be negative")
        for d in np.flatnonzero(self.stiffness).tolist():
            if len(self.dofs(int(self.dof_body[d]))) > 1:
                name = self.joint_names[self.dof_body[d]]
                raise ValueError(f"joint {name!r} has several degrees of freedom: it takes no spring")

    # Sizes and index sets

    @property
    def nb(self) -> int:
        """Number of moving bodies."""
        return len(self.joint_types)

    @cached_property
    def nq(self) -> int:
        """Number of coordinates."""
        return sum(JOINT_TYPES[kind][0] for kind in self.joint_types)

    @cached_property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return sum(JOINT_TYPES[kind][1] for kind in self.joint_types)

    @cached_property
    def q_index(self) -> np.ndarray:
        """(nb,) int: first entry of each joint in q."""
        return starts(JOINT_TYPES[kind][0] for kind in self.joint_types)

    @cached_property
    def v_index(self) -> np.ndarray:
        """(nb,) int: first DoF of each joint."""
        return starts(JOINT_TYPES[kind][1] for kind in self.joint_types)

    def dofs(self, b: int) -> range:
        """Return the DoFs of the joint of body b."""
        first = int(self.v_index[b])
        return range(first, first + JOINT_TYPES[self.joint_types[b]][1])

    @cached_property
    def dof_body(self) -> np.ndarray:
        """(nv,) int: the body that each DoF moves."""
        return frozen(np.repeat(np.arange(self.nb), [len(self.dofs(b)) for b in range(self.nb)]))

    @cached_property
    def dof_parent(self) -> np.ndarray:
        """(nv,) int: lambda(d) of the tree of single DoFs, -1 at the root (Featherstone 2008, sec. 6.4)."""
        parent = np.arange(self.nv) - 1
        for b in range(self.nb):
            p = int(self.parent[b])
            parent[self.dofs(b)[0]] = self.dofs(p)[-1] if p >= 0 else -1
        return frozen(parent)

    def ancestors(self, b: int) -> list[int]:
        """Return the DoFs of the joints on the path from the world to body b, its own joint included, increasing."""
        path: list[int] = []
        while b >= 0:
            path[:0] = self.dofs(b)
            b = int(self.parent[b])
        return path

    @cached_property
    def depth(self) -> np.ndarray:
        """(nb,) int: number of joints between the world and the joint of each body, without it; 0 at a root."""
        depth = np.zeros(self.nb, dtype=np.int64)
        for b in np.flatnonzero(self.parent >= 0):
            depth[b] = depth[self.parent[b]] + 1
        return frozen(depth)

    @property
    def floating_base(self) -> bool:
        """True if body 0 is connected to the world by a floating joint."""
        return self.nb > 0 and self._is_free(0)

    @cached_property
    def actuated(self) -> np.ndarray:
        """(nv,) bool: False at the DoFs of a floating joint attached to the world."""
        return frozen(np.array([not self._is_free(b) for b in self.dof_body], dtype=bool))

    def _is_free(self, b: int) -> bool:
        """True if a floating joint connects body b to the world."""
        return self.parent[b] < 0 and self.joint_types[b] == "floating"

    # Names

    @cached_property
    def dof_names(self) -> tuple[str, ...]:
        """Name of each DoF: the joint's, suffixed if it has several DoFs; base_x .. base_rz for a floating base
        (or ROOT_JOINT_x .., with the name of its joint, if another joint has one of these names)."""
        return self._coordinate_names(_V_SUFFIX)

    @cached_property
    def q_names(self) -> tuple[str, ...]:
        """Name of each entry of q, as `dof_names`; quaternions end in qx qy qz qw."""
        return self._coordinate_names(_Q_SUFFIX)

    def _coordinate_names(self, suffixes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Joint names with these suffixes by joint type; base_... for a floating base, unless a joint has such a name."""
        ends = (*_Q_SUFFIX["floating"], *_V_SUFFIX["floating"])
        base = self.joint_names[0] if {f"base_{end}" for end in ends} & {*self.joint_names} else "base"
        names: list[str] = []
        for b, (joint, kind) in enumerate(zip(self.joint_names, self.joint_types, strict=True)):
            stem = base if b == 0 and self.floating_base else joint
            names += [f"{stem}_{end}" for end in suffixes[kind]] if kind in suffixes else [joint]
        return tuple(names)

    @cached_property
    def dof_units(self) -> tuple[str, ...]:
        """Unit of each DoF, m or rad; its rate has this unit per second."""
        return tuple(unit for kind in self.joint_types for unit in _V_UNITS.get(kind, ("rad",)))

    @cached_property
    def q_units(self) -> tuple[str, ...]:
        """Unit of each entry of q: m, rad, or none for quaternions."""
        return tuple(unit for kind in self.joint_types for unit in _Q_UNITS.get(kind, ("rad",)))

    def frame_id(self, name: str) -> int:
        """Return the index of a frame in `frames`; of two with this name, that which is not a joint's. Raises UnknownName."""
        found = [i for i, frame in enumerate(self.frames) if frame.name == name]
        if not found:
            raise unknown_name("frame", name, [frame.name for frame in self.frames])
        return min(found, key=lambda i: self.frames[i].kind == "joint")

    def joint_id(self, name: str) -> int:
        """Return the index of the body that the joint moves. Raises UnknownName."""
        return _index("joint", name, self.joint_names)

    def body_id(self, name: str) -> int:
        """Return the index of the body of this name. Raises UnknownName."""
        return _index("body", name, self.body_names)

    # Configurations

    def neutral(self) -> np.ndarray:
        """Return the neutral configuration (nq,), zeros and unit quaternions, possibly outside of the limits."""
        parts = [_NEUTRAL.get(kind, (0,)) for kind in self.joint_types]
        return np.array([value for part in parts for value in part], dtype=float)

    @cached_property
    def independent_q(self) -> np.ndarray:
        """(n,) int: entries of q in states of the robot: all but those of mimic joints that follow others."""
        return np.arange(self.nq) if self.coupling is None else self.coupling.independent_q

    @cached_property
    def independent_v(self) -> np.ndarray:
        """(n,) int: entries of v in states of the robot: all but those of mimic joints that follow others."""
        return np.arange(self.nv) if self.coupling is None else self.coupling.independent

    def configuration_of(self, x: np.ndarray) -> np.ndarray:
        """Return q (..., nq) of states x (..., nx), which begin with the entries `independent_q` of q."""
        q = np.asarray(x)[..., : len(self.independent_q)]
        return q if self.coupling is None else self.coupling.expand_q(q)

    def velocity_of(self, x: np.ndarray) -> np.ndarray:
        """Return v (..., nv) of states x (..., nx), which begin with the entries `independent_q` and `independent_v`."""
        first = len(self.independent_q)
        v = np.asarray(x)[..., first : first + len(self.independent_v)]
        return v if self.coupling is None else v @ self.coupling.matrix.T

    def random_configuration(self, rng: np.random.Generator, N: int | None = None) -> np.ndarray:
        """Return configurations (N, nq), or one (nq,) without N, uniform within the limits.

        Without limits, the range is +-pi, for translations +-1 m; a single missing limit lies 2 pi, or 2 m, from the other one.
        Orientations are uniform.
        """
        reach = np.where(np.array(self.q_units) == "m", 1.0, np.pi)
        low, high = np.isfinite(self.q_lower), np.isfinite(self.q_upper)
        lower = np.where(low, self.q_lower, np.where(high, self.q_upper - 2 * reach, -reach))
        upper = np.where(high, self.q_upper, np.where(low, self.q_lower + 2 * reach, reach))
        q = rng.uniform(lower, upper, (1 if N is None else N, self.nq))
        for b, kind in enumerate(self.joint_types):
            if kind in ("spherical", "floating"):
                quaternion = rng.standard_normal((len(q), 4))
                end = int(self.q_index[b]) + JOINT_TYPES[kind][0]
                q[:, end - 4 : end] = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
        return q[0] if N is None else q

    def spring_forces(self, q: np.ndarray) -> np.ndarray:
        """Return the forces of the joint springs (N, nv) [N m, N], -stiffness (q - spring_reference); (nv,) for one point (nq,)."""
        q, forces = np.asarray(q), np.zeros((*np.shape(q)[:-1], self.nv))
        for d in np.flatnonzero(self.stiffness).tolist():
            place = q[..., self.q_index[self.dof_body[d]]]
            forces[..., d] = -self.stiffness[d] * (place - self.spring_reference[d])
        return forces

    def degrees_hint(self, coordinate: int, value: float) -> str:
        """Return a hint for messages, " (degrees?)", if a value of entry ``coordinate`` of q looks like degrees, else "".

        It does if the entry is an angle, its size is above 2 pi, and it exceeds a limit by more than 1 rad.
        """
        lower, upper = self.q_lower[coordinate], self.q_upper[coordinate]
        beyond = max(lower - value, value - upper)
        looks_so = self.q_units[coordinate] == "rad" and abs(value) > 2.0 * np.pi and beyond > 1.0
        return " (degrees?)" if looks_so else ""

    # Other models

    def replace(self, **changes) -> Model:
        """Return a model with some fields changed, with all checks."""
        return replace(self, **changes)

    def with_gravity(self, gravity) -> Model:
        """Return a model under another gravity (3,) [m/s^2]."""
        return replace(self, gravity=gravity)

    def with_frame(self, name: str, parent: str, R=None, p=(0.0, 0.0, 0.0)) -> Model:
        """Return a model with one more frame, at R (3, 3), p (3,) in the frame named `parent`.

        Raises UnknownName if there is no frame `parent`, ValueError for an existing name.
        """
        if any(frame.name == name for frame in self.frames):
            raise ValueError(f"the model already has a frame named {name!r}: choose another name")
        base = self.frames[self.frame_id(parent)]
        R, p = np.eye(3) if R is None else np.asarray(R, float), np.asarray(p, float)
        frame = Frame(name, base.body, base.R @ R, base.R @ p + base.p, "user")
        return replace(self, frames=(*self.frames, frame))

    # Summary

    @property
    def total_mass(self) -> float:
        """Mass of all moving bodies [kg]."""
        return float(self.mass.sum())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all names and numbers, in hexadecimal: equal for equal models, in any process.

        It does not depend on source, notes, circular and package_dirs.
        """
        return fingerprint(self)

    def __structure__(self) -> tuple[str, tuple[str, ...]]:
        """Content that identifies the model in fingerprints of functions: its digest and circular joints."""
        return self.digest, self.circular  # functions of a robot do not depend on the place of its file

    def describe(self) -> str:
        """Return a line of totals, a table of the bodies, one per line, and the notes.

        Limits of positions are in rad or m, of velocities in rad/s or m/s, of efforts in N m or N; inf if unlimited.
        """
        head = f"{self.name}: {self.nb} bodies, nq {self.nq}, nv {self.nv}, {self.total_mass:.6g} kg"
        titles = ["body", "joint", "type", "parent", "mass [kg]", "lower", "upper", "velocity", "effort"]
        lines = table_lines([titles, *(self._body_cells(b) for b in range(self.nb))])
        return "\n".join([head, *lines, *(f"note: {note}" for note in self.notes)])

    def _body_cells(self, b: int) -> list[str]:
        """Table row of a body; limits only for joints of one degree of freedom."""
        p, q, d = int(self.parent[b]), self.q_index[b], self.v_index[b]
        names = [self.body_names[b], self.joint_names[b], self.joint_types[b]]
        cells = [self.mass[b], self.q_lower[q], self.q_upper[q], self.velocity_limit[d], self.effort_limit[d]]
        texts = [f"{value:.4g}" for value in (cells if len(self.dofs(b)) == 1 else cells[:1])]
        texts += [""] * (len(cells) - len(texts))
        return [*names, self.body_names[p] if p >= 0 else "world", *texts]


_DOF_FIELDS = ("velocity_limit", "effort_limit", "damping", "friction", "armature", "stiffness", "spring_reference")
_LIMITS = ("q_lower", "q_upper", "velocity_limit", "effort_limit")


def _index(kind: str, name: str, names: tuple[str, ...]) -> int:
    """Index of a name. Raises UnknownName."""
    if name not in names:
        raise unknown_name(kind, name, names)
    return names.index(name)
