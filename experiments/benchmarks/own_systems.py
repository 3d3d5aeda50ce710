"""Five optimal control problems with user-defined dynamics in Python.

The van der Pol oscillator with a bound on a state; Goddard's rocket and the robot arm of COPS 3.0 (Dolan, More, Munson 2004); the
fastest swing-up of a double cart-pole; the fastest flight of a quadrotor with its attitude on SO(3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import trajopt as to

Array = np.ndarray
Residual = Callable[..., Sequence[Any]]
INF = np.inf


@dataclass(frozen=True)
class UserSystem:
    """Data of a problem, from which this toolkit and CasADi build their formulations.

    Dynamics dx/dt = f(x, u) in the tangent space of ``states``, with ``knots`` steps of RK4 and constant controls in a step.
    Cost: integral of 1/2 |running(x, u)|^2, plus price times duration, plus 1/2 |terminal(x)|^2.
    start (nx,): initial state. lower, upper (nx,): bounds on later states. final: bounds on the last state, or arrival(x) = 0.
    u_lower, u_upper: bounds on all controls. duration [s]: duration of the guess; durations: bounds on it, None if it is fixed.
    guess: states (knots + 1, nx), controls (knots, nu). varied: index and range of the initial state that differs in a batch.
    """

    name: str
    f: Residual
    states: to.Manifold
    nu: int
    knots: int
    duration: float
    start: Array
    u_lower: float
    u_upper: float
    guess: tuple[Array, Array]
    varied: tuple[int, float]
    running: Residual | None = None
    terminal: Residual | None = None
    lower: Array | None = None
    upper: Array | None = None
    final: tuple[Array, Array] | None = None
    arrival: Residual | None = None
    durations: tuple[float, float] | None = None
    price: float = 1.0

    def problem(self, backend: str) -> tuple[to.OCP, to.Guess]:
        """Build the problem for this toolkit, with derivatives by a backend, and its guess."""
        system = to.FunctionMap(lambda x, u, t, p: self.f(x, u), self.states, self.nu)
        terms, terminal, path, last = [], [], [], []
        if self.running is not None:
            running, size = self.running, len(self.running(self.start, np.zeros(self.nu)))
            terms = [to.residual_cost("running", lambda x, u, t, p: running(x, u), self.states, size, nu=self.nu)]
        if self.terminal is not None:
            at_end, size = self.terminal, len(self.terminal(self.start))
            terminal = [to.residual_cost("terminal", lambda x, u, t, p: at_end(x), self.states, size)]
        if self.lower is not None and self.upper is not None:
            path = [to.state_bounds(self.states, self.lower, self.upper)]
        if self.final is not None:
            last = [to.state_bounds(self.states, *self.final)]
        if self.arrival is not None:
            arrival, size = self.arrival, len(self.arrival(self.start))
            last = [to.residual_constraint("goal", lambda x, u, t, p: arrival(x), self.states, size, 0.0, 0.0)]
        fixed = to.OCP.single_phase(
            to.SampledSystem(to.make_backend(system, backend), "rk4"),
            self.start,
            self.knots,
            self.duration / self.knots,
            terms,
            terminal,
            constraints=path,
            terminal_constraints=last,
            u_lower=self.u_lower,
            u_upper=self.u_upper,
            name=self.name,
        )
        guess = to.Guess(*self.guess)
        if self.durations is None:
            return fixed, guess
        free = to.free_time(fixed, self.durations, self.price)
        return free.ocp, free.with_durations(guess)


def _line(start: Array, end: Array, knots: int) -> Array:
    return np.linspace(start, end, knots + 1)


def van_der_pol() -> UserSystem:
    """Damping of a van der Pol oscillator within 10 s."""

    def f(x: Any, u: Any) -> list[Any]:
        return [(1.0 - x[1] * x[1]) * x[0] - x[1] + u[0], x[0]]

    def running(x: Any, u: Any) -> list[Any]:
        root = np.sqrt(2.0)
        return [root * x[0], root * x[1], root * u[0]]

    start = np.array([0.0, 1.0])
    guess = _line(start, start, 100), np.zeros((100, 1))
    return UserSystem(
        "van der Pol",
        f,
        to.Manifold.vector(2),
        1,
        100,
        10.0,
        start,
        -1.0,
        1.0,
        guess,
        (1, 0.1),
        running=running,
        lower=np.array([-0.25, -INF]),
        upper=np.full(2, INF),
    )


def goddard() -> UserSystem:
    """Goddard's rocket: maximum height with limited fuel. State: height, speed and mass in scaled units."""

    def f(x: Any, u: Any) -> list[Any]:
        drag = 310.0 * x[1] * x[1] * np.exp(-500.0 * (x[0] - 1.0))
        return [x[1], (u[0] - drag) / x[2] - 1.0 / (x[0] * x[0]), -2.0 * u[0]]

    s = np.linspace(0.0, 1.0, 101)
    guess = np.column_stack([np.ones(101), s * (1.0 - s), 1.0 - 0.4 * s]), np.full((100, 1), 1.75)
    return UserSystem(
        "Goddard's rocket",
        f,
        to.Manifold.vector(3),
        1,
        100,
        0.2,
        np.array([1.0, 0.0, 1.0]),
        0.0,
        3.5,
        guess,
        (2, -0.02),
        terminal=lambda x: [10.0 * (1.1 - x[0])],
        lower=np.array([1.0, 0.0, 0.6]),
        upper=np.array([INF, INF, 1.0]),
        final=(np.array([1.0, -INF, 0.6]), np.array([INF, INF, 0.6])),
        durations=(0.05, 1.0),
        price=0.0,
    )


def robot_arm() -> UserSystem:
    """Robot arm of COPS: a telescopic arm turns by 120 degrees in minimum time."""

    def f(x: Any, u: Any) -> list[Any]:
        across = ((5.0 - x[0]) ** 3 + x[0] ** 3) / 3.0
        return [x[3], x[4], x[5], u[0] / 5.0, u[1] / (across * np.sin(x[2]) ** 2), u[2] / across]

    start, goal = (np.array([4.5, turn, np.pi / 4.0, 0.0, 0.0, 0.0]) for turn in (0.0, 2.0 * np.pi / 3.0))
    return UserSystem(
        "robot arm",
        f,
        to.Manifold.vector(6),
        3,
        100,
        9.0,
        start,
        -1.0,
        1.0,
        (_line(start, goal, 100), np.zeros((100, 3))),
        (1, 0.1),
        lower=np.array([0.0, -np.pi, 0.0, -INF, -INF, -INF]),
        upper=np.array([5.0, np.pi, np.pi, INF, INF, INF]),
        final=(goal, goal),
        durations=(1.0, 30.0),
    )


def double_cart_pole() -> UserSystem:
    """Minimum-time swing-up of two poles on a cart. State: position, angles from upright, and their rates."""
    cart, first, second, length, g = 1.0, 0.3, 0.2, 0.5, 9.81
    both = first + second

    def f(x: Any, u: Any) -> list[Any]:
        a, b, da, db = x[1], x[2], x[4], x[5]
        m01, m02, m12 = both * length * np.cos(a), second * length * np.cos(b), second * length**2 * np.cos(a - b)
        coupling = second * length**2 * np.sin(a - b)
        r0 = u[0] + both * length * np.sin(a) * da * da + second * length * np.sin(b) * db * db
        r1 = both * length * g * np.sin(a) - coupling * db * db
        r2 = second * length * g * np.sin(b) + coupling * da * da
        total = cart + both
        n11, n12, n22 = (
            both * length**2 - m01 * m01 / total,
            m12 - m01 * m02 / total,
            second * length**2 - m02 * m02 / total,
        )
        q1, q2, determinant = r1 - m01 * r0 / total, r2 - m02 * r0 / total, n11 * n22 - n12 * n12
        dda, ddb = (n22 * q1 - n12 * q2) / determinant, (n11 * q2 - n12 * q1) / determinant
        return [x[3], x[4], x[5], (r0 - m01 * dda - m02 * ddb) / total, dda, ddb]

    start, goal = np.array([0.0, np.pi, np.pi, 0.0, 0.0, 0.0]), np.zeros(6)
    return UserSystem(
        "double cart-pole",
        f,
        to.Manifold.vector(6),
        1,
        120,
        2.0,
        start,
        -50.0,
        50.0,
        (_line(start, start, 120), np.zeros((120, 1))),
        (0, 0.02),
        running=lambda x, u: [1e-2 * u[0]],
        final=(goal, goal),
        durations=(0.5, 6.0),
    )


def quadrotor() -> UserSystem:
    """Minimum-time flight of a quadrotor over 3.7 m with a turn by 90 degrees. State: attitude, position, velocity, body rates."""
    mass, arm, drag, g, (i1, i2, i3) = 1.0, 0.2, 0.02, 9.81, (0.01, 0.01, 0.02)
    half = np.sqrt(0.5)

    def f(x: Any, u: Any) -> list[Any]:
        w1, w2, w3 = x[10], x[11], x[12]
        thrust = (u[0] + u[1] + u[2] + u[3]) / mass
        up = (
            2.0 * (x[0] * x[2] + x[3] * x[1]),
            2.0 * (x[1] * x[2] - x[3] * x[0]),
            1.0 - 2.0 * (x[0] * x[0] + x[1] * x[1]),
        )
        turn = [
            (arm * (u[1] - u[3]) - (i3 - i2) * w2 * w3) / i1,
            (arm * (u[2] - u[0]) - (i1 - i3) * w3 * w1) / i2,
            (drag * (u[0] - u[1] + u[2] - u[3]) - (i2 - i1) * w1 * w2) / i3,
        ]
        return [w1, w2, w3, x[7], x[8], x[9], up[0] * thrust, up[1] * thrust, up[2] * thrust - g, *turn]

    def arrival(x: Any) -> list[Any]:
        """Goal residual: zero at attitude (0, 0, half, half), position (3, 2, 1) and rest."""
        attitude = [half * (x[0] + x[1]), half * (x[1] - x[0]), half * (x[2] - x[3])]
        return [*attitude, x[4] - 3.0, x[5] - 2.0, x[6] - 1.0, *(x[7 + i] for i in range(6))]

    states = to.Manifold([to.SO3, to.vector_space(9)])
    start, goal = np.zeros(13), np.array([0.0, 0.0, half, half, 3.0, 2.0, 1.0, *[0.0] * 6])
    start[3] = 1.0
    angles = np.linspace(0.0, np.pi / 4.0, 61)
    xs = _line(start, goal, 60)
    xs[:, 2], xs[:, 3] = np.sin(angles), np.cos(angles)
    return UserSystem(
        "quadrotor",
        f,
        states,
        4,
        60,
        2.0,
        start,
        0.0,
        6.0,
        (xs, np.full((60, 4), mass * g / 4.0)),
        (4, 0.2),
        running=lambda x, u: [1e-2 * u[i] for i in range(4)],
        arrival=arrival,
        durations=(0.3, 6.0),
    )


SYSTEMS: dict[str, Callable[[], UserSystem]] = {
    f.__name__: f for f in (van_der_pol, goddard, robot_arm, double_cart_pole, quadrotor)
}
"""Name -> function that creates a system."""
