"""System that follows a path: its state is extended by the path parameter s and its rate.

    xdot = f(x, u),   sddot = w          state (x, s, sdot), controls (u, w)

With a robot's forward dynamics for f, the controls are joint forces.  With :class:`DoubleIntegrator` they are accelerations, and
the forces follow from inverse dynamics (A. Astudillo et al., paper on analytical derivatives in NMPC, OCP-FD and OCP-ID).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

from dynamics_backends import scalar as sm
from dynamics_backends.chained_map import ChainedSecond
from dynamics_backends.manifold import Manifold, vector_space
from dynamics_backends.protocol import (
    Contraction,
    DampsImplicitly,
    HasPartials,
    Matrix,
    MissingCapability,
    Partials,
)
from dynamics_backends.scalar import Rows, Scalar


class DoubleIntegrator:
    """Double integrator qddot = u of n coordinates q, with the state (q, v).

    names: of the coordinates. Raises ValueError if empty.
    """

    second_order = True

    def __init__(self, names: Sequence[str]) -> None:
        if not names:
            raise ValueError("a double integrator needs at least one coordinate")
        self.nu = len(names)
        self.manifold = Manifold.vector(2 * self.nu, (*names, *(f"v[{name}]" for name in names)))
        self.n_out = self.manifold.ndx
        self.output_names = tuple(f"d {name}/dt" for name in self.manifold.tangent_names)
        self.control_names = tuple(f"a[{name}]" for name in names)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (v, u) of xdot."""
        n, zero = self.nu, 0.0 * x[0]
        return sm.stack([*(x[n + i] for i in range(n)), *(u[i] + zero for i in range(n))])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and constant partial derivatives: of qdot by v and of vdot by u, which are identities."""
        n, zero = self.nu, 0.0 * x[0]
        fx = _matrix(zero, 2 * n, 2 * n, {(i, n + i) for i in range(n)})
        return Partials(self(x, u, t, p), fx, _matrix(zero, 2 * n, n, {(n + i, i) for i in range(n)}))

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Value, partial derivatives, and zero second derivatives."""
        n, zero = self.nu, 0.0 * x[0]
        blocks = (_matrix(zero, *shape, set()) for shape in ((2 * n, 2 * n), (n, 2 * n), (n, n)))
        return self.partials(x, u, t, p), Contraction(*blocks)


class AlongPath(ChainedSecond):
    """System that also moves along a path: state (x, s, sdot) with the path parameter s, controls (u, w) with sddot = w.

    Costs and constraints compare the robot with the point of the path at s, as :func:`trajopt.tube` does; s has the unit of the
    path. Damping that the system treats as implicit remains so. system: of an arm, for example ``to.FreeBody(model)``. Raises
    MissingCapability for a system with quaternions in its state, or without analytic derivatives (a method ``partials``).
    """

    second_order = False
    tail = 2
    offsets: int | None = None

    def __init__(self, system: Any) -> None:
        own_derivatives = isinstance(system, HasPartials)
        if not (system.manifold.is_flat and own_derivatives):
            raise MissingCapability(
                "a path needs a system without quaternions in its state and with analytic partial derivatives (partials())"
            )
        self.map, self.nu = system, system.nu + 1
        names = (*system.manifold.tangent_names, "s", "v[s]")
        self.manifold = Manifold([*system.manifold.groups, vector_space(2)], names)
        self.n_out = self.manifold.ndx
        self.output_names = tuple(f"d {name}/dt" for name in self.manifold.tangent_names)
        self.control_names = (*system.control_names, "a[s]")

    @property
    def damps(self) -> bool:
        """True if the system has damping that can be implicit in a time step."""
        return isinstance(self.map, DampsImplicitly) and self.map.damps

    def implicit(self, *, offset: bool) -> Self:
        """System with implicit damping; with ``offset`` the velocity offsets of the damping follow the acceleration of the path."""
        result = copy(self)
        result.map = self.map.implicit(offset=offset)
        result.offsets, result.nu = result.map.offsets, result.map.nu + 1
        own = result.map.control_names
        result.control_names = (*self.control_names, *own[len(own) - result.map.offsets :])
        return result

    def inner(self, w: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
        """Controls of the system: those before and behind the acceleration of the path parameter."""
        return [w[i] for i in range(self.tail, self.tail + self.nu) if i != self._place]

    def outer(self, y: Rows, w: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
        """Rows of xdot of the system, followed by the derivatives (sdot, w) of the path parameter s and its rate."""
        return [*super().outer(y, w, p), w[1], w[self._place]]

    @property
    def _place(self) -> int:
        """Position of the acceleration of the path parameter in the rows (last states, controls)."""
        return self.tail + self.nu - (self.offsets or 0) - 1


def _matrix(zero: Scalar, rows: int, columns: int, ones: set[tuple[int, int]]) -> Matrix:
    """Matrix of zeros, with ones at the given positions."""
    return [sm.stack([zero + float((i, j) in ones) for j in range(columns)]) for i in range(rows)]
