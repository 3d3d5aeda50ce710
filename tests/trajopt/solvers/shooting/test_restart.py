"""Second start with nonlinear gaps after linear gaps diverge: it solves the problem, and the status reports it."""

import re
from dataclasses import replace

import numpy as np
import pytest
from swing_ups import bundled_swing_up, swing_up_from_elsewhere

import trajopt as to
from problems.robots import erd_names
from trajopt.solvers.methods.delegation import Second, merged_solution
from trajopt.solvers.termination import OPEN_DEFECTS, Errors, Measured, line_search_failed

AGAIN = Second(to.SLQOptions(gaps="nonlinear"), "The first one did not converge.", "with nonlinear gaps")


def first_start(found):
    """Iterations of the first start, which differ by a few between processors."""
    return int(re.search(r"linear gaps ended with \w+ after (\d+) iterations", found.status.message)[1])


@pytest.mark.parametrize("solver", ["slq", "gnms"])
def test_a_swing_up_from_rest(solver):
    """It ends at the optimum of FDDP; the records of both starts follow each other."""
    ocp, guess = bundled_swing_up()
    records = []
    found = to.solve(ocp, guess, {"max_iterations": 200}, records.append, solver)
    assert found.status.success and "A second start with nonlinear gaps converged" in found.status.message
    assert found.cost == pytest.approx(to.solve(ocp, guess, {"max_iterations": 200}, solver="fddp").cost, rel=1e-9)
    assert [r.iteration for r in found.history] == list(range(len(found.history)))
    assert [r.iteration for r in records] == [r.iteration for r in found.history]
    assert max(r.defect for r in found.history[: len(found.history) // 4]) > 10.0
    assert ocp.cost(found.xs, found.us) == pytest.approx(found.cost, rel=1e-12)


def test_both_starts_share_the_iterations():
    ocp, guess = bundled_swing_up()
    limit = first_start(to.solve(ocp, guess, {"max_iterations": 200}, solver="gnms")) + 4
    found = to.solve(ocp, guess, {"max_iterations": limit}, solver="gnms")
    assert not found.status.success and found.iterations == limit
    assert "A second start with nonlinear gaps ended with max_iterations" in found.status.message


def test_nonlinear_gaps_are_advised_where_they_were_not_tried():
    ocp, guess = bundled_swing_up()
    second = to.solve(ocp, guess, {"max_iterations": 4}, solver="fddp", check=False)
    first = replace(second, status=line_search_failed(OPEN_DEFECTS, Measured(26, Errors(defect=1.0), Errors())))
    both = merged_solution(first, second, AGAIN).status
    assert "the defects do not close" in both.message
    assert "Try nonlinear gaps (solver = 'fddp')" in first.status.advice
    assert "gaps" not in both.advice and "Increase max_iterations" in both.advice


def test_an_unstable_integration_is_blamed_whatever_the_second_start_says():
    ocp, guess = bundled_swing_up()
    found = to.solve(ocp, guess, {"max_iterations": 1}, solver="gnms")
    unstable = to.Status(to.StatusCode.LINE_SEARCH_FAILED, "unstable", knot=3, advice="Shorten dt.")
    assert merged_solution(replace(found, status=unstable), found, AGAIN).status.advice == "Shorten dt."


def test_other_ends_are_left_alone():
    """Nonlinear gaps, single shooting, and a solve that converges start once."""
    ocp, guess = bundled_swing_up()
    for solver in ("fddp", "ilqr"):
        assert "second start" not in to.solve(ocp, guess, {"max_iterations": 200}, solver=solver).status.message


@pytest.mark.skipif(not erd_names(), reason="example-robot-data is not installed")
@pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")
def test_ddp_starts_twice_too():
    ocp, guess = swing_up_from_elsewhere()
    found = to.solve(ocp, guess, solver="ddp")
    assert found.status.success and "A second start with nonlinear gaps converged" in found.status.message
    assert found.cost == pytest.approx(to.solve(ocp, guess, solver="fddp").cost, rel=1e-9)
    assert [r.iteration for r in found.history] == list(range(len(found.history)))
    records: list[int] = []
    batch = to.solve_batch(
        ocp, {"x0": ocp.x0[None]}, guess, None, lambda done, of: records.append(done), solver="ddp", gains=True
    )
    assert batch.meta["referred"] == [0] and batch.messages == [str(found.status)] and records[-1] == 1
    np.testing.assert_allclose(batch.K[0], found.K, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not erd_names(), reason="example-robot-data is not installed")
@pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")
@pytest.mark.parametrize("solver", ["ddp", "auto"])
def test_an_interrupted_second_start_ends_the_solve(solver):
    """No other attempt follows."""
    ocp, guess = swing_up_from_elsewhere()
    first = first_start(to.solve(ocp, guess, solver="ddp"))
    records = []

    def stop(record):
        records.append(record)
        if len(records) == first + 4:
            raise KeyboardInterrupt

    found = to.solve(ocp, guess, {"starts": 1} if solver == "auto" else None, stop, solver)
    assert found.status.code == "interrupted" and "A second start with nonlinear gaps" in found.status.message
    assert len(records) == first + 4
