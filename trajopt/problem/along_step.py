"""Residual of positions, velocities and accelerations at a point within a time step of constant acceleration.

    r(q_s, v_s, a),     q_s = q + s v + s^2 a / 2,     v_s = v + s a,     s = offset, or offset T

The state is (q, v), or (q, v, T) with a free duration T (:mod:`dynamics_backends.stretched_map`). The controls are the
accelerations a. The offset is a parameter, in seconds, or as a fraction of T. In this way a constraint between knots is imposed on
the exact motion of the step; at s = 0 it is a residual of the knot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Contraction, Partials
from dynamics_backends.rigid_body.geometry.clearance import Clearances
from dynamics_backends.scalar import Rows, Scalar

STEP_OFFSET = "step_offset"
Square = Sequence[Sequence[Scalar]]


class First(NamedTuple):
    """Value of a residual, and its derivatives in q, v, a as [row][column]; None for zero."""

    value: Rows
    q: Square
    v: Square | None = None
    a: Square | None = None


class Second(NamedTuple):
    """Second derivatives of lam' r: qq, qv (row q), vv, qa (row q); None for zero. Those in (v, a) and in a alone must be zero."""

    qq: Square
    qv: Square | None = None
    vv: Square | None = None
    qa: Square | None = None


class PositionResidual:
    """Clearances, which depend on q alone, as a residual of q, v and a."""

    def __init__(self, residual: Clearances) -> None:
        self.residual, self.n_out, self.output_names = residual, residual.n_out, residual.output_names

    def value(self, q: Rows, v: Rows, a: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Clearances at positions q; v and a are ignored."""
        return self.residual(q, [], t, p)

    def first(self, q: Rows, v: Rows, a: Rows, t: Scalar, p: Mapping[str, Rows]) -> First:
        """Clearances at q with their derivatives in q; those in v and a are zero (None)."""
        d = self.residual.partials(q, [], t, p)
        return First(d.value, d.fx)

    def second(self, q: Rows, v: Rows, a: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[First, Second]:
        """Clearances at q with derivatives in q, and second derivatives in q of their sum weighted by lam."""
        d, H = self.residual.contracted(q, [], t, p, lam)
        return First(d.value, d.fx), Second(H.xx)


class AlongStep:
    """Residual r(q_s, v_s, a) at an offset s within a step of constant acceleration, see the module docstring.

    inner: residual of (q, v, a) with methods value, first and second. manifold: state manifold of the system. duration: index of T
    in the state, or None.
    """

    def __init__(
        self, inner: Any, manifold: Manifold, control_names: Sequence[str], duration: int | None = None
    ) -> None:
        self.inner, self.manifold, self.duration = inner, manifold, duration
        self.nu, self.n_out, self.output_names = len(control_names), inner.n_out, tuple(inner.output_names)
        self.control_names = tuple(control_names)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Value r(q_s, v_s, a) of the residual at the offset within the step."""
        q, v, a, _ = self._state_within_step(x, u, p)
        return self.inner.value(q, v, a, t, p)

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and derivatives in x and u, from those of ``inner`` in (q_s, v_s, a) by the chain rule."""
        q, v, a, s = self._state_within_step(x, u, p)
        return self._first_partials(self.inner.first(q, v, a, t, p), x, u, p, s)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """First and second derivatives of lam' r in x and u by the chain rule, with the curvature of q_s and v_s in (v, a, T)."""
        q, v, a, s = self._state_within_step(x, u, p)
        first, second = self.inner.second(q, v, a, t, p, lam)
        return self._first_partials(first, x, u, p, s), self._second(first, second, x, u, p, s, lam)

    def _state_within_step(self, x: Rows, u: Rows, p: Mapping[str, Rows]) -> tuple[Rows, Rows, Rows, Scalar]:
        """Return q_s, v_s and the accelerations a at the offset s, and s [s].

        s is the parameter ``step_offset``, multiplied by T if the duration is free.
        """
        n, s = self.nu, p[STEP_OFFSET][0]
        s = s + 0.0 * x[0] if self.duration is None else s * x[self.duration]
        q = sm.stack([x[i] + s * (x[n + i] + 0.5 * s * u[i]) for i in range(n)])
        v = sm.stack([x[n + i] + s * u[i] for i in range(n)])
        return q, v, sm.stack([u[i] + 0.0 * x[0] for i in range(n)]), s

    def _slopes(self, x: Rows, u: Rows, p: Mapping[str, Rows], s: Scalar) -> tuple[list[Scalar], list[Scalar]]:
        """Return d q_s / dT and d v_s / dT for a free duration T, with s = fraction T, where the parameter is the fraction."""
        n, fraction = self.nu, p[STEP_OFFSET][0]
        return [fraction * (x[n + i] + s * u[i]) for i in range(n)], [fraction * u[i] for i in range(n)]

    def _first_partials(self, d: First, x: Rows, u: Rows, p: Mapping[str, Rows], s: Scalar) -> Partials:
        """Derivatives in x and u from the derivatives d in (q_s, v_s, a); s: offset [s].

        Entries of x behind (q, v) get zero, except a free duration T.
        """
        n, zero, half = self.nu, 0.0 * x[0], 0.5 * s * s
        by_time = None if self.duration is None else self._slopes(x, u, p, s)
        fx, fu = [], []
        for r in range(self.n_out):
            q = [d.q[r][j] for j in range(n)]
            v, a = ([0.0] * n if M is None else [M[r][j] for j in range(n)] for M in (d.v, d.a))
            row = [*q, *(s * q[j] + v[j] for j in range(n)), *[zero] * (self.manifold.ndx - 2 * n)]
            if by_time is not None and self.duration is not None:
                pairs = zip(q, v, *by_time, strict=True)
                row[self.duration] = _sum(g * x + h * y for g, h, x, y in pairs)
            fx.append(sm.stack(row))
            fu.append(sm.stack([half * g + s * h + f for g, h, f in zip(q, v, a, strict=True)]))
        return Partials(d.value, fx, fu)

    def _second(
        self, first: First, d: Second, x: Rows, u: Rows, p: Mapping[str, Rows], s: Scalar, lam: Rows
    ) -> Contraction:
        """Second derivatives of lam' r in x and u from first and second derivatives in (q_s, v_s, a); s: offset [s].

        They include a free duration T; other entries of x behind (q, v) get zero.
        """
        n, zero = self.nu, 0.0 * x[0]
        # derivatives of q_s, v_s and a in q, v and a
        parts = {"q": (1.0, None, None), "v": (s, 1.0, None), "a": (0.5 * s * s, s, 1.0)}

        def block(of: str, by: str) -> list[list[Scalar]]:
            """Block (n, n) of second derivatives, rows ``of`` and columns ``by``, each "q", "v" or "a"."""
            (cq, cv, ca), (eq, ev, ea) = parts[of], parts[by]
            terms = [(_times(cq, eq), d.qq, False), (_times(cq, ev), d.qv, False), (_times(cv, eq), d.qv, True)]
            terms += [(_times(cv, ev), d.vv, False), (_times(cq, ea), d.qa, False), (_times(ca, eq), d.qa, True)]
            nonzero = [(c, M, turned) for c, M, turned in terms if c is not None and M is not None]
            return [
                [_sum((_scaled(c, M[j][i] if turned else M[i][j]) for c, M, turned in nonzero)) for j in range(n)]
                for i in range(n)
            ]

        size = self.manifold.ndx
        xx = [[zero] * size for _ in range(size)]
        ux = [[zero] * size for _ in range(n)]
        for of, rows in (("q", 0), ("v", n)):
            for by, columns in (("q", 0), ("v", n)):
                for i, line in enumerate(block(of, by)):
                    xx[rows + i][columns : columns + n] = line
            for i, line in enumerate(block("a", of)):
                ux[i][rows : rows + n] = line
        uu = block("a", "a")
        if self.duration is not None:
            self._duration_second(first, d, x, u, p, s, lam, xx, ux)
        return Contraction([sm.stack(r) for r in xx], [sm.stack(r) for r in ux], [sm.stack(r) for r in uu])

    def _duration_second(self, first: First, d: Second, x, u, p, s, lam, xx, ux) -> None:
        """Write the second derivatives with respect to the free duration T into its row and column of xx and its column of ux."""
        n, T, fraction, half = self.nu, self.duration, p[STEP_OFFSET][0], 0.5 * s * s
        by_q, by_v = self._slopes(x, u, p, s)
        gq = [_sum(lam[r] * first.q[r][j] for r in range(self.n_out)) for j in range(n)]
        gv = None if first.v is None else [_sum(lam[r] * first.v[r][j] for r in range(self.n_out)) for j in range(n)]

        def applied(M: Square | None, y: Sequence[Scalar], turned: bool = False) -> list[Scalar]:
            """Product M y, or M' y if ``turned``; zero if M is None."""
            if M is None:
                return [0.0 * y[0]] * n
            return [_sum((M[j][i] if turned else M[i][j]) * y[j] for j in range(n)) for i in range(n)]

        hq = [a + b for a, b in zip(applied(d.qq, by_q), applied(d.qv, by_v), strict=True)]
        hv = [a + b for a, b in zip(applied(d.qv, by_q, True), applied(d.vv, by_v), strict=True)]
        ha = applied(d.qa, by_q, True)
        for i in range(n):
            along_v = s * hq[i] + hv[i] + fraction * gq[i]
            along_a = half * hq[i] + s * hv[i] + ha[i] + fraction * s * gq[i]
            if gv is not None:
                along_a = along_a + fraction * gv[i]
            xx[i][T] = xx[T][i] = hq[i]
            xx[n + i][T] = xx[T][n + i] = along_v
            ux[i][T] = along_a
        xx[T][T] = _sum(by_q[i] * hq[i] + by_v[i] * hv[i] + fraction * fraction * u[i] * gq[i] for i in range(n))


def _times(a: Any, b: Any) -> Any:
    """Product of two factors of the chain rule: None (zero) if either is None; a float stands for one."""
    if a is None or b is None:
        return None
    return b if isinstance(a, float) else a if isinstance(b, float) else a * b


def _scaled(factor: Any, value: Scalar) -> Scalar:
    """Product; a factor that is a float stands for one."""
    return value if isinstance(factor, float) else factor * value


def _sum(values: Any) -> Scalar:
    """Sum of at least one scalar, without a zero as its start."""
    first, *rest = values
    for value in rest:
        first = first + value
    return first
