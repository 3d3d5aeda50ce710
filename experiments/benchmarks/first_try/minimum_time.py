"""Twenty minimum-time problems with typical initial guesses: a straight line, or a few way points.

Four vehicles pass gaps and leave U-shaped traps, cars park and dock, planar and spatial quadrotors recover and fly through gaps and
windows, an acrobot swings up.  Walls are rows of discs, windows are made of bars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import trajopt as to
from experiments.benchmarks.first_try.instance import Instance

Array = np.ndarray
Point = tuple[float, ...]
INF, G = np.inf, 9.81
CONTROL_WEIGHT = 1e-2
"""Cost rate of full control, relative to the cost rate of time."""


@dataclass(frozen=True)
class Vehicle:
    """Dynamics dx/dt = f(x, u) in the tangent space of ``states``, with symmetric or given bounds on controls and states.

    still (nu,): controls of the guess. body: function from the state to the points for which obstacle distances are constrained.
    """

    f: Callable[[Any, Any], list[Any]]
    states: to.Manifold
    u_lower: Array
    u_upper: Array
    still: Array
    x_lower: Array
    x_upper: Array
    body: Callable[[Any], list[Any]]


@dataclass(frozen=True)
class Course:
    """A minimum-time problem from an initial state to bounds on the final state, with disc obstacles (x, y, radius).

    way_points: states of the guess between start and goal. bars: cylinders (index, position, index, position, radius) along the
    remaining axis. loose: indices of the state that are free at the end.
    """

    vehicle: Vehicle
    start: Array
    goal: Array
    duration: float
    way_points: Sequence[Array] = ()
    discs: Sequence[Point] = ()
    bars: Sequence[tuple[int, float, int, float, float]] = ()
    knots: int = 80
    loose: Sequence[int] = field(default=())

    def build(self) -> tuple[to.OCP, to.Guess]:
        """Build the problem with free duration, and its guess."""
        v, nu = self.vehicle, len(self.vehicle.u_lower)
        system = to.FunctionMap(lambda x, u, t, p: v.f(x, u), v.states, nu)
        largest = np.maximum(np.abs(v.u_lower), np.abs(v.u_upper))
        path = []
        if np.isfinite(v.x_lower).any() or np.isfinite(v.x_upper).any():
            path.append(to.state_bounds(v.states, v.x_lower, v.x_upper))
        clear = partial(_clearance, v.body, self.discs, self.bars)
        count = len(clear(self.start, None, 0.0, {}))
        if count:
            path.append(to.residual_constraint("obstacles", clear, v.states, count, lower=0.0, upper=INF))
        fixed = to.OCP.single_phase(
            to.SampledSystem(system, "rk4"),
            self.start,
            self.knots,
            self.duration / self.knots,
            [to.control_cost(nu, reference=v.still, weight=2.0 * CONTROL_WEIGHT / largest**2)],
            constraints=path,
            terminal_constraints=[self._final()],
            u_lower=v.u_lower,
            u_upper=v.u_upper,
        )
        free = to.free_time(fixed, (0.1 * self.duration, 5.0 * self.duration))
        return free.ocp, free.with_durations(to.Guess(self._line(), np.tile(v.still, (self.knots, 1))))

    def _final(self) -> to.Constraint:
        """Return the constraint of the final state. States with attitudes are constrained by their difference to the goal."""
        states = self.vehicle.states
        if states.nx != states.ndx:
            return to.bounded(to.state_cost(states, self.goal), name="goal")
        lower, upper = self.goal.copy(), self.goal.copy()
        lower[list(self.loose)], upper[list(self.loose)] = -INF, INF
        return to.state_bounds(states, lower, upper, name="goal")

    def _line(self) -> Array:
        """Return states (knots + 1, nx) on geodesics between start, way points and goal, with equal numbers of steps."""
        states = self.vehicle.states
        marks = np.array([self.start, *self.way_points, self.goal])
        steps = states.difference(marks[:-1].T, marks[1:].T)
        place = np.linspace(0.0, len(marks) - 1.0, self.knots + 1)
        at = np.minimum(place.astype(int), len(marks) - 2)
        return np.ascontiguousarray(states.integrate(marks[at].T, (place - at) * steps[:, at]).T)


def _clearance(body: Any, discs: Sequence[Point], bars: Sequence[Any], x: Any, u: Any, t: Any, p: Any) -> list[Any]:
    """Return squared distances to discs and bars minus squared radii [m^2]."""
    points = body(x)
    found = [(q[0] - a) ** 2 + (q[1] - b) ** 2 - r * r for a, b, r in discs for q in points]
    return [*found, *((x[i] - a) ** 2 + (x[j] - b) ** 2 - r * r for i, a, j, b, r in bars)]


def _wall(start: Point, end: Point, radius: float) -> list[Point]:
    """Return a row of overlapping discs."""
    count = int(np.ceil(np.hypot(end[0] - start[0], end[1] - start[1]) / radius)) + 1
    return [(float(a), float(b), radius) for a, b in np.linspace(start, end, count)]


def _trap(width: float, depth: float, radius: float = 0.25) -> list[Point]:
    """Return a U-shaped wall around the origin, open toward negative x."""
    w = 0.5 * width
    corners = [(-0.5 * depth, w), (0.5 * depth, w), (0.5 * depth, -w), (-0.5 * depth, -w)]
    return [disc for a, b in pairwise(corners) for disc in _wall(a, b, radius)]


def _gap(x: float, width: float, radius: float = 0.3) -> list[Point]:
    """Return a wall at x with a gap of the given width at y = 0."""
    inner = 0.5 * width + radius
    return [*_wall((x, inner), (x, inner + 1.2), radius), *_wall((x, -inner), (x, -inner - 1.2), radius)]


def _center(x: Any) -> list[Any]:
    return [(x[0], x[1])]


def _bounds(n: int, **limits: float) -> tuple[Array, Array]:
    """Return symmetric bounds on entries of a state; keys such as "x3"."""
    upper = np.full(n, INF)
    for key, limit in limits.items():
        upper[int(key[1:])] = limit
    return -upper, upper


def unicycle() -> Vehicle:
    """Unicycle. State: position, heading; controls: speed, turn rate."""

    def f(x: Any, u: Any) -> list[Any]:
        return [u[0] * np.cos(x[2]), u[0] * np.sin(x[2]), u[1]]

    bounds = np.array([0.4, 1.5]), np.array([1.0, 1.5])
    return Vehicle(f, to.Manifold.vector(3), -bounds[0], bounds[1], np.array([0.1, 0.0]), *_bounds(3), _center)


WHEELBASE = 0.5


def bicycle() -> Vehicle:
    """Car. State: position, heading, speed, steering angle; controls: acceleration, steering rate."""

    def f(x: Any, u: Any) -> list[Any]:
        return [x[3] * np.cos(x[2]), x[3] * np.sin(x[2]), x[3] * np.tan(x[4]) / WHEELBASE, u[0], u[1]]

    limit = np.array([1.5, 2.0])
    return Vehicle(f, to.Manifold.vector(5), -limit, limit, np.zeros(2), *_bounds(5, x3=2.0, x4=0.6), _ends)


def _ends(x: Any) -> list[Any]:
    """Return the rear and front axle."""
    return [(x[0], x[1]), (x[0] + WHEELBASE * np.cos(x[2]), x[1] + WHEELBASE * np.sin(x[2]))]


def omnidirectional() -> Vehicle:
    """Point mass in the plane with quadratic drag. State: position, velocity; controls: two forces."""

    def f(x: Any, u: Any) -> list[Any]:
        speed = np.sqrt(x[2] * x[2] + x[3] * x[3] + 1e-4)
        return [x[2], x[3], u[0] - 0.3 * speed * x[2], u[1] - 0.3 * speed * x[3]]

    limit = np.full(2, 2.0)
    return Vehicle(f, to.Manifold.vector(4), -limit, limit, np.zeros(2), *_bounds(4), _center)


TRAILER = 0.6


def truck() -> Vehicle:
    """Car with a trailer. State: position of the trailer's axle, trailer heading, hitch angle, speed, steering angle."""

    def f(x: Any, u: Any) -> list[Any]:
        along, turn = x[4] * np.cos(x[3]), x[4] * np.sin(x[3]) / TRAILER
        car_rate = x[4] * np.tan(x[5]) / WHEELBASE
        return [along * np.cos(x[2]), along * np.sin(x[2]), turn, car_rate - turn, u[0], u[1]]

    limit = np.array([1.5, 2.0])
    return Vehicle(
        f, to.Manifold.vector(6), -limit, limit, np.zeros(2), *_bounds(6, x3=1.0, x4=1.5, x5=0.6), _trailer_points
    )


def _trailer_points(x: Any) -> list[Any]:
    """Return the trailer's axle and the hitch at the car's rear axle."""
    return [(x[0], x[1]), (x[0] + TRAILER * np.cos(x[2]), x[1] + TRAILER * np.sin(x[2]))]


def planar_quadrotor() -> Vehicle:
    """Planar quadrotor. State: position, tilt and their rates; controls: thrusts of two rotors."""
    mass, arm, inertia = 0.5, 0.15, 0.006

    def f(x: Any, u: Any) -> list[Any]:
        thrust = (u[0] + u[1]) / mass
        return [x[3], x[4], x[5], -thrust * np.sin(x[2]), thrust * np.cos(x[2]) - G, arm * (u[1] - u[0]) / inertia]

    upper, hover = np.full(2, 6.0), np.full(2, 0.5 * mass * G)
    return Vehicle(f, to.Manifold.vector(6), np.zeros(2), upper, hover, *_bounds(6, x5=12.0), _center)


def acrobot(torque: float) -> Vehicle:
    """Acrobot: two rods of 1 kg and 1 m with a motor between them; angles from hanging down."""
    inertia, half = 1.0 / 12.0, 0.5

    def f(x: Any, u: Any) -> list[Any]:
        a, b, da, db = x[0], x[1], x[2], x[3]
        m22 = inertia + half**2
        m12 = m22 + half * np.cos(b)
        m11 = 2.0 * m12 - m22 + inertia + half**2 + 1.0
        bend = half * np.sin(b)
        low = half * G * np.sin(a + b)
        r1 = bend * (2.0 * da * db + db * db) - 1.5 * G * np.sin(a) - low
        r2 = u[0] - bend * da * da - low
        determinant = m11 * m22 - m12 * m12
        return [da, db, (m22 * r1 - m12 * r2) / determinant, (m11 * r2 - m12 * r1) / determinant]

    limit = np.array([torque])
    return Vehicle(f, to.Manifold.vector(4), -limit, limit, np.zeros(1), *_bounds(4), lambda x: [])


def quadrotor() -> Vehicle:
    """Spatial quadrotor. State: attitude, position, velocity, angular velocity; controls: thrusts of four rotors."""
    mass, arm, drag, (i1, i2, i3) = 1.0, 0.2, 0.02, (0.01, 0.01, 0.02)

    def f(x: Any, u: Any) -> list[Any]:
        w1, w2, w3 = x[10], x[11], x[12]
        thrust = (u[0] + u[1] + u[2] + u[3]) / mass
        across = 2.0 * (x[0] * x[2] + x[3] * x[1]), 2.0 * (x[1] * x[2] - x[3] * x[0])
        upward = 1.0 - 2.0 * (x[0] * x[0] + x[1] * x[1])
        turn = [
            (arm * (u[1] - u[3]) - (i3 - i2) * w2 * w3) / i1,
            (arm * (u[2] - u[0]) - (i1 - i3) * w3 * w1) / i2,
            (drag * (u[0] - u[1] + u[2] - u[3]) - (i2 - i1) * w1 * w2) / i3,
        ]
        return [w1, w2, w3, x[7], x[8], x[9], across[0] * thrust, across[1] * thrust, upward * thrust - G, *turn]

    states, hover = to.Manifold([to.SO3, to.vector_space(9)]), np.full(4, 0.25 * mass * G)
    return Vehicle(f, states, np.zeros(4), np.full(4, 6.0), hover, *_bounds(13, x10=15.0, x11=15.0), lambda x: [])


def _pose(vehicle: Vehicle, *numbers: float) -> Array:
    """Return a state with the given first entries and zeros."""
    return np.r_[numbers, np.zeros(vehicle.states.nx - len(numbers))]


def _quadrotor_state(place: Point, roll: float = 0.0, velocity: Point = (0.0, 0.0, 0.0)) -> Array:
    """Return a state of the spatial quadrotor, rolled by an angle [rad]."""
    return np.array([np.sin(0.5 * roll), 0.0, 0.0, np.cos(0.5 * roll), *place, *velocity, 0.0, 0.0, 0.0])


def _courses(rng: np.random.Generator) -> dict[tuple[str, str], Course]:
    """Return the problems by family and name; starts, gaps and goals vary by a few percent."""

    def about(value: float, spread: float = 0.1) -> float:
        return float(value + spread * rng.uniform(-1.0, 1.0))

    found: dict[tuple[str, str], Course] = {}
    vehicles = {"unicycle": (unicycle(), 6.0), "bicycle": (bicycle(), 5.0), "omni": (omnidirectional(), 4.0)}
    vehicles["trailer"] = truck(), 6.0
    for name, (v, duration) in vehicles.items():
        has_heading = name != "omni"
        start, goal = _pose(v, -2.5, about(0.8)), _pose(v, 2.5, about(-0.8))
        found["vehicle through a gap", name] = Course(v, start, goal, duration, discs=_gap(0.0, about(1.0)))
        # the guess leaves the trap backwards, passes one arm, and reaches the goal behind the closed end
        headings = [0.0] * 3 if not has_heading else [0.0, 0.5 * np.pi, 0.0]
        corners = [(-2.0, 0.0), (-1.7, 1.9), (1.7, 1.9)]
        way_points = [
            _pose(v, a, b, *([h] if has_heading else [])) for (a, b), h in zip(corners, headings, strict=True)
        ]
        trap = Course(
            v, _pose(v, about(-0.2)), _pose(v, 2.6, about(0.0)), 2.5 * duration, way_points, _trap(2.0, 2.0), knots=100
        )
        found["vehicle out of a trap", name] = trap
    gaps = [*_wall((-0.9, 0.8), (-0.9, 2.4), 0.3), *_wall((-0.9, -2.6), (-0.9, -0.4), 0.3)]
    gaps += [*_wall((0.9, 0.4), (0.9, 2.6), 0.3), *_wall((0.9, -2.4), (0.9, -0.8), 0.3)]
    v = bicycle()
    start, goal = _pose(v, -2.5, about(0.0)), _pose(v, 2.5, about(0.0))
    way_points = [_pose(v, -0.9, 0.2), _pose(v, 0.9, -0.2)]
    found["vehicle through a gap", "bicycle, two gaps"] = Course(v, start, goal, 5.0, way_points, gaps)
    car, articulated = vehicles["bicycle"][0], vehicles["trailer"][0]
    bay = [
        *_wall((-1.3, 0.0), (-0.6, 0.0), 0.2),
        *_wall((1.1, 0.0), (1.8, 0.0), 0.2),
        *_wall((-1.3, -0.5), (1.8, -0.5), 0.2),
    ]
    found["parking", "parallel"] = Course(
        car, _pose(car, about(-1.5), about(0.7)), _pose(car, 0.0, 0.0), 6.0, [_pose(car, 1.3, 0.6)], bay
    )
    box = [*_wall((-0.55, -0.9), (-0.55, 0.0), 0.2), *_wall((0.55, -0.9), (0.55, 0.0), 0.2)]
    found["parking", "into a box"] = Course(
        car,
        _pose(car, about(-2.0), about(1.0)),
        _pose(car, 0.0, -0.8, 0.5 * np.pi),
        6.0,
        [_pose(car, 0.8, 1.4, 0.6)],
        box,
    )
    found["parking", "trailer"] = Course(
        articulated, _pose(articulated, about(-2.0), about(1.2)), _pose(articulated, 0.0, -0.8, 0.5 * np.pi), 10.0,
        [_pose(articulated, 0.6, 1.6, 0.8)], box,
    )  # fmt: skip
    flat = planar_quadrotor()
    found["planar quadrotor", "recovery"] = Course(
        flat, _pose(flat, 0.0, 2.0, about(np.pi), about(1.0, 0.5), -1.0), _pose(flat, 0.0, 2.0), 2.0
    )
    found["planar quadrotor", "gap"] = Course(
        flat, _pose(flat, -2.5, about(0.0)), _pose(flat, 2.5, about(0.3)), 2.5, discs=_gap(0.0, about(0.7, 0.05))
    )
    slalom = [*_wall((-1.0, -1.8), (-1.0, 0.5), 0.3), *_wall((1.0, -0.5), (1.0, 1.8), 0.3)]
    bends = [_pose(flat, -1.0, 1.2), _pose(flat, 1.0, -1.2)]
    found["planar quadrotor", "slalom"] = Course(
        flat, _pose(flat, -2.5, about(0.0)), _pose(flat, 2.5, about(0.0)), 3.5, bends, slalom
    )
    for torque in (12.0, 6.0):
        double_rod = acrobot(torque)
        found["acrobot", f"{torque:.0f} Nm"] = Course(
            double_rod, _pose(double_rod, about(0.0, 0.05)), _pose(double_rod, np.pi), 3.0, knots=100
        )
    spatial = quadrotor()
    tumbling = _quadrotor_state((0.0, 0.0, 2.0), about(0.9 * np.pi), (about(1.0, 0.5), 0.0, -2.0))
    found["spatial quadrotor", "recovery"] = Course(spatial, tumbling, _quadrotor_state((0.0, 0.0, 2.0)), 2.0, knots=60)
    bars = [(4, 1.5, 5, about(0.9), 0.5), (4, 1.5, 5, -0.9, 0.5), (4, 1.5, 6, 0.9, 0.5), (4, 1.5, 6, -0.9, 0.5)]
    start, goal, middle = (
        _quadrotor_state(p) for p in ((0.0, about(0.8), 0.5), (3.0, -0.8, about(-0.3)), (1.5, 0.0, 0.0))
    )
    found["spatial quadrotor", "window"] = Course(spatial, start, goal, 2.5, [middle], bars=bars, knots=60)
    found["spatial quadrotor", "two windows"] = Course(
        spatial,
        _quadrotor_state((0.0, 0.0, 0.0)),
        _quadrotor_state((4.5, about(0.5), 0.0)),
        3.0,
        [_quadrotor_state((1.5, 0.0, 0.0)), _quadrotor_state((3.0, 1.0, 0.5))],
        bars=[*bars, *((4, 3.0, j, c + s, 0.5) for j, c in ((5, 1.0), (6, 0.5)) for s in (-0.9, 0.9))],
        knots=80,
    )
    return found


def _course(seed: int, key: tuple[str, str]) -> tuple[to.OCP, to.Guess]:
    return _courses(np.random.default_rng(seed))[key].build()


def instances(seed: int = 0) -> list[Instance]:
    """Return the twenty problems. seed: random variations of starts, gaps and goals."""
    keys = _courses(np.random.default_rng(seed))
    return [
        Instance(f"{family}, {name}", "minimum time", family, partial(_course, seed, (family, name)))
        for family, name in keys
    ]
