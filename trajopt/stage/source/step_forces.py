"""Cost terms of the contact forces of a time step: l = sum 1/2 w r(y)^2 with y = y(x, u).

    l_x = J' g,     l_xx = J' H J + (g' y)_xx          g, H: gradient and Hessian of l in y,   J = dy/d(x, u)

A Gauss-Newton Hessian omits the second summand, and the second derivatives of r in H.
g and H take few operations and are traced. The time step of the stage computes y and J anyway; the products are loops
(kernels/inner_maps.h). Second derivatives of the step include (g' y)_xx: g is passed to them as the multipliers of the
forces. If second derivatives of the step are not evaluated, terms with an exact Hessian are ordinary residuals.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dynamics_backends.composed_map import ComposedMap
from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Map, ReportOf

ca = deferred("casadi")


class StepForces:
    """Contact forces of a time step, with the gradient and the Hessian in them of the terms that read them.

    rows: of y; columns: of J. exact: include the second derivatives of the residuals and of g' y. y, gradient, hessian: symbols
    of the forces, and sums over the terms added so far.
    """

    def __init__(self, system: Any, rows: int, *, exact: bool) -> None:
        self.system, self.rows, self.exact = system, rows, exact
        self.columns = 2 * system.model.nv + system.nu
        self.y = ca.SX.sym("y", rows)
        self.gradient, self.hessian = ca.SX(rows, 1), ca.SX(rows, rows)

    @classmethod
    def of(cls, residuals: Iterable[Map], moving: Any, *, exact: bool, curved: bool) -> StepForces | None:
        """Return the forces of the system ``moving`` that some of the residuals read; None if none does.

        moving: None for a system whose step does not provide its forces; then the result is None. exact: the forces enter an exact
        Hessian. curved: second derivatives of the step are evaluated too; the result is None if ``exact`` needs them and they are
        not.
        """
        if moving is None or (exact and not curved):
            return None
        for residual in residuals:
            if _system(residual) is moving:
                inner: Any = residual.inner  # type: ignore[attr-defined]
                return cls(moving, inner.n_out, exact=exact)
        return None

    def serve(self, residual: Map) -> bool:
        """True if a residual is a function of the contact forces of this system, so that its derivatives go through the forces."""
        return _system(residual) is self.system

    def add(self, residual: Any, p: dict[str, Any], weight: Any) -> Any:
        """Add the gradient and Hessian in the forces of a squared term 1/2 weight'r^2 to the sums, and return its symbolic value.

        The Hessian is Gauss-Newton unless ``exact``. p: parameters of the residual.
        """
        r = ca.vertcat(*residual.outer(self.y, p))
        value = 0.5 * ca.dot(weight, r * r)
        J = ca.jacobian(r, self.y)
        JW = J.T * ca.repmat(weight.T, self.rows, 1)
        self.gradient += ca.mtimes(JW, r)
        self.hessian += ca.hessian(value, self.y)[0] if self.exact else ca.mtimes(JW, J)
        return value


def _system(residual: Map) -> Any:
    """Return the system whose contact forces a residual reads; None for residuals that read no forces."""
    inner: Any = residual.inner if isinstance(residual, ComposedMap) else None
    return inner.system if isinstance(inner, ReportOf) else None
