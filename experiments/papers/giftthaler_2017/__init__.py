"""M. Giftthaler et al., Advanced Robotics 31, 2017: algorithmic differentiation of rigid-body dynamics."""

DERIVATIVES = {
    "Num-Diff": "forward_difference",
    "Auto-Diff": "casadi_ad",
    "closed form": "analytic",
}
"""Derivative method -> backend of this library. Auto-Diff is C code in the paper, and a tape in this library."""
QUICK_REPLANNING = [
    "problem.horizon=2",
    "problem.substeps=1",
    "solver.max_iterations=1",
    "replan.duration=0.024",
    "replan.lead=0.008",
    "replan.charge=0.004",
]
"""Settings of a quick run of replanning with the avoiding arm."""
