"""Requests of the interior-point method, and their answers.

The method yields requests; the driver sends back the answer to each.  Arrays (points, multipliers, steps) stay in the slot of the
problem; requests and answers carry a few numbers.  A slot holds:

the point          the current iterate: v = (x, u, s), its values, derivatives and multipliers
the trial          the last trial point
the step           solution of the last Newton system, and its second-order correction

``scale`` is the factor of the objective, ``mu`` the barrier parameter, ``tau`` the fraction-to-the-boundary parameter for
variables and multipliers (tau of eq. 15 of Waechter & Biegler, Math. Program. 106, 2006).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

from trajopt.solvers.rules.interior_measures import Violation
from trajopt.solvers.rules.line_search import Filter


class Start(NamedTuple):
    """Load the guess, pushed off its bounds by the fraction ``push`` (section 3.6), and differentiate. Answer: :class:`Begun`."""

    push: float


class Begun(NamedTuple):
    """Objective and violation at the start; steepest: largest entry of the objective's gradient in controls and later states."""

    objective: float
    at: Violation
    steepest: float


class MultiplierStart(IntEnum):
    """Initialization of the bound multipliers zl, zu, where d is the distance to the bound; zero without a bound.

    COLD: min(1, mu / d). NEAR, for a guess near a solution: mu / d. GIVEN: multipliers of the guess, at least mu / d. AGAIN,
    after restoration: min(LARGEST_ESTIMATE, mu / d), with the constant of :mod:`trajopt.solvers.interior.newton`.
    """

    COLD = 0
    NEAR = 1
    GIVEN = 2
    AGAIN = 3


class Multipliers(NamedTuple):
    """Initialize the multipliers at the point: those of the bounds by ``start``, the others from the guess or by least squares.

    Those of the guess are used for GIVEN. The least-squares estimate (eq. 36) is replaced by zero if it has entries above
    LARGEST_ESTIMATE. Answer: the sums of :func:`trajopt.solvers.rules.interior_measures.optimality`.
    """

    start: MultiplierStart
    mu: float
    scale: float


class Measure(NamedTuple):
    """Measure the point. Answer: the sums of :func:`trajopt.solvers.rules.interior_measures.optimality`."""

    mu: float
    scale: float


class Trial(NamedTuple):
    """Objective and violation of a trial point."""

    objective: float
    at: Violation


class SolveNewton(NamedTuple):
    """Compute second derivatives, solve the Newton system (eq. 13), and evaluate the trial at the largest step length.

    reflect: True to reflect negative eigenvalues if the system is not convex; if False, or if that fails, the whole diagonal is
    shifted. differentiate: True to compute first derivatives of the trial. centered, with mu = 0: True to choose mu = sigma mean
    by the quality function, with low <= sigma <= high. mean: the mean complementarity. dual, primal: mean squares of the
    Lagrangian's gradient and of the violation. Answer: :class:`Direction`.
    """

    scale: float
    reflect: bool
    differentiate: bool
    mu: float
    centered: bool
    tau: float
    mean: float = 0.0
    dual: float = 0.0
    primal: float = 0.0
    low: float = 0.0
    high: float = 0.0


class Direction(NamedTuple):
    """Search direction of a Newton system.

    found: 0 if no shift makes the system convex; step and trial are then undefined. alpha, alpha_z: the largest step lengths of
    variables and bound multipliers. slope: directional derivative of the barrier objective. size: the largest absolute entry of
    the step. mu: the barrier parameter of the step. shift: number added to the diagonal. reflected: number of knots with
    reflected eigenvalues. trial: the point at the length alpha.
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
    """Evaluate the trial point at step length ``alpha``. Answer: :class:`Trial`."""

    alpha: float


class Correct(NamedTuple):
    """Second-order correction: solve the system for the residuals c <- length c + c(trial) (section 2.4).

    The trial is the longest corrected step that the bounds allow. length: step length of the last trial. first: True if c is that
    of the point, False if that of the last correction. Answer: :class:`Corrected`.
    """

    length: float
    first: bool
    tau: float


class Corrected(NamedTuple):
    """A corrected step (see :class:`Direction`), with objective and violation of its trial point."""

    alpha: float
    alpha_z: float
    size: float
    objective: float
    at: Violation


class Take(NamedTuple):
    """Accept the trial as the new point, with length alpha along the step, or along the correction if ``corrected``.

    Multipliers of dynamics and rows move by alpha, those of bounds by alpha_z; the latter are limited to a factor KAPPA_SIGMA
    around mu over the distance (eq. 16). known: True if first derivatives of the trial are known. Answer: the sums of
    :func:`trajopt.solvers.rules.interior_measures.optimality` there.
    """

    corrected: bool
    alpha: float
    alpha_z: float
    known: bool
    mu: float
    scale: float


class Restore(NamedTuple):
    """Run the restoration phase (:mod:`trajopt.solvers.interior.feasibility`), at most ``max_steps`` steps, until ``deadline``.

    deadline: on the clock of time.perf_counter() [s]. at: the violation of the point. filter: the filter of the barrier problem.
    to_feasible: True to continue to a feasible point; False to stop also where the violation has fallen by 10 % and the filter
    accepts the point. Answer: :class:`Restored`, or None if the engine has no restoration.
    """

    at: Violation
    mu: float
    scale: float
    filter: Filter
    max_steps: int
    deadline: float
    to_feasible: bool


class RestorationEnd(StrEnum):
    """Reason why the restoration phase ended; LEAST_VIOLATION: the violation is stationary."""

    ACCEPTABLE = "acceptable point"
    LEAST_VIOLATION = "least violation"
    NO_PROGRESS = "the violation hardly decreases"
    NO_STEP = "no acceptable step"
    LIMIT = "iteration or time limit"


class Restored(NamedTuple):
    """Result of the restoration phase: steps, objective and violation of its last point.

    stationary: True if no entry of the gradient of 1/2 |c|^2, within the bounds, exceeds a thousandth of |c|, for the residuals
    c. slow: True if the same number of steps again, at the rate of the last ones, would leave more than half of |c|.
    """

    end: RestorationEnd
    iterations: int
    objective: float
    at: Violation
    stationary: bool = False
    slow: bool = False


class Return(NamedTuple):
    """Return to the point at which :class:`Restore` started, and differentiate there. Answer: :class:`Trial`."""


Request = Start | Multipliers | Measure | SolveNewton | Try | Correct | Take | Restore | Return
