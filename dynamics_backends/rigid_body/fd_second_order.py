"""Second derivatives of forward dynamics contracted with a vector, O(n d) beside two products of matrices (Nganga &
Wensing, RA-L 2021).

With mu = M^-1 lambda held fixed, G = mu' ID(q, v, a) and P = G_qa, all at a = FD(q, v, tau):

    lambda' FD_qq   = -(G_qq + P F_q + (P F_q)')       F_q = d a/dq, F_v = d a/dv
    lambda' FD_qv   = -(G_qv + P F_v)
    lambda' FD_vv   = -G_vv
    lambda' FD_qtau = -P M^-1                          the rest is zero
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body import ltl
from dynamics_backends.rigid_body import rnea_second_order as second_order
from dynamics_backends.rigid_body.drivers import Driver, run
from dynamics_backends.rigid_body.fd_derivatives import FDSVA, SOLVE
from dynamics_backends.rigid_body.ground import at_base
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.rigid_body.passes import Pass, Program, whole
from dynamics_backends.rigid_body.rnea_derivatives import BLOCKS, OWN_BLOCKS
from dynamics_backends.scalar import Rows


@whole("mu", template="ltl_solve_weight")
def SOLVE_WEIGHT(factor, lam):
    """mu = M^-1 lambda."""
    return sm.stack(ltl.solve(factor, [lam[i] for i in range(len(factor.ancestors))]))


@whole("L_qq", "L_qv", "L_vv", "L_qtau", template="fd_contraction")
def COMBINE(G_qq, G_qv, G_vv, G_qa, da_dq, da_dv, M_inverse):
    """The four blocks above."""
    n = len(da_dq)
    PF_q, PF_v, PM = (_product(G_qa, F, n) for F in (da_dq, da_dv, M_inverse))
    qq = [sm.stack([-(G_qq[i][j] + PF_q[i][j] + PF_q[j][i]) for j in range(n)]) for i in range(n)]
    qv = [sm.stack([-(G_qv[i][j] + PF_v[i][j]) for j in range(n)]) for i in range(n)]
    vv = [sm.stack([-G_vv[i][j] for j in range(n)]) for i in range(n)]
    return qq, qv, vv, [-row for row in PM]


def _product(P: Any, F: Sequence[Any], n: int) -> list[Any]:
    """Rows of P F, for P as [i][j] and F as rows."""
    rows = []
    for i in range(n):
        total = F[0] * P[i][0]
        for k in range(1, n):
            total = total + F[k] * P[i][k]
        rows.append(total)
    return rows


def _interleaved() -> list[Pass]:
    """Both recursions, each pass beside its like, so that they share sweeps."""
    passes = list(FDSVA.passes)
    solved, entries = passes.index(SOLVE) + 1, passes.index(BLOCKS)
    of_pairs = [second_order.COLUMNS, BLOCKS, second_order.BLOCKS, OWN_BLOCKS, second_order.OWN_BLOCKS]
    start = [*passes[:solved], SOLVE_WEIGHT, *second_order.PAIRING, *passes[solved:entries]]
    return [*start, *of_pairs, *passes[passes.index(OWN_BLOCKS) + 1 :], COMBINE]


OUTPUTS = ("L_qq", "L_qv", "L_vv", "L_qtau")
FD_SECOND_ORDER = Program("fd_second_order", _interleaved(), [*FDSVA.outputs, *OUTPUTS])


class ForwardDynamicsSecondOrder(NamedTuple):
    """a (nv, N), its first derivatives dq, dv, dtau, and the blocks qq, qv, vv, qtau of lambda' FD, each [i][j].

    qq holds Lie derivatives; its symmetric part is the Hessian along the exponential chart.
    """

    a: Rows
    dq: Any
    dv: Any
    dtau: Any
    qq: Any
    qv: Any
    vv: Any
    qtau: Any


def fd_second_order(
    model: Model, q: Rows, v: Rows, tau: Rows, lam: Rows, *, driver: Driver = run
) -> ForwardDynamicsSecondOrder:
    """Forward dynamics, first derivatives and contracted second derivatives on rows q (nq, N), v, tau, lam (nv, N)."""
    fields = driver(FD_SECOND_ORDER, model, {"q": at_base(model, q), "v": v, "tau": tau, "lam": lam})
    return ForwardDynamicsSecondOrder(*(fields[name] for name in FD_SECOND_ORDER.outputs))
