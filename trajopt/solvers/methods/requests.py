"""What Newton's method asks for, and the answers.

A method yields requests; whoever drives it sends the answer to each.  Arrays (trajectories, expansions, steps) stay with the
one that answers, in the slot of the problem; requests and answers carry a few numbers.  A slot has:

the point                  where the solve is: trajectory, expansion, costates, errors
the last step              the policy of the step that led there
two steps, in places 0, 1  a policy, its linear step (dx, du) and its longest step length
trials                     the trajectories of the step lengths tried last, by row

N knots, states of dimension n (tangent), m controls.  ``mu`` is the weight of the barrier of the bounds on the controls, 0
without bounds.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

from dynamics_backends.protocol import Array

FRACTIONS = (1.0, 0.25, 0.0)
"""Fractions of the exact curvature that are tried until the LQ problem is convex; more of them give no better steps."""
GAUSS_NEWTON = len(FRACTIONS) - 1
"""The number of the fraction without curvature."""
TINY = 2.2250738585072014e-308
"""The smallest cost that errors are compared with."""


class Start(NamedTuple):
    """Take the guess, x0 as its first state, controls moved into the interior of their bounds.

    Answer: its cost, NaN or infinite where that is not finite; 0 where the cost is not yet known and nothing depends on it.
    """


class FirstGains(NamedTuple):
    """Gains of the Gauss-Newton LQ problem about the guess, whose Hessian has ``delta`` I added, None for zero gains; with
    delta = 0 the multipliers of the bounds become mu / slack.

    Answer: the :class:`Point` with costates under these gains; found: whether the LQ problem was convex.
    """

    delta: float | None
    mu: float = 0.0


class IsFinite(NamedTuple):
    """True if the cost at the guess and all its derivatives are finite. Answer: bool."""


class Step(NamedTuple):
    """Solve the LQ problem whose Hessian has a fraction of the exact curvature and ``delta`` I added, and roll out its full step.

    place: where the step goes. first, past: the numbers of the fractions that are tried until the LQ problem is convex, from
    ``first`` to before ``past``. Answer: a :class:`Direction`, or None where no fraction is convex.
    """

    place: int
    first: int
    past: int
    delta: float = 0.0
    mu: float = 0.0


class Roll(NamedTuple):
    """Roll out the step in a place with the lengths longest / 2^i, i = first, first + 1, ...

    Answer: a :class:`Trial` for each, at least one and at most ``most``; these are rows 0, 1, ...
    """

    place: int
    first: int
    most: int


class Accept(NamedTuple):
    """Go to the trajectory of a row of trials along the step in a place, expand there, and let the multipliers of the bounds take
    their own step.

    asked: fractions of the curvature that the next step will ask for, as bits. Answer: the new :class:`Point`.
    """

    place: int
    row: int
    asked: int
    mu: float = 0.0


class Restore(NamedTuple):
    """Go to the rollout of the controls from x0 under the last gains, without gaps.

    Answer: the new :class:`Point`; found: False where it is not finite, and nothing has changed.
    """

    asked: int
    mu: float = 0.0


class OnBounds(NamedTuple):
    """Roll out the motion with controls on the bounds that multipliers hold them at. Answer: the :class:`Point` there; the
    solve stays where it is.
    """


class Turn(NamedTuple):
    """Go to the point of :class:`OnBounds`. No answer (None)."""


class Gains(NamedTuple):
    """Gains about the point, for the solution: of the first fraction of the curvature from ``first`` on that is convex, else those
    of the last step; zero for controls held by bounds. No answer (None).
    """

    first: int


class Point(NamedTuple):
    """A point and its errors.

    gradient: largest entry of the Lagrangian's gradient in the controls; scaled: by the size of its terms
    (:mod:`trajopt.solvers.shooting.optimality`). defect, theta: largest gap of the dynamics, and l1 norm of all. travel: l1 norm of
    the differences between the states of neighboring knots. least, greatest: of the products of multipliers and slacks of the
    bounds. logs: the barrier with mu = 1. found: see the request. NaN where numbers are not finite.
    """

    cost: float
    gradient: float
    scaled: float
    defect: float
    theta: float
    travel: float
    least: float
    greatest: float
    logs: float
    found: float

    def complementarity(self, mu: float = 0.0) -> float:
        """The largest difference between mu and a product of a multiplier and its slack; 0 without bounds."""
        return max(self.greatest - mu, mu - self.least, 0.0)

    def kkt(self, mu: float = 0.0) -> float:
        """The scaled KKT error, with complementarity at mu; NaN where numbers are not finite."""
        rest = max(self.complementarity(mu) / size_of(self.cost), self.defect)
        return rest if self.scaled <= rest else self.scaled


NOWHERE = Point(nan, nan, nan, nan, nan, nan, inf, -inf, 0.0, 0.0)
"""Before there is a point."""


class Trial(NamedTuple):
    """A trajectory that was tried: its cost, the barrier with mu = 1, and the l1 norm of the gaps, infinite where it is not
    finite.
    """

    cost: float
    logs: float
    theta: float


class Direction(NamedTuple):
    """A step. fraction: the number of the fraction of the curvature. slope: of the cost with its barrier along the step.
    longest: the largest step length that the bounds allow, at most 1. size: largest entry of (dx, du). trial: of the longest
    step; it is row 0.
    """

    fraction: int
    slope: float
    longest: float
    size: float
    trial: Trial


def hessian_name(fraction: float | None) -> str:
    """Name of a curvature fraction in records; None: no step was taken."""
    if fraction is None or fraction == 1.0:
        return "newton"
    return "gauss_newton" if fraction == 0.0 else "mixed"


def size_of(cost: float) -> float:
    """What errors in the unit of the cost are compared with."""
    return max(abs(cost), TINY)


class Solved(NamedTuple):
    """The trajectory of a slot, xs (N + 1, nx), us (N, m), with gains K (N, m, n) and steps k (N, m)."""

    xs: Array
    us: Array
    K: Array
    k: Array


Request = Start | FirstGains | IsFinite | Step | Roll | Accept | Restore | OnBounds | Turn | Gains
