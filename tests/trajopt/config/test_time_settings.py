"""The keys time, durations and time_weight of the table [problem]."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from trajopt.config.build import build_task, solve_task
from trajopt.config.config import ConfigError, read_config
from trajopt.config.free_time import TimeSettings, with_free_durations
from trajopt.validation.limit_violations import LimitViolation, durations_at_bounds

REACH = {
    "name": "cart_pole",
    "horizon": 20,
    "dt": 0.05,
    "integrator": "rk4",
    "time": "free",
    "durations": [0.5, 1.8],
    "time_weight": 3.0,
}


def config(solver: str = "ddp", **problem):
    return read_config({"problem": {**REACH, **problem}, "solver": solver})


def test_a_free_duration_is_optimal():
    c = config()
    task = build_task(c)
    fixed = build_task(
        read_config({"engine": "numpy", "problem": {k: REACH[k] for k in ("name", "horizon", "dt", "integrator")}})
    )
    solution = solve_task(c, task)
    assert solution.status.success, solution.status
    T = solution.xs[-1, -1]
    assert 0.5 < T < 1.8 and abs(T - 1.0) > 0.01
    np.testing.assert_allclose(task.clock(solution.xs)[1:], T * fixed.ocp.times, rtol=1e-12)
    assert solution.duration == pytest.approx(T) and f"{T:.4g} s" in repr(solution)
    assert list(to.setpoints(task.ocp, solution, 10.0))[-1].t == pytest.approx(T)
    assert task.outcome(solution.xs[-1])[0] == f"duration {T:.3f} s (planned 1.000)"
    assert task.outcome(solution.xs[-1])[1:] == fixed.outcome(solution.xs[-1, :-1])
    again = read_config(solution.meta["config"], "the settings in the solution")
    assert again.time == c.time and build_task(again).ocp.horizon == 21
    same = to.solve(fixed.ocp, fixed.guess, solver="ddp")
    assert solution.cost < same.cost + 3.0


def test_a_duration_at_its_bound_is_reported():
    """The warning includes a remedy; fixed durations, those between their bounds and negative ones cause no warning."""
    task = build_task(config())
    xs = np.tile(task.ocp.x0, (task.ocp.horizon + 1, 1))
    for T, found in ((0.5, "shortest"), (1.7999, "longest"), (1.0, "")):
        xs[:, -1] = T
        sentences = durations_at_bounds(task.ocp, xs)
        assert bool(found) == bool(sentences)
        for sentence in sentences:
            assert sentence.startswith(
                f"the duration is {T:.4g} s, the {found} allowed duration: it may limit the motion"
            )
            assert ("lower" if found == "shortest" else "raise") + " this bound" in sentence
    xs[:, -1] = 1.9
    [sentence] = durations_at_bounds(task.ocp, xs)
    assert sentence.startswith("the duration is 1.9 s, beyond 1.8 s, the longest allowed duration")
    xs[:, -1] = -6.0
    assert durations_at_bounds(task.ocp, xs) == []
    xs[:, -1] = 0.7
    assert durations_at_bounds(build_task(config(durations=[0.7, 0.7])).ocp, xs) == []
    fixed = {k: REACH[k] for k in ("name", "horizon", "dt", "integrator")}
    ocp = build_task(read_config({"problem": fixed})).ocp
    assert durations_at_bounds(ocp, np.zeros((ocp.horizon + 1, 4))) == []
    c = config(durations=[0.5, 0.6])
    solution = solve_task(c, build_task(c))
    assert any("0.6 s, the longest allowed duration" in finding for finding in solution.meta["findings"])
    assert "the longest allowed duration" in solution.report()


def test_easier_problems_have_the_free_time_of_the_task():
    c = config()
    fixed = build_task(config(time="fixed", durations=None, time_weight=1.0))
    free = with_free_durations(replace(fixed, easier=(fixed.ocp,)), c.time)
    assert free.easier[0].manifold.nx == free.ocp.manifold.nx == fixed.ocp.manifold.nx + 1
    assert to.solve(free.easier[0], free.guess, solver="ddp").status.success


def test_limits_of_contacts_are_reported_in_seconds():
    c = config()
    fixed = build_task(config(time="fixed", durations=None, time_weight=1.0))
    slip = LimitViolation("friction cone", "foot", 3, float(fixed.ocp.times[3]), 2.0, np.nan, "N", True, 1)
    free = with_free_durations(replace(fixed, contact_limits=lambda xs, us: [slip]), c.time)
    xs = np.array(free.guess.xs)
    xs[:, -1] = 0.7
    (violation,) = free.contact_limits(xs, free.guess.us)
    assert violation.knot == 4 and violation.time == pytest.approx(0.7 * 3 / fixed.ocp.horizon)


def test_commands_see_the_states_of_the_problem_without_durations():
    """The first stage, which sets the durations, is left out."""
    c, fixed = config(), build_task(config(time="fixed", durations=None, time_weight=1.0))
    reporting = replace(fixed, commands=lambda xs, times: [f"{xs.shape}, {times.shape}, {times[-1]:g}"])
    free, N = with_free_durations(reporting, c.time), fixed.ocp.horizon
    assert free.commands(free.guess.xs, free.clock(free.guess.xs)) == [f"({N + 1}, 4), ({N + 1},), 1"]


def test_a_time_weight_is_refused_if_the_problem_has_one():
    fixed = build_task(config(time="fixed", durations=None, time_weight=1.0))
    own = replace(fixed, clock=lambda xs: xs[:, 0], time_key="weights.time")
    assert with_free_durations(own, TimeSettings(time="free")) is own
    with pytest.raises(ValueError, match=r"problem.time_weight: .* use problem.weights.time"):
        with_free_durations(own, TimeSettings(time="free", time_weight=7.0))


def test_invalid_values_of_the_keys_are_reported():
    with pytest.raises(ConfigError, match=r'problem.durations: expected time = "free" to be set too'):
        config(time="fixed")
    with pytest.raises(ConfigError, match="problem.tim: unknown key; did you mean time"):
        read_config({"problem": {"name": "cart_pole", "tim": "free"}})
    with pytest.raises(
        ValueError, match=r"problem.time: durations = \[2.0, 1.0\]; expected a shortest and a longest one"
    ):
        build_task(config(durations=[2.0, 1.0]))
    with pytest.raises(ValueError, match="its own keys for durations"):
        build_task(read_config({"problem": {"name": "lifting", "time": "free", "durations": [0.5, 1.0]}}))
