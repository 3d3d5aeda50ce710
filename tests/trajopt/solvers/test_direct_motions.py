"""Direct motions: to the states that constraints ask for at the end and at way points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from two_goals import DT, KNOTS, PENALTY, START, TILT, mass

import trajopt as to
from trajopt.guesses.position_directions import position_directions
from trajopt.solvers.direct_motions import Destinations, direct_motions, direct_motions_through, way_points_of


def test_direct_motions_cost_as_their_inverse_dynamics():
    """A mass on a line: the force is the difference quotient of the speeds, and the cost is that of forces and final state."""
    ocp, ends = mass(), np.array([[0.5], [-1.2]])
    r = np.linspace(0.0, 1.0, KNOTS + 1)
    us, directions = np.full((KNOTS, 1), 0.7), position_directions(ocp)
    for end, cost in zip(ends, direct_motions_through(ocp, us, [KNOTS], ends[None], directions)[2], strict=True):
        speed = np.append(0.0, np.diff(end * (r**3 * (10.0 - 15.0 * r + 6.0 * r**2))) / DT)
        x = START + end[0]
        rows = np.array([x * x - 1.0, TILT * (x + 1.0), speed[-1]])
        expected = 0.5 * DT * np.square(np.diff(speed) / DT).sum() + 0.5 * PENALTY * np.square(rows).sum()
        np.testing.assert_allclose(cost, expected, rtol=1e-6)


@pytest.mark.parametrize("free", [False, True])
def test_direct_motions_end_where_the_terminal_constraints_hold(free):
    """A point mass that ends at rest on a circle, for a fixed and for a free duration."""
    mass = to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2)
    ring = to.residual_constraint("ring", lambda x, u, t, p: [x[0] ** 2 + x[1] ** 2 - 4.0, x[2], x[3]], 4, 3)
    step = to.SampledSystem(to.make_backend(mass, "forward_ad"), "rk4")
    ocp = to.OCP.single_phase(
        step,
        [0.5, 0.0, 0.0, 0.0],
        40,
        0.05,
        [to.control_cost(2)],
        terminal_constraints=[ring],
        u_lower=-9.0,
        u_upper=9.0,
    )
    ocp = to.free_time(ocp, (1.0, 3.0)).ocp if free else ocp
    motions = [*direct_motions(ocp, to.constant_guess(ocp))]
    assert len(motions) == 3
    for motion in motions:
        assert np.hypot(*motion.xs[-1, :2]) == pytest.approx(2.0, abs=1e-6)
        path = motion.xs[1 if free else 0 :, :2]
        np.testing.assert_allclose(np.diff(path, axis=0), 0.05 * motion.xs[-40:, 2:4], atol=1e-12)  # speeds
        pushed = np.diff(motion.xs[-39:, 2:4], axis=0)  # by the controls
        np.testing.assert_allclose(pushed, 0.05 * motion.us[-38:], atol=0.05)


def plane(*phases, name="way point"):
    """Point mass in the plane from the origin to rest at (2, 0), with phases of 10 knots and a constraint in each of them."""
    system = to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad"), "semi_implicit_euler")
    end = to.state_bounds(4, [2.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0])
    made = tuple(to.Phase(step, np.full(10, DT), (to.control_cost(2),), constraints=c) for c in phases)
    return to.OCP(made, np.zeros(4), terminal_constraints=(end,))


def at_rows(values, name="way point", knots=10):
    """Equality of the squared distance from (1, 1) at some of the knots, by row."""
    lower, upper = np.full((knots, 1), -np.inf), np.full((knots, 1), np.inf)
    for k, value in values.items():
        lower[k] = upper[k] = value
    distance = to.residual_constraint(
        name, lambda x, u, t, p: [(x[0] - 1.0) ** 2 + (x[1] - 1.0) ** 2], 4, 1, -np.inf, np.inf
    )
    return replace(distance, lower=lower, upper=upper)


def test_way_points_are_knots_at_which_an_equality_on_the_state_begins():
    force = to.residual_constraint("force", lambda x, u, t, p: [u[0]], 4, 1, nu=2)
    line = to.residual_constraint("line", lambda x, u, t, p: [x[0] - x[1]], 4, 1)
    two = plane((at_rows({0: 0.0, 3: 0.04, 4: 0.04}),), (at_rows({0: 0.0, 1: 0.0, 9: 0.1}),))
    assert way_points_of(two) == [3, 10, 19]
    assert way_points_of(plane((force,), (line,), (line,), (at_rows({0: 0.1}, "line"),))) == [10]
    many = at_rows(dict.fromkeys((1, 3, 5, 7), 0.1))
    assert len(way_points_of(plane(*4 * [(many,)]))) == 16 and not way_points_of(plane(*5 * [(many,)]))


def test_direct_motions_pass_through_way_points():
    """Positions on a circle about (1, 1), then an abscissa that bounds on the state fix, then the goal."""
    lower, upper = np.full((10, 4), -np.inf), np.full((10, 4), np.inf)
    lower[0, 0] = upper[0, 0] = 1.5
    ocp = plane((at_rows({5: 0.04}),), (to.state_bounds(4, lower, upper, name="abscissa"),), ())
    motions = [*direct_motions(ocp, to.constant_guess(ocp))]
    assert Destinations(ocp).knots == [5, 10, 30] and len(motions) > 1
    for motion in motions:
        xs = motion.xs
        assert np.square(xs[5, :2] - 1.0).sum() == pytest.approx(0.04, abs=1e-5)
        assert xs[10, 0] == pytest.approx(1.5, abs=1e-6)
        np.testing.assert_allclose(xs[-1, :2], [2.0, 0.0], atol=1e-6)
        np.testing.assert_allclose(np.diff(xs[:, :2], axis=0), DT * xs[1:, 2:], atol=1e-12)
