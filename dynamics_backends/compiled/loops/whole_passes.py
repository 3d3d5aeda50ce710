"""Linear algebra passes of loop kernels: calls of the C templates (linear_algebra/ltl.h, tensors.h) on whole fields."""

from __future__ import annotations

CALLS = {
    "add_to_diagonal": "for (int d = 0; d < nv; d++) M[d * nv + d] += armature[d];",
    "ltl_factor": "ltl_factor(nv, up, M, factor);",
    "ltl_solve": "ltl_solve((branches_t){nv, up, end}, factor, tau_net, a, 1, 1.0, 0);",
    "ltl_solve_once": "ltl_solve_once(nv, up, M, tau_net, a);",
    "ltl_solve_weight": "ltl_solve((branches_t){nv, up, end}, factor, lam, mu, 1, -1.0, 0);",
    "fd_contraction": (
        "fd_contraction(nv, dof_body, parent, stretches, G_qa, (forward_first_t){da_dq, da_dv, M_inverse},\n"
        "(forward_second_t){L_qq, L_vv, L_qv, L_qtau});"
    ),
    "fd_tensors": (
        "fd_tensors(&(tree_t){{nv, up, end}, dof_body, parent, v_index}, factor,\n"
        "&(inverse_second_t){tau_qq, tau_vv, tau_qv, M_q}, &(forward_first_t){da_dq, da_dv, M_inverse},\n"
        "&(forward_second_t){a_qq, a_vv, a_qv, a_qtau});"
    ),
    "ltl_inverse": "ltl_inverse((branches_t){nv, up, end}, factor, M_inverse);",
    "ltl_minus_solve_both": (
        "ltl_solve((branches_t){nv, up, end}, factor, dtau_dq, da_dq, nv, -1.0, 1); "
        "ltl_solve((branches_t){nv, up, end}, factor, dtau_dv, da_dv, nv, -1.0, 1);"
    ),
}
"""C call by the name of a pass's template."""
IN_PLACE = {"fd_contraction": {"G_qq": "L_qq", "G_qv": "L_qv", "G_vv": "L_vv"}}
"""Fields that a template overwrites with an output, by template: field -> output."""


ON_PATHS = {"add_to_diagonal": ("M",), "ltl_factor": ("M",), "ltl_solve_once": ("M",), "fd_contraction": ("G_qa",)}
"""Matrices that a template reads only at entries whose row and column lie on a common path."""
