"""Kernels that call Python for the stages: exceptions and Ctrl-C in a user's function end the solve as if Python had called it."""

import numpy as np
import pytest

import trajopt as to
from trajopt import StatusCode


class Pendulum:
    """A pendulum whose ``at``-th evaluation raises an exception, or returns NaN."""

    manifold, nu, second_order = 2, 1, True

    def __init__(self):
        self.count, self.at, self.error = 0, None, None

    def fail_at(self, at, error):
        self.count, self.at, self.error = 0, at, error

    def f(self, x, u, t, p):
        self.count += 1
        if self.count == self.at and self.error is not None:
            raise self.error
        found = np.stack([x[:, 1], u[:, 0] - 2.0 * np.sin(x[:, 0])], axis=1)
        return found * np.nan if self.count == self.at else found

    def jacobians(self, x, u, t, p):
        fx, fu = np.zeros((len(x), 2, 2)), np.zeros((len(x), 2, 1))
        fx[:, 0, 1], fx[:, 1, 0], fu[:, 1, 0] = 1.0, -2.0 * np.cos(x[:, 0]), 1.0
        return self.f(x, u, t, p), fx, fu

    def hessian_contraction(self, x, u, t, p, lam):
        xx = np.zeros((len(x), 2, 2))
        xx[:, 0, 0] = 2.0 * lam[:, 1] * np.sin(x[:, 0])
        return self.jacobians(x, u, t, p), (xx, np.zeros((len(x), 1, 2)), np.zeros((len(x), 1, 1)))


def swing(pendulum):
    """The pendulum swings to 2.6 rad, with a limited torque."""
    step = to.SampledSystem(pendulum, "euler")
    goal = to.state_cost(step.manifold, [2.6, 0.0], 50.0, "goal")
    limits = {"u_lower": [-1.5], "u_upper": [1.5]}
    return to.OCP.single_phase(step, [0.0, 0.0], 20, 0.15, [to.control_cost(1)], [goal], **limits)


def solved(solver):
    """Return a pendulum, its problem, and for each record of a solve the evaluations so far, the cost and the iterate."""
    pendulum, records = Pendulum(), []
    ocp = swing(pendulum)
    found = to.solve(
        ocp, solver=solver, check=False, callback=lambda r: records.append((pendulum.count, r.cost, *r.iterate()))
    )
    assert found.status.success and len(records) > 5
    return pendulum, ocp, records


@pytest.mark.parametrize("solver", ["ddp", "ipm"])
def test_every_exception_of_a_function_reaches_the_caller(solver):
    pendulum, ocp, records = solved(solver)
    for at in range(1, records[-1][0] + 1, 7):
        pendulum.fail_at(at, ZeroDivisionError("here"))
        with pytest.raises(ZeroDivisionError, match="here"):
            to.solve(ocp, solver=solver, check=False)


@pytest.mark.parametrize("solver", ["ddp", "ipm"])
def test_ctrl_c_in_a_function_returns_the_iterate_before_the_request(solver):
    pendulum, ocp, records = solved(solver)
    for at in range(records[0][0] + 1, records[-2][0] + 1, 3):
        pendulum.fail_at(at, KeyboardInterrupt())
        found = to.solve(ocp, solver=solver, check=False)
        assert found.status.code is StatusCode.INTERRUPTED
        _, cost, xs, us = records[found.iterations]
        assert found.cost == cost
        np.testing.assert_array_equal(found.xs, xs)
        np.testing.assert_array_equal(found.us, us)
        assert np.isfinite(found.K).all() and found.K.any()


@pytest.mark.parametrize("solver", ["ddp", "ipm"])
def test_a_value_that_is_no_number_rejects_a_step(solver):
    pendulum, ocp, records = solved(solver)
    for at in range(records[0][0] + 1, records[-1][0] + 1, 5):
        pendulum.fail_at(at, None)
        found = to.solve(ocp, solver=solver, check=False)
        assert found.status.success
        assert found.cost == pytest.approx(records[-1][1], rel=1e-6)
