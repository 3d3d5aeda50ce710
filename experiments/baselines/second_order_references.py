"""Alternative methods for second derivatives of dynamics, to check the closed forms.

Source: Singh, Russell, Wensing, arXiv 2302.06001, sec. V, VI and app. A.

A function f(q, v, x) is inverse dynamics with x = a, or forward dynamics with x = tau, by any recursion:

    f = partial(rnea, model)        f = partial(aba, model)

Configurations are perturbed along the manifold, q exp(c) exp(b) for d/dq_c (d/dq_b): all methods give the Lie derivatives of the
closed forms. The last sections have the paper's recursions for products with M^-1 and M_q (AZA, IDFOZA), and its double loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.state import configuration_manifold
from dynamics_backends.rigid_body.passes import drivers
from dynamics_backends.rigid_body.passes.ground import at_base
from dynamics_backends.rigid_body.passes.layout import layout
from dynamics_backends.rigid_body.passes.passes import FIELDS, TRIPLES, Axis, Program, base_name, entry, take
from dynamics_backends.scalar import Rows
from dynamics_backends.scalars.dual import Dual
from experiments.baselines.fd_tensors import ForwardDynamicsTensors
from experiments.baselines.hypercomplex import Bicomplex, HyperDual
from experiments.baselines.rnea_tensors import (
    IDSVA_SO,
    SHARED,
    TENSOR_NAMES,
    TENSORS,
    InverseDynamicsTensors,
    rnea_tensors,
)

Array = np.ndarray
Function = Callable[[Rows, Rows, Rows], Rows]
"""f(q, v, x): rows (nv, N) from rows q (nq, N), v and x (nv, N)."""
FirstOrder = Callable[[Array, Array, Array], tuple[Any, Any, Any]]
"""d f/dq, d f/dv, d f/dx, each [i][j] (nv, nv, N), from the same arguments."""

STEP = 1e-30  # complex step; its square is negligible relative to one
VALUES_STEP = float(np.finfo(float).eps) ** (1 / 4)  # second differences
FIRST_STEP = float(np.finfo(float).eps) ** (1 / 3)  # central differences


class SecondDerivatives(NamedTuple):
    """Second derivatives [i][b][c] of f, (nv, nv, nv, N): qq = d/dq_c (d f_i/dq_b), vv, qv, qx; in qv and qx, b is the position."""

    qq: Array
    vv: Array
    qv: Array
    qx: Array


Point = tuple[Rows, Rows, Rows]
"""Rows q, v, x."""


def bicomplex(model: Model, f: Function, q: Array, v: Array, x: Array) -> SecondDerivatives:
    """Bicomplex step; exact to rounding."""

    def second(point: Point, b: Array, c: Array) -> Array:
        at = _perturbed(model, point, 1j * STEP * c)
        value = f(*_perturbed(model, _extended(at, Bicomplex), Bicomplex(0j * b, STEP * b + 0j)))
        return value.second.imag / STEP**2

    return _by_pairs(model, (q, v, x), second)


def hyper_dual(model: Model, f: Function, q: Array, v: Array, x: Array) -> SecondDerivatives:
    """Hyper-dual numbers with one pair of directions at a time; exact to rounding."""

    def second(point: Point, b: Array, c: Array) -> Array:
        return _hyper_dual_value(model, f, point, b, c[..., None])[..., 0]

    return _by_pairs(model, (q, v, x), second)


def chain_rule(model: Model, f: Function, q: Array, v: Array, x: Array) -> SecondDerivatives:
    """Forward accumulation of all first and second derivatives in one sweep of hyper-dual numbers."""
    n, N = v.shape
    unit = np.eye(3 * n)
    point = _repeated((q, v, x), 3 * n)
    directions = np.broadcast_to(unit[:, None, : 2 * n], (3 * n, 3 * n * N, 2 * n))
    all_pairs = _hyper_dual_value(model, f, point, np.tile(unit, N), directions).reshape(n, N, 3 * n, 2 * n)
    H = np.moveaxis(all_pairs, 1, -1)  # [i][b][c]
    qv, qx = (np.swapaxes(H[:, s, :n], 1, 2) for s in (slice(n, 2 * n), slice(2 * n, None)))
    return SecondDerivatives(H[:, :n, :n], H[:, n : 2 * n, n:], qv, qx)


def differences_of_values(
    model: Model, f: Function, q: Array, v: Array, x: Array, step: float = VALUES_STEP
) -> SecondDerivatives:
    """FD-1: second central differences of f; the error is about step^2 + eps / step^2."""

    def second(point: Point, b: Array, c: Array) -> Array:
        total = np.zeros((model.nv, b.shape[1]))
        for sign_c in (1.0, -1.0):
            at = _perturbed(model, point, sign_c * step * c)
            for sign_b in (1.0, -1.0):
                total = total + sign_b * sign_c * f(*_perturbed(model, at, sign_b * step * b))
        return total / (4.0 * step**2)

    return _by_pairs(model, (q, v, x), second)


def differences_of_first_order(
    model: Model, first: FirstOrder, q: Array, v: Array, x: Array, step: float = FIRST_STEP
) -> SecondDerivatives:
    """FD-2: central differences of analytic first derivatives; the error is about step^2 + eps / step."""
    n = len(v)
    tensors = SecondDerivatives(*np.empty((4, n, n, n, v.shape[1])))
    for c, direction in enumerate(step * np.eye(3 * n)[: 2 * n, :, None]):
        plus, minus = (first(*_perturbed(model, (q, v, x), sign * direction)) for sign in (1.0, -1.0))
        dq, dv, dx = ((np.asarray(a) - np.asarray(b)) / (2.0 * step) for a, b in zip(plus, minus, strict=True))
        if c < n:
            tensors.qq[:, :, c], tensors.qv[:, c], tensors.qx[:, c] = dq, dv, dx
        else:
            tensors.vv[:, :, c - n] = dv
    return tensors


def _perturbed(model: Model, point: Point, step: Rows) -> Point:
    """Return (q, v, x) perturbed by rows (3 nv, N) or (3 nv, 1)."""
    q, v, x = point
    n = model.nv
    return configuration_manifold(model).integrate(q, step[:n]), v + step[n : 2 * n], x + step[2 * n :]


def _repeated(point: Point, times: int) -> Point:
    """Repeat every knot."""
    q, v, x = (np.repeat(rows, times, axis=1) for rows in point)
    return q, v, x


def _extended(point: Point, kind: type) -> Point:
    """Convert to numbers of a type, with a second perturbation of zero."""
    q, v, x = (kind(rows, 0.0 * rows) for rows in point)
    return q, v, x


def _hyper_dual_value(model: Model, f: Function, point: Point, b: Array, c: Array) -> Array:
    """Return second derivatives (nv, N, K) in the directions b (3 nv, N) and c (3 nv, N, K)."""
    at = _perturbed(model, point, Dual(0.0 * b, c))
    zero = Dual(0.0 * b, 0.0 * c)
    return f(*_perturbed(model, _extended(at, HyperDual), HyperDual(zero, zero + b))).second.tan


def _by_pairs(model: Model, point: Point, second: Callable[[Point, Array, Array], Array]) -> SecondDerivatives:
    """Evaluate ``second(point, b, c)`` for all pairs of unit directions b, c (3 nv, M); it returns derivatives (nv, M)."""
    n, N = point[1].shape
    tensors = SecondDerivatives(*np.empty((4, n, n, n, N)))
    unit = np.eye(3 * n)
    for c in range(2 * n):
        directions = unit if c < n else unit[:, n : 2 * n]
        K = directions.shape[1]
        along_c = np.broadcast_to(unit[:, [c]], (3 * n, N * K))
        d = np.moveaxis(second(_repeated(point, K), np.tile(directions, N), along_c).reshape(n, N, K), 1, 2)
        if c < n:
            tensors.qq[:, :, c], tensors.qv[:, c], tensors.qx[:, c] = d[:, :n], d[:, n : 2 * n], d[:, 2 * n :]
        else:
            tensors.vv[:, :, c - n] = d
    return tensors


# -- products by recursions ---------------------------------------------------------------------------------------------


def inverse_mass_times(model: Model, q: Array, x: Array) -> Array:
    """AZA: return M(q)^-1 x by the articulated-body algorithm without velocity and gravity; rows (nv, N)."""
    return np.asarray(aba(_weightless(model), q, 0.0 * x, x))


def mass_slope_times(model: Model, q: Array, x: Array) -> Array:
    """IDFOZA: return d (M(q) x) / dq, [i][b] (nv, nv, N), by IDSVA without velocity and gravity."""
    return np.asarray(rnea_derivatives(_weightless(model), q, 0.0 * x, x).dq)


def fd_tensors_by_recursions(model: Model, q: Array, v: Array, tau: Array) -> ForwardDynamicsTensors:
    """FDSVA-SO with products by M_q from IDFOZA and products by M^-1 from AZA; see fd_tensors."""
    n, N = v.shape
    a, F_q, F_v, M_inverse = (np.asarray(r) for r in fd_derivatives(model, q, v, tau))
    qq, vv, qv, _ = rnea_tensors(model, q, v, a)
    many_q = np.repeat(q, n, axis=1)  # element i n + c of the batch: knot i, column c

    def columns(F: Array) -> Array:
        """A(F)[i,b,c] = d (M F[:,c])_i / d q_b."""
        slopes = mass_slope_times(model, many_q, np.moveaxis(F, 1, 2).reshape(n, N * n))
        return np.moveaxis(slopes.reshape(n, n, N, n), 2, 3)

    def minus_solved(T: Array) -> Array:
        flat = np.moveaxis(T, 3, 1).reshape(n, N * n * n)
        solved = inverse_mass_times(model, np.repeat(q, n * n, axis=1), flat)
        return -np.moveaxis(solved.reshape(n, N, n, n), 1, 3)

    A_q = columns(F_q)
    inner = (qq + A_q + np.swapaxes(A_q, 1, 2), vv, qv + columns(F_v), columns(M_inverse))
    return ForwardDynamicsTensors(a, F_q, F_v, M_inverse, *map(minus_solved, inner))


def _weightless(model: Model) -> Model:
    return model.replace(gravity=np.zeros(3))


# -- the double loop ------------------------------------------------------------------------------------------------------

_ENTRIES = {p.kind: p for p in TENSORS if p.by_entry}
_PAIRS = Program("idsva_so_pairs", [p for p in IDSVA_SO.passes if not p.by_entry], SHARED.outputs)


def rnea_tensors_double_loop(model: Model, q: Array, v: Array, a: Array) -> InverseDynamicsTensors:
    """IDSVA-SO with loops over d and j only (v1 of the paper); each pair multiplies the columns of all k at or above j."""
    fields = drivers.rows(_PAIRS, model, {"q": at_base(model, q), "v": v, "a": a})
    index = layout(model).indices("path")
    body = np.asarray(model.dof_body)
    tensors = {name: np.zeros((model.nv,) * 3 + v.shape[1:]) for name in TENSOR_NAMES}
    for pair, (d, j) in enumerate(zip(index["d"], index["j"], strict=True)):
        above = np.asarray(model.ancestors(int(body[j])))
        same_body = body[above] == body[j]
        for upper, k in ((False, above[~same_body]), (True, above[same_body])):
            step = _ENTRIES[TRIPLES[bool(body[d] == body[j]), upper]]
            at = {"d": np.array([d]), "j": np.array([j]), "k": k, "pair": np.array([pair])}
            results = step.results(*(_triple_rows(fields, name, at) for name in step.inputs)) if len(k) else ()
            for output, result in zip(step.outputs, results, strict=bool(len(k))):
                tensors[base_name(output)][tuple(at[letter] for letter in entry(output))] = result
    return InverseDynamicsTensors(*tensors.values())


def _triple_rows(fields: Mapping[str, Any], name: str, at: Mapping[str, Array]) -> Any:
    """Return the rows of one parameter of a pass over triples."""
    base = base_name(name)
    return take(fields[base], at["pair" if FIELDS[base].axis is Axis.PAIR else name[-1]])
