"""Second derivatives of inverse dynamics contracted with a vector, in closed form, O(n d).

For a fixed mu let G(q, v, a) = mu' ID(q, v, a) = sum_i w_i . f_i with w_i = w_p + S_i mu_i (modified RNEA; Echeandia
& Wensing 2021, Nganga & Wensing 2021).  Moving a joint moves its subtree rigidly, and G consists of invariant
products, so only the changes in axes that move with the subtree matter: dw = chi, dv = psidot, da = psiddot - v x
psidot, with chi_j = w_p x S_j.  With the composites

    h = I w,    z = B' w,    D = -B(I, w)'

(B: twice the body Coriolis matrix as in :mod:`.rnea_derivatives`, B(I, w): the same for w in place of v)
and the columns Z = S x* z + B' chi + D psidot, H = S x* h + I chi, F = S x* f + B psidot + I psiddot, U = D S,
V = B S + I (psidot + Sdot), every entry is a few dot products of the deep DoF d with its ancestor k:

    G_qq[k,d] = psidot_k . Z_d + psiddot_k . H_d + chi_k . F_d         symmetric
    G_vv[k,d] = S_k . U_d                                              symmetric
    G_qv[k,d] = psidot_k . U_d + chi_k . V_d      G_qv[d,k] = S_k . Z_d + (psidot_k + Sdot_k) . H_d
    G_qa[k,d] = chi_k . I S_d                     G_qa[d,k] = S_k . H_d

z, Z and U have no linear part.  Within one joint of several degrees of freedom Lie derivatives do not commute: with
sigma = S_k x S_d and the parent's v, a, w,  G_qq[d,k] += (v x sigma) . z + (a x sigma + v x (v x sigma)) . h + (w x
sigma) . f,  G_vv[d,k] += sigma . h.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dynamics_backends.rigid_body.algorithms.carried_inertia import WEIGH_TURN
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import at_base
from dynamics_backends.rigid_body.passes.passes import Program, body, dof, down, own_pair, pair, up_sum
from dynamics_backends.rigid_body.spatial.spatial import coriolis
from dynamics_backends.scalar import Rows


@down("w")
def WEIGHT(w_p, S, mu):
    """Motion w_i = w_p + S_i mu_i of each body, whose products with the bodies' forces add up to mu' tau without rotors."""
    for column, rate in zip(S, mu, strict=True):
        w_p = w_p + column * rate
    return w_p


@dof("chi")
def CHI(w_p, S):
    """Motion chi_i = w_p x S_i of each DoF."""
    return w_p.cross(S)


@body("h", "z", "Bw")
def PAIRED(I_own, B_own, w):
    """Momentum h = I_own w of each body in the motion w, the angular part of z = B_own' w, and the matrix Bw.

    Bw is twice the body Coriolis matrix for w in place of the velocity, B_own the one for the velocity (:class:`Coriolis`).
    """
    momentum = I_own * w
    return momentum, B_own.transpose_times(w), coriolis(I_own, w, momentum.f)


@dof("Z", "H", "U")
def COLUMNS(S, psid, chi, I_b, B_b, h_b, z_b, Bw_b):
    """Columns Z, H and U of each DoF d, whose products with its ancestors are entries; Z and U by their angular parts."""
    Z = S.w.cross(z_b) + B_b.transpose_times(chi) - Bw_b.transpose_times(psid)
    return Z, S.cross_force(h_b) + I_b * chi, -Bw_b.transpose_times(S)


@pair("G_qq[k,d]", "G_qq[d,k]", "G_vv[k,d]", "G_vv[d,k]", "G_qv[k,d]", "G_qv[d,k]", "G_qa[k,d]", "G_qa[d,k]")
def BLOCKS(S_k, psid_k, psidd_k, rate_k, chi_k, IS_d, v_above_d, q_above_d, Z_d, H_d, U_d):
    """Entries of the second derivatives of mu' ID between joints, k above d."""
    qq = psid_k.w.dot(Z_d) + psidd_k.dot(H_d) + chi_k.dot(q_above_d)
    vv = S_k.w.dot(U_d)
    qv = psid_k.w.dot(U_d) + chi_k.dot(v_above_d)
    vq = S_k.w.dot(Z_d) + rate_k.dot(H_d)
    return qq, qq, vv, vv, qv, vq, chi_k.dot(IS_d), S_k.dot(H_d)


@own_pair("G_qq[k,d]", "G_vv[k,d]", "G_qv[k,d]", "G_qa[k,d]")
def OWN_BLOCKS(
    S_k,
    psid_k,
    psidd_k,
    chi_k,
    lever_k,
    pull_k,
    S_d,
    IS_d,
    v_above_d,
    q_above_d,
    Z_d,
    H_d,
    U_d,
    lever_d,
    pull_d,
    vel_p,
    acc_p,
    w_p,
    h_b,
    z_b,
    f_b,
):
    """Entries of the second derivatives of mu' ID within one joint.

    They contain the commutator terms of Lie derivatives, and in G_vv the force of rotors whose axes rotate.
    """
    sigma = S_d.cross(S_k)
    v_sigma = vel_p.cross(sigma)
    a_sigma = acc_p.cross(sigma) + vel_p.cross(v_sigma)
    bend = v_sigma.w.dot(z_b) + a_sigma.dot(h_b) + w_p.cross(sigma).dot(f_b)
    return (
        psid_k.w.dot(Z_d) + psidd_k.dot(H_d) + chi_k.dot(q_above_d) + bend,
        S_k.w.dot(U_d) + sigma.dot(h_b) + (lever_k.dot(pull_d) + lever_d.dot(pull_k)),
        psid_k.w.dot(U_d) + chi_k.dot(v_above_d),
        chi_k.dot(IS_d),
    )


PAIRING = [WEIGHT, CHI, WEIGH_TURN, PAIRED, up_sum("h", "z", "Bw")]
CONTRACTION = [*PAIRING, COLUMNS, BLOCKS, OWN_BLOCKS]
BLOCK_NAMES = ("G_qq", "G_qv", "G_vv", "G_qa")
ID_SECOND_ORDER = Program("id_second_order", [*IDSVA.passes, *CONTRACTION], [*IDSVA.outputs, *BLOCK_NAMES])


class ContractedHessian(NamedTuple):
    """Blocks [i][j] of second derivatives of mu' ID: qq (Lie derivatives), qv (row q, column v), vv, qa (row q, column a)."""

    qq: Any
    qv: Any
    vv: Any
    qa: Any


def rnea_contracted_hessian(
    model: Model, q: Rows, v: Rows, a: Rows, mu: Rows, *, driver: Driver = run
) -> ContractedHessian:
    """Second derivatives of mu' ID(q, v, a) on rows q (nq, N), v, a, mu (nv, N); the blocks aa and va are zero."""
    fields = driver(ID_SECOND_ORDER, model, {"q": at_base(model, q), "v": v, "a": a, "mu": mu})
    return ContractedHessian(*(fields[name] for name in BLOCK_NAMES))
