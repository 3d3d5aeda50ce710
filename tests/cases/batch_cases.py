"""Batches of a system with four states and two controls, and what each of their solutions is compared with."""

import numpy as np
import pytest

import trajopt as to
from trajopt import Guess

N = 6


def varied(ocp, n=N, seed=3, size=0.1):
    """Starts, and guesses away from them."""
    rng = np.random.default_rng(seed)
    x0 = size * rng.standard_normal((n, 4))
    guess = Guess(np.repeat(x0[:, None], ocp.horizon + 1, axis=1), size * rng.standard_normal((n, ocp.horizon, 2)))
    return {"x0": x0}, guess


def check_each(found, batch, guess, options, solver, atol=1e-9, rel=1e-11):
    for i in range(len(batch)):
        single = to.solve(batch[i], Guess(guess.xs[i], guess.us[i]), options, solver=solver, check=False)
        assert (found.status[i].code, found.iterations[i]) == (single.status.code, single.iterations), i
        assert found.status[i].message.split(":")[0] == single.status.message.split(":")[0]
        for name in ("xs", "us") if found.K is None else ("xs", "us", "K", "k"):
            a, e = getattr(found, name)[i], getattr(single, name)
            np.testing.assert_allclose(a, e, rtol=0, atol=atol * max(1.0, np.abs(e).max()), err_msg=f"{i} {name}")
        assert found.cost[i] == pytest.approx(single.cost, rel=rel)
