"""System that follows a path: its state is extended by the path parameter s and its rate.

    xdot = f(x, u),   sddot = w          state (x, s, sdot), controls (u, w)

With a robot's forward dynamics for f, the controls are joint forces.  With :class:`DoubleIntegrator` they are accelerations, and
the forces follow from inverse dynamics (A. Astudillo et al., paper on analytical derivatives in NMPC, OCP-FD and OCP-ID).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold, vector_space
from dynamics_backends.protocol import Contraction, HasPartials, Matrix, MissingCapability, Partials
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


class AlongPath:
    """System extended by a path parameter; the original one needs a flat state and analytic partial derivatives (HasPartials).

    The path parameter and its rate come last in the state, its acceleration last in the controls. Raises MissingCapability for
    other systems.
    """

    second_order = False

    def __init__(self, system: Any) -> None:
        own_derivatives = isinstance(system, HasPartials)
        if not (system.manifold.is_flat and own_derivatives):
            raise MissingCapability(
                "a path needs a system without quaternions in its state and with analytic partial derivatives (partials())"
            )
        self.system, self.nu, self.n = system, system.nu + 1, system.manifold.ndx
        names = (*system.manifold.tangent_names, "s", "v[s]")
        self.manifold = Manifold([*system.manifold.groups, vector_space(2)], names)
        self.n_out = self.manifold.ndx
        self.output_names = tuple(f"d {name}/dt" for name in self.manifold.tangent_names)
        self.control_names = (*system.control_names, "a[s]")

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows of xdot of the system, followed by the derivatives (sdot, w) of the path parameter s and its rate."""
        return self._extended(self.system(x[: self.n], u[: self.nu - 1], t, p), x, u)

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives: those of the system, bordered by zeros, with ones at (s, sdot) and (sdot, w)."""
        return self._partials(self.system.partials(x[: self.n], u[: self.nu - 1], t, p), x, u)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Value, partial derivatives, and second derivatives contracted with lam; those in s, sdot and w are zero.

        Raises AttributeError for a system without second derivatives.
        """
        n, m, zero = self.n, self.nu - 1, 0.0 * x[0]
        first, second = self.system.contracted(x[:n], u[:m], t, p, lam[:n])
        contraction = Contraction(
            _padded(second.xx, zero, (n, n), (2, 2)),
            _padded(second.ux, zero, (m, n), (1, 2)),
            _padded(second.uu, zero, (m, m), (1, 1)),
        )
        return self._partials(first, x, u), contraction

    def _extended(self, value: Rows, x: Rows, u: Rows) -> Rows:
        """Rows of the extended xdot: the system's value, the rate sdot of the path parameter, and its acceleration w, a control."""
        n, zero = self.n, 0.0 * x[0]
        return sm.stack([*(value[i] for i in range(n)), x[n + 1], u[self.nu - 1] + zero])

    def _partials(self, own: Partials, x: Rows, u: Rows) -> Partials:
        """Value and partial derivatives of the extended system from those of the original one."""
        n, m, zero = self.n, self.nu - 1, 0.0 * x[0]
        fx = _padded(own.fx, zero, (n, n), (2, 2), (n, n + 1))
        fu = _padded(own.fu, zero, (n, m), (2, 1), (n + 1, m))
        return Partials(self._extended(own.value, x, u), fx, fu)


def _matrix(zero: Scalar, rows: int, columns: int, ones: set[tuple[int, int]]) -> Matrix:
    """Matrix of zeros, with ones at the given positions."""
    return [sm.stack([zero + float((i, j) in ones) for j in range(columns)]) for i in range(rows)]


def _padded(
    M: Matrix, zero: Scalar, own: tuple[int, int], more: tuple[int, int], one: tuple[int, int] | None = None
) -> Matrix:
    """Matrix of ``own`` rows and columns, padded by ``more`` zero rows and columns, with a one at the position ``one``."""
    rest = _matrix(zero, own[0] + more[0], own[1] + more[1], set() if one is None else {one})
    return [
        sm.stack([M[i][j] if i < own[0] and j < own[1] else row[j] for j in range(own[1] + more[1])])
        for i, row in enumerate(rest)
    ]
