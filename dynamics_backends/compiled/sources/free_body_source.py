"""The dynamics of free rigid bodies as C loops over the tables of a model: articulated bodies, FDSVA, and its
second order.

See :mod:`~dynamics_backends.compiled.sources.dynamics_source` for what the functions are.
"""

from __future__ import annotations

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.emit import Argument, step_function
from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.loops.driver import USUAL_JOINTS
from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.loops.loops import LoopKernel, loop_kernel
from dynamics_backends.deferred import deferred
from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.ground import at_base
from dynamics_backends.rigid_body.passes.passes import Program
from dynamics_backends.systems.bodies.free_body import FreeBody

ca = deferred("casadi")


def value_loops(system: FreeBody) -> tuple[str, str]:
    """C source of dynamics_value, and its workspace as a C expression in nb, nv, nq."""
    kernel = _kernel(ABA, system.model)
    forces, slopes, _ = _joint_forces(system)
    texts = [kernel.source, _sizes(system), forces, slopes, _at_base(system.model), template("free_body.h")]
    return "\n".join(texts), kernel.workspace


def partials_loops(system: FreeBody) -> tuple[str, str]:
    """C source of dynamics_partials, to stand behind dynamics_value, and its workspace as in :func:`value_loops`."""
    kernel = _kernel(FDSVA, system.model)
    return "\n".join([kernel.source, template("free_body_partials.h")]), f"3 * nv * nv + {kernel.workspace}"


def contracted_loops(system: FreeBody) -> tuple[str, str]:
    """C source of dynamics_contracted, to stand behind dynamics_partials, and its workspace as in :func:`value_loops`."""
    kernel = _kernel(FD_SECOND_ORDER, system.model)
    *_, bends = _joint_forces(system)
    return "\n".join([kernel.source, bends, template("free_body_contracted.h")]), f"7 * nv * nv + {kernel.workspace}"


def _sizes(system: FreeBody) -> str:
    """What the templates ask for of the robot."""
    driven = ", ".join(map(str, system.actuated)) or "0"
    sizes = f"enum {{ FREE_NV = {system.model.nv}, FREE_NQ = {system.model.nq}, FREE_NU = {system.nu} }};"
    return f"{sizes}\nstatic const int free_driven[] = {{ {driven} }};"


def _kernel(program: Program, model: Model) -> LoopKernel:
    return loop_kernel(program, sorted({*USUAL_JOINTS, *model.joint_types}))


def _joint_forces(system: FreeBody) -> list[str]:
    """tau(v, u), d tau_i / d v_i and d^2 tau_i / d v_i^2 as C functions."""
    v, u = ca.SX.sym("v", system.model.nv), ca.SX.sym("u", system.nu)
    tau = ca.vertcat(*system.joint_forces(sm.rows_of(v), sm.rows_of(u)).elements())
    slope = ca.vertcat(*[ca.jacobian(tau[i], v[i]) for i in range(tau.numel())])
    bend = ca.vertcat(*[ca.jacobian(slope[i], v[i]) for i in range(tau.numel())])
    arguments = [Argument("v", v.numel()), Argument("u", u.numel())]
    named = {"joint_forces": tau, "joint_force_slopes": slope, "joint_force_bends": bend}
    return [step_function(n, trace_expressions([v, u], [e]), arguments, ["r"], inline=True) for n, e in named.items()]


def _at_base(model: Model) -> str:
    """q with the origin at the floating base, if there is one: see :func:`~dynamics_backends.rigid_body.passes.ground.at_base`."""
    q = ca.SX.sym("q", model.nq)
    return step_function(
        "at_base",
        trace_expressions([q], [ca.vertcat(*sm.rows_of(at_base(model, q)))]),
        [Argument("q", model.nq)],
        ["r"],
        inline=True,
    )
