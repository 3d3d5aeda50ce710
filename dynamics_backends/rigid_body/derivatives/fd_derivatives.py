"""First derivatives of forward dynamics in closed form (FDSVA; Carpentier & Mansard, RSS 2018, eq. 17).

    a = M^-1 (tau - h),   d a/dq = -M^-1 d ID/dq,   d a/dv = -M^-1 d ID/dv,   d a/dtau = M^-1     with ID's derivatives at a

One program computes the bias force, the mass matrix and, once a is known, the derivatives of inverse dynamics: a changes
accelerations and forces only by ``acc_joint`` and ``f_joint``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.crba import MASS_MATRIX
from dynamics_backends.rigid_body.algorithms.forward_dynamics import BIAS, FACTORIZE, NET_FORCE
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import ENTRIES, KINEMATICS
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run, run_with_forces
from dynamics_backends.rigid_body.passes.ground import BIAS_ACCELERATION, FORCE, INERTIA, SUBTRACT_EXTERNAL, at_base
from dynamics_backends.rigid_body.passes.passes import Program, body, down, up_sum, whole
from dynamics_backends.scalar import Rows


@whole("a", template="ltl_solve")
def SOLVE(factor, tau_net):
    """Joint acceleration a = M^-1 (tau - h). factor: of M; tau_net: tau - h."""
    return sm.stack(ltl.solve(factor, [tau_net[i] for i in range(len(factor.ancestors))]))


@whole("M_inverse", template="ltl_inverse")
def INVERT(factor):
    """Inverse M^-1."""
    return ltl.inverse(factor)


@whole("da_dq", "da_dv", template="ltl_minus_solve_both")
def SOLVE_COLUMNS(factor, dtau_dq, dtau_dv):
    """Derivatives d a/dq and d a/dv: products of -M^-1 and the derivatives of inverse dynamics in q and v."""
    n = len(factor.ancestors)
    x = ltl.solve(factor, [sm.concatenate([dtau_dq[i], dtau_dv[i]]) for i in range(n)])
    return [-r[:n] for r in x], [-r[n:] for r in x]


@down("acc_joint")
def ACCELERATION_SHARE(acc_joint_p, S, a):
    """Contribution of the joint accelerations a to a body's acceleration, from that to its parent's (acc_joint_p)."""
    for column, rate in zip(S, a, strict=True):
        acc_joint_p = acc_joint_p + column * rate
    return acc_joint_p


@body("acc", "f_joint")
def FORCE_SHARE(I_own, acc, acc_joint):
    """Accelerations with the contribution of the joint accelerations, and the force on each body that this contribution needs."""
    return acc + acc_joint, I_own * acc_joint


@body("f")
def TOTAL_FORCE(f, f_joint):
    """Subtree forces at the solved acceleration: f, those without joint accelerations, plus f_joint, the part due to them.

    In programs with contact, f_joint includes the external forces.
    """
    return f + f_joint


FDSVA = Program(
    "fdsva",
    [
        *KINEMATICS,
        BIAS_ACCELERATION,
        INERTIA,
        FORCE,
        up_sum("I", "B", "f"),
        *MASS_MATRIX,
        BIAS,
        NET_FORCE,
        FACTORIZE,
        SOLVE,
        ACCELERATION_SHARE,
        FORCE_SHARE,
        up_sum("f_joint"),
        TOTAL_FORCE,
        *ENTRIES,
        INVERT,
        SOLVE_COLUMNS,
    ],
    ["a", "da_dq", "da_dv", "M_inverse"],
)
FDSVA_EXTERNAL = FDSVA.inserted(SUBTRACT_EXTERNAL, after=FORCE, name="fdsva_external")


class ForwardDynamicsDerivatives(NamedTuple):
    """Accelerations a (nv, N) and d a/dq, d a/dv, d a/dtau as rows (nv, nv, N)."""

    a: Rows
    dq: Any
    dv: Any
    dtau: Any


def fd_derivatives(
    model: Model, q: Rows, v: Rows, tau: Rows, f_ext: Any = None, *, driver: Driver = run
) -> ForwardDynamicsDerivatives:
    """Forward dynamics and its first derivatives on rows q (nq, N), v and tau (nv, N).

    ``f_ext``: external forces in body frames, constant in these frames.
    """
    arguments = {"q": at_base(model, q), "v": v, "tau": tau}
    fields = run_with_forces(driver, FDSVA, FDSVA_EXTERNAL, model, arguments, f_ext)
    return ForwardDynamicsDerivatives(fields["a"], fields["da_dq"], fields["da_dv"], fields["M_inverse"])
