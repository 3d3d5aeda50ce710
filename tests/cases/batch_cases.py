"""Problems of a batch that differ in their starts, and the comparison of each with a single solve."""

import numpy as np
import pytest

import trajopt as to
from trajopt import Guess, StatusCode

N = 6
GOAL = np.array([0.4, 0.3, 0.0, 0.0])


def shifted(ocp, n=9, size=0.3, seed=0):
    """Return random initial states around that of a problem, and constant guesses."""
    rng = np.random.default_rng(seed)
    nx, ndx = ocp.manifold.nx, ocp.manifold.ndx
    x0 = ocp.manifold.integrate(np.tile(ocp.x0, (n, 1)).T, size * rng.standard_normal((n, ndx)).T).T
    away = size * rng.standard_normal((n * (ocp.horizon + 1), ndx))
    xs = ocp.manifold.integrate(np.repeat(x0, ocp.horizon + 1, axis=0).T, away.T).T.reshape(n, -1, nx)
    return np.ascontiguousarray(x0), Guess(xs, size * rng.standard_normal((n, ocp.horizon, ocp.nu)))


def varied(ocp, n=N, seed=3, size=0.1):
    """Return initial states of a system with four states and two controls, and perturbed guesses."""
    rng = np.random.default_rng(seed)
    x0 = size * rng.standard_normal((n, 4))
    guess = Guess(np.repeat(x0[:, None], ocp.horizon + 1, axis=1), size * rng.standard_normal((n, ocp.horizon, 2)))
    return {"x0": x0}, guess


def swing(*, constrained, horizon=16, engine=None):
    """Double pendulum that moves between two postures; with constraints, a speed limit and a forbidden corner."""
    body = to.FreeBody(to.load_robot("double_pendulum"))
    dynamics = to.SampledSystem(to.make_backend(body, "analytic", engine=engine), "semi_implicit_euler")
    terms = [to.control_cost(2, weight=1e-2), to.state_cost(body.manifold, GOAL, [0.1, 0.1, 0.01, 0.01], name="way")]
    if not constrained:
        last = [to.state_cost(body.manifold, GOAL, 200.0, name="goal")]
        return to.OCP.single_phase(dynamics, np.zeros(4), horizon, 0.05, terms, last)
    slow = to.state_bounds(body.manifold, [-np.inf, -np.inf, -2.0, -2.0], [np.inf, np.inf, 1.4, 1.4], name="speed")
    corner = to.residual_constraint(
        "corner",
        lambda x, u, t, p: [x[1] * x[1] - x[0] - p["room"][0]],
        body.manifold,
        1,
        -np.inf,
        parameters={"room": [0.4]},
    )
    reach = to.state_bounds(body.manifold, GOAL, GOAL, name="reach")
    constraints = {"constraints": [slow, corner], "terminal_constraints": [reach]}
    limits = {"u_lower": [-30.0, -30.0], "u_upper": [30.0, 30.0]}
    return to.OCP.single_phase(dynamics, np.zeros(4), horizon, 0.05, terms, [], **constraints, **limits)


def varied_constraints(ocp, n=N):
    """Return values of the constrained swing (initial states, sides, parameters, goals, limits), and guesses."""
    values, guess = varied(ocp, n)
    rng = np.random.default_rng(5)
    goals = GOAL + 0.1 * rng.standard_normal((n, 4))
    values |= {"corner.room": 0.4 + 0.1 * rng.random(n), "reach.lower": goals, "reach.upper": goals}
    values |= {"speed.lower": -1.5 - rng.random((n, 2)), "way.weight": rng.random((n, 4))}
    return values | {"u_upper": 12.0 + rng.random((n, 2))}, guess


def check_each(found, batch, guess, options, solver="slq", atol=1e-9, rel=1e-11):
    """atol: of trajectories and gains, relative to their largest entry where that is above one. rel: of the cost."""
    for i in range(len(batch)):
        own = Guess(*(rows[i] if rows.ndim == 3 else rows for rows in guess))
        single = to.solve(batch[i], own, options, solver=solver, check=False)
        message = i, found.messages[i], str(single.status)
        assert (found.status[i].code, found.iterations[i]) == (single.status.code, single.iterations), message
        assert found.status[i].message.split(":")[0].split(",")[0] == single.status.message.split(":")[0].split(",")[0]
        for name in ("xs", "us") if found.K is None else ("xs", "us", "K", "k"):
            a, e = getattr(found, name)[i], getattr(single, name)
            np.testing.assert_allclose(a, e, rtol=0, atol=atol * max(1.0, np.abs(e).max()), err_msg=f"{i} {name}")
        assert found.cost[i] == pytest.approx(single.cost, rel=rel, nan_ok=True)
        if single.status.code in (StatusCode.MAX_ITERATIONS, StatusCode.NON_FINITE, StatusCode.NOT_POSITIVE_DEFINITE):
            assert found.status[i].knot == single.status.knot and found.status[i].component == single.status.component
