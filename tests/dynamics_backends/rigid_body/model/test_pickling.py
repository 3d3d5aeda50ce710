"""Pickling of the objects that users send to other processes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from contact_cases import FEET, hyq

import trajopt as to
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from problems.robots import load_robot


@pytest.mark.parametrize("robot", ["gen3", "hyq"])
@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_backends(robot, engine):
    check_copies(make_backend(FreeBody(load_robot(robot)), "analytic", engine=engine))


@pytest.mark.parametrize("method", ["forward_ad", "casadi_ad", "central_difference"])
@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_backends_of_functions(method, engine):
    check_copies(make_backend(FunctionMap(pendulum, 2, 1), method, engine=engine))


def test_backends_of_implicit_contact():

    system = SteppedContact(hyq(), FEET, step=0.01)
    check_copies(make_backend(system, "analytic", engine="compiled"))


def pendulum(x, u, t, p):
    return [x[1], u[0] - x[0] * x[0]]


def check_copies(backend):
    """Copies of before and after the first values give the same values."""
    manifold = backend.map.manifold
    x, u = manifold.identity()[None], np.ones((1, backend.map.nu))
    early = pickle.dumps(backend)
    values = backend.jacobians(x, u)
    for copy in (pickle.loads(early), pickle.loads(pickle.dumps(backend))):
        for ours, theirs in zip(values, copy.jacobians(x, u), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_problems_and_solutions():
    model = load_robot("double_pendulum")
    system = FreeBody(model)
    manifold = system.manifold
    frame = model.frames[-1].name
    running = [
        to.control_cost(2, weight=1e-2),
        to.state_cost(manifold, np.zeros(4), 0.1),
        to.frame_velocity_cost(model, manifold, frame, weight=0.1),
        to.center_of_mass_cost(model, manifold, [0.0, 0.0, 1.0], 0.1),
    ]
    terminal = [
        to.frame_position_cost(model, manifold, frame, [0.0, 0.0, 1.0], 10.0),
        to.frame_placement_cost(model, manifold, frame, [0.0, 0.0, 1.0], np.eye(3), 0.1),
    ]
    dynamics = to.SampledSystem(make_backend(system, "analytic"), "rk4")
    ocp = to.OCP.single_phase(dynamics, np.array([0.3, 0.1, 0.0, 0.0]), 10, 0.02, running, terminal, model=model)
    copy = pickle.loads(pickle.dumps(ocp))
    solutions = [to.solve(problem, options={"max_iterations": 3}) for problem in (ocp, copy)]
    np.testing.assert_array_equal(solutions[0].us, solutions[1].us)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(solutions[0])).xs, solutions[0].xs)
