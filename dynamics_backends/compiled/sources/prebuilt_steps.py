"""Time steps of free robots and robots in soft contact, by loops that are built with the package.

They serve all robots made of the usual joints, with any contact points, scheme and number of substeps, for each contact law that
configurations name; the numbers of the law are arguments.  A rollout takes ten thousand evaluations in sequence, each of which
takes NumPy rows milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.compiled.loops.loops import USUAL_JOINTS
from dynamics_backends.compiled.loops.tables import double_tables, int_tables
from dynamics_backends.compiled.runtime.memory import Rooms, over_threads
from dynamics_backends.compiled.sources.steps_source import LAWS, given_numbers
from dynamics_backends.machine import library as machine
from dynamics_backends.machine.library import ffi
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.contact.contact_points import Point
from dynamics_backends.rigid_body.spatial.spatial import leaves
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.ground_surface import Plane
from dynamics_backends.systems.contact.soft_contact import SoftContact


class Coefficients(Protocol):
    """Coefficients of an explicit Runge-Kutta method, by rows: a (strictly lower triangular), b, and those of implicit damping."""

    a: Sequence[Sequence[float]]
    b: Sequence[float]
    implicit: Sequence[Sequence[float]]


class Steps(Protocol):
    """Time steps of knots x (N, nx), u (N, nu) over dt (N,) [s]."""

    def step(self, x: Array, u: Array, dt: Array) -> Array:
        """Next states x_next (N, nx)."""
        ...

    def first(self, x: Array, u: Array, dt: Array) -> tuple[Array, Array]:
        """Next states x_next (N, nx) and their derivatives (N, ndx, ndx + nu) in (x, u), in the tangent spaces."""
        ...


# -- a robot's steps ------------------------------------------------------------------------------------------------------

_known: WeakKeyDictionary[Any, dict[Any, Steps | None]] = WeakKeyDictionary()


def prebuilt_steps(system: Any, method: Coefficients, substeps: int, *, semi_implicit: bool) -> Steps | None:
    """Time steps of a system without run-time parameters, by prebuilt loops; None if the loops do not support it.

    system: the system that the method's stages evaluate, including implicit damping. semi_implicit: integrate positions with the
    velocity at the end of the step, for a method of one stage.
    """
    own, key = _known.setdefault(system, {}), (method, substeps, semi_implicit)
    if key not in own:
        own[key] = _Robot(system, method, substeps, semi_implicit) if _serves(system) else None
    return own[key]


def _serves(system: Any) -> bool:
    if type(system) is SoftContact:
        if type(system.ground) is not Plane or not any(_same_kind(system.law, law) for law in LAWS.values()):
            return False
    elif type(system) is not FreeBody:
        return False
    return set(system.model.joint_types) <= set(USUAL_JOINTS)


def _same_kind(law: Any, known: Any) -> bool:
    return type(law) is type(known) and given_numbers(law) == given_numbers(known)


def _law(system: Any) -> Any:
    return system.law if isinstance(system, SoftContact) else next(iter(LAWS.values()))


class _Robot:
    """Time steps of one robot: see :class:`Steps`."""

    def __init__(self, system: Any, method: Coefficients, substeps: int, semi_implicit: bool) -> None:
        model, law = system.model, _law(system)
        self._robot, self._buffers = _robot_data(system, method, substeps, semi_implicit)
        self._sizes = (model.nq + model.nv, 2 * model.nv)
        name = next(name for name, known in LAWS.items() if _same_kind(law, known))
        steps, self._lanes = machine.library().steps_named(name.encode()), machine.lanes()
        self._step = steps.step, Rooms(steps.step_room(self._robot) * self._lanes)
        self._first = steps.first, Rooms(steps.first_room(self._robot) * self._lanes)

    def step(self, x: Array, u: Array, dt: Array) -> Array:
        """See :class:`Steps`."""
        outputs = np.empty((len(x), self._sizes[0]))
        self._call(self._step, (x, u, dt), outputs)
        return outputs

    def first(self, x: Array, u: Array, dt: Array) -> tuple[Array, Array]:
        """See :class:`Steps`."""
        nx, n = self._sizes
        outputs = np.empty((len(x), nx)), np.empty((len(x), n, n + u.shape[1]))
        self._call(self._first, (x, u, dt), *outputs)
        return outputs

    def _call(self, function: tuple[Callable[..., Any], Rooms], inputs: Sequence[Array], *results: Array) -> None:
        run, rooms = function
        read = [ffi.from_buffer("double[]", np.ascontiguousarray(a, dtype=float)) for a in inputs]
        written = [ffi.from_buffer("double[]", a, require_writable=True) for a in results]

        def part(first: int, last: int, room: Array) -> None:
            run(self._robot, *read, *written, first, last, ffi.from_buffer(room))

        over_threads(part, len(inputs[0]), self._lanes, rooms)


def _robot_data(system: Any, method: Coefficients, substeps: int, semi_implicit: bool) -> tuple[Any, list[Any]]:
    """Struct robot_t of steps.h, and the arrays that must live as long as it."""
    model, stages = system.model, len(method.b)
    points, floating = getattr(system, "points", ()), bool(model.floating_base)
    integers, doubles = int_tables(model), double_tables(model)
    ti = ffi.new("const int *[]", [ffi.from_buffer("int[]", t) for t in integers])
    td = ffi.new("const double *[]", [ffi.from_buffer("double[]", t) for t in doubles])
    arrays = {
        **{key: ffi.new("int[]", [*map(int, v), 0]) for key, v in _integers(system, points, floating).items()},
        **{
            key: ffi.new("double[]", [*map(float, np.ravel(v)), 0.0])
            for key, v in _numbers(system, points, method).items()
        },
    }
    counts = {"nb": model.nb, "nv": model.nv, "nq": model.nq, "points": len(points), "controls": len(system.actuated)}
    counts |= {"lagged": bool(system.offsets), "damps": system.offsets is not None, "stages": stages}
    counts |= {"semi_implicit": semi_implicit, "substeps": substeps, "floating": floating}
    robot = ffi.new(
        "robot_t *", {"ti": ti, "td": td, **arrays, **counts, "slip": float(system.friction_velocity or 1.0)}
    )
    return robot, [ti, td, integers, doubles, arrays]


def _integers(system: Any, points: Sequence[Point], floating: bool) -> dict[str, Sequence[int]]:
    """Arrays of integers of robot_t: bodies of the points, which points move with a floating base, driven degrees of freedom."""
    rides = [floating and 0 in system.model.ancestors(point.body) for point in points]
    return {"body": [point.body for point in points], "rides": rides, "driven": system.actuated}


def _numbers(system: Any, points: Sequence[Point], method: Coefficients) -> dict[str, Any]:
    """Arrays of doubles of robot_t."""
    model, law, stages = system.model, _law(system), len(method.b)
    plane = getattr(system, "ground", None) or Plane()
    none = np.zeros(model.nv)
    return {
        "at": [point.at for point in points],
        "turn": model.placement_R[0],
        "ground": [plane.height, *leaves(plane.normal), *(getattr(law, name) for name in given_numbers(law))],
        "viscous": none if system.viscous is None else system.viscous,
        "damped": system.damping_of_joints,
        "coulomb": none if system.coulomb is None else system.coulomb,
        "stiffness": model.stiffness,
        "rest": model.spring_reference,
        "rotor": model.armature,
        "A": _square(method.a, stages),
        "B": method.b,
        "AI": _square(method.implicit, stages),
    }


def _square(rows: Sequence[Sequence[float]], n: int) -> Array:
    """Square matrix from rows, padded with zeros."""
    return np.array([[*row, *[0.0] * (n - len(row))] for row in rows])
