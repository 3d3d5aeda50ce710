"""Minimum-time problems of the first-try benchmark: valid, consistent with their guess, dependent on the seed."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from experiments.benchmarks.first_try.minimum_time import instances

SEEDS = {seed: instances(seed) for seed in (0, 1)}


@pytest.mark.parametrize("number", range(20))
def test_an_instance_is_a_valid_problem_of_free_time(number):
    instance, other = SEEDS[0][number], SEEDS[1][number]
    ocp, guess = instance.build()
    assert instance.group == "minimum time" and instance.name.startswith(instance.family)
    assert ocp.in_scaled_time and guess.xs.shape == (ocp.horizon + 1, ocp.manifold.nx)
    assert not [f for f in to.validate(ocp, guess) if f.severity == "error"]
    nx = ocp.manifold.nx - 1
    np.testing.assert_allclose(guess.xs[0, :nx], ocp.x0[:nx])
    varied, _ = other.build()
    again, _ = instance.build()
    assert other.name == instance.name and numbers(varied) != numbers(ocp) == numbers(again)


def numbers(ocp: to.OCP) -> list:
    """Return the initial state, the bounds on the last state, and the initial values of the constraints."""
    at = ocp.x0[:, None], np.zeros((ocp.nu, 1)), 0.0
    values = [
        np.asarray(c.residual(at[0], at[1][: c.residual.nu], 0.0, c.parameters)).tolist() for c in ocp.constraints()
    ]
    return [ocp.x0.tolist(), [(c.lower.tolist(), c.upper.tolist()) for c in ocp.terminal_constraints], values]


def test_there_are_twenty_of_six_families():
    names = [instance.name for instance in SEEDS[0]]
    assert len(names) == len(set(names)) == 20
    assert len({instance.family for instance in SEEDS[0]}) == 6


def test_an_instance_is_solved_from_its_straight_line():
    """The minimum time through a gap is at least that of bang-bang control without the wall."""
    ocp, guess = next(i for i in SEEDS[0] if i.name == "vehicle through a gap, omni").build()
    found = to.solve(ocp, guess)
    assert found.status.success, found.status
    assert 2.0 * np.sqrt(5.0 / 2.0) <= found.duration < 4.0
