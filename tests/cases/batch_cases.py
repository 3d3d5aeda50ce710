"""Problems of a batch that differ in their starts, and the comparison of each with a single solve."""

import numpy as np
import pytest

import trajopt as to
from trajopt import Guess, StatusCode


def shifted(ocp, n=9, size=0.3, seed=0):
    """Starting states about that of a problem, and guesses about those that stay there."""
    rng = np.random.default_rng(seed)
    nx, ndx = ocp.manifold.nx, ocp.manifold.ndx
    x0 = ocp.manifold.integrate(np.tile(ocp.x0, (n, 1)).T, size * rng.standard_normal((n, ndx)).T).T
    away = size * rng.standard_normal((n * (ocp.horizon + 1), ndx))
    xs = ocp.manifold.integrate(np.repeat(x0, ocp.horizon + 1, axis=0).T, away.T).T.reshape(n, -1, nx)
    return np.ascontiguousarray(x0), Guess(xs, size * rng.standard_normal((n, ocp.horizon, ocp.nu)))


def check_each(found, batch, guess, options, solver="slq", rel=1e-9, cost=1e-11):
    for i in range(len(batch)):
        own = Guess(*(rows[i] if rows.ndim == 3 else rows for rows in guess))
        single = to.solve(batch[i], own, options, solver=solver, check=False)
        assert found.status[i].code == single.status.code, (i, found.messages[i], str(single.status))
        assert found.iterations[i] == single.iterations, i
        for name in ("xs", "us") if found.K is None else ("xs", "us", "K"):
            a, e = getattr(found, name)[i], getattr(single, name)
            np.testing.assert_allclose(a, e, rtol=0, atol=rel * max(1.0, np.abs(e).max()), err_msg=f"{i} {name}")
        assert found.cost[i] == pytest.approx(single.cost, rel=cost, nan_ok=True)
        if single.status.code in (StatusCode.MAX_ITERATIONS, StatusCode.NON_FINITE, StatusCode.NOT_POSITIVE_DEFINITE):
            assert found.status[i].knot == single.status.knot and found.status[i].component == single.status.component
