"""Interface of LQ solvers for shooting methods, and its implementation in NumPy."""

from __future__ import annotations

from typing import Protocol

from dynamics_backends.protocol import Array
from trajopt.lq import lq as numpy_lq
from trajopt.lq.lapack import lapack
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy, Stationarity


class LQSolver(Protocol):
    """Sweeps over the knots of an LQ problem."""

    def solve_riccati(
        self, lq: LQProblem, mu: float = 0.0, regularize: str = "control", bounds: Bounds | None = None
    ) -> Policy:
        """Backward sweep; see :func:`trajopt.lq.lq.solve_riccati`."""
        ...

    def forward(
        self, lq: LQProblem, policy: Policy, bounds: Bounds | None = None
    ) -> tuple[LQStep, tuple[float, float]]:
        """Linear rollout of a policy within bounds on du, and (D1, D2) of its cost change alpha D1 + alpha^2/2 D2."""
        ...

    def adjoint(self, lq: LQProblem) -> tuple[Array, Array]:
        """Costates (N + 1, n) at du = 0, and the reduced gradient (N, m)."""
        ...

    def stationarity(self, lq: LQProblem, K: Array | None = None) -> Stationarity:
        """Costates and gradient under a feedback; see :func:`trajopt.lq.lq.stationarity`."""
        ...

    def is_finite(self, lq: LQProblem) -> bool:
        """True if all entries of a problem are finite."""
        ...


class NumpyLQ:
    """LQ solver that calls the functions of :mod:`trajopt.lq.lq`."""

    def __init__(self) -> None:
        lapack()

    def solve_riccati(
        self, lq: LQProblem, mu: float = 0.0, regularize: str = "control", bounds: Bounds | None = None
    ) -> Policy:
        """See :class:`LQSolver`."""
        return numpy_lq.solve_riccati(lq, mu, regularize, bounds)

    def forward(
        self, lq: LQProblem, policy: Policy, bounds: Bounds | None = None
    ) -> tuple[LQStep, tuple[float, float]]:
        """See :class:`LQSolver`."""
        step = numpy_lq.forward(lq, policy, bounds)
        return step, numpy_lq.cost_change(lq, step)

    def adjoint(self, lq: LQProblem) -> tuple[Array, Array]:
        """See :class:`LQSolver`."""
        lam = numpy_lq.costates(lq)
        return lam, numpy_lq.reduced_gradient(lq, lam)

    def stationarity(self, lq: LQProblem, K: Array | None = None) -> Stationarity:
        """See :class:`LQSolver`."""
        return numpy_lq.stationarity(lq, K)

    def is_finite(self, lq: LQProblem) -> bool:
        """See :class:`LQSolver`."""
        return numpy_lq.is_finite(lq)
