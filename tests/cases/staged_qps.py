"""Random QPs with the stage structure of optimal control."""

from dataclasses import replace

import numpy as np

from trajopt.solvers.qp.blocks.stage_hessian import StageHessian, StagePlaces
from trajopt.solvers.qp.blocks.stage_jacobian import RowPlaces, StageJacobian
from trajopt.solvers.qp.qp import QP


def staged_qp(seed, N=6, n=3, m=2, limit=0.5, hold=False, shift=0.1):
    """Bounds on controls, one inequality a stage but the last, x_0 fixed; shift: of the smallest eigenvalues of H.

    hold: True fixes the first control.
    """
    rng, width = np.random.default_rng(seed), n + m
    places = StagePlaces(
        width * np.arange(N + 1)[:, None] + np.arange(n), width * np.arange(N)[:, None] + n + np.arange(m)
    )
    size, H = places.size, np.zeros((N + 1, width, width))
    for k in range(N + 1):
        own = width if k < N else n
        M = rng.standard_normal((own, own))
        H[k, :own, :own] = M @ M.T + shift * np.eye(own)
    A, B = np.eye(n) + 0.3 * rng.standard_normal((N, n, n)), rng.standard_normal((N, n, m))
    G = np.zeros((N + 1, 1, width))
    G[:N, 0, n:] = rng.standard_normal((N, m))
    within = np.append(N * n + np.arange(N), -1)[:, None]
    J = StageJacobian(A, B, G, RowPlaces(places, np.arange(N * n).reshape(N, n), within))
    d, lb, ub = rng.standard_normal(N * n), np.full(size, -np.inf), np.full(size, np.inf)
    lb[places.controls], ub[places.controls] = -1.0, 1.5
    lb[places.states[0]] = ub[places.states[0]] = rng.standard_normal(n)
    if hold:
        lb[places.controls[:, 0]] = ub[places.controls[:, 0]] = 0.3
    bounds = np.r_[d, np.full(N, -np.inf)], np.r_[d, np.full(N, limit)]
    return QP(StageHessian(H, places), rng.standard_normal(size), J, *bounds, lb, ub)


def with_terminal_rows(qp, C, l, u):
    """The QP with rows l <= C x_N <= u; C (r, n)."""
    J, r = qp.A, len(C)
    stages, old = J.places.stages, J.places
    N, n, width = len(J.A), J.A.shape[1], J.G.shape[2]
    within = np.full((N + 1, old.within.shape[1] + r), -1)
    within[:, :-r] = np.where(old.within < old.count, old.within, -1)
    within[N, -r:] = old.count + np.arange(r)
    G = np.zeros((*within.shape, width))
    G[:, :-r], G[N, -r:, :n] = J.G, C
    J = StageJacobian(J.A, J.B, G, RowPlaces(stages, old.dynamics, within))
    return replace(qp, A=J, l=np.r_[qp.l, l], u=np.r_[qp.u, u])


def carried_qp(seed, N=6, n=3, m=2):
    """A QP with controls that belong to two stages: states (x, u), one inequality a stage, bounds on controls, x_0 fixed."""
    rng, size, width = np.random.default_rng(seed), n + m, n + 2 * m
    states = size * np.arange(N + 1)[:, None] + np.arange(size)
    places = StagePlaces(states, states[1:, n:])
    H = np.zeros((N + 1, width, width))
    for k in range(N + 1):
        own = width if k < N else size
        M = rng.standard_normal((own, own))
        H[k, :own, :own] = M @ M.T + 0.1 * np.eye(own)
    A = np.concatenate([np.eye(n) + 0.3 * rng.standard_normal((N, n, n)), rng.standard_normal((N, n, m))], axis=2)
    G = np.zeros((N + 1, 1, width))
    G[:N, 0, n:] = rng.standard_normal((N, 2 * m))
    within = np.append(N * n + np.arange(N), -1)[:, None]
    J = StageJacobian(A, rng.standard_normal((N, n, m)), G, RowPlaces(places, np.arange(N * n).reshape(N, n), within))
    d, lb, ub = rng.standard_normal(N * n), np.full(places.size, -np.inf), np.full(places.size, np.inf)
    lb[states[:, n:]], ub[states[:, n:]] = -1.0, 1.5
    lb[states[0, :n]] = ub[states[0, :n]] = rng.standard_normal(n)
    bounds = np.r_[d, np.full(N, -np.inf)], np.r_[d, np.full(N, 0.5)]
    return QP(StageHessian(H, places), rng.standard_normal(places.size), J, *bounds, lb, ub)
