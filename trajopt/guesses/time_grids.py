"""Problems on finer and coarser time grids, and solutions resampled to them.

A finer grid splits each time step into equal ones. A coarser grid merges several steps into one with as many substeps, so that the
integration stays as accurate. Durations, phases and stages without duration are unchanged. Values by knot are converted as follows:

    weights, bounds on controls, parameters of the dynamics,
    constraints that read controls, with their parameters             constant over the old time step
    parameters of other terms and constraints, such as references     interpolated (states on geodesics), constant in the last
                                                                      step of a phase; constant over the old time step if the
                                                                      weights of the term differ by knot
    bounds of other constraints                                       unchanged at the old knots, between them the looser of the two
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, MeetsInSteps, MissingCapability
from trajopt.guesses.guesses import resampled_at
from trajopt.problem import residuals
from trajopt.problem.constraints import Constraint
from trajopt.problem.guess import Guess
from trajopt.problem.impact_stage import has_fixed_steps
from trajopt.problem.ocp import OCP, Phase, fitting
from trajopt.problem.terms import QUADRATURE, CostTerm, next_rows, parameters_at, rows_at, trapezoidal_factors
from trajopt.results.solution import LAST_CONTROL, Solution
from trajopt.step.sensitivities import SampledSystem


class _Grid(NamedTuple):
    """New time steps of a phase: index of the old step at the start (M,), fraction of it passed (M,), and length (M,) [s]."""

    at: Array
    fraction: Array
    dt: Array

    def between(self, rows: Array) -> Array:
        """Rows (M, n), interpolated between rows (K, n) of the old knots."""
        return rows[self.at] + self.fraction[:, None] * (next_rows(rows)[self.at] - rows[self.at])

    def looser(self, rows: Array, combine: Any) -> Array:
        """Bounds (M, n) from those of the old knots: unchanged there, combined with the next knot's in between.

        combine: np.minimum for lower, np.maximum for upper bounds.
        """
        return np.where(self.fraction[:, None] > 0.0, combine(rows, next_rows(rows))[self.at], rows[self.at])


def refine(solution: Solution, factor: int = 2, ocp: OCP | None = None) -> tuple[OCP, Guess]:
    """Problem of a solution on a finer time grid, and the solution as its guess.

    Each time step is split into ``factor`` equal ones. States (factor N + 1, nx) are interpolated on the manifold, controls
    (factor N, nu) are piecewise constant, or interpolated if those of the solution are. Durations are unchanged. See the module
    docstring for values by knot. ocp: the solved problem, default that of the solution; required for solutions from a file or a
    batch. Raises ValueError for a factor below 2, a batch, a solution without a problem or of another size, MissingCapability for
    dynamics with time steps of fixed length.

    >>> import trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    >>> goal = [to.bounded(to.state_cost(2, [1.0, 0.0]))]
    >>> step = to.SampledSystem(cart, "rk4")
    >>> ocp = to.OCP.single_phase(step, [0.0, 0.0], 10, 0.1, [to.control_cost(1)], terminal_constraints=goal)
    >>> finer, guess = to.refine(to.solve(ocp), 2)
    >>> finer.horizon, guess
    (20, Guess(xs (21, 2), us (20, 1)))
    """
    if np.ndim(solution.xs) != 2:
        raise ValueError("this is a batch of solutions: refine one of them, batch[i]")
    if isinstance(factor, bool) or not isinstance(factor, (int, np.integer)) or factor < 2:
        raise ValueError(f"factor = {factor!r}; expected an integer of at least 2")
    ocp = solution.problem if ocp is None else ocp
    if ocp is None:
        raise ValueError("solutions from files and batches do not contain their problem: pass it as ocp = ...")
    fitting(ocp, solution.xs, solution.us)
    finer = regridded(ocp, lambda phase: _finer(phase.dt, int(factor)))
    return finer, on_grid_of(finer, ocp, solution)


def coarser(ocp: OCP, factor: int) -> OCP:
    """Problem with ``factor`` time steps of each phase merged into one; the last one of a phase may merge fewer.

    Each time step gets ``factor`` times the substeps, which keeps the accuracy of the integration. Raises MissingCapability for
    dynamics with time steps of fixed length.
    """

    def grid(phase: Phase) -> _Grid:
        """Grid of a phase with ``factor`` steps merged into one."""
        starts = np.arange(0, phase.knots, factor)
        return _Grid(starts, np.zeros(len(starts)), np.add.reduceat(phase.dt, starts))

    return regridded(ocp, grid, factor)


def _finer(dt: Array, factor: int) -> _Grid:
    """Grid with each time step split into ``factor`` equal ones."""
    at = np.repeat(np.arange(len(dt)), factor)
    return _Grid(at, np.tile(np.arange(factor) / factor, len(dt)), dt[at] / factor)


def on_grid_of(ocp: OCP, other: OCP, motion: Any) -> Guess:
    """Resample a motion xs, us of ``other``, for example a solution, to the time grid of ``ocp``.

    States are interpolated on geodesics. Controls are piecewise constant, or interpolated if the motion's meta has LAST_CONTROL.
    """
    xs, us = np.asarray(motion.xs), np.asarray(motion.us)
    guess = resampled_at(ocp, ocp.times, other.times, xs, us)
    last = getattr(motion, "meta", {}).get(LAST_CONTROL)
    if last is not None:
        rows, t = np.vstack([us, last]), ocp.times[:-1]
        guess = guess._replace(us=np.column_stack([np.interp(t, other.times, column) for column in rows.T]))
    return guess


def can_be_regridded(ocp: OCP) -> bool:
    """True if the time steps of all phases that have a duration can be split or merged."""
    return all(_is_divisible(phase) for phase in ocp.phases)


def _is_divisible(phase: Phase) -> bool:
    """True if a phase has no duration, or time steps that can be split or merged."""
    d = phase.dynamics
    if not d.takes_time:
        return True
    return isinstance(d, SampledSystem) and d.sampling is not None and not isinstance(d.system, MeetsInSteps)


def regridded(ocp: OCP, grid_of: Any, substeps: int = 1) -> OCP:
    """Problem with other time steps. grid_of: new grid of a phase with duration; stages without duration are unchanged.

    substeps: factor on the substeps of each step. Values by knot are converted as in the module docstring.
    Raises MissingCapability for dynamics with time steps of fixed length.
    """
    grids, phases = [], []
    for phase in ocp.phases:
        if not _is_divisible(phase):
            fixed = has_fixed_steps(phase)
            what = "discrete dynamics define their" if fixed else f"{type(phase.dynamics).__name__} defines its"
            raise MissingCapability(
                f"{what} own time steps, which cannot be split or merged; pass xdot = f(x, u) to SampledSystem"
            )
        every = np.arange(phase.knots)
        grids.append(grid_of(phase) if phase.dynamics.takes_time else _Grid(every, np.zeros(phase.knots), phase.dt))
    first = True
    for phase, grid in zip(ocp.phases, grids, strict=True):
        d: Any = phase.dynamics
        if phase.dynamics.takes_time and substeps > 1:
            d = SampledSystem(d.backend, d.scheme, d.substeps * substeps)
        phases.append(
            Phase(
                d,
                grid.dt,
                tuple(_term(term, grid) for term in phase.terms),
                parameters_at(phase.parameters, grid.at),
                tuple(_constraint(c, grid, first=first) for c in phase.constraints),
            )
        )
        first = first and not phase.dynamics.takes_time
    places = np.concatenate([s.start + grid.at for s, grid in zip(ocp.phase_slices, grids, strict=True)])
    terminal = tuple(_at_end(term, grids[-1].dt) for term in ocp.terminal)
    return ocp.with_phases(phases, places, terminal=terminal)


def _term(term: CostTerm, grid: _Grid) -> CostTerm:
    """Running term on the new grid: weights by knot and their parameters are repeated, other parameters are interpolated."""
    by_knot, values = term.weight.ndim == 2, term.parameters
    own = parameters_at(values, grid.at) if by_knot else _between(term.residual, values, grid)
    return replace(term, weight=rows_at(term.weight, grid.at), parameters=_quadrature(term, own, grid.dt))


def _quadrature(term: CostTerm, values: dict[str, Array], dt: Array) -> dict[str, Array]:
    """Replace in place the factors of trapezoidal quadrature by those for time steps dt (M,); return the parameters ``values``.

    Unchanged if the term has no such factors.
    """
    if QUADRATURE in values:
        factors = trapezoidal_factors(dt)[:, None]
        values[QUADRATURE] = np.sqrt(factors) if term.squared else factors
    return values


def _at_end(term: CostTerm, dt: Array) -> CostTerm:
    """Terminal term for a last phase with time steps dt; changes only the factor of trapezoidal quadrature, if it has one."""
    if QUADRATURE not in term.parameters:
        return term
    half = np.array([0.5 * dt[-1]])
    return replace(term, parameters={**term.parameters, QUADRATURE: np.sqrt(half) if term.squared else half})


def _between(residual: Any, values: Mapping[str, Array], grid: _Grid) -> dict[str, Array]:
    """Interpolate parameters by knot; state references on geodesics of their manifold."""
    result = {}
    for key, rows in values.items():
        function = getattr(residual, "function", None)
        state = isinstance(function, partial) and function.func is residuals.state_difference and key == "reference"
        if rows.ndim < 2:
            result[key] = rows
        elif state:
            manifold = function.args[0]  # type: ignore[union-attr]
            here, there = rows[grid.at].T, next_rows(rows)[grid.at].T
            result[key] = manifold.integrate(here, grid.fraction * manifold.difference(here, there)).T
        else:
            result[key] = grid.between(rows)
    return result


def _constraint(c: Constraint, grid: _Grid, *, first: bool) -> Constraint:
    """Constraint on the new grid.

    If it reads controls, values by knot are repeated; else parameters are interpolated, and bounds are the looser of adjacent
    knots. first: no phase with duration precedes its phase, whose first state is fixed; if only the bounds there differ from
    those of the other knots, they do not widen those of new knots in the first old step.
    """
    if c.residual.nu:
        return c.at_knots(grid.at)
    bounds = []
    for rows, combine in ((c.lower, np.minimum), (c.upper, np.maximum)):
        if rows.ndim == 2:
            new = grid.looser(rows, combine)
            if first and len(rows) > 1 and (rows[1:] == rows[1]).all():  # only the bounds at the fixed state differ
                new = np.where((grid.at == 0)[:, None] & (grid.fraction > 0.0)[:, None], rows[1], new)
            rows = new
        bounds.append(rows)
    return replace(c, lower=bounds[0], upper=bounds[1], parameters=_between(c.residual, c.parameters, grid))
