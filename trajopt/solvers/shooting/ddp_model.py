"""LQ models of differential dynamic programming: the LQ problem of SLQ plus the curvature of the dynamics.

With lam_k' F_ww, the contracted second derivatives of the k-th step (with its gap map),

    Q <- Q + lam' F_xx      S <- S + lam' F_ux      R <- R + lam' F_uu

with one of two choices of lam, which agree at the solution:

    newton   the costate lambda_(k+1) of one adjoint sweep, so that all knots are contracted as one batch: the stagewise
             form of Newton's method (J. Pantoja, Int. J. Control 47, 1988; J. Dunn, D. Bertsekas, JOTA 63, 1989)
    true     V'x + V'xx d of the backward sweep, known knot by knot (D. Mayne, Int. J. Control 3, 1966; D. Jacobson, D. Mayne,
             Differential Dynamic Programming, 1970), with the gap d before V'x

Curvature may make Quu indefinite.  Then its eigenvalues are replaced by their absolute values, at least
:data:`~trajopt.lq.lq_solver.FLOOR` of the largest, and the difference is added to R.  The modified problem has a positive
definite Quu at every knot, hence also positive definite blocks of free controls for any active bounds.  Its solution is a descent
direction (Nocedal & Wright, section 3.4; absolute values as in Y. Dauphin et al., NeurIPS 2014).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array, Hessians
from trajopt.lq.lq import Bounds, LQProblem
from trajopt.lq.lq_solver import shared_lq, tensor_curvatures
from trajopt.stage.evaluation import StageEvaluator

CURVATURE_FRACTIONS = (1.0, 0.5, 0.25, 0.125, 0.0)
"""Curvature fractions of MixedModel, tried in this order until the LQ problem is convex."""


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


class Damping(NamedTuple):
    """Regularization mu, the Hessian it is added to ("control": Quu, "state": V'xx), and the bounds on du or None."""

    mu: float
    regularize: str
    bounds: Bounds | None


class Problem(NamedTuple):
    """LQ problem, and the knot where Quu could not be factorized while it was built, None without a failure."""

    lq: LQProblem
    failed_at: int | None = None


class Model(Protocol):
    """LQ model of the search direction.

    name: name of its Hessian in records. evaluator: computes the expansion with the Hessian of the cost. modifies: True if the
    model can make Quu positive definite; otherwise the regularization mu does.
    """

    name: str
    evaluator: StageEvaluator
    modifies: bool

    def problem(self, at: Iterate, damping: Damping, definite: bool = False) -> Problem:
        """Return the LQ problem about an iterate; definite: True to make Quu positive definite, if the model modifies it."""


def expanded(at: Iterate, evaluator: StageEvaluator) -> LQProblem:
    """Return the LQ problem about an iterate by an evaluator, with the iterate's defects; cached in the iterate."""
    if at.evaluator is evaluator:
        return at.lq
    if evaluator not in at.others:
        at.others[evaluator] = evaluator.expand(at.xs, at.us).lq._replace(d=at.lq.d)
    return at.others[evaluator]


class PlainModel:
    """Model without curvature of the dynamics; name: the Hessian of the cost."""

    modifies = False

    def __init__(self, name: str, evaluator: StageEvaluator) -> None:
        self.name, self.evaluator = name, evaluator

    def problem(self, at: Iterate, damping: Damping, definite: bool = False) -> Problem:
        """Return the LQ problem with the Hessian of the cost alone; damping and ``definite`` have no effect."""
        return Problem(expanded(at, self.evaluator))


class NewtonModel:
    """Model with the curvature of the dynamics contracted with the costates of an adjoint sweep ("newton").

    dynamics: evaluator of the curvature.
    """

    name = "newton"
    modifies = True

    def __init__(self, evaluator: StageEvaluator, dynamics: StageEvaluator) -> None:
        self.evaluator, self.dynamics = evaluator, dynamics
        self._last: tuple[Iterate, LQProblem] | None = None

    def problem(self, at: Iterate, damping: Damping, definite: bool = False) -> Problem:
        """Return the LQ problem with the curvature contracted with open-loop costates, cached for the last iterate.

        definite: make Quu positive definite by absolute eigenvalues, with the damping.
        """
        if self._last is None or self._last[0] is not at:
            H = self.dynamics.curvature(at.xs, at.us, at.costates[1:])
            self._last = at, with_curvature(expanded(at, self.evaluator), H)
        lq = self._last[1]
        if not definite:
            return Problem(lq)
        lq, policy = shared_lq().convex(lq, *damping)
        return Problem(lq, policy.failed_at)


class MixedModel:
    """Model with the largest curvature fraction for which a Riccati sweep finds the LQ problem convex.

    evaluator: with the Hessian of the cost to which the curvature is added. plain: with the one for fraction 0. Costates are
    those under the gains of the last sweep that found a convex problem, open-loop ones before
    (:mod:`trajopt.solvers.rules.cost_size`).
    """

    name = "mixed"
    modifies = False

    def __init__(self, evaluator: StageEvaluator, plain: StageEvaluator) -> None:
        self.evaluator, self.plain = evaluator, plain
        self._gains: Array | None = None
        self._last: tuple[Iterate, LQProblem, LQProblem] | None = None

    def problem(self, at: Iterate, damping: Damping, definite: bool = False) -> Problem:
        """Return the LQ problem with the largest curvature fraction for which it is convex with the damping.

        If there is none, it is that of fraction 0, with a failure. The gains of a convex problem are stored for the next costates;
        ``definite`` has no effect.
        """
        if self._last is None or self._last[0] is not at:
            exact = expanded(at, self.evaluator)
            costates = shared_lq().stationarity(exact, self._gains).costates
            H = self.evaluator.curvature(at.xs, at.us, costates[1:])
            self._last = at, expanded(at, self.plain), with_curvature(exact, H)
        _, plain, exact = self._last
        for fraction in CURVATURE_FRACTIONS:
            lq = mixed(plain, exact, fraction)
            policy = shared_lq().solve_riccati(lq, damping.mu, damping.regularize)
            if policy.failed_at is None and np.isfinite(policy.Vxx).all():
                self._gains = policy.K
                break
        return Problem(lq, policy.failed_at)


class TrueModel:
    """Model with the curvature of the dynamics contracted with the value gradient of the backward sweep ("true").

    dynamics: evaluator of the curvature.
    """

    name = "true"
    modifies = True

    def __init__(self, evaluator: StageEvaluator, dynamics: StageEvaluator) -> None:
        self.evaluator, self.dynamics = evaluator, dynamics

    def problem(self, at: Iterate, damping: Damping, definite: bool = False) -> Problem:
        """Return the LQ problem with the curvature contracted with the value gradient of its backward sweep.

        The sweep uses the damping and its bounds. definite: make Quu positive definite by absolute eigenvalues.
        """
        lq, N, n = expanded(at, self.evaluator), len(at.us), self.dynamics.manifold.ndx
        curvature = self.dynamics.knot_curvatures(at.xs, at.us)
        if curvature is None:  # a phase is not compiled
            units = [self.dynamics.curvature(at.xs, at.us, np.broadcast_to(e, (N, n))) for e in np.eye(n)]
            curvature = tensor_curvatures([np.stack(blocks, axis=1) for blocks in zip(*units, strict=True)])
        lq, policy = shared_lq().convex(lq, *damping, curvature, definite)
        return Problem(lq, policy.failed_at)


def mixed(one: LQProblem, other: LQProblem, fraction: float) -> LQProblem:
    """Return LQ problem ``one`` with Q, S and R interpolated toward ``other``; fraction: 0 for ``one``, 1 for ``other`` itself."""
    if fraction in (0.0, 1.0):
        return other if fraction else one
    blocks = {key: getattr(one, key) + fraction * (getattr(other, key) - getattr(one, key)) for key in ("Q", "S", "R")}
    return one._replace(**blocks)


def with_curvature(lq: LQProblem, H: Hessians) -> LQProblem:
    """Return the LQ problem with the contracted second derivatives H of all knots added to its Hessian."""
    Q = lq.Q.copy()
    Q[:-1] += H.xx
    return lq._replace(Q=Q, S=lq.S + H.ux, R=lq.R + H.uu)
