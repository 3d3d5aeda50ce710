"""What the line search of shooting methods asks for, and the answers.

As in :mod:`trajopt.solvers.methods.requests`, arrays stay in the slot of the problem. A slot has:

the iterate                where the solve is: trajectory, expansion, reduced gradient, costates
the best iterate           the one that was marked last
the last policy            whose gains the scaled KKT error is measured under; zero gains before the first step
places 0, 1                each with a step (a policy and its linear step (dx, du)), the trajectories of the step lengths tried
                           last along it, by row, and the next iterate, the trial that was expanded last; one place where one
                           model serves

N knots, states of dimension n (tangent), m controls. ``model``: the number of what is solved for a direction
(:mod:`trajopt.solvers.shooting.ddp_model`), 0 where there is one. ``mu``: its damping.
"""

from __future__ import annotations

from typing import NamedTuple

from trajopt.solvers.rules.line_search import Trial

STAY, GO, MARK = range(3)
"""Moves: none; to the next iterate; to the next iterate, where the present one becomes the best one."""


class Start(NamedTuple):
    """Take the guess, from x0, controls within their bounds, with the parts between nodes rolled out, and expand there.

    mu: of the first step. Answer: a :class:`Point`.
    """

    mu: float


class Direction(NamedTuple):
    """Solve the LQ problem of a model, after going to the next iterate as ``going`` says.

    place: where the step goes. definite: whether the model is to make Quu positive definite. rolled: whether to roll out the full
    step. Answer: a :class:`Step`.
    """

    place: int
    model: int
    definite: bool
    mu: float
    going: int
    rolled: bool


class Roll(NamedTuple):
    """Roll out the step in a place with the lengths 2^-i, i = first, first + 1, ...; bent: along its parabola.

    Answer: a :class:`Trial` for each, at least one and at most ``count``, which are rows 0, 1, ...; none where nothing is bent.
    """

    place: int
    first: int
    count: int  # type: ignore[assignment]
    bent: bool


class Correct(NamedTuple):
    """Close the gaps left by the last trial too, under the same policy (J. Nocedal, S. Wright, 2006, section 18.3).

    again: whether that was a correction itself. Answer: the :class:`Trial` of the corrected full step; it is row 0.
    """

    place: int
    again: bool


class Expand(NamedTuple):
    """Let a row of trials be the next iterate, and expand there with the Hessian of a model.

    mu: of the step behind it, as far as it is known. Answer: a :class:`Point`.
    """

    place: int
    row: int
    model: int
    mu: float


class Rate(NamedTuple):
    """Measure the next iterate, behind a step of length ``alpha``, under the policy of the step.

    Answer: its scaled KKT error, and the slope of the cost along the step there, with the gaps that are left to close.
    """

    place: int
    alpha: float


class Choose(NamedTuple):
    """The policy in a place is the last one now, and its next iterate the one to go to. No answer (None)."""

    place: int


class Go(NamedTuple):
    """Go to the next iterate; going: GO or MARK. No answer (None)."""

    going: int


class Back(NamedTuple):
    """Go to the best iterate. No answer (None)."""


class Kkt(NamedTuple):
    """Measure the iterate under the gains of the last policy. Answer: an :class:`Optimality`."""


class Gains(NamedTuple):
    """Gains about the iterate, of a model; those of the last policy where Quu cannot be factorized. They are part of the
    solution. No answer (None).
    """

    model: int
    mu: float


class Point(NamedTuple):
    """An iterate and its errors; finite: whether its expansion is, else the others may be anything.

    gradient, defect: largest entries, of the reduced gradient projected on the bounds and of the gaps, NaN where they are not
    finite. gap: l1 norm of the gaps, 0 at rounding level. violation: how far controls are beyond their bounds.
    """

    finite: bool
    cost: float
    gradient: float
    defect: float
    gap: float
    violation: float


class Optimality(NamedTuple):
    """The scaled KKT error of an iterate, and the largest entry of its gradient, both under feedback gains."""

    kkt: float
    gradient: float


class Step(NamedTuple):
    """A step. failed: the knot where Quu could not be factorized, and nothing else is told then, else -1.

    The cost changes by alpha D1 + alpha^2/2 D2 along it. size: largest entry of (dx, du). kkt: the scaled KKT error of the iterate
    under its gains. trial: of the full step; it is row 0.
    """

    failed: int
    D1: float
    D2: float
    size: float
    kkt: float
    trial: Trial


Request = Start | Direction | Roll | Correct | Expand | Rate | Choose | Go | Back | Kkt | Gains
