"""Constraints: residuals on robots, bounds, use in a problem, and errors."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import textbook_systems as textbook

from dynamics_backends.manifold import Manifold
from dynamics_backends.names import UnknownName
from dynamics_backends.protocol import Batch
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder
from dynamics_backends.rigid_body.model.state import state_manifold
from problems.robots import load_robot
from trajopt import (
    OCP,
    Constraint,
    Guess,
    InvalidProblem,
    SampledSystem,
    bounded,
    control_cost,
    frame_position_cost,
    joint_limits,
    link_points,
    residual_constraint,
    self_collision,
    softened,
    solve,
    sphere_obstacle,
    state_bounds,
    state_cost,
    tube,
    validate,
    velocity_limits,
)
from trajopt.export.controller import ExportError, controller_files
from trajopt.guesses.guesses import WarmStart, constant_guess
from trajopt.problem.constraints import chosen_coordinates
from trajopt.problem.expansion import contracted_hessian, residual_batch, residual_jacobians
from trajopt.problem.residuals import LinkPoint
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.solvers.slq import slq
from trajopt.validation.validation import reject_constraints


@cache
def arm():
    """The bundled IRB 4600, its manifold and five states (5, 12)."""
    model = load_robot("irb4600")
    rng = np.random.default_rng(0)
    return model, state_manifold(model), np.hstack([rng.uniform(-1, 1, (5, 6)), rng.standard_normal((5, 6))])


def value(c, x, u=None):
    u = np.zeros((len(x), 0)) if u is None else u
    return np.asarray(c.residual(*Batch.of(c.residual, x, u, 0.0, c.parameters))).T


def position(model, x, frame):
    return np.asarray(kinematics.frame_position(model, x[:, : model.nq].T, model.frame_id(frame))).T


def placed(model, x, point):
    """A point of a body, by chaining the joints' placements with Rodrigues' formula."""
    q, R, p, chain = x[: model.nq], np.eye(3), np.zeros(3), []
    body = point.body
    while body >= 0:
        chain.append(body)
        body = int(model.parent[body])
    for b in reversed(chain):
        p, R = p + R @ model.placement_p[b], R @ model.placement_R[b]
        c, s = np.cos(q[b]), np.sin(q[b])
        R = R @ np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])  # all joints of this arm turn about z
    return p + R @ np.array(point.offset)


# -- residuals ----------------------------------------------------------------------------------------------------------


def test_points_are_spread_along_the_links_up_to_the_frame():
    model, manifold, x = arm()
    points = link_points(model, "ee", 0.2)
    center = np.array([[0.3, 0.1, 0.2]])
    obstacle = sphere_obstacle(model, manifold, points, center[0], 0.25)
    at = np.array([[placed(model, row, point) for point in points] for row in x])
    squared = ((at - center) ** 2).sum(axis=2)
    np.testing.assert_allclose(value(obstacle, x), (squared - 0.25**2) / 0.5, atol=1e-12)
    np.testing.assert_allclose(at[:, -1], position(model, x, "ee"), atol=1e-12)
    first = np.array([model.placement_p[0]] * len(x))
    steps = np.linalg.norm(np.diff(np.concatenate([first[:, None], at], axis=1), axis=1), axis=2)
    assert steps.max() <= 0.2 + 1e-12
    np.testing.assert_allclose(steps, np.broadcast_to(steps[:1], steps.shape), atol=1e-12)  # links are rigid
    with pytest.raises(UnknownName, match="hand"):
        link_points(model, "hand", 0.2)
    with pytest.raises(ValueError, match="positive length"):
        link_points(model, "ee", 0.0)


@pytest.mark.parametrize("kind", ["prismatic", "revolute"])
def test_points_include_origins_that_slide(kind):
    """Joints in one place: those that slide move apart, and the frame at the last one moves with them."""
    builder = ModelBuilder("gantry")
    for i, axis in enumerate(np.eye(3)):
        joint = JointSpec(kind, axis=tuple(axis))
        builder.add_body(f"b{i}", f"b{i - 1}" if i else None, joint, mass=1.0, inertia=np.eye(3))
    model = builder.build()
    points = link_points(model, "b2", 0.2)
    assert [p.body for p in points] == ([0, 1, 2] if kind == "prismatic" else [])
    if points:
        inside = sphere_obstacle(model, state_manifold(model), points, [0.3, 0.2, 0.1], 0.05)
        q = np.array([[0.3, 0.2, 0.1, 0.0, 0.0, 0.0]])
        np.testing.assert_allclose(value(inside, q)[0, -1], -0.025, atol=1e-12)


def test_clearance_is_the_distance_near_the_surface():
    model, manifold, x = arm()
    tip = link_points(model, "ee", 0.5)[-1:]
    at = position(model, x, "ee")
    away = 0.25 + 1e-4
    obstacle = sphere_obstacle(model, manifold, tip, at + [away, 0.0, 0.0], np.full((5, 1), 0.25))
    np.testing.assert_allclose(value(obstacle, x)[:, 0], 1e-4, rtol=1e-3)
    inside = sphere_obstacle(model, manifold, tip, at, 0.25)
    np.testing.assert_allclose(value(inside, x)[:, 0], -0.125, atol=1e-12)


def test_self_collision_of_pairs():
    model, manifold, x = arm()
    a, b = LinkPoint(1, (0.1, 0.2, 0.3), "a"), LinkPoint(5, (0.0, 0.1, 0.0), "b")
    pairs = self_collision(model, manifold, [(a, b), (b, a)], [0.3, 0.5])
    gap = np.array([np.linalg.norm(placed(model, row, a) - placed(model, row, b)) for row in x])
    expected = np.stack([(gap**2 - d**2) / (2 * d) for d in (0.3, 0.5)], axis=1)
    np.testing.assert_allclose(value(pairs, x), expected, atol=1e-12)
    assert pairs.component_names[0] == "self-collision: a and b"


def test_tube_about_points_and_about_a_function_of_the_state():
    model, manifold, x = arm()
    path = position(model, x, "ee") + [0.0, 0.0, 0.02]
    np.testing.assert_allclose(value(tube(model, manifold, "ee", path, 0.05), x)[:, 0], 0.021, atol=1e-12)

    def line(x, u, t, p):
        return [x[6], 0.0 * x[6], p["height"][0]]

    along = tube(model, manifold, "ee", line, 0.05, parameters={"height": [0.3]})
    center = np.stack([x[:, 6], 0.0 * x[:, 6], np.full(5, 0.3)], axis=1)
    distance = np.linalg.norm(position(model, x, "ee") - center, axis=1)
    np.testing.assert_allclose(value(along, x)[:, 0], (0.05**2 - distance**2) / 0.1, atol=1e-11)


def test_limits_of_the_model_bound_single_coordinates():
    model, manifold, x = arm()
    positions, speeds = joint_limits(model, manifold, 0.1), velocity_limits(model, manifold, 0.5)
    assert chosen_coordinates(positions) == tuple(range(6))
    assert chosen_coordinates(speeds) == tuple(range(6, 12))
    np.testing.assert_array_equal(value(speeds, x), x[:, 6:])
    np.testing.assert_allclose(positions.lower, model.q_lower + 0.1)
    np.testing.assert_allclose(speeds.upper, 0.5 * model.velocity_limit)
    with pytest.raises(ValueError, match="leaves no feasible range"):
        joint_limits(model, manifold, 4.0)
    unlimited = model.replace(q_lower=np.full(6, -np.inf), q_upper=np.full(6, np.inf))
    with pytest.raises(ValueError, match="no joint of the robot has a position limit; leave out position_limits"):
        joint_limits(unlimited, manifold)
    with pytest.raises(ValueError, match="no bound is finite"):
        state_bounds(manifold)
    np.testing.assert_array_equal(state_bounds(manifold, upper=1.0).lower, np.full(12, -np.inf))
    with pytest.raises(ValueError, match="is NaN"):
        state_bounds(manifold, np.nan, np.inf)


def test_every_cost_term_makes_a_constraint():
    model, manifold, x = arm()
    held = bounded(frame_position_cost(model, manifold, "ee", [1.0, 0.0, 1.0]), name="grip")
    np.testing.assert_allclose(value(held, x), position(model, x, "ee") - [1.0, 0.0, 1.0], atol=1e-14)
    assert held.name == "grip"
    assert (held.lower == 0.0).all() and (held.upper == 0.0).all()
    assert chosen_coordinates(held) is None


def test_derivatives_of_an_obstacle():
    """Jacobian and contracted Hessian along a random direction, against central differences of order four."""
    model, manifold, x = arm()
    c = sphere_obstacle(model, manifold, link_points(model, "ee", 0.3), [0.5, 0.2, 0.9], 0.2)
    rng, h = np.random.default_rng(1), 1e-2
    d, y = 0.3 * rng.standard_normal(12), rng.standard_normal(c.residual.n_out)
    batch = residual_batch(c.residual, x, np.zeros((5, 0)), 0.0, c.parameters)
    J, H = residual_jacobians(c.residual, batch).fx, contracted_hessian(c.residual, batch, np.tile(y, (5, 1)))
    moved = np.array([value(c, x + s * h * d) for s in (-2, -1, 0, 1, 2)])
    slope = np.tensordot([1 / 12, -2 / 3, 0, 2 / 3, -1 / 12], moved, axes=1) / h
    bend = np.tensordot([-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12], moved @ y, axes=1) / h**2
    np.testing.assert_allclose(J @ d, slope, atol=1e-6)
    np.testing.assert_allclose(np.einsum("nij,i,j->n", H, d, d), bend, atol=2e-5)


# -- in a problem -------------------------------------------------------------------------------------------------------


def problem(**fields):
    dynamics = SampledSystem(make_backend(textbook.double_integrator(), "forward_ad"), "rk4")
    return OCP.single_phase(dynamics, np.zeros(2), 4, 0.1, [control_cost(1)], **fields)


LINE = Manifold.vector(2, ("position", "speed"))


def messages(ocp, severity="error"):
    return [f.message for f in validate(ocp) if f.severity == severity]


def test_values_change_by_name():
    bound = residual_constraint(
        "wall", lambda x, u, t, p: [x[0] - p["at"][0]], LINE, 1, -np.inf, 0.0, parameters={"at": 1.0}
    )
    ocp = problem(constraints=[bound], terminal_constraints=[bound]).updated("wall", at=2.0, upper=0.5)
    for c in ocp.constraints():
        assert (c.parameters["at"], c.upper, c.lower) == (2.0, 0.5, -np.inf)
    assert ocp.updated("control", weight=3.0).terms()[0].weight == 3.0
    assert len(ocp.constraints()) == 2
    with pytest.raises(ValueError, match="no parameter 'here'; it has: at"):
        ocp.updated("wall", here=1.0)
    with pytest.raises(ValueError, match="no cost term or constraint is named 'fence'; known: control, wall"):
        ocp.updated("fence", upper=1.0)
    with pytest.raises(ValueError, match="lower has shape"):
        bound.updated(lower=np.zeros(3))


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (
            state_bounds(LINE, [0.0, 1.0], [1.0, 0.0], "box"),
            "constraint 'box': the lower bound is above the upper one: speed, [1.0, 0.0]",
        ),
        (bounded(state_cost(LINE, np.zeros(2)), np.inf, np.inf, "far"), "'far': a bound excludes every value"),
        (
            bounded(state_cost(LINE, np.zeros(2)), np.zeros((3, 2)), 1.0, "short"),
            "constraint 'short': lower has shape (3, 2); expected (n,) or one row for each of the 4 knots",
        ),
        (bounded(control_cost(2), name="two"), "constraint 'two' reads 2 controls; the problem has nu = 1"),
        (bounded(state_cost(Manifold.vector(3), np.zeros(3)), name="other"), "is written for states on"),
        (
            replace(bounded(state_cost(LINE, [0.0, 0.0]), name="nowhere"), parameters={"reference": [np.nan, 0.0]}),
            "constraint 'nowhere': parameter 'reference' is not finite",
        ),
    ],
)
def test_invalid_arguments_are_rejected_at_construction(constraint, message):
    ocp = problem(constraints=[constraint])
    assert any(message in found for found in messages(ocp)), messages(ocp)
    with pytest.raises(InvalidProblem):
        solve(ocp, Guess(np.zeros((5, 2)), np.zeros((4, 1))))


def test_a_bound_that_is_nan_is_refused_where_it_is_made():
    with pytest.raises(ValueError, match="constraint 'gap': lower is NaN for position; use infinity for no bound"):
        bounded(state_cost(LINE, np.zeros(2)), np.nan, 1.0, "gap")
    with pytest.raises(ValueError, match="constraint 'gap': upper is NaN for speed"):
        bounded(state_cost(LINE, np.zeros(2)), 0.0, [1.0, np.nan], "gap")
    with pytest.raises(ValueError, match="parameter 'reference' is nan at entry 0: give finite numbers"):
        bounded(state_cost(LINE, [np.nan, 0.0]))


def test_terminal_constraints_cannot_read_controls():
    assert any(
        "cannot depend on controls" in m for m in messages(problem(terminal_constraints=[bounded(control_cost(1))]))
    )


def test_a_start_outside_is_a_warning_with_the_component():
    ocp = problem(constraints=[state_bounds(LINE, [0.5, -1.0], [1.0, 1.0], "box")])
    assert messages(ocp) == []
    (found,) = messages(ocp, "warning")
    assert found.startswith("x0 violates box: position by 0.5")


def test_solvers_without_constraints_refuse_them_by_name():
    constrained = problem(constraints=[state_bounds(LINE, -1.0, 1.0, "box")])
    with pytest.raises(
        InvalidProblem, match="a shooting method cannot enforce constraints: .* remove the constraints 'box'"
    ):
        slq(constrained, constant_guess(constrained))
    with pytest.raises(ExportError, match="it has the constraint 'box', and SLQ has none"):
        controller_files(constrained, "controller")
    with pytest.raises(InvalidProblem, match="RealTimeSLQ cannot enforce constraints: .* remove the constraints 'box'"):
        RealTimeSLQ().prepare(constrained, WarmStart(constant_guess(constrained), np.zeros((4, 1, 2)), {}))
    reject_constraints(problem(), "the export")
    with pytest.raises(
        InvalidProblem,
        match=r"export cannot enforce constraints: solve .* with trajopt\.solve, or remove the constraints 'box'",
    ):
        reject_constraints(problem(constraints=[state_bounds(LINE, -1.0, 1.0, "box")]), "the export")


def test_mistakes_of_construction():
    model, manifold, _ = arm()
    point = link_points(model, "ee", 1.0)
    with pytest.raises(ValueError, match="radius of 'obstacle' is -1.0; expected a positive length"):
        sphere_obstacle(model, manifold, point, np.zeros(3), -1.0)
    with pytest.raises(ValueError, match="no points; see link_points"):
        sphere_obstacle(model, manifold, [], np.zeros(3), 1.0)
    with pytest.raises(ValueError, match="no pairs"):
        self_collision(model, manifold, [], 1.0)
    with pytest.raises(ValueError, match="center of 'obstacle' has shape"):
        sphere_obstacle(model, manifold, point, np.zeros(2), 1.0)
    with pytest.raises(ValueError, match="upper has shape"):
        Constraint("c", control_cost(2).residual, np.zeros(2), np.zeros(3))


# -- relaxed by slacks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lower", "upper"), [(-0.4, np.inf), (-np.inf, 0.3), (-0.4, 0.3), (-np.inf, np.inf)])
def test_a_softened_constraint_costs_as_much_as_its_optimal_slack(lower, upper):
    """min over s >= 0 of 1/2 w s^2 where g leaves its bounds; up to the width of the rounded corner within."""
    line, width, weight = Manifold.vector(1), 1e-3, 7.0
    term = softened(residual_constraint("g", lambda x, u, t, p: [x[0]], line, 1, lower, upper), weight, width)
    for g in np.linspace(-1.0, 1.0, 41):
        (r,) = term.residual(
            np.array([[g]]), np.zeros((0, 1)), np.zeros(1), {k: v[:, None] for k, v in term.parameters.items()}
        )
        slack = max(lower - g, g - upper, 0.0)
        assert abs(float(r[0]) - slack) <= width
        assert abs(0.5 * weight * float(r[0]) ** 2 - 0.5 * weight * slack**2) <= weight * width * (slack + width)
    assert term.name == "g" and term.updated(width=0.1).parameters["width"] == 0.1


def test_a_softened_sphere_keeps_its_parameters():
    model = load_robot("double_pendulum", base="fixed")
    manifold = Manifold.vector(2 * model.nv)
    sphere = sphere_obstacle(model, manifold, link_points(model, "tip", 0.5), [1.0, 0.0, 0.0], 0.3)
    moved = softened(sphere, 1e3).updated(center=[0.0, 1.0, 0.0])
    np.testing.assert_array_equal(moved.parameters["center"], [0.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="width of 'obstacle'"):
        softened(sphere, 1e3, 0.0)


def test_an_error_of_a_path_constraint_is_reported_once_with_its_last_state():
    box = state_bounds(LINE, [0.0, 1.0], [1.0, 0.0], "box")
    found = messages(problem(constraints=[box], terminal_constraints=[box]))
    assert found == ["constraint 'box': the lower bound is above the upper one: speed, [1.0, 0.0]"]
