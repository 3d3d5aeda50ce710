"""Contour following in both forms, its component systems, and sequential convex quadratic programming on it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import frame_placement, inverse_dynamics
from dynamics_backends.rigid_body.model.model_builder import with_joint_properties
from dynamics_backends.systems.bodies.along_path import AlongPath, DoubleIntegrator
from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.robots import load_robot
from trajopt import OCP, SQPOptions, StatusCode, check_derivatives, control_cost, solve, velocity_limits
from trajopt.config.registry import PROBLEMS
from trajopt.config.task import SettingsError
from trajopt.guesses.guesses import Guess, WarmStart
from trajopt.replanning.real_time_sqp import RealTimeSQP
from trajopt.solvers.direct.direct_sqp import staged_program
from trajopt.step.sensitivities import SampledSystem

CONTOUR = PROBLEMS["contour_following"]
NUMPY = partial(make_backend, engine="numpy")
FORMS = ("torque", "acceleration")
TUBE = "tube of EndEffector_Link"


def built(form="torque", **settings):
    return CONTOUR.build(CONTOUR.Settings(form=form, **settings), make_backend)


def short(form="torque", **settings):
    """Few knots, so that the wall of the tube is reached early."""
    return built(form, **{"horizon": 6, "dt": 0.12, "integrator": "euler", **settings})


# -- systems ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_partial_derivatives_along_a_path(form):
    model = load_robot("gen3", base="fixed")
    system = AlongPath(FreeBody(model) if form == "torque" else DoubleIntegrator(model.dof_names))
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal((3, 16)), rng.standard_normal((3, 8))
    lam = rng.standard_normal((3, 16))
    backend, reference = NUMPY(system, "analytic"), NUMPY(system, "complex_step")
    d, expected = backend.jacobians(x, u, 0.0), reference.jacobians(x, u, 0.0)
    np.testing.assert_allclose(d.value[:, 14], x[:, 15])
    np.testing.assert_allclose(d.value[:, 15], u[:, 7])
    for got, wanted in zip(d, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-10)
    _, (xx, ux, uu) = backend.hessian_contraction(x, u, 0.0, {}, lam)
    e = 1e-5

    def slope(x, u):
        j = backend.jacobians(x, u, 0.0)
        return np.einsum("ni,nij->nj", lam, np.concatenate([j.fx, j.fu], axis=2))

    full = np.block([[xx, ux.transpose(0, 2, 1)], [ux, uu]])
    for i in range(24):
        dx, du = np.split(e * np.eye(24)[i], [16])
        wanted = (slope(x + dx, u + du) - slope(x - dx, u - du)) / (2.0 * e)
        np.testing.assert_allclose(full[:, i], wanted, rtol=1e-5, atol=1e-6 * max(1.0, np.abs(full).max()))


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize("scheme", ["euler", "rk4"])
def test_damping_along_a_path_is_implicit(scheme, engine):
    """A step of 50 ms with strong damping is that of the robot alone; explicit damping would diverge."""
    model = with_joint_properties(load_robot("gen3", base="fixed"), damping=50.0)
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal((3, 14)), rng.standard_normal((3, 7))
    alone, along = FreeBody(model), AlongPath(FreeBody(model))
    expected = SampledSystem(NUMPY(alone, "analytic"), scheme).step(x, u, 0.0, 0.05, {})
    dynamics = SampledSystem(make_backend(along, "analytic", engine=engine), scheme)
    wide, both = np.hstack([x, [[0.1, 0.2]] * 3]), np.hstack([u, [[1.0]] * 3])
    found = dynamics.step(wide, both, 0.0, 0.05, {})
    np.testing.assert_allclose(found[:, :14], expected, rtol=1e-9, atol=1e-9)
    assert np.abs(found).max() < 10.0 and np.allclose(found[:, 15], 0.25)
    limits = velocity_limits(model, along.manifold)
    assert limits.residual.n_out == 7 and np.allclose(limits.residual(wide.T, both.T, 0.0, {}), x[:, 7:].T)
    ocp = OCP.single_phase(dynamics, wide[0], 5, 0.05, [control_cost(8)], constraints=[limits], model=model)
    assert all(
        check.passed
        for check in check_derivatives(ocp, guess=Guess(np.tile(wide[0], (6, 1)), np.tile(both[0], (5, 1))))
    )


def test_systems_that_cannot_follow_a_path_are_refused():
    with pytest.raises(TypeError, match="partial derivatives"):
        AlongPath(FreeBody(load_robot("hyq")))
    with pytest.raises(ValueError, match="at least one"):
        DoubleIntegrator([])


# -- the problem --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_the_tool_stays_in_the_tube(form):
    task = short(form)
    solution = solve(task.ocp, task.guess, solver="sqp")
    assert solution.status.success, solution.status
    model, s = task.ocp.model, solution.xs[:, 14]
    angle = s / 0.1
    path = np.stack([0.1 * (np.cos(angle) - 1.0), 0.1 * np.sin(angle), 0.02 * np.sin(2.0 * angle)], axis=1)
    at = frame_placement(model, solution.xs[:, :7], "EndEffector_Link")[1]
    error = np.linalg.norm(at - at[0] - path, axis=1)
    assert error.max() <= 0.01 + 1e-7
    assert error.max() == pytest.approx(0.01, abs=1e-7)  # the tool cuts the corner up to the tube's wall
    assert s[-1] > 0.03 and (np.diff(s) >= -1e-9).all()
    assert f"ends {s[-1]:.3g} m along the path" in task.outcome(solution.xs[-1])[0]
    speed, distance = task.commands(solution.xs, task.ocp.times)  # the last knots brake: the mean counts
    assert f"commanded 0.15 m/s, achieved {s[-1] / task.ocp.times[-1]:.2f} m/s" in speed
    assert distance.startswith("largest distance from the path 10 mm")


def test_torques_of_inverse_dynamics_are_bounded():
    """One joint exceeds its holding torque by at most half of its unconstrained excess."""
    task = short("acceleration")
    model, phase = task.ocp.model, task.ocp.phases[0]

    def torques(solution):
        x, u = solution.xs[:-1], solution.us
        return np.abs(inverse_dynamics(model, x[:, :7], x[:, 7:14], u[:, :7]))

    free = torques(solve(task.ocp, task.guess, solver="sqp"))
    still = np.abs(inverse_dynamics(model, task.ocp.x0[:7], np.zeros(7), np.zeros(7)))
    joint = int(np.argmax(free.max(axis=0) - still))
    (bounded,) = (c for c in phase.constraints if c.name == "torque limits")
    np.testing.assert_array_equal(bounded.upper, model.effort_limit)
    limit = np.where(np.arange(7) == joint, 0.5 * (free.max(axis=0) + still), model.effort_limit)
    constraints = tuple(c.updated(lower=-limit, upper=limit) if c is bounded else c for c in phase.constraints)
    solution = solve(replace(task.ocp, phases=(replace(phase, constraints=constraints),)), task.guess, solver="sqp")
    assert solution.status.success, solution.status
    assert torques(solution)[:, joint].max() == pytest.approx(limit[joint], abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_scqp_converges_where_gauss_newton_does_not(form):
    """The multipliers of the tube weigh its curvature, which the Gauss-Newton Hessian omits."""
    task = short(form)
    options = {"max_iterations": 25, "constraint_tolerance": 1e-8}
    by = {
        h: solve(task.ocp, task.guess, {**options, "hessian": h}, solver="sqp")
        for h in ("scqp", "exact", "gauss_newton")
    }
    assert by["scqp"].status.success and by["exact"].status.success
    assert by["scqp"].iterations <= 15
    assert by["gauss_newton"].status.code is StatusCode.MAX_ITERATIONS
    assert by["scqp"].cost == pytest.approx(by["exact"].cost, rel=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_one_optimum_by_sqp_and_ipopt(form):
    pytest.importorskip("cyipopt")
    task = short(form)
    solution = solve(task.ocp, task.guess, solver="sqp")
    direct = solve(task.ocp, task.guess, solver="dms")
    assert direct.status.success
    assert solution.cost == pytest.approx(direct.cost, rel=1e-5)
    assert solution.iterations <= 2 * direct.iterations


def test_the_hessian_of_scqp():
    """-y/rho de'de for a multiplier y < 0 of the tube, and none where y > 0."""
    task = short()
    program, plain = (staged_program(task.ocp, task.guess, SQPOptions(hessian=h)) for h in ("scqp", "gauss_newton"))
    rng = np.random.default_rng(0)
    w = program.variables(*task.guess) + 0.05 * rng.standard_normal(program.size)
    x = w[program.ix[3]]

    def error(x):
        angle = x[14] / 0.1
        path = [0.1 * (np.cos(angle) - 1.0), 0.1 * np.sin(angle), 0.02 * np.sin(2.0 * angle)]
        return frame_placement(task.ocp.model, x[:7], "EndEffector_Link")[1] - path

    J = np.stack([(error(x + d) - error(x - d)) / 2e-6 for d in 1e-6 * np.eye(16)], axis=1)
    names = program.g_names
    row = names.index(f"{TUBE}: EndEffector_Link at knot 3")
    for value, expected in ((-2.0, 2.0 / 0.01 * J.T @ J), (2.0, 0.0 * J.T @ J)):
        y = np.zeros(program.rows)
        y[row] = value
        added = (program.convex_hessian(w, 1.0, y).assembled - plain.convex_hessian(w, 1.0, y).assembled).toarray()
        np.testing.assert_allclose(added[np.ix_(program.ix[3], program.ix[3])], expected, atol=1e-5)
        added[np.ix_(program.ix[3], program.ix[3])] = 0.0
        assert not added.any()


def test_real_time_iterations_along_the_path():
    """One QP per sample, from the predicted states: NMPC with a perfect model stays in the tube."""
    task = short("acceleration")
    planner, guess = RealTimeSQP(SQPOptions()), task.guess
    for _ in range(15):
        planner.prepare(task.ocp, WarmStart(guess))
        found = planner.respond(task.ocp.x0)
        assert found.status.code is StatusCode.MAX_ITERATIONS
        guess = Guess(found.xs, found.us)
    reference = solve(task.ocp, task.guess, solver="sqp")
    np.testing.assert_allclose(guess.us, reference.us, atol=1e-6)


@pytest.mark.parametrize(
    ("key", "value"), [("tube", 0.0), ("radius", -1.0), ("height", -0.1), ("speed", float("nan")), ("horizon", 0)]
)
def test_settings_are_checked(key, value):
    with pytest.raises(SettingsError, match=key):
        CONTOUR.Settings(**{key: value})


def test_a_configuration_of_another_size_is_refused():
    with pytest.raises(ValueError, match="q0 has 2 entries"):
        built(q0=(0.0, 1.0))
