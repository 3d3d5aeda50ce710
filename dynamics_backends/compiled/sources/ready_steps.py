"""Time steps of robots that are free or in soft contact, without a compiler: loops that are built with the installation.

One library serves all robots made of the usual joints, with any points, scheme and number of substeps, for each contact law that
configurations name; its numbers are arguments. A roll-out takes ten thousand evaluations one after the other, for each of which
rows of NumPy take milliseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.compiled.emit.emit import Argument, step_function
from dynamics_backends.compiled.emit.trace import trace
from dynamics_backends.compiled.loops.kernel import template, templates
from dynamics_backends.compiled.loops.loops import USUAL_JOINTS, LoopKernel, loop_kernel
from dynamics_backends.compiled.loops.tables import INT_TABLES, double_tables, int_tables
from dynamics_backends.compiled.runtime.cache import existing, key_of, load
from dynamics_backends.compiled.runtime.memory import Rooms, address, bound, over_threads, pointers, struct_of
from dynamics_backends.compiled.runtime.remembered import answered, remembered
from dynamics_backends.compiled.runtime.toolchain import find_toolchain
from dynamics_backends.compiled.sources.manifold_source import group_source
from dynamics_backends.manifold import SE3
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.aba import ABA_EXTERNAL
from dynamics_backends.rigid_body.algorithms.kinematics import MOTION
from dynamics_backends.rigid_body.contact.contact_dynamics import CONTACT_FINISH, CONTACT_START
from dynamics_backends.rigid_body.contact.contact_points import Point, field_at, force_at
from dynamics_backends.rigid_body.spatial.joints import JOINTS
from dynamics_backends.rigid_body.spatial.spatial import Motion, Transform, Vec, leaves
from dynamics_backends.symbols import tracing
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw
from dynamics_backends.systems.contact.ground_surface import Plane, in_position
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley
from dynamics_backends.systems.contact.soft_contact import SoftContact

LAWS = (SoftContactLaw(), SoftContactLaw(friction=1.0), HuntCrossley())
"""One of each kind of law: which class, and which of its numbers are given."""
_DYNAMICS, _START = ABA_EXTERNAL.given("armature"), CONTACT_START.given("armature")
_TABLES = "type", "q_index", "v_index", "dof_body", "up", "end"
_POINTERS = "ti td body rides driven at turn ground viscous damped coulomb stiffness rest rotor A B AI"
_COUNTS = "nb nv nq points controls lagged damps stages semi_implicit substeps floating"
_RobotData = struct_of("robot_t", f"{_POINTERS} {' '.join(f'{name}:l' for name in _COUNTS.split())} slip:d")
"""As in templates/contact/steps_by_loops.h."""


class Coefficients(Protocol):
    """Coefficients of an explicit Runge-Kutta method, by rows: a (strictly lower triangular), b, and those of implicit damping."""

    a: Sequence[Sequence[float]]
    b: Sequence[float]
    implicit: Sequence[Sequence[float]]


class Steps(Protocol):
    """Time steps of knots x (N, nx), u (N, nu) over dt (N,) [s]."""

    def step(self, x: Array, u: Array, dt: Array) -> Array:
        """x_next (N, nx)."""
        ...

    def first(self, x: Array, u: Array, dt: Array) -> tuple[Array, Array]:
        """x_next (N, nx) and its derivative (N, ndx, ndx + nu) in (x, u), in the tangent spaces."""
        ...


# -- the library ----------------------------------------------------------------------------------------------------------


def step_builds() -> list[Callable[[], object]]:
    """What has the libraries of LAWS in the cache, in parts that may be done side by side; each raises CompilerError."""
    return [partial(remembered, partial(_described, law), *_question(law)) for law in LAWS]


def _question(law: Any) -> tuple[Any, ...]:
    toolchain = find_toolchain()
    kind = type(law).__name__, tuple(_given(law))
    return "steps by loops", kind, USUAL_JOINTS, toolchain.definitions, toolchain.fingerprint


def _described(law: Any) -> str:
    """The name of the library of a law, once that is there."""
    with tracing:
        text = source(law)
    load(text)
    return key_of(text)


def _given(law: Any) -> list[str]:
    """The numbers of a law that are not left out."""
    return [f.name for f in fields(law) if getattr(law, f.name) is not None]


def source(law: Any) -> str:
    """The C text for laws of this kind."""
    programs = MOTION, _DYNAMICS, _START, CONTACT_FINISH
    kernels = [loop_kernel(program, sorted(USUAL_JOINTS)) for program in programs]
    force, slopes = _of_contact(law)
    own = [_macros(*kernels), force, slopes, *group_source(SE3), template("contact/steps_by_loops.h")]
    return "\n".join([templates(), *(kernel.source for kernel in kernels), *own])


def _macros(motion: LoopKernel, dynamics: LoopKernel, start: LoopKernel, finish: LoopKernel) -> str:
    """What the template calls, and where it finds the tables of the tree."""
    tables = ", ".join(f"{name.upper()} = {INT_TABLES.index(name)}" for name in _TABLES)
    places = {"f_ext": "external", "armature": "rotors"}
    lines = [f"enum {{ FLOATING = {list(JOINTS).index('floating')}, {tables} }};"]
    heads = ("MOTION", motion, "s, q, v, X, S, vel, w"), ("DYNAMICS", dynamics, "s, q, v, tau, external, rotors, a, w")
    for name, kernel, head in heads:
        arguments = [places.get(field, field) for field in (*kernel.inputs, *kernel.outputs)]
        lines.append(f"#define {name}({head}) {kernel.name}((s)->ti, (s)->td, {', '.join(arguments)}, w)")
        lines.append(f"#define {name}_ROOM ({kernel.workspace})")
    fields = list(zip(start.outputs, start.output_sizes, strict=True))
    given = [places.get(field, field) for field in start.inputs] + [f"f_{field}" for field, _ in fields]
    room = " ".join(f"V *f_{field} = w; w += {size};" for field, size in fields)
    lines.append(f"#define START {room} {start.name}(s->ti, s->td, {', '.join(given)}, w);")
    between = {"a": "a", "f_ground": "f_ground"}
    carried = [between.get(field, f"f_{field}") for field in finish.inputs]
    lines.append(f"#define FINISH {finish.name}(s->ti, s->td, {', '.join(carried)}, dq, dv, w);")
    sizes = " + ".join(size for _, size in fields)
    lines.append(f"#define SLOPES_ROOM ({sizes} + ({start.workspace}) + ({finish.workspace}))")
    return "\n".join(lines)


def _of_contact(law: Any) -> list[str]:
    """The force of a plane, whose numbers stand before those of the law, on a body at one of its points, and its derivatives."""
    names = _given(law)

    def touched(X: list, vel: list, at: list, origin: list, numbers: list) -> tuple[Any, ...]:
        pose, own, plane = Transform.build(*X), copy(law), copy(Plane())
        for name, number in zip(names, numbers[4:], strict=True):
            object.__setattr__(own, name, number)
        plane.height, plane.normal = numbers[0], Vec(*numbers[1:4])
        p = pose.point(Vec(*at))
        return pose, own, p, field_at(Motion.build(*vel), p), plane.surface(p + Vec(*origin), {})

    def force(*given: list) -> list[list]:
        pose, own, p, velocity, surface = touched(*given)
        pushed = own.force(surface.gap, surface.normal, velocity, {})
        return [leaves(pose.force_to_child(force_at(p, pushed)))]

    def slopes(*given: list) -> list[list]:
        _, own, p, velocity, surface = touched(*given)
        at = surface.gap, surface.normal, velocity
        d = own.slopes(*at, {})
        return [[x for part in (p, velocity, own.force(*at, {}), in_position(d, surface), d.w) for x in leaves(part)]]

    sizes = {"X": Transform.SIZE, "vel": Motion.SIZE, "at": 3, "origin": 3, "ground": 4 + len(names)}
    arguments = [Argument(name, n, vector=name not in ("at", "ground")) for name, n in sizes.items()]
    functions = {"contact_force": force, "contact_slopes": slopes}
    return [step_function(n, trace(f, list(sizes.values())), arguments, ["r"]) for n, f in functions.items()]


# -- a robot's steps ------------------------------------------------------------------------------------------------------

_known: WeakKeyDictionary[Any, dict[Any, Steps | None]] = WeakKeyDictionary()


def steps_at_once(system: Any, method: Coefficients, substeps: int, *, semi_implicit: bool) -> Steps | None:
    """The time steps of a system without run-time parameters; None where the loops do not serve it, or are not there.

    system: as the stages of the method evaluate it, with implicit damping where it has any. semi_implicit: whether positions move
    with the velocity at the end of the step, for a method of one stage.
    """
    own, key = _known.setdefault(system, {}), (method, substeps, semi_implicit)
    if key not in own:
        library = _library(_law(system)) if _serves(system) else None
        own[key] = None if library is None else _Robot(library, system, method, substeps, semi_implicit)
    return own[key]


def _serves(system: Any) -> bool:
    if type(system) is SoftContact:
        if type(system.ground) is not Plane or not any(_same_kind(system.law, law) for law in LAWS):
            return False
    elif type(system) is not FreeBody:
        return False
    return set(system.model.joint_types) <= set(USUAL_JOINTS)


def _same_kind(law: Any, known: Any) -> bool:
    return type(law) is type(known) and _given(law) == _given(known)


def _law(system: Any) -> Any:
    return system.law if isinstance(system, SoftContact) else LAWS[0]


def _library(law: Any) -> ctypes.CDLL | None:
    return _found(next(known for known in LAWS if _same_kind(law, known)))


@lru_cache(maxsize=len(LAWS))
def _found(law: Any) -> ctypes.CDLL | None:
    name = answered(*_question(law))
    return None if name is None else existing(name)


class _Robot:
    """The time steps of one robot: see :data:`Steps`."""

    def __init__(
        self, library: ctypes.CDLL, system: Any, method: Coefficients, substeps: int, semi_implicit: bool
    ) -> None:
        model, stages = system.model, len(method.b)
        points, floating = getattr(system, "points", ()), bool(model.floating_base)
        tables = int_tables(model), double_tables(model)
        arrays = [
            *(np.array([*values, 0], dtype=np.int32) for values in _integers(system, points, floating)),
            *(np.array([*np.ravel(values), 0.0], dtype=float) for values in _numbers(system, points, method)),
        ]
        damping = bool(system.offsets), system.offsets is not None
        counts = len(points), len(system.actuated), *damping, stages, semi_implicit, substeps, floating
        addressed = [pointers(t) for t in tables]
        self._robot = _RobotData(
            *map(ctypes.addressof, addressed),
            *map(address, arrays),
            *(model.nb, model.nv, model.nq),
            *map(int, counts),
            float(system.friction_velocity or 1.0),
        )
        self._alive, self._sizes = (tables, arrays, addressed), (model.nq + model.nv, 2 * model.nv)
        self._lanes = find_toolchain().lanes
        self._step, self._first = (self._bound(library, *names) for names in (("steps", "p"), ("first", "pp")))

    def _bound(self, library: ctypes.CDLL, name: str, results: str) -> tuple[Callable[..., Any], Rooms]:
        """A function of the library, and its workspaces."""
        room = bound(library, f"{name}_room", "p", ctypes.c_long)(ctypes.addressof(self._robot))
        return bound(library, f"{name}_run", f"pppp {results} ll p"), Rooms(int(room) * self._lanes)

    def step(self, x: Array, u: Array, dt: Array) -> Array:
        """See :class:`Steps`."""
        found = np.empty((len(x), self._sizes[0]))
        self._call(self._step, (x, u, dt), found)
        return found

    def first(self, x: Array, u: Array, dt: Array) -> tuple[Array, Array]:
        """See :class:`Steps`."""
        nx, n = self._sizes
        found = np.empty((len(x), nx)), np.empty((len(x), n, n + u.shape[1]))
        self._call(self._first, (x, u, dt), *found)
        return found

    def _call(self, function: tuple[Callable[..., Any], Rooms], given: Sequence[Array], *results: Array) -> None:
        run, rooms = function
        arrays = [np.ascontiguousarray(a, dtype=float) for a in given]
        at = ctypes.addressof(self._robot), *map(address, (*arrays, *results))

        def part(first: int, last: int, room: Array) -> None:
            run(*at, first, last, address(room))

        over_threads(part, len(arrays[0]), self._lanes, rooms)


def _integers(system: Any, points: Sequence[Point], floating: bool) -> Iterator[Sequence[int]]:
    """Bodies of the points, whether they hang from a floating base, degrees of freedom of the controls."""
    yield [point.body for point in points]
    yield [floating and 0 in system.model.ancestors(point.body) for point in points]
    yield system.actuated


def _numbers(system: Any, points: Sequence[Point], method: Coefficients) -> Iterator[Any]:
    """In the order of _POINTERS, from the places of the points on."""
    model, law, stages = system.model, _law(system), len(method.b)
    plane = getattr(system, "ground", None) or Plane()
    yield [point.at for point in points]
    yield model.placement_R[0]
    yield [plane.height, *leaves(plane.normal), *(getattr(law, name) for name in _given(law))]
    yield np.zeros(model.nv) if system.viscous is None else system.viscous
    yield system.damping_of_joints
    yield np.zeros(model.nv) if system.coulomb is None else system.coulomb
    yield model.stiffness
    yield model.spring_reference
    yield model.armature
    yield _square(method.a, stages)
    yield method.b
    yield _square(method.implicit, stages)


def _square(rows: Sequence[Sequence[float]], n: int) -> Array:
    """Rows that end early, with zeros behind."""
    return np.array([[*row, *[0.0] * (n - len(row))] for row in rows])
