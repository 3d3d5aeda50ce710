"""C loops over the tables of a model for free rigid bodies: articulated-body algorithm, FDSVA, and its second order.

See :mod:`~dynamics_backends.compiled.sources.dynamics_source` for the functions.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.emit import Argument, constant, step_function
from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.loops.loops import USUAL_JOINTS, LoopKernel, loop_kernel
from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.ground import at_base
from dynamics_backends.rigid_body.passes.passes import Program
from dynamics_backends.symbols import ca
from dynamics_backends.systems.bodies.free_body import FreeBody


def value_loops(system: FreeBody, parameters: int = 0) -> tuple[str, str]:
    """C source of dynamics_value, and its workspace as a C expression in nb, nv, nq.

    parameters: number of entries of p before the implicit step, if the system has one.
    """
    kernel = _kernel(ABA, system)
    forces, slopes, _ = _joint_forces(system)
    own = [_sizes(system), _rotors(system, parameters), forces, slopes, _at_base(system.model)]
    return "\n".join([kernel.source, _called(ABA, system), *own, template("free_body/free_body.h")]), kernel.workspace


def partials_loops(system: FreeBody) -> tuple[str, str]:
    """C source of dynamics_partials, which must follow dynamics_value, and its workspace as in :func:`value_loops`."""
    kernel = _kernel(FDSVA, system)
    texts = [kernel.source, _called(FDSVA, system), template("free_body/free_body_partials.h")]
    return "\n".join(texts), f"3 * nv * nv + {kernel.workspace}"


def contracted_loops(system: FreeBody) -> tuple[str, str]:
    """C source of dynamics_contracted, which must follow dynamics_partials, and its workspace as in :func:`value_loops`."""
    kernel = _kernel(FD_SECOND_ORDER, system)
    *_, bends = _joint_forces(system)
    texts = [kernel.source, _called(FD_SECOND_ORDER, system), bends, template("free_body/free_body_contracted.h")]
    return "\n".join(texts), f"7 * nv * nv + {kernel.workspace}"


def _program(program: Program, system: FreeBody) -> Program:
    """Program of the system; with implicit damping the variant with rotor inertias as an argument."""
    return program if system.offsets is None else program.given("armature")


def _kernel(program: Program, system: FreeBody) -> LoopKernel:
    return loop_kernel(_program(program, system), sorted({*USUAL_JOINTS, *system.model.joint_types}))


def _called(program: Program, system: FreeBody) -> str:
    """C macro that calls the kernel with the arguments in its order."""
    own, names = _program(program, system), {"armature": "rotors"}
    arguments = ", ".join(names.get(name, name) for name in own.arguments)
    head = f"#define FREE_{program.name.upper()}(q, v, tau, lam, rotors, ...)"
    return f"{head} {own.name}(c.ti, c.td, {arguments}, __VA_ARGS__)"


def _sizes(system: FreeBody) -> str:
    """Sizes and tables of the robot that the templates use."""
    model, driven, shares = system.model, [d for d, _ in system.shares], [share for _, share in system.shares]
    sizes = f"enum {{ FREE_NV = {model.nv}, FREE_NQ = {model.nq}, FREE_NU = {system.nu} }};"
    tables = {"free_share": shares, "free_spring": model.stiffness.tolist()}
    lines = [
        f"static const double {name}[] = {{ {', '.join(map(constant, values)) or '0.0'} }};"
        for name, values in tables.items()
    ]
    return "\n".join([sizes, f"static const int free_driven[] = {{ {', '.join(map(str, driven)) or '0'} }};", *lines])


def _rotors(system: FreeBody, parameters: int) -> str:
    """C function free_rotors."""
    lines = ["(void)p; (void)rotors;"]
    if system.offsets is not None:
        armature = system.model.armature
        damping = np.asarray(system.rotors(1.0)) - armature
        lines = [
            f"rotors[{d}] = splat({constant(rotor)}) + {constant(slope)} * p[{parameters}];"
            for d, (rotor, slope) in enumerate(zip(armature.tolist(), damping.tolist(), strict=True))
        ]
    return "\n".join(["static void free_rotors(const V *p, V *rotors)", "{", *lines, "}"])


def _joint_forces(system: FreeBody) -> list[str]:
    """C functions of tau(q, v, u), d tau_i / d v_i and d^2 tau_i / d v_i^2."""
    q, v, u = (ca.SX.sym(name, n) for name, n in zip("qvu", (system.model.nq, system.model.nv, system.nu), strict=True))
    tau = ca.vertcat(*system.joint_forces(sm.rows_of(q), sm.rows_of(v), sm.rows_of(u)).elements())
    slope = ca.vertcat(*[ca.jacobian(tau[i], v[i]) for i in range(tau.numel())])
    bend = ca.vertcat(*[ca.jacobian(slope[i], v[i]) for i in range(tau.numel())])
    arguments = [Argument("q", q.numel()), Argument("v", v.numel()), Argument("u", u.numel())]
    named = {"joint_forces": tau, "joint_force_slopes": slope, "joint_force_bends": bend}
    return [
        step_function(n, trace_expressions([q, v, u], [e]), arguments, ["r"], inline=True) for n, e in named.items()
    ]


def _at_base(model: Model) -> str:
    """C function of q with the origin at the floating base, if any: see
    :func:`~dynamics_backends.rigid_body.passes.ground.at_base`.
    """
    q = ca.SX.sym("q", model.nq)
    return step_function(
        "at_base",
        trace_expressions([q], [ca.vertcat(*sm.rows_of(at_base(model, q)))]),
        [Argument("q", model.nq)],
        ["r"],
        inline=True,
    )
