"""Initial guesses of a solve.

The states of a guess need not satisfy the dynamics. Its first state is replaced by x0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.guess import Guess as Guess, Motion as Motion, as_guess as as_guess
from trajopt.problem.ocp import OCP
from trajopt.stage.evaluation import Direction, Shooting
from trajopt.stage.evaluators import evaluator_for


def constant_guess(ocp: OCP, u: Array | float = 0.0) -> Guess:
    """Guess with x0 at every knot, and controls u: a number, (nu,) or (N, nu). Raises ValueError for controls of another shape.

    >>> import trajopt as to
    >>> system = to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1)
    >>> ocp = to.OCP.single_phase(to.SampledSystem(to.make_backend(system, "forward_ad"), "euler"), [2.0], 3, 0.1)
    >>> constant_guess(ocp, 0.5).us.T
    array([[0.5, 0.5, 0.5]])
    """
    return Guess(np.tile(ocp.x0, (ocp.horizon + 1, 1)), _controls(ocp, u))


def quasi_static_guess(ocp: OCP, controls: Callable[[Array], Array], xs: Array | None = None) -> Guess:
    """Guess with controls that hold each state: ``controls(xs[:-1])`` maps (N, nx) to (N, nu); xs (N + 1, nx), default x0.

    Raises ValueError for states or controls of another shape.
    """
    knots = ocp.horizon + 1, ocp.manifold.nx
    xs = np.tile(ocp.x0, (ocp.horizon + 1, 1)) if xs is None else _broadcast("xs", xs, "(N + 1, nx)", knots)
    return Guess(xs, _controls(ocp, controls(xs[:-1])))


def interpolated_guess(ocp: OCP, x_goal: Array, u: Array | float = 0.0) -> Guess:
    """Guess with states on the geodesic from x0 to x_goal (nx,), linear in time; controls u as in :func:`constant_guess`.

    Raises ValueError for a goal or controls of another shape.
    """
    fraction = ocp.times[:, None] / ocp.times[-1]
    goal = _broadcast("x_goal", x_goal, "(nx,)", (ocp.manifold.nx,))
    return Guess(_geodesic(ocp, ocp.x0[None], goal[None], fraction), _controls(ocp, u))


def feedback_guess(ocp: OCP, K: Array, u: Array | float = 0.0) -> Guess:
    """Guess by a rollout of u + K (x (-) x0), within the bounds on u; K (nu, ndx) or (N, nu, ndx), u as in :func:`constant_guess`.

    Raises ValueError for gains or controls of another shape.
    """
    still = constant_guess(ocp, u)
    N, ndx, nu = ocp.horizon, ocp.manifold.ndx, ocp.nu
    gains = _broadcast("K", K, "(nu, ndx) or (N, nu, ndx)", (N, nu, ndx))
    policy = Direction(np.zeros((N + 1, ndx)), np.zeros((N, nu)), gains, np.zeros((N, ndx)))
    motion = evaluator_for(ocp).rollout(*still, policy, np.zeros(1), Shooting())
    return Guess(motion.xs[0], motion.us[0])


def regulator(ocp: OCP, u: Array | float = 0.0) -> Array:
    """Gains K (nu, ndx) of the linear-quadratic regulator about x0 and the controls u, for the cost of the problem.

    The gains are those of the first knot, which are stationary for a long horizon. u as in :func:`constant_guess`.
    Raises ValueError for controls of another shape, and if the cost about x0 is not convex in the controls.
    """
    policy = shared_lq().solve_riccati(evaluator_for(ocp).expand(*constant_guess(ocp, u)).lq)
    if policy.failed_at is not None:
        raise ValueError(
            f"the cost about x0 is not convex in the controls at knot {policy.failed_at}: add a control cost"
        )
    return policy.K[0]


def resampled_guess(ocp: OCP, solution, shift: float = 0.0) -> Guess:
    """Resample a solution on the time grid of ``ocp``, starting ``shift`` seconds later.

    States are interpolated on geodesics, controls are piecewise constant; both are constant after the end. A stage without duration
    gets the values of such a stage of the solution at the same time.
    ``solution``: any object with times (M + 1,), xs (M + 1, nx), us (M, nu). If phase durations are states of ``ocp``, the times of
    its knots follow from the durations in the solution.
    Raises ValueError if the sizes differ from those of the problem, or the shift is not finite.
    """
    if not np.isfinite(shift):
        raise ValueError(f"shift = {shift}; expected a number of seconds")
    if solution.xs.shape[1] != ocp.manifold.nx or solution.us.shape[1] != ocp.nu:
        sizes = f"nx = {solution.xs.shape[1]}, nu = {solution.us.shape[1]}"
        raise ValueError(f"the solution has {sizes}; the problem has nx = {ocp.manifold.nx}, nu = {ocp.nu}")
    t = times_in(ocp, solution.xs) + shift
    return resampled_at(ocp, t, solution.times, solution.xs, solution.us)


def times_in(ocp: OCP, xs: Array) -> Array:
    """Times (N + 1,) [s] of the knots of ``ocp`` in a motion with states xs (M + 1, nx) on another time grid.

    Durations that are states are read at each knot if M = N, else at the end of the motion.
    """
    return ocp.times_of(xs if len(xs) == ocp.horizon + 1 else np.broadcast_to(xs[-1], (ocp.horizon + 1, xs.shape[1])))


def resampled_at(ocp: OCP, t: Array, grid: Array, xs: Array, us: Array) -> Guess:
    """Resample a motion xs (M + 1, nx), us (M, nu) on grid (M + 1,) at times t (N + 1,) of the knots of ``ocp``.

    See :func:`resampled_guess`.
    """
    reached = reached_knots(ocp, t, grid)
    at = np.minimum(reached, len(us) - 1)
    dt = grid[at + 1] - grid[at]
    fraction = np.where(dt > 0.0, (t - grid[at]) / np.where(dt > 0.0, dt, 1.0), reached > at)
    toward = np.clip(fraction, 0.0, 1.0)[:, None]
    return Guess(_geodesic(ocp, xs[at], xs[at + 1], toward), us[at[:-1]])


def reached_knots(ocp: OCP, t: Array, grid: Array) -> Array:
    """Indices (N + 1,) of the last knots of a time grid (M + 1,) at or before times t (N + 1,) of the knots of ``ocp``.

    Among knots of equal time, the last one is used. Stages without duration use the knots of their time in order, so that the state
    before a jump remains before it.
    """
    same = _SAME_TIME * grid[-1]
    reached = np.searchsorted(grid, np.clip(t, grid[0], grid[-1]) + same, side="right") - 1
    in_order = np.arange(len(t)) - np.searchsorted(t, t - same, side="left")
    first = np.searchsorted(grid, t - same, side="left")
    return np.where(np.append(ocp.dt == 0.0, False), np.minimum(first + in_order, reached), reached)


_SAME_TIME = 1e-9
"""Tolerance for equal times, relative to the horizon."""


def _geodesic(ocp: OCP, start: Array, goal: Array, fraction: Array) -> Array:
    """Points start (+) fraction (goal (-) start) on geodesics, for states (M, nx) or (1, nx) and fraction (M, 1)."""
    toward = ocp.manifold.difference(start.T, goal.T).T
    n = len(fraction)
    start, steps = np.broadcast_to(start, (n, start.shape[1])), np.broadcast_to(fraction * toward, (n, toward.shape[1]))
    return np.ascontiguousarray(ocp.manifold.integrate(start.T, steps.T).T)


def _controls(ocp: OCP, u: Array | float) -> Array:
    return _broadcast("u", u, "a number, (nu,) or (N, nu)", (ocp.horizon, ocp.nu))


def _broadcast(name: str, value: Array | float, expected: str, shape: tuple[int, ...]) -> Array:
    """Copy of a value broadcast to this shape. Raises ValueError with the expected shape."""
    array = np.asarray(value, dtype=float)
    try:
        return np.array(np.broadcast_to(array, shape))
    except ValueError:
        raise ValueError(f"{name} has shape {array.shape}; expected {expected}, of {shape}") from None
