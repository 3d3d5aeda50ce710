"""Iterates of a shooting solver: their scaled KKT error, constants of the start, and what models of the step read.

Scaled KKT error. With costates lambda of the linearized motion under a feedback K,

    lambda_N = q_N,   lambda_k = q + A'lambda_(k+1) + K'g_k        g_k = r + B'lambda_(k+1)

g_k is the gradient of the Lagrangian in u_k, and K'g_k the remaining gradient in x_k.  Both vanish with g, so that any K
certifies a solution.  K = 0 is the adjoint sweep: its costates grow on unstable motions until rounding errors exceed the gradient
of a light wrist.  With the gains of the last Riccati sweep, costates have the size of V'x.

The error is the largest of the following. `kkt` of shooting_slot.h computes the first, where the outward part of a gradient at a
bound is the multiplier of the bound, and the gaps; :meth:`trajopt.solvers.methods.requests.Point.kkt` computes all but the
violations.

    |g_i| / s_i          s_i = max_k (|r_i| + sum_j |B_ji| |lambda_j|), the size of the terms that cancel in it, for each control
    z (u - bound) / |J|  complementarity relative to the cost, where bounds have multipliers z
    gaps and violations  in the units of the states and constraints

The first two do not depend on the units of controls and cost, so that a tolerance has the same meaning for every robot.
"""

from __future__ import annotations

from typing import NamedTuple

from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem
from trajopt.stage.evaluation import StageEvaluator

FALLEN = 2.0
"""A guess is rolled out with feedback if its open-loop rollout costs more than this multiple of its own cost (at least 1), and
feedback less."""
HOLDING = 1e-6
"""Regularization of the gains for the rollout of a guess."""
GAP_ROUNDING = 2e-13
"""Gaps below this fraction of the states are rounding errors. A penalty computed from such gaps would be the expected decrease
divided by noise, and would let the cost rise."""


class Iterate(NamedTuple):
    """Trajectory xs, us with its LQ problem by an evaluator, and open-loop costates (N + 1, n).

    others: cache of the LQ problems of other evaluators.
    """

    xs: Array
    us: Array
    lq: LQProblem
    evaluator: StageEvaluator
    costates: Array
    others: dict[StageEvaluator, LQProblem]
