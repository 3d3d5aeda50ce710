"""What the interior point asks for, and the answers.

A method yields requests; whoever drives it sends the answer to each.  Arrays (points, multipliers, steps) stay with the one that
answers, in the slot of the problem; requests and answers carry a few numbers.  A slot has:

the point          where the solve is: v = (x, u, s), its values, derivatives, and the multipliers there
the trial          the point that was tried last
the step           of the last Newton system, and the corrected one behind it

``scale`` is the factor of the objective, ``mu`` the barrier parameter, ``share`` how much of a distance from a bound, or of a
multiplier, a step may take (tau of eq. 15 of Waechter & Biegler, Math. Program. 106, 2006).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from trajopt.solvers.rules.filter import Filter
from trajopt.solvers.rules.interior_measures import Violation


class Start(NamedTuple):
    """Take the guess, moved off its bounds by the share ``push`` (section 3.6), with first derivatives. Answer: :class:`Begun`."""

    push: float


class Begun(NamedTuple):
    """The objective and the violation of the start; steepest: the largest entry of the objective's gradient."""

    objective: float
    at: Violation
    steepest: float


class Way(IntEnum):
    """Multipliers zl, zu of the bounds. COLD: at most 1 and mu over the distance; NEAR: mu over the distance, near a solution;
    GIVEN: those that were given, but no less than that; AGAIN: at most LARGEST_ESTIMATE and mu over the distance.
    """

    COLD = 0
    NEAR = 1
    GIVEN = 2
    AGAIN = 3


class Multipliers(NamedTuple):
    """Multipliers for the point: those of the bounds as ``way`` says, the others given, or the least-squares estimate (eq. 36);
    zero where that has entries above LARGEST_ESTIMATE.

    Answer: the sums of :func:`trajopt.solvers.rules.interior_measures.optimality`.
    """

    way: Way
    mu: float
    scale: float


class Measure(NamedTuple):
    """Answer: the sums of :func:`trajopt.solvers.rules.interior_measures.optimality` at the point."""

    mu: float
    scale: float


class Trial(NamedTuple):
    """The objective and the violation of a point that was tried."""

    objective: float
    at: Violation


class Newton(NamedTuple):
    """Find second derivatives, solve the Newton system (eq. 13) for a step, and go its largest length.

    reflect: whether, where the system is not convex, eigenvalues are reflected; else all of it is shifted. differentiate: whether
    the trial gets first derivatives. centered: with mu = 0, whether the step is for the sigma mean that the quality function
    chooses, low <= sigma <= high; mean: the mean complementarity; dual, primal: mean squares of the gradient of the Lagrangian and
    of the violation. Answer: :class:`Direction`.
    """

    scale: float
    reflect: bool
    differentiate: bool
    mu: float
    centered: bool
    share: float
    mean: float = 0.0
    dual: float = 0.0
    primal: float = 0.0
    low: float = 0.0
    high: float = 0.0


class Direction(NamedTuple):
    """A step. found: 0 where no shift makes the system convex. alpha, alpha_z: the largest step lengths; slope: of the barrier's
    objective along it; size: its largest entry; mu: its barrier parameter. shift, reflected: what was added to the diagonal, and at
    how many knots eigenvalues changed their sign. trial: at the length alpha.
    """

    found: float
    alpha: float
    alpha_z: float
    slope: float
    size: float
    mu: float
    shift: float
    reflected: float
    trial: Trial


class Try(NamedTuple):
    """Go the length ``alpha`` along the step. Answer: :class:`Trial`."""

    alpha: float


class Correct(NamedTuple):
    """Solve the system again, for c <- length c + c(trial) in the place of the residuals c (section 2.4), and go along the
    corrected step as far as its bounds allow. length: of the step that led to the trial; first: whether c is that of the point,
    else that of the last correction. Answer: :class:`Corrected`.
    """

    length: float
    first: bool
    share: float


class Corrected(NamedTuple):
    """A corrected step (see :class:`Direction`), and the point it leads to."""

    alpha: float
    alpha_z: float
    size: float
    objective: float
    at: Violation


class Take(NamedTuple):
    """Go to the trial, alpha along the step or the corrected one; multipliers by alpha, those of bounds by alpha_z, within a factor
    of mu over the distance (eq. 16). known: whether its first derivatives are. Answer: the sums of
    :func:`trajopt.solvers.rules.interior_measures.optimality` there.
    """

    corrected: bool
    alpha: float
    alpha_z: float
    known: bool
    mu: float
    scale: float


class Restore(NamedTuple):
    """Steps for feasibility alone (:mod:`trajopt.solvers.interior.feasibility`), at most so many, until ``deadline`` (of
    time.perf_counter()).

    at: the violation of the point; filter: of the barrier problem that is left; wholly: whether nothing but feasible points is
    enough. Answer: :class:`Restored`; None where whoever answers leaves such problems to others.
    """

    at: Violation
    mu: float
    scale: float
    filter: Filter
    most: int
    deadline: float
    wholly: bool


class Restored(NamedTuple):
    """Where it ended and how, see :mod:`trajopt.solvers.interior.feasibility`; stationary: whether no step reduces more than a
    thousandth of the violation to first order; slow: whether as many steps again would leave most of it, at the rate of the last.
    """

    verdict: str
    iterations: int
    objective: float
    at: Violation
    stationary: bool = False
    slow: bool = False


class Return(NamedTuple):
    """Go back to where :class:`Restore` has begun. Answer: :class:`Trial`."""


Request = Start | Multipliers | Measure | Newton | Try | Correct | Take | Restore | Return
