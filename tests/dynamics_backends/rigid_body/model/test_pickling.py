"""What users send to other processes survives pickling."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.robots import load_robot


@pytest.mark.parametrize("robot", ["gen3", "hyq"])
@pytest.mark.parametrize("engine", ["numpy", pytest.param("compiled", marks=pytest.mark.needs_compiler)])
def test_backends(robot, engine):
    backend = make_backend(FreeBody(load_robot(robot)), "analytic", engine=engine)
    manifold = backend.map.manifold
    x, u = manifold.identity()[None], np.ones((1, backend.map.nu))
    copy = pickle.loads(pickle.dumps(backend))
    for ours, theirs in zip(backend.jacobians(x, u), copy.jacobians(x, u), strict=True):
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
