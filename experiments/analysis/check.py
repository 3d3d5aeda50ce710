"""Derivative check of a whole problem: every backend against complex step, on dynamics, time step and cost terms.

Blocks: fx, fu of the system, A, B of the time step, rx, ru of the residuals.  An error is the largest entry of the
difference over the largest entry of the block, at the worst of some random points near the guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, FunctionMap, Jacobians, Map, Parameters
from dynamics_backends.registry import backend_names, make_backend
from problems.task import Task
from trajopt import SampledSystem
from trajopt.problem.terms import CostTerm
from trajopt.step.integrators import step_rows

REFERENCE = "complex_step"
EXACT_TOLERANCE = 1e-8
TOLERANCES = {"central_difference": 1e-5, "forward_difference": 1e-3}
SPREAD = 0.1
"""Standard deviation of the random points from the guess [rad, m, ...]; of controls relative to their size."""


class Points(NamedTuple):
    """x (N, nx), u (N, nu), t (N,), dt (N,), and the knots (N,) of the guess that they lie near."""

    x: Array
    u: Array
    t: Array
    dt: Array
    knots: Array


class Line(NamedTuple):
    """The worst entry of one block by one method; error is None, and entry the reason, where it does not apply."""

    what: str
    block: str
    method: str
    error: float | None
    entry: str
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error is None or self.error <= self.tolerance

    def __str__(self) -> str:
        return f"{self.entry}, relative error {self.error:.1e} ({self.method} against {REFERENCE}, {self.what})"


def random_points(task: Task, count: int = 8, seed: int = 0) -> Points:
    """Points near the guess, its first state at x0 included among the candidates."""
    rng = np.random.default_rng(seed)
    ocp, manifold = task.ocp, task.ocp.manifold
    knots = rng.integers(0, ocp.horizon, count)
    dx = SPREAD * rng.standard_normal((count, manifold.ndx))
    us = np.asarray(task.guess.us)[knots]
    u = us + SPREAD * np.maximum(1.0, np.abs(us)) * rng.standard_normal(us.shape)
    x = np.ascontiguousarray(manifold.integrate(np.asarray(task.guess.xs)[knots].T, dx.T).T)
    return Points(x, u, ocp.times[knots], ocp.dt[knots], knots)


def check_task(task: Task, points: Points, engine: str = "numpy") -> Iterator[Line]:
    """One line for each block and method on an engine; the task is on numpy, and so is the reference."""
    for i, phase in enumerate(task.ocp.phases):
        label = "" if len(task.ocp.phases) == 1 else f" of phase {i}"
        mine = _within(points, task.ocp.phase_slices[i])
        local = mine.knots - task.ocp.phase_slices[i].start
        if isinstance(phase.dynamics, SampledSystem) and len(local):
            p = {k: _at(v, local) for k, v in phase.parameters.items()}
            yield from _check_system(phase.dynamics, mine, p, engine, label)
        for term in phase.terms:
            yield from _check_term(term, mine, local, engine, f"term {term.name!r}{label}")
    for term in task.ocp.terminal:
        at_end = points._replace(t=np.full(len(points.x), task.ocp.times[-1]))
        yield from _check_term(term, at_end, np.zeros(len(points.x), int), engine, f"final term {term.name!r}")


def worst(lines: list[Line]) -> Line | None:
    """The line that exceeds its tolerance most, or comes nearest to it."""
    return max((line for line in lines if line.error is not None), key=_excess, default=None)


def _excess(line: Line) -> float:
    error = line.error or 0.0
    return np.inf if np.isnan(error) else error / line.tolerance


def _within(points: Points, knots: slice) -> Points:
    chosen = (points.knots >= knots.start) & (points.knots < knots.stop)
    return Points(*(values[chosen] for values in points))


def _at(value: Array, knots: Array) -> Array:
    return value[knots] if value.ndim == 2 else value


# -- blocks --------------------------------------------------------------------------------------------------


def _check_system(dynamics: SampledSystem, at: Points, p: Parameters, engine: str, label: str) -> Iterator[Line]:
    system, u = dynamics.system, at.u[:, : dynamics.nu]

    def continuous(method: str) -> Jacobians:
        return make_backend(system, method, engine=engine).jacobians(at.x, u, at.t, p)

    def discrete(method: str) -> Jacobians:
        sampled = SampledSystem(make_backend(system, method, engine=engine), dynamics.scheme, dynamics.substeps)
        return Jacobians(*sampled.linearize(at.x, u, at.t, at.dt, p))

    step = _step_map(dynamics)
    values = {**p, "x_next": dynamics.step(at.x, u, at.t, at.dt, p), "dt": at.dt[:, None]}
    reference = make_backend(step, REFERENCE, engine="numpy").jacobians(at.x, u, at.t, values)
    exact = make_backend(system, REFERENCE, engine="numpy").jacobians(at.x, u, at.t, p)
    yield from _compare(f"dynamics{label}", system, ("fx", "fu"), exact, continuous)
    yield from _compare(f"time step{label}", step, ("A", "B"), reference, discrete, include_reference=True)


def _step_map(dynamics: SampledSystem) -> Map:
    """x_next (-) the parameter ``x_next``: its derivatives there are A and B."""
    system, manifold = dynamics.system, dynamics.manifold

    def difference(x, u, t, p):
        x_next = step_rows(system, dynamics.scheme, dynamics.substeps, x, u, t, p["dt"][0], p)
        return manifold.difference(p["x_next"], x_next)

    names = tuple(f"{name}+" for name in manifold.tangent_names)
    controls = dynamics.control_names
    return FunctionMap(difference, manifold, dynamics.nu, manifold.ndx, output_names=names, control_names=controls)


def _check_term(term: CostTerm, at: Points, local: Array, engine: str, what: str) -> Iterator[Line]:
    residual = term.residual
    x, u = at.x[:, : residual.manifold.nx], at.u[:, : residual.nu]
    p = {k: _at(v, local) for k, v in term.parameters.items()}
    if not len(x):
        return

    def jacobians(method: str) -> Jacobians:
        return make_backend(residual, method, engine=engine).jacobians(x, u, at.t, p)

    exact = make_backend(residual, REFERENCE, engine="numpy").jacobians(x, u, at.t, p)
    yield from _compare(what, residual, ("rx", "ru"), exact, jacobians)


def _compare(
    what: str,
    map: Map,
    blocks: tuple[str, str],
    reference: Jacobians,
    jacobians: Callable[[str], Jacobians],
    include_reference: bool = False,
) -> Iterator[Line]:
    for method in backend_names():
        if method == REFERENCE and not include_reference:
            continue
        tolerance = TOLERANCES.get(method, EXACT_TOLERANCE)
        try:
            found = jacobians(method)
        except TypeError as error:  # no derivatives of its own, or a function that cannot be traced
            yield Line(what, "", method, None, str(error).splitlines()[0], tolerance)
            continue
        columns = (map.manifold.tangent_names, map.control_names)
        pairs = zip(blocks, found[1:], reference[1:], columns, strict=True)
        for block, value, exact, names in pairs:
            if exact.size:
                yield Line(what, block, method, *_worst_entry(value, exact, map.output_names, names), tolerance)


def _worst_entry(value: Array, exact: Array, rows: tuple[str, ...], columns: tuple[str, ...]) -> tuple[float, str]:
    """The largest error relative to the block at its point, and the name of its entry."""
    scale = np.abs(exact).max(axis=(1, 2), keepdims=True)
    error = np.abs(value - exact) / np.where(scale > 0, scale, 1.0)
    error = np.where(np.isfinite(error), error, np.inf)
    k, i, j = np.unravel_index(int(np.argmax(error)), error.shape)
    return float(error[k, i, j]), f"d {rows[i]} / d {columns[j]}"
