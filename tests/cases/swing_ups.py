"""Swing-ups with guesses far from any solution."""

import numpy as np

import trajopt as to
from problems.robots import load_robot
from trajopt.config.build import build_task
from trajopt.config.config import load_config


def bundled_swing_up():
    """Bundled double pendulum with a hanging guess."""
    ocp = build_task(load_config("problems/configs/double_pendulum_swing_up.toml")).ocp
    return ocp, to.Guess(np.zeros((ocp.horizon + 1, 4)), np.zeros((ocp.horizon, 2)))


def swing_up_from_elsewhere():
    """Crocoddyl's double pendulum with one motor and its default guess: zero states, unlike x0."""
    model = load_robot("erd:double_pendulum")
    robot = to.FreeBody(model, damping=False, actuated=["joint1"])

    def apart(x, u, t, p):
        return [np.sin(x[0]), np.sin(x[1]), 1.0 - np.cos(x[0]), 1.0 - np.cos(x[1]), x[2], x[3]]

    weight, dt = np.array([1.0, 1.0, 1.0, 1.0, 0.1, 0.1]), 0.01
    far, end = (to.residual_cost(f"goal {w}", apart, robot.manifold, 6, w * weight) for w in (1e-5 / dt, 100.0))
    step = to.SampledSystem(to.make_backend(robot), "semi_implicit_euler")
    running = [to.control_cost(1, weight=1e-4 / dt), far]
    # inaccurate time steps of 10 ms do not matter here
    ocp = to.OCP.single_phase(step, [3.14, 0.0, 0.0, 0.0], 100, dt, running, [end], replay_tolerance=np.inf)
    return ocp, to.Guess(np.zeros((101, 4)), np.zeros((100, 1)))
