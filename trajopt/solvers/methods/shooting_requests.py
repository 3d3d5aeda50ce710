"""Requests of the shooting methods, and their answers.

As in :mod:`trajopt.solvers.methods.requests`, arrays stay in the slot of the problem. A slot holds:

the iterate                trajectory, expansion, reduced gradient, costates
the best iterate           the iterate marked last
the direction              the last policy and its linear step (dx, du); the gains of the policy, zero before the first step,
                           define the scaled KKT error
the trials                 trajectories of the last step lengths, by row
the next iterate           the trial expanded last
the other direction        that of another model, with its next iterate, if several models are used

The first fields of a request are the arguments of its kernel.

N knots, states of dimension n (tangent), m controls. ``model``: index of the model of the direction
(:mod:`trajopt.solvers.shooting.ddp_model`), 0 for a single model. ``mu``: its damping.
"""

from __future__ import annotations

from typing import NamedTuple

from trajopt.solvers.rules.line_search import Trial

STAY, GO, MARK = range(3)
"""Moves of the slot: none; to the next iterate; to the next iterate, with the present one marked as the best."""


class Start(NamedTuple):
    """Load the guess, clip its controls to their bounds, roll out from x0 and between nodes, and expand there.

    Feedback may hold a guess whose open-loop rollout diverges. mu: damping of the first step. Answer: a :class:`Point`.
    """

    mu: float


class SolveLQ(NamedTuple):
    """Solve the LQ problem of a model, after the move ``going`` of the slot; the result becomes the direction.

    definite: True to make Quu positive definite. rolled: True to roll out the full step. Answer: a :class:`Direction`.
    """

    mu: float
    going: int
    rolled: bool
    model: int
    definite: bool


class Roll(NamedTuple):
    """Roll out the step with the lengths 2^-i, i = first, first + 1, ...; parabolic: True for the parabola.

    Answer: a list of at least one and at most ``count`` :class:`Trial`, stored in rows 0, 1, ...; empty if there is no parabola.
    """

    first: int
    count: int  # type: ignore[assignment]
    parabolic: bool


class Correct(NamedTuple):
    """Second-order correction: close the gaps of the last trial too, under the same policy (Nocedal, Wright 2006, sec. 18.3).

    again: True if the last trial was a correction. Answer: the :class:`Trial` of the corrected full step, stored in row 0.
    """

    again: bool


class Expand(NamedTuple):
    """Make the trial in a row the next iterate, and expand there with the Hessian of a model.

    mu: expected damping of the following step. Answer: a :class:`Point`.
    """

    row: int
    mu: float
    model: int


class Rate(NamedTuple):
    """Measure the next iterate, after a step of length ``alpha``, under the policy of the step.

    Answer: its scaled KKT error, and the derivative there of the cost along the step, which goes on to close the gaps still open.
    """

    alpha: float


class Swap(NamedTuple):
    """Exchange the direction, with its next iterate, and the other one. No answer (None)."""


class Go(NamedTuple):
    """Move to the next iterate; going: GO or MARK. No answer (None)."""

    going: int


class Back(NamedTuple):
    """Return to the best iterate. No answer (None)."""


class Kkt(NamedTuple):
    """Measure the iterate under the gains of the last policy. Answer: an :class:`Optimality`."""


class Gains(NamedTuple):
    """Compute feedback gains of the solution with a model; if Quu cannot be factorized, take those of the last policy.

    No answer (None).
    """

    mu: float
    model: int


class Point(NamedTuple):
    """Errors of an iterate; finite: True if its expansion is finite, else the other fields are undefined.

    gradient: largest entry of the reduced gradient (open loop) projected on the bounds. defect, theta: largest defect and l1 norm
    of the defects, 0 if they are at rounding level. violation: largest violation of the control bounds.
    """

    finite: bool
    cost: float
    gradient: float
    defect: float
    theta: float
    violation: float


class Optimality(NamedTuple):
    """The scaled KKT error of an iterate, and the largest entry of its gradient, both under feedback gains."""

    kkt: float
    gradient: float


class Direction(NamedTuple):
    """Search direction. failed: the knot where Quu could not be factorized (other fields are then undefined), else -1.

    The predicted cost change is alpha D1 + alpha^2/2 D2. size: largest absolute entry of (dx, du). kkt: scaled KKT error of the
    iterate under the gains of the step. trial: of the full step, stored in row 0; undefined if it was not rolled out.
    """

    failed: int
    D1: float
    D2: float
    size: float
    kkt: float
    trial: Trial


Request = Start | SolveLQ | Roll | Correct | Expand | Rate | Swap | Go | Back | Kkt | Gains
