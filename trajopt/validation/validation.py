"""Validation of a problem before it is solved: errors and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, FunctionMap, HasWarnings
from trajopt.problem.constraints import Constraint, violations_at
from trajopt.problem.guess import Guess
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import QUATERNION_TOLERANCE, CostTerm, parameters_at, quaternion_error, velocities_hint
from trajopt.stage.solver_cache import borrowed
from trajopt.step.time_dependence import map_reads_time
from trajopt.validation.holonomic_constraints import repeated_at_end, unmet_at_start
from trajopt.validation.limit_violations import contradicting_goals, too_fast
from trajopt.validation.not_finite import finiteness_warnings
from trajopt.validation.reach import frame_goals, reach_warnings
from trajopt.validation.stability import stability_warnings
from trajopt.validation.user_derivatives import backend_warnings, step_warnings
from trajopt.validation.user_functions import function_mistakes, function_warnings, hessian_warnings, unread_parameters

ERROR, WARNING = "error", "warning"
DECLARED = ("takes_time", "control_names", "sampling", "contract")
"""Attributes that a time step must have in addition to its sizes."""
MAX_DECADES = 12.0
"""Span of weights [decades] above which a warning is issued; double precision has 16 decimal digits."""
SMALL_WEIGHT = 1e-7
"""Largest weight of a cost below which a warning is issued: tolerances on gradients are absolute."""
START_TOLERANCE, ROUNDING = 1e-6, 1e-13
"""Violation of a constraint by x0 up to which it counts as satisfied, and up to which it is an error of rounding."""


class Finding(NamedTuple):
    """A remark about a problem. severity: "error" (it cannot be solved) or "warning". message: a sentence with the remedy."""

    severity: str
    message: str


class InvalidProblem(ValueError):
    """Error for a problem that cannot be solved; ``findings`` lists its errors."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings
        super().__init__("the problem cannot be solved:\n" + "\n".join(f"  - {f.message}" for f in findings))


def validate(ocp: OCP, guess: Guess | None = None) -> list[Finding]:
    """Return all errors of and warnings about a problem and, if given, its guess; empty if there are none.

    With errors, the expensive warnings (finite values, Hessians, reach) are left out.
    """
    findings = _findings(ocp, guess)
    if any(f.severity == ERROR for f in findings):
        return findings
    warnings = [*finiteness_warnings(ocp, guess), *hessian_warnings(ocp), *_out_of_reach(ocp)]
    return [*findings, *(Finding(WARNING, m) for m in warnings)]


def _out_of_reach(ocp: OCP) -> Iterator[str]:
    """Yield warnings about frame goals of terminal costs that the robot cannot reach from x0."""
    for goal in frame_goals(ocp):
        yield from reach_warnings(ocp.model, goal, ocp.x0[: ocp.model.nq])


@dataclass
class _CheckCache:
    """Results of earlier checks of a structure that hold for other values too.

    called: user functions have been called without an error. backends: warnings about user-defined backends, time steps
    and unread parameters. stable: keys of phases whose time steps have a wide stability margin.
    """

    called: bool = False
    backends: list[str] | None = None
    stable: set[Any] = field(default_factory=set)


def _findings(ocp: OCP, guess: Guess | None, known: _CheckCache | None = None) -> list[Finding]:
    """Run the checks that are cheap enough for each solve. known: results for the structure, updated by the checks."""
    known = known or _CheckCache()
    errors = errors_of(ocp, guess)
    if not errors and not known.called:
        errors = [Finding(ERROR, m) for m in function_mistakes(ocp, guess)]
        known.called = not errors
    return errors + [Finding(WARNING, m) for m in _state_warnings(ocp, bool(errors), known)]


def errors_of(ocp: OCP, guess: Guess | None = None) -> list[Finding]:
    """Return the errors that can be found without evaluating functions: shapes, or, if these agree, values and the guess."""
    errors = structure_errors(ocp)
    if not errors:  # shapes are known to agree from here on
        errors = [*_value_problems(ocp), *_guess_errors(ocp, guess)]
    return [Finding(ERROR, m) for m in dict.fromkeys(errors)]


def structure_errors(ocp: OCP) -> list[str]:
    """Return the errors of shapes and sizes of a problem as a list of sentences."""
    return [*_structure_problems(ocp)]


def require_valid(ocp: OCP, guess: Guess | None = None) -> list[Finding]:
    """Return the warnings of the cheap checks of each solve. Raises :class:`InvalidProblem` if the problem has errors.

    Results of checks that depend on the structure alone are reused in later solves.
    """
    with borrowed(ocp) as own:
        findings = _findings(ocp, guess, None if own is None else own.prepared.setdefault("validated", _CheckCache()))
    errors = [f for f in findings if f.severity == ERROR]
    if errors:
        raise InvalidProblem(errors)
    return findings


def reject_constraints(ocp: OCP, who: str, remedy: str = "solve the problem with trajopt.solve") -> None:
    """Raise :class:`InvalidProblem` if a problem has constraints, for the solver ``who`` that does not support them.

    remedy: what to do instead of removing the constraints.
    """
    names = ", ".join(repr(name) for name in dict.fromkeys(c.name for c in ocp.constraints()))
    if names:
        raise InvalidProblem(
            [Finding(ERROR, f"{who} cannot enforce constraints: {remedy}, or remove the constraints {names}")]
        )


# -- errors of structure: shapes and sizes ------------------------------------------------------------------------------


def _structure_problems(ocp: OCP) -> Iterator[str]:
    """Yield errors of shapes and sizes of the problem, its phases, and its terminal terms and constraints."""
    nx, n, nu = ocp.manifold.nx, ocp.horizon, ocp.nu
    if ocp.x0.shape != (nx,):
        yield f"x0 has shape {ocp.x0.shape}; expected (nx = {nx},){velocities_hint(ocp.manifold, ocp.x0.shape)}"
    if n == 0:
        yield "the horizon has no knots; give at least one time step"
    if nu == 0:
        yield "no phase has controls; there is nothing to optimize"
    for key in ("u_lower", "u_upper"):
        bound = getattr(ocp, key)
        if bound is not None and bound.shape not in ((nu,), (n, nu)):
            yield f"{key} has shape {bound.shape}; expected (nu = {nu},) or (N = {n}, {nu})"
    for i, phase in enumerate(ocp.phases):
        yield from _phase_structure(ocp, phase, f"phase {i}")
    for term in ocp.terminal:
        yield from _term_structure(ocp, term, 1, "terminal", nu=0)
    for constraint in ocp.terminal_constraints:
        yield from _term_structure(ocp, constraint, 1, "terminal", nu=0)
    for i, phase in enumerate(ocp.phases):
        yield from _name_errors(f"phase {i}", phase.constraints)
    yield from _name_errors("terminal", ocp.terminal_constraints)
    rows: dict[str, int] = {}
    for phase in ocp.phases:
        for c in phase.constraints:
            if rows.setdefault(c.name, c.residual.n_out) != c.residual.n_out:
                yield f"phases have constraints named {c.name!r} with different numbers of rows; give them different names"


def _name_errors(where: str, constraints: Sequence[Constraint]) -> Iterator[str]:
    """Yield errors of constraint names, the keys of their multipliers: two equal ones in a group, or one of other multipliers."""
    for name, count in Counter(c.name for c in constraints).items():
        if count > 1:
            yield f"{where} has {count} constraints named {name!r}; give them different names"
        if name in RESERVED or name.startswith("terminal "):
            yield f"{where} constraint {name!r}: this is a name of other multipliers; choose another one"


RESERVED = ("dynamics", "bounds on x", "bounds on u")
"""Names of multipliers (:class:`~trajopt.results.solution.Solution`) that constraints must not have."""


def _phase_structure(ocp: OCP, phase: Phase, where: str) -> Iterator[str]:
    """Yield errors of shapes and sizes in a phase; ``where`` begins the messages."""
    manifold = phase.dynamics.manifold
    if (manifold.nx, manifold.ndx) != (ocp.manifold.nx, ocp.manifold.ndx):
        yield f"{where} has states on {manifold}, phase 0 on {ocp.manifold}; phases must share the manifold"
    yield from _undeclared(phase, where)
    if phase.dt.ndim != 1:
        yield f"{where}: dt has shape {phase.dt.shape}; expected (N,)"
    for name, value in phase.parameters.items():
        if value.ndim > 2 or (value.ndim == 2 and len(value) != phase.knots):
            yield _per_knot(f"{where}: parameter {name!r}", value, phase.knots)
    for term in phase.terms:
        yield from _term_structure(ocp, term, phase.knots, where, nu=ocp.nu)
    for constraint in phase.constraints:
        yield from _term_structure(ocp, constraint, phase.knots, where, nu=ocp.nu)


def _undeclared(phase: Phase, where: str) -> Iterator[str]:
    """Yield an error if the time step of a phase lacks attributes of a :class:`~trajopt.DiscreteMap`."""
    missing = [name for name in DECLARED if not hasattr(phase.dynamics, name)]
    if missing:
        kind = type(phase.dynamics).__name__
        yield f"{where}: {kind} does not declare {', '.join(missing)}; see trajopt.problem.ocp.DiscreteMap"


def require_declared(ocp: OCP) -> None:
    """Raise InvalidProblem if a time step lacks attributes of a :class:`~trajopt.DiscreteMap`."""
    missing = [m for i, phase in enumerate(ocp.phases) for m in _undeclared(phase, f"phase {i}")]
    if missing:
        raise InvalidProblem([Finding(ERROR, message) for message in missing])


def _term_structure(ocp: OCP, term: CostTerm | Constraint, knots: int, where: str, nu: int) -> Iterator[str]:
    """Yield errors of shapes and sizes in a term or constraint. knots: number of its knots. nu: controls that it may read."""
    is_cost = isinstance(term, CostTerm)
    label, residual = f"{where} {'term' if is_cost else 'constraint'} {term.name!r}", term.residual
    if residual.manifold.nx and (residual.manifold.nx, residual.manifold.ndx) != (ocp.manifold.nx, ocp.manifold.ndx):
        yield f"{label} is written for states on {residual.manifold}, the problem's are on {ocp.manifold}"
    if residual.nu > nu:
        reason = "it cannot depend on controls" if where == "terminal" else f"the problem has nu = {nu}"
        yield f"{label} reads {residual.nu} controls; {reason}"
    own = {"weight": term.weight} if isinstance(term, CostTerm) else {"lower": term.lower, "upper": term.upper}
    for name, value in {**own, **term.parameters}.items():
        if value.ndim > 2 or (value.ndim == 2 and len(value) != knots):
            yield _per_knot(f"{label}: {name}", value, knots)


def _per_knot(label: str, value: Array, knots: int) -> str:
    """Message for a value that has neither one row nor a row for each knot."""
    return f"{label} has shape {value.shape}; expected (n,) or one row for each of the {knots} knots"


# -- errors of value ----------------------------------------------------------------------------------------------------


def _value_problems(ocp: OCP) -> Iterator[str]:
    """Yield errors of values: x0, time steps and parameters that are not finite, and contradictory bounds."""
    yield from _state_errors(ocp, ocp.x0, "x0")
    yield from _time_errors(ocp)
    for kind, parts in (("term", ocp.terms()), ("constraint", ocp.constraints())):
        for part in parts:
            for name, value in part.parameters.items():
                if not np.isfinite(value).all():
                    yield f"{kind} {part.name!r}: parameter {name!r} is not finite"
    for i, phase in enumerate(ocp.phases):
        for name, value in phase.parameters.items():
            if not np.isfinite(value).all():
                yield f"phase {i}: parameter {name!r} of the dynamics is not finite"
    for constraint in ocp.constraints():
        yield from _contradictions(constraint)
    if ocp.control_bounds is not None:
        yield from _bound_errors(ocp, *ocp.control_bounds)


def _time_errors(ocp: OCP) -> Iterator[str]:
    """Yield errors of the time grid: a start that is not finite, steps that are not positive and finite, infinite sums.

    A phase without duration (an impact) must have one knot with dt = 0.
    """
    first = 0
    if not np.isfinite(ocp.start):
        yield f"start = {ocp.start}; expected a finite number of seconds"
    for i, phase in enumerate(ocp.phases):
        wrong = wrong_steps(phase, phase.dt)
        if wrong.any() and phase.dynamics.takes_time:
            knot = int(np.argmax(wrong))
            jump = isinstance(phase.dynamics, ImpactStage) and not phase.dt.any()
            remedy = "; a jump of the state without duration is a to.ImpactStage" if jump else ""
            yield f"dt is {phase.dt[knot]} at knot {first + knot}; time steps must be positive and finite{remedy}"
        elif wrong.any():
            kind = type(phase.dynamics).__name__
            yield f"phase {i} has no duration, as {kind}.takes_time is False; give it one knot with dt = 0"
        elif not np.isfinite(sum(map(float, phase.dt))):
            yield f"the time steps of phase {i} add up to infinity; give it shorter ones"
        first += phase.knots


def wrong_steps(phase: Phase, dt: Array) -> Array:
    """Mask of invalid time steps dt (..., N): not finite or not positive; of dynamics without duration, not 0 or not one knot."""
    if phase.dynamics.takes_time:
        return ~(np.isfinite(dt) & (dt > 0))
    return (dt != 0.0) | (phase.knots != 1)


def contradictions(lower: Array, upper: Array, bound: str = "bound") -> list[tuple[Array, str]]:
    """Return three masks (...) of bounds that no value satisfies, each with a description. bound: name of the bounds."""
    return [
        (np.isnan(lower) | np.isnan(upper), f"a {bound} is NaN"),
        (lower > upper, f"the lower {bound} is above the upper one"),
        ((lower == np.inf) | (upper == -np.inf), f"a {bound} excludes every value"),
    ]


def _contradictions(c: Constraint) -> Iterator[str]:
    """Yield errors of constraints whose bounds no value satisfies."""
    lower, upper = np.broadcast_arrays(np.atleast_2d(c.lower), np.atleast_2d(c.upper))
    for bad, problem in contradictions(lower, upper):
        if bad.any():
            knot, i = (int(v) for v in np.argwhere(bad)[0])
            where = f" at knot {knot}" if len(lower) > 1 else ""
            yield f"constraint {c.name!r}: {problem}: {c.residual.output_names[i]}{where}, [{lower[knot, i]}, {upper[knot, i]}]"


def _state_errors(ocp: OCP, x: Array, what: str) -> Iterator[str]:
    """Yield an error for states x, (nx,) or (N + 1, nx), that are not finite or hold a quaternion not of unit length."""
    if not np.isfinite(x).all():
        *knot, i = np.argwhere(~np.isfinite(x))[0].tolist()
        name = ocp.state_names[i] if len(ocp.state_names) == x.shape[-1] else f"entry {i}"
        yield f"{what} contains NaN or infinity: {name}{f' at knot {knot[0]}' if knot else ''}"
    elif (error := quaternion_error(ocp.manifold, x)) > QUATERNION_TOLERANCE:
        yield f"{what} holds a quaternion whose norm differs from 1 by {error:.1e}; divide it by its norm"


def _bound_errors(ocp: OCP, lower: Array, upper: Array) -> Iterator[str]:
    """Yield errors of bounds on controls that no value satisfies."""
    for bad, problem in contradictions(lower, upper, "control bound"):
        if bad.any():
            knot, i = (int(v) for v in np.argwhere(bad)[0])
            yield f"{problem}: {ocp.control_names[i]} at knot {knot}, [{lower[knot, i]}, {upper[knot, i]}]"


def _guess_errors(ocp: OCP, guess: Guess | None) -> Iterator[str]:
    """Yield errors of shape and value in a guess."""
    if guess is None:
        return
    shapes = {"xs": (ocp.horizon + 1, ocp.manifold.nx), "us": (ocp.horizon, ocp.nu)}
    convert = "; FreeTime.with_durations(guess) converts a guess of the fixed grid" if ocp.in_scaled_time else ""
    for key, shape in shapes.items():
        value = np.asarray(getattr(guess, key), dtype=float)
        if value.shape != shape:
            other_grid = value.ndim == 2 and value.shape[1] == shape[1] and key == "xs"
            resample = (
                "; to.resampled_guess(ocp, solution) converts a solution of another time grid" if other_grid else ""
            )
            yield f"guess.{key} has shape {value.shape}; expected {shape}{convert or resample}"
        elif key == "xs":
            yield from _state_errors(ocp, value, "guess.xs")
        elif not np.isfinite(value).all():
            yield f"guess.us contains NaN or infinity at knot {int(np.argwhere(~np.isfinite(value))[0][0])}"


# -- warnings -----------------------------------------------------------------------------------------------------------


def _state_warnings(ocp: OCP, has_errors: bool, known: _CheckCache) -> Iterator[str]:
    """Yield the cheap warnings about weights, x0, stability of time steps, slow functions and user-defined backends.

    Those about x0: constraints and joint limits that it violates, and warnings that the dynamics issue about it. has_errors: warn
    about weights only. known: results of earlier checks, updated.
    """
    yield from _weight_warnings(ocp)
    yield from _vectors_of_horizon_length(ocp)
    if not has_errors:
        yield from _violated_at_start(ocp)
        yield from contradicting_goals(ocp, START_TOLERANCE)
        yield from system_warnings(ocp)
        yield from unmet_at_start(ocp)
        yield from repeated_at_end(ocp)
        yield from too_fast(ocp)
        yield from _timed_by_the_grid(ocp)
        yield from stability_warnings(ocp, known.stable)
        yield from function_warnings(ocp)
        if known.backends is None:
            known.backends = [*backend_warnings(ocp), *step_warnings(ocp), *unread_parameters(ocp)]
        yield from known.backends
    if has_errors or ocp.model is None:
        return
    q = ocp.model.configuration_of(ocp.x0)
    outside = np.flatnonzero((q < ocp.model.q_lower) | (q > ocp.model.q_upper))
    for i in outside:
        limits = f"[{ocp.model.q_lower[i]:.6g}, {ocp.model.q_upper[i]:.6g}]"
        hint = ocp.model.degrees_hint(int(i), float(q[i]))
        yield f"x0 is outside its limits: {ocp.model.q_names[i]} = {q[i]:.6g}{hint}, limits {limits}"


def _weight_warnings(ocp: OCP) -> Iterator[str]:
    """Yield a warning if all weights are zero or small, or if positive ones span more than MAX_DECADES decades.

    Then rounding hides the small ones.
    """
    largest = max((float(np.abs(term.weight).max(initial=0.0)) for term in ocp.terms()), default=0.0)
    if largest == 0.0:
        yield "no cost term has a positive weight; any trajectory is optimal"
    elif largest < SMALL_WEIGHT:
        yield (
            f"all weights are at most {largest:.0e}: tolerances on gradients are absolute, so that solves may end too early; "
            "multiply all weights by the same number"
        )
    ranges = [(w.min(), w.max(), term.name) for term in ocp.terms() if (w := term.weight[term.weight > 0.0]).size]
    if not ranges:
        return
    least, most = min(ranges), max(ranges, key=lambda r: r[1])
    decades = np.log10(most[1]) - np.log10(least[0])
    if decades > MAX_DECADES:
        yield (
            f"weights span {decades:.0f} decades, from {least[0]:.0e} ({least[2]!r}) to {most[1]:.0e} ({most[2]!r}): rounding "
            "hides the small ones; bring them closer together"
        )


def _vectors_of_horizon_length(ocp: OCP) -> Iterator[str]:
    """Yield warnings about constant vectors of parameters with as many entries as there are knots, which may be values by knot.

    Vectors of the size of the state or of the term are likely what they seem, and so are those of a term that has a vector of this
    size in a phase of another number of knots too.
    """
    elsewhere = set[tuple[str, str, tuple[int, ...]]]()
    for phase in ocp.phases:
        parts: list[CostTerm | Constraint] = [*phase.terms, *phase.constraints]
        named = ((part.name, name, value.shape) for part in parts for name, value in part.parameters.items())
        elsewhere |= {key for key in named if key[2] != (phase.knots,)}
    for phase in ocp.phases:
        owners: list[tuple[str, Mapping[str, Array], Collection[int]]] = [("the dynamics", phase.parameters, ())]
        parts = [*phase.terms, *phase.constraints]
        for part in parts:
            owners.append((part.name, part.parameters, (part.residual.n_out, part.residual.manifold.nx)))
        for owner, parameters, sizes in owners if phase.knots > 1 else ():
            for name, value in parameters.items():
                known = phase.knots in sizes or (owner, name, value.shape) in elsewhere
                if value.shape == (phase.knots,) and not known:
                    yield (
                        f"parameter {name!r} of {owner} has as many entries as there are knots, and counts as one vector for "
                        f"all of them: give values by knot the shape ({phase.knots}, 1)"
                    )


def _violated_at_start(ocp: OCP) -> Iterator[str]:
    """Yield warnings about state constraints of the first phase with time steps that x0 violates by more than START_TOLERANCE.

    These are enforced from the next knot on.
    """
    phase = next((phase for phase in ocp.phases if phase.dynamics.takes_time), ocp.phases[0])
    for c in phase.constraints:
        if c.residual.nu:
            continue
        if phase is not ocp.phases[0] and phase.knots > 1:  # free durations: not imposed on the first knot, which is x0
            c = replace(c, lower=c.bounds(phase.knots)[0][1], upper=c.bounds(phase.knots)[1][1])
        excess = violations_at(c, ocp.x0, ocp.start, phase.knots)
        if excess.max() > START_TOLERANCE:
            i = int(np.argmax(excess))
            yield (
                f"x0 violates {c.component_names[i]} by {excess[i]:.3g}; the constraint is enforced from the next "
                "knot on: choose x0 within it, or remove the constraint, unless one step leads back"
            )


def _timed_by_the_grid(ocp: OCP) -> Iterator[str]:
    """Yield a warning for the first user-defined cost term or constraint that reads the time although durations are free."""
    if not ocp.in_scaled_time:
        return
    parts: list[CostTerm | Constraint] = [*ocp.terms(), *ocp.constraints()]
    for part in parts:
        own: Any = getattr(part.residual, "map", part.residual)
        if isinstance(own, FunctionMap) and map_reads_time(part.residual, ocp.x0, part.parameters):
            yield (
                f"{part.name!r} reads the time t, which is that of the fixed grid although durations are free: its motion is "
                "stretched with the duration; add a state with the rate 1, and read it in place of t"
            )
            return


def tiny_distances(ocp: OCP) -> Iterator[str]:
    """Yield warnings about terminal constraints that x0 violates, but by at most START_TOLERANCE, the tolerance of the checks.

    Solvers may then accept x0 as their solution. Violations up to ROUNDING do not count.
    """
    for c in ocp.terminal_constraints:
        excess = violations_at(c, ocp.x0, ocp.start)
        if ROUNDING < excess.max() <= START_TOLERANCE:
            i = int(np.argmax(excess))
            yield (
                f"x0 misses {c.component_names[i]} by {excess[i]:.3g}, less than the tolerance {START_TOLERANCE:g}: it counts as "
                "reached; choose units in which this distance is near 1"
            )


def tiny_bounds(ocp: OCP) -> Iterator[str]:
    """Yield warnings about inequalities whose two bounds are closer than TINY tolerances of the checks, by name of the row."""
    for c in dict.fromkeys(ocp.constraints()):
        width = np.min(np.atleast_2d(c.upper - c.lower), axis=0)
        for i in np.flatnonzero((width > 0.0) & (width <= TINY * START_TOLERANCE))[:1]:
            yield (
                f"the bounds of {c.component_names[i]} are {width[i]:.3g} apart, and violations up to the tolerance "
                f"{START_TOLERANCE:g} count as none; choose units in which this distance is near 1"
            )


def large_states(ocp: OCP, xs: Array) -> str:
    """Return advice on units if states xs (N + 1, nx) of a system without a robot exceed LARGE, else "".

    The steps of solvers depend on the units: regularizations and the violations in filters and merit functions add up numbers of
    all states and constraints.
    """
    sizes = np.abs(xs).max(axis=0)
    i = int(np.argmax(sizes))
    if ocp.model is not None or ocp.manifold.ndx != xs.shape[1] or not LARGE <= sizes[i] < np.inf:
        return ""
    return (
        f"{ocp.state_names[i]} is as large as {sizes[i]:.2g}, which may be the reason: choose units, also of time, in which "
        "states, their rates and durations are near 1."
    )


LARGE = 1e3
"""Size of a state from which advice on a failure recommends other units."""
TINY = 100.0
"""Distance between two bounds, in tolerances of the checks, up to which a warning says that the tolerance matters."""


def system_warnings(ocp: Any) -> Iterator[str]:
    """Yield warnings of the first phase's dynamics about x0, if that system issues any, such as about stiff contacts."""
    phase = ocp.phases[0]
    if isinstance(phase.system, HasWarnings):
        yield from phase.system.state_warnings(ocp.x0, parameters_at(phase.parameters, 0))
