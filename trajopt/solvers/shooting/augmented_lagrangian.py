"""Constraints for solvers that know none: an augmented Lagrangian around their loop.

For lower <= g <= upper with multiplier y and penalty rho, Powell, Hestenes and Rockafellar add to the cost

    rho/2 |z - P(z)|^2        z = g + y / rho,   P the projection on [lower, upper]

and the minimizer in x gives the next multiplier y <- rho (z - P(z)), y > 0 at upper bounds, y < 0 at lower ones.  That is a cost
term with the weight rho and the residual z - P(z), whose shift y / rho, bounds and weight are run-time values: a change of
multipliers compiles nothing anew.  A penalty grows where the violation does not fall fast enough (R. Andreani, E. Birgin, J.
Martinez, M. Schuverdt, SIAM J. Optim. 18, 2007, algorithm 3.1). Multipliers are those of the constraints at each knot, not
densities in time: the weight of a running term is divided by dt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import composed
from dynamics_backends.protocol import Array, HasPartials, Map
from dynamics_backends.scalar import Rows, Scalar
from trajopt.guesses.guesses import Guess
from trajopt.problem.constraints import UNBOUNDED, Constraint
from trajopt.problem.expansion import residual_batch
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import CostTerm
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import Status, StatusCode
from trajopt.solvers.nlp import nlp_verdicts
from trajopt.solvers.options import SLQOptions

GROWTH, SUFFICIENT = 10.0, 0.25
"""A penalty grows by GROWTH where the violation is above this share of the last one."""
FIRST_TOLERANCE, TIGHTENING = 1e-2, 0.1
"""The tolerance on the gradient of the first inner solve, and its factor from one to the next."""
SHIFT, LOWER, UPPER = "shift", "lower", "upper"
OWN = "constraint: "
"""Stands before the names of the constraint's own parameters, which may be any."""

Solver = Callable[[OCP, Guess, Any, "Callback | None"], Solution]


class PenalizedMap:
    """z - P(z) for z = g + shift, as a map; equal: which components are equalities, where it is smooth."""

    def __init__(self, map: Map, equal: tuple[bool, ...]) -> None:
        self.inner, self.equal = map, equal
        self.manifold, self.nu, self.n_out = map.manifold, map.nu, map.n_out
        self.output_names, self.control_names = map.output_names, map.control_names

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N)."""
        return sm.stack(penalized(self.equal, self.inner(x, u, t, _own(p)), p))


def penalized(equal: tuple[bool, ...], g: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
    """z - P(z) by component."""
    rows = []
    for i, held in enumerate(equal):
        z, lower, upper = g[i] + p[SHIFT][i], p[LOWER][i], p[UPPER][i]
        above, below = sm.select(z - upper, z - upper, 0.0 * z), sm.select(lower - z, z - lower, 0.0 * z)
        rows.append(z - lower if held else above + below)
    return rows


def _own(p: Mapping[str, Rows]) -> dict[str, Rows]:
    """The parameters of the constraint's own map."""
    return {key.removeprefix(OWN): value for key, value in p.items() if key.startswith(OWN)}


def _named(parameters: Mapping[str, Array]) -> dict[str, Array]:
    """The parameters of a constraint by their names in the cost term."""
    return {OWN + key: value for key, value in parameters.items()}


@lru_cache(maxsize=256)
def _penalized_map(map: Map, equal: tuple[bool, ...]) -> Map:
    """Kept, so that a problem solved again compiles nothing anew; with the derivatives of a map that writes out its own."""
    return composed(map, partial(penalized, equal), _own) if isinstance(map, HasPartials) else PenalizedMap(map, equal)


@dataclass(frozen=True, eq=False)
class _Imposed:
    """A constraint where it holds: its knots, phase (None at the end), multiplier (K, nr), penalty, scale of the cost (K,), and
    which of its components (K, nr) are imposed."""

    constraint: Constraint
    knots: slice
    phase: int | None
    y: Array
    rho: float
    scale: Array
    active: Array

    @property
    def key(self) -> str:
        """The name in the solution's multipliers."""
        return self.constraint.name if self.phase is not None else f"terminal {self.constraint.name}"

    def values(self, ocp: OCP, xs: Array, us: Array) -> Array:
        """g (K, nr), within the bounds where it is not imposed."""
        c = self.constraint
        u = us[self.knots] if self.phase is not None else us[:1, :0]
        batch = residual_batch(c.residual, xs[self.knots], u, ocp.t[self.knots], c.parameters)
        g = np.asarray(c.residual(*batch)).T
        return np.where(self.active, g, np.clip(g, *self.bounds))

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper, (K, nr)."""
        return self.constraint.bounds(self.knots.stop - self.knots.start)

    def term(self) -> CostTerm:
        """The cost term."""
        c, (lower, upper) = self.constraint, self.bounds
        own = {SHIFT: self.y / self.rho, LOWER: np.maximum(lower, -UNBOUNDED), UPPER: np.minimum(upper, UNBOUNDED)}
        rows = own if self.phase is not None else {key: value[0] for key, value in own.items()}
        weight = np.where(self.active, self.rho / self.scale[:, None], 0.0)
        weight = weight if self.phase is not None else weight[0]
        residual: Any = c.residual
        equal = tuple((lower == upper).all(axis=0).tolist())
        return CostTerm(c.name, _penalized_map(residual, equal), weight, _named(c.parameters) | rows)

    def multiplied(self, g: Array) -> tuple[_Imposed, float]:
        """With the next multiplier; the violation of feasibility and complementarity, |g - P(z)|."""
        z = g + self.y / self.rho
        projected = np.clip(z, *self.bounds)
        return replace(self, y=self.rho * (z - projected)), float(np.abs(g - projected).max(initial=0.0))


def solve_constrained(
    ocp: OCP,
    guess: Guess,
    options: SLQOptions,
    callback: Callback | None,
    solver: Solver,
    multipliers: Mapping[str, Array] | None = None,
) -> Solution:
    """A problem with constraints by a solver of problems without; multipliers: of an earlier solution, by name."""
    return _Outer(ocp, options, callback, solver).run(guess, multipliers or {})


class _Outer:
    """The loop over multipliers and penalties."""

    def __init__(self, ocp: OCP, options: SLQOptions, callback: Callback | None, solver: Solver) -> None:
        self.ocp, self.options, self.callback, self.solver = ocp, options, callback, solver
        self.records: list[IterationRecord] = []
        self.violation = np.inf
        self.began = time.perf_counter()

    def run(self, guess: Guess, multipliers: Mapping[str, Array]) -> Solution:
        """Inner solves until the constraints are met."""
        o = self.options
        parts = imposed(self.ocp, o.constraint_penalty, multipliers)
        xs = np.array(guess.xs, dtype=float)
        xs[0] = self.ocp.x0
        self.violation = _largest(self.ocp, parts, xs, guess.us)
        tolerance, last = max(o.gradient_tolerance, FIRST_TOLERANCE), [np.inf] * len(parts)
        for _ in range(o.max_outer_iterations):
            solution = self._inner(parts, guess, tolerance)
            guess = Guess(solution.xs, solution.us)
            if not np.isfinite(solution.cost) or not np.isfinite(solution.xs).all():
                return self._ended(solution, parts, self._non_finite(solution, parts))
            parts, errors = _multiplied(self.ocp, parts, solution)
            self.violation = _largest(self.ocp, parts, solution.xs, solution.us)
            if solution.status.code not in _GOES_ON:
                return self._ended(solution, parts, self._stopped(solution))
            closed = solution.history[-1].defect <= o.defect_tolerance
            if closed and max(errors) <= o.constraint_tolerance and tolerance <= o.gradient_tolerance:
                return self._ended(solution, parts, self._success(solution))
            parts, saturated = _stiffened(parts, errors, last, o)
            if saturated:
                return self._ended(solution, parts, self._saturated(solution))
            tolerance, last = max(o.gradient_tolerance, TIGHTENING * tolerance), errors
        return self._ended(solution, parts, self._not_met(solution))

    def _inner(self, parts: Sequence[_Imposed], guess: Guess, tolerance: float) -> Solution:
        """The solution for fixed multipliers."""
        o, done = self.options, len(self.records)
        left = None if o.time_limit is None else max(1e-9, o.time_limit - (time.perf_counter() - self.began))
        inner = replace(
            o, gradient_tolerance=tolerance, max_iterations=max(0, o.max_iterations - done), time_limit=left
        )

        def told(record: IterationRecord) -> None:
            self._tell(replace(record, constraint_violation=max(record.constraint_violation, self.violation)))

        return self.solver(augmented(self.ocp, parts), guess, inner, told)

    def _tell(self, record: IterationRecord) -> None:
        record = replace(record, iteration=len(self.records))
        self.records.append(replace(record, iterate=None))
        if self.callback is not None:
            self.callback(record)

    def _ended(self, solution: Solution, parts: Sequence[_Imposed], status: Status) -> Solution:
        cost = self.ocp.cost(solution.xs, solution.us)
        # Multipliers of one name have as many rows in all phases, or else the last ones stay.
        widths = dict.fromkeys((p.key, p.y.shape[1]) for p in parts)
        found = {
            key: np.concatenate([p.y for p in parts if (p.key, p.y.shape[1]) == (key, width)]) for key, width in widths
        }
        count = len(self.records)
        if self.records and status.code is not StatusCode.INTERRUPTED:  # of the point returned, without penalties
            last = replace(self.records[-1], cost=cost, merit=cost, constraint_violation=self.violation)
            self._tell(replace(last, iterate=lambda: (np.array(solution.xs), np.array(solution.us))))
        return replace(
            solution, status=status, cost=cost, iterations=count, history=tuple(self.records), multipliers=found
        )

    # -- verdicts -------------------------------------------------------------------------------------------------------
    def _success(self, solution: Solution) -> Status:
        if not solution.status.success:  # the precision limit of the last inner solve
            return solution.status
        gradient, kkt = (solution.history[-1].gradient, solution.history[-1].kkt) if solution.history else (0.0, 0.0)
        return nlp_verdicts.converged(len(self.records), gradient, self.violation, kkt)

    def _saturated(self, solution: Solution) -> Status:
        """At the largest penalties a minimizer is a stationary point of the violation; where an inner solve stops is not."""
        worst, inner = worst_violation(self.ocp, solution.xs, solution.us), solution.status
        if inner.success:
            return nlp_verdicts.infeasible(len(self.records), worst)
        reason = f"The penalties reached max_constraint_penalty, and the inner solve ended in {inner.code}"
        advice = "Start from a better guess, or take solver = 'dms'."
        return nlp_verdicts.stopped(
            inner.code, reason, f"constraint violation {self.violation:.1e}", worst, advice, inner.kkt
        )

    def _stopped(self, solution: Solution) -> Status:
        """The verdict of the last inner solve, with the limits of all and the constraint that is violated."""
        o, status, worst = self.options, solution.status, worst_violation(self.ocp, solution.xs, solution.us)
        limits = {
            StatusCode.MAX_ITERATIONS: f"Stopped at max_iterations = {o.max_iterations} of all inner solves",
            StatusCode.TIME_LIMIT: f"Stopped at time_limit = {o.time_limit} s",
        }
        if status.code not in limits:
            return status
        gradient = solution.history[-1].gradient if solution.history else np.nan
        distance = f"gradient {gradient:.1e}, constraint violation {self.violation:.1e}"
        named = worst if self.violation > o.constraint_tolerance else None
        advice = f"Raise {status.code}; a constraint out of reach stays so with any number of iterations."
        return nlp_verdicts.stopped(status.code, limits[status.code], distance, named, advice)

    def _non_finite(self, solution: Solution, parts: Sequence[_Imposed]) -> Status:
        """The status that names a constraint which is not finite, if one is; else the inner solve's."""
        for part in parts:
            g = part.values(self.ocp, solution.xs, solution.us)
            if not np.isfinite(g).all():
                k, i = (int(v) for v in np.argwhere(~np.isfinite(g))[0])
                name = f"{part.constraint.component_names[i]} at knot {part.knots.start + k}"
                message = f"NaN or infinity in the constraint {name}."
                return Status(StatusCode.NON_FINITE, message, component=name, advice="Start from a better guess.")
        return solution.status

    def _not_met(self, solution: Solution) -> Status:
        reason = f"Stopped at max_outer_iterations = {self.options.max_outer_iterations}"
        worst = worst_violation(self.ocp, solution.xs, solution.us)
        distance = f"constraint violation {self.violation:.1e} > {self.options.constraint_tolerance:.1e}"
        advice = "Raise max_outer_iterations or constraint_penalty, or start from a better guess."
        return nlp_verdicts.stopped(StatusCode.MAX_ITERATIONS, reason, distance, worst, advice)


_GOES_ON = (
    StatusCode.CONVERGED,
    StatusCode.COST_CONVERGED,
    StatusCode.PRECISION_LIMIT,
    StatusCode.LINE_SEARCH_FAILED,
)
"""Ends of an inner solve after which multipliers are worth updating."""


def augmented(ocp: OCP, parts: Sequence[_Imposed]) -> OCP:
    """The problem without constraints, with their cost terms."""

    def running(i: int, phase: Phase) -> Phase:
        return replace(phase, terms=(*phase.terms, *(p.term() for p in parts if p.phase == i)), constraints=())

    phases = tuple(running(i, phase) for i, phase in enumerate(ocp.phases))
    terminal = (*ocp.terminal, *(p.term() for p in parts if p.phase is None))
    return replace(ocp, phases=phases, terminal=terminal, terminal_constraints=())


def worst_violation(ocp: OCP, xs: Array, us: Array) -> nlp_verdicts.Worst | None:
    """The constraint that a trajectory violates most, by name and knot; None where none is violated."""
    worst = None
    for part in imposed(ocp, 1.0, {}):
        g = part.values(ocp, xs, us)
        excess = np.abs(g - np.clip(g, *part.bounds))
        if excess.size and excess.max() > (0.0 if worst is None else worst.violation):
            k, i = (int(v) for v in np.unravel_index(np.argmax(excess), excess.shape))
            name = f"{part.constraint.component_names[i]} at knot {part.knots.start + k}"
            worst = nlp_verdicts.Worst(name, float(excess[k, i]))
    return worst


def imposed(ocp: OCP, rho: float, multipliers: Mapping[str, Array]) -> list[_Imposed]:
    """All constraints at the penalty rho, with the multipliers given by name, else zero."""
    N, parts = ocp.horizon, []
    where = [
        (i, c, s) for i, (p, s) in enumerate(zip(ocp.phases, ocp.phase_slices, strict=True)) for c in p.constraints
    ]
    for i, c, knots in (*where, *((None, c, slice(N, N + 1)) for c in ocp.terminal_constraints)):
        shape = (knots.stop - knots.start, c.residual.n_out)
        scale = np.ones(1) if i is None else ocp.phases[i].weights
        active = np.ones(shape, dtype=bool)
        active[0] = knots.start > 0 or c.residual.nu > 0
        part = _Imposed(c, knots, i, np.zeros(shape), rho, scale, active)
        own = multipliers.get(part.key)
        parts.append(part if own is None or own.shape != shape else replace(part, y=np.array(own)))
    return parts


def _multiplied(ocp: OCP, parts: Sequence[_Imposed], solution: Solution) -> tuple[list[_Imposed], list[float]]:
    pairs = [part.multiplied(part.values(ocp, solution.xs, solution.us)) for part in parts]
    return [part for part, _ in pairs], [error for _, error in pairs]


def _stiffened(
    parts: Sequence[_Imposed], errors: Sequence[float], last: Sequence[float], o: SLQOptions
) -> tuple[list[_Imposed], bool]:
    """Larger penalties where the error does not fall; whether one that is still violated cannot grow."""
    result, saturated = [], False
    for part, error, before in zip(parts, errors, last, strict=True):
        slow = error > max(o.constraint_tolerance, SUFFICIENT * before)
        saturated = saturated or (slow and part.rho >= o.max_constraint_penalty)
        result.append(replace(part, rho=min(GROWTH * part.rho, o.max_constraint_penalty)) if slow else part)
    return result, saturated


def _largest(ocp: OCP, parts: Sequence[_Imposed], xs: Array, us: Array) -> float:
    worst = 0.0
    for part in parts:
        g = part.values(ocp, xs, np.asarray(us))
        worst = max(worst, float(np.abs(g - np.clip(g, *part.bounds)).max(initial=0.0)))
    return worst
