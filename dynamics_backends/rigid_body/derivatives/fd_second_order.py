"""Second derivatives of forward dynamics contracted with a vector, O(n d) plus two matrix products (Nganga & Wensing, RA-L 2021).

With mu = -M^-1 lambda fixed, G = mu' ID(q, v, a) and P = G_qa, all at a = FD(q, v, tau):

    lambda' FD_qq   = G_qq + P F_q + (P F_q)'          F_q = d a/dq, F_v = d a/dv
    lambda' FD_qv   = G_qv + P F_v
    lambda' FD_vv   = G_vv
    lambda' FD_qtau = P M^-1                           the other blocks are zero

P vanishes unless its DoFs lie on one path, and M = L' D L preserves this sparsity: with Y' = L'^-1 P' and W = L'^-1 dID/dq, as
sparse as P, P F_q = -Y D^-1 W sums over the DoFs common to two paths.  A floating base moves the whole robot rigidly.  Its position
does not affect accelerations, and its orientation does so by gravity only, in base axes; its translational velocity enters only
through the product with the angular one, again in base axes.  The resulting zero blocks are skipped for a base without rotor
inertia.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.derivatives import rnea_second_order as second_order
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA, SOLVE
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import BLOCKS, OWN_BLOCKS
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import at_base, free_dofs
from dynamics_backends.rigid_body.passes.passes import Pass, Program, as_rows, whole
from dynamics_backends.scalar import Rows


@whole("mu", template="ltl_solve_weight")
def SOLVE_WEIGHT(factor, lam):
    """Weight mu = -M^-1 lambda."""
    return sm.stack(ltl.solve(factor, [-lam[i] for i in range(len(factor.ancestors))]))


@whole("L_qq", "L_qv", "L_vv", "L_qtau", template="fd_contraction")
def COMBINE(model, factor, G_qq, G_qv, G_vv, G_qa, dtau_dq, dtau_dv):
    """Second derivatives of lambda' FD in (q, q), (q, v), (v, v) and (q, tau), from those of mu' ID and its first derivatives."""
    n, free = len(factor.ancestors), free_dofs(model)
    Y = ltl.solve_upward(factor, [sm.stack([G_qa[i][k] for i in range(n)]) for k in range(n)])
    YD = [y * d for y, d in zip(Y, factor.D_inverse, strict=True)]
    YDW_q, YDW_v = (_product(factor, YD, dtau) for dtau in (dtau_dq, dtau_dv))  # -P F_q, -P F_v
    PM = ltl.solve_downward(factor, YD)
    zero = 0.0 * factor.D_inverse[0]

    def qq(i: int, j: int) -> Any:
        """Entry of the block (q, q); zero between the pose of a free base and other DoFs."""
        if i < free or j < free:
            return G_qq[i][j] if i < free and j < free else zero
        return G_qq[i][j] - (YDW_q[i][j] + YDW_q[j][i])

    def qv(i: int, j: int) -> Any:
        """Entry of the block (q, v); zero in rows of a free base's pose, and in columns of its translational velocity."""
        return zero if i < free or j < free // 2 else G_qv[i][j] - YDW_v[i][j]

    blocks = qq, qv, lambda i, j: G_vv[i][j], lambda i, j: PM[j][i]
    return tuple([sm.stack([entry(i, j) for j in range(n)]) for i in range(n)] for entry in blocks)


def _product(factor: ltl.Factor, YD: Sequence[Any], dtau: Any) -> list[Any]:
    """Rows of Y D^-1 L'^-1 dtau, from the columns YD of Y D^-1."""
    n = len(YD)
    W = ltl.solve_upward(factor, [as_rows(dtau[k]) for k in range(n)])
    rows = []
    for i in range(n):
        total = W[0] * YD[0][i]
        for k in range(1, n):
            total = total + W[k] * YD[k][i]
        rows.append(total)
    return rows


def _interleaved() -> list[Pass]:
    """Passes of FDSVA and of the contracted Hessian of ID at its a, similar ones next to each other so that they share sweeps."""
    passes = list(FDSVA.passes)
    solved, entries = passes.index(SOLVE) + 1, passes.index(BLOCKS)
    pair_passes = [second_order.COLUMNS, BLOCKS, second_order.BLOCKS, OWN_BLOCKS, second_order.OWN_BLOCKS]
    start = [*passes[:solved], SOLVE_WEIGHT, *second_order.PAIRING, *passes[solved:entries]]
    return [*start, *pair_passes, *passes[passes.index(OWN_BLOCKS) + 1 :], COMBINE]


OUTPUTS = ("L_qq", "L_qv", "L_vv", "L_qtau")
FD_SECOND_ORDER = Program("fd_second_order", _interleaved(), [*FDSVA.outputs, *OUTPUTS])


class ForwardDynamicsSecondOrder(NamedTuple):
    """Accelerations a (nv, N), first derivatives dq, dv, dtau, and the blocks qq, qv, vv, qtau of lambda' FD, each [i][j].

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
