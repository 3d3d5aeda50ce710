"""A problem on a Lie group that the interior point solves."""

import numpy as np
from rigid_body_cases import tree

import trajopt as to


def tumble(scheme="rk4"):
    """Free-floating base that turns by joint motions, with speed limits and a goal of one joint."""
    body = to.FreeBody(tree("floating90", 3))
    manifold, rng = body.manifold, np.random.default_rng(0)
    x0 = np.concatenate([body.model.random_configuration(rng, 1)[0], np.zeros(body.model.nv)])
    goal = manifold.integrate(x0[:, None], 0.3 * rng.standard_normal((manifold.ndx, 1)))[:, 0]
    dynamics = to.SampledSystem(to.make_backend(body, "analytic"), scheme)
    joints, rates = slice(7, body.model.nq), slice(body.model.nq + 6, None)
    count = body.model.nv - 6
    speed = to.residual_constraint("speed", lambda x, u, t, p: list(x[rates]), manifold, count, -1.5, 1.5)
    place = to.residual_constraint("place", lambda x, u, t, p: [x[joints][0] - goal[7]], manifold, 1, 0.0, 0.0)
    terms = [to.control_cost(body.nu, weight=1e-2), to.state_cost(manifold, goal, 0.1, name="way")]
    fields = {
        "constraints": [speed],
        "terminal_constraints": [place],
        "u_lower": [-0.5] * body.nu,
        "u_upper": [0.5] * body.nu,
    }
    return to.OCP.single_phase(dynamics, x0, 12, 0.05, terms, [to.state_cost(manifold, goal, 10.0)], **fields)
