"""Errors of derivative methods relative to hand-derived derivatives (Kudruss, Manns, Kirches 2019, fig. 1).

Two cart-pendulums: in minimal coordinates, and as a free body with constraints. Random q, v, a and tau in [-pi, pi],
with 3 n random directions per sample. FD, FDC: forward and central differences with steps eps^(1/2) and eps^(1/3). AD:
dual numbers. ED: dual numbers with poses perturbed by twists, the structured forward sweeps of the paper. Closed form:
that of this library, not in the paper. The error of a sample is its largest absolute entry.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.spatial.perturbed_transform import SpatialDual
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.systems.constraints.constraint_kinds import JointRelation
from dynamics_backends.systems.constraints.holonomic import Holonomic
from experiments.baselines.cart_pendulum import CartPendulum, Derivatives
from experiments.baselines.second_order_references import mass_slope_times
from experiments.papers.study import KUDRUSS, Claim, Comparison, Outcome
from problems.robots.textbook import cart_pendulum

SOURCE = f"{KUDRUSS}, fig. 1"
SAMPLES, QUICK_SAMPLES = 10_000, 100
EPS = float(np.finfo(float).eps)
STEPS = {"FD": EPS ** (1 / 2), "FDC": EPS ** (1 / 3)}
METHODS = ("FD", "FDC", "AD", "ED", "closed form")
PUBLISHED = {"FD": 5e-6, "FDC": 1e-8, "AD": 1e-14, "ED": 1e-14}
"""Published mean errors; for FD and FDC those of the worst case (the model with constraints)."""
FACTOR = 2.0
"""Errors up to this multiple of the published error pass; published errors are approximate."""
ORDERS = 5.0
ABSOLUTE = "absolute errors grow with the values; those of the free body include its full weight"

Array = np.ndarray
Point = tuple[Any, Any, Any]
"""Rows q, v and a third argument, each (n, N)."""


class Algorithm(NamedTuple):
    """A rigid-body algorithm. value: rows at a point; closed, by_hand: derivatives in the three arguments (rows, n, N)."""

    name: str
    value: Callable[[Any, Any, Any], Any]
    closed: Callable[[Array, Array, Array], tuple[Array, Array, Array]]
    by_hand: Callable[[Array, Array, Array], tuple[Array, Array, Array]]


def run(quick: bool) -> Outcome:
    """Measure all errors."""
    rng = np.random.default_rng(0)
    count = QUICK_SAMPLES if quick else SAMPLES
    found = {}
    for free in (False, True):
        for algorithm in algorithms(free):
            for method, errors in _errors(algorithm, 4 if free else 2, count, rng).items():
                found["with constraints" if free else "minimal", algorithm.name, method] = errors
    rows = [
        {"model": model, "algorithm": name, "method": method, "mean": e.mean(), "median": np.median(e), "max": e.max()}
        for (model, name, method), e in found.items()
    ]
    return Outcome(rows, _comparisons(found), partial(_draw, found))


def algorithms(free: bool) -> list[Algorithm]:
    """CRBA, RNEA, NEFF and ABA; of the model with constraints (a free body) FDCONT too."""
    model, hand = cart_pendulum(free=free), CartPendulum(free=free)
    found = [
        Algorithm("CRBA", partial(_entries, model), partial(_mass_slopes, model), partial(_mass_by_hand, hand)),
        Algorithm(
            "RNEA", partial(rnea, model), _arrays(partial(rnea_derivatives, model)), _parts(hand.inverse_dynamics)
        ),
        Algorithm(
            "NEFF",
            lambda q, v, _: rnea(model, q, v, 0.0 * v),
            lambda q, v, _: (
                *_arrays(partial(rnea_derivatives, model))(q, v, 0.0 * v)[:2],
                np.zeros((len(q), *q.shape)),
            ),
            lambda q, v, _: hand.bias(q, v)[1:],
        ),
        Algorithm("ABA", partial(aba, model), _arrays(partial(fd_derivatives, model)), _parts(hand.forward_dynamics)),
    ]
    if not free:
        return found
    rail = [JointRelation(joint, "x", 0.0, gains=(0.0, 0.0), name=joint) for joint in ("z", "pitch")]
    system = Holonomic(model, rail, damping_ratio=0.0)
    n = model.nv

    def closed(q: Array, v: Array, tau: Array) -> tuple[Array, Array, Array]:
        p = system.partials(np.concatenate([q, v]), tau, 0.0, {})
        fx, fu = np.array(p.fx[n:]), np.array(p.fu[n:])
        return fx[:, :n], fx[:, n:], fu

    def value(q: Any, v: Any, tau: Any) -> Any:
        if isinstance(q, np.ndarray):
            return system(np.concatenate([q, v]), tau, 0.0, {})[n:]
        x = Dual.concatenate([q, v])
        return system(SpatialDual(x.val, x.tan) if isinstance(q, SpatialDual) else x, tau, 0.0, {})[n:]

    return [*found, Algorithm("FDCONT", value, closed, _parts(hand.constrained_dynamics))]


def _entries(model: Model, q: Any, v: Any, a: Any) -> Any:
    """Return the mass matrix as rows (n^2, N)."""
    M, n = crba(model, q), model.nv
    return M.reshape((n * n, M.shape[-1])) if isinstance(M, np.ndarray) else Dual.concatenate([M[i] for i in range(n)])


def _mass_slopes(model: Model, q: Array, v: Array, a: Array) -> tuple[Array, Array, Array]:
    n, N = q.shape
    columns = [mass_slope_times(model, q, np.repeat(e[:, None], N, axis=1)) for e in np.eye(n)]
    slopes = np.stack(columns, axis=1)  # [i][column][b]
    return slopes.reshape(n * n, n, N), np.zeros((n * n, n, N)), np.zeros((n * n, n, N))


def _mass_by_hand(hand: CartPendulum, q: Array, v: Array, a: Array) -> tuple[Array, Array, Array]:
    zero = np.zeros((hand.n**2, hand.n, q.shape[1]))
    H_b = hand.mass_matrix(q)[1].reshape(hand.n**2, 1, -1)
    return H_b * hand.swing[:, None], zero, zero


def _arrays(derivatives: Callable[..., Any]) -> Callable[[Array, Array, Array], tuple[Array, Array, Array]]:
    return lambda *point: tuple(np.asarray(d) for d in derivatives(*point)[1:4])


def _parts(by_hand: Callable[..., Derivatives]) -> Callable[[Array, Array, Array], tuple[Array, Array, Array]]:
    return lambda *point: by_hand(*point)[1:]


def _errors(algorithm: Algorithm, n: int, count: int, rng: np.random.Generator) -> dict[str, Array]:
    """Return the error of each sample by method."""
    point = tuple(rng.uniform(-np.pi, np.pi, (3, n, count)))
    directions = rng.uniform(-1.0, 1.0, (3, n, 3 * n))
    expected = _directional(algorithm.by_hand(*point), directions)
    found = {
        "AD": _by_duals(algorithm, point, directions),
        "ED": _by_duals(algorithm, point, directions, structured=True),
        "closed form": _directional(algorithm.closed(*point), directions),
        **{method: _by_differences(algorithm, point, directions, method) for method in STEPS},
    }
    return {m: np.abs(found[m] - expected).max(axis=(0, 2)) for m in METHODS}


def _directional(blocks: tuple[Array, Array, Array], directions: Array) -> Array:
    """Return the derivatives along directions (rows, N, K)."""
    return sum(np.einsum("ijN,jK->iNK", b, d) for b, d in zip(blocks, directions, strict=True))


def _by_duals(algorithm: Algorithm, point: Point, directions: Array, *, structured: bool = False) -> Array:
    q, v, third = (Dual.seed(x, d) for x, d in zip(point, directions, strict=True))
    return algorithm.value(SpatialDual(q.val, q.tan) if structured else q, v, third).tan


def _by_differences(algorithm: Algorithm, point: Point, directions: Array, method: str) -> Array:
    step, columns = STEPS[method], []
    for k in range(directions.shape[2]):
        forward = [x + step * d[:, [k]] for x, d in zip(point, directions, strict=True)]
        backward = [x - step * d[:, [k]] for x, d in zip(point, directions, strict=True)] if method == "FDC" else point
        change = np.asarray(algorithm.value(*forward)) - np.asarray(algorithm.value(*backward))
        columns.append(change / (2.0 * step if method == "FDC" else step))
    return np.stack(columns, axis=2)


def _comparisons(found: dict[tuple[str, str, str], Array]) -> list[Comparison]:
    """Compare the worst errors of differences, the median errors of exact derivatives, and the ranking of the algorithms."""
    lines = []
    for method in METHODS:
        means = {key: float(e.mean()) for key, e in found.items() if key[2] == method}
        (model, algorithm, _), most = max(means.items(), key=lambda item: item[1])
        typical, worst = float(np.median(list(means.values()))), f"{most:.1e} ({algorithm}, {model})"
        if method in STEPS:
            what, ours, shown = f"mean error of {method}, worst algorithm and model", most, worst
            why = "the size of the directions is not published; errors of differences are in proportion to it"
        else:
            what, ours, shown = f"mean error of {method}, median of algorithms and models", typical, f"{typical:.1e}"
            why = f"worst {worst}"
        if method not in PUBLISHED:
            lines.append(Comparison(what, "n/a", shown, (), why))
            continue
        claim = Claim(f"at most {FACTOR:g} times the published error", ours <= FACTOR * PUBLISHED[method])
        lines.append(Comparison(what, f"about {PUBLISHED[method]:.0e}", shown, [claim], why))
    for model in dict.fromkeys(model for model, _, _ in found):
        errors = {name: float(e.mean()) for (m, name, method), e in found.items() if (m, method) == (model, "FD")}
        best, last = min(errors, key=errors.__getitem__), max(errors, key=errors.__getitem__)
        claims = [
            Claim("CRBA is the most accurate", best == "CRBA", only_differs=True),
            Claim("ABA is the least accurate", last == "ABA", only_differs=True),
        ]
        what = f"order of the algorithms by FD's mean error, {model}"
        shown = ", ".join(f"{n} {e:.1e}" for n, e in errors.items())
        lines.append(Comparison(what, "CRBA best, ABA worst", shown, claims, ABSOLUTE))
    gain = _gain(found)
    claim = Claim("5 orders of magnitude", gain >= ORDERS)
    lines.append(
        Comparison("gain of exact derivatives over FD, worst case", "up to 5 orders", f"{gain:.1f} orders", [claim])
    )
    return lines


def _gain(found: dict[tuple[str, str, str], Array]) -> float:
    """Return the orders of magnitude between the worst mean errors of FD and of the exact methods."""
    exact = max(float(found[k].mean()) for k in found if k[2] in ("AD", "ED"))
    return float(np.log10(max(float(found[k].mean()) for k in found if k[2] == "FD") / exact))


def _draw(found: dict[tuple[str, str, str], Array], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure, legend

    models = dict.fromkeys(model for model, _, _ in found)
    title = "Errors relative to hand-derived derivatives (clipped at 1e-18)"
    with figure(path, 1, len(models), 12.0, 3.6, title, sharey=True) as axes:
        for axis, model in zip(axes.flat, models, strict=True):
            names = list(dict.fromkeys(name for m, name, _ in found if m == model))
            for i, method in enumerate(METHODS):
                data = [np.log10(np.maximum(found[model, name, method], 1e-18)) for name in names]
                places = np.arange(len(names)) + 0.16 * (i - 2)
                boxes = axis.boxplot(data, positions=places, widths=0.13, sym="", patch_artist=True, manage_ticks=False)
                for box in boxes["boxes"]:
                    box.set(facecolor=COLORS[i], alpha=0.6)
                axis.plot([], [], "s", color=COLORS[i], label=method)
            axis.set_xticks(range(len(names)), names)
            axis.set_title(model)
        axes.flat[0].set_ylabel("log10 of the error")
        legend(axes)
