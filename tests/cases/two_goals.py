"""A point mass with two goals, for searches for the better optimum."""

from __future__ import annotations

import trajopt as to

KNOTS, DT, START, PENALTY, TILT = 40, 0.05, 0.2, 100.0, 0.3


def mass(position=START, knots=KNOTS):
    """Point mass on a line that shall end at rest at -1 or 1, of which -1 is cheaper; the first position is nearer to 1."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad"), "semi_implicit_euler")
    ends = to.residual_cost(
        "ends", lambda x, u, t, p: [x[0] * x[0] - 1.0, TILT * (x[0] + 1.0), x[1]], system.manifold, 3, PENALTY
    )
    return to.OCP.single_phase(step, [position, 0.0], knots, DT, [to.control_cost(1)], [ends])
