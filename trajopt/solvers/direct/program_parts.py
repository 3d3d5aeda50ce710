"""Parts of a sparse program: knots that are evaluated together, with the indices of their variables and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, MissingCapability
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.ocp import OCP, Phase
from trajopt.solvers.time_limits import has_passed
from trajopt.stage.engine import Engine, StageOperations, hessian_runs_in_numpy, is_compiled, may_follow, stages_of
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.stages import Stages
from trajopt.step.first_order_hold import HeldStep
from trajopt.step.sensitivities import SampledSystem


class Part(NamedTuple):
    """K knots with their stages and constraints.

    ix (K, n), iu (K, m): indices of their states and controls in w; with a first-order hold the controls at both ends of the time
    step, (K, 2 m). rows (K, ng): rows of the constraints, -1 for none.
    stepped: True if time steps begin at the knots.
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
    """Return the parts of a program, knots evaluated together with the indices of their variables and rows: phases and final knot.

    ix, iu: indices of states and controls by knot. first_row: number of the first row of constraints. hold: "zero_order" or
    "first_order". kind: kind of the Hessian, see Transcription. cost_alone: compute only the Gauss-Newton Hessian of the cost, as
    in shooting solvers. engine: engine of the stages.

    With a first-order hold the trapezoidal rule integrates the running cost, and each phase has another part at its end.
    """
    N, constraints = ocp.horizon, with_rows(ocp)
    linear = hold == "first_order"
    stages = _stages(ocp, constraints, kind, cost_alone, linear, engine)
    parts: list[Part] = []
    for i, knots in enumerate(ocp.phase_slices):
        controls = iu[knots]
        if linear:
            controls = np.hstack([controls, iu[knots.start + 1 : knots.stop + 1]])
        rows = _rows(constraints[i], knots, first_row)
        first_row = max(first_row, int(rows.max(initial=-1)) + 1)
        parts.append(Part(knots, stages[i], constraints[i], ix[knots], controls, rows))
        if linear:
            end = slice(knots.stop, knots.stop + 1)
            last = _at_end(ocp, i, iu.shape[1], kind)
            parts.append(Part(end, last, (), ix[end], iu[end], np.zeros((1, 0), dtype=int), stepped=False))
    end = slice(N, N + 1)
    none = np.zeros((1, 0), dtype=int)
    rows = _rows(constraints[-1], end, first_row)
    return [*parts, Part(end, stages[-1], constraints[-1], ix[end], none, rows, stepped=False)]


def with_rows(ocp: OCP) -> list[tuple[Constraint, ...]]:
    """Return the constraints that need rows of the program, by phase, the terminal ones last.

    On a vector space these are all but bounds on state components, which become bounds on variables; on a Lie group all.
    """
    groups = [*(phase.constraints for phase in ocp.phases), ocp.terminal_constraints]
    if not ocp.manifold.is_flat:
        return groups
    return [tuple(c for c in group if chosen_coordinates(c) is None) for group in groups]


def evaluated_stages(ocp: OCP) -> list[Stages]:
    """Return the stage evaluators by phase and of the final knot.

    Their constraints are all but bounds on state components of a vector space, which need no rows (:func:`with_rows`).
    """
    rows = with_rows(ocp)
    return stages_of(ocp, StageOperations(path=rows[:-1], final=rows[-1]))


def runs_compiled(ocp: OCP) -> bool:
    """True if no part of a problem, and no Hessian of its dynamics, runs in NumPy."""
    return is_compiled(ocp) and not any(map(hessian_runs_in_numpy, ocp.phases)) and may_follow(evaluated_stages(ocp))


def may_expand_again(ocp: OCP, time_limit: float | None) -> bool:
    """False after a time limit [s] if a part of the problem runs in NumPy, where one expansion may take as long again."""
    return not has_passed(time_limit) or runs_compiled(ocp)


def coordinate_bounds(ocp: OCP) -> Iterator[tuple[str, slice, list[int], Array, Array]]:
    """Yield the constraints that bound state components: name, knots, indices of the components, lower and upper bounds (K, count).

    Knot 0 is excluded, because x0 is given. Yields none on a Lie group, where such constraints have rows.
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
                bounded = slice(knots.start + free, knots.stop)
                yield c.name, bounded, list(chosen), low[free:], high[free:]


def controls_read(phase: Phase) -> int:
    """Return the number of leading controls that dynamics, terms and constraints of a phase read: the largest of their nu."""
    residuals = [*(term.residual for term in phase.terms), *(c.residual for c in phase.constraints)]
    return max([phase.dynamics.nu, *(residual.nu for residual in residuals)])


def add_by_name(found: dict[str, Array], constraints: Sequence[Constraint], values: Array, *, terminal: bool) -> None:
    """Add values (K, ng) of constraint rows to ``found`` by constraint name, in place; terminal: prefix names by "terminal ".

    Values under a known name are appended, those of other phases first, or replace them if the numbers of columns differ.
    """
    at = 0
    for c in constraints:
        name = f"terminal {c.name}" if terminal else c.name
        own = values[:, at : (at := at + c.residual.n_out)]
        same = name in found and found[name].shape[1] == own.shape[1]
        found[name] = np.concatenate([found[name], own]) if same else own


def held_problem(ocp: OCP) -> OCP:
    """Return the problem for a first-order hold: its time steps read the controls at both ends, and control bounds are removed.

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
    ocp: OCP, constraints: Sequence[tuple[Constraint, ...]], kind: str, cost_alone: bool, linear: bool, engine: Engine
) -> list[Stages]:
    """Return the stages of each phase and of the final knot; linear: NumPy stages integrate the cost by the trapezoidal rule.

    kind, cost_alone, engine: see :func:`parts_of`.
    """
    exact = kind == "exact"
    wanted = StageOperations(
        "exact" if exact else "gauss_newton", second=exact, path=constraints[:-1], final=constraints[-1]
    )
    found = stages_of(ocp, StageOperations("gauss_newton", rollout=True) if cost_alone else wanted, engine)
    if linear:
        phases = zip(found, ocp.phases, strict=False)
        found[:-1] = [replace(s, scale=_trapezoid(phase)) if isinstance(s, NumpyStages) else s for s, phase in phases]
    return found


def _trapezoid(phase: Phase) -> Array:
    """Return the weights (K,) of the trapezoidal rule at the knots of a phase but its end: half of both adjacent steps."""
    return 0.5 * (phase.dt + np.concatenate([[0.0], phase.dt[:-1]]))


def _at_end(ocp: OCP, i: int, width: int, kind: str) -> Stages:
    """Return a NumPy stage with the running cost at the end of phase i, weighted by half of its last time step.

    Weights and parameters of the terms are those of the last knot of the phase. width: number of controls.
    """
    phase, stop = ocp.phases[i], ocp.phase_slices[i].stop
    terms = tuple(term.at_knots(slice(-1, None)) for term in phase.terms)
    hessian = "exact" if kind == "exact" else "gauss_newton"
    t, half = ocp.t[stop : stop + 1], 0.5 * phase.dt[-1:]
    return NumpyStages(ocp.manifold, None, terms, (), t, half, width, start=stop, hessian=hessian)


def _rows(constraints: Sequence[Constraint], knots: slice, first_row: int) -> Array:
    """Return row numbers (K, ng) from ``first_row`` on, knot by knot; -1 for no row.

    Without row: components without a finite bound, and at knot 0 constraints that read no controls, because x0 is given.
    """
    count = knots.stop - knots.start
    bounds = [np.isfinite(c.bounds(count)).any(axis=0) for c in constraints]
    present = np.concatenate([np.zeros((count, 0), dtype=bool), *bounds], axis=1)
    if knots.start == 0:
        reads = [np.full(c.residual.n_out, c.residual.nu > 0) for c in constraints]
        present[0] &= np.concatenate([*reads, np.zeros(0, dtype=bool)])
    rows = np.full(present.shape, -1)
    rows[present] = first_row + np.arange(present.sum())
    return rows
