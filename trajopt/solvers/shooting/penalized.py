"""Augmented Lagrangian terms: constraints converted to cost terms of an unconstrained problem.

For lower <= g <= upper with multiplier y and penalty rho, Powell, Hestenes and Rockafellar add to the cost

    rho/2 |z - P(z)|^2        z = g + y / rho,   P the projection on [lower, upper]

and the minimizer in x gives the next multiplier y <- rho (z - P(z)), y > 0 at upper bounds, y < 0 at lower ones.  The added term
has the weight rho and the residual z - P(z).  The shift y / rho, bounds and weight are run-time parameters, so that new multipliers
need no new trace.  Multipliers belong to the constraints at each knot, not to densities in time: the weight of a
running term is divided by dt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import composed
from dynamics_backends.protocol import Array, Map
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.constraints import INFINITE, Constraint
from trajopt.problem.expansion import residual_batch
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.termination import NonFinite, WorstConstraint

SHIFT, LOWER, UPPER = "shift", "lower", "upper"
PREFIX = "constraint: "
"""Prefix of the constraint's parameters in the cost term, which avoids name conflicts."""


def penalized(equal: tuple[bool, ...], g: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
    """Return the components of z - P(z), for z = g + shift and the projection P on the bounds of the parameters p.

    equal: True for each equality component, whose value is z - lower.
    """
    rows = []
    for i, held in enumerate(equal):
        z, lower, upper = g[i] + p[SHIFT][i], p[LOWER][i], p[UPPER][i]
        above, below = sm.select(z - upper, z - upper, 0.0 * z), sm.select(lower - z, z - lower, 0.0 * z)
        rows.append(z - lower if held else above + below)
    return rows


def _inner_parameters(p: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return the parameters of the constraint's own map, by their names without the prefix."""
    return {key.removeprefix(PREFIX): value for key, value in p.items() if key.startswith(PREFIX)}


def _named(parameters: Mapping[str, Array]) -> dict[str, Array]:
    """Return the parameters of a constraint by their prefixed names in the cost term."""
    return {PREFIX + key: value for key, value in parameters.items()}


@lru_cache(maxsize=256)
def _penalized_map(map: Map, equal: tuple[bool, ...]) -> Map:
    """Return the map z - P(z) of a map g; cached, so that later solves trace it no more. equal: see :func:`penalized`."""
    return composed(map, partial(penalized, equal), _inner_parameters)


@dataclass(frozen=True)
class Place:
    """Location of a constraint: its phase (None for terminal), its index there, and its knots."""

    phase: int | None
    number: int
    knots: slice

    def __call__(self, ocp: OCP) -> Constraint:
        """Return the constraint of a problem at this location."""
        return (ocp.terminal_constraints if self.phase is None else ocp.phases[self.phase].constraints)[self.number]

    @property
    def count(self) -> int:
        """Number of knots."""
        return self.knots.stop - self.knots.start


def places(ocp: OCP) -> list[Place]:
    """Return the locations of all constraints: those of the phases, then the terminal ones."""
    N = ocp.horizon
    found = [
        Place(i, j, knots)
        for i, (phase, knots) in enumerate(zip(ocp.phases, ocp.phase_slices, strict=True))
        for j in range(len(phase.constraints))
    ]
    return [*found, *(Place(None, j, slice(N, N + 1)) for j in range(len(ocp.terminal_constraints)))]


@dataclass(frozen=True, eq=False)
class Imposed:
    """A constraint of n problems with multipliers and penalties.

    place: its phase, index and K knots. y (n, K, nr): multipliers. rho (n,): penalties. scale (n or 1, K): weight of the stage
    cost. lower, upper (n or 1, K, nr): bounds. active (K, nr): True for components that are imposed.
    """

    place: Place
    y: Array
    rho: Array
    scale: Array
    lower: Array
    upper: Array
    active: Array

    def rows(self, chosen: Sequence[int]) -> Imposed:
        """Return the constraint for the problems with these indices."""
        whole = (self.y, self.rho, self.scale, self.lower, self.upper)
        y, rho, scale, lower, upper = (a[chosen] if len(a) == len(self.y) else a for a in whole)
        return Imposed(self.place, y, rho, scale, lower, upper, self.active)

    @property
    def weight(self) -> Array:
        """Weight of the cost term, (n, K, nr): rho over the weight of the stage cost; zero for components that are not imposed."""
        return np.where(self.active, self.rho[:, None, None] / self.scale[..., None], 0.0)

    @property
    def parameters(self) -> dict[str, Array]:
        """Shift y / rho and bounds of the cost term, each (n or 1, K, nr), in its order; infinite bounds become +-INFINITE."""
        lower, upper = np.maximum(self.lower, -INFINITE), np.minimum(self.upper, INFINITE)
        return {SHIFT: self.y / self.rho[:, None, None], LOWER: lower, UPPER: upper}

    @property
    def equal(self) -> Array:
        """True for each component that is an equality at all knots, (n or 1, nr); the code of the cost term depends on it."""
        return (self.lower == self.upper).all(axis=-2)

    def term(self, ocp: OCP) -> CostTerm:
        """Return the cost term of the augmented Lagrangian for the first problem of the batch."""
        c, own, weight = self.place(ocp), {key: value[0] for key, value in self.parameters.items()}, self.weight[0]
        if self.place.phase is None:
            own, weight = {key: value[0] for key, value in own.items()}, weight[0]
        residual: Any = c.residual
        made = _penalized_map(residual, tuple(self.equal[0].tolist()))
        return CostTerm(c.name, made, weight, _named(c.parameters) | own)

    def violation(self, g: Array) -> Array:
        """Return the largest violation (n,) of the bounds by constraint values g (n, K, nr), for each problem."""
        return np.abs(g - np.clip(g, self.lower, self.upper)).max(axis=(-2, -1), initial=0.0)

    def next_multipliers(self, g: Array) -> tuple[Array, Array]:
        """Return the next multipliers rho (z - P(z)), (n, K, nr), and the largest |g - P(z)|, (n,), for constraint values g.

        z = g + y / rho, with P the projection on the bounds: |g - P(z)| is the violation of feasibility and complementarity.
        """
        rho = self.rho[:, None, None]
        z = g + self.y / rho
        projected = np.clip(z, self.lower, self.upper)
        return rho * (z - projected), np.abs(g - projected).max(axis=(-2, -1), initial=0.0)


def imposed(batch: Batch, rho: float, multipliers: Mapping[str, Array] | None = None) -> list[Imposed]:
    """Return all constraints of a batch with the penalty rho.

    multipliers: by name (:func:`key_of`), the same for all problems; zero if the name is missing or the shape differs.
    """
    n, parts = len(batch), []
    for place in places(batch.ocp):
        c, K = place(batch.ocp), place.count
        y, given = np.zeros((n, K, c.residual.n_out)), (multipliers or {}).get(key_of(place, c))
        if given is not None and given.shape == y.shape[1:]:
            y[:] = given
        scale = np.ones((1, 1)) if place.phase is None else batch.weights(place.phase)
        parts.append(Imposed(place, y, np.full(n, rho), scale, *batch.limits(place, K), active_at(place, c)))
    return parts


def key_of(place: Place, constraint: Constraint) -> str:
    """Return the name of the constraint's multipliers in a solution: its name, after "terminal " for a terminal constraint."""
    return constraint.name if place.phase is not None else f"terminal {constraint.name}"


def active_at(place: Place, constraint: Constraint) -> Array:
    """Return the mask (K, nr) of imposed components: all, except maps without controls at the first knot, where x0 is fixed."""
    active = np.ones((place.count, constraint.residual.n_out), dtype=bool)
    active[0] = place.knots.start > 0 or constraint.residual.nu > 0
    return active


def _parameters(batch: Batch, place: Place) -> Array:
    """Return the parameters of a constraint of all problems, side by side, (n or 1, K, size)."""
    return batch.path(lambda ocp: [place(ocp)], place.count)


def values(batch: Batch, parts: Sequence[Imposed], xs: Array, us: Array) -> list[Array]:
    """Return g (n, K, nr) of each constraint along trajectories; components that are not imposed are clipped to their bounds."""
    n, t, found = len(xs), batch.t(), list[Array]()
    for part in parts:
        c, knots, K = part.place(batch.ocp), part.place.knots, part.place.count

        def flat(a: Array, K: int = K) -> Array:
            """Broadcast values to all problems, and merge problems and knots into rows."""
            return (a if len(a) == n else np.broadcast_to(a, (n, *a.shape[1:]))).reshape(n * K, *a.shape[2:])

        p = {}
        if c.parameters:
            ends = np.cumsum([np.shape(own)[-1] for own in c.parameters.values()])
            columns = np.split(flat(_parameters(batch, part.place)), ends[:-1], axis=1)
            p = dict(zip(c.parameters, columns, strict=True))
        u = us[:, knots] if part.place.phase is not None else us[:, :1, :0]
        with np.errstate(all="ignore"):
            rows = c.residual(*residual_batch(c.residual, flat(xs[:, knots]), flat(u), flat(t[:, knots]), p))
        g = np.asarray(rows).T.reshape(n, K, -1)
        found.append(g if part.active.all() else np.where(part.active, g, np.clip(g, part.lower, part.upper)))
    return found


class Augmented(Batch):
    """Batch with constraints replaced by penalty terms. whole: the constrained batch; parts: its constraints."""

    def __init__(self, whole: Batch, parts: Sequence[Imposed]) -> None:
        vars(self).update(vars(whole))
        self.whole, self.parts = whole, list(parts)
        self.penalties = self._terms(whole.ocp, 0)
        self.ocp = self._augmented(whole.ocp, self.penalties)

    def _terms(self, ocp: OCP, i: int) -> list[CostTerm]:
        """Return the penalty terms of problem i, made for its OCP."""
        return [(part if len(self) == 1 else part.rows([i])).term(ocp) for part in self.parts]

    def _augmented(self, ocp: OCP, penalties: Sequence[CostTerm]) -> OCP:
        """Return the problem with these penalty terms in place of its constraints."""

        def more(phase: int | None) -> list[CostTerm]:
            """Return the penalty terms of a phase; None: of the final knot."""
            return [term for part, term in zip(self.parts, penalties, strict=True) if part.place.phase == phase]

        phases = tuple(
            replace(phase, terms=(*phase.terms, *more(i)), constraints=()) for i, phase in enumerate(ocp.phases)
        )
        return replace(ocp, phases=phases, terminal=(*ocp.terminal, *more(None)), terminal_constraints=())

    def __getitem__(self, i: int) -> OCP:
        """Return problem i with penalty terms in place of its constraints."""
        ocp = self.whole[i]
        return self._augmented(ocp, self._terms(ocp, i))

    def subset(self, indices: Sequence[int]) -> Augmented:
        """Return the batch of the problems with these indices, with their multipliers and penalties."""
        chosen = list(indices)
        return Augmented(self.whole.subset(chosen), [part.rows(chosen) for part in self.parts])

    def theta(self, terms: Callable[[OCP], Sequence[CostTerm]], K: int) -> Array:
        """Return weights and parameters of the cost terms ``terms(ocp)`` on K knots, (n, K, size), those of constraints last."""
        own = {id(term) for term in terms(self.ocp)}
        blocks = [self.whole.theta(terms, K)]
        for part, term in zip(self.parts, self.penalties, strict=True):
            if id(term) in own:
                blocks += [part.weight, _parameters(self.whole, part.place), *part.parameters.values()]
        return np.concatenate([np.broadcast_to(b, (len(self), K, b.shape[-1])) for b in blocks], axis=2)


def augmented(ocp: OCP, rho: float) -> OCP:
    """Return the problem with constraints replaced by penalty terms of weight rho, with zero multipliers."""
    alone = Batch.from_problems([ocp])
    return Augmented(alone, imposed(alone, rho)).ocp


def _constraint_values(ocp: OCP, xs: Array, us: Array) -> list[tuple[Imposed, Array]]:
    """Return each constraint of a problem with its values (K, nr) along a trajectory."""
    alone = Batch.from_problems([ocp])
    parts = imposed(alone, 1.0)
    return [(part, g[0]) for part, g in zip(parts, values(alone, parts, xs[None], us[None]), strict=True)]


def named(ocp: OCP, part: Imposed, k: int, i: int) -> str:
    """Return the name of component i of a constraint at its k-th knot, for messages."""
    return f"{part.place(ocp).component_names[i]} at knot {part.place.knots.start + k}"


def worst_violation(ocp: OCP, xs: Array, us: Array) -> WorstConstraint | None:
    """Return the most violated constraint of a trajectory, with component and knot; None if none is violated."""
    worst = None
    for part, g in _constraint_values(ocp, xs, us):
        excess = np.abs(g - np.clip(g, part.lower[0], part.upper[0]))
        if excess.size and excess.max() > (0.0 if worst is None else worst.violation):
            k, i = (int(v) for v in np.unravel_index(np.argmax(excess), excess.shape))
            worst = WorstConstraint(named(ocp, part, k, i), float(excess[k, i]))
    return worst


def non_finite_constraint(ocp: OCP, xs: Array, us: Array) -> NonFinite | None:
    """Return the first constraint component and knot with a NaN or infinite value along a trajectory, or None."""
    for part, g in _constraint_values(ocp, xs, us):
        if not np.isfinite(g).all():
            k, i = (int(v) for v in np.argwhere(~np.isfinite(g))[0])
            return NonFinite(named(ocp, part, k, i), "the constraint")
    return None
