"""Maps whose arguments and value are changed: r = outer(f(head, inner(w)), w), with derivatives by the chain rule.

f is a map with analytic derivatives.  Its arguments (state, then controls) begin with the head, leading entries of the state, which
pass unchanged on any manifold; inner(w, p) are the others.  w holds the last entries of the state, a vector space, and the
controls.  outer(y, w, p) is affine in y.  Both are short functions, differentiated by forward AD, or by CasADi if they are traced.

With the derivatives f_z of f in z = (head, inner), Z = dz / d (head, w) and l = lam' outer_y, in (head, w):

    dr         = outer_y dy + outer_w dw,     dy = f_z Z
    lam' d2r   = Z' (l' f_zz) Z + (l' f_z) d2z + dw' (lam' outer_wy) dy + dy' (lam' outer_yw) dw + dw' (lam' outer_ww) dw
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import outer_hessian, outer_jacobian
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Contraction, Matrix, Partials
from dynamics_backends.scalar import Rows, Scalar

Given = Mapping[str, Rows]
Slopes = list[dict[int, Scalar]]


class ChainedMap:
    """Map outer(f(head, inner(w)), w), see the module docstring; subclasses define ``inner`` and ``outer``.

    map: f. has_head: True if the head is the state of f, False if there is none. tail: number of last entries of the state in w.
    """

    map: Any
    manifold: Manifold
    nu: int
    n_out: int
    has_head = True
    tail: int

    def inner(self, w: Rows, p: Given) -> list[Scalar]:
        """Arguments of f behind the head; by default the first controls."""
        return [w[self.tail + i] for i in range(self.map.nu)]

    def outer(self, y: Rows, w: Rows, p: Given) -> list[Scalar]:
        """Outputs, affine in the value y of f; by default y."""
        return [y[i] for i in range(self.map.n_out)]

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Given) -> Rows:
        """Rows (n_out, N) of the value."""
        w = self._variables(x, u)
        return self._value(self.map(*self._arguments(x, w, t, p)), w, p)

    def _value(self, y: Rows, w: Rows, p: Given) -> Rows:
        """Rows of the outputs; plain numbers among them are repeated over the batch."""
        return sm.stack([row + 0.0 * w[0] for row in self.outer(y, w, p)])

    def _variables(self, x: Rows, u: Rows) -> Rows:
        """Rows w: the last entries of the state, and the controls."""
        ends = [x[i] for i in range(self.manifold.nx - self.tail, self.manifold.nx)]
        return sm.stack([*ends, *(u[i] + 0.0 * x[0] for i in range(self.nu))])

    def _arguments(self, x: Rows, w: Rows, t: Scalar, p: Given) -> tuple[Rows, Rows, Scalar, Given]:
        """Arguments of f."""
        nx, rest = self.map.manifold.nx, [row + 0.0 * w[0] for row in self.inner(w, p)]
        state, controls = (x[:nx], rest) if self.has_head else (sm.stack(rest[:nx]), rest[nx:])
        return state, sm.stack(controls) if controls else x[:0], t, p


class ChainedFirst(ChainedMap):
    """Chained map with partial derivatives."""

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Given) -> Partials:
        """Value and partial derivatives by the chain rule."""
        w = self._variables(x, u)
        own = self.map.partials(*self._arguments(x, w, t, p))
        return self._first(_as_rows(own.value), w, p, self._inner_slopes(own, w, self._inner_jacobian(w, p)))

    def _inner_slopes(self, own: Partials, w: Rows, G: Slopes) -> list[Rows]:
        """Rows dy of the derivatives of the value of f over (head, w)."""
        in_controls = own.fu if self.map.nu else [()] * self.map.n_out
        return self._times_Z(zip(own.fx, in_controls, strict=True), w, G)

    def _inner_jacobian(self, w: Rows, p: Given) -> Slopes:
        """Derivatives G of the arguments of f behind the head in w, by argument and entry of w."""
        return [] if self.has_head and not self.map.nu else outer_jacobian(self.inner, w, p)

    def _times_Z(self, rows: Iterable[tuple[Rows, Rows]], w: Rows, G: Slopes) -> list[Rows]:
        """Product M Z, rows over (head, w), for the rows of M over the state and the controls of f."""
        Z = [self._row(w, entries) for entries in G]
        parts = (self._parts(*row) for row in rows)
        return [_combined(behind, Z, self._row(w, {}, head)) for head, behind in parts]

    def _parts(self, in_state: Rows, in_controls: Rows) -> tuple[Rows | None, dict[int, Scalar]]:
        """Row over the head, if there is one, and entries behind it, of a row over the state and the controls of f."""
        controls = [in_controls[j] for j in range(self.map.nu)]
        if self.has_head:
            return in_state, dict(enumerate(controls))
        return None, dict(enumerate([*sm.rows_of(in_state), *controls]))

    def _row(self, w: Rows, entries: Mapping[int, Scalar], head: Rows | None = None) -> Rows:
        """Row over (head, w) from its part over the head, by default zeros, and entries by index in w."""
        zero, size = 0.0 * w[0], self.map.manifold.ndx if self.has_head else 0
        first = [zero] * size if head is None else sm.rows_of(head)
        return sm.stack([*first, *(entries.get(k, zero) + zero for k in range(w.shape[0]))])

    def _first(self, y: Rows, w: Rows, p: Given, dy: list[Rows]) -> Partials:
        """Value and partial derivatives from the value of f and its derivatives over (head, w)."""
        n, rows = self.map.n_out, []
        for slopes in outer_jacobian(self._of_both, sm.concatenate([y, w]), p):
            direct = {j - n: slope for j, slope in slopes.items() if j >= n}
            rows.append(_combined(slopes, dy, self._row(w, direct)))
        fu = [row[row.shape[0] - self.nu :] for row in rows] if self.nu else []
        return Partials(self._value(y, w, p), [self._in_state(row) for row in rows], fu)

    def _of_both(self, v: Rows, p: Given) -> list[Scalar]:
        """Outputs as a function of v = (y, w)."""
        n = self.map.n_out
        return self.outer(v[:n], v[n:], p)

    def _in_state(self, row: Rows) -> Rows:
        """Row over the tangent of the state from one over (head, w): zeros between the head and the last entries."""
        h = row.shape[0] - self.nu - self.tail
        middle = [0.0 * row[0]] * (self.manifold.ndx - self.tail - h)
        return sm.stack([*(row[i] for i in range(h)), *middle, *(row[h + i] for i in range(self.tail))])


class ChainedSecond(ChainedFirst):
    """Chained map with second derivatives."""

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Given, lam: Rows) -> tuple[Partials, Contraction]:
        """Value and first derivatives, and the second derivatives of lam' r, by the chain rule."""
        w, n = self._variables(x, u), self.map.n_out
        G = self._inner_jacobian(w, p)
        weights = self._inner_weights(w, p, lam)
        own, second = self.map.contracted(*self._arguments(x, w, t, p), weights)
        y, dy = _as_rows(own.value), self._inner_slopes(own, w, G)
        _, mixed = outer_hessian(self._of_both, sm.concatenate([y, w]), p, lam, n)
        along = [_combined(mixed.get(n + k, {}), dy, 0.0 * dy[0]) for k in range(w.shape[0])]
        h, rows = dy[0].shape[0] - w.shape[0], []
        for k, row in enumerate(self._inner_curvature(own, second, w, p, G, weights)):
            slopes = mixed.get(n + k, {})
            transposed = {j: a[h + k] + slopes.get(n + j, 0.0) for j, a in enumerate(along)}
            rows.append(row + along[k] + self._row(w, transposed))
        return self._first(y, w, p, dy), self._blocks(second.xx if self.has_head else [], rows)

    def _inner_weights(self, w: Rows, p: Given, lam: Rows) -> Rows:
        """Weights l = lam' outer_y of the inner value, rows (n_out of f, N)."""
        zeros = [0.0 * w[0]] * self.map.n_out
        (found,) = outer_jacobian(lambda y, p: [dot(lam, self.outer(y, w, p))], sm.stack(zeros), p)
        return sm.stack([found.get(j, zero) + zero for j, zero in enumerate(zeros)])

    def _inner_curvature(
        self, own: Partials, second: Contraction, w: Rows, p: Given, G: Slopes, weights: Rows
    ) -> list[Rows]:
        """Second derivatives of l' f by (w, (head, w)): rows of Z' (l' f_zz) Z + (l' f_z) d2z."""
        by_state = () if self.has_head else enumerate(second.xx)
        H = [*((row, [ux[i] for ux in second.ux]) for i, row in by_state), *zip(second.ux, second.uu, strict=True)]
        HZ, l = self._times_Z(H, w, G), dict(enumerate(sm.rows_of(weights)))
        in_controls = _combined(l, own.fu, 0.0 * own.fu[0]) if self.map.nu else ()
        gradient = self._parts(_combined(l, own.fx, 0.0 * own.fx[0]), in_controls)[1]
        bent = outer_hessian(self.inner, w, p, sm.stack(list(gradient.values())))[1] if G else {}
        columns = [{c: entries[k] for c, entries in enumerate(G) if k in entries} for k in range(w.shape[0])]
        return [_combined(column, HZ, self._row(w, bent.get(k, {}))) for k, column in enumerate(columns)]

    def _blocks(self, in_head: Matrix, rows: list[Rows]) -> Contraction:
        """Second derivatives in state and controls from those in the head, and rows of those in w over (head, w)."""
        h, zero = len(in_head), 0.0 * rows[0][0]
        middle = [zero] * (self.manifold.ndx - self.tail - h)
        by_tail = rows[: self.tail]
        xx = [sm.stack([*sm.rows_of(own), *middle, *(row[i] for row in by_tail)]) for i, own in enumerate(in_head)]
        xx += [sm.stack([zero] * self.manifold.ndx)] * len(middle)
        uu = [row[row.shape[0] - self.nu :] for row in rows[self.tail :]]
        return Contraction([*xx, *map(self._in_state, by_tail)], [*map(self._in_state, rows[self.tail :])], uu)


def _as_rows(value: Any) -> Rows:
    """Value of a map, which may be a list of scalars, as rows."""
    return sm.stack(value) if isinstance(value, list) else value


def dot(a: Sequence[Any], b: Sequence[Any]) -> Scalar:
    """Sum of a[i] b[i], which needs at least one term."""
    return sum((a[i] * b[i] for i in range(1, len(b))), a[0] * b[0])


def _combined(weights: Mapping[int, Scalar], rows: Sequence[Rows], start: Rows) -> Rows:
    """Sum of ``start`` and of weights[j] rows[j]; weights of missing rows are ignored."""
    return sum((weight * rows[j] for j, weight in weights.items() if j < len(rows)), start)
