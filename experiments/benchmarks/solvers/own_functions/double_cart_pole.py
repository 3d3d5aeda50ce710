"""Minimal time of a cart with two poles, from hanging to standing, with limited force and track; user-defined dynamics."""

import numpy as np

import trajopt as to

CART, POLE, LENGTH, G = 1.0, 0.1, 0.5, 9.81


def f(x, u, t, p):
    """Cart with two point masses on massless rods side by side; x: position, two angles from hanging, and their rates."""
    s1, c1, s2, c2 = to.sin(x[1]), to.cos(x[1]), to.sin(x[2]), to.cos(x[2])
    push = u[0] + POLE * (s1 * (LENGTH * x[4] * x[4] + G * c1) + s2 * (0.6 * LENGTH * x[5] * x[5] + G * c2))
    a = push / (CART + POLE * (s1 * s1 + s2 * s2))
    return [x[3], x[4], x[5], a, -(a * c1 + G * s1) / LENGTH, -(a * c2 + G * s2) / (0.6 * LENGTH)]


def problem():
    """Return the problem with a free duration, and a guess on a straight line."""
    system = to.FunctionMap(f, 6, 1)
    goal = np.array([0.0, np.pi, np.pi, 0.0, 0.0, 0.0])
    fixed = to.OCP.single_phase(
        to.SampledSystem(to.make_backend(system, "casadi_ad"), "rk4"),
        np.zeros(6),
        horizon=60,
        dt=0.05,
        running=[to.control_cost(1, weight=1e-4)],
        constraints=[to.state_bounds(system.manifold, np.r_[-2.0, [-np.inf] * 5], np.r_[2.0, [np.inf] * 5])],
        terminal_constraints=[to.bounded(to.state_cost(system.manifold, goal), name="goal")],
        u_lower=[-20.0],
        u_upper=[20.0],
    )
    free = to.free_time(fixed, durations=(0.5, 6.0), price=1.0)
    return free.ocp, free.with_durations(to.interpolated_guess(fixed, goal))
