"""Second derivatives of inverse dynamics as full tensors, IDSVA-SO, O(n d^2) (Singh, Russell, Wensing, arXiv 2302.06001).

Multi-DoF joints are included.  For three DoFs on one path, k above j above d, the composites of d enter through vectors of
the pair (d, j), so that an entry is one to three dot products with the columns of k.  With the derivatives of the composites of d,

    E = 2 B(I, S_d) = dB/dv_d,    H = 2 B(I, psidot_d) + S_d x* B - B S_d x = dB/dq_d,    Gamma m = m x* (I S_d),
    L = E - Gamma = dI/dq_d (symmetric, Gamma antisymmetric),

a pair (d, j) has the vectors (E', H' have no linear rows, so their products are angular)

    g = Gamma S_j,   e = E' S_j,   h = H' S_j,   r = S_j x* (B' S_d) - E' psidot_j,
    x = H psidot_j + L psiddot_j + S_j x* F_d,   y = E psidot_j + S_j x* V_d,   z = H S_j + L rate_j

with F_d = B psidot + I psiddot + S x* f and V_d = B S + I (psidot + Sdot), rate = psidot + Sdot, and L S_j = g + e.  For
three joints (index order: torque, then derivatives; in qv the position first):

    qq[d,j,k] = r . psidot_k + g . psiddot_k        qq[j,k,d] = h . psidot_k + (g + e) . psiddot_k    qq[k,d,j] = x . S_k
    vv[d,j,k] = -e . S_k      vv[j,k,d] = e . S_k   vv[k,d,j] = (2 g + e) . S_k       qq, vv symmetric in the last two
    qv[d,k,j] = -e . psidot_k      qv[j,k,d] = e . psidot_k      qv[j,d,k] = h . S_k + (g + e) . rate_k
    qv[d,j,k] = r . S_k + g . rate_k                qv[k,j,d] = y . S_k              qv[k,d,j] = z . S_k
    M_q[k,j,d] = (g + e) . S_k                      M_q[k,d,j] = g . S_k             symmetric in the first two

If joints coincide, only some of these hold, see the steps; within a joint of several DoFs Lie derivatives do not
commute and qq is not symmetric.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dynamics_backends.rigid_body.algorithms.carried_inertia import turned_twice
from dynamics_backends.rigid_body.algorithms.crba import MOMENTUM
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import COLUMNS, KINEMATICS
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import ACCELERATION, FORCE, INERTIA, RATES, at_base
from dynamics_backends.rigid_body.passes.passes import (
    Program,
    dof,
    lower_triple,
    own_triple,
    path,
    triple,
    up_sum,
    upper_triple,
)
from dynamics_backends.rigid_body.spatial.spatial import Force, coriolis
from dynamics_backends.scalar import Rows


@dof("B_v", "B_q")
def CHANGES(S, psid, IS, I_b, B_b):
    """Matrices E (B_v) and H (B_q): derivatives of the composite B of a DoF d in v_d and in q_d."""
    along = coriolis(I_b, psid, (I_b * psid).f)
    return coriolis(I_b, S, IS.f), along + B_b.moved_by(S)


@path("GS", "ES", "HS", "R", "to_qq", "to_qv", "to_vq")
def SHARED(S_j, psid_j, psidd_j, rate_j, IS_d, BtS_d, B_v_d, B_q_d, q_above_d, v_above_d):
    """Vectors of a pair of DoFs (j at or above d) whose products with the columns of k are the entries of the tensors."""

    def L(m):
        """Product L m with L = dI/dq_d."""
        return with_moment(m.cross_force(IS_d), B_v_d.transpose_times(m))

    return (
        S_j.cross_force(IS_d),
        B_v_d.transpose_times(S_j),
        B_q_d.transpose_times(S_j),
        S_j.w.cross(BtS_d) - B_v_d.transpose_times(psid_j),
        B_q_d * psid_j + L(psidd_j) + S_j.cross_force(q_above_d),
        B_v_d * psid_j + S_j.cross_force(v_above_d),
        B_q_d * S_j + L(rate_j),
    )


def with_moment(f, n):
    """Force f with an added moment n."""
    return Force(f.n + n, f.f)


@triple(
    *("tau_qq[d,j,k]", "tau_qq[d,k,j]", "tau_qq[j,k,d]", "tau_qq[j,d,k]", "tau_qq[k,d,j]", "tau_qq[k,j,d]"),
    *("tau_vv[d,j,k]", "tau_vv[d,k,j]", "tau_vv[j,k,d]", "tau_vv[j,d,k]", "tau_vv[k,d,j]", "tau_vv[k,j,d]"),
    *("tau_qv[d,k,j]", "tau_qv[j,k,d]", "tau_qv[j,d,k]", "tau_qv[d,j,k]", "tau_qv[k,j,d]", "tau_qv[k,d,j]"),
    *("M_q[k,j,d]", "M_q[j,k,d]", "M_q[k,d,j]", "M_q[d,k,j]"),
)
def ENTRIES(S_k, psid_k, psidd_k, rate_k, GS, ES, HS, R, to_qq, to_qv, to_vq):
    """Entries of the tensors tau_qq, tau_vv, tau_qv and M_q for DoFs of three different joints, k above j above d."""
    g, e = S_k.dot(GS), S_k.w.dot(ES)
    g_psidd, g_rate, e_psid = psidd_k.dot(GS), rate_k.dot(GS), psid_k.w.dot(ES)
    deep = psid_k.w.dot(R) + g_psidd
    middle = psid_k.w.dot(HS) + g_psidd + psidd_k.w.dot(ES)
    top = S_k.dot(to_qq)
    middle_dk = S_k.w.dot(HS) + g_rate + rate_k.w.dot(ES)
    deep_jk = S_k.w.dot(R) + g_rate
    inertia, top_v = g + e, g + g + e
    return (
        *(deep, deep, middle, middle, top, top),
        *(-e, -e, e, e, top_v, top_v),
        *(-e_psid, e_psid, middle_dk, deep_jk, S_k.dot(to_qv), S_k.dot(to_vq)),
        *(inertia, inertia, g, g),
    )


@upper_triple(
    *("tau_qq[d,j,k]", "tau_qq[j,k,d]", "tau_qq[j,d,k]", "tau_vv[d,j,k]", "tau_vv[j,k,d]", "tau_vv[j,d,k]"),
    *("tau_qv[d,k,j]", "tau_qv[j,k,d]", "tau_qv[j,d,k]", "M_q[k,j,d]"),
)
def UPPER_ENTRIES(S_k, psid_k, psidd_k, rate_k, GS, ES, HS, R):
    """Entries of the tensors tau_qq, tau_vv, tau_qv and M_q with k and j in one joint, above that of d."""
    e, g_psidd, e_psid = S_k.w.dot(ES), psidd_k.dot(GS), psid_k.w.dot(ES)
    inertia = S_k.dot(GS) + e
    middle = psid_k.w.dot(HS) + g_psidd + psidd_k.w.dot(ES)
    middle_dk = S_k.w.dot(HS) + rate_k.dot(GS) + rate_k.w.dot(ES)
    deep = psid_k.w.dot(R) + g_psidd
    return deep, middle, middle, -inertia, e, e, -e_psid, e_psid, middle_dk, inertia


@lower_triple(
    *("tau_qq[d,j,k]", "tau_qq[d,k,j]", "tau_qq[k,d,j]", "tau_vv[d,j,k]", "tau_vv[d,k,j]", "tau_vv[k,j,d]"),
    *("tau_qv[d,k,j]", "tau_qv[d,j,k]", "tau_qv[k,j,d]", "M_q[k,d,j]", "M_q[d,k,j]"),
)
def LOWER_ENTRIES(S_k, psid_k, psidd_k, rate_k, S_d, IS_j, GS, ES, R, to_qq, to_qv):
    """Entries of the tensors tau_qq, tau_vv, tau_qv and M_q with j and d in one joint, below that of k."""
    g, e = S_k.dot(GS), S_k.w.dot(ES)
    deep = psid_k.w.dot(R) + psidd_k.dot(GS)
    top_v = S_k.dot(S_d.cross_force(IS_j)) + g
    deep_jk = S_k.w.dot(R) + rate_k.dot(GS)
    return deep, deep, S_k.dot(to_qq), -e, -e, top_v, -psid_k.w.dot(ES), deep_jk, S_k.dot(to_qv), g, g


@own_triple("tau_qq[d,j,k]", "tau_vv[d,j,k]", "tau_qv[d,k,j]")
def OWN_ENTRIES(S_k, psid_k, psidd_k, unit_k, lever_k, unit_j, lever_j, unit_d, GS, ES, R):
    """Entries of the tensors tau_qq, tau_vv (rotors included) and tau_qv within one joint."""
    turn = turned_twice(unit_d, unit_j, lever_j, unit_k, lever_k)
    return psid_k.w.dot(R) + psidd_k.dot(GS), turn - (S_k.dot(GS) + S_k.w.dot(ES)), -psid_k.w.dot(ES)


TENSORS = [CHANGES, SHARED, ENTRIES, UPPER_ENTRIES, LOWER_ENTRIES, OWN_ENTRIES]
TENSOR_NAMES = ("tau_qq", "tau_vv", "tau_qv", "M_q")
IDSVA_SO = Program(
    "idsva_so",
    [*KINEMATICS, ACCELERATION, INERTIA, FORCE, up_sum("I", "B", "f"), MOMENTUM, RATES, COLUMNS, *TENSORS],
    TENSOR_NAMES,
)


class InverseDynamicsTensors(NamedTuple):
    """Second derivatives of tau as [a][b][c], (nv, nv, nv, N); nested lists for symbols.

    qq[a,b,c] = d/dq_c (d tau_a / d q_b) (Lie derivatives), vv[a,b,c] = d2 tau_a / d v_b d v_c, qv[a,b,c] = d2 tau_a / d q_b d v_c,
    M_q[a,b,c] = d M_ab / d q_c = d2 tau_a / d a_b d q_c; all others are zero.
    """

    qq: Any
    vv: Any
    qv: Any
    M_q: Any


def rnea_tensors(model: Model, q: Rows, v: Rows, a: Rows, *, driver: Driver = run) -> InverseDynamicsTensors:
    """All second derivatives of inverse dynamics on rows q (nq, N), v and a (nv, N)."""
    fields = driver(IDSVA_SO, model, {"q": at_base(model, q), "v": v, "a": a})
    return InverseDynamicsTensors(*(fields[name] for name in TENSOR_NAMES))
