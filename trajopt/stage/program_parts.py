"""The parts of a transcription: knots that are evaluated together, with the places of their variables and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import CostTerm
from trajopt.stage.knots import CHART, NEXT_CHART, Knots, NumpyKnots
from trajopt.step.first_order_hold import HeldStep
from trajopt.step.sensitivities import SampledSystem


class Part(NamedTuple):
    """K knots with their functions and constraints.

    ix (K, n), iu (K, m): places of what they read in w. rows (K, ng): rows of the constraints, -1 where there is none.
    stepped: whether time steps begin there.
    """

    knots: slice
    functions: Knots
    constraints: tuple[Constraint, ...]
    ix: Array
    iu: Array
    rows: Array
    stepped: bool = True


def parts_of(ocp: OCP, ix: Array, iu: Array, hold: str, kind: str, first_row: int) -> list[Part]:
    """The phases and the final knot of a problem on a vector space; rows are numbered from ``first_row``.

    With a first-order hold the running cost is integrated by the trapezoidal rule: another part stands at the end of each
    phase.
    """
    N, kept = ocp.horizon, imposed(ocp)
    linear = hold == "first_order"
    functions = _functions(ocp, kept, iu.shape[1] * (1 + linear), kind, linear)
    parts: list[Part] = []
    for i, knots in enumerate(ocp.phase_slices):
        controls = iu[knots]
        if linear:
            controls = np.hstack([controls, iu[knots.start + 1 : knots.stop + 1]])
        rows = _rows(kept[i], knots, first_row)
        first_row = max(first_row, int(rows.max(initial=-1)) + 1)
        parts.append(Part(knots, functions[i], kept[i], ix[knots], controls, rows))
        if linear:
            end = slice(knots.stop, knots.stop + 1)
            last = _at_end(ocp, i, iu.shape[1], kind)
            parts.append(Part(end, last, (), ix[end], iu[end], np.zeros((1, 0), dtype=int), stepped=False))
    end = slice(N, N + 1)
    none = np.zeros((1, 0), dtype=int)
    return [*parts, Part(end, functions[-1], kept[-1], ix[end], none, _rows(kept[-1], end, first_row), stepped=False)]


def imposed(ocp: OCP) -> list[tuple[Constraint, ...]]:
    """The constraints that have rows, by phase, terminal ones last; the others are bounds on variables."""
    groups = [*(phase.constraints for phase in ocp.phases), ocp.terminal_constraints]
    return [tuple(c for c in group if chosen_coordinates(c) is None) for group in groups]


def held_problem(ocp: OCP) -> OCP:
    """The problem with time steps of the controls at both ends.

    Raises TypeError for a time step that is not a sampled system, or phases with different controls.
    """
    phases = []
    for phase in ocp.phases:
        if not isinstance(phase.dynamics, SampledSystem) or phase.dynamics.nu != ocp.nu:
            raise TypeError(
                "a first-order hold needs sampled systems with the same controls in all phases; use zero_order"
            )
        phases.append(replace(phase, dynamics=HeldStep(phase.dynamics)))
    return replace(ocp, phases=tuple(phases), u_lower=None, u_upper=None)


def engine_of(ocp: OCP) -> str:
    """The engine of the first phase's backend."""
    sampling = ocp.phases[0].dynamics.sampling
    return "numpy" if sampling is None else sampling.backend.engine


def _functions(ocp: OCP, kept: Sequence[tuple[Constraint, ...]], width: int, kind: str, linear: bool) -> list[Knots]:
    """The functions of each phase, and of the final knot."""
    plain: list[Knots] = []
    for phase, constraints, knots in zip(ocp.phases, kept, ocp.phase_slices, strict=False):
        t, scale = ocp.times[knots], _trapezoid(phase) if linear else phase.dt
        own = (phase.dynamics, phase.terms, constraints, t, phase.dt, width, phase.parameters, kind, scale)
        plain.append(NumpyKnots(*own))
    plain.append(NumpyKnots(None, ocp.terminal, kept[-1], ocp.times[-1:], np.ones(1), 0, hessian=kind))
    if engine_of(ocp) != "compiled":
        return plain
    return _compiled(ocp, kept, plain, kind)


def _compiled(ocp: OCP, kept: Sequence[tuple[Constraint, ...]], plain: Sequence[Knots], kind: str) -> list[Knots]:
    """The same, those of phases that can be compiled in that form; the final knot with the last of them."""
    from trajopt.stage.compiled_knots import TooLong, compiled_knots, serves_knots

    found = list(plain)
    for i, phase in enumerate(ocp.phases):
        if not serves_knots(ocp, phase):
            continue
        try:
            found[i], found[-1] = compiled_knots(ocp, i, kept[i], kept[-1])
        except TooLong:
            continue
    return found if kind == "exact" else [f if f is p else _Mixed(f, p) for f, p in zip(found, plain, strict=True)]


class _Mixed:
    """Values and first derivatives of some knots, the Gauss-Newton Hessian of others."""

    def __init__(self, fast: Knots, plain: Knots) -> None:
        self.values, self.first, self.second = fast.values, fast.first, plain.second


def _trapezoid(phase: Phase) -> Array:
    """Weights (K,) of the trapezoidal rule at the knots of a phase, without the one at its end."""
    return 0.5 * (phase.dt + np.concatenate([[0.0], phase.dt[:-1]]))


def _at_end(ocp: OCP, i: int, width: int, kind: str) -> Knots:
    """The running cost of a phase at its end, with the values of its last knot."""
    phase, stop = ocp.phases[i], ocp.phase_slices[i].stop
    chart = phase.parameters.get(NEXT_CHART)

    def last(term: CostTerm) -> CostTerm:
        values = {key: v[-1:] if v.ndim == 2 else v for key, v in term.parameters.items()}
        if CHART in values and chart is not None:
            values[CHART] = chart[-1:]
        return replace(term, weight=term.weight[-1:] if term.weight.ndim == 2 else term.weight, parameters=values)

    terms = tuple(last(term) for term in phase.terms)
    return NumpyKnots(None, terms, (), ocp.times[stop : stop + 1], 0.5 * phase.dt[-1:], width, hessian=kind)


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
