"""Initial guesses of a solve, and warm starts from the solution of a similar problem.

The states of a guess need not satisfy the dynamics. Its first state is replaced by x0.

A minimum-jerk guess moves a robot from rest to rest, with the torques of that motion,

    q(t) = q0 (+) s(t / T) (q_goal (-) q0),    s(r) = 10 r^3 - 15 r^4 + 6 r^5
    u_k  = M(q_k) (a_k - a(q_k, v_k, u = 0)),  a_k = (v_(k+1) - v_k) / dt_k

clipped to the bounds on controls. s minimizes the integral of squared jerk between two states of rest (Flash & Hogan 1985). The
torques follow from the forward dynamics, which are affine in the joint forces, so they include gravity, damping, friction, springs
and rotor inertias.

Detours are random variations of a guess with the same end states,

    x_k (+) sin^2(pi t_k / T) delta,    delta normal in the directions of positions, zero in others

Velocities change consistently with the positions (:mod:`trajopt.guesses.position_directions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.stretched_map import Durations
from trajopt.guesses.position_directions import position_directions
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.guess import Guess as Guess, Motion as Motion, as_guess as as_guess
from trajopt.problem.ocp import OCP
from trajopt.stage.evaluation import Direction, Shooting
from trajopt.stage.evaluators import evaluator_for
from trajopt.stage.solver_cache import SolverCache as SolverCache


def constant_guess(ocp: OCP, u: Array | float = 0.0) -> Guess:
    """Guess with x0 at every knot, and controls u: a number, (nu,) or (N, nu). Raises ValueError for controls of another shape.

    With free durations, the controls of the first stage are the durations in x0, unless controls (N, nu) are given.

    >>> import trajopt as to
    >>> system = to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1)
    >>> ocp = to.OCP.single_phase(to.SampledSystem(to.make_backend(system, "forward_ad"), "euler"), [2.0], 3, 0.1)
    >>> constant_guess(ocp, 0.5).us.T
    array([[0.5, 0.5, 0.5]])
    """
    guess = Guess(np.tile(ocp.x0, (ocp.horizon + 1, 1)), _controls(ocp, u))
    return guess if np.ndim(u) == 2 else with_free_durations(ocp, guess, ocp.x0[without_durations(ocp) :])


def without_durations(ocp: OCP) -> int:
    """Return the number of entries of the state before its free durations, the last ones, that the first stage sets."""
    first = ocp.phases[0].system
    return ocp.manifold.nx - (first.nu if isinstance(first, Durations) else 0)


def with_free_durations(ocp: OCP, guess: Guess, durations: Array) -> Guess:
    """Return a guess with the given free durations (n,) [s], clipped to their bounds; unchanged without durations.

    The controls of the first stage set the durations, which are states of the other stages.
    """
    n = len(durations)
    if not n:
        return guess
    xs, us = guess.xs.copy(), guess.us.copy()
    if ocp.control_bounds is not None:
        durations = np.clip(durations, *(bounds[0, :n] for bounds in ocp.control_bounds))
    xs[1:, -n:] = us[0, :n] = durations
    return Guess(xs, us)


def quasi_static_guess(ocp: OCP, controls: Callable[[Array], Array], xs: Array | None = None) -> Guess:
    """Guess with controls that hold each state: ``controls(xs[:-1])`` maps (N, nx) to (N, nu). xs (N + 1, nx): default x0.

    Raises ValueError for states or controls of another shape.
    """
    knots = ocp.horizon + 1, ocp.manifold.nx
    xs = np.tile(ocp.x0, (ocp.horizon + 1, 1)) if xs is None else _broadcast("xs", xs, "(N + 1, nx)", knots)
    return Guess(xs, _controls(ocp, controls(xs[:-1])))


def interpolated_guess(ocp: OCP, x_goal: Array, u: Array | float = 0.0) -> Guess:
    """Guess with states on the geodesic from x0 to x_goal (nx,), linear in time; controls u as in :func:`constant_guess`.

    With free durations, the controls of the first stage are the durations in x_goal, unless controls (N, nu) are given. Raises
    ValueError for a goal or controls of another shape.
    """
    fraction = ocp.times[:, None] / ocp.times[-1]
    goal = _broadcast("x_goal", x_goal, "(nx,)", (ocp.manifold.nx,))
    guess = Guess(_geodesic(ocp, ocp.x0[None], goal[None], fraction), _controls(ocp, u))
    return guess if np.ndim(u) == 2 else with_free_durations(ocp, guess, goal[without_durations(ocp) :])


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

    States are interpolated on geodesics, controls are piecewise constant; both are constant before the start and after the end. A
    stage without duration gets the values of such a stage of the solution at the same time. ``solution``: any object with times
    (M + 1,), xs (M + 1, nx), us (M, nu). If phase durations are states of ``ocp``, the times of its knots follow from the
    durations in the solution. Raises ValueError if the sizes differ from those of the problem, or the shift is not finite.
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
    """Controls (N, nu) from u: a number, (nu,) or (N, nu). Raises ValueError for another shape."""
    return _broadcast("u", u, "a number, (nu,) or (N, nu)", (ocp.horizon, ocp.nu))


def _broadcast(name: str, value: Array | float, expected: str, shape: tuple[int, ...]) -> Array:
    """Copy of a number, or of rows of the shape's last size, broadcast to this shape. Raises ValueError with the expected shape."""
    array = np.asarray(value, dtype=float)
    try:
        if array.shape[-1:] in ((), shape[-1:]):
            return np.array(np.broadcast_to(array, shape))
    except ValueError:
        pass
    raise ValueError(f"{name} has shape {array.shape}; expected {expected}, of {shape}")


Acceleration = Callable[[Array, Array], Array]
"""Function from states (M, nx) and controls (M, nu) to joint accelerations (M, nv)."""
Inertia = Callable[[Array], Array]
"""Function from states (M, nx) to mass matrices (M, nv, nv)."""


def minimum_jerk_states(ocp: OCP, x_goal: Array) -> Array:
    """States (N + 1, nx) of the minimum-jerk path from x0 to the positions of x_goal, at rest at both ends.

    Raises ValueError if the state is not (q, v) with a vector q.
    """
    manifold = ocp.manifold
    if not manifold.is_flat or manifold.nx % 2:
        raise ValueError("minimum-jerk paths need states (q, v) without quaternions; use interpolated_guess")
    n = manifold.nx // 2
    duration = ocp.times[-1]
    r = (ocp.times / duration)[:, None]
    toward = manifold.difference(ocp.x0[:, None], np.asarray(x_goal, dtype=float)[:, None])[:n, 0]
    fraction, speed = r**3 * (10.0 - 15.0 * r + 6.0 * r**2), 30.0 * r**2 * (1.0 - r) ** 2 / duration
    return np.concatenate([ocp.x0[:n] + fraction * toward, speed * toward], axis=1)


def tracking_torques(ocp: OCP, xs: Array, acceleration: Acceleration, inertia: Inertia) -> Array:
    """Controls (N, nu), clipped to their bounds, that move a fully actuated robot along states xs (N + 1, nx).

    They are joint torques M(q) (a - a(q, v, 0)) for the accelerations a between knots.
    """
    n = xs.shape[1] // 2
    wanted = np.diff(xs[:, n:], axis=0) / ocp.dt[:, None]
    free = acceleration(xs[:-1], np.zeros((ocp.horizon, ocp.nu)))
    us = np.einsum("kij,kj->ki", inertia(xs[:-1]), wanted - free)
    return us if ocp.control_bounds is None else np.clip(us, *ocp.control_bounds)


def minimum_jerk_guess(
    ocp: OCP, x_goal: Array, acceleration: Acceleration, inertia: Inertia, xs: Array | None = None
) -> Guess:
    """Guess along the minimum-jerk path from x0 to x_goal (nx,), or along given states xs (N + 1, nx).

    The controls (N, nu), clipped to their bounds, are the joint torques of a fully actuated robot along that motion.

    acceleration: function from states (M, nx) and controls (M, nu) to joint accelerations (M, nv). inertia: function from states
    (M, nx) to mass matrices (M, nv, nv). Raises ValueError without xs for a state that is not (q, v), or that has quaternions.
    """
    path = minimum_jerk_states(ocp, x_goal) if xs is None else np.asarray(xs, dtype=float)
    return Guess(path, tracking_torques(ocp, path, acceleration, inertia))


DETOUR = 0.5
"""Default standard deviation of a detour [rad, m]."""


def detour(ocp: OCP, guess: Guess, rng: np.random.Generator, size: float = DETOUR) -> Guess:
    """Guess with a random detour of the states between the ends, and the same controls; size: standard deviation [rad, m].

    A random offset of the positions (:func:`~trajopt.guesses.position_directions.position_directions`) is scaled by
    sin^2(pi t / T), zero at both ends. Their velocities follow.

    >>> import numpy as np, trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    >>> ocp = to.OCP.single_phase(to.SampledSystem(to.make_backend(cart, "forward_ad"), "euler"), [0.0, 0.0], 20, 0.1)
    >>> moved = to.detour(ocp, to.constant_guess(ocp), np.random.default_rng(0)).xs
    >>> bool(abs(moved[[0, -1]]).max() < 1e-12), bool(abs(moved[10, 0]) > 0.01)
    (True, True)
    """
    positions, moving, velocities = position_directions(ocp)
    fraction, delta = ocp.times / ocp.times[-1], np.zeros(ocp.manifold.ndx)
    delta[positions] = size * rng.standard_normal(len(positions))
    move = np.sin(np.pi * fraction)[:, None] ** 2 * delta
    move[:, velocities] = np.pi / ocp.times[-1] * np.sin(2.0 * np.pi * fraction)[:, None] * delta[moving]
    xs = np.asarray(guess.xs, dtype=float)
    return Guess(np.ascontiguousarray(ocp.manifold.integrate(xs.T, move.T).T), guess.us)


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Starting point of a solver; each solver uses the fields that it supports.

    guess: states and controls, also those of a solution or a pair (xs, us), of which only these are used. K: feedback gains
    (N, nu, ndx) about them, for replanning.
    multipliers: of dynamics, constraints and bounds, as in a :class:`~trajopt.results.solution.Solution`, one row for each knot;
    for dms, ipm, sqp and the augmented Lagrangian of the shooting solvers. barrier: initial barrier parameter of dms and ipm, small
    for a guess near the solution. penalty: initial penalty of the augmented Lagrangian. None: the values of the options. cache:
    cached workspaces of earlier solves; None: those of this thread (:mod:`trajopt.stage.solver_cache`).

    Raises ValueError for multipliers that are not finite, TypeError for multipliers without names, and for a guess of another type.
    """

    guess: Guess
    K: Array | None = None
    multipliers: Mapping[str, Array] = field(default_factory=dict)
    barrier: float | None = None
    penalty: float | None = None
    cache: SolverCache | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "guess", as_guess(self.guess))
        given: object = self.multipliers
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise TypeError(
                f"multipliers is a {kind}; expected a mapping from names to arrays, as solution.multipliers"
            )
        for name, values in self.multipliers.items():
            if not np.isfinite(values).all():
                raise ValueError(f"the multipliers {name!r} of the warm start are not finite; leave them out")
