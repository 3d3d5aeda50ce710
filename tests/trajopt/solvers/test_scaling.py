"""Scaling of problems with very large or small numbers, against the same problems posed in other units."""

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from trajopt.solvers.scaling import SPREAD, _Samples, _typical, scaling_of

MU, RADIUS = 3.986e14, 7e6
SPEED = np.sqrt(MU / RADIUS)


def transfer(length=1.0, time=1.0, substeps=1):
    """Orbit transfer from 7000 to 7500 km with the least integral of the squared acceleration; units of length [m] and time [s]."""
    mu, r0, r1 = MU / length**3 * time**2, RADIUS / length, 7.5e6 / length

    def orbit(x, u, t, p):
        return [x[1], x[2] * x[2] / x[0] - mu / (x[0] * x[0]) + u[0], -x[1] * x[2] / x[0] + u[1]]

    step = to.SampledSystem(to.FunctionMap(orbit, 3, 2), "rk4", substeps)
    end = [r1, 0.0, np.sqrt(mu / r1)]
    ocp = to.OCP.single_phase(
        step,
        [r0, 0.0, np.sqrt(mu / r0)],
        40,
        150.0 / time,
        [to.control_cost(2)],
        terminal_constraints=[to.state_bounds(3, end, end, name="orbit")],
    )
    return ocp, to.interpolated_guess(ocp, end)


def near_one():
    """The problem in units of the first orbit."""
    return transfer(RADIUS, RADIUS / SPEED)


UNITS = {
    "x": np.array([RADIUS, SPEED, SPEED]),
    "u": SPEED**2 / RADIUS,
    "cost": (SPEED**2 / RADIUS) ** 2 * RADIUS / SPEED,
}


@pytest.mark.parametrize("solver", ["auto", "ipm", "dms", "sqp"])
def test_an_orbit_in_meters_is_solved_like_one_in_radii(solver):
    if solver == "dms":
        pytest.importorskip("cyipopt")
    (large, guess), (ocp, same_guess) = transfer(), near_one()
    found, same = to.solve(large, guess, solver=solver), to.solve(ocp, same_guess, solver=solver)
    assert found.status.success and same.status.success and found.iterations <= same.iterations + 3
    assert found.cost == pytest.approx(same.cost * UNITS["cost"], rel=1e-6)
    np.testing.assert_allclose(found.xs / UNITS["x"], same.xs, atol=1e-5)
    np.testing.assert_allclose(found.us / UNITS["u"], same.us, atol=1e-4)


def test_multipliers_and_records_are_those_of_the_problem():
    (large, guess), (ocp, same_guess) = transfer(), near_one()
    found, same = (to.solve(*given, solver="ipm") for given in ((large, guess), (ocp, same_guess)))
    for name, factor in (("dynamics", UNITS["x"]), ("bounds on x", UNITS["x"])):
        y = same.multipliers[name] * UNITS["cost"] / factor
        np.testing.assert_allclose(found.multipliers[name], y, atol=1e-4 * np.abs(y).max())
    assert found.history[-1].cost == pytest.approx(found.cost, rel=1e-9)
    assert found.problem is not None and found.problem.x0[0] == RADIUS


def hoist(**fields):
    """A mass of 20 t moves by 1000 km from rest to rest."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / 2e4], 2, 1), "rk4")
    end = to.state_bounds(2, [0.0, 0.0], [0.0, 0.0], name="end")
    return to.OCP.single_phase(step, [1e6, 0.0], 40, 1.0, [to.control_cost(1)], terminal_constraints=[end], **fields)


def test_multipliers_of_bounds_on_states_as_constraints():
    """Shooting solvers name those by constraint; here they are the adjoints of the last state."""
    ocp = hoist(constraints=[to.state_bounds(2, [-np.inf, -4e4], [np.inf, np.inf], name="slow")])
    y = to.solve(ocp, solver="ipm").multipliers["bounds on x"][-1:]
    found = to.solve(ocp, solver="slq")
    np.testing.assert_allclose(found.multipliers["terminal end"], y, rtol=1e-4)
    warm = to.WarmStart(to.Guess(found.xs, found.us), multipliers={**found.multipliers, "slow": np.zeros((3, 1))})
    assert to.solve(ocp, solver="slq", warm_start=warm).status.success


def test_interpolated_controls():
    """Their bounds have multipliers at N + 1 knots."""
    pytest.importorskip("cyipopt")
    ocp = hoist(u_lower=-1e9, u_upper=1e9)
    found = to.solve(ocp, solver="dms", options={"hold": "first_order"})
    assert found.status.success and "scaling" in found.meta and found.multipliers["bounds on u"].shape == (41, 1)


def test_amounts_of_failures_have_the_units_of_the_problem():
    above = to.residual_constraint("ground", lambda x, u, t, p: [x[0]], 2, 1, lower=1e5)
    impossible = to.solve(hoist(constraints=[above]))
    assert "the goal violates ground: f[0] by 1e+05" in impossible.status.message
    weak = to.solve(hoist(u_lower=-1e6, u_upper=1e6), solver="ipm")
    assert not weak.status.success and weak.meta["measures"]["violation"] in weak.status.message
    missing = abs(weak.xs[-1, 0])
    assert missing > 1e3 and f"{missing:.2g}" in weak.meta["measures"]["violation"]
    far = to.objective_term("far", lambda x, u, t, p: [-x[0] * x[0]], 2)
    unbounded = to.OCP.single_phase(hoist().phases[0].dynamics, [1e6, 0.0], 40, 1.0, [], [far])
    assert "In the units" not in to.solve(unbounded, solver="ipm").status.message
    stopped = to.solve(hoist(), solver="ipm", options={"time_limit": 1e-6})
    assert stopped.status.code is to.StatusCode.TIME_LIMIT and "scaled by sizes" in stopped.status.message


def test_gains_are_those_of_the_problem():
    """Of a linear-quadratic regulator, whose gains do not depend on the initial state."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [1e3 * x[1], u[0]], 2, 1), "rk4")
    running = [to.control_cost(1), to.state_cost(2, [0.0, 0.0], [1.0, 0.0])]
    small, large = (to.OCP.single_phase(step, [x, 0.0], 40, 0.1, running) for x in (1.0, 1e6))
    found, same = to.solve(large, solver="slq"), to.solve(small, solver="slq", check=False)
    assert "scaling" in found.meta and "scaling" not in same.meta
    np.testing.assert_allclose(found.K, same.K, rtol=1e-9, atol=1e-12)


def test_its_own_solution_is_found_again_at_once():
    ocp, guess = transfer()
    found = to.solve(ocp, guess, solver="ipm")
    again = to.solve(ocp, solver="ipm", warm_start=to.WarmStart(to.Guess(found.xs, found.us), found.multipliers))
    assert again.status.success and again.iterations <= 2
    assert again.cost == pytest.approx(found.cost, rel=1e-9)


def test_solves_of_one_structure_share_the_scaled_parts():
    """Else each call prepares them again, which takes many times as long as the solve."""
    ocp, guess = transfer()
    one, other = (scaling_of(replace(ocp, x0=ocp.x0 * c), guess).problem() for c in (1.0, 1.0 + 1e-3))
    assert one.phases[0].dynamics is other.phases[0].dynamics and one.x0[0] != other.x0[0]
    parts = zip([*one.terms(), *one.constraints()], [*other.terms(), *other.constraints()], strict=True)
    assert all(a.residual is b.residual for a, b in parts)


def test_shorter_horizons_share_the_scaled_parts():
    """As in the steps of a shrinking horizon."""
    ocp, guess = transfer()
    (phase,) = ocp.phases
    rest = replace(ocp, phases=(replace(phase, dt=phase.dt[1:]),))
    scaling = scaling_of(ocp, guess)
    one, other = scaling.problem(), replace(scaling, ocp=rest, controls=scaling.controls[1:]).problem()
    assert one.phases[0].dynamics is other.phases[0].dynamics
    assert one.terms()[0].residual is other.terms()[0].residual


@pytest.mark.parametrize("solver", ["auto", "slq", "ddp", "ipm", "sqp"])
def test_batches_are_solved_like_single_problems_in_other_units(solver):
    """The shooting solvers satisfy constraints to 1e-6 by an augmented Lagrangian."""
    accuracy = 2e-4 if solver in ("slq", "ddp") else 1e-6
    (large, guess), (ocp, same_guess) = transfer(), near_one()
    starts = 1.0 + 1e-2 * np.arange(3)[:, None]
    found = to.solve_batch(large, {"x0": large.x0 * starts}, guess, solver=solver, gains=True)
    same = to.solve_batch(ocp, {"x0": ocp.x0 * starts}, same_guess, solver=solver, gains=True)
    assert found.success.all() and same.success.all() and "scaling" in found.meta and "scaling" not in same.meta
    np.testing.assert_allclose(found.cost, same.cost * UNITS["cost"], rtol=accuracy)
    np.testing.assert_allclose(found.xs / UNITS["x"], same.xs, atol=1e-4)
    assert all("scaled by sizes" in message for message in found.messages)
    for i, one in enumerate(found):
        assert one.cost == pytest.approx(large.cost(one.xs, one.us), rel=1e-12)
        alone = to.solve(replace(large, x0=large.x0 * starts[i]), guess, solver=solver, check=False)
        assert alone.status.success and alone.cost == pytest.approx(one.cost, rel=accuracy)


@pytest.mark.parametrize("backend", ["forward_ad", "analytic"])
def test_a_problem_is_scaled_once(backend):
    """Single solves of a batch solve problems that are scaled like the first one, also one that is much larger."""

    class Mass(to.FunctionMap):
        def partials(self, x, u, t, p):
            zero = 0.0 * x[0]
            fx = [to.stack([zero, zero + 1.0]), to.stack([zero, zero])]
            return to.Partials(self(x, u, t, p), fx, [to.stack([zero]), to.stack([zero + 5e-5])])

    system = Mass(lambda x, u, t, p: [x[1], u[0] / 2e4], 2, 1)
    step = to.SampledSystem(to.make_backend(system, backend), "rk4")
    goal, x0 = to.state_cost(2, [0.0, 0.0]), np.array([[1e6, 0.0], [1e13, 0.0]])
    ocp = to.OCP.single_phase(step, x0[0], 40, 1.0, [to.control_cost(1)], [goal])
    found = to.solve_batch(ocp, {"x0": x0}, solver="sqp")
    assert found.meta["how"] == "one after the other" and found.success.all()
    assert [message.count("scaled by sizes") for message in found.messages] == [1, 1]
    np.testing.assert_allclose(found.xs[1], 1e7 * found.xs[0], rtol=1e-6, atol=1.0)


def test_checks_of_motions_in_batches_are_those_of_scaled_numbers():
    """A step that is too long for a microgram: its replay deviates by 0.1 micrometers."""
    spring = to.FunctionMap(lambda x, u, t, p: [x[1], (u[0] - x[0]) * 1e9], 2, 1)
    step = to.SampledSystem(spring, "euler")
    end = to.state_bounds(2, [1e-6, 0.0], [1e-6, 0.0], name="end")
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 1e-5, [to.control_cost(1)], terminal_constraints=[end])
    guess = to.interpolated_guess(ocp, [1e-6, 0.0])
    found = to.solve_batch(ocp, {"x0": np.zeros((2, 2))}, guess, solver="ipm", replay=True)
    alone = to.solve(ocp, guess, solver="ipm")
    assert alone.status.code is to.StatusCode.DOES_NOT_HOLD and set(found.status) == {found.status[0]}
    assert found.status[0].code is to.StatusCode.DOES_NOT_HOLD
    for of_batch in found.meta["replays"]:  # amounts, however, in the units of the problem
        for key, deviation in alone.meta["replay"].items():
            assert of_batch[key]["amount"] == pytest.approx(deviation["amount"], rel=1e-3)
    assert alone.meta["replay"]["gains"]["sentence"] in found.status[0].message


@pytest.mark.parametrize("free", [False, True])
def test_slopes_are_those_of_linearized_motions(free):
    """Of the first state and of constant controls, motion by motion and step by step; a stage of durations takes no time."""
    ocp, guess = transfer()
    if free:
        timed = to.free_time(ocp, (1e3, 1e4))
        ocp, guess = timed.ocp, timed.with_durations(guess)
    samples = _Samples(ocp, guess)
    n, m, states, units = ocp.manifold.nx, ocp.nu, np.abs(guess.xs).max(axis=0), [np.ones(ocp.nu) for _ in ocp.phases]
    by_state, by_control = samples.slopes(states, units, 1e-2)
    of_state, of_control = [], []
    for parts in samples._expansions(SPREAD * states, [SPREAD * u for u in units], 1e-2):
        A, B, X, U = parts[-2].A, parts[-2].B, [np.eye(n)], [np.zeros((n, m))]
        for a, b in zip(A, B, strict=True):
            X.append(a @ X[-1])
            U.append(a @ U[-1] + b)
        of_state.append(np.minimum(np.abs(np.array(X) - np.eye(n)).max(axis=0), np.abs(A - np.eye(n)).sum(axis=0)))
        of_control.append(np.minimum(np.abs(U).max(axis=0), np.abs(B).sum(axis=0)))
    np.testing.assert_allclose(by_state, _typical(of_state, (n, n)), rtol=1e-9)
    np.testing.assert_allclose(by_control[-1], _typical(of_control, (n, m)), rtol=1e-9)
    assert len(by_control) == 1 + free and not (free and by_control[0].any())


def test_durations_of_batches_are_those_of_the_problem():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / 1e6], 2, 1), "rk4")
    end = to.state_bounds(2, [1e4, 0.0], [1e4, 0.0], name="end")
    base = to.OCP.single_phase(step, [0.0, 0.0], 20, 5.0, [], [], u_lower=-1e7, u_upper=1e7, terminal_constraints=[end])
    free = to.free_time(base, (10.0, 1e3), price=1.0)
    guess = free.with_durations(to.constant_guess(base))
    invalid = np.stack([free.ocp.x0, free.ocp.x0 + [np.nan, 0.0, 0.0], free.ocp.x0])
    found = to.solve_batch(free.ocp, {"x0": invalid}, guess, solver="ipm", replay=True)
    least = 2.0 * np.sqrt(1e6 * 1e4 / 1e7)
    assert found.success.tolist() == [True, False, True] and len(found.meta["replays"]) == 3
    np.testing.assert_allclose(found.times[[0, 2], -1], least, rtol=1e-3)
    np.testing.assert_allclose(found.cost[[0, 2]], least, rtol=1e-3)


def test_competing_starts_have_costs_in_the_units_of_the_problem():
    """A pendulum whose torque costs little, in joules times 1e9: the cost of the best start is near that of the solution."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - np.sin(x[0])], 2, 1), "rk4")
    running = [to.control_cost(1, weight=1e9)]
    terminal = [to.state_cost(2, [np.pi, 0.0], 1e11)]
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 100, 0.05, running, terminal)
    found = to.solve(ocp)
    assert found.status.success and found.meta["scaling"]["cost"] > 1e3
    cheapest = min(start["objective"] for start in found.meta["starts"])
    assert 0.5 < cheapest / found.cost < 2.0 and found.meta["attempts"][-1]["cost"] == pytest.approx(found.cost)


def test_callbacks_get_costs_and_iterates_in_the_units_of_the_problem():
    ocp, guess = transfer()
    seen = []
    to.solve(ocp, guess, solver="ipm", callback=lambda record: seen.append((record.cost, *record.iterate())))
    assert seen
    for cost, xs, us in seen:
        assert cost == pytest.approx(ocp.cost(xs, us), rel=1e-9) and np.all(xs[:, 0] > 6e6)


@pytest.mark.parametrize("weight", [1e-16, 1e-8, 1e8])
@pytest.mark.parametrize("solver", ["auto", "ipm", "sqp", "slq"])
def test_the_unit_of_the_cost_does_not_matter(solver, weight):
    """A linear-quadratic regulator, solved by one Newton step."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")

    def problem(weight):
        running = [to.control_cost(1, weight=weight), to.state_cost(2, [0.0, 0.0], [weight, 0.0])]
        return to.OCP.single_phase(step, [1.0, 0.0], 40, 0.1, running)

    found, same = to.solve(problem(weight), solver=solver), to.solve(problem(1.0), solver=solver)
    assert found.status.success and found.cost == pytest.approx(weight * same.cost, rel=1e-9)


@pytest.mark.parametrize("solver", ["ipm", "sqp", "ddp"])
def test_a_minimum_time_in_microseconds(solver):
    """A mass of 1 ug moves by 1 um with at most 1 uN: T = 2 sqrt(m d / F), analytically."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], 1e9 * u[0]], 2, 1), "rk4")
    end = to.state_bounds(2, [1e-6, 0.0], [1e-6, 0.0], name="end")
    base = to.OCP.single_phase(step, [0.0, 0.0], 40, 2.5e-6, terminal_constraints=[end], u_lower=-1e-6, u_upper=1e-6)
    free = to.free_time(base, (1e-6, 1e-3))
    found = to.solve(free.ocp, free.with_durations(to.constant_guess(base)), solver=solver)
    assert found.status.success and found.duration == pytest.approx(2.0 * np.sqrt(1e-9), rel=1e-4)
    assert not any("tolerance" in finding for finding in found.meta["findings"])


def test_sentences_of_checks_have_the_units_of_the_problem():
    """A hoist lifts 20 t in minimum time; its power is limited at the knots alone."""
    lift = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / 2e4 - 9.81], 2, 1)
    power = to.residual_constraint("power", lambda x, u, t, p: [u[0] * x[1]], 2, 1, upper=1.5e6, lower=-np.inf, nu=1)
    top = to.residual_constraint("top", lambda x, u, t, p: [x[0] - 200.0, x[1]], 2, 2)
    base = to.OCP.single_phase(
        to.SampledSystem(lift, "rk4"),
        [0.0] * 2,
        60,
        0.5,
        constraints=[power],
        terminal_constraints=[top],
        u_lower=1e5,
        u_upper=3e5,
    )
    free = to.free_time(base, (5.0, 60.0))
    found = to.solve(free.ocp, free.with_durations(to.constant_guess(base, 1.96e5)), solver="ipm")
    assert found.status.code is to.StatusCode.VIOLATED_BETWEEN_KNOTS
    assert f"is violated by {found.meta['between_knots']['amount']:.2g}" in found.status.message
    assert found.meta["between_knots"]["amount"] > 1e4


@pytest.mark.parametrize("solver", ["auto", "ipm", "slq"])
def test_a_tiny_goal_is_a_size_if_nothing_else_is_known(solver):
    """The least heat R q^2 / T of charging a capacitor of 1 pF, in coulombs."""
    charge = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1), "rk4")
    end = to.state_bounds(1, 1e-12, 1e-12, name="charge")
    ocp = to.OCP.single_phase(charge, [0.0], 40, 2.5e-10, [to.control_cost(1, weight=2e3)], terminal_constraints=[end])
    found = to.solve(ocp, solver=solver)
    assert found.status.success and found.cost / (1e3 * 1e-24 / 1e-8) == pytest.approx(1.0, rel=1e-4)
    free = to.free_time(ocp, (1e-9, 1e-6), 1e-5)  # the price at which the duration of 10 ns is optimal
    timed = to.solve(free.ocp, free.with_durations(to.constant_guess(ocp), [5e-8]), solver=solver)
    assert timed.status.success and timed.duration / 1e-8 == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("solver", ["auto", "ddp", "slq", "ipm"])
def test_a_cost_of_states_that_is_zero_at_the_guess_has_a_size(solver):
    """Work of a pull through a viscous medium by a spring, against the problem in micrometers and units of 1e-18 J."""

    def pull(length, energy):
        drag = 1e-8 * length**2 / energy  # [N s / m] in these units

        def move(x, u, t, p):
            return [100.0 * (x[1] - x[0]), u[0]]

        work = to.objective_term("work", lambda x, u, t, p: [drag * (100.0 * (x[1] - x[0])) ** 2], 2)
        end = to.state_bounds(2, [1e-6 / length, -np.inf], [1e-6 / length, np.inf], name="end")
        return to.OCP.single_phase(
            to.SampledSystem(to.FunctionMap(move, 2, 1), "rk4"),
            [0.0, 0.0],
            50,
            1e-3,
            [work],
            quadrature="trapezoidal",
            terminal_constraints=[end],
        )

    found, near_one = to.solve(pull(1.0, 1.0), solver=solver), to.solve(pull(1e-6, 1e-18), solver="ipm")
    assert found.status.success and near_one.status.success
    assert found.cost / (1e-18 * near_one.cost) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("solver", ["auto", "sqp", "slq"])
@pytest.mark.parametrize("unit", [1e-10, 1e9])
def test_very_short_and_very_long_motions(solver, unit):
    """All numbers but the duration are near 1: rates and controls are large or small. unit: in seconds."""

    def spring(time):
        step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - x[0] / time**2], 2, 1), "rk4")
        rest = to.state_bounds(2, [0.0, 0.0], [0.0, 0.0], name="rest")
        running = [to.control_cost(1)]
        return to.OCP.single_phase(step, [1.0, 0.0], 40, 0.1 * time, running, terminal_constraints=[rest])

    found, near_one = to.solve(spring(unit), solver=solver), to.solve(spring(1.0), solver="ipm")
    assert found.status.success
    assert found.cost * unit**3 / near_one.cost == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("tiny", [1e-4, 1e-9, 6e-17])
def test_tiny_numbers_of_a_start_are_no_sizes(tiny):
    """Perturbations and rounding errors of x0, and of guesses, say nothing on how far states move."""
    pendulum = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 9.81 * np.sin(x[0])], 2, 1), "rk4")
    up = to.state_cost(2, [np.pi, np.sin(np.pi)], [100.0, 10.0])
    by_cost = to.OCP.single_phase(pendulum, [tiny, 0.0], 60, 0.05, [to.control_cost(1, weight=0.1)], [up])
    by_goal = to.OCP.single_phase(
        pendulum, [tiny, tiny], 60, 0.05, [to.control_cost(1)], terminal_constraints=[to.bounded(up, name="up")]
    )

    def drive(x, u, t, p):
        return [x[2] * np.cos(x[3]), x[2] * np.sin(x[3]), u[0], u[1]]

    end = [4.0, 0.0, 0.0, 0.0]
    car = to.OCP.single_phase(
        to.SampledSystem(to.FunctionMap(drive, 4, 2), "rk4"),
        [0.0, tiny, 0.0, tiny],
        50,
        0.1,
        [to.control_cost(2)],
        constraints=[
            to.residual_constraint("tree", lambda x, u, t, p: [(x[0] - 2) ** 2 + x[1] ** 2], 4, 1, lower=0.25)
        ],
        terminal_constraints=[to.state_bounds(4, end, end, name="end")],
    )
    chained = to.bounded(to.state_cost(2, [np.pi, 1e-11]), name="end of an earlier solution")
    for ocp in (by_cost, by_goal, car, replace(by_goal, terminal_constraints=(chained,))):
        assert scaling_of(ocp, to.constant_guess(ocp)) is None
    assert scaling_of(car, to.interpolated_guess(car, end)) is None
    noise = tiny * np.random.default_rng(0).standard_normal((51, 4))
    assert scaling_of(car, to.Guess(to.interpolated_guess(car, end).xs + noise, np.full((50, 2), tiny))) is None


def test_penalties_are_not_scaled():
    """A large terminal weight beside moderate running costs."""
    pendulum = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 9.81 * np.sin(x[0])], 2, 1), "rk4")
    penalty = to.OCP.single_phase(
        pendulum, [0.0, 0.0], 60, 0.05, [to.control_cost(1)], [to.state_cost(2, [np.pi, 0.0], 1e9)]
    )
    assert scaling_of(penalty, to.constant_guess(penalty)) is None


def test_a_cost_integrated_in_a_state():
    """Its slope is zero at the guess, and the bounds on the control are loose."""
    work = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0], u[0] ** 2], 3, 1), "rk4")
    rest = to.state_bounds(3, [0.0, 0.0, -np.inf], [0.0, 0.0, np.inf], name="rest")
    integrated = to.OCP.single_phase(
        work,
        [1.0, 0.0, 0.0],
        60,
        0.05,
        [],
        [to.objective_term("work", lambda x, u, t, p: [x[2]], 3)],
        terminal_constraints=[rest],
        u_lower=-500.0,
        u_upper=500.0,
    )
    scaling = scaling_of(integrated, to.constant_guess(integrated))
    assert scaling is None or scaling.states[2] > 1e-4
    assert to.solve(integrated, solver="ipm").iterations < 20


def test_one_weak_control_does_not_set_the_size_of_the_cost():
    """A second control moves the mass with a millionth of the effort of the first."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / 2e4 + 1e3 * u[1]], 2, 2), "rk4")
    end = to.state_bounds(2, [0.0, 0.0], [0.0, 0.0], name="end")
    ocp = to.OCP.single_phase(step, [1e6, 0.0], 40, 1.0, [to.control_cost(2)], terminal_constraints=[end])
    for solver in ("auto", "ipm"):
        found = to.solve(ocp, solver=solver)
        assert found.status.success and np.abs(found.us[:, 1]).max() > 1.0 and np.abs(found.us[:, 0]).max() < 1.0


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_sizes_in_any_unit(unit):
    """Of a mass whose position and duration have other units; both are known, velocity and force are derived."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    end = to.state_bounds(2, [unit, 0.0], [unit, 0.0], name="end")
    base = to.OCP.single_phase(step, [0.0, 0.0], 40, unit**2 / 40, [to.control_cost(1)], terminal_constraints=[end])
    free = to.free_time(base, (1e-2 * unit**2, 1e2 * unit**2))
    scaling = scaling_of(free.ocp, free.with_durations(to.constant_guess(base)))
    expected = np.array([unit, 1.0 / unit, unit**2])
    assert scaling is not None and np.all(np.abs(np.log10(scaling.states / expected)) < 1.0)
    assert abs(np.log10(scaling.controls[-1, 0] * unit**3)) < 1.0


def test_moderate_problems_robots_and_discrete_maps_are_not_scaled():
    ocp, guess = near_one()
    assert scaling_of(ocp, guess) is None
    large, guess = transfer()
    assert scaling_of(large, guess) is not None
    assert scaling_of(replace(large, model=to.chain(2)), guess) is None
    doubled = to.OCP.single_phase(
        to.discrete_dynamics(lambda x, u, t, p: [x[0] + u[0]], 1, 1), [1e7], 5, 1.0, [to.control_cost(1)]
    )
    assert scaling_of(doubled, to.constant_guess(doubled)) is None

    class Own:
        manifold, nu = to.Manifold.vector(1), 1

        def f(self, x, u, t, p):
            return u

        def jacobians(self, x, u, t, p):
            return u, np.zeros((len(x), 1, 1)), np.ones((len(x), 1, 1))

    own = to.OCP.single_phase(to.SampledSystem(Own(), "rk4"), [1e7], 5, 1.0, [to.control_cost(1)])
    assert scaling_of(own, to.constant_guess(own)) is None


def test_moderate_sizes_far_from_each_other():
    """A ship in SI units that turns around an obstacle: it moves by 200 m, and turns at 0.06 rad/s."""

    def ship(x, u, t, p):
        speed, r = 5.0, x[3]
        return [
            speed * to.cos(x[2]),
            speed * to.sin(x[2]),
            r,
            (-r - 20.0 * r * r * r + 0.1 * x[4]) / 10.0,
            0.5 * (u[0] - x[4]),
        ]

    def distance(x, u, t, p):
        a, b = (x[0] - 100.0) / 40.0, (x[1] - 60.0) / 40.0
        return [a * a + b * b]

    end = [200.0, 150.0, 1.57, 0.0]
    ocp = to.OCP.single_phase(
        to.SampledSystem(to.FunctionMap(ship, 5, 1), "rk4"),
        np.zeros(5),
        80,
        1.0,
        constraints=[to.residual_constraint("obstacle", distance, 5, 1, 1.0, np.inf)],
        terminal_constraints=[to.state_bounds(5, [*end, -np.inf], [*end, np.inf], name="end")],
        u_lower=-0.6,
        u_upper=0.6,
    )
    free = to.free_time(ocp, (20.0, 300.0), price=1.0)
    guess = free.with_durations(to.interpolated_guess(ocp, [*end, 0.0]))
    scaling = scaling_of(free.ocp, guess)
    assert scaling is not None and scaling.states.min() > 1e-3 and scaling.states.max() < 1e3
    found = to.solve(free.ocp, guess)
    assert found.status.success and found.iterations < 1000


def test_angles_on_SO2_are_not_scaled():
    """A turn has one length only."""

    def problem(states):
        step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / 2e4], states, 1), "rk4")
        return to.OCP.single_phase(step, [0.0, 1e5], 20, 0.1, [to.control_cost(1)], [to.state_cost(states, [1.0, 0.0])])

    turning, moving = problem(to.Manifold([to.SO2, to.vector_space(1)])), problem(to.Manifold.vector(2))
    assert scaling_of(turning, to.constant_guess(turning)) is None
    assert scaling_of(moving, to.constant_guess(moving)) is not None


def test_factors_do_not_round():
    """They are powers of two, so that a solution satisfies the problem to the accuracy of its numbers."""
    ocp, guess = transfer()
    scaling = scaling_of(ocp, guess)
    factors = np.concatenate([scaling.states, scaling.controls.ravel(), [scaling.cost]])
    np.testing.assert_array_equal(np.log2(factors), np.round(np.log2(factors)))
    assert 0.1 < scaling.states[0] / RADIUS < 10.0 and 0.1 < scaling.states[2] / SPEED < 10.0


@pytest.mark.parametrize("limits", [{"u_lower": -2.0, "u_upper": 2.0}, {}])
@pytest.mark.parametrize("error", [1e-9, 1e-13])
def test_rounding_errors_of_a_guess_are_no_sizes(limits, error):
    """A mass that rests across the way of its obstacle, whose center has a small number."""
    mass = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2, second_order=True), "rk4")
    parameters = {"center": [0.65, 0.002]}
    disc = to.residual_constraint(
        "disc",
        lambda x, u, t, p: [(x[0] - p["center"][0]) ** 2 + (x[1] - p["center"][1]) ** 2],
        4,
        1,
        lower=0.09,
        parameters=parameters,
    )
    costs = [to.control_cost(2, weight=0.01), to.state_cost(4, [1.0, 0.0, 0.0, 0.0])]
    ocp = to.OCP.single_phase(mass, np.zeros(4), 30, 0.05, costs, constraints=[disc], **limits)
    guess = to.constant_guess(ocp, [0.5, error])
    found = to.solve(ocp, guess, solver="ipm", check=False)
    assert found.status.success and "scaling" not in found.meta
