"""Textbook problems in the units of their books: meters, kilograms, pascals, moles, feet.

Their bounds lie between 2e-13, of doses of drugs, and 5e22, of charge carriers. No problem is scaled by hand. Guesses are x0 at
every knot, or a straight line to a rough end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import trajopt as to
from experiments.benchmarks.first_try.instance import Instance

INF, DEGREE, G, KNOTS = np.inf, np.pi / 180.0, 9.81, 60
Rate = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Task:
    """Dynamics dx/dt = f(x, u) from ``start`` over ``duration`` [s], on 60 knots.

    running(x, u): cost rate. final(x): terminal cost. squares: weights of the squares of the controls in the cost rate. end: values
    or bounds of states at the end, by index. rows(x, u): at least 0. end_rows(x): 0 at the end. states: bounds (lower, upper) of
    states along the motion, by index. controls: (lower bound, guess, upper bound) of each. line: end of the guess; default: x0
    throughout. free: bounds on a free duration, with ``price`` in the cost.
    """

    name: str
    f: Callable[[Any, Any], list[Any]]
    start: Sequence[float]
    duration: float
    controls: Sequence[tuple[float, float, float]] = ((-INF, 0.0, INF),)
    running: Rate | None = None
    final: Callable[[Any], Any] | None = None
    squares: Sequence[float] = ()
    end: Mapping[int, float | tuple[float, float]] = field(default_factory=dict)
    rows: Sequence[Rate] = ()
    end_rows: Sequence[Callable[[Any], Any]] = ()
    states: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    line: Sequence[float] | None = None
    free: tuple[float, float] | None = None
    price: float = 0.0
    substeps: int = 1

    def build(self) -> tuple[to.OCP, to.Guess]:
        """Build the problem and its guess."""
        nx, nu = len(self.start), len(self.controls)
        system = to.FunctionMap(lambda x, u, t, p: self.f(x, u), nx, nu)
        states, running, final, along, at_end = system.manifold, [], [], [], []
        if self.running is not None:
            rate = self.running
            running.append(to.objective_term("running", lambda x, u, t, p: [rate(x, u)], states, nu=nu))
        if self.squares:
            running.append(to.control_cost(nu, weight=2.0 * np.array(self.squares)))
        if self.final is not None:
            cost = self.final
            final.append(to.objective_term("final", lambda x, u, t, p: [cost(x)], states))
        if self.states:
            along.append(to.state_bounds(states, *_bounds(self.states, nx)))
        if self.end:
            pairs = {i: value if isinstance(value, tuple) else (value, value) for i, value in self.end.items()}
            at_end.append(to.state_bounds(states, *_bounds(pairs, nx), name="end"))
        if count := len(self.rows):
            rows = self.rows
            of_rows = lambda x, u, t, p: [row(x, u) for row in rows]  # noqa: E731
            along.append(to.residual_constraint("rows", of_rows, states, count, 0.0, INF, nu=nu))
        if count := len(self.end_rows):
            rows_of_end = self.end_rows
            of_end = lambda x, u, t, p: [row(x) for row in rows_of_end]  # noqa: E731
            at_end.append(to.residual_constraint("rows at the end", of_end, states, count, 0.0, 0.0))
        lower, u, upper = np.array(self.controls).T
        ocp = to.OCP.single_phase(
            to.SampledSystem(system, "rk4", self.substeps),
            self.start,
            KNOTS,
            self.duration / KNOTS,
            running,
            final,
            constraints=along,
            terminal_constraints=at_end,
            u_lower=lower,
            u_upper=upper,
        )
        guess = to.constant_guess(ocp, u)
        if self.line is not None:
            guess = to.interpolated_guess(ocp, np.array(self.line, dtype=float), u)
        if self.free is None:
            return ocp, guess
        free = to.free_time(ocp, self.free, price=self.price)
        return free.ocp, free.with_durations(guess)


def _bounds(pairs: Mapping[int, tuple[float, float]], n: int) -> tuple[list[float], list[float]]:
    """Return lower and upper bounds of n numbers from pairs by index; none for the others."""
    lower, upper = ([pairs.get(i, (-INF, INF))[side] for i in range(n)] for side in (0, 1))
    return lower, upper


def instances(seed: int = 0) -> list[Instance]:
    """Return the instances, the same for all seeds."""
    families = {
        "vehicles": _vehicles,
        "spacecraft": _spacecraft,
        "aircraft and paths": _aircraft,
        "micro systems": _micro,
        "chemistry": _chemistry,
        "energy": _energy,
        "populations": _populations,
    }
    return [Instance(task.name, "units", family, task.build) for family, tasks in families.items() for task in tasks()]


def _converted(amount: float, x: Any) -> Any:
    """Return minus the amount that is converted [mol]."""
    return x[0] + x[1] - amount


def _mass(m: float) -> Callable[[Any, Any], list[Any]]:
    """Return the dynamics of a mass [kg] that a force [N] moves."""
    return lambda x, u: [x[1], u[0] / m]


# -- land and sea -------------------------------------------------------------------------------------------------------------
def _vehicles() -> list[Task]:
    """Return ships [m, m/s, N] and an electric car [m, m/s, J]."""

    def car(x: Any, u: Any) -> list[Any]:
        return [x[1], u[0] / 1500.0, u[0] * x[1] + 1e-3 * u[0] ** 2]

    def tanker(x: Any, u: Any) -> list[Any]:
        surge = (u[0] - 2e5 * x[2] * to.sqrt(x[2] ** 2 + 1e-2)) / 1e8
        ahead, aside = to.cos(x[4]), to.sin(x[4])
        return [
            x[2] * ahead - x[3] * aside,
            x[2] * aside + x[3] * ahead,
            surge,
            -0.02 * x[3] - 0.1 * x[2] * x[5],
            x[5],
            (u[1] - 3e10 * x[5]) / 5e11,
        ]

    drive: dict[str, Any] = {"duration": 600.0, "end": {0: 1e4, 1: 0.0}, "controls": [(-5e3, 0.0, 5e3)]}
    return [
        Task(
            "ship in minimum time",
            _mass(1e6),
            [0, 0],
            100.0,
            end={0: 1e4, 1: 0.0},
            free=(10.0, 1e3),
            price=1.0,
            controls=[(-1e7, 0.0, 1e7)],
        ),
        Task("ship to rest", _mass(1e6), [1e4, 0], 1e3, running=lambda x, u: x[0] ** 2 + 1e-6 * u[0] ** 2),
        Task(
            "ship with drag",
            lambda x, u: [x[1], (u[0] - 4e4 * x[1] ** 2) / 1e8],
            [0, 1.0],
            2e4,
            running=lambda x, u: u[0] * x[1] + 1e-6 * u[0] ** 2,
            end={0: 1e5},
            line=[1e5, 5.0],
            controls=[(0.0, 1e6, 5e6)],
            states={1: (0.1, INF)},
        ),
        Task(
            "tanker",
            tanker,
            [0, 0, 5, 0, 0, 0],
            1500.0,
            squares=[1e-12, 1e-16],
            end={0: 4e3, 1: 2e3, 4: 1.57},
            line=[4e3, 2e3, 3, 0, 1.57, 0],
            controls=[(-3e6, 0.0, 3e6), (-5e8, 0.0, 5e8)],
        ),
        Task("car, energy used", car, [0, 0, 0], final=lambda x: x[2], **drive),
    ]


# -- space --------------------------------------------------------------------------------------------------------------------
EARTH, SUN = 3.986e14, 1.32712e20
"""Gravitational parameters [m^3/s^2]."""


def _orbit(gravity: float, thrust: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[Any, Any], list[Any]]:
    """Return the dynamics of radius, radial and tangential velocity [m, m/s]; thrust: accelerations along both [m/s^2]."""

    def f(x: Any, u: Any) -> list[Any]:
        radial, tangential = thrust(x, u)
        return [x[1], x[2] ** 2 / x[0] - gravity / x[0] ** 2 + radial, -x[1] * x[2] / x[0] + tangential]

    return f


def _circular(radius: float, gravity: float = EARTH) -> float:
    """Return the velocity of a circular orbit [m/s]."""
    return float(np.sqrt(gravity / radius))


def _spacecraft() -> list[Task]:
    """Return transfers between orbits, landings and ascents."""
    low, higher = 7e6, 7.5e6
    unit, mass = 1.496e11, 4535.9
    year = unit / _circular(unit, SUN)
    thrust, flow = 0.1405 * mass * unit / year**2, 0.07487 * mass / year
    to_mars = _orbit(SUN, lambda x, u: (thrust / x[3] * to.sin(u[0]), thrust / x[3] * to.cos(u[0])))
    spiral = _orbit(EARTH, lambda x, u: (0.1 * to.sin(u[0]), 0.1 * to.cos(u[0])))
    accelerated = _orbit(EARTH, lambda x, u: (u[0], u[1]))

    def rendezvous(x: Any, u: Any) -> list[Any]:
        square = x[0] ** 2 + x[1] ** 2
        pull = -EARTH / (square * to.sqrt(square))
        return [x[2], x[3], pull * x[0] + u[0], pull * x[1] + u[1]]

    def mars(x: Any, u: Any) -> list[Any]:
        return [x[3], x[4], x[5], u[0] / x[6], u[1] / x[6], u[2] / x[6] - 3.7114, -u[3] / (225.0 * 9.807)]

    def ascent(x: Any, u: Any) -> list[Any]:
        speed = to.sqrt(x[2] ** 2 + x[3] ** 2 + 1.0)
        drag = 0.5 * 1.225 * to.exp(-x[1] / 8500.0) * 3.0 * speed
        across, up = u[0] * to.cos(u[1]) - drag * x[2], u[0] * to.sin(u[1]) - drag * x[3]
        return [x[2], x[3], across / x[4], up / x[4] - G, -u[0] / (350.0 * G)]

    def goddard(x: Any, u: Any) -> list[Any]:  # feet, pounds
        drag = 5.49153484923381e-5 * x[1] ** 2 * to.exp(-x[0] / 23800.0)
        return [x[1], (u[0] - drag) / x[2] - 32.174, -u[0] / 1580.9425]

    return [
        Task(
            "orbit of Mars",
            lambda x, u: [*to_mars(x, u), -flow],
            [unit, 0, _circular(unit, SUN), mass],
            3.3207 * year,
            final=lambda x: -x[0],
            end={1: 0.0},
            end_rows=[lambda x: x[2] - np.sqrt(SUN) / to.sqrt(x[0])],
            controls=[(-INF, 0.1, INF)],
        ),
        Task(
            "higher orbit",
            accelerated,
            [low, 0, _circular(low)],
            6e3,
            squares=[1.0, 1.0],
            end={0: higher, 1: 0.0, 2: _circular(higher)},
            line=[higher, 0, _circular(higher)],
            controls=[(-INF, 0.0, INF), (-INF, 0.0, INF)],
        ),
        Task(
            "higher orbit in minimum time",
            spiral,
            [low, 0, _circular(low)],
            2600.0,
            end={0: higher, 1: 0.0, 2: _circular(higher)},
            line=[higher, 0, _circular(higher)],
            free=(1e3, 1e4),
            price=1.0,
        ),
        Task(
            "rendezvous",
            rendezvous,
            [low, 0, 0, _circular(low)],
            3200.0,
            squares=[1.0, 1.0],
            end={0: -higher, 1: 0.0, 2: 0.0, 3: -_circular(higher)},
            controls=[(-INF, 0.0, INF), (-INF, 0.0, INF)],
        ),
        Task(
            "slew",
            _mass(1e4),
            [0, 0],
            800.0,
            end={0: 1.0, 1: 0.0},
            free=(50.0, 5e3),
            price=1.0,
            controls=[(-0.1, 0.0, 0.1)],
        ),
        Task(
            "moon landing",
            lambda x, u: [x[1], u[0] / x[2] - 1.62, -u[0] / (311.0 * G)],
            [1e5, -100.0, 1.5e4],
            300.0,
            final=lambda x: -x[2],
            end={0: 0.0, 1: 0.0},
            line=[0, 0, 1e4],
            free=(50.0, 1e3),
            controls=[(0.0, 3e4, 9e4)],
            states={0: (0, INF), 2: (1000.0, INF)},
        ),
        Task(
            "Mars landing",
            mars,
            [2e3, 500, 1500, 100, 0, -75, 1905],
            80.0,
            final=lambda x: -x[6],
            end=dict.fromkeys(range(6), 0.0),
            rows=[lambda x, u: u[3] ** 2 - u[0] ** 2 - u[1] ** 2 - u[2] ** 2],
            line=[0, 0, 0, 0, 0, 0, 1600],
            free=(30.0, 120.0),
            controls=[
                (-13260.0, 0, 13260.0),
                (-13260.0, 0, 13260.0),
                (-13260.0, 7000.0, 13260.0),
                (4972.0, 7500.0, 13260.0),
            ],
            states={2: (0, INF), 6: (1000.0, INF)},
        ),
        Task(
            "ascent",
            ascent,
            [0, 0, 0, 0, 3e5],
            400.0,
            final=lambda x: -x[4],
            end={1: 1.5e5, 2: 5e3, 3: 0.0},
            line=[1e6, 1.5e5, 5e3, 0, 6e4],
            free=(100.0, 1e3),
            controls=[(0.0, 4e6, 5e6), (-1.57, 0.7, 1.57)],
            states={1: (0, INF), 4: (1e4, INF)},
        ),
        Task(
            "Goddard rocket in feet",
            goddard,
            [0, 0, 3.0],
            40.0,
            final=lambda x: -x[0],
            end={1: 0.0, 2: 1.0},
            line=[18e3, 0, 1.0],
            free=(20.0, 80.0),
            controls=[(0.0, 60.0, 193.0)],
            states={0: (0, INF), 1: (0, INF), 2: (1.0, INF)},
        ),
        Task(
            "linear tangent",
            lambda x, u: [x[2], x[3], 4.0 * to.cos(u[0]), 4.0 * to.sin(u[0])],
            [0, 0, 0, 0],
            600.0,
            end={1: 2e5, 2: 1800.0, 3: 0.0},
            line=[5e5, 2e5, 1800, 0],
            free=(100.0, 3e3),
            price=1.0,
            controls=[(-1.6, 0.0, 1.6)],
        ),
    ]


# -- air ----------------------------------------------------------------------------------------------------------------------
def _aircraft() -> list[Task]:
    """Return the entry of the Space Shuttle [ft, rad], the climb of an aircraft, a boat in a current and slides [m, s]."""

    def shuttle(x: Any, u: Any) -> list[Any]:  # J. T. Betts, Practical Methods for Optimal Control, section 6.1
        h, _, theta, v, gamma, psi = x
        alpha = u[0] / DEGREE
        lift_coefficient = -0.20704 + 0.029244 * alpha
        drag_coefficient = 0.07854 - 0.61592e-2 * alpha + 0.621408e-3 * alpha**2
        pressure = 0.5 * 0.002378 * to.exp(-h / 23800.0) * 2690.0 * v**2
        mass, r = 203000.0 / 32.174, 20902900.0 + h
        lift, drag, g = pressure * lift_coefficient / mass, pressure * drag_coefficient / mass, 0.14076539e17 / r**2
        return [
            v * to.sin(gamma),
            v / r * to.cos(gamma) * to.sin(psi) / to.cos(theta),
            v / r * to.cos(gamma) * to.cos(psi),
            -drag - g * to.sin(gamma),
            lift / v * to.cos(u[1]) + to.cos(gamma) * (v / r - g / v),
            lift * to.sin(u[1]) / (v * to.cos(gamma))
            + v / (r * to.cos(theta)) * to.cos(gamma) * to.sin(psi) * to.sin(theta),
        ]

    def climb(x: Any, u: Any) -> list[Any]:
        h, v, gamma, mass = x
        pressure = 0.5 * 1.225 * to.exp(-h / 9e3) * v**2 * 50.0
        thrust = 1.2e5 * to.exp(-h / 15e3)
        lift, drag = 5.0 * pressure * u[0], pressure * (0.02 + 2.5 * u[0] ** 2)
        return [
            v * to.sin(gamma),
            (thrust * to.cos(u[0]) - drag) / mass - G * to.sin(gamma),
            (thrust * to.sin(u[0]) + lift) / (mass * v) - G * to.cos(gamma) / v,
            -3e-5 * thrust,
        ]

    def slide(x: Any, u: Any) -> list[Any]:
        return [x[2] * to.sin(u[0]), x[2] * to.cos(u[0]), G * to.cos(u[0])]

    upright = 89.0 * DEGREE
    tasks = [
        Task(
            "shuttle in feet",
            shuttle,
            [26e4, 0, 0, 25600, -DEGREE, 90 * DEGREE],
            2e3,
            final=lambda x: -x[2],
            end={0: 8e4, 3: 2500.0, 4: -5 * DEGREE},
            line=[8e4, 0.5, 0.5, 2500, -5 * DEGREE, 90 * DEGREE],
            free=(500.0, 4e3),
            controls=[(-90 * DEGREE, 17 * DEGREE, 90 * DEGREE), (-upright, -60 * DEGREE, DEGREE)],
            states={0: (0, INF), 2: (-upright, upright), 3: (1.0, INF), 4: (-upright, upright)},
        ),
        Task(
            "climb",
            climb,
            [100, 120, 0, 19e3],
            200.0,
            end={0: 1e4, 1: 280.0, 2: 0.0},
            line=[1e4, 280, 0, 18e3],
            free=(30.0, 600.0),
            price=1.0,
            controls=[(-0.2, 0.05, 0.3)],
            states={0: (0, INF), 1: (50, INF), 2: (-1.0, INF), 3: (1e4, INF)},
        ),
        Task(
            "boat in a current",
            lambda x, u: [5.0 * to.cos(u[0]), 5.0 * to.sin(u[0]) + 3.0],
            [0, 0],
            2e3,
            end={0: 1e4, 1: 0.0},
            line=[1e4, 0],
            free=(100.0, 2e4),
            price=1.0,
        ),
    ]
    for size, name in (
        (1e-3, "brachistochrone of 1 mm"),
        (10.0, "brachistochrone of 10 m"),
        (1e6, "brachistochrone of 1000 km"),
    ):
        unit = float(np.sqrt(size / 10.0))
        tasks.append(
            Task(
                name,
                slide,
                [0, 0, 0],
                2.0 * unit,
                end={0: size, 1: size},
                line=[size, size, 10.0 * unit],
                free=(0.5 * unit, 10.0 * unit),
                price=1.0,
                controls=[(0.0, 0.8, np.pi)],
            )
        )
    return tasks


# -- small things -------------------------------------------------------------------------------------------------------------
def _micro() -> list[Task]:
    """Return micro-mechanical systems [m, N] and charge carriers [1/cm^3]."""

    def mirror(x: Any, u: Any) -> list[Any]:
        gap = 2e-6 - x[0]
        return [x[1], (8.854e-18 * u[0] / gap**2 - x[0] - 3e-5 * x[1]) / 1e-9]

    return [
        Task(
            "microgram in minimum time",
            _mass(1e-9),
            [0, 0],
            1e-4,
            end={0: 1e-6, 1: 0.0},
            free=(1e-6, 1e-3),
            price=1.0,
            controls=[(-1e-6, 0.0, 1e-6)],
        ),
        Task("microgram to rest", _mass(1e-9), [1e-6, 0], 1e-3, running=lambda x, u: x[0] ** 2 + u[0] ** 2),
        Task(
            "mirror",
            mirror,
            [0, 0],
            3e-4,
            running=lambda x, u: u[0] ** 2,
            end={0: 5e-7, 1: 0.0},
            controls=[(0.0, 0.0, 1.0)],
            states={0: (-INF, 1.5e-6)},
        ),
        Task(
            "charge carriers",
            lambda x, u: [u[0] - 1e-10 * x[0] ** 2],
            [1e14],
            2e-6,
            squares=[1.0],
            end={0: 1e16},
            controls=[(0.0, 0.0, 5e22)],
        ),
    ]


# -- reactions ----------------------------------------------------------------------------------------------------------------
def _chemistry() -> list[Task]:
    """Return reactors and drugs [mol, s, K]."""

    def reactor(amount: float, hour: float) -> Callable[[Any, Any], list[Any]]:
        def f(x: Any, u: Any) -> list[Any]:
            first = 4e3 * to.exp(-2500.0 / u[0]) / hour * x[0] ** 2 / amount
            return [-first, first - 62e4 * to.exp(-5e3 / u[0]) / hour * x[1]]

        return f

    def catalyst(x: Any, u: Any) -> list[Any]:
        return [u[0] * (10.0 * x[1] - x[0]), u[0] * (x[0] - 10.0 * x[1]) - (1.0 - u[0]) * x[1]]

    def drug(x: Any, u: Any) -> list[Any]:
        return [u[0] - 1e-4 * x[0], 2e-4 * (x[0] - x[1])]

    dose: dict[str, Any] = {"end": {1: (4e-10, INF)}, "states": {0: (-INF, 6e-10)}, "controls": [(0.0, 0.0, 2e-13)]}
    tasks = [
        Task("dose of a drug", drug, [0, 0], 2e4, running=lambda x, u: u[0], **dose),
        Task("effect of a drug in minimum time", drug, [0, 0], 1e4, free=(1e3, 1e5), price=1.0, **dose),
        Task(
            "pollutant",
            lambda x, u: [-u[0] * x[0], u[0] * (x[0] - x[1])],
            [5e-8, 0],
            3600.0,
            squares=[1.0],
            end={0: (-INF, 5e-9), 1: (-INF, 5e-9)},
            controls=[(0.0, 0.0, 0.01)],
        ),
    ]
    for amount in (1e-6, 1e3):
        tasks.append(
            Task(
                f"reactor of {amount:g} mol",
                reactor(amount, 3600.0),
                [amount, 0],
                3600.0,
                final=lambda x: -x[1],
                controls=[(298.0, 340.0, 398.0)],
            )
        )
    for amount in (1e-6, 1e6):
        tasks.append(
            Task(
                f"catalyst for {amount:g} mol",
                catalyst,
                [amount, 0],
                1.0,
                final=partial(_converted, amount),
                controls=[(0.0, 0.5, 1.0)],
            )
        )
    return tasks


# -- energy -------------------------------------------------------------------------------------------------------------------
def _energy() -> list[Task]:
    """Return buildings and furnaces [K, W], a battery [C, K, A], a grid [J, W], hydraulics and a pipeline [Pa]."""

    def house(x: Any, u: Any) -> list[Any]:
        return [(200.0 * (280.0 - x[0]) + u[0]) / 1e7]

    def furnace(x: Any, u: Any) -> list[Any]:
        flow = 2e5 * (x[0] - x[1])
        return [(u[0] - flow) / 5e8, (flow - 5.67e-8 * 300.0 * x[1] ** 4) / 2e9]

    def battery(x: Any, u: Any) -> list[Any]:
        return [u[0], (0.02 * u[0] ** 2 - 0.5 * (x[1] - 298.0)) / 1e3]

    def cylinder(x: Any, u: Any) -> list[Any]:
        return [x[1], 1e-5 * x[2], 1.4e13 * (u[0] - 1e-3 * x[1])]

    def pipeline(x: Any, u: Any) -> list[Any]:
        return [4e2 * (u[0] - x[2]), 4e2 * (x[2] - 50.0), 1e-5 * (x[0] - x[1] - x[2] ** 2)]

    return [
        Task("heating", house, [290.0], 86400.0, squares=[1.0], end={0: 294.0}),
        Task(
            "heating between temperatures",
            house,
            [295.0],
            86400.0,
            running=lambda x, u: u[0],
            controls=[(0.0, 0.0, 1e4)],
            states={0: (293.0, 297.0)},
        ),
        Task(
            "furnace",
            furnace,
            [300.0, 300.0],
            14400.0,
            running=lambda x, u: u[0] + 1e-9 * u[0] ** 2,
            end={1: 900.0},
            line=[900, 900],
            substeps=4,
            controls=[(0.0, 1e8, 3e8)],
            states={0: (-INF, 1500.0)},
        ),
        Task(
            "battery",
            battery,
            [1.8e3, 298.0],
            3600.0,
            end={0: 9e3},
            line=[9e3, 300],
            free=(600.0, 2e4),
            price=1.0,
            controls=[(0.0, 3.0, 15.0)],
            states={1: (-INF, 303.0)},
        ),
        Task(
            "grid",
            lambda x, u: [u[0]],
            [1e12],
            3600.0,
            squares=[1.0],
            end={0: 2e12},
            controls=[(0.0, 0.0, 1e9)],
        ),
        Task(
            "hydraulic cylinder",
            cylinder,
            [0, 0, 0],
            0.05,
            squares=[1.0],
            end={0: 1e-3, 1: 0.0, 2: 0.0},
            substeps=2,
            controls=[(-0.001, 0.0, 0.001)],
        ),
        Task(
            "pipeline",
            pipeline,
            [5e6, 4.8e6, 100.0],
            3600.0,
            running=lambda x, u: 1e-2 * u[0] ** 2,
            end={1: 6e6},
            line=[6e6, 6e6, 50],
            substeps=10,
            controls=[(0.0, 100.0, 400.0)],
            states={0: (1e6, 9e6), 1: (1e6, 9e6), 2: (0, INF)},
        ),
    ]


# -- populations --------------------------------------------------------------------------------------------------------------
def _populations() -> list[Task]:
    """Return an epidemic and a fishery (numbers of individuals)."""
    people = 1e7

    def epidemic(x: Any, u: Any) -> list[Any]:
        infections = 0.3 * (1.0 - u[0]) * x[0] * x[1] / people
        return [-infections, infections - 0.1 * x[1]]

    return [
        Task(
            "epidemic",
            epidemic,
            [people - 1e4, 1e4],
            180.0,
            running=lambda x, u: u[0] + 0.01 * u[0] ** 2,
            controls=[(0.0, 0.0, 0.8)],
            states={1: (-INF, 1e6)},
        ),
        Task(
            "fishery",
            lambda x, u: [0.5 * x[0] * (1.0 - x[0] / 1e7) - u[0]],
            [8e6],
            20.0,
            running=lambda x, u: -u[0] + 1e-9 * u[0] ** 2,
            end={0: (5e6, INF)},
            controls=[(0.0, 0.0, 3e6)],
            states={0: (1e5, INF)},
        ),
    ]
