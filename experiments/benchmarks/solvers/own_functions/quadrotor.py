"""Minimal time of a quadrotor on SO(3) through a turn and a climb, by user-defined equations of motion, 60 knots."""

import numpy as np

import trajopt as to

MASS, ARM, DRAG, G = 1.0, 0.2, 0.02, 9.81
I1, I2, I3 = 0.01, 0.01, 0.02


def f(x, u, t, p):
    """Rates of attitude, position, velocity and angular velocity; x begins with the attitude as a quaternion x, y, z, w."""
    w1, w2, w3 = x[10], x[11], x[12]
    thrust = (u[0] + u[1] + u[2] + u[3]) / MASS
    across = 2.0 * (x[0] * x[2] + x[3] * x[1]), 2.0 * (x[1] * x[2] - x[3] * x[0])
    upward = 1.0 - 2.0 * (x[0] * x[0] + x[1] * x[1])
    turn = [
        (ARM * (u[1] - u[3]) - (I3 - I2) * w2 * w3) / I1,
        (ARM * (u[2] - u[0]) - (I1 - I3) * w3 * w1) / I2,
        (DRAG * (u[0] - u[1] + u[2] - u[3]) - (I2 - I1) * w1 * w2) / I3,
    ]
    return [w1, w2, w3, x[7], x[8], x[9], across[0] * thrust, across[1] * thrust, upward * thrust - G, *turn]


def problem():
    """Return the problem with a free duration, and a guess on a straight line."""
    states = to.Manifold([to.SO3, to.vector_space(9)])
    system = to.FunctionMap(f, states, 4)
    x0, goal = np.zeros(13), np.zeros(13)
    x0[3] = goal[3] = 1.0
    goal[4:7] = 2.0, 1.0, 1.5
    fixed = to.OCP.single_phase(
        to.SampledSystem(to.make_backend(system, "casadi_ad"), "rk4"),
        x0,
        horizon=60,
        dt=0.03,
        running=[to.control_cost(4, weight=1e-3)],
        terminal_constraints=[to.bounded(to.state_cost(states, goal), name="goal")],
        u_lower=[0.0] * 4,
        u_upper=[6.0] * 4,
    )
    free = to.free_time(fixed, durations=(0.3, 4.0), price=1.0)
    guess = to.interpolated_guess(fixed, goal)
    return free.ocp, free.with_durations(to.Guess(guess.xs, np.full((60, 4), 0.25 * MASS * G)))
