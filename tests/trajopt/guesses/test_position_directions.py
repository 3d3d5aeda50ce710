"""Directions of positions and of their velocities, whatever the order of the state."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from trajopt.guesses.position_directions import position_directions

S, C = np.sin, np.cos


def problem(f, nx, nu, **options):
    """A problem with dynamics f and no cost but that of the controls."""
    step = to.SampledSystem(to.FunctionMap(f, nx, nu, **options), "rk4")
    return to.OCP.single_phase(step, np.zeros(nx), 20, 0.1, [to.control_cost(nu)])


@pytest.mark.parametrize(
    ("f", "nx", "nu", "positions", "moving", "velocities"),
    [
        (lambda x, u, t, p: [x[1], u[0] - S(x[2]), x[3], u[0] * C(x[2]) - x[1]], 4, 1, [0, 2], [0, 2], [1, 3]),
        (lambda x, u, t, p: [x[2], x[3], u[0] - S(x[1]), u[0] * C(x[1])], 4, 1, [0, 1], [0, 1], [2, 3]),
        (lambda x, u, t, p: [u[0], u[1]], 2, 2, [0, 1], [], []),
        (lambda x, u, t, p: [u[0] * C(x[2]), u[0] * S(x[2]), u[1]], 3, 2, [0, 1, 2], [], []),
        (lambda x, u, t, p: [x[3] * C(x[2]), x[3] * S(x[2]), u[1], u[0]], 4, 2, [0, 1, 2, 3], [], []),
        (lambda x, u, t, p: [x[3] * C(x[2]), x[3] * S(x[2]), x[4], u[0], u[1]], 5, 2, [0, 1, 2, 3], [2], [4]),
        (lambda x, u, t, p: [x[1], x[2], u[0]], 3, 1, [0], [0], [1]),
        (lambda x, u, t, p: [x[1], x[0] + u[0]], 2, 1, [0], [0], [1]),
        (lambda x, u, t, p: [2.0 * x[1], u[0]], 2, 1, [0, 1], [], []),
        (lambda x, u, t, p: [np.sqrt(x[1]), u[0]], 2, 1, [0, 1], [], []),
    ],
)
def test_velocities_are_found_from_values(f, nx, nu, positions, moving, velocities):
    found = position_directions(problem(f, nx, nu))
    assert [a.tolist() for a in found] == [positions, moving, velocities]


def test_declared_systems_robots_and_free_durations():
    declared = problem(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    robot = to.FreeBody(to.chain(2))
    arm = to.OCP.single_phase(to.SampledSystem(robot), np.zeros(4), 20, 0.1, [to.control_cost(2)], model=to.chain(2))
    for ocp, half in ((declared, 1), (to.free_time(declared).ocp, 1), (arm, 2), (to.free_time(arm).ocp, 2)):
        found = position_directions(ocp)
        assert [a.tolist() for a in found] == [[*range(half)], [*range(half)], [*range(half, 2 * half)]]
    odd = problem(lambda x, u, t, p: [u[0]], 1, 1, second_order=True)
    assert position_directions(odd).positions.tolist() == [0]


def test_detours_move_positions_with_their_velocities():
    ocp = problem(lambda x, u, t, p: [x[1], u[0] - S(x[2]), x[3], u[0]], 4, 1)
    xs = to.detour(ocp, to.constant_guess(ocp), np.random.default_rng(0), 5.0).xs
    rates = np.gradient(xs[:, [0, 2]], 0.1, axis=0)
    np.testing.assert_allclose(xs[1:-1, [1, 3]], rates[1:-1], atol=0.05 * np.abs(rates).max())
    assert np.ptp(xs, axis=0).min() > 0.1 and np.abs(xs[[0, -1]]).max() < 1e-12


def test_a_function_that_refuses_other_states_has_positions_only():
    def only_at_rest(x, u, t, p):
        if np.abs(x).max() > 0.0:
            raise ValueError("outside of the table")
        return [x[1], u[0]]

    assert position_directions(problem(only_at_rest, 2, 1)).velocities.size == 0
