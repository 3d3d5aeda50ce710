"""DDP batches: each solution equals that of a single solve."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from batch_cases import check_each, shifted
from contact_cases import hop, soft_hop

import trajopt as to
from trajopt import Batch, Guess, StatusCode
from trajopt.solvers.batch import threads

GOAL = np.array([2.0, -0.6, 0.0, 0.0])


def swing(horizon=24, scheme="semi_implicit_euler"):
    """Double pendulum with goals for its posture and the placement of its tip."""
    model = to.load_robot("double_pendulum")
    body = to.FreeBody(model)
    terms = [to.control_cost(2, weight=1e-2), to.state_cost(body.manifold, GOAL, [0.1, 0.1, 0.01, 0.01], name="way")]
    tip = to.frame_position_cost(model, body.manifold, model.frames[-1].name, [0.5, 0.0, 1.2], 50.0, "tip")
    last = [to.state_cost(body.manifold, GOAL, 100.0, name="goal"), tip]
    dynamics = to.SampledSystem(to.make_backend(body, "analytic"), scheme)
    return to.OCP.single_phase(dynamics, np.zeros(4), horizon, 0.05, [*terms, tip], last, model=model)


def floating(scheme="semi_implicit_euler", substeps=1):
    """Tree of three bodies with a floating base that moves to a posture."""
    model = to.random_tree(3, 3, ("revolute",), floating_base=True)
    body = to.FreeBody(model)
    x0 = np.zeros(body.manifold.nx)
    x0[6] = 1.0
    goal = x0.copy()
    goal[:3], goal[7:9] = [0.1, 0.2, -0.5], [0.5, -0.4]
    tip = to.frame_position_cost(model, body.manifold, model.frames[-1].name, [0.3, 0.1, -1.0], 5.0, "tip")
    terms = [to.control_cost(body.nu, weight=1e-2), tip]
    dynamics = to.SampledSystem(to.make_backend(body, "analytic"), scheme, substeps)
    return to.OCP.single_phase(dynamics, x0, 12, 0.05, terms, [to.state_cost(body.manifold, goal, 20.0, name="goal")])


def check_batch(ocp, n, size, options, *, gains=False, atol=1e-6):
    """Compare a batch of different starts with single solves. atol: rounding grows along long paths and stiff contacts."""
    x0, guess = shifted(ocp, n, size=size)
    batch = Batch(ocp, {"x0": x0})
    found = to.solve_batch(batch, guess=guess, options=options, solver="ddp", gains=gains, threads=1)
    assert found.meta["how"] == "1 thread"
    check_each(found, batch, guess, options, "ddp", atol=atol, rel=1e-6)
    return found


@pytest.mark.parametrize("changes", [
    {},
    {"hessian": "gauss_newton"},
    {"max_iterations": 3},
    {"cost_tolerance": 1e-3},
    {"max_backtracks": 2},
], ids=str)  # fmt: skip
def test_each_is_the_single_solve(changes):
    found = check_batch(swing(), 17, 0.5, changes, gains=True)
    assert found.success.any() == ("max_iterations" not in changes)


@pytest.mark.parametrize("scheme, substeps", [("semi_implicit_euler", 1), ("euler", 2), ("rk4", 1)])
def test_steps_on_groups_and_of_several_stages(scheme, substeps):
    check_batch(floating(scheme, substeps), 9, 0.1, {"max_iterations": 4})


def test_steps_of_several_stages_in_a_vector_space():
    check_batch(swing(scheme="rk4"), 9, 0.2, {"max_iterations": 4})


@pytest.mark.parametrize("problem", [hop, partial(soft_hop, substeps=10)], ids=["hop", "soft_hop"])
def test_contact_phases_and_impacts(problem):
    """Phases of several structures, impacts, terms that read contact forces; few iterations, so that rounding does not grow."""
    check_batch(problem("compiled"), 9, 0.02, {"max_iterations": 2}, atol=1e-5)


def test_many_problems_solved_to_the_end():
    """Many problems on two threads: steps with full, partial or no curvature, damped steps, short steps."""
    ocp, n = swing(horizon=40), 180
    x0, guess = shifted(ocp, n, size=2.0)
    batch = Batch(ocp, {"x0": x0})
    found = to.solve_batch(batch, guess=guess, solver="ddp", threads=2)
    kinds, same = set(), []
    for i in range(0, n, 4):
        single = to.solve(batch[i], Guess(guess.xs[i], guess.us[i]), solver="ddp", check=False)
        assert found.status[i].code is single.status.code
        same.append(found.iterations[i] == single.iterations)
        if same[-1]:
            assert found.cost[i] == pytest.approx(single.cost, rel=1e-9)
        kinds |= {(r.hessian, r.regularization > 0.0, r.step_length < 1.0) for r in single.history[:-1]}
    assert np.mean(same) > 0.9  # rounding may separate long paths
    assert {kind for kind, _, _ in kinds} == {"gauss_newton", "mixed", "newton"}
    assert {damped for _, damped, _ in kinds} == {short for _, _, short in kinds} == {False, True}
    used = found.meta["lanes"]
    assert found.meta["how"] == "2 threads" and used["threads"] == 2 and 0.0 < used["expansions"] <= 1.0


def test_a_non_finite_start_does_not_stop_the_others():
    ocp = swing(horizon=16)
    x0, guess = shifted(ocp, 20, size=0.1)
    guess.xs[4, 3:] = 1e200
    found = to.solve_batch(ocp, {"x0": x0}, guess, solver="ddp", gains=True)
    single = to.solve(replace(ocp, x0=x0[4]), Guess(guess.xs[4], guess.us[4]), solver="ddp", check=False)
    assert str(found.status[4]) == str(single.status) and np.isnan(found.cost[4])
    np.testing.assert_array_equal(found.xs[4], single.xs)
    assert np.delete(found.success, 4).all()


def test_non_finite_derivatives_are_reported_as_in_single_solves():
    """Two guesses have a norm of zero at a knot, where its derivative is not finite."""
    ocp = swing(horizon=16)
    norm = to.residual_cost("norm", lambda x, u, t, p: [np.sqrt(x[0] * x[0] + x[1] * x[1])], ocp.manifold, 1, 1e-3)
    ocp = replace(ocp, phases=(replace(ocp.phases[0], terms=(*ocp.phases[0].terms, norm)),))
    x0, guess = shifted(ocp, 20, size=0.3)
    guess.xs[[3, 11], 5, :2] = 0.0
    found = to.solve_batch(ocp, {"x0": x0}, guess, solver="ddp", threads=1)
    assert found.meta["how"] == "1 thread"
    for i in (3, 11):
        single = to.solve(replace(ocp, x0=x0[i]), Guess(guess.xs[i], guess.us[i]), solver="ddp", check=False)
        assert found.status[i].code is single.status.code is StatusCode.NON_FINITE
        assert "'norm'" in single.status.message
        assert (str(found.status[i]), found.status[i].knot) == (str(single.status), single.status.knot)
    assert np.delete(found.success, [3, 11]).any()


def test_gains_where_every_step_is_damped():
    """With almost free controls, the gains K and k are those of the last step."""
    ocp = swing(horizon=16, scheme="euler")
    free = to.control_cost(2, weight=1e-12)
    ocp = replace(ocp, phases=(replace(ocp.phases[0], terms=(free, *ocp.phases[0].terms[2:])),))
    check_batch(ocp, 9, 0.3, {"max_iterations": 3}, gains=True)


def test_limits_of_iterations_and_of_time():
    ocp = swing(horizon=16)
    x0, guess = shifted(ocp, 20, size=0.5)
    few = to.solve_batch(ocp, {"x0": x0}, guess, {"max_iterations": 2}, solver="ddp")
    assert {s.code for s in few.status} == {StatusCode.MAX_ITERATIONS} and (few.iterations == 2).all()
    late = to.solve_batch(ocp, {"x0": x0}, guess, {"time_limit": 1e-9}, solver="ddp")
    assert {s.code for s in late.status} == {StatusCode.TIME_LIMIT} and np.isfinite(late.cost).all()


def test_ctrl_c_returns_the_finished_solutions(monkeypatch):
    monkeypatch.setattr(threads, "POLL", 1e-4)
    ocp = swing(horizon=16)
    x0, guess = shifted(ocp, 900, size=0.5)

    def interrupt(done, total):
        if done >= 1:
            raise KeyboardInterrupt

    found = to.solve_batch(ocp, {"x0": x0}, guess, {"max_iterations": 10**6}, interrupt, solver="ddp", threads=1)
    begun = np.isfinite(found.cost)
    assert begun.any() and not begun.all() and np.isfinite(found.xs[begun]).all()
    assert StatusCode.INTERRUPTED in {s.code for s in found.status}
    assert all("before this problem started" in found.messages[i] for i in np.flatnonzero(~begun))


def bounded(ocp, limit):
    """Add control bounds: an active one, a one-sided one, and an inactive distant one."""
    wide = np.full(ocp.nu, 1e3)
    lower, upper = -wide, wide.copy()
    lower[0], upper[0], upper[-1] = -limit, limit, np.inf
    return replace(ocp, u_lower=lower, u_upper=upper)


@pytest.mark.parametrize("changes", [
    {},
    {"hessian": "gauss_newton", "max_iterations": 8},
    {"max_iterations": 5},
    {"max_backtracks": 2},
], ids=str)  # fmt: skip
def test_bounds_on_the_controls(changes):
    ocp = bounded(swing(), 4.0)
    found = check_batch(ocp, 17, 0.5, changes, gains=True)
    held = np.abs(found.us[..., 0]) == 4.0
    assert np.abs(found.us[..., 0]).max() <= 4.0
    assert held.any() == ("max_iterations" not in changes)


@pytest.mark.parametrize("problem", [floating, lambda: soft_hop("compiled")], ids=["groups", "contacts"])
def test_bounds_in_other_structures(problem):
    ocp = problem()
    check_batch(bounded(ocp, 2.0), 9, 0.005, {"max_iterations": 3}, gains=True, atol=1e-5)


def test_bounds_in_many_problems():
    """Damped steps, short steps, and multipliers, on two threads."""
    ocp, n = bounded(swing(horizon=40), 2.0), 60
    x0, guess = shifted(ocp, n, size=2.0)
    batch = Batch(ocp, {"x0": x0})
    found = to.solve_batch(batch, guess=guess, solver="ddp", threads=2)
    same, damped = [], set()
    for i in range(0, n, 4):
        single = to.solve(batch[i], Guess(guess.xs[i], guess.us[i]), solver="ddp", check=False)
        same.append(found.status[i].code is single.status.code and found.iterations[i] == single.iterations)
        if same[-1]:
            assert found.cost[i] == pytest.approx(single.cost, rel=1e-8)
        damped |= {r.regularization > 0.0 for r in single.history[:-1]}
    assert np.mean(same) > 0.9 and damped == {False, True}  # rounding may separate long paths


def test_bounds_and_a_guess_that_is_no_number():
    ocp = bounded(swing(horizon=16), 4.0)
    x0, guess = shifted(ocp, 20, size=0.1)
    guess.xs[4, 3:] = 1e200
    found = to.solve_batch(ocp, {"x0": x0}, guess, solver="ddp", gains=True)
    single = to.solve(replace(ocp, x0=x0[4]), Guess(guess.xs[4], guess.us[4]), solver="ddp", check=False)
    assert str(found.status[4]) == str(single.status) and np.isnan(found.cost[4])
    assert np.delete(found.success, 4).all()


def test_equal_bounds_of_one_problem_do_not_affect_the_others():
    ocp, n = bounded(swing(horizon=16), 4.0), 20
    x0, guess = shifted(ocp, n, size=0.1)
    lower, upper = np.tile(ocp.u_lower, (n, 1)), np.tile(ocp.u_upper, (n, 1))
    lower[3, 1] = upper[3, 1] = 0.5
    lower[7], upper[7] = 1.0, -1.0
    batch = Batch(ocp, {"x0": x0, "u_lower": lower, "u_upper": upper})
    found = to.solve_batch(batch, guess=guess, solver="ddp", threads=1, gains=True)
    assert found.meta["how"] == "1 thread" and not found.meta.get("referred")
    crossed = found.status[7]
    assert crossed.code is StatusCode.INFEASIBLE
    assert crossed.message.endswith(" at knot 0 of problem 7 contradict each other: lower 1 > upper -1.")
    single = to.solve(batch[3], Guess(guess.xs[3], guess.us[3]), solver="ddp", check=False)
    assert found.status[3].code is single.status.code and found.iterations[3] == single.iterations
    assert (
        single.status.success
        and (found.us[3, :, 1] == 0.5).all()
        and not found.K[3, :, 1].any()
        and found.cost[3] == pytest.approx(single.cost, rel=1e-9)
    )
    assert np.delete(found.success, 7).all()
