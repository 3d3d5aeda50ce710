"""Problems of Crocoddyl's examples: residuals equal their definitions."""

import numpy as np
import pytest
from scipy.linalg import logm

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import frame_placement
from experiments.benchmarks.solvers.benchmark_crocoddyl import solve_ours
from experiments.benchmarks.solvers.crocoddyl_gaits import ROBOTS, gait
from experiments.benchmarks.solvers.crocoddyl_problems import PROBLEMS, our_guess, our_problem
from problems.robots import load_robot

OPTIMUM_OF_THE_UNICYCLE = 249.560897931
"""Computed by Crocoddyl 3.2.1."""


def test_the_unicycle_has_the_optimum_that_crocoddyl_finds():
    p = PROBLEMS["unicycle"]()
    ocp = our_problem(p)
    found = solve_ours(ocp, our_guess(p, ocp, np.zeros((0, 0))), 1e-8, p)
    assert found.status.success
    assert found.cost == pytest.approx(OPTIMUM_OF_THE_UNICYCLE, rel=1e-11)


def test_the_goal_of_the_arm_is_measured_by_the_logarithm_of_its_placement():
    p = PROBLEMS["kinova reach"]()
    ocp = our_problem(p)
    term = ocp.terminal[0]
    model = term.residual.function.args[0]
    q = np.random.default_rng(0).uniform(-1.0, 1.0, model.nq)
    rotation, position = frame_placement(model, q, p["frame"])
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = rotation, position - p["goal"]
    L = np.real(logm(T))
    expected = [*L[:3, 3], L[2, 1], L[0, 2], L[1, 0]]
    x = np.concatenate([q, np.zeros(model.nv)])[:, None]
    actual = np.ravel(term.residual(x, np.zeros((0, 1)), np.zeros(1), {"goal": np.array(p["goal"])[:, None]}))
    assert actual == pytest.approx(expected, abs=1e-9)


@pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")
@pytest.mark.parametrize(("robot", "kind", "knots", "steps"), [
    ("hyq", "walk", 108, [0.25, 0.125, 0.25, 0.125]),
    ("hyq", "bound", 62, [0.075, 0.075, 0.15, 0.15]),
    ("anymal", "pace", 62, [0.15, 0.075, 0.15, 0.075]),
    ("anymal", "jump", 61, [0.3, 0.3, 0.3, 0.3]),
])  # fmt: skip
def test_feet_land_at_the_step_length_of_the_gait(robot, kind, knots, steps):
    p = gait(robot, kind)
    model, q0 = load_robot(f"erd:{robot}", base="floating"), np.array(p["x0"][:19])
    goals = {foot: goal for knot in p["knots"] if "lands" in knot for foot, goal in knot["feet"].items()}
    moved = np.array([np.subtract(goals[foot], frame_placement(model, q0, foot)[1])[:2] for foot in ROBOTS[robot].feet])
    assert moved == pytest.approx(np.array([[x, 0.0] for x in steps]), abs=1e-12)
    ocp = our_problem(p)
    assert ocp.horizon == len(p["knots"]) == knots
    assert ocp.times[-1] == pytest.approx(p["dt"] * sum("lands" not in knot for knot in p["knots"]))


def cone_of_the_trot():
    from experiments.benchmarks.solvers.crocoddyl_problems import _stance_dynamics

    p = PROBLEMS["hyq trot"]()
    _, (term,) = _stance_dynamics(load_robot("erd:hyq", base="floating"), p, ROBOTS["hyq"].feet)
    rng = np.random.default_rng(0)
    x = np.tile(p["x0"], (20, 1))
    x[:, 19:] += rng.normal(size=(20, 18))
    return term, x, 60.0 * rng.normal(size=(20, 12)), p["friction"]


@pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")
def test_the_cone_cost_is_the_violation_of_five_inequalities():
    term, x, u, mu = cone_of_the_trot()
    forces = np.asarray(term.residual.inner(x.T, u.T, np.zeros(20), {})).reshape(4, 3, 20)
    p = {key: np.tile(v[:, None], 20) for key, v in term.parameters.items()}
    rows = np.asarray(term.residual(x.T, u.T, np.zeros(20), p))
    assert (rows[::5] < 0.0).any() and (rows[::5] == 0.0).any()  # some pull, some push
    fx, fy, fn = forces.transpose(1, 0, 2)
    excess = np.stack([fx - mu * fn, -fx - mu * fn, fy - mu * fn, -fy - mu * fn, -fn])
    expected = (np.maximum(excess, 0.0) ** 2).sum(axis=(0, 1))
    assert (rows**2).sum(axis=0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")
def test_the_derivatives_of_the_cone_are_those_of_a_complex_step():
    term, x, u, _ = cone_of_the_trot()
    analytic, expected = (
        make_backend(term.residual, method, engine="numpy").jacobians(x, u, np.zeros(20), term.parameters)
        for method in ("analytic", "complex_step")
    )
    for a, e in ((analytic.fx, expected.fx), (analytic.fu, expected.fu)):
        assert a == pytest.approx(e, abs=1e-11 * np.abs(e).max())
