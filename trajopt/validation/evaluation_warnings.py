"""Evaluation of a problem: errors in user functions, non-finite values, and warnings about slow evaluation.

Evaluation is slow if functions are not compiled. Cost terms and constraints with non-finite values or
derivatives along a trajectory are reported by name, first knot and remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.derivative_check import (
    DIFFERENCE_STEPS,
    DerivativeCheck,
    Points,
    step_sizes,
    user_backend_checks,
    user_code_line,
    worst,
    worst_entry,
)
from dynamics_backends.protocol import (
    Array,
    DynamicsBackend,
    FunctionMap,
    InScaledTime,
    Map,
    Parameters,
    innermost,
    is_generic,
    unwrapped,
)
from dynamics_backends.registry import make_backend
from trajopt.guesses.guesses import constant_guess
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import residual_batch, residual_jacobians
from trajopt.problem.guess import Guess
from trajopt.problem.impact_stage import next_state_of
from trajopt.problem.ocp import OCP, DiscreteMap, Phase
from trajopt.problem.terms import CostTerm, parameters_at
from trajopt.results.status import Status, StatusCode
from trajopt.step.sensitivities import missing_curvature

POINTS, SPREAD, WRONG = 3, 0.01, 0.01
"""Number of random points near x0 at which a user-defined backend is checked, their standard deviation [rad, m, ...], and the
relative error of a derivative above which it is wrong.
"""
LEAST = 1e-6
"""Smallest size of the motion of a time step, and of its derivatives, that errors are relative to."""


def function_warnings(ocp: OCP) -> Iterator[str]:
    """Yield warnings about user functions that are evaluated knot by knot with finite differences.

    These are known after a first call of each function, as in :func:`function_mistakes`.
    """
    messages = [f"{what}: {map.called.why}" for what, map, _ in _functions(ocp) if map.called.why]
    yield from dict.fromkeys(messages)


def function_mistakes(ocp: OCP, guess: Guess | None = None) -> Iterator[str]:
    """Yield errors of user functions, backends and time steps at the first knot of a guess; default: x0 and zero controls.

    Each sentence names the part of the problem. Terminal parts are evaluated there too.
    """
    x = ocp.x0 if guess is None else np.asarray(guess.xs[0], float)
    u = np.zeros(ocp.nu) if guess is None else np.asarray(guess.us[0], float)
    messages = [(what, _failure(map, x, u, p)) for what, map, p in _functions(ocp)]
    messages += [(what, _backend_failure(backend, x, u, p)) for what, backend, p in _user_backends(ocp)]
    messages += [(what, _step_failure(phase, x, u, ocp.start)) for what, phase in _user_steps(ocp)]
    yield from dict.fromkeys(f"{what}: {why}" for what, why in messages if why)


def backend_warnings(ocp: OCP) -> Iterator[str]:
    """Yield a warning for each user-defined backend, or ``partials``, with a relative error of more than WRONG near x0.

    See :func:`~dynamics_backends.derivative_check.user_backend_checks`; second derivatives are reported only if the Jacobians are
    right. Points at which the backend raises an error, or where the error of a value or a Jacobian is not finite, are left out.
    """
    seen = set[int]()
    for what, backend, p in _user_backends(ocp):
        if id(backend.map) in seen:
            continue
        seen.add(id(backend.map))
        xs, us = _near_x0(ocp, backend.map.nu)
        xs = xs[:, : backend.map.manifold.nx]  # without durations
        checks = [c for x, u in zip(xs, us, strict=True) for c in _checks_at(what, backend, x, u, ocp.start, p)]
        wrong = [c for c in checks if c.error is not None and WRONG < c.error < np.inf]
        if all(c.error != np.inf for c in checks if c.block != "second"):
            wrong += [c for c in checks if c.error == np.inf]
        own, method = (
            ("partials of the system", "partials")
            if is_generic(backend.map)
            else ("Jacobians of the backend", "jacobians")
        )
        if (found := worst([c for c in wrong if c.block != "second"])) is not None:
            yield f"the {own} do not agree with its values: {found}; correct its {method}"
        elif (found := worst(wrong)) is not None:
            yield (
                "the second derivatives of the backend do not agree with its Jacobians: "
                f"{found}; correct its hessian_contraction"
            )


def step_warnings(ocp: OCP) -> Iterator[str]:
    """Yield a warning for each user-defined time step whose ``linearize`` near x0 differs from its ``step`` by more than WRONG.

    The motion x_next (-) x, and its derivatives by central differences with the best of DIFFERENCE_STEPS, are compared, relative to
    their largest entry at a point. Time steps that raise an error, or are not finite, are left out.
    """
    for what, phase in _user_steps(ocp):
        step, manifold, n = phase.dynamics, phase.dynamics.manifold, phase.dynamics.manifold.ndx
        (xs, us), p, unit = _near_x0(ocp, step.nu), parameters_at(phase.parameters, 0), np.eye(n, n + step.nu)
        given = xs, us, np.full(POINTS, ocp.start), np.full(POINTS, phase.dt[0]), p
        try:
            with np.errstate(all="ignore"):
                x_next, A, B = map(np.array, step.linearize(*given)[:3])  # copies: the next call may overwrite them
                right = manifold.difference(xs.T, _moved(step, np.zeros((n + step.nu, POINTS)), *given)).T
                own = np.concatenate([A, B], axis=2) - unit
                wrong, (row, j) = np.inf, (0, 0)
                for h in DIFFERENCE_STEPS:
                    if wrong > WRONG:
                        found = worst_entry(own, _slopes(step, h, *given) - unit, LEAST)
                        wrong, (row, j) = min((wrong, (row, j)), found)
        except Exception:  # user code may raise anything away from x0
            continue
        off, (i,) = worst_entry(manifold.difference(xs.T, x_next.T).T, right, LEAST)
        names = manifold.tangent_names
        if WRONG < off < np.inf:
            entry = f"{names[i]} of x_next by linearize is not that of step, relative error {off:.1e}"
            yield f"{what}: {entry}; correct linearize"
        elif WRONG < wrong < np.inf:
            entry = f"d({names[row]} of x_next) / d({(*names, *step.control_names)[j]}), relative error {wrong:.1e}"
            yield f"{what}: linearize does not agree with differences of step: {entry}; correct linearize"


def _slopes(step: DiscreteMap, size: float, x: Array, u: Array, *at: Any) -> Array:
    """Central differences (N, ndx, ndx + nu) of the next states of x (N, nx), u (N, nu); size: see :func:`step_sizes`."""
    h = step_sizes(step.manifold, x.T, u.T, size)
    columns = []
    for k in range(len(h)):
        d = np.zeros_like(h)
        d[k] = h[k]
        ends = _moved(step, -d, x, u, *at), _moved(step, d, x, u, *at)
        columns.append((step.manifold.difference(*ends) / (2.0 * h[k])).T)
    return np.stack(columns, axis=2)


def _moved(step: DiscreteMap, d: Array, x: Array, u: Array, *at: Any) -> Array:
    """Next states (nx, N) of states x (N, nx) and controls u (N, nu) that are moved by d (ndx + nu, N)."""
    n = step.manifold.ndx
    moved = np.ascontiguousarray(step.manifold.integrate(x.T, d[:n]).T)
    return np.array(step.step(moved, u + d[n:].T, *at)).T


def _near_x0(ocp: OCP, nu: int) -> tuple[Array, Array]:
    """Return POINTS random states (POINTS, nx) near x0, and controls (POINTS, nu) near zero."""
    rng = np.random.default_rng(0)
    start = np.repeat(ocp.x0[:, None], POINTS, axis=1)
    xs = np.asarray(ocp.manifold.integrate(start, SPREAD * rng.standard_normal((ocp.manifold.ndx, POINTS)))).T
    return xs, SPREAD * rng.standard_normal((POINTS, nu))


def _checks_at(
    what: str, backend: DynamicsBackend, x: Array, u: Array, t: float, p: Parameters
) -> list[DerivativeCheck]:
    """Return the comparisons of a backend's derivatives at a state x (nx,) and controls u (nu,), none if it raises an error there.

    what: name of the dynamics in reports. t [s].
    """
    one = np.zeros(1)
    try:
        with np.errstate(all="ignore"):
            return [*user_backend_checks(what, backend, Points(x[None], u[None], one + t, one, one.astype(int)), p)]
    except Exception:  # user code may raise anything away from x0
        return []


class _Recorded(Mapping[str, Array]):
    """Parameters (n,) of one knot that record the names of those that are read."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values, self.read = values, set[str]()

    def __getitem__(self, name: str) -> Array:
        self.read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def unread_parameters(ocp: OCP) -> Iterator[str]:
    """Yield a warning for each parameter that no user function among the dynamics of all phases reads at x0.

    None for dynamics that are no plain user functions, or raise an error for numbers at x0.
    """
    given: dict[str, None] = {}
    read = set[str]()
    for phase in ocp.phases:
        if not phase.parameters:
            continue
        map = phase.system
        map = map.map if isinstance(map, InScaledTime) and hasattr(map, "map") else map
        function = next_state_of(map) or unwrapped(map)
        if not isinstance(function, FunctionMap) or type(function).__call__ is not FunctionMap.__call__:
            return
        p = _Recorded(parameters_at(phase.parameters, 0))
        try:
            with np.errstate(all="ignore"):
                function.function(ocp.x0[: function.manifold.nx].copy(), np.zeros(function.nu), ocp.start, p)
        except Exception:  # errors of user functions are reported elsewhere
            return
        given |= dict.fromkeys(phase.parameters)
        read |= p.read
    for name in given:
        if name not in read:
            others = ", ".join(repr(other) for other in sorted(read)) or "none"
            yield f"the dynamics do not read the parameter {name!r} at x0 (they read: {others}): check its name"


def hessian_warnings(ocp: OCP) -> Iterator[str]:
    """Yield one warning if some time step has no second derivatives, else one per phase with differences in NumPy.

    The latter are for phases on the compiled engine whose second derivatives are taken by finite differences.
    """
    from trajopt.stage.engine import hessian_runs_in_numpy
    from trajopt.stage.not_compiled import SECOND, by_differences, explanation

    if (reason := missing_curvature(ocp)) is not None:
        yield f"{reason}; until then auto, ipm and sqp approximate the Hessian, and ddp rejects the problem"
        return
    for i, phase in enumerate(ocp.phases):
        sampling = phase.dynamics.sampling
        if sampling is not None and hessian_runs_in_numpy(phase):
            yield str(explanation(ocp, i, by_differences(sampling.called), SECOND))


def _functions(ocp: OCP) -> Iterator[tuple[str, FunctionMap, Parameters]]:
    """Yield user functions (FunctionMap) with their role, such as "term 'speed'", and their parameters at the first knot."""
    for what, map, p in _maps(ocp):
        if isinstance(own := innermost(map), FunctionMap):
            yield what, own, p


def _user_backends(ocp: OCP) -> Iterator[tuple[str, DynamicsBackend, Parameters]]:
    """Yield backends with derivatives by the user, with their role and the parameters at the first knot.

    These are user-defined backends, which alone evaluate their dynamics, and the method ``partials`` of user functions.
    """
    for i, phase in enumerate(ocp.phases):
        if (sampling := phase.dynamics.sampling) is None:
            continue
        backend, p = sampling.called, parameters_at(phase.parameters, 0)
        if not is_generic(backend.map):
            yield f"dynamics of phase {i}", backend, p
        own = innermost(backend.map)
        if backend.name == "analytic" and isinstance(own, FunctionMap) and hasattr(own, "partials"):
            yield f"dynamics of phase {i}", make_backend(own, "analytic", engine="numpy"), p


def _user_steps(ocp: OCP) -> Iterator[tuple[str, Phase]]:
    """Yield the name in messages of each user-defined time step (:class:`~trajopt.DiscreteMap`), and the last phase that has it."""
    for phase in {id(p.dynamics): p for p in ocp.phases if p.dynamics.sampling is None}.values():
        yield f"time step {type(phase.dynamics).__name__}", phase


def _step_failure(phase: Phase, x: Array, u: Array, t: float) -> str:
    """Return the error of a user-defined time step for a batch of two equal knots, including wrong shapes, or ""."""
    step, n, nx = phase.dynamics, phase.dynamics.manifold.ndx, len(x)
    given = np.tile(x, (2, 1)), np.tile(u[: step.nu], (2, 1)), np.full(2, t), np.full(2, phase.dt[0])
    p, before = parameters_at(phase.parameters, 0), [part.copy() for part in given]
    try:
        with np.errstate(all="ignore"):
            found = step.step(*given, p), *step.linearize(*given, p)[:3]
    except Exception as error:  # user code may raise anything
        return f"{type(error).__name__}{user_code_line(error, None)}: {error}"
    for name, part, old in zip(("x", "u", "t", "dt"), given, before, strict=True):
        if not np.array_equal(part, old, equal_nan=True):
            return f"step or linearize changes its argument {name} in place; let it change a copy"
    shapes = {"step": (2, nx), "linearize: x_next": (2, nx), "linearize: A": (2, n, n), "linearize: B": (2, n, step.nu)}
    for (name, shape), value in zip(shapes.items(), found, strict=True):
        if getattr(value, "shape", None) != shape:
            own = f"has shape {value.shape}" if isinstance(value, np.ndarray) else f"is a {type(value).__name__}"
            return f"{name} {own}; expected an array of shape {shape}"
    return ""


def _backend_failure(backend: DynamicsBackend, x: Array, u: Array, p: Parameters) -> str:
    """Return the error of a user-defined backend for a batch of two equal knots, including wrong shapes, or ""."""
    given = np.tile(x[: backend.map.manifold.nx], (2, 1)), np.tile(u[: backend.map.nu], (2, 1)), 0.0, p
    try:
        with np.errstate(all="ignore"):
            backend.f(*given)
            backend.jacobians(*given)
            second = getattr(backend, "hessian_contraction", None)
            if second is not None:
                second(*given, np.ones((2, backend.map.n_out)))
    except Exception as error:  # user code may raise anything
        own = isinstance(error, ValueError) and backend.name in str(error)
        where = user_code_line(error, None)
        return str(error) if own else f"backend {backend.name} raises {type(error).__name__}{where}: {error}"
    return ""


def _maps(ocp: OCP) -> Iterator[tuple[str, Map, Parameters]]:
    """Yield dynamics, cost terms and constraints with their role in the problem and their parameters at the first knot.

    Dynamics that are user-defined discrete maps are left out.
    """
    for i, phase in enumerate(ocp.phases):
        if (system := phase.system) is not None:
            yield f"dynamics of phase {i}", next_state_of(system) or system, parameters_at(phase.parameters, 0)
    for kind, parts in (("term", ocp.terms()), ("constraint", ocp.constraints())):
        for part in parts:
            yield f"{kind} {part.name!r}", part.residual, parameters_at(part.parameters, 0)


def _failure(map: FunctionMap, x: Array, u: Array, p: Parameters) -> str:
    """Return the error of a function, or "". The first call also determines if the function is evaluated knot by knot."""
    rows = {name: np.asarray(v, float)[:, None] for name, v in p.items()}
    try:
        with np.errstate(all="ignore"):
            map.called.counted(list(map(_column(x[: map.manifold.nx]), _column(u[: map.nu]), np.zeros(1), rows)))
    except Exception as error:
        return next(iter(getattr(error, "__notes__", ())), str(error))
    return ""


def _column(x: Array) -> Array:
    """State or control as a batch of one, (n, 1), copied."""
    return x[:, None].copy()


_OF_VALUE = "avoid divisions by zero, and roots and logarithms of nonpositive numbers, e.g. by adding 1e-6"
_OF_SLOPE = (
    "a root or a norm has no derivative at zero: add a small number, sqrt(... + 1e-6); "
    "for the norm of v use sqrt(v @ v + 1e-6)"
)


class NotFinite(NamedTuple):
    """First non-finite knot of a part, such as "term 'speed'". of_value: the value is not finite; else only a derivative."""

    part: str
    knot: int
    time: float
    of_value: bool

    def sentence(self) -> str:
        """Describe the non-finite value or derivative and its knot."""
        what = "value" if self.of_value else "derivative"
        return f"the {what} of {self.part} is NaN or infinite, first at knot {self.knot}, t = {self.time:.3g} s"

    @property
    def remedy(self) -> str:
        """Advice for making the part finite."""
        return _OF_VALUE if self.of_value else _OF_SLOPE


def finiteness_warnings(ocp: OCP, guess: Guess | None = None) -> Iterator[str]:
    """Yield warnings about non-finite parts along a guess; default: x0 at every knot and zero controls, as for solvers."""
    xs, us = constant_guess(ocp) if guess is None else guess
    where = "x0 and zero controls" if guess is None else "the guess"
    yield from (f"at {where} {found.sentence()}; {found.remedy}" for found in not_finite(ocp, xs, us))


def not_finite(ocp: OCP, xs: Array, us: Array) -> list[NotFinite]:
    """Return all terms and constraints that are not finite along xs (N + 1, nx), us (N, nu), in the order of their first knots.

    A part is not finite if its value or first derivatives are not. Terms, and constraints, of equal name are reported once. Empty
    if the trajectory itself is not finite.
    """
    if not (np.isfinite(xs).all() and np.isfinite(us).all()):
        return []
    found: dict[str, NotFinite] = {}
    with np.errstate(all="ignore"):
        for flaw in _flaws(ocp, np.asarray(xs, float), np.asarray(us, float)):
            found.setdefault(flaw.part, flaw)
    return sorted(found.values(), key=lambda flaw: flaw.knot)


def explained(status: Status, ocp: OCP, xs: Array, us: Array) -> Status:
    """Add the cause of non-finite numbers and its remedy to the status of a solve that met them.

    The cause is the dynamics at x0, if they are not finite for any controls that are tried, or the first non-finite term or
    constraint at (xs, us). Unchanged for another status, if all of these are finite, and if the status names that part already.
    """
    if status.code is StatusCode.NON_FINITE and (at_start := _not_finite_at_start(ocp, us)):
        what, remedy = at_start
        message = f"{status.message} {what} at x0 are NaN or infinite for all controls that were tried."
        advice = f"Change x0, or the dynamics: {remedy}; or use a guess whose first controls give finite numbers."
        return replace(status, message=message, advice=advice)
    flaws = not_finite(ocp, xs, us) if status.code is StatusCode.NON_FINITE else []
    if not flaws:
        return status
    first = flaws[0]
    sentence_text = f"{_capital(first.sentence())}."
    if sentence_text in status.message:
        return status
    message = f"{status.message} {sentence_text}"
    advice = f"{_capital(first.remedy)}."
    located = status.knot is not None or "at knot" in (status.component or "")
    if located:  # the solver located it in the sum of all terms, or in a constraint
        return replace(status, message=message, advice=advice)
    return replace(status, message=message, knot=first.knot, component=first.part, advice=advice)


def _not_finite_at_start(ocp: OCP, us: Array) -> tuple[str, str] | None:
    """Return what of the first time step is not finite at x0, with its remedy; None if nothing is.

    Tried are the controls of us (N, nu) there, zero, and random ones, within bounds where there are any.
    """
    first = next((i for i, phase in enumerate(ocp.phases) if phase.dynamics.takes_time), 0)
    phase, knot = ocp.phases[first], ocp.phase_slices[first].start
    nu, rng = phase.dynamics.nu, np.random.default_rng(0)
    tried = np.vstack([np.nan_to_num(us[knot]), np.zeros(ocp.nu), rng.standard_normal((POINTS, ocp.nu))])
    if ocp.control_bounds is not None:
        lower, upper = (bound[knot] for bound in ocp.control_bounds)
        both = np.isfinite(lower) & np.isfinite(upper)
        tried[2:, both] = rng.uniform(lower[both], upper[both], (POINTS, int(both.sum())))
        tried = np.clip(tried, lower, upper)
    try:
        with np.errstate(all="ignore"):
            xs, p = np.tile(ocp.x0, (len(tried), 1)), parameters_at(phase.parameters, 0)
            x_next, A, B = phase.dynamics.linearize(xs, tried[:, :nu], ocp.start, float(phase.dt[0]), p)[:3]
    except Exception:  # user code may raise anything; errors at x0 are reported before the solve
        return None
    if not np.isfinite(x_next).all(axis=1).any():
        return "The dynamics", _OF_VALUE
    smooth = np.isfinite(A).all(axis=(1, 2)) & np.isfinite(B).all(axis=(1, 2))
    return None if smooth.any() else ("The derivatives of the dynamics", _OF_SLOPE)


def _capital(sentence: str) -> str:
    """Sentence with a capital first letter."""
    return sentence[0].upper() + sentence[1:]


def _flaws(ocp: OCP, xs: Array, us: Array) -> Iterator[NotFinite]:
    """Yield the first non-finite knot of each term and constraint that is not finite along a trajectory."""
    last = slice(ocp.horizon, ocp.horizon + 1)
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        for part in list[CostTerm | Constraint]((*phase.terms, *phase.constraints)):
            yield from _first_non_finite(part, knots.start, xs[knots], us[knots], ocp.t[knots])
    for part in list[CostTerm | Constraint]((*ocp.terminal, *ocp.terminal_constraints)):
        yield from _first_non_finite(part, ocp.horizon, xs[last], np.zeros((1, 0)), ocp.t[last])


def _first_non_finite(part: CostTerm | Constraint, first: int, x: Array, u: Array, t: Array) -> Iterator[NotFinite]:
    """Yield the first knot at which the value or a derivative of a part is not finite, if any.

    first: knot of the first row of x. Errors of user functions are ignored here.
    """
    p: Parameters = part.parameters
    try:
        j = residual_jacobians(part.residual, residual_batch(part.residual, x, u, t, p))
    except Exception:  # errors of user functions are reported elsewhere
        return
    kind = "term" if isinstance(part, CostTerm) else "constraint"
    whole = np.isfinite(j.value).all(axis=1)
    smooth = whole & np.isfinite(j.fx).all(axis=(1, 2)) & np.isfinite(j.fu).all(axis=(1, 2))
    if not smooth.all():
        k = int(np.argmin(smooth))
        yield NotFinite(f"{kind} {part.name!r}", first + k, float(t[k]), not whole[k])
