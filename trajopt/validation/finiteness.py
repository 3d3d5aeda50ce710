"""Cost terms and constraints with non-finite values or derivatives along a trajectory: name, first knot and remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Parameters
from trajopt.guesses.guesses import Guess, constant_guess
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import residual_batch, residual_jacobians
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm
from trajopt.results.status import Status, StatusCode

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
    """Return all terms and constraints that are not finite along xs (N + 1, nx), us (N, nu), in the order of their first knots;
    empty if the trajectory itself is not finite."""
    if not (np.isfinite(xs).all() and np.isfinite(us).all()):
        return []
    found: dict[str, NotFinite] = {}
    with np.errstate(all="ignore"):
        for flaw in _flaws(ocp, np.asarray(xs, float), np.asarray(us, float)):
            found.setdefault(flaw.part, flaw)
    return sorted(found.values(), key=lambda flaw: flaw.knot)


def explained(status: Status, ocp: OCP, xs: Array, us: Array) -> Status:
    """Add the first non-finite term or constraint at (xs, us) to the status of a solve that stopped at non-finite numbers, unless
    the status already names it."""
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


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _flaws(ocp: OCP, xs: Array, us: Array) -> Iterator[NotFinite]:
    last = slice(ocp.horizon, ocp.horizon + 1)
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        for part in list[CostTerm | Constraint]((*phase.terms, *phase.constraints)):
            yield from _first_non_finite(part, knots.start, xs[knots], us[knots], ocp.t[knots])
    for part in list[CostTerm | Constraint]((*ocp.terminal, *ocp.terminal_constraints)):
        yield from _first_non_finite(part, ocp.horizon, xs[last], np.zeros((1, 0)), ocp.t[last])


def _first_non_finite(part: CostTerm | Constraint, first: int, x: Array, u: Array, t: Array) -> Iterator[NotFinite]:
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
