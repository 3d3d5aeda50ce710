"""The dynamics of free rigid bodies as C loops over the tables of a model: articulated bodies, FDSVA, and its
second order.

See :mod:`~dynamics_backends.compiled.sources.dynamics_source` for what the functions are.
"""

from __future__ import annotations

import casadi as ca

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.emit import Argument, step_function
from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.compiled.loops.driver import USUAL_JOINTS
from dynamics_backends.compiled.loops.loops import LoopKernel, loop_kernel
from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.ground import at_base
from dynamics_backends.rigid_body.passes.passes import Program
from dynamics_backends.systems.bodies.free_body import FreeBody

_VALUE = """
static void dynamics_value(ctx_t c, const V* x, const V* u, V t, const V* p, V* f)
{{
V tau[{nv}];
(void)t; (void)p;
joint_forces(x + {nq}, u, tau);
aba(c.ti, c.td, x, x + {nq}, tau, f, c.w);
}}
"""
_PARTIALS = """
static void dynamics_partials(ctx_t c, const V* x, const V* u, V t, const V* p, V* f, V* fx, V* fu)
{{
enum {{ nv = {nv} }};
V tau[nv], q[{nq}];
V *dq = c.w, *dv = dq + nv * nv, *inverse = dv + nv * nv, *w = inverse + nv * nv;
(void)t; (void)p;
at_base(x, q);
joint_forces(x + {nq}, u, tau);
fdsva(c.ti, c.td, q, x + {nq}, tau, f, dq, dv, inverse, w);
first_derivatives(x + {nq}, u, dq, dv, inverse, fx, fu);
}}
"""
_CONTRACTED = """
static void dynamics_contracted(
    ctx_t c, const V* x, const V* u, V t, const V* p, const V* lam, V* f, V* fx, V* fu, V* xx, V* ux, V* uu)
{{
enum {{ nv = {nv}, nu = {nu} }};
static const int driven[] = {{ {driven} }};
V tau[nv], slope[nv], bend[nv], q[{nq}];
V *dq = c.w, *dv = dq + nv * nv, *inverse = dv + nv * nv, *qq = inverse + nv * nv, *qv = qq + nv * nv, *vv = qv + nv * nv,
  *qtau = vv + nv * nv, *w = qtau + nv * nv;
(void)t; (void)p;
at_base(x, q);
joint_forces(x + {nq}, u, tau);
fd_second_order(c.ti, c.td, q, x + {nq}, tau, lam + nv, f, dq, dv, inverse, qq, qv, vv, qtau, w);
first_derivatives(x + {nq}, u, dq, dv, inverse, fx, fu);
joint_force_slopes(x + {nq}, u, slope);
joint_force_bends(x + {nq}, u, bend);
for (int i = 0; i < nv; i++) {{
    V weight = ZERO;
    for (int j = 0; j < nv; j++) weight += inverse[i * nv + j] * lam[nv + j];
    for (int j = 0; j < nv; j++) {{
        const V cross = qv[i * nv + j] + qtau[i * nv + j] * slope[j];
        xx[i * 2 * nv + j] = 0.5 * (qq[i * nv + j] + qq[j * nv + i]);
        xx[i * 2 * nv + nv + j] = cross;
        xx[(nv + j) * 2 * nv + i] = cross;
        xx[(nv + i) * 2 * nv + nv + j] = vv[i * nv + j];
    }}
    xx[(nv + i) * 2 * nv + nv + i] += weight * bend[i];
    for (int j = 0; j < nu; j++) {{
        ux[j * 2 * nv + i] = qtau[i * nv + driven[j]];
        ux[j * 2 * nv + nv + i] = ZERO;
    }}
}}
for (int i = 0; i < nu * nu; i++) uu[i] = ZERO;
}}
"""
_FIRST = """
static void first_derivatives(const V* v, const V* u, const V* dq, const V* dv, const V* inverse, V* fx, V* fu)
{{
enum {{ nv = {nv}, nu = {nu} }};
static const int driven[] = {{ {driven} }};
V slope[nv];
joint_force_slopes(v, u, slope);
for (int i = 0; i < nv; i++) {{
    for (int j = 0; j < nv; j++) {{
        fx[i * 2 * nv + j] = dq[i * nv + j];
        fx[i * 2 * nv + nv + j] = dv[i * nv + j] + inverse[i * nv + j] * slope[j];
    }}
    for (int j = 0; j < nu; j++) fu[i * nu + j] = inverse[i * nv + driven[j]];
}}
}}
"""


def value_loops(system: FreeBody) -> tuple[str, str]:
    """C source of dynamics_value, and its workspace as a C expression in nb, nv, nq."""
    kernel = _kernel(ABA, system.model)
    forces, slopes, _ = _joint_forces(system)
    helpers = [forces, slopes, _filled(_FIRST, system), _at_base(system.model)]
    return "\n".join([kernel.source, *helpers, _filled(_VALUE, system)]), kernel.workspace


def partials_loops(system: FreeBody) -> tuple[str, str]:
    """C source of dynamics_partials, to stand behind dynamics_value, and its workspace as in :func:`value_loops`."""
    kernel = _kernel(FDSVA, system.model)
    return "\n".join([kernel.source, _filled(_PARTIALS, system)]), f"3 * nv * nv + {kernel.workspace}"


def contracted_loops(system: FreeBody) -> tuple[str, str]:
    """C source of dynamics_contracted, to stand behind dynamics_partials, and its workspace as in :func:`value_loops`."""
    kernel = _kernel(FD_SECOND_ORDER, system.model)
    *_, bends = _joint_forces(system)
    return "\n".join([kernel.source, bends, _filled(_CONTRACTED, system)]), f"7 * nv * nv + {kernel.workspace}"


def _filled(text: str, system: FreeBody) -> str:
    model = system.model
    return text.format(nv=model.nv, nq=model.nq, nu=system.nu, driven=", ".join(map(str, system.actuated)) or "0")


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
