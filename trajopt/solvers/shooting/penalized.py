"""Constraints as cost terms: the problem that an augmented Lagrangian solves in their place.

For lower <= g <= upper with multiplier y and penalty rho, Powell, Hestenes and Rockafellar add to the cost

    rho/2 |z - P(z)|^2        z = g + y / rho,   P the projection on [lower, upper]

and the minimizer in x gives the next multiplier y <- rho (z - P(z)), y > 0 at upper bounds, y < 0 at lower ones.  That is a cost
term with the weight rho and the residual z - P(z), whose shift y / rho, bounds and weight are run-time values: a change of
multipliers compiles nothing anew.  Multipliers are those of the constraints at each knot, not densities in time: the weight of a
running term is divided by dt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import composed
from dynamics_backends.protocol import Array, HasPartials, Map
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.constraints import UNBOUNDED, Constraint
from trajopt.problem.expansion import residual_batch
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import CostTerm
from trajopt.solvers.termination import WorstConstraint

SHIFT, LOWER, UPPER = "shift", "lower", "upper"
OWN = "constraint: "
"""Stands before the names of the constraint's own parameters, which may be any."""


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


@dataclass(frozen=True)
class Place:
    """Where a constraint stands: its phase (None at the end), its number there, and its knots."""

    phase: int | None
    number: int
    knots: slice

    def __call__(self, ocp: OCP) -> Constraint:
        """The constraint of a problem."""
        return (ocp.terminal_constraints if self.phase is None else ocp.phases[self.phase].constraints)[self.number]

    @property
    def count(self) -> int:
        """How many knots."""
        return self.knots.stop - self.knots.start


def places(ocp: OCP) -> list[Place]:
    """Where constraints stand: those of the phases, then those at the end."""
    N = ocp.horizon
    found = [
        Place(i, j, knots)
        for i, (phase, knots) in enumerate(zip(ocp.phases, ocp.phase_slices, strict=True))
        for j in range(len(phase.constraints))
    ]
    return [*found, *(Place(None, j, slice(N, N + 1)) for j in range(len(ocp.terminal_constraints)))]


@dataclass(frozen=True, eq=False)
class Imposed:
    """A constraint with multipliers and penalties, of one problem or, with a first axis, of several.

    place: where it stands, with K knots. y, lower, upper (.., K, nr): multipliers and bounds. rho (..): penalties. scale (.., K):
    of the cost. active (K, nr): which components are imposed. Axes of length one stand for all problems.
    """

    place: Place
    y: Array
    rho: Array
    scale: Array
    lower: Array
    upper: Array
    active: Array

    def bounded(self, g: Array) -> Array:
        """Values g (.., K, nr) with those that are not imposed moved within their bounds."""
        return np.where(self.active, g, np.clip(g, self.lower, self.upper))

    @property
    def weight(self) -> Array:
        """The weight of the cost term, (.., K, nr)."""
        return np.where(self.active, self.rho[..., None, None] / self.scale[..., None], 0.0)

    @property
    def parameters(self) -> dict[str, Array]:
        """What the cost term reads beside the constraint's own parameters, each (.., K, nr), in its order."""
        lower, upper = np.maximum(self.lower, -UNBOUNDED), np.minimum(self.upper, UNBOUNDED)
        return {SHIFT: self.y / self.rho[..., None, None], LOWER: lower, UPPER: upper}

    @property
    def equal(self) -> Array:
        """(.., nr) which components are equalities."""
        return (self.lower == self.upper).all(axis=-2)

    def term(self, ocp: OCP) -> CostTerm:
        """The cost term of one problem."""
        c, own, weight = self.place(ocp), self.parameters, self.weight
        if self.place.phase is None:
            own, weight = {key: value[0] for key, value in own.items()}, weight[0]
        residual: Any = c.residual
        made = _penalized_map(residual, tuple(self.equal.tolist()))
        return CostTerm(c.name, made, weight, _named(c.parameters) | own)

    def violation(self, g: Array) -> Array:
        """The largest violation of values, (..)."""
        return np.abs(g - np.clip(g, self.lower, self.upper)).max(axis=(-2, -1), initial=0.0)

    def multiplied(self, g: Array) -> tuple[Imposed, Array]:
        """With the next multipliers; the violation of feasibility and complementarity, |g - P(z)|, (..)."""
        rho = self.rho[..., None, None]
        z = g + self.y / rho
        projected = np.clip(z, self.lower, self.upper)
        return replace(self, y=rho * (z - projected)), np.abs(g - projected).max(axis=(-2, -1), initial=0.0)


def imposed(ocp: OCP, rho: float, multipliers: Mapping[str, Array]) -> list[Imposed]:
    """All constraints at the penalty rho, with the multipliers given by name (:func:`key_of`), else zero."""
    parts = []
    for place in places(ocp):
        c, K = place(ocp), place.count
        given, shape = multipliers.get(key_of(place, c)), (K, c.residual.n_out)
        y = np.zeros(shape) if given is None or given.shape != shape else np.array(given)
        scale = np.ones(1) if place.phase is None else ocp.phases[place.phase].weights
        parts.append(Imposed(place, y, np.array(rho), scale, *c.bounds(K), active_at(place, c)))
    return parts


def key_of(place: Place, constraint: Constraint) -> str:
    """The name of its multipliers in a solution."""
    return constraint.name if place.phase is not None else f"terminal {constraint.name}"


def active_at(place: Place, constraint: Constraint) -> Array:
    """(K, nr) where it is imposed: x0 is given, so there only what reads controls."""
    active = np.ones((place.count, constraint.residual.n_out), dtype=bool)
    active[0] = place.knots.start > 0 or constraint.residual.nu > 0
    return active


def values(ocp: OCP, parts: Sequence[Imposed], xs: Array, us: Array) -> list[Array]:
    """g (K, nr) of each constraint along a trajectory."""
    found = []
    for part in parts:
        c, knots = part.place(ocp), part.place.knots
        u = us[knots] if part.place.phase is not None else us[:1, :0]
        with np.errstate(all="ignore"):
            g = c.residual(*residual_batch(c.residual, xs[knots], u, ocp.t[knots], c.parameters))
        found.append(part.bounded(np.asarray(g).T))
    return found


def augmented(ocp: OCP, parts: Sequence[Imposed]) -> OCP:
    """The problem without constraints, with their cost terms."""

    def terms(phase: int | None) -> list[CostTerm]:
        return [part.term(ocp) for part in parts if part.place.phase == phase]

    def running(i: int, phase: Phase) -> Phase:
        return replace(phase, terms=(*phase.terms, *terms(i)), constraints=())

    phases = tuple(running(i, phase) for i, phase in enumerate(ocp.phases))
    return replace(ocp, phases=phases, terminal=(*ocp.terminal, *terms(None)), terminal_constraints=())


def named(ocp: OCP, part: Imposed, k: int, i: int) -> str:
    """Component i of a constraint at the k-th of its knots, for messages."""
    return f"{part.place(ocp).component_names[i]} at knot {part.place.knots.start + k}"


def worst_violation(ocp: OCP, xs: Array, us: Array) -> WorstConstraint | None:
    """The constraint that a trajectory violates most, by name and knot; None where none is violated."""
    worst, parts = None, imposed(ocp, 1.0, {})
    for part, g in zip(parts, values(ocp, parts, xs, us), strict=True):
        excess = np.abs(g - np.clip(g, part.lower, part.upper))
        if excess.size and excess.max() > (0.0 if worst is None else worst.violation):
            k, i = (int(v) for v in np.unravel_index(np.argmax(excess), excess.shape))
            worst = WorstConstraint(named(ocp, part, k, i), float(excess[k, i]))
    return worst
