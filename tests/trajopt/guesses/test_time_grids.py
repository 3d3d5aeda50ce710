"""Problems on finer and coarser time grids: sizes, values by knot, costs, and transferred solutions."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from contact_cases import hop

import trajopt as to
from dynamics_backends.protocol import MissingCapability
from trajopt.guesses.time_grids import can_be_regridded, coarser, on_grid_of

INF = np.inf


def mass(scheme: str = "rk4", n: int = 1) -> to.SampledSystem:
    rates = to.FunctionMap(lambda x, u, t, p: [*x[n : 2 * n], *u], 2 * n, n, second_order=True)
    return to.SampledSystem(to.make_backend(rates, "forward_ad", engine="numpy"), scheme)


def drive(horizon: int = 10, *, terms=(), quadrature: str = "rectangle", constraints=(), **given) -> to.OCP:
    """A cart that goes one meter in a second, from rest to rest."""
    end = [to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")]
    dt = 1.0 / horizon
    running = [to.control_cost(1), *terms]
    return to.OCP.single_phase(
        mass(), [0.0, 0.0], horizon, dt, running, constraints=constraints, terminal_constraints=end,
        quadrature=quadrature, **given,
    )  # fmt: skip


def test_a_solution_starts_the_problem_on_a_finer_grid():
    """The optimum on a finer grid is nearer to 6, that of continuous time (12 / T^3 d^2 / 2), and near its guess."""
    coarse = to.solve(drive(), solver="ipm")
    finer, guess = to.refine(coarse, 3)
    assert finer.horizon == 30 and finer.times[-1] == pytest.approx(1.0) and coarse.problem.horizon == 10
    np.testing.assert_allclose(guess.xs[::3], coarse.xs, atol=1e-12)
    np.testing.assert_allclose(guess.xs[1], coarse.xs[0] + (coarse.xs[1] - coarse.xs[0]) / 3.0, atol=1e-12)
    np.testing.assert_array_equal(guess.us, np.repeat(coarse.us, 3, axis=0))
    fine = to.solve(finer, guess, solver="ipm")
    assert fine.status.success and abs(fine.cost - 6.0) < 0.2 * abs(coarse.cost - 6.0)


def test_durations_and_their_stage_are_unchanged():
    fixed = drive(20, u_lower=-4.0, u_upper=np.full((20, 1), 4.0))
    free = to.free_time(fixed, (0.2, 3.0), price=5.0)
    coarse = to.solve(free.ocp, free.with_durations(to.constant_guess(fixed)), solver="ipm")
    finer, guess = to.refine(coarse)
    assert [phase.knots for phase in finer.phases] == [1, 40] and finer.u_upper.shape == (41, 1)
    assert finer.u_lower[0, 0] == 0.2 and finer.u_lower[1, 0] == -4.0 and (guess.xs[1:, 2] == coarse.xs[-1, 2]).all()
    assert guess.us[0, 0] == pytest.approx(coarse.duration)
    fine = to.solve(finer, guess, solver="ipm")
    assert fine.status.success and fine.duration == pytest.approx(coarse.duration, rel=0.02)
    assert fine.iterations < coarse.iterations


@pytest.mark.parametrize("durations", [(0.2, 0.2), (2.5, 2.5), (0.3, 1.7)])
def test_a_refined_guess_of_free_durations_has_the_states_of_the_solution(durations):
    """Two phases of 0.6 s and 0.4 s that take other times: the knots of both grids are at the same fractions of the phases."""
    fixed = drive(10)
    (phase,) = fixed.phases
    free = to.free_time(replace(fixed, phases=(replace(phase, dt=phase.dt[:6]), replace(phase, dt=phase.dt[6:]))))
    rng = np.random.default_rng(3)
    motion = to.Guess(rng.standard_normal((11, 2)), rng.standard_normal((10, 1)))
    xs, us = free.with_durations(motion, list(durations))
    seconds = free.ocp.times_of(xs)
    solution = replace(_solution(free.ocp, xs, us), times=seconds)
    for factor in (2, 3):
        finer, guess = to.refine(solution, factor)
        shared = np.r_[0, 1 + factor * np.arange(11)]
        np.testing.assert_allclose(guess.xs[shared], xs, atol=1e-9)
        np.testing.assert_allclose(guess.us, np.vstack([us[:1], np.repeat(us[1:], factor, axis=0)]), atol=1e-9)
        np.testing.assert_allclose(finer.times_of(guess.xs)[shared], seconds, atol=1e-9)
        np.testing.assert_allclose(to.resampled_guess(finer, solution).xs[shared], xs, atol=1e-9)


def test_a_solved_motion_of_free_duration_is_refined_knot_by_knot():
    """With controls within 4 m/s^2 and a price of time it takes about a second, not the 3 s of the grid."""
    fixed = drive(20, u_lower=-4.0, u_upper=4.0)
    fixed = replace(fixed, phases=(replace(fixed.phases[0], dt=3.0 * fixed.phases[0].dt),))
    free = to.free_time(fixed, (0.2, 5.0), price=5.0)
    found = to.solve(free.ocp, free.with_durations(to.constant_guess(fixed)), solver="ipm")
    assert found.status.success and found.duration < 2.0
    for guess in (to.refine(found)[1], to.resampled_guess(to.refine(found)[0], found)):
        np.testing.assert_allclose(guess.xs[np.r_[0, 1:42:2]], found.xs, atol=1e-9)


def test_the_refined_guess_of_an_interrupted_solve_stays_on_its_grid():
    """Durations that differ by knot are defects of a solve that has not ended; its states stay at their knots."""
    free = to.free_time(drive(10)).ocp
    rng = np.random.default_rng(4)
    xs, us = rng.standard_normal((12, 3)), rng.standard_normal((11, 1))
    xs[:, 2] = rng.uniform(0.2, 2.0, 12)
    solution = replace(_solution(free, xs, us), times=free.times_of(xs))
    np.testing.assert_allclose(to.refine(solution)[1].xs[np.r_[0, 1:22:2]], xs, atol=1e-9)
    again = to.resampled_guess(free, solution)
    np.testing.assert_allclose(again.xs, xs, atol=1e-9)
    np.testing.assert_array_equal(again.us, us)


def test_states_move_on_geodesics():
    manifold = to.Manifold([to.SO3, to.SO2])
    spin = to.FunctionMap(lambda x, u, t, p: [u[0], u[1], u[2], u[3]], manifold, 4)
    ocp = to.OCP.single_phase(
        to.SampledSystem(to.make_backend(spin, "forward_ad", engine="numpy"), "rk4"),
        [0.0, 0.0, 0.0, 1.0, 0.0], 1, 1.0, [to.control_cost(4)],
    )  # fmt: skip
    end = np.array([np.sin(0.6), 0.0, 0.0, np.cos(0.6), 0.2 + 2.0 * np.pi])
    finer, guess = to.refine(_solution(ocp, np.array([ocp.x0, end]), np.zeros((1, 4))), 2)
    np.testing.assert_allclose(guess.xs[1], [np.sin(0.3), 0.0, 0.0, np.cos(0.3), 0.1], atol=1e-14)
    assert finer.manifold is manifold


def _solution(ocp, xs, us):
    """A solution of a problem without a solve."""
    status, none = to.Status(to.StatusCode.CONVERGED, ""), np.zeros((len(us), us.shape[1]))
    K = np.zeros((*us.shape, ocp.manifold.ndx))
    return to.Solution(xs, us, K, none, status, 0.0, 0, (), ocp.times, problem=ocp)


@pytest.mark.parametrize("quadrature", ["rectangle", "trapezoidal"])
def test_the_cost_of_a_straight_line_is_unchanged(quadrature):
    """Linear states, a reference by knot that moves in proportion to time: the trapezoidal rule is exact for a linear residual's
    square but for dt^2 / 6, the rectangle rule for a constant one."""
    line = np.linspace(0.0, 1.0, 11)
    reference = np.column_stack([line[:10] + 0.5, np.zeros(10)])
    ocp = drive(terms=[to.state_cost(2, reference, [2.0, 0.0], "way")], quadrature=quadrature)
    xs = np.column_stack([line, np.zeros(11)])
    finer, guess = to.refine(_solution(ocp, xs, np.zeros((10, 1))), 2)
    way = finer.phases[0].terms[1].parameters["reference"][:, 0]
    np.testing.assert_allclose(way[:-1], np.linspace(0.0, 1.0, 21)[:19] + 0.5, atol=1e-12)
    expected = ocp.cost(xs, np.zeros((10, 1)))
    assert finer.cost(*guess) == pytest.approx(expected, rel=0.01 if quadrature == "trapezoidal" else 0.02)


def test_weights_by_knot_keep_their_integral_and_their_reference():
    weight = np.zeros((10, 2))
    weight[4, 0] = 100.0
    reference = np.zeros((10, 2))
    reference[4, 0] = 0.7
    ocp = drive(terms=[to.state_cost(2, reference, weight, "point on the way")])
    finer, _ = to.refine(to.solve(ocp, solver="ipm"), 2)
    term = finer.phases[0].terms[1]
    assert term.weight[:, 0].tolist() == [*[0.0] * 8, 100.0, 100.0, *[0.0] * 10]
    assert term.parameters["reference"][8:10, 0].tolist() == [0.7, 0.7]


def test_bounds_by_knot():
    """Between two knots the looser bound applies; at the first knot of a free-time problem, none does."""
    lower = np.full((10, 1), -INF)
    lower[3:6, 0] = 0.1, 0.2, 0.15
    place = to.residual_constraint("place", lambda x, u, t, p: [x[0]], 2, 1, lower, INF)
    speed = to.residual_constraint(
        "speed", lambda x, u, t, p: [u[0]], 2, 1, -10.0 - np.arange(10.0)[:, None], INF, nu=1
    )
    ocp = drive(constraints=[place, speed])
    finer, _ = to.refine(_solution(ocp, np.zeros((11, 2)), np.zeros((10, 1))), 2)
    found, rate = finer.phases[0].constraints
    assert found.lower[4:13, 0].tolist() == [-INF, -INF, 0.1, 0.1, 0.2, 0.15, 0.15, -INF, -INF]
    assert rate.lower[:4, 0].tolist() == [-10.0, -10.0, -11.0, -11.0]
    low = to.residual_constraint("low", lambda x, u, t, p: [x[0]], 2, 1, -0.5, 2.0)
    free = to.free_time(drive(constraints=[low])).ocp
    finer, _ = to.refine(_solution(free, np.zeros((12, 3)), np.zeros((11, 1))), 2)
    assert finer.phases[1].constraints[0].lower[:3, 0].tolist() == [-INF, -0.5, -0.5]


def test_a_coarser_grid_has_as_many_substeps():
    ocp = drive(11)
    coarse = coarser(ocp, 4)
    np.testing.assert_allclose(coarse.dt, np.array([4.0, 4.0, 3.0]) / 11.0)
    assert coarse.phases[0].dynamics.substeps == 4
    found = to.solve(coarse, solver="ipm")
    guess = on_grid_of(ocp, coarse, found)
    assert guess.xs.shape == (12, 2) and found.status.success
    np.testing.assert_array_equal(guess.us[:8], np.repeat(found.us[:2], 4, axis=0))


def test_phases_and_impacts_are_unchanged():
    ocp = hop()
    finer, _ = to.refine(_solution(ocp, np.tile(ocp.x0, (ocp.horizon + 1, 1)), np.zeros((ocp.horizon, ocp.nu))), 2)
    for new, old in zip(finer.phases, ocp.phases, strict=True):
        assert new.dt.sum() == pytest.approx(old.dt.sum())
        assert new.knots == (2 * old.knots if old.dynamics.takes_time else old.knots)


def test_interpolated_controls_are_interpolated():
    ocp = drive()
    held = to.solve(ocp, options={"hold": "first_order"}, solver="dms")
    _, guess = to.refine(held, 2)
    np.testing.assert_allclose(guess.us[1], 0.5 * (held.us[0] + held.us[1]), atol=1e-12)


def test_problems_that_cannot_be_refined_are_rejected():
    solution = to.solve(drive(), solver="ipm")
    for factor in (1, 2.0, True):
        with pytest.raises(ValueError, match="expected an integer of at least 2"):
            to.refine(solution, factor)
    with pytest.raises(ValueError, match=r"a batch of solutions: refine one of them"):
        to.refine(to.solve_batch(drive(), {"x0": np.tile(drive().x0, (2, 1))}, solver="ipm"))
    loaded = pickle.loads(pickle.dumps(solution))
    with pytest.raises(ValueError, match="pass it as ocp"):
        to.refine(loaded)
    assert to.refine(loaded, 2, drive())[0].horizon == 20
    with pytest.raises(ValueError, match="xs and us have shapes"):
        to.refine(loaded, 2, drive(12))
    jump = to.OCP.single_phase(
        to.discrete_dynamics(lambda x, u, t, p: [x[0] + u[0]], 1, 1), [0.0], 5, 1.0, [to.control_cost(1)]
    )
    assert not can_be_regridded(jump) and can_be_regridded(drive())
    with pytest.raises(MissingCapability, match="^discrete dynamics define their own time steps"):
        to.refine(_solution(jump, np.zeros((6, 1)), np.zeros((5, 1))))
