"""Sparse nonlinear programs, as a solver sees them.

    minimize f(w)   subject to   g_lower <= g(w) <= g_upper,   x_lower <= w <= x_upper

Multipliers: the Lagrangian is sigma f + y'g + z'w, so that y_i > 0 where g_i is at its upper bound and y_i < 0 where it
is at its lower one; z likewise for the bounds on w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dynamics_backends.protocol import Array
from trajopt.results.records import IterationRecord, Trajectory
from trajopt.results.status import Status

if TYPE_CHECKING:
    from trajopt.solvers.qp.blocks.sparse_assembly import Columns
    from trajopt.solvers.qp.qp import Hessian, Jacobian


class NLP(Protocol):
    """A program in n variables with m constraints; infinite bounds where there is none.

    x_lower, x_upper (n,); g_lower, g_upper (m,); x_names, g_names: for messages.
    """

    x_lower: Array
    x_upper: Array
    g_lower: Array
    g_upper: Array

    @property
    def x_names(self) -> Sequence[str]: ...

    @property
    def g_names(self) -> Sequence[str]: ...

    def evaluate(self, w: Array) -> tuple[float, Array]:
        """f and g (m,) at w (n,)."""
        ...

    def differentiate(self, w: Array) -> tuple[Array, Jacobian]:
        """The gradient of f (n,) and the Jacobian of g (m, n), whose pattern is fixed: csc, or by stages."""
        ...

    def hessian(self, w: Array, sigma: float, multipliers: Array) -> Hessian:
        """The Hessian (n, n) of sigma f + multipliers' g: full, symmetric, its pattern fixed."""
        ...

    def recentered(self, w: Array) -> tuple[NLP, Array]:
        """The program in coordinates about w, and w in them; a program in a vector space returns itself and w."""
        ...


@runtime_checkable
class ConvexOverNonlinear(Protocol):
    """A program whose objective and some constraints are convex functions of nonlinear ones, f = phi(r(w)).

    Such a program knows a Hessian that needs no second derivatives: J' phi'' J with J = dr/dw, positive semidefinite.
    """

    def convex_hessian(self, w: Array, sigma: float, multipliers: Array) -> Hessian:
        """sigma J'phi''J of the objective plus multipliers_i J_i'psi_i''J_i of those convex- or concave-over-nonlinear
        constraints for which it is positive semidefinite."""
        ...


@runtime_checkable
class Patterned(Protocol):
    """A program that knows its patterns without evaluation, and gives the entries in them."""

    def patterns(self) -> tuple[Columns, Columns]:
        """Matrices with the patterns of the Jacobian (m, n) and the Hessian (n, n)."""
        ...

    def first_entries(self, w: Array) -> tuple[Array, Columns]:
        """Result of :meth:`NLP.differentiate`, with the Jacobian as its entries."""
        ...

    def second_entries(self, w: Array, sigma: float, multipliers: Array) -> Array:
        """The entries of :meth:`NLP.hessian`, as its pattern has them."""
        ...


@runtime_checkable
class OfTrajectory(Protocol):
    """A program whose variables stand for states and controls."""

    def trajectory(self, w: Array) -> tuple[Array, Array]:
        """States (N + 1, nx) and controls at w (n,)."""
        ...


def trajectory_at(nlp: NLP, w: Array) -> Trajectory | None:
    """Function for the states and controls at w; None if the program has none."""
    return (lambda: nlp.trajectory(w)) if isinstance(nlp, OfTrajectory) else None


@dataclass(frozen=True, eq=False)
class NLPSolution:
    """A point with its multipliers and the account of how it was found.

    w (n,) in the coordinates of ``nlp``; objective; constraints g(w) (m,); multipliers y (m,) and bound_multipliers z
    (n,) with the signs above; history: one record per iteration.
    """

    nlp: NLP
    w: Array
    objective: float
    constraints: Array
    multipliers: Array
    bound_multipliers: Array
    status: Status
    iterations: int
    history: tuple[IterationRecord, ...]
