"""Where linear gaps blow up, a second start with nonlinear ones solves the problem, and is told."""

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from experiments.config.build import build_task
from experiments.config.config import load_config
from trajopt.solvers.shooting.restart import of_both


def swing_up():
    """The bundled double pendulum, from a guess in which it hangs at rest."""
    ocp = build_task(load_config("problems/configs/double_pendulum_swing_up.toml")).ocp
    return ocp, to.Guess(np.zeros((ocp.horizon + 1, 4)), np.zeros((ocp.horizon, 2)))


@pytest.mark.parametrize("solver", ["slq", "gnms"])
def test_a_swing_up_from_rest(solver):
    """It ends at the optimum of FDDP; the records of both starts follow each other."""
    ocp, guess = swing_up()
    told = []
    found = to.solve(ocp, guess, {"max_iterations": 200}, told.append, solver)
    assert found.status.success and "a second start with nonlinear ones converged" in found.status.message
    assert found.cost == pytest.approx(to.solve(ocp, guess, {"max_iterations": 200}, solver="fddp").cost, rel=1e-9)
    assert [r.iteration for r in found.history] == list(range(len(found.history)))
    assert [r.iteration for r in told] == [r.iteration for r in found.history]
    assert max(r.defect for r in found.history[: len(found.history) // 4]) > 10.0
    assert ocp.cost(found.xs, found.us) == pytest.approx(found.cost, rel=1e-12)


def test_both_starts_share_the_iterations():
    ocp, guess = swing_up()
    found = to.solve(ocp, guess, {"max_iterations": 30}, solver="gnms")
    assert not found.status.success and found.iterations == 30
    assert "a second start with nonlinear ones ended in max_iterations" in found.status.message


def test_nonlinear_gaps_are_advised_where_they_were_not_tried():
    ocp, guess = swing_up()
    first, both = (to.solve(ocp, guess, {"max_iterations": limit}, solver="gnms").status for limit in (26, 30))
    assert all("gaps stay open" in status.message for status in (first, both))
    assert "Try nonlinear gaps (solver = 'fddp')" in first.advice
    assert "gaps" not in both.advice and "Raise max_iterations" in both.advice


def test_an_unstable_integration_is_blamed_whatever_the_second_start_says():
    ocp, guess = swing_up()
    found = to.solve(ocp, guess, {"max_iterations": 1}, solver="gnms")
    unstable = to.Status(to.StatusCode.LINE_SEARCH_FAILED, "unstable", knot=3, advice="Shorten dt.")
    assert of_both(replace(found, status=unstable), found).status.advice == "Shorten dt."


def test_other_ends_are_left_alone():
    """Nonlinear gaps, single shooting, and a solve that converges start once."""
    ocp, guess = swing_up()
    for solver in ("fddp", "ilqr"):
        assert "second start" not in to.solve(ocp, guess, {"max_iterations": 200}, solver=solver).status.message
