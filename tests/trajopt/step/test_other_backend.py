"""Rollouts by the package's library of problems on the NumPy engine, against those in NumPy."""

import numpy as np
import pytest
import textbook_systems as textbook
from contact_cases import FEET, hyq, standing_states

from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.ground_contact import Plane
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt import OCP, SampledSystem, control_cost
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator
from trajopt.step.other_backend import on_library

SYSTEMS = {
    "pendulum in time": textbook.pendulum,
    "chain": lambda: FreeBody(chain(3)),
    "soft contact": lambda: SoftContact(hyq(), FEET),
    "stepped contact": lambda: SteppedContact(hyq(), FEET),
    "rigid contact": lambda: Holonomic(hyq(), [PointContact(foot) for foot in FEET]),
}


def problem(system, scheme, substeps):
    method = "analytic" if hasattr(system, "model") else "forward_ad"
    step = SampledSystem(make_backend(system, method, engine="numpy"), scheme, substeps)
    model = getattr(system, "model", None)
    start = np.zeros(system.manifold.nx) if model is None else np.concatenate([model.neutral(), np.zeros(model.nv)])
    if model is not None and model.floating_base:
        start = standing_states(model, FEET, 0, 1)[0]
    return OCP.single_phase(step, start, 5, 0.002, [control_cost(system.nu)])


def rollout(ocp, engine):
    rng = np.random.default_rng(2)
    ndx, nu = ocp.manifold.ndx, ocp.nu
    xs, us = np.tile(ocp.x0, (6, 1)), rng.normal(size=(5, nu))
    direction = Direction(
        np.zeros((6, ndx)), np.zeros((5, nu)), 0.1 * rng.normal(size=(5, nu, ndx)), np.zeros((5, ndx))
    )
    return StageEvaluator(ocp, engine=engine).rollout(xs, us, direction, np.ones(1), Shooting()).xs


CASES = [(name, "semi_implicit_euler") for name in SYSTEMS] + [
    (name, "rk4") for name in SYSTEMS if name != "stepped contact"
]


@pytest.mark.parametrize(("name", "scheme"), CASES)
def test_rollouts_are_those_of_numpy(name, scheme):
    ocp = problem(SYSTEMS[name](), scheme, 3)
    found, expected = rollout(on_library(ocp), "compiled"), rollout(ocp, "numpy")
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_what_cannot_be_traced_runs_in_numpy():
    class Terrace(Plane):
        def surface(self, at, p):
            if np.all(at.x < 100.0):
                return super().surface(at, p)
            raise AssertionError

    def f(x, u, t, p):
        return [x[1], np.vectorize(lambda angle, torque: torque - angle if angle > 0 else torque)(x[0], u[0])]

    opaque = FunctionMap(f, textbook.pendulum().manifold, 1, second_order=True)
    for system in (SteppedContact(hyq(), FEET, ground=Terrace()), opaque):
        ocp = problem(system, "semi_implicit_euler", 1)
        np.testing.assert_allclose(rollout(on_library(ocp), "auto"), rollout(ocp, "numpy"), rtol=1e-9, atol=1e-9)
