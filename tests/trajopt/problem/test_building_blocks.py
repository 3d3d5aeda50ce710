"""Building blocks known from other toolkits: the cost of a trajectory, placement by log6, a quadratic barrier for bounds."""

import numpy as np
import pytest
from scipy.linalg import logm

import trajopt as to
from dynamics_backends.protocol import Partials

MODEL = to.chain(4)
MANIFOLD = to.FreeBody(MODEL).manifold
X = np.random.default_rng(1).uniform(-1.0, 1.0, (5, 8))
NONE = np.zeros((5, 0))


def placement(q):
    """(4, 4) of the last frame, in the world."""
    rotation, position = to.frame_placement(MODEL, q[None], MODEL.frames[-1].name)
    M = np.eye(4)
    M[:3, :3], M[:3, 3] = rotation[0], position[0]
    return M


def jacobians(residual, p, method="forward_ad"):
    return to.make_backend(residual, method, engine="numpy").jacobians(X[:, : residual.manifold.nx], NONE, 0.0, p)


def test_placement_by_the_logarithm_of_se3():
    """Compared with SciPy's matrix logarithm, and its differences."""
    goal = placement(X[0, :4] + 0.3)
    name = MODEL.frames[-1].name
    term = to.frame_placement_cost(MODEL, MANIFOLD, name, goal[:3, 3], goal[:3, :3], log6=True)

    def log6(q):
        L = logm(np.linalg.inv(goal) @ placement(q)).real
        return np.array([*L[:3, 3], L[2, 1], L[0, 2], L[1, 0]])

    j = jacobians(term.residual, term.parameters)
    for k in range(5):
        np.testing.assert_allclose(j.value[k], log6(X[k, :4]), atol=1e-9)
        steps = [(log6(X[k, :4] + h) - log6(X[k, :4] - h)) / 2e-6 for h in 1e-6 * np.eye(4)]
        np.testing.assert_allclose(j.fx[k][:, :4], np.array(steps).T, atol=1e-6)
    here = placement(X[0, :4])
    at_goal = to.frame_placement_cost(MODEL, MANIFOLD, name, here[:3, 3], here[:3, :3], log6=True)
    np.testing.assert_allclose(jacobians(at_goal.residual, at_goal.parameters).value[0], 0.0, atol=1e-12)


def test_a_quadratic_barrier_for_any_bounds():
    lower, upper = np.array([-0.4, -np.inf]), np.array([0.2, 0.1])
    limits = to.residual_constraint("box", lambda x, u, t, p: [x[0], x[1] * x[2]], MANIFOLD, 2, lower, upper)
    term = to.quadratic_barrier(limits, weight=3.0)
    values = np.stack([X[:, 0], X[:, 1] * X[:, 2]], axis=1)
    beyond = values - np.clip(values, lower, upper)
    assert (beyond != 0).any(axis=0).all() and (beyond == 0).any(axis=0).all()
    j = jacobians(term.residual, term.parameters)
    np.testing.assert_allclose(j.value, beyond, atol=1e-15)
    np.testing.assert_allclose(j.fx[:, 0, 0], beyond[:, 0] != 0)
    np.testing.assert_allclose(j.fx[:, 1, 1], (beyond[:, 1] != 0) * X[:, 2])


def test_a_barrier_keeps_the_closed_form_of_what_it_bounds():
    class Product:
        """x0 x1 with its partials, which count how often they are asked."""

        manifold, nu, n_out, output_names, control_names = MANIFOLD, 0, 1, ("product",), ()
        asked = 0

        def __call__(self, x, u, t, p):
            return to.stack([x[0] * x[1]])

        def partials(self, x, u, t, p):
            Product.asked += 1
            zero = 0.0 * x[0]
            fx = to.stack([x[1], x[0], *[zero] * 6])
            return Partials(self(x, u, t, p), [fx], [u])

    term = to.quadratic_barrier(to.Constraint("product", Product(), -0.1, 0.1))
    closed, traced = (jacobians(term.residual, term.parameters, m) for m in ("analytic", "forward_ad"))
    assert Product.asked == 1
    np.testing.assert_allclose(closed.value, traced.value)
    np.testing.assert_allclose(closed.fx, traced.fx)


def double_integrator(dt=0.1):
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"), "euler")
    steps = [0.1, 0.2, 0.3]
    m = dynamics.manifold
    terms = [to.control_cost(1, weight=2.0), to.residual_cost("late", lambda x, u, t, p: [t * x[0]], m, 1, 5.0)]
    return to.OCP.single_phase(
        dynamics, [1.0, 0.0], 3, np.array(steps), terms, [to.state_cost(m, [0.0, 1.0], [1.0, 4.0])]
    )


def test_the_cost_of_a_trajectory():
    ocp = double_integrator()
    xs, us = np.arange(8.0).reshape(4, 2), np.array([[1.0], [2.0], [3.0]])
    dt, times = np.array([0.1, 0.2, 0.3]), np.array([0.0, 0.1, 0.3])
    running = dt @ (us[:, 0] ** 2 + 2.5 * (times * xs[:3, 0]) ** 2)
    expected = running + 0.5 * (6.0**2 + 4.0 * 6.0**2)
    assert ocp.cost(xs, us) == pytest.approx(expected, rel=1e-14)
    assert isinstance(ocp.cost(xs, us), float)
    np.testing.assert_allclose(ocp.cost(np.stack([xs, 0 * xs]), np.stack([us, us])), [expected, ocp.cost(0 * xs, us)])
    solution = to.solve(ocp, solver="slq")
    assert ocp.cost(solution.xs, solution.us) == pytest.approx(solution.cost, rel=1e-12)
    with pytest.raises(ValueError, match=r"expected xs \(N \+ 1 = 4, nx = 2\)"):
        ocp.cost(xs[:3], us)


@pytest.mark.parametrize("solver", ["ipm", "sqp", "dms", "ddp"])
def test_bounds_on_the_state_may_be_given_by_knot(solver):
    """A cart whose speed limit decreases with time; every solver finds the optimum of IPOPT."""
    rates = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    upper = np.full((20, 2), np.inf)
    upper[:, 1] = np.linspace(3.0, 0.6, 20)
    speed = to.state_bounds(2, -np.inf, upper, "speed")
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    step = to.SampledSystem(to.make_backend(rates, "forward_ad"), "rk4")
    given = {"constraints": [speed], "terminal_constraints": [goal]}
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.05, [to.control_cost(1)], **given)
    found = to.solve(ocp, solver=solver)
    assert found.status.success and found.cost == pytest.approx(6.021482, rel=1e-5)
    assert (found.xs[:-1, 1] - upper[:, 1]).max() < 1e-6
    with pytest.raises(ValueError, match=r"lower has shape \(20, 3\); expected \(nx = 2,\) or \(N, 2\)"):
        to.state_bounds(2, np.zeros((20, 3)), 1.0)
