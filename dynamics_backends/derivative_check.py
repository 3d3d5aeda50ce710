"""Check of a backend's derivatives of a map by complex step: first order entry by entry, second order along directions.

First order: blocks of partial derivatives, each against Im f(x (+) i h e_k) / h.  Second order: for a random covector lam and a
random direction d of (x, u), the gradient of lam' f differentiated along d,

    H d = Im grad (lam' f)(w + i h d) / h,    the gradient by dual numbers, in one evaluation of the map,

against the product of a backend's Hessian with d.  A wrong entry of H affects its row for almost every d.  Both references use only
the source of the map.  User-defined backends have values only: their Jacobians are compared with central differences of the
values, their second derivatives with those of the Jacobians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng

from dynamics_backends.methods.finite_difference import EPS, step_sizes as step_sizes
from dynamics_backends.methods.symbolic_map import TraceError
from dynamics_backends.protocol import (
    Array,
    Batch,
    DynamicsBackend,
    Hessians,
    Jacobians,
    Map,
    Parameters,
    SecondOrderBackend,
)
from dynamics_backends.registry import make_backend
from dynamics_backends.scalar import STEP
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.scalars.user_function import user_code_line as user_code_line

REFERENCE, DIFFERENCES = "complex_step", "central_difference"
"""Reference methods: of maps with source, and of user-defined backends, which have values at numbers only."""
EXACT_TOLERANCE = 1e-8
TOLERANCES = {"central_difference": 1e-5, "forward_difference": 1e-3}
SECOND_TOLERANCES = {"central_difference": 1e-3}
"""Tolerances of second derivatives: differences of differences have half as many accurate digits."""
ROUNDING = {"central_difference": EPS ** (2 / 3), "forward_difference": EPS ** (1 / 2)}
"""Rounding error of difference quotients with the default step, relative to the values (eps / h); of other methods EPS."""
LOST = 10.0
"""Errors up to LOST times ROUNDING times the largest value are allowed: rounding hides small derivatives of large values. Second
derivatives of the reference count as zero if all are at most LOST times EPS times the largest first derivative."""
DIFFERENCE_STEPS = (EPS ** (1 / 3), EPS ** (1 / 2), float(np.finfo(np.float32).eps) ** (1 / 3))
"""Steps of central differences of user-defined values: the default, one for values that change within a millionth of a unit, and
one for noisy values or values in single precision. A wrong derivative disagrees with the differences of every step."""
SINGLE = (2e-4, 5e-3)
"""Tolerances of first and of second derivatives of user-defined values in single precision, ten times eps^(2/3) and eps^(1/2)."""
SECOND_STEPS = (EPS ** (1 / 4), DIFFERENCE_STEPS[0], DIFFERENCE_STEPS[2])
"""Steps of central differences of a user-defined backend's Jacobians, which may be rounded more than its values."""
LEFT_OUT = "left out"
"""Method name of a comparison that was skipped to save time."""


ZERO_SCALE = 1e-30
"""Scale below which a block counts as zero, so that its error is absolute."""


def worst_entry(value: Array, exact: Array, floor: Array | float = 0.0) -> tuple[float, tuple[int, ...]]:
    """Largest relative error of the blocks ``value`` (N, ...) at N points, and the index of its entry within the block.

    Errors are relative to the largest absolute entry of ``exact`` at the same point, or to ``floor`` if that is larger; absolute
    if both are at most ZERO_SCALE. An error that is not finite counts as infinite.
    """
    axes = tuple(range(1, exact.ndim))
    scale = np.maximum(np.abs(exact).max(axis=axes, keepdims=True), floor)
    error = np.abs(value - exact) / np.where(scale > ZERO_SCALE, scale, 1.0)
    error = np.where(np.isfinite(error), error, np.inf)
    point, *entry = np.unravel_index(int(np.argmax(error)), error.shape)
    return float(error[point, *entry]), tuple(int(i) for i in entry)


class Points(NamedTuple):
    """Test points x (N, nx), u (N, nu), times t (N,), time steps dt (N,) [s], and numbers (N,) of the guess's knots near them."""

    x: Array
    u: Array
    t: Array
    dt: Array
    knots: Array

    def first(self, count: int) -> Points:
        """First ``count`` points, or all of them if there are fewer."""
        return Points(*(values[:count] for values in self))


class DerivativeCheck(NamedTuple):
    """Worst entry of one block of derivatives of the map ``what`` by one method.

    what: "dynamics", "time step", or a cost term or constraint by name. block: derivatives compared, such as "fx", "A" or
    "second". method: derivative method that is checked; reference: method that it is compared with. entry: names of the worst
    entry. error: relative error; None, with the reason in ``entry``, if the block was not compared. tolerance: largest error that
    passes.
    """

    what: str
    block: str
    method: str
    error: float | None
    entry: str
    tolerance: float = EXACT_TOLERANCE
    reference: str = REFERENCE

    @property
    def passed(self) -> bool:
        """True if the error is within the tolerance, or the block was not compared."""
        return self.error is None or self.error <= self.tolerance

    @property
    def left_out(self) -> bool:
        """True if the comparison was skipped to save time."""
        return self.method == LEFT_OUT

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.what}, {self.method}: {self.entry}"
        return f"{self.entry}, relative error {self.error:.1e} ({self.method} against {self.reference}, {self.what})"


def worst(lines: list[DerivativeCheck]) -> DerivativeCheck | None:
    """Line with the largest error relative to its tolerance (NaN is the largest); None if no block was compared."""
    return max((line for line in lines if line.error is not None), key=_excess, default=None)


def _excess(line: DerivativeCheck) -> float:
    """Error divided by its tolerance: infinite for NaN, zero if the block was not compared."""
    error = line.error or 0.0
    return np.inf if np.isnan(error) else error / line.tolerance


# -- first order -----------------------------------------------------------------------------------------------


def first_order(
    what: str,
    map: Map,
    blocks: tuple[str, str],
    at: Points,
    p: Parameters,
    by_method: Mapping[str, Callable[[], Jacobians]],
    reference: str = REFERENCE,
    tolerance: float = 0.0,
    **options: Any,
) -> Iterator[DerivativeCheck]:
    """Yield the worst entry of fx and of fu by each method, compared with those of the reference method with these options.

    what: name of the map in reports; blocks: names of its fx and fu; at: points that fit the map; by_method: functions that
    return the Jacobians at these points, by name of the method. tolerance: used if larger than that of the methods. A method that
    cannot trace the map yields one check whose error is None; empty blocks yield none. Rounding errors of difference quotients are
    allowed for (LOST).
    """
    exact = make_backend(map, reference, engine="numpy", **options).jacobians(at.x, at.u, at.t, p)
    for method, jacobians in by_method.items():
        coarsest = method if method in TOLERANCES else reference
        limit = max(tolerance, TOLERANCES.get(coarsest, EXACT_TOLERANCE))
        try:
            found = jacobians()
        except TraceError as error:
            yield DerivativeCheck(what, "", method, None, str(error).splitlines()[0])
            continue
        least = LOST * ROUNDING.get(coarsest, EPS) / limit * np.abs(exact[0]).max(axis=1, initial=0.0)
        columns = (map.manifold.tangent_names, map.control_names)
        for block, value, right, names in zip(blocks, found[1:], exact[1:], columns, strict=True):
            if right.size:
                size, (i, j) = worst_entry(value, right, least[:, None, None])
                entry = f"d({map.output_names[i]}) / d({names[j]})"
                yield DerivativeCheck(what, block, method, size, entry, limit, reference)


def user_backend_checks(what: str, backend: DynamicsBackend, at: Points, p: Parameters) -> Iterator[DerivativeCheck]:
    """Yield the worst entries of the derivatives of a user-defined backend, compared with central differences.

    The value of its ``jacobians`` is compared with that of its ``f``; its Jacobians with differences of ``f``, by the best of
    DIFFERENCE_STEPS; the products of its second derivatives, if it has them, with a direction of (x, u), with differences of its
    Jacobians, by the best of SECOND_STEPS. Tolerances are larger for values in single precision (SINGLE).
    """
    jacobians, values = backend.jacobians(at.x, at.u, at.t, p), backend.f(at.x, at.u, at.t, p)
    single = bool((values == values.astype(np.float32)).all())
    limits = [
        max(own, single * least)
        for own, least in zip((TOLERANCES[DIFFERENCES], SECOND_TOLERANCES[DIFFERENCES]), SINGLE, strict=True)
    ]
    error, (i,) = worst_entry(jacobians.value, values)
    name = f"value of {backend.map.output_names[i]}"
    yield DerivativeCheck(what, "value", backend.name, error, name, limits[0], "f")
    given = what, backend.map, ("fx", "fu"), at, p, {backend.name: lambda: jacobians}, DIFFERENCES
    first: list[DerivativeCheck] = []
    for step in DIFFERENCE_STEPS:
        if not first or not all(check.passed for check in first):
            found = [*first_order(*given, tolerance=limits[0], step=step)]
            first = [min(pair, key=_excess) for pair in zip(first or found, found, strict=True)]
    yield from first
    if isinstance(backend, SecondOrderBackend):
        map = backend.map
        probe = Probe.random(map, len(at.x), 1, default_rng(0))
        d, dx = probe.directions, np.tile(probe.directions[0, : map.manifold.ndx], (len(at.x), 1))

        def gradient(h: float) -> Array:
            """Gradient (N, ndx + nu) of lam' f at (x, u) moved by h d, in the exponential chart at x."""
            x = np.ascontiguousarray(map.manifold.integrate(at.x.T, h * dx.T).T)
            J = backend.jacobians(x, at.u + h * d[:, map.manifold.ndx :], at.t, p)
            fx = J.fx @ map.manifold.d_integrate(h * dx)[1]
            return np.einsum("no,nok->nk", probe.lam, np.concatenate([fx, J.fu], axis=2))

        product = d @ _whole(backend.hessian_contraction(at.x, at.u, at.t, p, probe.lam)[1])
        best: tuple[float, tuple[int, ...]] = np.inf, (0, 0)
        tolerance = limits[1]
        for h in SECOND_STEPS:
            if best[0] > tolerance:
                ends = gradient(h), gradient(-h)
                least = LOST * EPS / h / tolerance * np.abs(ends[0]).max(axis=1, initial=0.0)
                slope = (ends[0] - ends[1])[:, None] / (2.0 * h)
                best = min(best, worst_entry(product, slope, least[:, None, None]))
        error, (_, i) = best
        yield _along_direction(what, map, backend.name, error, i, tolerance, DIFFERENCES)


# -- second order ----------------------------------------------------------------------------------------------


class Probe(NamedTuple):
    """Covectors lam (N, n_out), and directions d (D, ndx + nu) of (x, u)."""

    lam: Array
    directions: Array

    @classmethod
    def random(cls, map: Map, count: int, directions: int, rng: np.random.Generator) -> Probe:
        """Draw a probe for ``count`` points with this number of directions from the standard normal distribution."""
        size = map.manifold.ndx + map.nu
        return cls(rng.standard_normal((count, map.n_out)), rng.standard_normal((directions, size)))


def second_order(
    what: str,
    map: Map,
    at: Points,
    p: Parameters,
    probe: Probe,
    by_method: Mapping[str, Callable[[], Hessians]],
    parts: Hessians | None = None,
) -> Iterator[DerivativeCheck]:
    """Yield the largest error of lam' f's second derivatives by each method, compared with complex steps of dual numbers.

    Both are multiplied by the directions of the probe, which also holds lam. what: name of the map in reports. by_method:
    functions that return the second derivatives, by name of the method.

    parts: a summand of these derivatives, or None. Errors are relative to the larger one of the exact product and that of the
    summand.
    """
    exact: Any = None
    for method, hessians in by_method.items():
        if exact is None:
            b = Batch.of(map, at.x, at.u, at.t, p)
            products, gradients = zip(*(curvature_along(map, b, probe.lam, d) for d in probe.directions), strict=True)
            exact, rounding = np.stack(products, axis=1), LOST * EPS * np.max(gradients, axis=0)
            exact[np.abs(exact).max(axis=(1, 2), initial=0.0) <= rounding] = 0.0
        least = 0.0 if parts is None else np.abs(probe.directions @ _whole(parts)).max(axis=(1, 2), keepdims=True)
        error, (_, row) = worst_entry(probe.directions @ _whole(hessians()), exact, least)
        yield _along_direction(what, map, method, error, row, SECOND_TOLERANCES.get(method, EXACT_TOLERANCE))


def _along_direction(
    what: str, map: Map, method: str, error: float, row: int, tolerance: float, reference: str = REFERENCE
) -> DerivativeCheck:
    """Result for second derivatives along a direction, whose worst entry is in this row of (x, u)."""
    name = (*map.manifold.tangent_names, *map.control_names)[row]
    return DerivativeCheck(what, "second", method, error, f"d2 / d({name}) along a direction", tolerance, reference)


def _whole(H: Hessians) -> Array:
    """Assemble the Hessian (N, ndx + nu, ndx + nu) from its blocks."""
    return np.block([[H.xx, np.swapaxes(H.ux, 1, 2)], [H.ux, H.uu]])


def curvature_along(map: Map, b: Batch, lam: Array, d: Array) -> tuple[Array, Array]:
    """Product H d (N, ndx + nu) of the Hessian of lam' f, and the largest entry (N,) of the terms of its gradient.

    By a complex step of gradients by dual numbers; zero for a constant map. H is in the exponential chart of the state; lam
    (N, n_out), d (ndx + nu,).
    """
    ndx = map.manifold.ndx
    unit = np.eye(ndx + map.nu)
    steps = np.repeat(1j * STEP * d[:, None], b.size, axis=1)
    x = map.manifold.integrate(b.x, Dual.seed(steps[:ndx], unit[:ndx]))
    value = map(x, Dual.seed(b.u + steps[ndx:], unit[ndx:]), b.t, b.p)
    if not isinstance(value, Dual):  # a constant map
        return np.zeros((b.size, ndx + map.nu)), np.zeros(b.size)
    terms = np.einsum("no,onk->nk", np.abs(lam), np.abs(value.tan.real)).max(axis=1, initial=0.0)
    return np.einsum("no,onk->nk", lam, value.tan.imag) / STEP, terms
