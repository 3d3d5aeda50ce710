"""Scaling of problems with very large or very small states, controls or costs.

    x = S x',   u = U_k u',   cost = c cost',   g = R g'        S, U_k, R diagonal, all factors powers of two

Solvers compare and add up numbers of all states, controls and rows: in filters and merit functions, regularizations, pushes from
bounds and absolute tolerances. They therefore solve problems in meters and watts well only if all sizes are near one (J. T. Betts,
Practical Methods for Optimal Control Using Nonlinear Programming, section 1.16.5). The size of a state is the largest of x0, guess,
goals and references of costs; that of a state or control without such numbers is what moves a state of known size by its size.
Small numbers of x0 and guess do not count, as they may be perturbations or rounding errors of states that move far. Bounds far
beyond these sizes are loose and do not count. Rows are scaled by their largest scaled gradients, the cost by that in a state or
control which is nearest to one.

A problem whose sizes are all moderate, also relative to one another, is not scaled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Array, InScaledTime, Map, innermost, is_generic, unwrapped
from dynamics_backends.registry import same_method
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.stretched_map import Durations
from trajopt.guesses.guesses import WarmStart
from trajopt.problem import residuals
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.goals import Goal
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import CostTerm
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import LAST_CONTROL, Solution
from trajopt.solvers.direct.program_parts import evaluated_stages, with_rows
from trajopt.stage.stages import Knots
from trajopt.step.integrators import RUNGE_KUTTA
from trajopt.step.sensitivities import SampledSystem

MODERATE = 1e3
"""A problem is scaled if a size is above this number or below its inverse, or above this multiple of another size; a cost above its
square."""
EXTREME = 100.0
"""Sizes are computed only if a number of the problem is above this number or below its inverse, or all weights are above its square
or below the inverse of that. Numbers of x0 and guess below its inverse are no sizes."""
LOOSE = 100.0
"""Multiple of the size of a state or control from which on a bound is loose."""
ROUNDED = 1e-10
"""Goals and references up to this number are zero up to errors of rounding or of an earlier solve, if other sizes are known."""
EPS = 1e-15
"""Goals and references up to this number are always zero up to errors of rounding."""
SAMPLES, SPREAD = 4, 0.3
"""Number of motions at which derivatives are sampled, and distance of all but the first from the guess, in sizes."""
PASSES = 4
"""Maximum number of times that sizes are derived from such derivatives, each time at distances of the last sizes."""
SHRINK = 1e-2
"""Factor on the distance of the controls from one of these motions to the next, while it is not known which bounds are loose, and
for the cost."""
MOST_PARTS = 256
"""Maximum number of scaled parts that a thread keeps; the oldest is dropped first."""
SCALED = "Numbers of the solver are those of the problem scaled by sizes of its states, controls, rows and cost."
"""Sentence for messages."""


class ScaledMap:
    """Map of scaled states and controls: map(x * x', u * u') / out."""

    def __init__(self, map: Map, x: Array, u: Array, out: Array) -> None:
        """x (nx,), u (nu,), out (n_out,): factors."""
        own = unwrapped(map)
        self.map, self._x, self._u, self._out = own, x.tolist(), u.tolist(), out.tolist()
        self.manifold, self.nu, self.n_out = own.manifold, own.nu, own.n_out
        self.output_names, self.control_names, self.second_order = own.output_names, own.control_names, False
        if isinstance(own, InScaledTime):
            self.place, self.nominal = own.place, own.nominal / self._x[own.place]

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N) of the scaled value."""
        x = sm.stack([x[i] * s for i, s in enumerate(self._x)]) if self._x else x
        u = sm.stack([u[i] * s for i, s in enumerate(self._u)]) if self._u else u
        value = self.map(x, u, t, p)
        return sm.stack([value[i] * (1.0 / s) for i, s in enumerate(self._out)])


class _ThreadParts(threading.local):
    """Parts of problems, which stay alive because keys contain object ids, and scaled ones by part and factors."""

    def __init__(self) -> None:
        self.known: dict[Hashable, tuple[Any, Any]] = {}


_thread_parts = _ThreadParts()


@dataclass(frozen=True)
class Scaling:
    """Factors of a problem ``ocp``: states (nx,), controls (N, nu), cost, and rows (nr,) by the name of the multipliers."""

    ocp: OCP
    states: Array
    controls: Array
    cost: float
    rows: Mapping[str, Array]

    # -- to scaled numbers --------------------------------------------------------------------------------------------------
    def problem(self) -> OCP:
        """Return the scaled problem."""
        ocp, s = self.ocp, self.states
        bounds = ocp.control_bounds or (None, None)
        lower, upper = (None if b is None else b / self.controls for b in bounds)
        units = [self.controls[k.start] for k in ocp.phase_slices]
        phases = tuple(self._phase(phase, u) for phase, u in zip(ocp.phases, units, strict=True))
        return replace(
            ocp,
            phases=phases,
            x0=ocp.x0 / s,
            terminal=tuple(self._term(term, np.zeros(0)) for term in ocp.terminal),
            terminal_constraints=tuple(self._constraint(c, np.zeros(0), "terminal ") for c in ocp.terminal_constraints),
            u_lower=lower,
            u_upper=upper,
            goals=tuple(Goal(g.name, self._of_states(g.missed), self._of_states(g.report)) for g in ocp.goals),
        )

    def warm_start(self, warm: WarmStart) -> WarmStart:
        """Return the scaled warm start."""
        guess = Guess(warm.guess.xs / self.states, warm.guess.us / self.controls)
        given = {name: np.asarray(y) for name, y in warm.multipliers.items() if np.ndim(y) == 2}
        factors = {name: self._multiplier(name, len(y)) for name, y in given.items()}
        multipliers = {  # solvers ignore those of another width
            name: y / factors[name] for name, y in given.items() if np.shape(factors[name])[-1:] in ((), y.shape[1:])
        }
        return replace(warm, guess=guess, multipliers=multipliers)

    def _phase(self, phase: Phase, u: Array) -> Phase:
        """Return a scaled phase; u: factors of its controls."""
        terms = tuple(self._term(term, u) for term in phase.terms)
        constraints = tuple(self._constraint(c, u, "") for c in phase.constraints)
        dynamics: Any = phase.dynamics
        if not isinstance(unwrapped(dynamics.sampling.backend.map), Durations):  # which is linear, with equal units
            dynamics = self._part(dynamics, (self.states, u), lambda: self._dynamics(dynamics, u))
        return replace(phase, dynamics=dynamics, terms=terms, constraints=constraints)

    def _dynamics(self, dynamics: Any, u: Array) -> SampledSystem:
        """Return a scaled sampled system; u: factors of its controls."""
        scaled = ScaledMap(dynamics.system, self.states, u[: dynamics.nu], self.states)
        method = same_method(dynamics.backend, scaled) if dynamics.backend.name != "analytic" else scaled
        return dynamics.under(method)

    def _part(self, part: Any, factors: tuple[Array, ...], scaled: Callable[[], Any]) -> Any:
        """Return the scaled dynamics or residual of a part of the problem: that of an earlier solve, or a new one.

        Problems with equal parts, also those with another number of knots, thus share what is prepared for them.
        """
        key, known = (id(part), *(f.tobytes() for f in factors)), _thread_parts.known
        if key not in known:
            while len(known) >= MOST_PARTS:
                del known[next(iter(known))]
            known[key] = part, scaled()
        return known[key][1]

    def _term(self, term: CostTerm, u: Array) -> CostTerm:
        """Return a scaled cost term."""
        residual = self._residual(term.residual, u, np.ones(term.residual.n_out))
        return replace(term, residual=residual, weight=term.weight / self.cost)

    def _constraint(self, c: Constraint, u: Array, prefix: str) -> Constraint:
        """Return a scaled constraint; prefix: of the name of its multipliers."""
        chosen = chosen_coordinates(c)
        if chosen is not None:
            sizes = self.states[list(chosen)]
            return replace(c, lower=c.lower / sizes, upper=c.upper / sizes)
        rows = self.rows[prefix + c.name]
        return replace(c, residual=self._residual(c.residual, u, rows), lower=c.lower / rows, upper=c.upper / rows)

    def _residual(self, residual: Map, u: Array, out: Array) -> Map:
        """Return the scaled map of a residual, which may read no state, and the first controls only."""
        x, u = self.states[: residual.manifold.nx], u[: residual.nu]
        return self._part(residual, (x, u, out), lambda: ScaledMap(residual, x, u, out))

    def _of_states(self, sentences: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
        """Return a function of scaled states from one of states."""
        return lambda xs, times: sentences(xs * self.states, times)

    # -- from scaled numbers ------------------------------------------------------------------------------------------------
    def solution(self, found: Solution) -> Solution:
        """Return a solution of the scaled problem in the units of the problem."""
        meta = {**found.meta, "scaling": self.as_meta()}
        if LAST_CONTROL in meta:
            meta[LAST_CONTROL] = (np.asarray(meta[LAST_CONTROL]) * self.controls[-1]).tolist()
        for key in ("starts", "attempts"):
            if key in meta:
                meta[key] = [self.entry(entry) for entry in meta[key]]
        motion = self.motion(found)
        return replace(
            found,
            **motion,
            cost=self.ocp.cost(motion["xs"], motion["us"]),
            multipliers={name: y * self._multiplier(name, len(y)) for name, y in found.multipliers.items()},
            history=tuple(self._record(record) for record in found.history),
            times=self.ocp.times_of(motion["xs"]),
            meta=meta,
        )

    def motion(self, found: Any) -> dict[str, Any]:
        """Return xs, us, K and k of a solution or of a batch of solutions in the units of the problem; gains may be None."""
        return {
            "xs": found.xs * self.states,
            "us": found.us * self.controls,
            "K": None if found.K is None else found.K * self.controls[:, :, None] / self.states,
            "k": None if found.k is None else found.k * self.controls,
        }

    def as_meta(self) -> dict[str, Any]:
        """Return the factors for meta["scaling"]."""
        controls = [self.controls[knots.start].tolist() for knots in self.ocp.phase_slices]
        return {"states": self.states.tolist(), "controls by phase": controls, "cost": self.cost}

    def callback(self, callback: Callback | None) -> Callback | None:
        """Return a callback for records of the scaled problem."""
        return None if callback is None else lambda record: callback(self._record(record))

    def original(self, problem: OCP) -> OCP:
        """Return the problem with the substeps of a scaled problem."""
        phases = []
        for phase, scaled in zip(self.ocp.phases, problem.phases, strict=True):
            d: Any = phase.dynamics
            substeps = scaled.dynamics.sampling.substeps  # type: ignore[union-attr]
            if substeps != d.sampling.substeps:
                phase = replace(phase, dynamics=SampledSystem(d.backend, d.scheme, substeps))
            phases.append(phase)
        return replace(self.ocp, phases=tuple(phases))

    def _record(self, record: IterationRecord) -> IterationRecord:
        """Return a record with costs and iterate in the units of the problem; errors stay those of the scaled problem."""
        costs = ("cost", "merit", "expected_decrease", "actual_decrease")
        iterate = record.iterate

        def original() -> tuple[Array, Array]:
            xs, us = iterate()  # type: ignore[misc]
            return xs * self.states, us * self.controls

        changed = {key: getattr(record, key) * self.cost for key in costs}
        return replace(record, **changed, iterate=None if iterate is None else original)

    def entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return an entry about a start or an attempt with its costs in the units of the problem."""
        return entry | {key: entry[key] * self.cost for key in ("cost", "objective", "cost_of_guess") if key in entry}

    def _multiplier(self, name: str, knots: int) -> Any:
        """Return the factors of the multipliers of a name at some number of knots."""
        if name in ("dynamics", "bounds on x"):
            return self.cost / self.states
        if name == "bounds on u":
            last = self.ocp.horizon - 1  # of N + 1 knots if controls are interpolated
            return self.cost / self.controls[np.minimum(np.arange(knots), last)]
        if name in self.rows:
            return self.cost / self.rows[name]
        sizes = _sizes_of_bounds(self.ocp, self.states).get(name)
        return self.cost if sizes is None else self.cost / sizes[np.minimum(np.arange(knots), len(sizes) - 1)]


def _sizes_of_bounds(ocp: OCP, states: Array) -> dict[str, Array]:
    """Return the sizes of the rows (K, nr) of bounds on states by the names of their multipliers; states (nx,): factors."""
    parts = [("", c, phase.knots) for phase in ocp.phases for c in phase.constraints]
    parts += [("terminal ", c, 1) for c in ocp.terminal_constraints]
    found: dict[str, list[Array]] = {}
    for prefix, c, knots in parts:
        if (chosen := chosen_coordinates(c)) is not None:
            found.setdefault(prefix + c.name, []).append(np.tile(states[list(chosen)], (knots, 1)))
    return {name: np.concatenate(sizes) for name, sizes in found.items()}


def scaling_of(ocp: OCP, guess: Guess) -> Scaling | None:
    """Return the scaling of a problem; None if its sizes are moderate, or its parts cannot be scaled.

    Those are robots, Lie groups (also SO(2), whose angles jump by whole turns), impacts, discrete maps, compositions,
    semi-implicit Euler, and user-defined backends. A scaled problem, as of a batch, is not scaled again.
    """
    finite = np.isfinite(guess.xs).all() and np.isfinite(guess.us).all()
    if not (
        ocp.model is None
        and ocp.manifold.is_vector_space
        and _has_extremes(ocp, guess)
        and _is_scalable(ocp)
        and finite
    ):
        return None
    samples = _Samples(ocp, guess)
    with np.errstate(all="ignore"):  # random motions may leave the domain of a function
        states, units = _sizes(ocp, guess, samples)
        if _moderate(np.concatenate([states, *units])):
            states, units = np.ones_like(states), [np.ones_like(u) for u in units]
        cost, rows = samples.gradients(states, units)
    if (states == 1.0).all() and 1.0 / MODERATE**2 <= cost <= MODERATE**2:
        return None
    controls = np.empty((ocp.horizon, ocp.nu))
    for k, u in zip(ocp.phase_slices, units, strict=True):
        controls[k] = u
    return Scaling(ocp, states, controls, cost, rows)


def _moderate(sizes: Array) -> bool:
    """True if all sizes (n,), and those relative to one another, are moderate."""
    return bool(sizes.max(initial=1.0) <= MODERATE * sizes.min(initial=1.0))


def _is_scalable(ocp: OCP) -> bool:
    """True if all parts of a problem on a vector space can be scaled."""
    if not ocp.horizon:
        return False
    sampled = [phase.dynamics.sampling for phase in ocp.phases]
    if any(
        s is None or not is_generic(s.backend.map) or isinstance(unwrapped(s.backend.map), ScaledMap) for s in sampled
    ):
        return False
    jumps = [isinstance(unwrapped(s.backend.map), Durations) for s in sampled if s is not None]
    steps = [type(p.dynamics) is SampledSystem and p.dynamics.scheme in RUNGE_KUTTA for p in ocp.phases]
    residuals = [*(term.residual for term in ocp.terms()), *(c.residual for c in ocp.constraints())]
    return (
        all(jump or step for jump, step in zip(jumps, steps, strict=True))
        and all(map(is_generic, residuals))
        and all(c.composition is None for c in ocp.constraints())
    )


def _has_extremes(ocp: OCP, guess: Guess) -> bool:
    """True if a number of the problem, or the duration of a phase, is extreme: above EXTREME or below its inverse, but not zero.

    Small states of x0 and guess count only if all are small: in a loop, some are near a goal. Small controls of the guess do not
    count. Roots of weights count if all are extreme: costs with a moderate weight of moderate numbers have a moderate gradient.
    """
    states, controls = _sizes_in([ocp.x0, guess.xs]), _sizes_in([guess.us])
    given = [*(b for b in (ocp.u_lower, ocp.u_upper) if b is not None), *(phase.dt.sum() for phase in ocp.phases)]
    given += [value for term in ocp.terms() for value in term.parameters.values()]
    for c in ocp.constraints():
        given += [c.lower, c.upper, *c.parameters.values()]
    roots = np.sqrt(_sizes_in([term.weight for term in ocp.terms()]))
    others = _sizes_in(given)
    return bool(
        (len(states) and (states.max() > EXTREME or states.max() < 1.0 / EXTREME))
        or (controls > EXTREME).any()
        or ((others > EXTREME) | (others < 1.0 / EXTREME)).any()
        or (len(roots) and (roots.min() > EXTREME or roots.max() < 1.0 / EXTREME))
    )


def _sizes_in(given: Sequence[Array]) -> Array:
    """Return the absolute values (n,) of the numbers in arrays, without zeros and those from 1e19, which stand for infinity."""
    sizes = np.abs(np.concatenate([np.zeros(0), *map(np.ravel, given)]))
    return sizes[(sizes > 0.0) & (sizes < 1e19)]


def _powers_of_two(sizes: Any) -> Any:
    """Return the nearest powers of two, 1 for zero."""
    return 2.0 ** np.round(np.log2(np.where(sizes > 0.0, sizes, 1.0)))


class _Samples:
    """Derivatives of the stages along motions near the guess: the guess itself, then random ones within the bounds on controls."""

    def __init__(self, ocp: OCP, guess: Guess) -> None:
        self.ocp, self.guess = ocp, guess
        self._stages = evaluated_stages(ocp)
        self._knots = [*ocp.phase_slices, slice(ocp.horizon, ocp.horizon + 1)]

    def _expansions(self, states: Array, units: list[Array], shrink: float) -> Iterator[list[Any]]:
        """Yield the expansions of all phases and of the final knot, for each motion.

        states, units: largest distances from the guess. shrink: factor on those of the controls from a motion to the next.
        """
        rng = np.random.default_rng(0)
        for sample in range(SAMPLES):
            xs, us = self.guess.xs.copy(), self.guess.us.copy()
            if sample:
                xs += states * rng.uniform(-1.0, 1.0, xs.shape)
                for k, u in zip(self._knots, units, strict=False):
                    us[k] += shrink ** (sample - 1) * u * rng.uniform(-1.0, 1.0, us[k].shape)
                if self.ocp.control_bounds is not None:
                    us = np.clip(us, *self.ocp.control_bounds)
            stages = zip(self._stages, self._knots, strict=True)
            yield [stage.first(Knots.of(xs, us, k), quadratic=False) for stage, k in stages]

    def slopes(self, states: Array, units: list[Array], shrink: float) -> tuple[Array, list[Array]]:
        """Return how far states move states (n, n), and the controls of each phase move them (n, m), medians over the motions.

        Per unit of a change of the first state, or of a control throughout its phase: the largest change of a state on the
        linearized motion, at most the sum of the direct changes of all time steps, since unstable motions grow without limit.
        states, units: sizes; zero if unknown. shrink: factor on the controls from a motion to the next. An entry whose median is
        zero is the largest value.
        """
        n, m, one = self.ocp.manifold.nx, self.ocp.nu, np.eye(self.ocp.manifold.nx)
        expansions = list(self._expansions(SPREAD * states, [SPREAD * u for u in units], shrink))
        X, moved, direct = np.tile(one, (len(expansions), 1, 1)), np.zeros((n, n)), np.zeros((n, n))
        by_control: list[Array] = []
        for i, phase in enumerate(self.ocp.phases):
            if not phase.dynamics.takes_time:
                by_control.append(np.zeros((len(expansions), n, m)))
                continue
            A, B = (np.stack([getattr(parts[i], key) for parts in expansions], axis=1) for key in ("A", "B"))
            motion = [np.concatenate([X, np.zeros((len(X), n, m))], axis=2)]
            # derivatives by the first state and the controls, of all motions at once
            for a, b in zip(A, B, strict=True):
                motion.append(a @ motion[-1])
                motion[-1][:, :, n:] += b
            X, along = motion[-1][:, :, :n], np.array(motion)
            moved = np.maximum(moved, np.abs(along[:, :, :, :n] - one).max(axis=0))
            direct = direct + np.abs(A - one).sum(axis=0)
            by_control.append(np.minimum(np.abs(along[:, :, :, n:]).max(axis=0), np.abs(B).sum(axis=0)))
        by_state = np.broadcast_to(np.minimum(moved, direct), X.shape)
        return _typical([*by_state], (n, n)), [_typical([*of_phase], (n, m)) for of_phase in by_control]

    def gradients(self, states: Array, units: list[Array]) -> tuple[float, dict[str, Array]]:
        """Return the factors of the cost and of the rows, by the names of their multipliers; states, units: factors.

        Of the gradients of the cost in each state and control of a phase, and in the last state, the one nearest to 1 counts:
        others may be of penalties, regularizations, or controls of little effect.
        """
        used, rows = self._gradients(states, units, 0.0)
        if not used:  # a cost of states may be zero at all states of the guess
            used, rows = self._gradients(states, units, SPREAD)
        cost = float(np.clip(1.0, min(used), max(used))) if used else 1.0
        return float(_powers_of_two(cost)), {k: _powers_of_two(v) for k, v in rows.items()}

    def _gradients(self, states: Array, units: list[Array], spread: float) -> tuple[list[float], dict[str, Array]]:
        """Return the sizes of all gradients of the cost that are not zero, and of the rows; spread: distance of states in sizes."""
        costs: list[list[float]] = []
        rows: dict[str, Array] = {}
        sizes = [*units, np.zeros(0)]
        groups = with_rows(self.ocp)
        for parts in self._expansions(spread * states, [SPREAD * u for u in units], SHRINK):
            sizes_of_costs: list[float] = []
            for i, (d, u, group) in enumerate(zip(parts, sizes, groups, strict=True)):
                sizes_of_costs += [size for g, s in ((d.lx, states), (d.lu, u)) for size in np.abs(g * s).sum(axis=0)]
                at, prefix = 0, "terminal " if i == len(units) else ""
                for c in group:
                    g = slice(at, at + c.residual.n_out)
                    at, name = g.stop, prefix + c.name
                    by_row = [np.abs(J[:, g] * s).max(axis=(0, 2), initial=0.0) for J, s in ((d.gx, states), (d.gu, u))]
                    rows[name] = np.fmax(rows.get(name, 0.0), np.fmax(*by_row))
            costs.append(sizes_of_costs)
        used = [_median(of_part) for of_part in zip(*costs, strict=True)]
        return [size for size in used if size > 0.0], rows


def _median(values: Sequence[float]) -> float:
    """Return the median of the positive finite values; 0 of none."""
    used = [value for value in values if 0.0 < value < np.inf]
    return float(np.median(used)) if used else 0.0


def _typical(values: list[Array], shape: tuple[int, int]) -> Array:
    """Return the median of the finite arrays, entries of zero replaced by the largest; zeros without arrays."""
    values = [v for v in values if np.isfinite(v).all()]
    if not values:
        return np.zeros(shape)
    median = np.median(values, axis=0)
    return np.where(median > 0.0, median, np.max(values, axis=0))


def _sizes(ocp: OCP, guess: Guess, samples: _Samples) -> tuple[Array, list[Array]]:
    """Return the factors of the states (nx,), and of the controls (nu,) of each phase."""
    given = np.maximum(np.abs(ocp.x0), np.abs(guess.xs).max(axis=0))
    goals = _goals(ocp)
    known = np.maximum(np.where(given >= 1.0 / EXTREME, given, 0.0), np.where(goals > ROUNDED, goals, 0.0))
    durations = _durations(ocp)
    known[durations] = given[durations]
    guessed = [np.abs(guess.us[k]).max(axis=0) for k in ocp.phase_slices]
    guessed = [np.where(q >= 1.0 / EXTREME, q, 0.0) for q in guessed]  # smaller ones may be rounding errors
    bounds = [np.zeros(ocp.nu) for _ in ocp.phases]
    if ocp.control_bounds is not None:
        finite = np.max([np.where(np.abs(b) < np.inf, np.abs(b), 0.0) for b in ocp.control_bounds], axis=0)
        bounds = [finite[k].max(axis=0) for k in ocp.phase_slices]
    moving = slice(0, durations.start)
    others = [known[moving], _bounds_on_states(ocp)[moving]]
    for phase, *of_controls in zip(ocp.phases, bounds, guessed, strict=True):
        others += [] if _sets_durations(phase) else of_controls
    if not any(v.any() for v in others):
        known[moving] = np.where(goals > EPS, goals, 0.0)[moving]
    sizes = [known, *(np.where(b > 0.0, b, q) for b, q in zip(bounds, guessed, strict=True))]
    before: list[list[Array]] = []
    while len(before) < PASSES and not (before and all(map(_close, before[-1], sizes))):
        before.append(sizes)
        shrink = SHRINK if len(before) == 1 else 1.0  # first, bounds on controls may be loose
        slopes = samples.slopes(sizes[0], sizes[1:], shrink)
        a, u = _derived(known, given, _bounds_on_states(ocp), bounds, guessed, *slopes)
        sizes = [a, *u]
    a, *u = (np.sqrt(old * new) for old, new in zip(before[-1], sizes, strict=True))
    for q, phase in zip(u, ocp.phases, strict=True):
        if _sets_durations(phase):
            q[: phase.dynamics.nu] = a[durations]
    return _powers_of_two(a), [_powers_of_two(q) for q in u]


def _sets_durations(phase: Phase) -> bool:
    """True for the stage whose controls are the free durations, the last states."""
    return isinstance(unwrapped(phase.dynamics.sampling.backend.map), Durations)  # type: ignore[union-attr]


def _durations(ocp: OCP) -> slice:
    """Return the places of the free durations among the states."""
    nx = ocp.manifold.nx
    return slice(nx - sum(phase.dynamics.nu for phase in ocp.phases if _sets_durations(phase)), nx)


def _close(before: Array, after: Array) -> bool:
    """True if sizes differ by at most a half."""
    return bool(np.allclose(before, after, rtol=0.5, atol=0.0))


def _derived(
    known: Array,
    given: Array,
    state_bounds: Array,
    control_bounds: list[Array],
    guessed: list[Array],
    by_state: Array,
    by_control: list[Array],
) -> tuple[Array, list[Array]]:
    """Return the sizes of all states (nx,), and of the controls (nu,) of each phase, by slopes; zero where none is found.

    known: sizes of states, zero if unknown. given: largest numbers of x0 and guess, which a derived size is not below.
    state_bounds: sizes of bounds on states. control_bounds, guessed: sizes of bounds and guess of the controls.
    """
    a, by_state = known.copy(), by_state * (1.0 - np.eye(len(known)))

    def from_moved() -> None:
        """Set unknown sizes to those that move a state of known size by its size, the smallest one."""
        for _ in a:
            for j in np.flatnonzero(a == 0.0):
                size = _moving(a, by_state[:, j])
                a[j] = max(size, given[j]) if size > 0.0 else 0.0

    from_moved()
    narrow = (known == 0.0) & (state_bounds > 0.0) & ((a == 0.0) | (state_bounds <= LOOSE * a))
    a[narrow] = state_bounds[narrow]
    from_moved()
    u = [np.where(b > 0.0, b, q) for b, q in zip(control_bounds, guessed, strict=True)]
    for q, b, B, at_guess in zip(u, control_bounds, by_control, guessed, strict=True):
        for j in range(len(q)):
            size = max(_moving(a, B[:, j]), at_guess[j])
            if size > 0.0 and (b[j] == 0.0 or b[j] > LOOSE * size):
                q[j] = size
    for _ in a:  # states that move none of known size
        moved = np.max([by_state @ a, *(B @ q for B, q in zip(by_control, u, strict=True))], axis=0)
        a = np.where((a > 0.0) | (moved == 0.0), a, np.maximum(moved, given))
    return a, u


def _moving(sizes: Array, slopes: Array) -> float:
    """Return the smallest number that moves a state of known size (n,) by its size, by slopes (n,); 0 if none does."""
    moves = (sizes > 0.0) & (slopes > 1e-300)
    return float((sizes[moves] / slopes[moves]).min(initial=np.inf)) if moves.any() else 0.0


def _goals(ocp: OCP) -> Array:
    """Return the largest absolute value (nx,) of each state in terminal equalities, and in references of costs."""
    found = np.zeros(ocp.manifold.nx)
    parts: list[CostTerm | Constraint] = [*ocp.terms(), *ocp.terminal_constraints]
    for part in parts:
        places, values = _references(part)
        found[list(places)] = np.maximum(found[list(places)], values)
    return found


def _references(part: CostTerm | Constraint) -> tuple[Sequence[int], Array]:
    """Return the places of the states for which a term or a terminal constraint gives values, and the largest absolute values."""
    if isinstance(part, Constraint):
        low, high = (np.atleast_2d(b)[-1] for b in (part.lower, part.upper))
        counts = low == high
        if (chosen := chosen_coordinates(part)) is not None:
            return chosen, np.where(counts, np.abs(low), 0.0)
    else:
        counts = np.atleast_2d(part.weight).any(axis=0)
    function = getattr(innermost(part.residual), "function", None)
    if not (isinstance(function, partial) and function.func is residuals.state_difference):
        return (), np.zeros(0)
    reference = np.abs(np.atleast_2d(part.parameters["reference"])).max(axis=0)
    return range(len(reference)), np.where(counts, reference, 0.0)


def _bounds_on_states(ocp: OCP) -> Array:
    """Return the largest absolute value (nx,) of the finite bounds on each state, without terminal equalities."""
    found = np.zeros(ocp.manifold.nx)
    for c in ocp.constraints():
        if (chosen := chosen_coordinates(c)) is not None:
            low, high = np.atleast_2d(c.lower), np.atleast_2d(c.upper)
            finite = [np.where(np.isfinite(b) & (low != high), np.abs(b), 0.0).max(axis=0) for b in (low, high)]
            places = list(chosen)
            found[places] = np.maximum.reduce([found[places], *finite])
    return found
