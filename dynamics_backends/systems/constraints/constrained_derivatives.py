"""First and second derivatives of constrained motion, by one linear solution for all directions.

A map solves F(q, v, u, y) = 0 for y = (x; -f).  F is linear in y with the matrix K of
:mod:`~dynamics_backends.rigid_body.contact.contact_dynamics`; x is the second half of the map's output.  The map provides K dy by
columns (q, v, u), and the second derivatives of g = w' F at fixed y and w, with K w = -(lam; 0).  The rest is common to all maps
(the identity of Nganga & Wensing, RA-L 2021, with K in place of M), because g_y depends on q alone:

    dy = K^-1 (top; bottom),     lam' x_qq = g_qq + g_qy y_q + (g_qy y_q)',     lam' x_qv = g_qv + g_qy y_v,
    lam' x_vv = g_vv,            lam' x_qu = g_qy y_u

This common part is most of the arithmetic and independent of the robot; a driver may solve it by loops
(:class:`SolvesDirections`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Contraction, Matrix, Partials
from dynamics_backends.rigid_body.contact import contact_dynamics
from dynamics_backends.rigid_body.contact.constraints import Second
from dynamics_backends.rigid_body.contact.contact_dynamics import ConstrainedFactor
from dynamics_backends.rigid_body.passes.drivers import Driver
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.rigid_body_map import MechanicalSystem


class DerivativeEquations(NamedTuple):
    """Equations of the derivatives: x (nv, N), the factor of K, right-hand sides of dy (2 nv + nu, N), second derivatives of g,
    f.
    """

    x: Rows
    factor: ConstrainedFactor
    top: list[Rows]
    bottom: list[Rows]
    g: Second | None
    f: list[Scalar]


class Directions(NamedTuple):
    """Derivatives of x (nv) and f in all directions, and the product g_qy dy with second derivatives of g, by rows."""

    dx: list[Rows]
    df: list[Rows]
    through: list[Rows]


@runtime_checkable
class SolvesDirections(Protocol):
    """Driver that can solve the equations of the derivatives."""

    def directions(self, parts: DerivativeEquations) -> Directions:
        """Derivatives of the solution in (q, v, u), as the function :func:`directions` computes them."""
        ...


def directions(parts: DerivativeEquations, driver: Any) -> Directions:
    """Derivatives of accelerations and forces in (q, v, u), and their products with the second derivatives g, if any.

    A driver that is :class:`SolvesDirections` computes them itself.
    """
    if isinstance(driver, SolvesDirections):
        return driver.directions(parts)
    dx, df = contact_dynamics.solve(parts.factor, parts.top, parts.bottom)
    return Directions(dx, df, [] if parts.g is None else through_solution(parts.g, dx, df))


class ConstrainedDerivatives(MechanicalSystem):
    """Base class of maps whose derivatives follow from ``derivative_equations``."""

    driver: Driver

    def derivative_equations(
        self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows | None = None
    ) -> DerivativeEquations:
        """Linear equations of the motion's derivatives in (q, v, u); with lam (nv, N), also second derivatives for lam' x.

        x: the second half of the map's output, such as accelerations. The base class raises TypeError.
        """
        raise TypeError(f"{type(self).__name__} is not a complete map")

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives, from one linear solution for all directions (q, v, u)."""
        parts = self.derivative_equations(x, u, t, p)
        return self.in_output(x, u, parts.x, directions(parts, self.driver).dx)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """First derivatives, and the second derivatives of lam' times the output, by adjoints of the constrained equations."""
        parts = self.derivative_equations(x, u, t, p, lam[self.model.nv :])
        assert parts.g is not None
        found = directions(parts, self.driver)
        return self.in_output(x, u, parts.x, found.dx), curvature(self, u, parts.g, found.through)

    def in_output(self, x: Rows, u: Rows, value: Rows, dx: Matrix) -> Partials:
        """Derivatives of the map's output (v, x) from the rows dx over (q, v, u) of its second half x."""
        n = self.model.nv
        return self.first(
            self.split(x)[1], u, value, [r[:n] for r in dx], [r[n : 2 * n] for r in dx], [r[2 * n :] for r in dx]
        )


def curvature(system: MechanicalSystem, u: Rows, g: Second, through: Sequence[Rows]) -> Contraction:
    """Second derivatives of lam' x in (q, v, u), for the solution y = (x; -f) of the equations F(q, v, u, y) = 0.

    g: second derivatives of g = w' F at constant y and adjoint w. through: rows of g_qy dy, with the derivatives dy of the
    solution in (q, v, u). u: rows of the controls.
    """
    n = system.model.nv
    qv = [sm.stack([g.qv[i][j] + through[i][n + j] for j in range(n)]) for i in range(n)]
    vv = [sm.stack(g.vv[i]) for i in range(n)]
    return system.second(u, symmetric_curvature(g, through), qv, vv, [row[2 * n :] for row in through])


def through_solution(g: Second, dx: Sequence[Rows], df: Sequence[Rows]) -> list[Rows]:
    """Products g_qy dy, a row over (q, v, u) for each q, of the second derivatives of g in q and y = (x; -f).

    dx, df: derivatives of x and f in (q, v, u), by rows.
    """
    return [_combined([*g.qa[i], *(-w for w in g.q_force[i])], [*dx, *df]) for i in range(len(g.qa))]


def symmetric_curvature(g: Second, through: Sequence[Rows]) -> list[Rows]:
    """Block (q, q) of second derivatives: the symmetric part of g_qq, plus g_qy y_q (from ``through``) and its transpose."""
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
