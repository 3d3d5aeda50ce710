"""Random problems with complementarity constraints, typical of trajectory optimization through contact.

Contact and friction use time stepping: the forces of a step satisfy the conditions at its end velocity (Stewart, Trinkle 1996).
Forces, slacks and multipliers are controls (Posa, Cantu, Tedrake, Int. J. Robotics Research 33, 2014). The four classes:

car among obstacles          rectangles, with multipliers of the distance (Zhang, Liniger, Borrelli 2018)
cart-pole with friction      Coulomb friction of cart and joint by maximum dissipation
acrobot with joint limits    contact torques at both limits of the elbow
planar pushing               a quasi-static slider on a limit surface with a sticking or sliding contact

The last three classes bound each complementarity product by a slack with a linear cost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import trajopt as to
from experiments.benchmarks.first_try.instance import Instance

Array = np.ndarray
COUNT = 50
"""Number of instances of each class."""
INF = np.inf
G = 9.81
"""[m/s^2]"""


def instances(seed: int = 0) -> list[Instance]:
    """Create COUNT random instances of each class."""
    found = []
    for i, (family, draw) in enumerate(FAMILIES.items()):
        for number in range(COUNT):
            build = partial(draw, np.random.SeedSequence([seed, i, number]))
            found.append(Instance(f"{family} {number}", "complementarity", family, build))
    return found


def _problem(
    step: Callable[..., Any],
    sizes: tuple[int, int],
    values: dict[str, Array],
    start: Any,
    goal: Any,
    knots: int,
    running: list[to.CostTerm],
    rows: list[to.Constraint],
    bounds: tuple[Any, Any],
    state_bounds: tuple[Any, Any] | None = None,
) -> tuple[to.OCP, to.Guess]:
    """Build a problem with a discrete step and a final state (NaN: free); the guess is a straight line between both."""
    nx, nu = sizes
    states, goal = to.Manifold.vector(nx), np.asarray(goal, float)
    held = np.isnan(goal)
    path = [] if state_bounds is None else [to.state_bounds(states, *state_bounds)]
    ocp = to.OCP.single_phase(
        to.discrete_dynamics(step, nx, nu),
        start,
        knots,
        values["dt"][0],
        running,
        constraints=[*rows, *path],
        terminal_constraints=[
            to.state_bounds(states, np.where(held, -INF, goal), np.where(held, INF, goal), name="goal"),
            *path,
        ],
        u_lower=bounds[0],
        u_upper=bounds[1],
        parameters=values,
    )
    return ocp, to.Guess(np.linspace(start, np.where(held, start, goal), knots + 1), np.zeros((knots, nu)))


def _arrays(**values: Any) -> dict[str, Array]:
    """Convert parameters of the step and of its constraints to arrays."""
    return {key: np.atleast_1d(np.asarray(value, float)) for key, value in values.items()}


# -- car among obstacles --------------------------------------------------------------------------------------------------
OBSTACLES, CLEARANCE = 3, 0.25
"""Number of obstacles, and the minimum distance between the car's center and their boundaries [m]."""


def _car_step(x: Any, u: Any, t: Any, p: Any) -> list[Any]:
    """x: position [m], heading [rad], speed [m/s]; u: steering angle [rad], acceleration [m/s^2], multipliers of each obstacle."""
    h, speed = p["dt"][0], x[3] + 0.5 * p["dt"][0] * u[1]
    heading = x[2] + 0.5 * h * speed * to.sin(u[0]) / (to.cos(u[0]) * p["wheelbase"][0])
    return [
        x[0] + h * speed * to.cos(heading),
        x[1] + h * speed * to.sin(heading),
        x[2] + h * speed * to.sin(u[0]) / (to.cos(u[0]) * p["wheelbase"][0]),
        x[3] + h * u[1],
    ]


def _distances(x: Any, u: Any, t: Any, p: Any) -> list[Any]:
    """Return, for each rectangle, the distance along the normal given by its multipliers, and the squared length of the normal."""
    rows = []
    for i in range(OBSTACLES):
        cx, cy, angle, a, b = (p["obstacles"][5 * i + j] for j in range(5))
        c, s = to.cos(angle), to.sin(angle)
        along, across = c * (x[0] - cx) + s * (x[1] - cy), c * (x[1] - cy) - s * (x[0] - cx)
        m = [u[2 + 4 * i + j] for j in range(4)]
        nx, ny = m[0] - m[1], m[2] - m[3]
        distance = nx * along + ny * across - a * (m[0] + m[1]) - b * (m[2] + m[3])
        rows += [distance, nx * nx + ny * ny]
    return rows


def car(seed: Any) -> tuple[to.OCP, to.Guess]:
    """Car that drives between two poses at rest, past three rectangles."""
    rng = np.random.default_rng(seed)
    nu = 2 + 4 * OBSTACLES
    start = np.array([0.0, rng.uniform(-1.0, 1.0), rng.uniform(-0.5, 0.5), 0.0])
    goal = np.array([rng.uniform(5.0, 7.0), rng.uniform(-1.0, 1.0), rng.uniform(-0.5, 0.5), 0.0])
    obstacles: list[Array] = []
    while len(obstacles) < OBSTACLES:
        place = rng.uniform([1.0, -1.5], [5.0, 1.5])
        size = rng.uniform(0.2, 0.5, 2)
        radius = np.hypot(*size) + CLEARANCE
        ends = min(np.hypot(*(place - start[:2])), np.hypot(*(place - goal[:2]))) > radius + 0.3
        if ends and all(np.hypot(*(place - o[:2])) > radius + np.hypot(*o[3:]) + CLEARANCE for o in obstacles):
            obstacles.append(np.array([*place, rng.uniform(-np.pi, np.pi), *size]))
    states = to.Manifold.vector(4)
    values = _arrays(dt=0.1, wheelbase=rng.uniform(0.4, 0.6), obstacles=np.concatenate(obstacles))
    low, high = np.tile([CLEARANCE, -INF], OBSTACLES), np.tile([INF, 1.0], OBSTACLES)
    rows = [to.residual_constraint("distance", _distances, states, 2 * OBSTACLES, low, high, nu=nu, parameters=values)]
    weights = np.array([1.0, 0.1, *[0.0] * (4 * OBSTACLES)])
    bounds = [-0.6, -2.0, *[0.0] * (4 * OBSTACLES)], [0.6, 2.0, *[INF] * (4 * OBSTACLES)]
    speeds = [-INF, -INF, -INF, -2.0], [INF, INF, INF, 2.5]
    return _problem(
        _car_step, (4, nu), values, start, goal, 60, [to.control_cost(nu, weight=weights)], rows, bounds, speeds
    )


# -- a cart-pole with friction ----------------------------------------------------------------------------------------------
PRICE = 10.0
"""Cost weight of the slack of complementarity products."""


def _cart_pole_rates(x: Any, u: Any, p: Any) -> tuple[Any, Any]:
    """Rates at the end of a step.

    x: position [m], angle from hanging [rad], rates; u: force [N], two friction forces of the cart [N], two friction torques of the
    joint [N m], the largest sliding speed of both, slack.
    """
    m, M, l, h = p["pole"][0], p["cart"][0], p["length"][0], p["dt"][0]
    c, s = to.cos(x[1]), to.sin(x[1])
    force = u[0] - u[1] + u[2] + m * l * s * x[3] * x[3]
    torque = -u[3] + u[4] - m * G * l * s
    determinant = (M + m) * m * l * l - (m * l * c) * (m * l * c)
    return (
        x[2] + h * (m * l * l * force - m * l * c * torque) / determinant,
        x[3] + h * ((M + m) * torque - m * l * c * force) / determinant,
    )


def _cart_pole_step(x: Any, u: Any, t: Any, p: Any) -> list[Any]:
    h, (speed, rate) = p["dt"][0], _cart_pole_rates(x, u, p)
    return [x[0] + h * speed, x[1] + h * rate, speed, rate]


def _friction(x: Any, u: Any, t: Any, p: Any) -> list[Any]:
    """Return three nonnegative values and three complementarity products minus slack, for the cart and the joint."""
    rows = []
    for i, (limit, v) in enumerate(zip(("cart_friction", "joint_friction"), _cart_pole_rates(x, u, p), strict=True)):
        along, against, speed, slack = u[1 + 2 * i], u[2 + 2 * i], u[5 + i], u[7]
        remaining = p[limit][0] - along - against
        rows += [speed - v, speed + v, remaining]
        rows += [along * (speed - v) - slack, against * (speed + v) - slack, speed * remaining - slack]
    return rows


def cart_pole(seed: Any) -> tuple[to.OCP, to.Guess]:
    """Swing-up of a cart-pole with Coulomb friction of cart and joint."""
    rng = np.random.default_rng(seed)
    values = _arrays(
        dt=0.05,
        cart=rng.uniform(0.8, 1.2),
        pole=rng.uniform(0.2, 0.4),
        length=rng.uniform(0.4, 0.6),
        cart_friction=rng.uniform(0.5, 3.0),
        joint_friction=rng.uniform(0.01, 0.1),
    )
    start = np.array([0.0, rng.uniform(-0.3, 0.3), 0.0, 0.0])
    states, nu = to.Manifold.vector(4), 8
    low, high = np.tile([*[0.0] * 3, *[-INF] * 3], 2), np.tile([*[INF] * 3, *[0.0] * 3], 2)
    rows = [to.residual_constraint("friction", _friction, states, 12, low, high, nu=nu, parameters=values)]
    running = [
        to.control_cost(nu, weight=[0.1, *[1e-4] * 7]),
        to.linear_cost(states, control=[*[0.0] * 7, 1.0], weight=PRICE, name="slack"),
    ]
    bounds = [-15.0, *[0.0] * 7], [15.0, *[INF] * 7]
    remaining = [-1.5, -INF, -INF, -INF], [1.5, INF, INF, INF]
    return _problem(
        _cart_pole_step, (4, nu), values, start, [0.0, np.pi, 0.0, 0.0], 60, running, rows, bounds, remaining
    )


# -- an acrobot with joint limits -------------------------------------------------------------------------------------------
def _acrobot_rates(x: Any, u: Any, p: Any) -> tuple[Any, Any]:
    """Rates at the end of a step.

    x: angles [rad] from hanging, rates; u: torque of the elbow, contact torques at its upper and lower limit [N m], slack.
    """
    m1, m2, l1, l2, h = (p[key][0] for key in ("mass_1", "mass_2", "length_1", "length_2", "dt"))
    c1, c2 = 0.5 * l1, 0.5 * l2
    i1, i2 = m1 * l1 * l1 / 12.0, m2 * l2 * l2 / 12.0
    cos, sin = to.cos(x[1]), to.sin(x[1])
    both = m2 * l1 * c2 * cos
    a = i1 + i2 + m1 * c1 * c1 + m2 * (l1 * l1 + c2 * c2) + 2.0 * both
    b, d = i2 + m2 * c2 * c2 + both, i2 + m2 * c2 * c2
    coriolis = m2 * l1 * c2 * sin
    lower = m2 * G * c2 * to.sin(x[0] + x[1])
    r1 = coriolis * (2.0 * x[2] * x[3] + x[3] * x[3]) - (m1 * c1 + m2 * l1) * G * to.sin(x[0]) - lower
    r2 = u[0] - u[1] + u[2] - coriolis * x[2] * x[2] - lower
    determinant = a * d - b * b
    return x[2] + h * (d * r1 - b * r2) / determinant, x[3] + h * (a * r2 - b * r1) / determinant


def _acrobot_step(x: Any, u: Any, t: Any, p: Any) -> list[Any]:
    h, (first, second) = p["dt"][0], _acrobot_rates(x, u, p)
    return [x[0] + h * first, x[1] + h * second, first, second]


def _joint_limits(x: Any, u: Any, t: Any, p: Any) -> list[Any]:
    """Return the distances to both limits after the step, and their products with the contact torques minus slack."""
    _, rate = _acrobot_rates(x, u, p)
    angle = x[1] + p["dt"][0] * rate
    above, below = p["limit"][0] - angle, p["limit"][0] + angle
    return [above, below, u[1] * above - u[3], u[2] * below - u[3]]


def acrobot(seed: Any) -> tuple[to.OCP, to.Guess]:
    """Swing-up of an acrobot whose elbow hits its limits."""
    rng = np.random.default_rng(seed)
    values = _arrays(
        dt=0.05,
        mass_1=rng.uniform(0.8, 1.2),
        mass_2=rng.uniform(0.8, 1.2),
        length_1=rng.uniform(0.8, 1.2),
        length_2=rng.uniform(0.8, 1.2),
        limit=rng.uniform(1.2, 2.0),
    )
    start = np.array([rng.uniform(-0.3, 0.3), rng.uniform(-0.3, 0.3), 0.0, 0.0])
    states, nu = to.Manifold.vector(4), 4
    rows = [
        to.residual_constraint(
            "joint limits",
            _joint_limits,
            states,
            4,
            [0.0, 0.0, -INF, -INF],
            [INF, INF, 0.0, 0.0],
            nu=nu,
            parameters=values,
        )
    ]
    running = [
        to.control_cost(nu, weight=[0.1, 1e-4, 1e-4, 1e-4]),
        to.linear_cost(states, control=[0.0, 0.0, 0.0, 1.0], weight=PRICE, name="slack"),
    ]
    bounds = [-20.0, 0.0, 0.0, 0.0], [20.0, INF, INF, INF]
    return _problem(_acrobot_step, (4, nu), values, start, [np.pi, 0.0, 0.0, 0.0], 100, running, rows, bounds)


# -- planar pushing ---------------------------------------------------------------------------------------------------------
def _pushing_step(x: Any, u: Any, t: Any, p: Any) -> list[Any]:
    """Advance the square and the contact by one step.

    x: position [m] and heading [rad] of the square, position of the contact along its rear face [m]; u: forces of the pusher along
    the normal and the tangent of the face [N], sliding speeds of the contact in both directions [m/s], slack.
    """
    h, half, f, m = p["dt"][0], p["half"][0], p["force"][0], p["moment"][0]
    torque = -half * u[1] - x[3] * u[0]
    along, across, angle = u[0] / (f * f), u[1] / (f * f), torque / (m * m)
    c, s = to.cos(x[2]), to.sin(x[2])
    return [
        x[0] + h * (c * along - s * across),
        x[1] + h * (s * along + c * across),
        x[2] + h * angle,
        x[3] + h * (u[2] - u[3]),
    ]


def _sliding(x: Any, u: Any, t: Any, p: Any) -> list[Any]:
    """Return the distances to both edges of the friction cone, and their products with the sliding speeds minus slack."""
    left, right = p["friction"][0] * u[0] - u[1], p["friction"][0] * u[0] + u[1]
    return [left, right, left * u[2] - u[4], right * u[3] - u[4]]


def pushing(seed: Any) -> tuple[to.OCP, to.Guess]:
    """Square that is pushed to another pose."""
    rng = np.random.default_rng(seed)
    half = rng.uniform(0.04, 0.06)
    force = 0.35 * G * rng.uniform(0.8, 1.2)
    values = _arrays(
        dt=0.1,
        half=half,
        force=force,
        moment=0.76 * half * force,
        friction=rng.uniform(0.2, 0.4),
    )
    start = np.array([0.0, 0.0, 0.0, rng.uniform(-0.5, 0.5) * half])
    angle = rng.uniform(-1.2, 1.2)
    distance, bend = rng.uniform(0.2, 0.4), 0.5 * angle + rng.uniform(-0.3, 0.3)
    goal = np.array([distance * np.cos(bend), distance * np.sin(bend), angle, np.nan])
    states, nu = to.Manifold.vector(4), 5
    rows = [
        to.residual_constraint(
            "sliding", _sliding, states, 4, [0.0, 0.0, -INF, -INF], [INF, INF, 0.0, 0.0], nu=nu, parameters=values
        )
    ]
    running = [
        to.control_cost(nu, weight=[0.1, 0.1, 1.0, 1.0, 1e-4]),
        to.linear_cost(states, control=[0.0, 0.0, 0.0, 0.0, 1.0], weight=50.0, name="slack"),
    ]
    bounds = [0.0, -force, 0.0, 0.0, 0.0], [force, force, 0.2, 0.2, INF]
    remaining = [-INF, -INF, -INF, -0.9 * half], [INF, INF, INF, 0.9 * half]
    return _problem(_pushing_step, (4, nu), values, start, goal, 50, running, rows, bounds, remaining)


FAMILIES: dict[str, Callable[[Any], tuple[to.OCP, to.Guess]]] = {
    "car among obstacles": car,
    "cart-pole with friction": cart_pole,
    "acrobot with joint limits": acrobot,
    "planar pushing": pushing,
}
"""Class name, as in the table -> function that builds an instance."""
