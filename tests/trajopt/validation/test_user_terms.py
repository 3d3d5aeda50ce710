"""User cost terms with mistakes, on a point mass: warnings before a solve, and messages after it."""

import logging
import re

import numpy as np
import pytest
from scipy.special import expit

import trajopt as to
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.stage.not_compiled import operations
from trajopt.validation.validation import InvalidProblem

MASS = to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2, second_order=True)
STEP = to.SampledSystem(to.make_backend(MASS, "forward_ad", engine="numpy"), "semi_implicit_euler")


def problem(function, n_out=1, **more):
    term = to.residual_cost("mine", function, MASS.manifold, n_out, **more)
    return to.OCP.single_phase(STEP, np.zeros(4), 3, 0.1, [to.control_cost(2), term])


def line_of(function, after=0):
    return function.__code__.co_firstlineno + after


def speed(x, u, t, p):
    return [np.linalg.norm(x[2:])]


def asks_for_more(x, u, t, p):
    return [
        x[0],
        x[4],
    ]


def asks_for_controls(x, u, t, p):
    return [u[1]]


def asks_for_a_parameter(x, u, t, p):
    return [x[0] - p["height"][0]]


def unpacks_controls(x, u, t, p):
    a, b = u
    return [a * b]


def writes(x, u, t, p):
    x[0] = 0.0
    return [x[0]]


def returns_nothing(x, u, t, p):
    x[0] * 2.0


def adds_a_name(x, u, t, p):
    return [x[0] + "tool0"]


@pytest.mark.parametrize(
    ("function", "n_out", "after", "source", "what"),
    [
        (asks_for_more, 2, 3, "x[4],", "index 4 is out of bounds .* x has 4 numbers"),
        (asks_for_controls, 1, 1, "return [u[1]]", "without controls; if it reads them, give their number, nu="),
        (
            asks_for_a_parameter,
            1,
            1,
            'p["height"]',
            r"no parameter 'height' \(given: width\); .*parameters={'height': ",
        ),
        (unpacks_controls, 1, 1, "a, b = u", r"called without controls; .* nu=... \(a terminal term has none\)"),
        (
            writes,
            1,
            1,
            "x[0] = 0.0",
            "it writes into its argument, which is the solver's: work on a copy, `x = x.copy",
        ),
        (returns_nothing, 1, None, "", r"returns None: end it with `return \[...\]`, a list of n_out = 1 numbers"),
        (adds_a_name, 1, 1, 'x[0] + "tool0"', "Error: "),
        (lambda x, u, t, p: x[:3], 2, None, "", "returned 3 rows; expected n_out = 2"),
    ],
)
def test_a_mistake_is_reported_before_a_solve_with_its_term_its_line_and_the_remedy(
    function, n_out, after, source, what
):
    ocp = problem(function, n_out, parameters={"width": [1.0]})
    (found,) = to.validate(ocp)
    assert found.severity == "error" and "\n" not in found.message
    assert found.message.startswith("term 'mine': function ") and re.search(what, found.message)
    assert f"{__file__}:{line_of(function)}" in found.message and "/scalars/" not in found.message
    if after is not None:
        assert f"line {line_of(function, after)}, `" in found.message and source in found.message
    with pytest.raises(InvalidProblem, match="term 'mine'"):
        to.solve(ocp, solver="slq")


def test_a_branch_on_a_value_is_reported_in_one_sentence_with_its_line(caplog):
    caplog.set_level(logging.WARNING)

    def decides(x, u, t, p):
        return [x[0] if x[0] > 1.0 else 1.0]

    (found,) = to.validate(problem(decides))
    assert found.severity == "warning" and "minutes" in found.message and "np.where" in found.message
    assert f"in line {line_of(decides, 1)}, `return [x[0] if" in found.message
    solution = to.solve(problem(decides), solver="slq")
    assert solution.status.success
    messages = [*caplog.messages, *solution.meta.get("not_compiled", ())]
    assert messages and all(message.count("use arithmetic and NumPy") == 1 for message in messages)


@pytest.mark.parametrize("condition", [lambda x: x[0], lambda x: x[0] > 0.0])
def test_functions_of_numpy_within_a_selection_can_be_traced(condition):
    ocp = problem(lambda x, u, t, p: [to.select(condition(x), np.sqrt(np.abs(x[1]) + 1.0), x[1])])
    assert to.validate(ocp) == []
    assert operations(ocp.phases[0].terms[-1])


@pytest.mark.parametrize("solver", ["slq", "ipm"])
def test_a_slope_that_is_infinite_at_rest_names_its_term_knot_and_remedy(solver):
    ocp = problem(speed)
    (found,) = to.validate(ocp)
    assert found.severity == "warning" and "derivative of term 'mine'" in found.message
    assert "knot 0" in found.message and "1e-6" in found.message
    status = to.solve(ocp, solver=solver).status
    named = "term 'mine'" if solver == "ipm" else "the cost gradient of x[0]"  # first entry of the sum of all terms
    assert (status.code, status.component, status.knot) == ("non_finite", named, 0)
    assert "derivative of term 'mine'" in status.message and "1e-6" in status.advice


def test_the_first_knot_of_a_guess_with_an_infinite_value_is_named():
    ocp = problem(lambda x, u, t, p: [1.0 / (x[0] - 2.0)])
    assert not to.validate(ocp)
    xs = np.zeros((4, 4))
    xs[2, 0] = 2.0
    (found,) = to.validate(ocp, to.Guess(xs, np.zeros((3, 2))))
    assert re.search(r"value of term 'mine' is NaN or infinite, first at knot 2, t = 0.2 s", found.message)


def test_a_small_number_under_the_root_helps():
    ocp = problem(lambda x, u, t, p: [np.sqrt(x[2:] @ x[2:] + 1e-6)])
    assert not to.validate(ocp) and to.solve(ocp, solver="slq").status.success


def test_the_norm_of_a_frames_velocity_is_traced(caplog):
    """A frame may be given by name; at one knot, library functions return the same values as in a batch."""
    model, rng = chain(3), np.random.default_rng(1)
    tip, body = model.frames[-1].name, FreeBody(model)
    map = to.FunctionMap(
        lambda x, u, t, p: [np.linalg.norm(to.kinematics.frame_velocity(model, x[:3], x[3:], tip)[:3])], 6, 0, 1
    )
    x = rng.uniform(-1.0, 1.0, (4, 6))
    j = to.make_backend(map, "casadi_ad", engine="numpy").jacobians(x, np.zeros((4, 0)))
    v = to.kinematics.frame_velocity(model, x[:, :3].T, x[:, 3:].T, len(model.frames) - 1)
    np.testing.assert_allclose(j.value[:, 0], np.sqrt((v[:3] ** 2).sum(axis=0)), rtol=1e-12)
    assert map.called.why == "" and not caplog.messages
    for k in range(4):
        alone = to.kinematics.frame_velocity(model, x[k, :3], x[k, 3:], tip)
        np.testing.assert_allclose(alone, v[:, k], rtol=1e-12)
        kinetic = to.kinematics.kinetic_energy(model, x[k, :3], x[k, 3:])
        assert np.ndim(kinetic) == 0 and kinetic == pytest.approx(
            to.kinematics.kinetic_energy(model, x[:, :3].T, x[:, 3:].T)[k]
        )
    np.testing.assert_allclose(body(x[0], np.zeros(3), 0.0, {}), body(x[:1].T, np.zeros((3, 1)), 0.0, {})[:, 0])


def test_a_ufunc_of_another_package_runs_in_numpy():
    """It has no module, so that the trace cache does not know what it computes; its twin can be traced."""
    costs = []
    for logistic in (expit, lambda z: 1.0 / (1.0 + np.exp(-z))):
        system = to.FunctionMap(lambda x, u, t, p, own=logistic: [x[1], u[0] - own(x[0])], 2, 1)
        step = to.SampledSystem(to.make_backend(system, "forward_ad"), "rk4")
        ocp = to.OCP.single_phase(step, [0.2, 0.0], 10, 0.1, [to.control_cost(1)], [to.state_cost(2, [1.0, 0.0], 10.0)])
        found = to.solve(ocp, solver="ilqr")
        assert found.status.success
        costs.append(found.cost)
    assert costs[0] == pytest.approx(costs[1], rel=1e-8)


@pytest.mark.parametrize(
    "function, what",
    [
        (lambda x, u, t, p: [x[1], u[0] / x[0]], "The dynamics"),
        (lambda x, u, t, p: [x[1], u[0] - np.sqrt(x[0])], "The derivatives of the dynamics"),
    ],
)
def test_dynamics_that_are_not_finite_at_x0_are_named(function, what):
    step = to.SampledSystem(to.make_backend(to.FunctionMap(function, 2, 1), "forward_ad", engine="numpy"), "rk4")
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 5, 0.1, [to.control_cost(1)])
    status = to.solve(ocp, solver="ddp").status
    assert status.code == "non_finite" and status.advice.startswith("Change x0, or the dynamics")
    assert f"{what} at x0 are NaN or infinite for all controls that were tried." in status.message
    bounds = {
        "u_lower": [6.0],
        "u_upper": [10.0],
    }  # within which the dynamics are finite, but not the cost of the guess
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [np.sqrt(u[0] - 5.0)], 1, 1), "rk4")
    cost = to.objective_term("log", lambda x, u, t, p: [np.log(x[0])], 1)
    ocp = to.OCP.single_phase(step, [-1.0], 5, 0.1, [to.control_cost(1), cost], **bounds)
    assert "The dynamics at x0" not in to.solve(ocp, to.constant_guess(ocp, 7.0), solver="ipm").status.message
