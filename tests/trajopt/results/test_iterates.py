"""Iterates of callbacks, for every solver."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from shooting_cases import pendulum_swing_up

import trajopt as to


@pytest.mark.parametrize("solver", ["slq", "fddp", "ddp", "dms", "sqp", "ipm"])
def test_a_callback_is_given_the_iterate_of_its_record(solver):
    """The iterate has the cost of its record and is a copy, and the history stores none."""
    ocp, seen = pendulum_swing_up(horizon=12), []

    def watch(record):
        xs, us = record.iterate()
        seen.append((record.cost, xs.copy(), us.copy()))
        xs[:], us[:] = np.nan, np.nan

    solution = to.solve(ocp, solver=solver, callback=watch, options={"max_iterations": 6})
    assert len(seen) > 2
    costs = [ocp.cost(xs, us) for _, xs, us in seen]
    np.testing.assert_allclose(costs, [cost for cost, _, _ in seen], rtol=1e-9)
    assert all(record.iterate is None for record in solution.history)


@pytest.mark.parametrize("solver", ["slq", "fddp", "ddp", "dms", "sqp", "ipm"])
def test_an_iterate_is_asked_for_in_time(solver):
    """After the callback, ``iterate`` raises an error, because its memory is reused for the next iterate."""
    records = []
    to.solve(pendulum_swing_up(horizon=12), solver=solver, callback=records.append, options={"max_iterations": 3})
    with pytest.raises(RuntimeError, match="while the callback runs"):
        records[0].iterate()


def test_iterates_of_a_problem_with_constraints():
    """Records of the augmented Lagrangian store no iterates either, so its solutions can be pickled."""
    ocp, seen = pendulum_swing_up(horizon=8), []
    bound = to.residual_constraint("slow", lambda x, u, t, p: [x[1]], ocp.manifold, 1, upper=1.0)
    held = replace(ocp, phases=tuple(replace(phase, constraints=(bound,)) for phase in ocp.phases))
    solution = to.solve(
        held, solver="slq", callback=lambda r: seen.append(r.iterate()[0]), options={"max_iterations": 4}
    )
    assert seen[0].shape == (9, 2)
    assert pickle.loads(pickle.dumps(solution.history))[0].iteration == 0
