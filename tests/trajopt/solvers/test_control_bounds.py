"""Control bounds that are no bounds: huge ones, and those of controls that a phase does not have."""

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to

PENDULUM = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 0.5 * np.sin(x[0])], 2, 1, second_order=True)


def swing(lower: float) -> to.OCP:
    step = to.SampledSystem(to.make_backend(PENDULUM, "forward_ad"), "rk4")
    goal = to.state_cost(PENDULUM.manifold, [2.0, 0.0], 100.0)
    return to.OCP.single_phase(
        step, np.zeros(2), 30, 0.1, [to.control_cost(1, weight=0.2)], [goal], u_lower=lower, u_upper=0.9
    )


@pytest.mark.parametrize("solver", ["auto", "ddp", "slq", "ipm", "sqp", "dms"])
@pytest.mark.parametrize("lower", [-1e6, -1e10, -1e20])
def test_a_huge_bound_is_like_none(solver, lower):
    expected = to.solve(swing(-np.inf), solver=solver)
    found = to.solve(swing(lower), solver=solver)
    assert found.status.success and (np.abs(found.us - 0.9) < 1e-4).any()
    assert found.cost == pytest.approx(expected.cost, rel=1e-5)
    assert found.iterations <= expected.iterations + 5


def windy(held: bool, engine: str, upper: float) -> to.OCP:
    """Pendulum in wind: a constant, or a second control with equal bounds."""

    def pendulum(x, u, t, p):
        wind = u[1] if held else 0.3
        return [x[1], u[0] * (1.0 + 0.1 * wind) - 2.0 * np.sin(x[0]) + wind * x[1]]

    system = to.FunctionMap(pendulum, 2, 1 + held, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad", engine=engine), "rk4")
    goal = to.state_cost(system.manifold, [2.0, 0.0], 100.0)
    limits = {"u_lower": [-upper, 0.3][: 1 + held], "u_upper": [upper, 0.3][: 1 + held]}
    return to.OCP.single_phase(step, np.zeros(2), 30, 0.1, [to.control_cost(1 + held, weight=0.2)], [goal], **limits)


@pytest.mark.parametrize("upper", [np.inf, 0.9])
@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize("solver", ["ddp", "slq"])
def test_a_control_with_equal_bounds_is_a_constant(solver, engine, upper):
    expected = to.solve(windy(False, engine, upper), solver=solver)
    found = to.solve(windy(True, engine, upper), solver=solver)
    assert expected.status.success and found.status.success
    assert found.iterations <= expected.iterations + 5 and found.history[0].hessian == expected.history[0].hessian
    np.testing.assert_allclose(found.xs, expected.xs, atol=1e-4)
    assert (found.us[:, 1] == 0.3).all() and not found.K[:, 1].any()


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_controls_with_equal_bounds_have_multipliers(engine):
    """The interior point holds such controls, without bounds; the multiplier is the derivative of the cost by the bound."""
    ocp = windy(True, engine, 0.9)
    rows = to.residual_constraint("power", lambda x, u, t, p: [u[0] * x[1] + u[1]], ocp.manifold, 1, nu=2, upper=[1.0])
    ocp = to.OCP(
        [replace(ocp.phases[0], constraints=[rows])], ocp.x0, ocp.terminal, u_lower=ocp.u_lower, u_upper=ocp.u_upper
    )
    found, expected = (to.solve(ocp, solver=solver) for solver in ("ipm", "dms"))
    z = found.multipliers["bounds on u"]
    assert np.abs(z[:, 1]).max() > 0.1 and np.abs(found.multipliers["power"]).max() > 1e-3
    np.testing.assert_allclose(z, expected.multipliers["bounds on u"], atol=1e-4)
    warm = to.WarmStart(to.Guess(found.xs, found.us), multipliers=found.multipliers, barrier=1e-8)
    again = to.solve(ocp, solver="ipm", warm_start=warm, check=False)
    assert again.status.success and again.iterations <= 3


def thrusters() -> to.OCP:
    """Point mass with two thrusters that cannot be off."""
    mass = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - u[1]], 2, 2, second_order=True)
    step = to.SampledSystem(to.make_backend(mass, "forward_ad"), "rk4")
    goal = to.bounded(to.state_cost(mass.manifold, [1.0, 0.0]), name="goal")
    return to.OCP.single_phase(
        step, np.zeros(2), 20, 0.1, [to.control_cost(2)], terminal_constraints=[goal], u_lower=0.5, u_upper=3.0
    )


@pytest.mark.parametrize("solver", ["auto", "ddp", "ipm", "sqp", "dms"])
def test_the_knot_of_free_durations_has_no_other_controls(solver):
    free = to.free_time(thrusters(), durations=(0.5, 6.0), price=1.0)
    lower, upper = free.ocp.control_bounds
    assert np.isinf(lower[0, 1]) and np.isinf(upper[0, 1]) and (lower[1:] == 0.5).all()
    found = to.solve(free.ocp, solver=solver)
    assert found.status.success, found.status.message
    assert (found.us[1:] >= 0.5 - 1e-6).all()


def test_free_durations_check_the_shapes_of_motions():
    free = to.free_time(thrusters(), durations=(0.5, 6.0))
    guess = free.with_durations(to.constant_guess(thrusters(), 1.0))
    for wrong in (
        lambda: free.without((guess.xs[None], guess.us[None])),
        lambda: free.without((guess.xs[1:], guess.us[1:])),
    ):
        with pytest.raises(ValueError, match="xs and us have shapes"):
            wrong()
    with pytest.raises(ValueError, match="durations has shape"):
        free.with_durations(to.constant_guess(thrusters()), [1.0, 2.0])
    with pytest.raises(ValueError, match=r"durations = \[nan\]; expected positive numbers of seconds"):
        free.with_durations(to.constant_guess(thrusters()), [np.nan])
    with pytest.raises(ValueError, match="already free"):
        to.free_time(free.ocp)
