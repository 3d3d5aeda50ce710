"""Inequalities between the knots: compared with closed forms, removed by margins, checked by a separate simulation."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from trajopt.stage.evaluation import StageEvaluator
from trajopt.validation.between_knots import _peaks, between_knots, may_be_violated, tightened

A, DT = 2.0, 0.2


def mass(engine: str, n: int = 1):
    """A point mass in n directions: within a time step the motion is a parabola."""
    rates = to.FunctionMap(lambda x, u, t, p: [*x[n : 2 * n], *u], 2 * n, n, second_order=True)
    return to.SampledSystem(to.make_backend(rates, "forward_ad", engine=engine), "rk4")


def point():
    """A point in the plane whose controls are its velocities."""
    return to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [u[0], u[1]], 2, 2), "rk4")


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_a_ball_thrown_between_the_knots_is_seen(engine):
    """It is at the limit at both knots, and a dt^2 / 8 beyond it between them."""
    limit = to.state_bounds(2, [-np.inf, -np.inf], [1.0, np.inf], "height")
    ocp = to.OCP.single_phase(mass(engine), [1.0, 0.5 * A * DT], 1, DT, [to.control_cost(1)], constraints=[limit])
    xs, us = np.array([[1.0, 0.5 * A * DT], [1.0, -0.5 * A * DT]]), np.array([[-A]])
    found = between_knots(ocp, xs, us, StageEvaluator(ocp, engine="auto"))
    assert found.amount == pytest.approx(A * DT**2 / 8) and found.ratio == pytest.approx(found.amount / 5e-3)
    assert (found.knot, found.time) == (0, pytest.approx(0.5 * DT))
    assert found.sentence() == (
        "constraint height: x[0] is violated by 0.01 (tolerance 0.005) between knots 0 and 1, at t = 0.1 s"
    )


def test_the_tolerance_is_a_small_part_of_a_narrow_range():
    """A tube of 0.2 mm, given in meters."""
    narrow = to.state_bounds(2, [1.0 - 2e-4, -np.inf], [1.0, np.inf], "height")
    ocp = to.OCP.single_phase(mass("numpy"), [1.0, 0.5 * A * DT], 1, DT, [to.control_cost(1)], constraints=[narrow])
    xs, us = np.array([[1.0, 0.5 * A * DT], [1.0, -0.5 * A * DT]]), np.array([[-A]])
    found = between_knots(ocp, xs, us, StageEvaluator(ocp))
    assert found.ratio == pytest.approx(found.amount / (0.05 * 2e-4))


def test_the_tolerance_depends_on_the_range_of_a_row_along_all_phases():
    """The ball rises by 1 m to the limit, and is thrown by 0.01 mm in the next phase."""
    limit = to.state_bounds(2, [-np.inf, -np.inf], [0.0, np.inf], "height")
    phases = [to.Phase(mass("numpy"), np.full(1, DT), [to.control_cost(1)], {}, (limit,)) for _ in range(2)]
    ocp, a = to.OCP(phases, [-1.0, 1.0 / DT]), 2e-3
    xs = np.array([[-1.0, 1.0 / DT], [0.0, 0.5 * a * DT], [0.0, -0.5 * a * DT]])
    found = between_knots(ocp, xs, np.array([[0.0], [-a]]), StageEvaluator(ocp))
    assert found.amount == pytest.approx(a * DT**2 / 8) and found.ratio == pytest.approx(found.amount / 1e-3)


@pytest.mark.parametrize("beside", [0.02, 0.5, 0.97])
def test_a_thin_wall_is_seen_also_beside_a_knot(beside):
    """It is crossed in a twentieth of the time step; no sample may lie in it."""
    rates = to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1)
    thin = to.residual_constraint("wall", lambda x, u, t, p: [((x[0] - beside) / 0.025) ** 2], 1, 1, 1.0, np.inf)
    ocp = to.OCP.single_phase(to.SampledSystem(rates, "rk4"), [0.0], 1, 1.0, [to.control_cost(1)], constraints=[thin])
    found = between_knots(ocp, np.array([[0.0], [1.0]]), np.array([[1.0]]), StageEvaluator(ocp))
    depth = 1.0 - min(1.0, (min(beside, 1.0 - beside) / 0.025) ** 2)  # the knot beside it is in it
    assert found.ratio > 1.0 and found.amount == pytest.approx(1.0 - depth)


@pytest.mark.parametrize("kink", [0.1, 0.125, 0.2, 0.9])
def test_a_kink_beside_a_knot_is_no_violation(kink):
    """The values are never negative; a parabola through the first three samples would be."""
    rates = to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1)
    ramp = to.residual_constraint("ramp", lambda x, u, t, p: [np.maximum(x[0] - kink, 0.0)], 1, 1, 0.0, np.inf)
    ocp = to.OCP.single_phase(to.SampledSystem(rates, "rk4"), [0.0], 1, 1.0, [to.control_cost(1)], constraints=[ramp])
    assert between_knots(ocp, np.array([[0.0], [1.0]]), np.array([[1.0]]), StageEvaluator(ocp)).ratio == 0.0


def test_a_motion_at_rest_violates_nothing():
    limit = to.state_bounds(2, [-1.0, -1.0], [1.0, 1.0])
    ocp = to.OCP.single_phase(mass("numpy"), [0.0, 0.0], 2, DT, [to.control_cost(1)], constraints=[limit])
    found = between_knots(ocp, np.zeros((3, 2)), np.zeros((2, 1)), StageEvaluator(ocp))
    assert found.ratio == 0.0


def around(engine: str, horizon: int = 12):
    """From one side of a disc to the other, by the velocity in the plane: between the knots the motion is straight."""
    rates = to.FunctionMap(lambda x, u, t, p: [u[0], u[1]], 2, 2)
    dynamics = to.SampledSystem(to.make_backend(rates, "forward_ad", engine=engine), "rk4")
    away = to.residual_constraint("disc", lambda x, u, t, p: [x[0] ** 2 + x[1] ** 2], 2, 1, 0.25, np.inf)
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    given = dynamics, [-1.0, 0.1], horizon, 2.0 / horizon, [to.control_cost(2)]
    return to.OCP.single_phase(*given, constraints=[away], terminal_constraints=[goal])


def nearest(s: to.Solution) -> float:
    """The least distance of the motion from the middle of the disc, along straight lines."""
    fraction = np.linspace(0.0, 1.0, 51)[:, None, None]
    return float(np.linalg.norm((1.0 - fraction) * s.xs[:-1] + fraction * s.xs[1:], axis=2).min())


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize("solver", ["ipm", "sqp", "ddp", "auto"])
def test_margins_remove_violations_between_the_knots(solver, engine):
    """``auto`` adds them without being asked."""
    ocp = around(engine)
    assert may_be_violated(ocp)
    plain = to.solve(ocp, solver="ipm" if solver == "auto" else solver)
    assert plain.status.code == "violated_between_knots" and nearest(plain) < 0.495
    assert "between_knots = true" in plain.status.advice and plain.meta["between_knots"]["ratio"] > 5.0
    calls = []
    options = {} if solver == "auto" else {"between_knots": True}
    with_margins = to.solve(ocp, None, options, calls.append, solver=solver)
    assert with_margins.status.success and with_margins.meta["margins"] >= 1
    assert nearest(with_margins) > 0.5 - 1.5e-3 and with_margins.cost < 1.2 * plain.cost
    assert with_margins.iterations > plain.iterations
    assert [r.iteration for r in with_margins.history] == [r.iteration for r in calls] == list(range(len(calls)))
    assert f"the last of {with_margins.meta['margins'] + 1} solves, with margins" in with_margins.report()


def drive(constraints=(), *, x0=(0.0, 0.0), horizon=20, goal=1.0, **given):
    """A cart that goes from x0 to a goal at rest in a second."""
    end = [to.bounded(to.state_cost(2, [goal, 0.0]), name="goal")]
    dt = 1.0 / horizon
    return to.OCP.single_phase(
        mass("numpy"), x0, horizon, dt, [to.control_cost(1)], constraints=constraints, terminal_constraints=end, **given
    )


def test_margins_at_the_first_knot_apply_to_constraints_on_controls():
    """Force and speed share a limit; the speed grows within each time step, also within the first one."""
    shared = to.residual_constraint("shared", lambda x, u, t, p: [u[0] + 2.0 * x[1]], 2, 1, upper=5.0, nu=1)
    ocp = drive([shared], horizon=10)
    plain, found = to.solve(ocp, solver="ipm"), to.solve(ocp)
    assert plain.status.code == "violated_between_knots" and plain.us[0, 0] == pytest.approx(5.0)
    assert found.status.success and found.us[0, 0] < 4.2
    assert (found.us[:, 0] + 2.0 * np.maximum(found.xs[1:, 1], found.xs[:-1, 1])).max() < 5.1


def past(*poles):
    """A point mass crosses 3 m of a plane in 2.2 s, beside poles with radii r at the points x, y: rows (x, y, r)."""
    clear = to.residual_constraint(
        "pole", lambda x, u, t, p: [to.sqrt((x[0] - a) ** 2 + (x[1] - b) ** 2 + 1e-12) - r for a, b, r in poles], 4, len(poles),
        lower=0.0, upper=np.inf,
    )  # fmt: skip
    goal = to.bounded(to.state_cost(4, [3.0, 0.0, 0.0, 0.0]), name="goal")
    return to.OCP.single_phase(
        mass("compiled", 2),
        np.zeros(4),
        20,
        0.11,
        [to.control_cost(2)],
        constraints=[clear],
        terminal_constraints=[goal],
    )


def distance(ocp, found, x, y):
    """Least distance of the motion from a point, from an integration with fine steps."""
    fine = np.linspace(0.0, 0.11, 50)[:, None, None]
    at = found.xs[:-1, :2] + fine * found.xs[:-1, 2:] + 0.5 * fine**2 * found.us
    return float(np.linalg.norm(at - [x, y], axis=2).min())


def test_a_pole_between_two_knots_is_passed():
    """Margins at the adjacent knots alone move these knots apart along the way."""
    ocp = past((1.4, 0.002, 0.04))
    guess = to.interpolated_guess(ocp, [3.0, 0.0, 0.0, 0.0])
    assert to.solve(ocp, guess, solver="ipm").status.code == "violated_between_knots"
    for solver in ("auto", "ipm"):
        found = to.solve(ocp, guess, {"between_knots": True} if solver == "ipm" else {}, solver=solver)
        assert found.status.success and distance(ocp, found, 1.4, 0.002) > 0.04 - 1.5e-3


def test_a_motion_through_a_closed_gap_starts_again_from_a_detour():
    """Two overlapping poles, between which the knots jump."""
    ocp = past((1.4, 0.1, 0.12), (1.4, -0.1, 0.12))
    guess = to.interpolated_guess(ocp, [3.0, 0.0, 0.0, 0.0])
    found = to.solve(ocp, guess)
    assert found.status.success
    assert min(distance(ocp, found, 1.4, y) for y in (0.1, -0.1)) > 0.12 - 2e-3


def test_ctrl_c_ends_the_solves_with_margins_and_from_detours():
    ocp = past((1.4, 0.1, 0.12), (1.4, -0.1, 0.12))
    guess, records = to.interpolated_guess(ocp, [3.0, 0.0, 0.0, 0.0]), []
    to.solve(ocp, guess, callback=records.append)
    for last in (len(records) // 4, len(records) // 2, len(records) - 2):
        calls = []

        def stop(record, calls=calls, last=last):
            calls.append(record)
            if len(calls) == last:
                raise KeyboardInterrupt

        found = to.solve(ocp, guess, callback=stop)
        assert found.status.code == "interrupted" and len(calls) == last


def test_the_motions_of_many_starts_are_checked():
    """Every start jumps over the pole. With a goal, the best one is the cheapest that meets it."""
    ocp = past((1.4, 0.002, 0.04))
    starts = to.multi_start(ocp, 3, solver="ipm", guess=to.interpolated_guess(ocp, [3.0, 0.0, 0.0, 0.0]))
    assert starts.best.status.code == "violated_between_knots" and starts.solutions.success.all()
    assert "(violated_between_knots)" in repr(starts)
    ends = to.residual_cost("ends", lambda x, u, t, p: [x[0] ** 2 - 1.0, 0.1 * (x[0] + 1.0), x[1]], 2, 3, 100.0)
    goal = to.state_goal(to.FunctionMap(lambda x, u, t, p: x, 2, 1).manifold, np.array([1.0, 0.0]))
    ocp = to.OCP.single_phase(mass("compiled"), [0.2, 0.0], 20, 0.1, [to.control_cost(1)], [ends], goals=[goal])
    starts = to.multi_start(ocp, [to.interpolated_guess(ocp, [x, 0.0]) for x in (-1.0, 1.0)], solver="ipm")
    assert [o.solution.status.code for o in starts.optima] == ["converged", "goal_missed"]
    assert starts.best.xs[-1, 0] > 0.5 and starts.best.cost > starts.optima[1].solution.cost


@pytest.mark.parametrize("solver, options", [("auto", {}), ("ipm", {"between_knots": True})])
def test_an_optimum_of_many_starts_gets_margins(solver, options, caplog):
    """The same optimum from each start jumps over the pole; with margins, the motion passes beside it."""
    ocp = past((1.4, 0.002, 0.04))
    goal = to.interpolated_guess(ocp, [3.0, 0.0, 0.0, 0.0])
    starts = to.multi_start(ocp, [goal, goal], options, solver=solver)
    assert starts.best.status.success and starts.best.meta["options"]["between_knots"] is bool(options)
    assert starts.optima[0].times_found == 2 and starts.best.cost > starts.solutions[0].cost
    assert "between_knots has no effect" not in caplog.text


def test_the_given_start_and_inactive_constraints_are_no_violation():
    """x0 on the wrong side of a limit, and an end beyond a limit of the way."""
    low = to.state_bounds(2, [0.0, -np.inf], [np.inf, np.inf], "low")
    late = to.solve(drive([low], x0=(-0.05, 0.5)), solver="ipm")
    assert late.status.success and late.xs[0, 0] < 0.0 and late.meta["between_knots"]["ratio"] < 1.0
    high = to.state_bounds(
        2, np.full((20, 2), -np.inf), np.tile([0.98, np.inf], (20, 1)), "high"
    )  # by knot: not at the end
    found = to.solve(drive([high]), solver="ipm")
    assert found.status.success and found.xs[-1, 0] == pytest.approx(1.0)


def test_limits_given_by_knot_move_between_the_knots():
    """A wall that recedes with the cart, given by knot."""
    wall = to.residual_constraint(
        "wall", lambda x, u, t, p: [p["at"][0] - x[0]], 2, 1, 0.0, np.inf, parameters={"at": np.zeros((20, 1))}
    )
    free = to.solve(drive(), solver="ipm")
    ocp = drive([wall]).updated("wall", at=free.xs[:-1, :1] + 1e-9)
    found = between_knots(ocp, free.xs, free.us, StageEvaluator(ocp))
    assert found.amount < 1e-2  # the curve between the rows; without moving with them 0.09


def test_margins_leave_equations_and_the_first_knot_alone():
    lower = np.full((20, 1), -1.0)
    upper = np.full((20, 1), 0.5)
    lower[5] = upper[5] = 0.2
    c = to.residual_constraint("way", lambda x, u, t, p: [x[0]], 2, 1, lower, upper)
    ocp = drive([c])
    violated = between_knots(ocp, np.zeros((21, 2)), np.zeros((20, 1)), StageEvaluator(ocp))._replace(
        rises=((np.full((20, 1), 0.1),),)
    )
    low, high = tightened(ocp, violated, 1.0).phases[0].constraints[0].bounds(20)
    assert (low <= high).all() and (low[0], high[0]) == (-1.0, 0.5) and low[5] == high[5] == 0.2
    assert low[7, 0] == pytest.approx(-0.9) and high[7, 0] == pytest.approx(0.4)


def test_a_solve_that_fails_with_margins_returns_the_one_before():
    """Power of a cart: zero at the start for any force, and increasing within each step."""
    power = to.residual_constraint("power", lambda x, u, t, p: [u[0] * x[1]], 2, 1, -np.inf, 0.3, nu=1)
    ocp = drive([power], goal=0.6)
    plain = to.solve(ocp, solver="ipm")
    with_margins = to.solve(ocp, None, {"between_knots": True}, solver="ipm")
    assert plain.status.code == "violated_between_knots"
    assert with_margins.status.code == "violated_between_knots" and with_margins.cost < 2.0 * plain.cost
    assert "margins for the motion between the knots" in with_margins.status.message
    assert with_margins.status.advice.startswith("Margins were not enough")


def test_ctrl_c_in_a_solve_with_margins_keeps_the_solution_before():
    plain = to.solve(around("numpy"), solver="ipm")

    def stop(record):
        if record.iteration > plain.iterations + 1:
            raise KeyboardInterrupt

    found = to.solve(around("numpy"), None, {"between_knots": True}, stop, solver="ipm")
    assert found.status.code == "interrupted"
    np.testing.assert_allclose(found.xs, plain.xs, atol=1e-9)


def test_batches_say_that_they_are_not_checked(caplog):
    to.solve_batch([around("numpy")] * 2, options={"between_knots": True}, solver="ipm")
    assert "between_knots has no effect in batches" in caplog.text


def test_equations_and_problems_without_inequalities_are_not_watched():
    ocp = around("numpy")
    assert not may_be_violated(ocp.unconstrained())
    found = to.solve(ocp.unconstrained(), solver="slq")
    assert "between_knots" not in found.meta
    with pytest.raises(ValueError, match="between_knots = 'yes'; expected true or false"):
        to.solver_options("ipm", between_knots="yes")


def test_a_small_obstacle_far_from_other_knots_is_seen():
    """The values of the constraint far away, up to 25, do not widen its tolerance near the disc."""
    ocp = around("compiled", horizon=21)
    r = 0.02
    gap = to.residual_constraint(
        "disc", lambda x, u, t, p: [(x[0] ** 2 + x[1] ** 2 - r * r) / (2.0 * r)], 2, 1, 0.0, np.inf
    )
    ocp = to.OCP(
        (to.Phase(ocp.phases[0].dynamics, ocp.dt, ocp.phases[0].terms, constraints=(gap,)),), np.array([-1.0, 0.0])
    )
    xs = np.column_stack([np.linspace(-1.0, 1.0, 22), np.zeros(22)])
    us = np.tile([1.0, 0.0], (21, 1))
    found = between_knots(ocp, xs, us, StageEvaluator(ocp, engine="auto"))
    assert found.ratio > 5.0 and found.amount == pytest.approx(0.5 * r, rel=1e-6) and found.knot == 10


def test_peaks_between_fractions_are_those_of_parabolas():
    s = np.linspace(0.0, 1.0, 5)
    hill, slope = 1.0 - (s - 0.4) ** 2, 2.0 * s
    places, values = _peaks(np.stack([hill, slope], axis=1))
    np.testing.assert_allclose(values, [[0.9775, 0.5], [1.0, 1.0], [0.8775, 1.5]])
    np.testing.assert_allclose(places, [[0.0, 0.0], [-0.4, 0.0], [0.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize("r", [0.005, 0.02])
def test_a_small_disc_of_squared_distances_is_seen(r):
    """Its bound r^2 is below the tolerance for values around 1: 5 % of the bound count."""
    disc = to.residual_constraint("disc", lambda x, u, t, p: [x[0] ** 2 + x[1] ** 2], 2, 1, r * r, np.inf)
    ocp = to.OCP.single_phase(point(), [-1.0, 0.9 * r], 11, 2.0 / 11, [to.control_cost(2)], constraints=[disc])
    xs = np.column_stack([np.linspace(-1.0, 1.0, 12), np.full(12, 0.9 * r)])
    found = between_knots(ocp, xs, np.tile([1.0, 0.0], (11, 1)), StageEvaluator(ocp))
    assert found.amount == pytest.approx(0.19 * r * r, rel=1e-6) and found.ratio > 1.0


def test_a_constraint_that_jumps_is_evaluated_at_its_peak():
    """A ceiling rises at x = 0.99 from 0 to 1; the parabola through the values near the jump exceeds 0, but no value does."""
    ceiling = to.residual_constraint(
        "ceiling", lambda x, u, t, p: [x[1] - np.where(x[0] < 0.99, 0.0, 1.0)], 2, 1, -np.inf, 0.0
    )
    ocp = to.OCP.single_phase(point(), [0.0, -0.1], 2, 1.0, [to.control_cost(2)], constraints=[ceiling])
    xs = np.array([[0.0, -0.1], [1.0, -0.0001], [2.0, 0.0998]])
    us = np.diff(xs, axis=0)
    assert between_knots(ocp, xs, us, StageEvaluator(ocp)).ratio == 0.0


def test_a_short_dip_behind_a_knot_is_seen():
    """The position starts at its bound and dips below it by v^2 / 2 u = 2 mm in the first tenth of the step."""
    ocp = to.OCP.single_phase(
        mass("compiled", 1),
        [0.0, -0.04],
        1,
        1.0,
        [to.control_cost(1)],
        constraints=[to.state_bounds(2, [0.0, -np.inf], [np.inf, np.inf])],
    )
    xs = np.array([[0.0, -0.04], [0.16, 0.36]])
    found = between_knots(ocp, xs, np.array([[0.4]]), StageEvaluator(ocp))
    assert found.amount == pytest.approx(0.002, rel=1e-6)
