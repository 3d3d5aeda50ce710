"""M. Giftthaler et al., Advanced Robotics 31, 2017: algorithmic differentiation of rigid-body dynamics."""

DERIVATIVES = {
    "Num-Diff": "forward_difference",
    "Auto-Diff codegen": "casadi_ad",
    "closed form": "analytic",
}
"""The paper's names of derivative methods -> backends of this library."""
