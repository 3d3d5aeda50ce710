"""C source of time steps by loops (templates/contact/steps_by_loops.h) for one kind of contact law; it serves every robot."""

from __future__ import annotations

from copy import copy
from dataclasses import fields
from typing import Any

from dynamics_backends.compiled.emit.emit import Argument, step_function
from dynamics_backends.compiled.emit.trace import trace
from dynamics_backends.compiled.loops.kernel import header, template, templates
from dynamics_backends.compiled.loops.loops import USUAL_JOINTS, LoopKernel, loop_kernel
from dynamics_backends.compiled.loops.tables import INT_TABLES
from dynamics_backends.compiled.sources.manifold_source import group_source
from dynamics_backends.manifold import SE3
from dynamics_backends.rigid_body.algorithms.aba import ABA_EXTERNAL
from dynamics_backends.rigid_body.algorithms.kinematics import MOTION
from dynamics_backends.rigid_body.contact.contact_dynamics import CONTACT_FINISH, CONTACT_START
from dynamics_backends.rigid_body.contact.contact_points import field_at, force_at
from dynamics_backends.rigid_body.spatial.joints import JOINTS
from dynamics_backends.rigid_body.spatial.spatial import Motion, Transform, Vec, leaves
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw
from dynamics_backends.systems.contact.ground_surface import Plane, in_position
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley

LAWS = {
    "exponential": SoftContactLaw(),
    "exponential_rough": SoftContactLaw(friction=1.0),
    "hunt_crossley": HuntCrossley(),
}
"""Example of each kind of contact law by its name in the library: the class, and which of its parameters are set."""
_DYNAMICS, _START = ABA_EXTERNAL.given("armature"), CONTACT_START.given("armature")
_TABLES = "type", "q_index", "v_index", "dof_body", "up", "end"


def given_numbers(law: Any) -> list[str]:
    """Names of the law's parameters that are not None."""
    return [f.name for f in fields(law) if getattr(law, f.name) is not None]


def source(law: Any) -> str:
    """C source for contact laws of this kind."""
    programs = MOTION, _DYNAMICS, _START, CONTACT_FINISH
    kernels = [loop_kernel(program, sorted(USUAL_JOINTS)) for program in programs]
    force, slopes = _contact_functions(law)
    own = [_macros(*kernels), force, slopes, *group_source(SE3), template("contact/steps_by_loops.h")]
    return "\n".join([header("steps.h"), templates(), *(kernel.source for kernel in kernels), *own])


def _macros(motion: LoopKernel, dynamics: LoopKernel, start: LoopKernel, finish: LoopKernel) -> str:
    """C macros for the functions that the template calls, and enums for the tables of the kinematic tree."""
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


def _contact_functions(law: Any) -> list[str]:
    """C functions of the contact force of a plane on a point of a body, and its derivatives.

    Among the numbers of ground and law, those of the plane come first.
    """
    names = given_numbers(law)

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
