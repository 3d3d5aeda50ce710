"""History of a solve: phases with the time of their operations, and iterates of callbacks, in every solver."""

import pickle
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from batch_cases import swing
from shooting_cases import pendulum_swing_up

import trajopt as to
from trajopt.results.records import PHASES, Journal

GAINS_BEHIND = ("ipm", "sqp", "dms")
"""Solvers that compute feedback gains after the iterations, by one more linearization."""
ZERO = dict.fromkeys(
    ("cost", "merit", "stop", "gradient", "regularization", "step_norm", "defect", "constraint_violation"), 0.0
)
ZERO |= dict.fromkeys(("expected_decrease", "actual_decrease", "step_length"), 0.0)


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = Counter()
    monkeypatch.setattr(time, "perf_counter", lambda: float(now["seconds"]))
    return now


def test_a_phase_inside_of_another_one_suspends_it(clock):
    journal = Journal()
    with journal.timed("rollout"):
        clock["seconds"] += 1
        with journal.timed("derivatives"):
            clock["seconds"] += 10
        clock["seconds"] += 100
    clock["seconds"] += 1000
    journal.add(iteration=0, **ZERO)
    with journal.timed("backward"):
        clock["seconds"] += 10000
    (record,) = journal.history()
    assert record.times == {"rollout": 101.0, "derivatives": 10.0, "backward": 10000.0}


@pytest.mark.numpy
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("solver", ["sqp", "dms"])
def test_phases_are_charged_with_what_they_name(solver, constrained, clock, monkeypatch):
    """One second passes in each linearization of time steps, and one in each simulation; nothing else takes time."""
    if solver == "dms":
        pytest.importorskip("cyipopt")
    calls = Counter()

    def counted(name):
        call = getattr(to.SampledSystem, name)

        def timed(*arguments, **named):
            clock["seconds"] += 1
            calls[name] += 1
            return call(*arguments, **named)

        monkeypatch.setattr(to.SampledSystem, name, timed)

    counted("linearize")
    counted("step")
    ocp = swing(constrained=True) if constrained else pendulum_swing_up(20, limit=8.0)
    found = to.solve(ocp, solver=solver, options={"max_iterations": 60}, check=False)
    spent, gains = found.time_total, solver in GAINS_BEHIND
    assert found.iterations > 2
    assert spent["derivatives"] == calls["linearize"] - gains
    assert spent["rollout"] == calls["step"]
    assert (spent["backward"], spent["other"]) == (0.0, float(gains))
    assert sum(spent.values()) == found.meta["solve_time"]


@pytest.mark.numpy
@pytest.mark.parametrize(
    ("solver", "slow", "phase"),
    [
        *((solver, "linearize", "derivatives") for solver in ("slq", "fddp", "ddp", "ipm")),
        *((solver, "step", "rollout") for solver in ("slq", "fddp", "ddp")),
    ],
)
def test_phases_that_c_measures_are_charged_with_what_they_name(solver, slow, phase, monkeypatch):
    """A linearization, or a simulation, of time steps that takes at least a millisecond; C measures the time."""
    call, calls = getattr(to.SampledSystem, slow), Counter()

    def slowed(*arguments, **named):
        time.sleep(1e-3)
        calls[slow] += 1
        return call(*arguments, **named)

    monkeypatch.setattr(to.SampledSystem, slow, slowed)
    found = to.solve(pendulum_swing_up(20, limit=8.0), solver=solver, options={"max_iterations": 20}, check=False)
    assert found.iterations > 2 and calls[slow] > 2
    assert found.time_total[phase] >= 1e-3 * (calls[slow] - (solver in GAINS_BEHIND))
    np.testing.assert_allclose(sum(found.time_total.values()), found.meta["solve_time"])


@pytest.mark.parametrize("solver", ["slq", "ddp", "ipm"])
def test_phases_of_compiled_solves_add_up(solver):
    found = to.solve(pendulum_swing_up(20, limit=8.0), solver=solver, options={"max_iterations": 8})
    spent = found.time_total
    assert list(spent) == [*PHASES, "other"] and all(spent[phase] > 0.0 for phase in spent)
    np.testing.assert_allclose(sum(spent.values()), found.meta["solve_time"])


# -- iterates -----------------------------------------------------------------------------------------------------------


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
