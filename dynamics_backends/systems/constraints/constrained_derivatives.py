"""First and second derivatives of constrained motion, by one linear solution for all directions.

A map solves F(q, v, u, y) = 0 for y = (x; -f), with constraint forces (or impulses) f.  F is linear in y with the matrix K of
:mod:`~dynamics_backends.rigid_body.contact.contact_dynamics`; x is the second half of the map's output.  The map provides K dy by
columns (q, v, u), and the second derivatives of g = w' F at fixed y and w, with the adjoint w from K w = -(lam; 0).  The rest is
common to all maps (the identity of Nganga & Wensing, RA-L 2021, with K in place of M), because g_y depends on q alone:

    dy = K^-1 (top; bottom),     lam' x_qq = g_qq + g_qy y_q + (g_qy y_q)',     lam' x_qv = g_qv + g_qy y_v,
    lam' x_vv = g_vv,            lam' x_qu = g_qy y_u

The blocks in (v, u) and (u, u) are zero.  This common part is most of the arithmetic, and its algorithm is the same for
every robot; a driver may compute it by a kernel with loops (:func:`directions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Contraction, Matrix, Partials
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.contact import contact_dynamics
from dynamics_backends.rigid_body.contact.constraints import Second
from dynamics_backends.rigid_body.contact.contact_dynamics import ConstrainedFactor
from dynamics_backends.rigid_body.passes.drivers import Driver
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.rigid_body_map import MechanicalSystem


class DerivativeEquations(NamedTuple):
    """Equations of the derivatives dy of y = (x; -f) in (q, v, u), K dy = (top; bottom), with the solution x (nv, N) and f.

    factor: that of K. top, bottom: nv rows and a row for each constraint row, each (2 nv + nu, N). g: second derivatives of
    g = w' F at fixed y and w; None if only first derivatives are needed. f: constraint forces, an entry for each constraint row.
    """

    x: Rows
    factor: ConstrainedFactor
    top: list[Rows]
    bottom: list[Rows]
    g: Second | None
    f: list[Scalar]

    @classmethod
    def without_constraints(cls, x: Rows, factor: ltl.Factor, top: list[Rows], g: Second | None) -> Self:
        """Equations H dx = top of unconstrained motion, with the factor of H."""
        return cls(x, ConstrainedFactor(factor, [], [], ltl.Factor([], [], [])), top, [], g, [])


class Directions(NamedTuple):
    """Derivatives of x (nv rows) and of f (a row for each entry) in (q, v, u), each row (2 nv + nu, N).

    through: the products g_qy dy of second derivatives of g with those of y = (x; -f), nv such rows; empty without g.
    """

    dx: list[Rows]
    df: list[Rows]
    through: list[Rows]


def directions(parts: DerivativeEquations, driver: Any) -> Directions:
    """Derivatives of x (such as accelerations) and f in (q, v, u), and the products g_qy dy with those of y = (x; -f).

    The products are empty if ``parts`` has no g. A driver with a function ``directions`` computes all of them itself.
    """
    if hasattr(driver, "directions"):
        return driver.directions(parts)
    dx, df = contact_dynamics.solve(parts.factor, parts.top, parts.bottom)
    return Directions(dx, df, [] if parts.g is None else through_solution(parts.g, dx, df))


class ConstrainedDerivatives(MechanicalSystem):
    """Base class of maps whose first and second derivatives follow from ``derivative_equations``, which subclasses define."""

    driver: Driver

    def derivative_equations(
        self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows | None = None
    ) -> DerivativeEquations:
        """Linear equations of the derivatives in (q, v, u) of the second half of the map's output, such as accelerations a.

        With weights lam (nv, N), also the second derivatives of g from which those of lam' a follow; without lam, ``g`` is None.
        The base class raises TypeError.
        """
        raise TypeError(f"{type(self).__name__} is not a complete map")

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives, from one linear solution for all directions (q, v, u)."""
        parts = self.derivative_equations(x, u, t, p)
        return self.in_output(x, u, parts.x, directions(parts, self.driver).dx)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Value and first derivatives, and the second derivatives of lam' times the output, by adjoints of the equations.

        lam (2 nv, N): weights; the first nv have no effect, because the output's first half has no second derivatives.
        """
        parts = self.derivative_equations(x, u, t, p, lam[self.model.nv :])
        assert parts.g is not None
        found = directions(parts, self.driver)
        return self.in_output(x, u, parts.x, found.dx), curvature(self, u, parts.g, found.through)

    def in_output(self, x: Rows, u: Rows, value: Rows, dx: Matrix) -> Partials:
        """Value and derivatives in (x, u) of the map's output (v, a), from ``value``, its second half a (nv, N).

        dx: rows of the derivatives of a over (q, v, u).
        """
        n = self.model.nv
        return self.first(
            self.split(x)[1], u, value, [r[:n] for r in dx], [r[n : 2 * n] for r in dx], [r[2 * n :] for r in dx]
        )


def curvature(system: MechanicalSystem, u: Rows, g: Second, through: Sequence[Rows]) -> Contraction:
    """Second derivatives of lam' x in the state (q, v) and u, for the solution y = (x; -f) of the equations F(q, v, u, y) = 0.

    g: second derivatives of g = w' F at constant y and w, where the adjoint w depends on lam. through: rows of g_qy dy, with the
    derivatives dy of the solution in (q, v, u). u (nu, N): controls.
    """
    n = system.model.nv
    qv = [sm.stack([g.qv[i][j] + through[i][n + j] for j in range(n)]) for i in range(n)]
    vv = [sm.stack(g.vv[i]) for i in range(n)]
    return system.second(u, symmetric_curvature(g, through), qv, vv, [row[2 * n :] for row in through])


def through_solution(g: Second, dx: Sequence[Rows], df: Sequence[Rows]) -> list[Rows]:
    """Products g_qy dy, a row over (q, v, u) for each q, of the second derivatives of g in q and y = (x; -f).

    dx, df: derivatives of x and f in (q, v, u), by rows; df is empty if there is no f.
    """
    return [_combined([*g.qa[i], *(-w for w in g.q_force[i])], [*dx, *df]) for i in range(len(g.qa))]


def symmetric_curvature(g: Second, through: Sequence[Rows]) -> list[Rows]:
    """Block (q, q) of second derivatives, nv rows: the symmetric part of g_qq, plus g_qy y_q and its transpose.

    through: rows of g_qy dy, whose first nv columns are g_qy y_q.
    """
    n = len(g.qq)
    upper = {
        (i, j): 0.5 * (g.qq[i][j] + g.qq[j][i]) + (through[i][j] + through[j][i]) for i in range(n) for j in range(i, n)
    }
    return [sm.stack([upper[min(i, j), max(i, j)] for j in range(n)]) for i in range(n)]


def _combined(weights: Sequence[Scalar], rows: Sequence[Rows]) -> Rows:
    """Weighted sum sum_k weights_k rows_k of at least one row."""
    total = rows[0] * weights[0]
    for weight, x in zip(weights[1:], rows[1:], strict=True):
        total = total + x * weight
    return total
