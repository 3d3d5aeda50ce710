"""Interface between sparse nonlinear programs and their solvers.

    minimize f(w)   subject to   g_lower <= g(w) <= g_upper,   x_lower <= w <= x_upper

Multipliers: the Lagrangian is sigma f + y'g + z'w, so that y_i > 0 where g_i is at its upper bound and y_i < 0 where it
is at its lower one; z likewise for the bounds on w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.records import IterationRecord, Trajectory
from trajopt.results.status import Status

if TYPE_CHECKING:
    from trajopt.solvers.qp.qp import Hessian, Jacobian


Pattern = tuple[Array, Array]
"""Rows and columns of the entries of a sparse matrix, column by column."""


class Program(Protocol):
    """Program in n variables with m constraints; missing bounds are infinite.

    x_lower, x_upper (n,); g_lower, g_upper (m,); x_names, g_names: for messages. A program whose variables are states and controls
    may have ``trajectory(w)``, which returns the states (N + 1, nx) and the controls at w (n,). ``kinds`` (n,), if present: kind of
    each variable, numbered from 0; else all variables are of one kind.
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
        """Return f and g (m,) at w (n,)."""


class NLP(Program, Protocol):
    """Program with derivatives as matrices.

    With a convex-over-nonlinear objective f = phi(r(w)), it may have ``convex_hessian(w, sigma, multipliers)``, a positive
    semidefinite Hessian without second derivatives of r: sigma J'phi''J, J = dr/dw, plus multipliers_i J_i'psi_i''J_i of convex- or
    concave-over-nonlinear constraints, if it is positive semidefinite.
    """

    def differentiate(self, w: Array) -> tuple[Array, Jacobian]:
        """Return the gradient of f (n,) and the Jacobian of g (m, n) with a fixed pattern, as csc matrix or by stages."""

    def hessian(self, w: Array, sigma: float, multipliers: Array) -> Hessian:
        """Return the full symmetric Hessian (n, n) of sigma f + multipliers' g, with a fixed pattern."""

    def recentered(self, w: Array) -> tuple[NLP, Array]:
        """Return the program with charts about w, and w in its coordinates; on a vector space the program itself and w."""


class Patterned(NLP, Protocol):
    """Program for IPOPT: the patterns of its derivatives are known without evaluation."""

    def patterns(self) -> tuple[Pattern, Pattern]:
        """Return the patterns of the Jacobian (m, n) and of the full Hessian (n, n)."""


def require_shapes(nlp: Program, **values: Any) -> None:
    """Raise ValueError unless values of a program have the documented shapes.

    values: by name x_lower, x_upper (n,), g, g_lower, g_upper (m,), gradient (n,), jacobian (m, n), hessian (n, n).
    """
    n, m = np.size(nlp.x_lower), np.size(nlp.g_lower)
    shapes = {"x": (n,), "g": (m,), "gradient": (n,), "jacobian": (m, n), "hessian": (n, n)}
    for name, value in values.items():
        shape, expected = np.shape(value), shapes[name.partition("_")[0]]
        if shape != expected:
            raise ValueError(
                f"{name} of the program has shape {shape}; expected {expected} for {n} variables and {m} constraints"
            )


def trajectory_at(nlp: Program, w: Array) -> Trajectory | None:
    """Return a function without arguments that returns states and controls at w, or None if the program has no trajectory."""
    read: Any = getattr(nlp, "trajectory", None)
    return None if read is None else lambda: read(w)


@dataclass(frozen=True, eq=False)
class NLPSolution:
    """Solution of a nonlinear program, with its multipliers and history.

    w (n,) in the coordinates of ``nlp``; objective; constraints g(w) (m,); multipliers y (m,) and bound_multipliers z
    (n,) with the signs above; history: one record per iteration.
    """

    nlp: Program
    w: Array
    objective: float
    constraints: Array
    multipliers: Array
    bound_multipliers: Array
    status: Status
    iterations: int
    history: tuple[IterationRecord, ...]
