"""Free durations: a system in the time of its phase, tau from 0 to 1, with the durations T of all phases as constant states.

    dx/dtau = T_i f(x, u),   dT/dtau = 0          state (x, T_1, ..., T_n), controls u

A problem in tau is one on a fixed grid. Its first stage takes no time and sets the durations to its controls
(:class:`Durations`), so that they are chosen as controls are, by every solver and within bounds
(J. T. Betts, Practical Methods for Optimal Control Using Nonlinear Programming, section 4.7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Contraction, HasPartials, Partials
from dynamics_backends.scalar import Rows, Scalar


class TimeScaled:
    """The system above of an autonomous one on a vector space that has partial derivatives of its own (HasPartials).

    names: of the durations [s], which stand last in the state. phase: which of them is that of this system.
    Raises TypeError for another system, ValueError for a phase without a name.
    """

    second_order = False

    def __init__(self, system: Any, names: Sequence[str] = ("duration",), phase: int = 0) -> None:
        own_derivatives = isinstance(system, HasPartials)
        if not (system.manifold.is_vector_space and own_derivatives):
            raise TypeError("time can be scaled for systems on vector spaces with partial derivatives of their own")
        if not 0 <= phase < len(names):
            raise ValueError(f"phase = {phase}; there are {len(names)} durations")
        self.system, self.nu, self.n, self.count = system, system.nu, system.manifold.ndx, len(names)
        self.place = self.n + phase
        self.manifold = Manifold.vector(self.n + self.count, (*system.manifold.tangent_names, *names))
        self.n_out = self.manifold.ndx
        self.output_names = tuple(f"d {name}/dtau" for name in self.manifold.tangent_names)
        self.control_names = system.control_names

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        return self._scaled(self.system(x[: self.n], u, t, p), x)

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """T fx, and f in the column of T; T fu."""
        return self._partials(self.system.partials(x[: self.n], u, t, p), x)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """T times those of the system, and lam' fx, lam' fu in row and column of T. Raises AttributeError for a system without."""
        n, m, T = self.n, self.nu, x[self.place]
        first, second = self.system.contracted(x[:n], u, t, p, lam[:n])
        along_x = [sum((lam[k] * first.fx[k][i] for k in range(1, n)), lam[0] * first.fx[0][i]) for i in range(n)]
        along_u = [sum((lam[k] * first.fu[k][j] for k in range(1, n)), lam[0] * first.fu[0][j]) for j in range(m)]
        xx = [self._row([T * second.xx[i][j] for j in range(n)], along_x[i]) for i in range(n)]
        xx += [self._row(along_x if place == self.place else None, 0.0 * T) for place in range(n, n + self.count)]
        ux = [self._row([T * second.ux[i][j] for j in range(n)], along_u[i]) for i in range(m)]
        uu = [sm.stack([T * second.uu[i][j] for j in range(m)]) for i in range(m)]
        return self._partials(first, x), Contraction(xx, ux, uu)

    def _scaled(self, value: Rows, x: Rows) -> Rows:
        T = x[self.place]
        return sm.stack([*(T * value[i] for i in range(self.n)), *[0.0 * T] * self.count])

    def _partials(self, own: Partials, x: Rows) -> Partials:
        n, m, T = self.n, self.nu, x[self.place]
        fx = [self._row([T * own.fx[i][j] for j in range(n)], own.value[i]) for i in range(n)]
        fu = [sm.stack([T * own.fu[i][j] for j in range(m)]) for i in range(n)]
        none = [0.0 * T] * m
        fx += [self._row(None, 0.0 * T)] * self.count
        return Partials(self._scaled(own.value, x), fx, [*fu, *[sm.stack(none)] * self.count])

    def _row(self, own: list[Scalar] | None, at_duration: Scalar) -> Rows:
        """A row over the state: numbers in the columns of the system, zeros by default, and one in that of T."""
        zero = 0.0 * at_duration
        last = [at_duration if self.n + i == self.place else zero for i in range(self.count)]
        return sm.stack([*([zero] * self.n if own is None else own), *last])


class Durations:
    """The jump of the state (x, T) that sets the durations T to the controls: its change (0, u - T).

    manifold: of a TimeScaled system, whose last ``count`` numbers are the durations. Linear: the methods differentiate it.
    """

    def __init__(self, manifold: Manifold, count: int) -> None:
        self.manifold, self.nu, self.n_out = manifold, count, manifold.ndx
        self.output_names = tuple(f"change of {name}" for name in manifold.tangent_names)
        self.control_names = tuple(manifold.tangent_names[-count:])

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        n, zero = self.n_out - self.nu, 0.0 * x[0]
        return sm.stack([*[zero] * n, *(u[i] - x[n + i] for i in range(self.nu))])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Minus one at T, one at u."""
        n, zero = self.n_out - self.nu, 0.0 * x[0]
        fx = [sm.stack([zero - float(i == j >= n) for j in range(self.n_out)]) for i in range(self.n_out)]
        fu = [sm.stack([zero + float(i == n + j) for j in range(self.nu)]) for i in range(self.n_out)]
        return Partials(self(x, u, t, p), fx, fu)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """No curvature."""
        zero, sizes = 0.0 * x[0], ((self.n_out, self.n_out), (self.nu, self.n_out), (self.nu, self.nu))
        none = ([sm.stack([zero] * columns) for _ in range(rows)] for rows, columns in sizes)
        return self.partials(x, u, t, p), Contraction(*none)
