"""Second derivatives of forward dynamics as full tensors, FDSVA-SO (Singh, Russell, Wensing, arXiv 2302.06001, eq. 46).

With the tensors of inverse dynamics at a = FD(q, v, tau) and the first derivatives F_q, F_v, M^-1 of forward dynamics,

    A(F)[i,b,c] = sum_d M_q[i,d,b] F[d,c]
    a_qq = -M^-1 (qq + A(F_q) + A(F_q)')      ' swaps the last two indices
    a_vv = -M^-1 vv
    a_qv = -M^-1 (qv + A(F_v))                position first
    a_qtau = -M^-1 A(M^-1)                    the other tensors are zero

M_q vanishes unless its three DoFs lie on one path, and M^-1 is applied by the factors along the branches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import at_base
from dynamics_backends.rigid_body.passes.passes import Program, as_rows, whole
from dynamics_backends.scalar import Rows
from experiments.baselines.rnea_tensors import TENSORS

TENSOR_NAMES = ("a_qq", "a_vv", "a_qv", "a_qtau")


@whole(*TENSOR_NAMES, template="fd_tensors")
def COMBINE(factor, tau_qq, tau_vv, tau_qv, M_q, da_dq, da_dv, M_inverse):
    """Tensors a_qq, a_vv, a_qv and a_qtau of forward dynamics from those of inverse dynamics, as lists [i][b] of rows c."""
    A_q, A_v, A_tau = (_product(M_q, F, factor) for F in (da_dq, da_dv, M_inverse))
    n = range(len(A_q))
    swapped = [[sm.stack([A_q[i][c][b] for c in n]) for b in n] for i in n]
    qq = [[as_rows(tau_qq[i][b]) + A_q[i][b] + swapped[i][b] for b in n] for i in n]
    qv = [[as_rows(tau_qv[i][b]) + A_v[i][b] for b in n] for i in n]
    vv = [[as_rows(tau_vv[i][b]) for b in n] for i in n]
    return tuple(_minus_solved(factor, T) for T in (qq, vv, qv, A_tau))


def _product(M_q: Any, F: Any, factor: ltl.Factor) -> list[list[Rows]]:
    """Product sum_d M_q[i,d,b] F[d,c], as rows c at [i][b]."""
    n = range(len(factor.ancestors))
    on_path = [{*above, i, *(d for d in n if i in factor.ancestors[d])} for i, above in enumerate(factor.ancestors)]
    zero = 0.0 * F[0]
    return [[sum((F[d] * M_q[i][d][b] for d in sorted(on_path[i] & on_path[b])), zero) for b in n] for i in n]


def _minus_solved(factor: ltl.Factor, T: list[list[Rows]]) -> list[list[Rows]]:
    """Product -M^-1 T over the first index i, as lists [i][b] of rows c like T."""
    n = len(T)
    solved = ltl.solve(factor, [sm.concatenate(row) for row in T])
    return [[-x[b * n : (b + 1) * n] for b in range(n)] for x in solved]


FDSVA_SO = Program("fdsva_so", [*FDSVA.passes, *TENSORS, COMBINE], [*FDSVA.outputs, *TENSOR_NAMES])


class ForwardDynamicsTensors(NamedTuple):
    """Accelerations a (nv, N), first derivatives as [i][j] and second derivatives as [i][b][c], with N last.

    qq[i,b,c] = d/dq_c (d a_i / d q_b) (Lie derivatives), vv[i,b,c] = d2 a_i / d v_b d v_c, qv[i,b,c] = d2 a_i / d q_b d v_c,
    qtau[i,b,c] = d2 a_i / d q_b d tau_c; all others are zero.
    """

    a: Rows
    dq: Any
    dv: Any
    dtau: Any
    qq: Any
    vv: Any
    qv: Any
    qtau: Any


def fd_tensors(model: Model, q: Rows, v: Rows, tau: Rows, *, driver: Driver = run) -> ForwardDynamicsTensors:
    """Forward dynamics with all first and second derivatives on rows q (nq, N), v and tau (nv, N)."""
    fields = driver(FDSVA_SO, model, {"q": at_base(model, q), "v": v, "tau": tau})
    return ForwardDynamicsTensors(*(fields[name] for name in FDSVA_SO.outputs))
