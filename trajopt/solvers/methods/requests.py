"""Requests of Newton's method, and their answers.

The method yields requests; the driver sends back the answer to each.  Arrays (trajectories, expansions, steps) stay in the slot of
the problem; requests and answers carry a few numbers.  A slot holds:

the point                  the current iterate: trajectory, expansion, costates, errors
the last step              the policy of the step that led to the point
two steps, in places 0, 1  a policy, its linear step (dx, du) and its longest step length
trials                     the trajectories of the last trial step lengths, by row

N knots, states of dimension n (tangent), m controls.  ``mu`` is the weight of the barrier of the bounds on the controls, 0
without bounds. ``place`` is that of a step, ``row`` that of a trial.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

from dynamics_backends.protocol import Array
from trajopt.solvers.rules.barrier import PUSH
from trajopt.solvers.rules.cost_size import size_of

FRACTIONS = (1.0, 0.25, 0.0)
"""Curvature fractions, tried in this order until the LQ problem is convex; more fractions give no better steps."""
GAUSS_NEWTON = len(FRACTIONS) - 1
"""Index of the fraction 0, without curvature."""


class Start(NamedTuple):
    """Load the guess, with x0 as its first state and controls moved into the interior of their bounds.

    Answer: the cost, NaN or infinite if it is not finite; 0 if the cost is not computed yet and not needed. push: smallest distance
    of the controls from their bounds, relative to the bound and the range.
    """

    push: float = PUSH


class FirstGains(NamedTuple):
    """Compute gains of the Gauss-Newton LQ problem at the point, with ``delta`` I added to its Hessian; None for zero gains.

    With delta = 0 the multipliers of the bounds become mu / slack. Answer: the :class:`Point` with costates under these gains;
    found: True if the LQ problem was convex and the gains are finite. Gains are zero if found is False.
    """

    delta: float | None
    mu: float = 0.0


class IsFinite(NamedTuple):
    """Test if the cost at the guess and all derivatives of its expansion are finite. Answer: bool."""


class Step(NamedTuple):
    """Solve the LQ problem with a curvature fraction and ``delta`` I in its Hessian, and roll out the longest step.

    This is the full step, shortened by the bounds. place: 0 or 1, storage of the step. first, past: range of indices in
    FRACTIONS, tried in order until the LQ problem is convex; ``past`` is excluded. Answer: a :class:`Direction`, or None if no
    fraction gives a convex problem.
    """

    place: int
    first: int
    past: int
    delta: float = 0.0
    mu: float = 0.0


class Roll(NamedTuple):
    """Roll out the step in a place with the lengths longest / 2^i, i = first, first + 1, ...

    Answer: a list of at least one and at most ``max_trials`` :class:`Trial`, stored in rows 0, 1, ...
    """

    place: int
    first: int
    max_trials: int


class Accept(NamedTuple):
    """Accept the trial in a row as the new point, expand there, and step the multipliers of the bounds.

    fractions: curvature fractions that the next step may use, bit i for FRACTIONS[i]. Answer: the new :class:`Point`.
    """

    place: int
    row: int
    fractions: int
    mu: float = 0.0


class Restore(NamedTuple):
    """Replace the point by a rollout of the controls from x0 under the last gains, without defects.

    With bounds, its controls are then moved into their interior, which may open small defects, and the multipliers become mu /
    slack. fractions: see :class:`Accept`. Answer: the new :class:`Point`; if it is not finite, the point stays, and is the answer
    with found False.
    """

    fractions: int
    mu: float = 0.0


class OnBounds(NamedTuple):
    """Roll out a candidate with controls on their active bounds, from x0 under the last gains.

    These gains become zero for such controls. Answer: the :class:`Point` of the candidate; the slot's point is unchanged.
    """


class AcceptOnBounds(NamedTuple):
    """Accept the point of :class:`OnBounds`. No answer (None)."""


class Gains(NamedTuple):
    """Compute feedback gains of the solution at the point. No answer (None).

    They use the first curvature fraction from index ``first`` on with a convex LQ problem, else the gains of the last step. Gains
    and feedforward steps of controls at active bounds are zero.
    """

    first: int


class Point(NamedTuple):
    """Errors of a point: cost, gradient, defects and products of bound multipliers and slacks.

    gradient: largest entry of the Lagrangian's gradient in the controls under the last gains; scaled: the same, with each entry
    divided by the size of its terms (:mod:`trajopt.solvers.rules.cost_size`); both are NaN if the expansion is not finite.
    defect, theta: largest defect of the dynamics, and l1 norm of all defects. travel: l1 norm of the differences between the
    states of neighboring knots. min_product, max_product: smallest and largest product of a bound multiplier and its slack;
    infinity and minus infinity without bounds. logs: the barrier with mu = 1. found: 1 or 0, see the request.
    """

    cost: float
    gradient: float
    scaled: float
    defect: float
    theta: float
    travel: float
    min_product: float
    max_product: float
    logs: float
    found: float

    def complementarity(self, mu: float = 0.0) -> float:
        """Complementarity error: largest difference between mu and a product of multiplier and slack; 0 without bounds."""
        return max(self.max_product - mu, mu - self.min_product, 0.0)

    def kkt(self, mu: float = 0.0) -> float:
        """Scaled KKT error: the largest of scaled gradient, complementarity for mu relative to the cost, and defect.

        Returns NaN if the gradient is NaN.
        """
        rest = max(self.complementarity(mu) / size_of(self.cost), self.defect)
        return rest if self.scaled <= rest else self.scaled


NOWHERE = Point(nan, nan, nan, nan, nan, nan, inf, -inf, 0.0, 0.0)
"""Placeholder before the first point exists."""


class Trial(NamedTuple):
    """Trial trajectory: cost, barrier with mu = 1, and l1 norm theta of the defects.

    The barrier is infinite outside the bounds, theta if a state is not finite.
    """

    cost: float
    logs: float
    theta: float


class Direction(NamedTuple):
    """Search direction. fraction: index of the curvature fraction. slope: directional derivative of cost plus barrier.

    longest: the largest step length that the bounds allow, at most 1. size: largest absolute entry of (dx, du). trial: at the
    longest step, stored in row 0.
    """

    fraction: int
    slope: float
    longest: float
    size: float
    trial: Trial


def hessian_name(fraction: float | None) -> str:
    """Return the name in records of a curvature fraction: "newton" for 1 and None (no step), "gauss_newton" for 0, else "mixed"."""
    if fraction is None or fraction == 1.0:
        return "newton"
    return "gauss_newton" if fraction == 0.0 else "mixed"


class Solved(NamedTuple):
    """Trajectory of a slot, xs (N + 1, nx), us (N, m), with gains K (N, m, n) and feedforward steps k (N, m)."""

    xs: Array
    us: Array
    K: Array
    k: Array


Request = Start | FirstGains | IsFinite | Step | Roll | Accept | Restore | OnBounds | AcceptOnBounds | Gains
