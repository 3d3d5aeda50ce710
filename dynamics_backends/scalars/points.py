"""Evaluation of functions of floats at numbers of any kind: values knot by knot, derivatives by central differences.

With J and H the derivatives of f at the real parts z,

    complex         f(z + i w)            = f + i J w                             for the small w of a complex step
    dual            f(z + e a)            = f + e J a
    complex dual    f(z + i w + e (a + i b)) = f + i J w + e (J a + i (J b + H(w, a)))

The steps are eps^(1/3) for J and eps^(1/4) for H, times max(1, |z_i|), as in :mod:`~dynamics_backends.methods.finite_difference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dynamics_backends.scalar import Rows, Scalar, rows_of
from dynamics_backends.scalars.dual import Dual, value_of

Array = np.ndarray
EPS = float(np.finfo(float).eps)
FIRST, SECOND = EPS ** (1 / 3), EPS ** (1 / 4)


def evaluated_at(
    function: Callable[..., Any],
    components: Callable[[Any], list[Any]],
    x: Array,
    u: Array,
    t: Array,
    p: Mapping[str, Array],
) -> Array:
    """Values (n_out, N) of a function of one knot, called knot by knot with read-only arrays.

    x (nx, N), u (nu, N), t (N,), p name -> (n, N). components: function that turns a result into its list of n_out numbers.
    """
    xs, us, ps = x.T.copy(), u.T.copy(), {name: rows.T.copy() for name, rows in p.items()}
    for array in (xs, us, *ps.values()):
        array.flags.writeable = False
    rows = []
    for i, time in enumerate(t.tolist()):
        own = {name: values[i] for name, values in ps.items()}
        rows.append([float(c) for c in components(function(xs[i], us[i], time, own))])
    return np.array(rows, dtype=float).T


def on_numbers(value: Callable[..., Array], n_out: int, given: tuple[Rows, Rows, Scalar, Mapping[str, Rows]]) -> Any:
    """Evaluate ``value``, a function of float rows, at rows of any numbers but symbols, with derivatives by central differences.

    given: x, u, t, p. Returns rows (n_out, N): floats, complex or dual numbers, as the arguments are.
    """
    x, u, t, p = given
    scalars = [*rows_of(x), *rows_of(u), t, *(r for rows in p.values() for r in rows_of(rows))]
    size = max((np.shape(value_of(s))[0] for s in scalars if np.ndim(value_of(s))), default=1)
    ends = np.cumsum([len(rows_of(x)), len(rows_of(u)), 1, *(len(rows_of(rows)) for rows in p.values())])

    def f(z: Array) -> Array:
        """Values (n_out, N) at all arguments as rows z of floats; empty without points."""
        if not z.shape[1]:
            return np.zeros((n_out, 0))
        parts = np.split(z, ends[:-1])
        return value(parts[0], parts[1], parts[2][0], dict(zip(p, parts[3:], strict=True)))

    return _chained(f, scalars, size)


def _chained(f: Callable[[Array], Array], scalars: Sequence[Scalar], size: int) -> Any:
    """Apply f to complex, dual or complex dual numbers by the chain rule, with its derivatives by central differences.

    scalars: rows of f's argument; size: number of knots. Real numbers give f itself.
    """
    val = np.stack([np.broadcast_to(np.asarray(value_of(s)), (size,)) for s in scalars])
    z, w = val.real.astype(float), val.imag if np.iscomplexobj(val) else None
    duals = [s for s in scalars if isinstance(s, Dual)]
    if not duals and w is None:
        return f(z)
    points, index = np.unique(z, axis=1, return_inverse=True)  # directions of a knot share its point
    index = index.reshape(-1)
    value = f(points)[:, index]
    if not duals:
        assert w is not None  # see above
        moved = np.flatnonzero(w.any(axis=1))
        return value + 1j * np.einsum("oin,in->on", _jacobians(f, points, moved)[:, :, index], w[moved])
    tan = np.stack([s.tan if isinstance(s, Dual) else np.zeros((size, duals[0].directions)) for s in scalars])
    changing = tan.any(axis=(1, 2)) if w is None else tan.any(axis=(1, 2)) | w.any(axis=1)
    moved = np.flatnonzero(changing)
    J, a = _jacobians(f, points, moved)[:, :, index], tan[moved]
    first = np.einsum("oin,ink->onk", J, a.real)
    if w is None:
        return Dual(value, first)
    products = _hessian_products(_hessians(f, points, moved), index, w[moved])
    along = np.einsum("oin,ink->onk", J, a.imag) + np.einsum("oin,ink->onk", products, a.real)
    return Dual(value + 1j * np.einsum("oin,in->on", J, w[moved]), first + 1j * along)


def _steps(z: Array, moved: Array, relative: float) -> Array:
    """Steps (m, N) of the numbers ``moved`` of z (n, N), rounded so that z + h - z = h."""
    at = z[moved]
    return (at + relative * np.maximum(1.0, np.abs(at))) - at


def _jacobians(f: Callable[[Array], Array], z: Array, moved: Array) -> Array:
    """Jacobian J (n_out, m, N) in the numbers ``moved`` (m,) of z (n, N): (f(z + h e_i) - f(z - h e_i)) / (2 h)."""
    h = _steps(z, moved, FIRST)
    columns = [(f(_shifted(z, {i: d})) - f(_shifted(z, {i: -d}))) / (2.0 * d) for i, d in zip(moved, h, strict=True)]
    return np.stack(columns, axis=1) if columns else np.zeros((len(f(z)), 0, z.shape[1]))


def _hessians(f: Callable[[Array], Array], z: Array, moved: Array) -> Array:
    """Hessians H (n_out, m, m, N) in the numbers ``moved`` (m,) of z (n, N), by m^2 + m + 1 values (Abramowitz, Stegun, 25.3.27):

    (f(+i+j) - f(+i) - f(+j) + 2 f - f(-i) - f(-j) + f(-i-j)) / (2 h_i h_j),      on the diagonal (f(+i) - 2 f + f(-i)) / h_i^2
    """
    h, here = _steps(z, moved, SECOND), f(z)
    forward, backward = ([f(_shifted(z, {i: sign * d})) for i, d in zip(moved, h, strict=True)] for sign in (1.0, -1.0))
    H = np.zeros((len(here), len(moved), len(moved), z.shape[1]))
    for k, i in enumerate(moved):
        H[:, k, k] = (forward[k] - 2.0 * here + backward[k]) / h[k] ** 2
        for m, j in enumerate(moved[:k]):
            both = f(_shifted(z, {i: h[k], j: h[m]})) + f(_shifted(z, {i: -h[k], j: -h[m]}))
            mixed = (both - forward[k] - forward[m] + 2.0 * here - backward[k] - backward[m]) / (2.0 * h[k] * h[m])
            H[:, k, m] = H[:, m, k] = mixed
    return H


def _shifted(z: Array, by: Mapping[int, Array]) -> Array:
    """Copy of z (n, N) with rows ``by`` added: row -> (N,)."""
    z = z.copy()
    for i, d in by.items():
        z[i] += d
    return z


def _hessian_products(H: Array, index: Array, w: Array) -> Array:
    """Products H w (n_out, m, C) for C columns w (m, C), column c with the Hessian (n_out, m, m, N) of point ``index[c]``."""
    products = np.zeros((*H.shape[:2], len(index)))
    for i, row in enumerate(w):
        nonzero = np.flatnonzero(row)
        products[:, :, nonzero] += H[:, i][:, :, index[nonzero]] * row[nonzero]
    return products
