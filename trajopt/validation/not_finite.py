"""Values and derivatives that are NaN or infinite: the part of the problem, its first knot and a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Parameters
from trajopt.guesses.guesses import constant_guess
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import residual_batch, residual_jacobians
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm, parameters_at
from trajopt.results.status import Status, StatusCode

_OF_VALUE = "avoid divisions by zero, and roots and logarithms of nonpositive numbers, e.g. by adding 1e-6"
_OF_SLOPE = (
    "a root or a norm has no derivative at zero: add a small number, sqrt(... + 1e-6); "
    "for the norm of v use sqrt(v @ v + 1e-6)"
)
TRIED = 3
"""Number of random controls at x0 that are tried for finite dynamics."""


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
    tried = np.vstack([np.nan_to_num(us[knot]), np.zeros(ocp.nu), rng.standard_normal((TRIED, ocp.nu))])
    if ocp.control_bounds is not None:
        lower, upper = (bound[knot] for bound in ocp.control_bounds)
        both = np.isfinite(lower) & np.isfinite(upper)
        tried[2:, both] = rng.uniform(lower[both], upper[both], (TRIED, int(both.sum())))
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
