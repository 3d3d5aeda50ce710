"""First derivatives of inverse dynamics in closed form, IDSVA, O(n d), also for multi-DoF joints (Singh et al., RA-L 2022).

For i above or at j on one path, with composites of j:

    d tau_i / d q_j = S_i' (B_j psidot_j + I_j psiddot_j + f_j xbar* S_j)    i strictly above j
    d tau_j / d q_i = S_j' (B_j psidot_i + I_j psiddot_i)                     also within one joint
    d tau_i / d v_j = S_i' (B_j S_j + I_j (psidot_j + Sdot_j))
    d tau_j / d v_i = S_j' (B_j S_i + I_j (psidot_i + Sdot_i))

The term in f applies to strict ancestors only: within a floating base it would be wrong.  B is twice the body
Coriolis matrix. Derivatives in q are along the joint's body-frame tangent (right perturbation).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dynamics_backends.rigid_body.algorithms.carried_inertia import TURN
from dynamics_backends.rigid_body.algorithms.crba import MASS_MATRIX
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run, run_with_forces
from dynamics_backends.rigid_body.passes.ground import (
    ACCELERATION,
    FORCE,
    INERTIA,
    PLACE,
    PSI_DOT,
    RATES,
    SUBTRACT_EXTERNAL,
    VELOCITY,
    at_base,
)
from dynamics_backends.rigid_body.passes.passes import Program, dof, own_pair, pair, up_sum
from dynamics_backends.scalar import Rows


@dof("tau")
def PROJECT(S, f_b, tau_turn, armature, a):
    """Joint force tau = S' f of the subtree's force f, plus that of the rotors."""
    return S.dot(f_b) + (tau_turn + armature * a)


@dof("v_above", "q_own", "q_above", "BtS")
def COLUMNS(S, psid, psidd, rate, I_b, B_b, f_b):
    """Forces of a DoF whose products with motions of its ancestors (BLOCKS) are the entries of d tau / dq and d tau / dv.

    The products also need the momentum I S of the DoF. BtS: angular part of B' S.
    """
    own = B_b * psid + I_b * psidd
    return B_b * S + I_b * rate, own, own + S.cross_force(f_b), B_b.transpose_times(S)


@pair("dtau_dq[k,d]", "dtau_dq[d,k]", "dtau_dv[k,d]", "dtau_dv[d,k]")
def BLOCKS(S_k, psid_k, psidd_k, rate_k, IS_d, v_above_d, q_above_d, BtS_d):
    """Entries of d tau/dq and d tau/dv between joints, k above d."""
    return (
        S_k.dot(q_above_d),
        psid_k.w.dot(BtS_d) + psidd_k.dot(IS_d),
        S_k.dot(v_above_d),
        S_k.w.dot(BtS_d) + rate_k.dot(IS_d),
    )


@own_pair("dtau_dq[k,d]", "dtau_dv[k,d]")
def OWN_BLOCKS(S_k, v_above_d, q_own_d, unit_k, turn_v_d):
    """Entries (k, d) of d tau/dq and d tau/dv within one joint, rotors included."""
    return S_k.dot(q_own_d), S_k.dot(v_above_d) + unit_k.dot(turn_v_d)


KINEMATICS = [PLACE, VELOCITY, PSI_DOT, TURN]
ENTRIES = [RATES, COLUMNS, BLOCKS, OWN_BLOCKS]
IDSVA = Program(
    "idsva",
    [*KINEMATICS, ACCELERATION, INERTIA, FORCE, up_sum("I", "B", "f"), *MASS_MATRIX, PROJECT, *ENTRIES],
    ["tau", "dtau_dq", "dtau_dv", "M"],
)
IDSVA_EXTERNAL = IDSVA.inserted(SUBTRACT_EXTERNAL, after=FORCE, name="idsva_external")


class InverseDynamicsDerivatives(NamedTuple):
    """Joint forces tau (nv, N) and d tau/dq, d tau/dv, d tau/da = M as [i][j], (nv, nv, N); nested lists for symbols."""

    tau: Rows
    dq: Any
    dv: Any
    M: Any


def rnea_derivatives(
    model: Model, q: Rows, v: Rows, a: Rows, f_ext: Any = None, *, driver: Driver = run
) -> InverseDynamicsDerivatives:
    """Inverse dynamics and its first derivatives on rows q (nq, N), v and a (nv, N).

    ``f_ext``: external forces in body frames, constant in these frames.
    """
    arguments = {"q": at_base(model, q), "v": v, "a": a}
    fields = run_with_forces(driver, IDSVA, IDSVA_EXTERNAL, model, arguments, f_ext)
    return InverseDynamicsDerivatives(fields["tau"], fields["dtau_dq"], fields["dtau_dv"], fields["M"])
