"""Numbers of any kind through a function that takes floats only: its value knot by knot, its derivatives by central differences.

With J and H the derivatives of f at the real parts z,

    complex         f(z + i w)            = f + i J w                             for the small w of a complex step
    dual            f(z + e a)            = f + e J a
    complex dual    f(z + i w + e (a + i b)) = f + i J w + e (J a + i (J b + H(w, a)))

The steps are those of :mod:`~dynamics_backends.methods.finite_difference`: eps^(1/3) for J alone, eps^(1/4) for J and H together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.dual import Dual

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
    """Values (n_out, N) of a function of one knot at x (nx, N), u (nu, N), t (N,), p name -> (n, N)."""
    columns = []
    for i in range(len(t)):
        own = {name: rows[:, i].copy() for name, rows in p.items()}
        columns.append([float(c) for c in components(function(x[:, i].copy(), u[:, i].copy(), float(t[i]), own))])
    return np.array(columns, dtype=float).T


def on_numbers(value: Callable[..., Array], n_out: int, given: tuple[Rows, Rows, Scalar, Mapping[str, Rows]]) -> Any:
    """The function ``value`` of float rows, at rows of any kind of number over arrays."""
    x, u, t, p = given
    scalars = [*_rows(x), *_rows(u), t, *(r for rows in p.values() for r in _rows(rows))]
    size = max((np.shape(_value(s))[0] for s in scalars if np.ndim(_value(s))), default=1)
    ends = np.cumsum([len(_rows(x)), len(_rows(u)), 1, *(len(_rows(rows)) for rows in p.values())])

    def f(z: Array) -> Array:
        if not z.shape[1]:
            return np.zeros((n_out, 0))
        parts = np.split(z, ends[:-1])
        return value(parts[0], parts[1], parts[2][0], dict(zip(p, parts[3:], strict=True)))

    return _chained(f, scalars, size)


def _rows(rows: Rows) -> list[Scalar]:
    return list(rows) if isinstance(rows, (list, tuple)) else [rows[i] for i in range(rows.shape[0])]


def _value(x: Scalar) -> Any:
    return x.val if isinstance(x, Dual) else x


def _chained(f: Callable[[Array], Array], scalars: Sequence[Scalar], size: int) -> Any:
    """f through the numbers, by the chain rule of the module docstring."""
    val = np.stack([np.broadcast_to(np.asarray(_value(s)), (size,)) for s in scalars])
    z, w = val.real.astype(float), val.imag if np.iscomplexobj(val) else None
    duals = [s for s in scalars if isinstance(s, Dual)]
    if not duals:
        return f(z) if w is None else f(z) + 1j * _along(f, z, w[:, :, None], FIRST)[:, :, 0]
    K = duals[0].directions
    tan = np.stack([s.tan if isinstance(s, Dual) else np.zeros((size, K)) for s in scalars])
    a = tan.real.astype(float)
    if w is None:
        return Dual(f(z), _along(f, z, a, FIRST))
    length = np.abs(w).max(axis=0)
    unit = w / np.where(length > 0, length, 1.0)
    step = SECOND * np.maximum(1.0, np.abs(z).max(axis=0))
    bend = (_along(f, z + step * unit, a, SECOND) - _along(f, z - step * unit, a, SECOND)) / (2.0 * step)[:, None]
    both = _along(f, z, np.concatenate([w[:, :, None], tan.imag], axis=2), FIRST)
    return Dual(f(z) + 1j * both[:, :, 0], _along(f, z, a, FIRST) + 1j * (both[:, :, 1:] + bend * length[:, None]))


def _along(f: Callable[[Array], Array], z: Array, directions: Array, relative: float) -> Array:
    """J times directions (n, N, K): (n_out, N, K). Each number that a direction moves is moved by itself."""
    total = np.zeros((len(f(z)), *directions.shape[1:]))
    for i in np.flatnonzero(directions.any(axis=(1, 2))):
        h = (z[i] + relative * np.maximum(1.0, np.abs(z[i]))) - z[i]
        ahead, behind = z.copy(), z.copy()
        ahead[i] += h
        behind[i] -= h
        total += ((f(ahead) - f(behind)) / (2.0 * h))[:, :, None] * directions[i]
    return total
