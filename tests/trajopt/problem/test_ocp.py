"""The optimal control problem, its validation, and the batched evaluation of its cost."""

import dataclasses
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import textbook_systems as textbook
from slq_solve import solve

import trajopt as to
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.scalars.user_function import LONGEST_LINE
from trajopt import (
    OCP,
    Guess,
    InvalidProblem,
    Phase,
    SampledSystem,
    StageEvaluator,
    constant_guess,
    control_cost,
    residual_cost,
    state_cost,
    validate,
)
from trajopt.stage.evaluation import Direction, Shooting

REST = np.r_[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


def _dynamics(system=None):
    return SampledSystem(make_backend(system or textbook.spinning_body(), "forward_ad"), "rk4")


def _problem(**changes):
    dynamics = _dynamics()
    fields = {"x0": REST, "horizon": 5, "dt": 0.1}
    fields |= {"running": [control_cost(3)], "terminal": [state_cost(dynamics.manifold, REST)]}
    return OCP.single_phase(dynamics, **(fields | changes))


def _messages(ocp, guess=None, severity="error"):
    return [f.message for f in validate(ocp, guess) if f.severity == severity]


def test_sizes_and_times():
    ocp = _problem(dt=np.array([0.1, 0.2, 0.3, 0.1, 0.1]))
    assert (ocp.horizon, ocp.nu, ocp.manifold.nx) == (5, 3, 7)
    np.testing.assert_allclose(ocp.times, [0.0, 0.1, 0.3, 0.6, 0.7, 0.8])
    np.testing.assert_allclose(_problem(start=2.0, horizon=2).t, [2.0, 2.1, 2.2])
    assert ocp.state_names == ("rx", "ry", "rz", "wx", "wy", "wz")
    assert ocp.control_bounds is None
    lower, upper = _problem(u_upper=[1.0, 2.0, 3.0]).control_bounds
    np.testing.assert_array_equal(lower, np.full((5, 3), -np.inf))
    np.testing.assert_array_equal(upper, np.tile([1.0, 2.0, 3.0], (5, 1)))


def test_more_time_steps_than_memory_holds_are_refused_before_it_is_taken():
    with pytest.raises(ValueError, match="a phase has 1000000000 time steps; give it at most 10000000"):
        _problem(horizon=10**9)


def test_more_substeps_than_a_run_of_hours_takes_are_refused():
    backend = to.make_backend(to.FreeBody(to.chain(1)), engine="numpy")
    with pytest.raises(ValueError, match="substeps = 1000000000; expected an integer of at least 1 and at most 10000"):
        to.SampledSystem(backend, "rk4", 10**9)
    many = to.SampledSystem(backend, "rk4", 10_000)
    with pytest.raises(ValueError, match="1001 time steps of 10000 substeps; give it at most 10000000 substeps"):
        to.Phase(many, np.full(1001, 0.01))
    assert to.Phase(many, np.full(1000, 0.01)).knots == 1000


@pytest.mark.parametrize(
    ("x0", "message"),
    [
        (
            [0.1, 0.2],
            "x0 has shape (2,); expected (nx = 4,): for a state (q, v) append velocities, np.r_[q, np.zeros(2)]",
        ),
        ([0.1, 0.2, 0.3], "x0 has shape (3,); expected (nx = 4,)"),
        ([90.0, 0.0, 0.0, 0.0], "x0 is outside its limits: shoulder = 90 (degrees?), limits [-2, 2]"),
        ([3.0, 0.0, 0.0, 0.0], "x0 is outside its limits: shoulder = 3, limits [-2, 2]"),
    ],
)
def test_states_without_velocities_and_in_degrees_are_reported(x0, message):
    model = to.load_robot("double_pendulum").replace(q_lower=[-2.0, -np.inf], q_upper=[2.0, np.inf])
    dynamics = to.SampledSystem(make_backend(to.FreeBody(model), engine="numpy"), "rk4")
    ocp = OCP.single_phase(dynamics, x0, 3, 0.1, [control_cost(2)], model=model)
    assert [f.message for f in validate(ocp)] == [message]
    if len(x0) == 2:
        with pytest.raises(ValueError, match="append velocities"):
            state_cost(dynamics.manifold, x0)


def test_constraints_on_the_state_hold_at_the_end_too():
    """Unless a terminal constraint has their name, their values are by knot, or the goal fixes a state that satisfies them."""
    plane = Manifold.vector(2)
    fast = to.state_bounds(plane, [-np.inf, -1.0], [np.inf, 1.0], "speed")
    far = to.residual_constraint("disc", lambda x, u, t, p: [x[0] * x[0]], plane, 1, 0.25, np.inf)
    drawn = to.residual_constraint("power", lambda x, u, t, p: [x[1] * u[0]], plane, 1, -1.0, 1.0, nu=1)
    by_knot = to.state_bounds(plane, np.full((5, 2), -2.0), np.full((5, 2), 2.0), "box")
    step = SampledSystem(FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "euler")

    def at_the_end(*given):
        path = [fast, far, drawn, by_knot]
        ocp = OCP.single_phase(step, [1.0, 0.0], 5, 0.1, constraints=path, terminal_constraints=given)
        assert list(ocp.phases[0].constraints) == path and ocp.terminal_constraints[: len(given)] == given
        return [c.name for c in ocp.terminal_constraints[len(given) :]]

    assert at_the_end() == ["speed", "disc"]
    assert at_the_end(to.state_bounds(plane, [0.0, 0.0], [0.0, 0.0], "speed")) == ["disc"]
    assert at_the_end(to.bounded(to.state_cost(plane, [1.0, 0.5]), name="goal")) == []
    assert at_the_end(to.bounded(to.state_cost(plane, [0.4, 2.0]), name="goal")) == ["speed", "disc"]
    assert at_the_end(to.bounded(to.state_cost(plane, [1.0, 0.5], [1.0, 0.0]), name="goal")) == ["speed", "disc"]
    assert at_the_end(to.state_bounds(plane, [1.0, 0.0], [1.0, np.inf], "goal")) == ["speed", "disc"]


def test_a_goal_beyond_a_limit_is_infeasible():
    """Not a motion that passes the limit within the last time step."""
    step = SampledSystem(FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    short = to.state_bounds(2, [-np.inf, -np.inf], [0.5, np.inf], "short")
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    ocp = OCP.single_phase(
        step, [0.0, 0.0], 20, 0.05, [control_cost(1)], constraints=[short], terminal_constraints=[goal]
    )
    found = to.solve(ocp, solver="ipm")
    assert found.status.code == "infeasible"
    assert "the goal violates short: x[0] by 0.5: no motion satisfies both" in found.report()


def test_a_number_bounds_all_controls():
    ocp = _problem(u_lower=-2.0, u_upper=np.float64(3.0))
    assert _messages(ocp) == []
    lower, upper = ocp.control_bounds
    assert lower.shape == upper.shape == (5, 3) and (lower == -2.0).all() and (upper == 3.0).all()
    bounds = to.state_bounds(Manifold.vector(3), -1.0, [1.0, np.inf, 2.0])
    np.testing.assert_array_equal(bounds.lower, [-1.0, -1.0, -1.0])


def test_a_state_that_is_not_finite_is_reported_by_the_name_of_its_coordinate():
    system = FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    ocp = OCP.single_phase(SampledSystem(make_backend(system, "forward_ad")), [0.0, np.nan], 3, 0.1, [control_cost(1)])
    (start, guess) = [finding.message for finding in validate(ocp, constant_guess(ocp))]
    name = ocp.state_names[1]
    assert (
        start == f"x0 contains NaN or infinity: {name}"
        and guess == f"guess.xs contains NaN or infinity: {name} at knot 0"
    )


def test_a_good_problem_has_no_findings():
    ocp = _problem(u_lower=-np.ones(3), u_upper=np.ones((5, 3)))
    assert validate(ocp, constant_guess(ocp)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x0": np.zeros(6)}, "x0 has shape"),
        ({"x0": 0.0}, "x0 has shape (1,); expected (nx = 7,)"),
        ({"x0": np.r_[0.0, 0.0, 0.0, np.nan, 0.0, 0.0, 0.0]}, "x0 contains NaN or infinity: entry 3"),
        ({"x0": 2.0 * REST}, "divide it by its norm"),
        ({"horizon": 0}, "at least one time step"),
        ({"dt": 0.0}, "time steps must be positive"),
        ({"dt": np.inf}, "dt is inf at knot 0; time steps must be positive and finite"),
        (
            {"constraints": [to.state_bounds(_dynamics().manifold, REST + 1.0, REST - 1.0)]},
            "the lower bound is above the upper one",
        ),
        ({"dt": 1e308}, "the time steps of phase 0 add up to infinity"),
        ({"dt": np.array([0.1, 0.1, -0.1, 0.1, 0.1])}, "dt is -0.1 at knot 2"),
        ({"u_lower": np.ones(2)}, "u_lower has shape"),
        ({"start": np.nan}, "start = nan; expected a finite number of seconds"),
        ({"u_lower": [0.0, 1.0, 0.0], "u_upper": [1.0, 0.5, 1.0]}, "above the upper one: u[1] at knot 0, [1.0, 0.5]"),
        ({"u_upper": [1.0, 1.0, np.nan]}, "a control bound is NaN: u[2]"),
        ({"terminal": [control_cost(3)]}, "cannot depend on controls"),
        ({"running": [control_cost(4)]}, "reads 4 controls"),
        ({"running": [control_cost(3, weight=np.ones((4, 3)))]}, "one row for each of the 5 knots"),
        ({"running": [state_cost(Manifold.vector(3), np.zeros(3))]}, "is written for states on"),
        ({"parameters": {"mass": np.ones((3, 1))}}, "parameter 'mass' has shape"),
        ({"parameters": {"mass": [np.nan]}}, "phase 0: parameter 'mass' of the dynamics is not finite"),
    ],
)
def test_every_mistake_is_found(changes, message):
    found = _messages(_problem(**changes))
    assert len(found) == 1
    assert message in found[0]


def test_long_lines_of_code_are_cut_in_messages():

    def power(x, u, t, p):
        return [u[0] * x[0] + 0.0 * x[0] + 0.0 * x[0] + 0.0 * x[0] + 0.0 * x[0] + 0.0 * x[0] + 0.0 * x[0] + 0.0 * x[0]]

    (found,) = _messages(_problem(running=[residual_cost("power", power, _dynamics().manifold, 1)]))
    code, _, reason = found.partition(" ...`: ")
    assert len(code.partition("`")[2]) == LONGEST_LINE and "it is called without controls" in reason


def test_functions_of_other_arguments_are_reported():
    two = residual_cost("two", lambda x, u: [x[0]], _dynamics().manifold, 1)
    (found,) = _messages(_problem(running=[two]))
    assert found.endswith("fails: it is called with the four arguments (x, u, t, p), in this order")

    def helped(x, u, t, p):
        return [(lambda a: a)(x, u, t, p)]

    (found,) = _messages(_problem(running=[residual_cost("helped", helped, _dynamics().manifold, 1)]))
    assert "takes 1 positional argument but 4 were given" in found and "four arguments" not in found


def test_guesses_are_checked():
    ocp = _problem()
    good = constant_guess(ocp)
    shorter = _messages(ocp, Guess(good.xs[:-1], good.us))[0]
    assert "guess.xs has shape (5, 7); expected (6, 7); to.resampled_guess(ocp, solution)" in shorter
    assert "guess.us has shape" in _messages(ocp, Guess(good.xs, good.us[:, :2]))[0]
    assert "divide it by its norm" in _messages(ocp, Guess(1.5 * good.xs, good.us))[0]
    broken = good.us.copy()
    broken[3, 1] = np.nan
    assert "at knot 3" in _messages(ocp, Guess(good.xs, broken))[0]
    free = to.free_time(ocp, (0.1, 1.0)).ocp
    assert "with_durations(guess) converts a guess of the fixed grid" in _messages(free, good)[0]


def test_time_steps_declare_what_they_are():
    class Silent:
        takes_time = True

        def __init__(self, inner):
            self.manifold, self.nu = inner.manifold, inner.nu

    expected = "phase 0: Silent does not declare control_names, sampling, contract; see trajopt.problem.ocp.DiscreteMap"
    silent = OCP((Phase(Silent(_dynamics()), [0.1]),), REST)
    assert _messages(silent) == [expected]
    with pytest.raises(to.InvalidProblem, match="does not declare control_names, sampling, contract"):
        to.solve(silent, solver="slq")


def test_phases_must_share_the_manifold():
    other = Phase(_dynamics(textbook.pendulum()), np.full(3, 0.1))
    ocp = _problem()
    found = _messages(OCP((*ocp.phases, other), REST))
    assert len(found) == 1
    assert "phases must share the manifold" in found[0]


def test_solvers_raise_with_all_errors():
    ocp = _problem(dt=-1.0, u_lower=np.ones(3), u_upper=np.zeros(3))
    with pytest.raises(InvalidProblem) as error:
        solve(ocp)
    assert len(error.value.findings) == 2
    assert "time steps" in str(error.value)
    assert "control bound" in str(error.value)


def test_warnings_of_a_system_reach_the_solution():
    robot = chain(1).replace(q_lower=np.array([-1.0]), q_upper=np.array([1.0]))
    system = textbook.double_integrator()
    ocp = OCP.single_phase(_dynamics(system), [2.0, 0.0], 3, 0.1, [control_cost(1)], model=robot)
    found = _messages(ocp, severity="warning")
    assert found == [f"x0 is outside its limits: {robot.q_names[0]} = 2, limits [-1, 1]"]
    solution = solve(ocp)
    assert solution.meta["findings"] == found
    assert solution.meta["model"] == {"name": robot.name, "digest": robot.digest}
    idle = OCP.single_phase(_dynamics(system), [0.0, 0.0], 3, 0.1, [control_cost(1, weight=0.0)])
    assert "any trajectory is optimal" in _messages(idle, severity="warning")[0]


@pytest.mark.parametrize(("weight", "warned"), [(1e-6, False), (1e-9, True)])
def test_costs_whose_weights_are_all_small_are_warned_of(weight, warned):
    ocp = OCP.single_phase(
        _dynamics(textbook.double_integrator()), [0.0, 0.0], 3, 0.1, [control_cost(1, weight=weight)]
    )
    assert any("multiply all weights" in message for message in _messages(ocp, severity="warning")) == warned


def test_terms_are_updated_by_name():
    ocp = _problem()
    goal = np.r_[np.sin(0.5), 0.0, 0.0, np.cos(0.5), 0.0, 0.0, 0.0]
    changed = ocp.updated("state", reference=goal, weight=7.0)
    np.testing.assert_array_equal(changed.terminal[0].parameters["reference"], goal)
    np.testing.assert_array_equal(changed.terminal[0].weight, np.full(6, 7.0))
    np.testing.assert_array_equal(ocp.terminal[0].parameters["reference"], REST)
    with pytest.raises(ValueError, match="no cost term or constraint is named 'sate'; known: control, state"):
        ocp.updated("sate", weight=1.0)
    heavy = OCP((replace(ocp.phases[0], parameters={"mass": np.ones(1)}),), ocp.x0, ocp.terminal)
    with pytest.raises(ValueError, match="known: control, state, dynamics; 'mass' is a parameter of the dynamics"):
        heavy.updated("mass", weight=1.0)
    assert heavy.updated("dynamics", mass=2.0).phases[0].parameters["mass"].tolist() == [2.0]
    with pytest.raises(ValueError, match="the dynamics have no parameter 'weight'; they have: mass"):
        heavy.updated("dynamics", weight=1.0)
    with pytest.raises(ValueError, match="the dynamics: the parameter 'mass' has 1 numbers; got 2"):
        heavy.updated("dynamics", mass=[1.0, 2.0])
    with pytest.raises(ValueError, match="the dynamics have no parameters; give them to the problem"):
        ocp.updated("dynamics", mass=1.0)


def test_rows_by_knot_are_split_among_the_phases():
    light, heavy = _problem().phases[0], replace(_problem().phases[0], parameters={"mass": np.ones(1)})
    ocp = replace(_problem(), phases=(light, heavy, heavy))
    K, N = light.knots, ocp.horizon
    weights, masses = np.arange(float(3 * N)).reshape(N, 3), np.arange(N + 1.0)[:, None]
    for i, phase in enumerate(ocp.updated("control", weight=weights).phases):
        np.testing.assert_array_equal(phase.terms[0].weight, weights[i * K :][:K])
    rows = np.arange(6.0 * (N + 1)).reshape(N + 1, 6)
    np.testing.assert_array_equal(ocp.updated("state", weight=rows).terminal[0].weight, rows[-1])
    first, *others = ocp.updated("dynamics", mass=masses).phases
    assert not first.parameters
    for i, phase in enumerate(others, start=1):
        np.testing.assert_array_equal(phase.parameters["mass"], masses[i * K :][:K])
    short = replace(light, dt=light.dt[:2])
    for name, knots in (("control", K), ("control", 2), ("dynamics", 2)):
        with pytest.raises(ValueError, match=rf"has shape \({knots}, 1\); expected"):
            changes = {"mass" if name == "dynamics" else "weight": np.ones((knots, 1))}
            replace(ocp, phases=(short, heavy, heavy)).updated(name, **changes)
    each = ocp.updated("dynamics", mass=masses[:K])
    assert all((phase.parameters["mass"] == masses[:K]).all() for phase in each.phases[1:])


def test_new_references_of_terminal_terms_remove_the_goals_of_the_old_ones():
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    ocp = to.OCP.single_phase(to.SampledSystem(cart, "rk4"), np.zeros(2), 20, 0.1, [to.control_cost(1)])
    goal = to.state_goal(cart.manifold, [1.0, 0.0])
    with pytest.raises(ValueError, match=r"goal 'final state': reference has shape \(3,\); expected \(nx = 2,\)"):
        to.state_goal(cart.manifold, [1.0, 0.0, 0.0])
    ocp = replace(ocp, terminal=(to.state_cost(cart.manifold, [1.0, 0.0], 1e4, "end"),), goals=(goal,))
    assert ocp.updated("end", weight=1e3).goals == ocp.updated("control", weight=2.0).goals == (goal,)
    moved = ocp.updated("end", reference=[2.0, 0.0])
    assert moved.goals == ()
    assert to.solve(moved).status.success
    assert to.solve(replace(moved, goals=(goal,))).status.code == "goal_missed"


def test_a_new_center_of_an_obstacle_removes_the_goal_to_avoid_the_old_one():
    ocp = to.load_problem("irb4600_replan").task.ocp
    names = [goal.name for goal in ocp.goals]
    assert [goal.name for goal in ocp.updated("obstacle", width=0.1).goals] == names
    moved = ocp.updated("obstacle", center=[0.0, 5.0, 5.0])
    assert [goal.name for goal in moved.goals] == [name for name in names if name != "clearance"] != names


def test_updated_values_have_the_size_of_the_old_ones():
    ocp = _problem()
    for reference in ([0.7], np.zeros((5, 8))):
        with pytest.raises(ValueError, match="term 'state': the parameter 'reference' has 7 numbers; got"):
            ocp.updated("state", reference=reference)
    np.testing.assert_array_equal(
        ocp.updated("state", reference=0.5).terminal[0].parameters["reference"], np.full(7, 0.5)
    )
    with pytest.raises(ValueError, match="has no parameter 'goal'; it has: reference"):
        ocp.updated("state", goal=1.0)


# -- evaluation ---------------------------------------------------------------------------------------------------------


def _two_phases():
    """Per-knot weights, references, bounds and dynamics parameters; the second phase has one control less."""
    manifold = Manifold.vector(2)
    rng = np.random.default_rng(5)
    one = FunctionMap(lambda x, u, t, p: [x[1], p["gain"][0] * u[0] + u[1] * x[0]], manifold, 2)
    two = FunctionMap(lambda x, u, t, p: [x[1], u[0] - x[0] * x[0]], manifold, 1)
    mixed = residual_cost("mixed", lambda x, u, t, p: [x[0] * u[0] + t], manifold, 1, rng.random((3, 1)), nu=1)
    phases = (
        Phase(
            _dynamics(one),
            [0.1, 0.2, 0.1],
            (control_cost(2, reference=rng.random((3, 2))), mixed),
            {"gain": rng.random((3, 1))},
        ),
        Phase(_dynamics(two), [0.3, 0.1], (state_cost(manifold, rng.random((2, 2))), control_cost(1))),
    )
    return OCP(phases, [0.3, -0.2], (state_cost(manifold, [1.0, 0.0], 5.0),))


def _cost_by_hand(ocp, xs, us):
    total, k = 0.0, 0
    for phase in ocp.phases:
        for i in range(phase.knots):
            for term in phase.terms:
                p = {key: (v[i] if v.ndim == 2 else v)[:, None] for key, v in term.parameters.items()}
                x = xs[k][: term.residual.manifold.nx, None]
                r = np.asarray(term.residual(x, us[k][: term.residual.nu, None], ocp.times[k : k + 1], p))[:, 0]
                w = term.weight[i] if term.weight.ndim == 2 else term.weight
                total += 0.5 * phase.dt[i] * np.sum(w * r * r)
            k += 1
    goal = ocp.terminal[0]
    return total + 0.5 * np.sum(goal.weight * (xs[-1] - goal.parameters["reference"]) ** 2)


def test_cost_is_the_sum_over_knots_and_terms():
    ocp = _two_phases()
    rng = np.random.default_rng(6)
    xs, us = rng.standard_normal((3, 6, 2)), rng.standard_normal((3, 5, 2))
    evaluator = StageEvaluator(ocp)
    expected = [_cost_by_hand(ocp, x, u) for x, u in zip(xs, us, strict=True)]
    np.testing.assert_allclose(evaluator.cost(xs, us), expected, rtol=1e-14)
    assert evaluator.expand(xs[0], us[0]).cost == pytest.approx(expected[0], rel=1e-14)


def test_expansion_is_the_derivative_of_cost_and_dynamics():
    ocp = _two_phases()
    rng = np.random.default_rng(7)
    xs, us = rng.standard_normal((6, 2)), rng.standard_normal((5, 2))
    evaluator = StageEvaluator(ocp, "exact")
    lq, _, x_next = evaluator.expand(xs, us)
    np.testing.assert_allclose(lq.d, x_next - xs[1:], atol=1e-15)
    np.testing.assert_allclose(lq.dx0, ocp.x0 - xs[0], atol=1e-15)
    h = 1e-6
    for direction in range(4):
        dx, du = rng.standard_normal(xs.shape), rng.standard_normal(us.shape)
        du[3:, 1] = 0.0  # the control that the second phase does not have
        ends = [evaluator.expand(xs + s * h * dx, us + s * h * du) for s in (1, -1)]
        slope = (ends[0].cost - ends[1].cost) / (2 * h)
        assert np.sum(lq.q * dx) + np.sum(lq.r * du) == pytest.approx(slope, rel=1e-7), direction
        step = (ends[0].x_next - ends[1].x_next) / (2 * h)
        linear = np.einsum("kij,kj->ki", lq.A, dx[:-1]) + np.einsum("kij,kj->ki", lq.B, du)
        np.testing.assert_allclose(linear, step, rtol=0, atol=1e-8)
        gradient = (ends[0].lq.q - ends[1].lq.q) / (2 * h)
        change = np.einsum("kij,kj->ki", lq.Q, dx)
        change[:-1] += np.einsum("kji,kj->ki", lq.S, du)
        np.testing.assert_allclose(change, gradient, rtol=0, atol=1e-8)


@pytest.mark.parametrize("gaps", ["linear", "nonlinear"])
@pytest.mark.parametrize("shooting", ["single", 2, "all"])
def test_rollout_of_many_step_lengths_is_that_of_each(shooting, gaps):
    """Rollouts of several step lengths equal single ones, and to first order (xs (+) alpha dx, us + alpha du)."""
    ocp = _two_phases()
    rng = np.random.default_rng(8)
    evaluator, nodes = StageEvaluator(ocp), Shooting.every(shooting, 5, gaps)
    start = Direction(np.zeros((6, 2)), np.zeros((5, 2)), np.zeros((5, 2, 2)), np.zeros((5, 2)))
    guess = rng.standard_normal((6, 2))
    guess[0] = ocp.x0
    first = evaluator.rollout(guess, rng.standard_normal((5, 2)), start, np.zeros(1), Shooting(nodes.nodes))
    xs, us, lq = first.xs[0], first.us[0], evaluator.expand(first.xs[0], first.us[0]).lq
    du, dx = rng.standard_normal((5, 2)), np.zeros((6, 2))
    for k in range(5):
        dx[k + 1] = lq.A[k] @ dx[k] + lq.B[k] @ du[k] + lq.d[k]
    direction = Direction(dx, du, rng.standard_normal((5, 2, 2)), lq.d)
    alphas = np.array([1.0, 0.5, 1e-5])
    together = evaluator.rollout(xs, us, direction, alphas, nodes)
    for i, alpha in enumerate(alphas):
        alone = evaluator.rollout(xs, us, direction, np.array([alpha]), nodes)
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a[i], b[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(together.xs[2], xs + 1e-5 * dx, rtol=0, atol=1e-8)
    np.testing.assert_allclose(together.us[2], us + 1e-5 * du, rtol=0, atol=1e-8)
    reached = evaluator.expand(together.xs[0], together.us[0]).lq.d
    np.testing.assert_allclose(together.defects[0], reached, rtol=0, atol=1e-13)


def test_import_is_light():
    """No symbolic, plotting or validation library, nor scipy, is loaded before it is used."""
    code = "import sys, trajopt; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("casadi", "matplotlib", "pydantic", "rich", "scipy", "osqp"):
        assert f"'{heavy}'" not in loaded


def test_parts_in_the_wrong_place_are_reported():
    limit = to.state_bounds(_dynamics().manifold, REST - 1.0, REST + 1.0)
    with pytest.raises(TypeError, match="the running costs: 'control' is a single object; pass a list"):
        _problem(running=control_cost(3))
    with pytest.raises(
        TypeError, match=r"constraints: 'state' is a cost; use trajopt.bounded\(...\) to make it a constraint"
    ):
        _problem(constraints=_problem().terminal)
    with pytest.raises(TypeError, match=r"terminal: 'state bounds' is a constraint; .* trajopt.softened"):
        _problem(terminal=[limit])
    goal = to.state_goal(_dynamics().manifold, REST)
    with pytest.raises(TypeError, match=r"constraints: a goal is only checked after a solve: .* trajopt.bounded"):
        _problem(constraints=[goal])
    with pytest.raises(TypeError, match=r"terminal: a goal is only checked after a solve: .* trajopt.state_cost"):
        _problem(terminal=[goal])
    with pytest.raises(TypeError, match="the constraint is a CostTerm; expected a trajopt.Constraint"):
        to.softened(control_cost(3), 1.0)
    for undivided in (_dynamics().backend, _dynamics().system, lambda x, u, t, p: x):
        with pytest.raises(
            TypeError, match=r"dynamics is a .*; expected discrete dynamics, as trajopt.SampledSystem\("
        ):
            OCP.single_phase(undivided, REST, 5, 0.1)
    with pytest.raises(TypeError, match="^phases: got a Phase; pass a list"):
        OCP(Phase(_dynamics(), [0.1]), REST)
    with pytest.raises(TypeError, match="^the running costs: got a float; pass a list"):
        Phase(_dynamics(), 5, 0.1)
    with pytest.raises(TypeError, match=r"horizon = 5.0; expected an integer number of time steps"):
        _problem(horizon=5.0)
    with pytest.raises(TypeError, match=r"horizon = True; expected an integer number of time steps"):
        _problem(horizon=True)
    with pytest.raises(TypeError, match=r"x0 = None; expected real numbers"):
        _problem(x0=None)
    with pytest.raises(TypeError, match=r"x0 = .*; expected real numbers"):
        _problem(x0=REST + 1j)
    for key, name in (("u_lowr", "u_lower"), ("runing", "running"), ("horizn", "horizon")):
        with pytest.raises(TypeError, match=rf"single_phase has no argument '{key}'; did you mean '{name}'\?"):
            _problem(**{key: 1.0})
    with pytest.raises(ValueError, match=r"dt has shape \(4,\); give a number, or one for each of the 5 time steps"):
        _problem(dt=[0.1] * 4)
    assert _problem(running=(cost for cost in [control_cost(3)])).terms()[0].name == "control"


def test_an_ocp_is_shown_in_one_line():
    ocp = _problem()
    assert repr(ocp.phases[0]).startswith("Phase(5 knots, 0.5 s, SampledSystem(Backend('")
    assert repr(ocp.terms()[0]) == "CostTerm('control': 3 residuals, weight 1)"
    assert repr(to.bounded(ocp.terms()[0])) == "Constraint('control': 3 rows, equality)"
    assert repr(to.constant_guess(ocp)) == "Guess(xs (6, 7), us (5, 3))"
    assert repr(_problem()) == "OCP('ocp': 5 knots, 0.5 s, nx = 7, nu = 3, 1 phases, 2 costs, 0 constraints)"


@pytest.mark.parametrize(
    "names, message",
    [
        (("c", "c"), "phase 0 has 2 constraints named 'c'; give them different names"),
        (("bounds on u",), "phase 0 constraint 'bounds on u': this is a name of other multipliers"),
        (("terminal g",), "phase 0 constraint 'terminal g': this is a name of other multipliers"),
    ],
)
def test_names_of_constraints_are_keys_of_their_multipliers(names, message):
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True), "rk4")
    bounds = [to.residual_constraint(name, lambda x, u, t, p: [x[1]], 2, 1, -1.0, 1.0) for name in names]
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 5, 0.1, [to.control_cost(1)], constraints=bounds)
    with pytest.raises(to.InvalidProblem, match=message):
        to.solve(ocp)


def test_bounds_closer_than_the_tolerance_are_reported():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True), "rk4")
    force = to.residual_constraint("force", lambda x, u, t, p: [u[0]], 2, 1, -1e-6, 1e-6, nu=1)
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 5, 0.1, [to.control_cost(1)], constraints=[force])
    (finding,) = [f for f in to.validate(ocp) if "apart" in f.message]
    assert finding.severity == "warning" and "choose units" in finding.message
    moved = to.solve(dataclasses.replace(ocp, terminal=(to.state_cost(2, [1.0, 0.0]),), x0=np.array([0.0, 0.1])))
    assert np.abs(moved.xs[-1] - moved.xs[0]).max() > 0.01
    assert any("apart" in str(message) for message in moved.meta["findings"])


def test_numbers_that_are_not_finite_along_the_guess_are_named():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / x[0]], 2, 1), "rk4")
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 5, 0.1, [to.control_cost(1)])
    (finding,) = to.validate(ocp)
    assert finding.message.startswith("along the guess: NaN or infinity in the step of x[0] at knot 0.")
    assert to.validate(ocp, to.Guess(np.ones((6, 2)), np.zeros((5, 1)))) == []


def test_a_parameter_with_one_number_for_each_knot_is_reported():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - p["k"][0] * x[0]], 2, 1), "rk4")
    for k, message in (
        (np.ones(5), "parameter 'k' of the dynamics has as many entries as there are knots"),
        (np.ones((5, 1)), ""),
    ):
        ocp = to.OCP.single_phase(step, [1.0, 0.0], 5, 0.1, [to.control_cost(1)], parameters={"k": k})
        assert [f.message[: len(message)] for f in to.validate(ocp)] == [message] * bool(message)


def test_a_vector_of_a_term_in_phases_of_other_lengths_is_no_value_by_knot():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    weighted = to.residual_cost("pull", lambda x, u, t, p: [p["k"][0] * x[0]], 2, 1, parameters={"k": np.ones(5)})
    for lengths, expected in (((5,), 1), ((5, 5), 2), ((5, 8), 0)):
        phases = tuple(to.Phase(step, np.full(n, 0.1), [to.control_cost(1), weighted]) for n in lengths)
        found = [f.message for f in to.validate(to.OCP(phases, [1.0, 0.0]))]
        assert sum("has as many entries as there are knots" in message for message in found) == expected


def test_parameters_that_no_dynamics_read_are_reported():
    def f(x, u, t, p):
        return [x[1], (u[0] - p["k"][0] * x[0]) / p.get("mass", [1.0])[0]]

    def copies(x, u, t, p):
        return f(x, u, t, {**p})

    for function, expected in ((f, ["m"]), (copies, [])):
        step = to.SampledSystem(to.FunctionMap(function, 2, 1), "rk4")
        given = {"k": [1.0], "mass": [2.0], "m": [3.0]}
        ocp = to.OCP.single_phase(step, [1.0, 0.0], 5, 0.1, [to.control_cost(1)], parameters=given)
        for problem in (ocp, to.free_time(ocp).ocp):
            found = [f.message for f in to.validate(problem)]
            assert found == [
                f"the dynamics do not read the parameter {name!r} at x0 (they read: 'k', 'mass'): check its name"
                for name in expected
            ]

    class Own(to.FunctionMap):
        def __call__(self, x, u, t, p):
            return to.stack([x[1], p["gain"][0] * u[0]])

    own = to.SampledSystem(to.make_backend(Own(f, 2, 1), "forward_ad", engine="numpy"), "rk4")
    reads = to.OCP.single_phase(own, [1.0, 0.0], 5, 0.1, [to.control_cost(1)], parameters={"gain": [1.0]})
    assert to.validate(reads) == []
    discrete = to.discrete_dynamics(lambda x, u, t, p: [x[0] + u[0]], 1, 1)
    ocp = to.OCP.single_phase(discrete, 0.0, 5, 1.0, [to.control_cost(1)], parameters={"gain": [1.0]})
    assert "they read: none" in to.validate(ocp)[0].message


def test_a_violated_x0_is_reported_with_free_time_too():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    slow = to.state_bounds(2, [-np.inf, -2.0], [np.inf, 2.0], "speed")
    goal = to.bounded(to.state_cost(2, [5.0, 0.0]), name="goal")
    ocp = to.OCP.single_phase(
        step, [0.0, 2.5], 20, 0.1, [to.control_cost(1)], constraints=[slow], terminal_constraints=[goal]
    )
    for given in (ocp, to.free_time(ocp, (0.5, 10.0)).ocp):
        (finding,) = to.validate(given)
        assert finding.message.startswith(
            "x0 violates speed: x[1] by 0.5; the constraint is enforced from the next knot on"
        )
