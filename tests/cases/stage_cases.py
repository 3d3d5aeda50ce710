"""Problems for the comparison of compiled and NumPy stages."""

from functools import partial

import numpy as np
from rigid_body_cases import foreign

from dynamics_backends import scalar as sm
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.robots import load_robot
from trajopt import (
    OCP,
    SampledSystem,
    control_cost,
    frame_position_cost,
    joint_limit_cost,
    residual_cost,
    state_cost,
)
from trajopt.stage.evaluation import Shooting, StageEvaluator

compiled_evaluator = partial(StageEvaluator, engine="compiled")
TOLERANCE = 1e-11


SCHEMES = {
    "euler": ("euler", 1),
    "semi-implicit": ("semi_implicit_euler", 1),
    "rk4": ("rk4", 1),
    "three semi-implicit": ("semi_implicit_euler", 3),
    "three rk4": ("rk4", 3),
}


SHOOTING = {
    "single": Shooting(),
    "all, linear": Shooting.every("all", 13, "linear"),
    "every 10, linear": Shooting.every(10, 13, "linear"),
    "every 10, nonlinear": Shooting.every(10, 13, "nonlinear"),
    "all, nonlinear": Shooting.every("all", 13, "nonlinear"),
}


def pendulum():
    """The bundled double pendulum, with position limits."""
    model = load_robot("double_pendulum")
    return model.replace(q_lower=np.array([-0.5, -0.6]), q_upper=np.array([0.4, 0.7]))


ROBOTS = {"double pendulum": (pendulum, "tip"), "ur5": (lambda: foreign("ur5"), "tool0")}


def _wave(x, u, t, p):
    """Curved in state and control, and dependent on time: an exact Hessian differs from Gauss-Newton's."""
    return [sm.sin(x[0]) * u[0] + p["shift"][0] * t, x[1] * x[2] + u[1] * u[1]]


def problem(robot="double pendulum", scheme="three rk4", horizon=13, dt=0.02, shift=0.3, bounded=False, frames=True):
    """A problem with terms of many kinds, whose weights and references change from knot to knot.

    Its backend uses the NumPy engine, so that the reference is NumPy throughout.
    """
    load, frame = ROBOTS[robot]
    model = load()
    free = FreeBody(model)
    dynamics = SampledSystem(make_backend(free, "analytic", engine="numpy"), *SCHEMES[scheme])
    rng, n, manifold = np.random.default_rng(0), model.nv, free.manifold
    reference = rng.standard_normal((horizon, 2 * n))
    frame_terms = [frame_position_cost(model, manifold, frame, [0.3, 0.2, 0.1], w) for w in (2.0, 20.0) if frames]
    running = [
        control_cost(n, reference=rng.standard_normal(n), weight=rng.uniform(0.1, 1.0, n)),
        state_cost(manifold, reference, rng.uniform(0.1, 1.0, (horizon, 2 * n))),
        *frame_terms[:1],
        joint_limit_cost(model, manifold, 3.0, 0.1),
        residual_cost("wave", _wave, manifold, 2, 0.5, nu=n, parameters={"shift": [shift]}),
    ]
    terminal = [state_cost(manifold, reference[0], 5.0), *frame_terms[1:]]
    steps = dt * np.linspace(0.8, 1.2, horizon)
    limits = {"u_lower": -np.full(n, 0.4), "u_upper": np.full(n, 0.5)} if bounded else {}
    return OCP.single_phase(dynamics, 0.1 * np.arange(2.0 * n), horizon, steps, running, terminal, **limits)


def close(actual, expected, tolerance=TOLERANCE):
    scale = max(np.abs(expected).max(initial=0.0), 1e-12)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)
