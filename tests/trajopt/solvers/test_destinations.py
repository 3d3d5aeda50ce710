"""States that constraints ask for at the end and at way points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from two_goals import DT

import trajopt as to
from trajopt.solvers.destinations import Destinations, way_points_of


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


def test_random_motions_pass_through_way_points():
    """Positions on a circle about (1, 1), then an abscissa that bounds on the state fix, then the goal."""
    lower, upper = np.full((10, 4), -np.inf), np.full((10, 4), np.inf)
    lower[0, 0] = upper[0, 0] = 1.5
    ocp = plane((at_rows({5: 0.04}),), (to.state_bounds(4, lower, upper, name="abscissa"),), ())
    destinations = Destinations(ocp)
    assert destinations.knots == [5, 10, 30]
    circle, abscissa, goal = destinations.near(np.random.default_rng(0).standard_normal((8, 2)))
    np.testing.assert_allclose(np.square(circle - 1.0).sum(axis=1), 0.04, atol=1e-2)
    np.testing.assert_allclose(abscissa[:, 0], 1.5, atol=1e-2)
    np.testing.assert_allclose(goal, np.tile([2.0, 0.0], (8, 1)), atol=1e-2)
