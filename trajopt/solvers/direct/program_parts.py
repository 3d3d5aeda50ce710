"""The parts of a sparse program: knots that are evaluated together, with the places of their variables and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, MissingCapability
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import CostTerm
from trajopt.stage.engine import Engine, Wanted, stages_of
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.stages import Stages
from trajopt.step.first_order_hold import HeldStep
from trajopt.step.sensitivities import SampledSystem


class Part(NamedTuple):
    """K knots with their stages and constraints.

    ix (K, n), iu (K, m): places of what they read in w. rows (K, ng): rows of the constraints, -1 where there is none.
    stepped: whether time steps begin there.
    """

    knots: slice
    stages: Stages
    constraints: tuple[Constraint, ...]
    ix: Array
    iu: Array
    rows: Array
    stepped: bool = True


def parts_of(
    ocp: OCP,
    ix: Array,
    iu: Array,
    hold: str,
    kind: str,
    first_row: int,
    cost_alone: bool = False,
    engine: Engine = "auto",
) -> list[Part]:
    """The phases and the final knot of a problem; rows are numbered from ``first_row``. kind: of the Hessian, see Transcription.
    cost_alone: for the Gauss-Newton Hessian of the cost, by the library that shooting solvers use. engine: of the stages.

    With a first-order hold the running cost is integrated by the trapezoidal rule: another part stands at the end of each
    phase.
    """
    N, kept = ocp.horizon, with_rows(ocp)
    linear = hold == "first_order"
    stages = _stages(ocp, kept, kind, cost_alone, linear, engine)
    parts: list[Part] = []
    for i, knots in enumerate(ocp.phase_slices):
        controls = iu[knots]
        if linear:
            controls = np.hstack([controls, iu[knots.start + 1 : knots.stop + 1]])
        rows = _rows(kept[i], knots, first_row)
        first_row = max(first_row, int(rows.max(initial=-1)) + 1)
        parts.append(Part(knots, stages[i], kept[i], ix[knots], controls, rows))
        if linear:
            end = slice(knots.stop, knots.stop + 1)
            last = _at_end(ocp, i, iu.shape[1], kind)
            parts.append(Part(end, last, (), ix[end], iu[end], np.zeros((1, 0), dtype=int), stepped=False))
    end = slice(N, N + 1)
    none = np.zeros((1, 0), dtype=int)
    return [*parts, Part(end, stages[-1], kept[-1], ix[end], none, _rows(kept[-1], end, first_row), stepped=False)]


def with_rows(ocp: OCP) -> list[tuple[Constraint, ...]]:
    """The constraints that have rows, by phase, terminal ones last; on a vector space the others are bounds on variables."""
    groups = [*(phase.constraints for phase in ocp.phases), ocp.terminal_constraints]
    if not ocp.manifold.is_flat:
        return groups
    return [tuple(c for c in group if chosen_coordinates(c) is None) for group in groups]


def coordinate_bounds(ocp: OCP) -> Iterator[tuple[str, slice, list[int], Array, Array]]:
    """The constraints without rows, from knot 1 on: the first state is given. None on a Lie group.

    For each its name, its knots, the numbers of the state that it bounds, and lower and upper bounds (K, count).
    """
    if not ocp.manifold.is_flat:
        return
    groups = [*(phase.constraints for phase in ocp.phases), ocp.terminal_constraints]
    for group, knots in zip(groups, [*ocp.phase_slices, slice(ocp.horizon, ocp.horizon + 1)], strict=True):
        free = int(knots.start == 0)
        for c in group:
            chosen = chosen_coordinates(c)
            if chosen is not None:
                low, high = c.bounds(knots.stop - knots.start)
                own = slice(knots.start + free, knots.stop)
                yield c.name, own, list(chosen), low[free:], high[free:]


def controls_read(phase: Phase) -> int:
    """The number of leading controls that the dynamics, terms and constraints of a phase read."""
    residuals = [*(term.residual for term in phase.terms), *(c.residual for c in phase.constraints)]
    return max([phase.dynamics.nu, *(residual.nu for residual in residuals)])


def add_by_name(found: dict[str, Array], constraints: Sequence[Constraint], values: Array, *, terminal: bool) -> None:
    """Add values (K, ng) of the rows of constraints by their names, behind those of other phases with that name."""
    at = 0
    for c in constraints:
        name = f"terminal {c.name}" if terminal else c.name
        own = values[:, at : (at := at + c.residual.n_out)]
        same = name in found and found[name].shape[1] == own.shape[1]
        found[name] = np.concatenate([found[name], own]) if same else own


def held_problem(ocp: OCP) -> OCP:
    """The problem with time steps of the controls at both ends.

    Raises MissingCapability for a time step that is not a sampled system, or phases with different controls.
    """
    phases = []
    for phase in ocp.phases:
        if not isinstance(phase.dynamics, SampledSystem) or phase.dynamics.nu != ocp.nu:
            raise MissingCapability(
                "a first-order hold needs sampled systems with the same controls in all phases; use zero_order"
            )
        phases.append(replace(phase, dynamics=HeldStep(phase.dynamics)))
    return replace(ocp, phases=tuple(phases), u_lower=None, u_upper=None)


def _stages(
    ocp: OCP, kept: Sequence[tuple[Constraint, ...]], kind: str, cost_alone: bool, linear: bool, engine: Engine
) -> list[Stages]:
    """The stages of each phase, and of the final knot; with a linear hold the cost is integrated by the trapezoidal rule."""
    exact = kind == "exact"
    wanted = Wanted("exact" if exact else "gauss_newton", second=exact, path=kept[:-1], final=kept[-1])
    found = stages_of(ocp, Wanted("gauss_newton", rollout=True) if cost_alone else wanted, engine)
    if linear:
        phases = zip(found, ocp.phases, strict=False)
        found[:-1] = [replace(s, scale=_trapezoid(phase)) if isinstance(s, NumpyStages) else s for s, phase in phases]
    return found


def _trapezoid(phase: Phase) -> Array:
    """Weights (K,) of the trapezoidal rule at the knots of a phase, without the one at its end."""
    return 0.5 * (phase.dt + np.concatenate([[0.0], phase.dt[:-1]]))


def _at_end(ocp: OCP, i: int, width: int, kind: str) -> Stages:
    """The running cost of a phase at its end, with the values of its last knot."""
    phase, stop = ocp.phases[i], ocp.phase_slices[i].stop

    def last(term: CostTerm) -> CostTerm:
        values = {key: v[-1:] if v.ndim == 2 else v for key, v in term.parameters.items()}
        return replace(term, weight=term.weight[-1:] if term.weight.ndim == 2 else term.weight, parameters=values)

    terms, hessian = tuple(last(term) for term in phase.terms), "exact" if kind == "exact" else "gauss_newton"
    t, half = ocp.t[stop : stop + 1], 0.5 * phase.dt[-1:]
    return NumpyStages(ocp.manifold, None, terms, (), t, half, width, start=stop, hessian=hessian)


def _rows(constraints: Sequence[Constraint], knots: slice, first_row: int) -> Array:
    """Row numbers (K, ng); none where no bound is finite, nor at x0, which is given, for constraints that read no controls."""
    count = knots.stop - knots.start
    bounds = [np.isfinite(c.bounds(count)).any(axis=0) for c in constraints]
    present = np.concatenate([np.zeros((count, 0), dtype=bool), *bounds], axis=1)
    if knots.start == 0:
        reads = [np.full(c.residual.n_out, c.residual.nu > 0) for c in constraints]
        present[0] &= np.concatenate([*reads, np.zeros(0, dtype=bool)])
    rows = np.full(present.shape, -1)
    rows[present] = first_row + np.arange(present.sum())
    return rows
