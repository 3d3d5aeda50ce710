"""C functions of a system's xdot and its partial derivatives, on blocks of lanes, to be built into larger kernels.

    dynamics_value(ctx, x, u, t, p, xdot)        dynamics_partials(ctx, x, u, t, p, xdot, fx, fu)

``ctx`` holds the model's tables ``ti``, ``td`` and a workspace ``w`` of ``room`` vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np

from dynamics_backends.compiled.emit import Argument, step_function
from dynamics_backends.compiled.loops import LoopKernel, loop_kernel
from dynamics_backends.compiled.trace import trace_expressions
from dynamics_backends.compiled.unrolled import unrolled_kernel
from dynamics_backends.protocol import Map
from dynamics_backends.rigid_body.aba import ABA
from dynamics_backends.rigid_body.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.systems.free_body import FreeBody

USUAL_JOINTS = ("revolute", "prismatic", "floating")


@dataclass(frozen=True)
class DynamicsSource:
    """C source; ``room``: C expression in nb, nv, nq for the vectors of workspace; the model whose tables it reads."""

    source: str
    room: str
    model: Model


_GLUE = """
static void dynamics_value(ctx_t c, const V* x, const V* u, V t, const V* p, V* xdot)
{{
const int nv = {nv};
V tau[{nv}];
(void)t; (void)p;
joint_forces(x + {nq}, u, tau);
memcpy(xdot, x + {nq}, sizeof(V) * nv);
aba(c.ti, c.td, x, x + {nq}, tau, xdot + nv, c.w);
}}

static void dynamics_partials(ctx_t c, const V* x, const V* u, V t, const V* p, V* xdot, V* fx, V* fu)
{{
enum {{ nv = {nv}, nu = {nu} }};
static const int driven[] = {{ {driven} }};
V tau[nv], slope[nv];
V *dq = c.w, *dv = dq + nv * nv, *inverse = dv + nv * nv, *w = inverse + nv * nv;
(void)t; (void)p;
joint_forces(x + {nq}, u, tau);
memcpy(xdot, x + {nq}, sizeof(V) * nv);
fdsva(c.ti, c.td, x, x + {nq}, tau, xdot + nv, dq, dv, inverse, w);
joint_force_slopes(x + {nq}, u, slope);
memset(fx, 0, sizeof(V) * nv * 2 * nv);
memset(fu, 0, sizeof(V) * nv * nu);
for (int i = 0; i < nv; i++) {{
    fx[i * 2 * nv + nv + i] = splat(1.0);
    for (int j = 0; j < nv; j++) {{
        fx[(nv + i) * 2 * nv + j] = dq[i * nv + j];
        fx[(nv + i) * 2 * nv + nv + j] = dv[i * nv + j] + inverse[i * nv + j] * slope[j];
    }}
    for (int j = 0; j < nu; j++) fu[(nv + i) * nu + j] = inverse[i * nv + driven[j]];
}}
}}
"""


def has_source(map: Map) -> bool:
    """Whether a map's functions can be written by this module: free rigid bodies."""
    return isinstance(map, FreeBody)


def free_body_source(system: Map, *, unrolled: bool = False) -> DynamicsSource:
    """The dynamics of free rigid bodies by ABA and FDSVA, as loops for every robot or as straight-line code for this one."""
    if not isinstance(system, FreeBody):
        raise TypeError(f"{type(system).__name__} has no C source; see has_source")
    model = system.model
    kernels = [_kernel(program, model, unrolled) for program in (ABA, FDSVA)]
    glue = _GLUE.format(nv=model.nv, nq=model.nq, nu=system.nu, driven=", ".join(map(str, system.actuated)) or "0")
    source = "\n".join([*(k.source for k in kernels), *_joint_forces(system), glue])
    rooms = [f"({k.workspace})" for k in kernels]
    return DynamicsSource(source, f"3 * nv * nv + {' + '.join(rooms)}", model)


def _kernel(program, model: Model, unrolled: bool) -> LoopKernel:
    if unrolled:
        return unrolled_kernel(program, model)
    return loop_kernel(program, sorted({*USUAL_JOINTS, *model.joint_types}))


def _joint_forces(system: FreeBody) -> list[str]:
    """tau(v, u) and its slopes d tau_i / d v_i as C functions."""
    nv, nu = system.model.nv, system.nu
    v, u = ca.SX.sym("v", nv), ca.SX.sym("u", nu)
    tau = ca.vertcat(*system.joint_forces([v[i] for i in range(nv)], [u[i] for i in range(nu)]).elements())
    slope = ca.vertcat(*[ca.jacobian(tau[i], v[i]) for i in range(nv)])
    arguments = [Argument("v", nv), Argument("u", nu)]
    named = (("joint_forces", tau), ("joint_force_slopes", slope))
    return [step_function(n, trace_expressions([v, u], [e]), arguments, ["r"], inline=True) for n, e in named]


def tables_of(model: Model) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The integer and double tables that the functions read."""
    from dynamics_backends.compiled.loops import double_tables, int_tables

    return int_tables(model), double_tables(model)
