"""UR5 with a user-defined cost and constraint: a bent elbow, and a wrist above a plane."""

import numpy as np

import trajopt as to

model = to.load_robot("erd:ur5")


def elbow(x, u, t, p):
    """Deviation of the elbow from a bent posture."""
    return [to.sin(x[2]) - p["bend"][0]]


def above(x, u, t, p):
    """Height of the wrist above a plane, from the lengths of upper arm and forearm [m]."""
    return [0.425 * to.sin(-x[1]) + 0.392 * to.sin(-x[1] - x[2]) - p["height"][0]]


def problem():
    """Return the problem and a static guess."""
    robot = to.FreeBody(model)
    start, goal = np.zeros(12), np.zeros(12)
    start[:6] = 0.0, -1.2, 1.4, -1.6, -1.57, 0.0
    goal[:6] = 1.2, -0.9, 1.0, -1.6, -1.57, 0.5
    ocp = to.OCP.single_phase(
        to.SampledSystem(robot, "rk4"),
        start,
        horizon=40,
        dt=0.04,
        running=[
            to.control_cost(6, weight=1e-4),
            to.residual_cost("elbow", elbow, robot.manifold, 1, 0.1, parameters={"bend": [1.0]}),
        ],
        constraints=[
            to.residual_constraint(
                "above", above, robot.manifold, 1, lower=0.0, upper=np.inf, parameters={"height": [0.1]}
            )
        ],
        terminal_constraints=[to.bounded(to.state_cost(robot.manifold, goal), name="goal")],
        model=model,
    )
    return ocp, to.constant_guess(ocp)
