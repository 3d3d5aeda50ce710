"""The time of several solves that lead to one solution."""

import numpy as np
import pytest
from shooting_cases import pendulum_swing_up

import trajopt as to
from trajopt.config.build import with_time_before

pytestmark = pytest.mark.numpy


def test_the_time_of_earlier_solves_counts_by_phase():
    first, second, last = (
        to.solve(pendulum_swing_up(10), solver="slq", options={"max_iterations": n}, check=False) for n in (1, 2, 3)
    )
    assert with_time_before(last, []) is last
    found = with_time_before(with_time_before(last, [second]), [first])
    seconds = sum(s.meta["solve_time"] for s in (first, second, last))
    assert found.meta["solve_time"] == pytest.approx(seconds)
    assert sum(found.time_total.values()) == pytest.approx(seconds)
    for phase in found.time_total:
        np.testing.assert_allclose(found.time_total[phase], sum(s.time_total[phase] for s in (first, second, last)))
    assert found.history == last.history
