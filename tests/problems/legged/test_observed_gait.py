"""Warm start of a rigid problem from a soft one: the observed schedule, and the rigid problem with this schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contact_cases import FEET, STANCE

import trajopt as to
from dynamics_backends.registry import make_backend
from experiments.analysis.gait_analysis import contact_forces
from problems.legged.gaits.gait import Gait, GaitPhase
from problems.legged.gaits.scheduled_gait import Settings, build
from trajopt.config.task import SettingsError

LF, RF, LH, RH = FEET
STEP = 0.01
SHORT = {"joints": tuple(STANCE), "swing": 0.04, "support": 0.01, "step_length": 0.02, "step_height": 0.01}
OBSERVED = {key: value for key, value in SHORT.items() if key != "step_length"}


def signals(gait: Gait, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return times (M + 1,) and contacts (M, F) of a schedule."""
    times = step * np.arange(round(gait.duration / step) + 1)
    ends = np.cumsum([phase.duration for phase in gait.phases])
    at = np.searchsorted(ends, times[:-1] + 0.5 * step)
    return times, np.array([[foot in gait.phases[i].stance for foot in gait.feet] for i in at])


def phases_of(gait: Gait) -> list[tuple[tuple[str, ...], float]]:
    return [(phase.stance, round(phase.duration, 9)) for phase in gait.phases]


@pytest.mark.parametrize("name", ["trot", "pace", "bound", "walk"])
def test_a_schedule_is_recovered_from_its_contacts(name):
    gait = Gait.named(name, FEET, swing=0.2, support=0.06, cycles=2)
    times, contact = signals(gait, 0.005)
    assert phases_of(Gait.observed(FEET, times, contact, step=STEP, min_duration=0.05)) == phases_of(gait)
    rng = np.random.default_rng(0)
    for foot in range(4):  # a foot that bounces, and one that slips, for a moment in the middle of a phase
        middle = round(np.cumsum([p.duration for p in gait.phases])[1] / 0.005) - 20 + int(rng.integers(3))
        contact[middle : middle + 3, foot] ^= True
    assert phases_of(Gait.observed(FEET, times, contact, step=STEP, min_duration=0.05)) == phases_of(gait)


def test_contacts_of_another_size_are_reported():
    with pytest.raises(ValueError, match=r"contact has shape \(3, 4\); expected \(4, 4\): times less one, feet"):
        Gait.observed(FEET, np.arange(5.0), np.ones((3, 4), dtype=bool), step=0.1, min_duration=0.1)


@pytest.fixture(scope="module")
def soft(tmp_path_factory):
    """Save a motion on soft ground: two diagonal feet lifted for 5 of 9 knots, all feet 1 cm further at the end."""
    task = build(Settings(**{**SHORT, "contact": "soft", "substeps": 14, "swing": 0.07}), make_backend)  # type: ignore[arg-type]
    solution = to.solve(task.ocp, task.guess, {"max_iterations": 0})
    xs = np.tile(task.ocp.x0, (len(solution.xs), 1))
    knees = [i for i, name in enumerate(task.ocp.model.q_names) if name.endswith("kfe_joint")]
    knees = [knees[0], knees[3]] if knees else [9, 18]
    xs[2:7, knees] += 0.4 * np.sign(xs[2:7, knees])
    xs[-1, 0] += 0.01
    return replace(solution, xs=xs).save(tmp_path_factory.mktemp("soft") / "soft.npz")


def test_the_rigid_problem_has_the_schedule_of_the_soft_motion(soft):
    task = build(Settings(**{**OBSERVED, "schedule_of": str(soft), "min_contact_time": 0.02}), make_backend)  # type: ignore[arg-type]
    assert [phase.knots for phase in task.ocp.phases] == [2, 5, 1, task.ocp.horizon - 8]  # the third is the impact
    assert not task.ocp.phases[2].dynamics.takes_time  # type: ignore[attr-defined]
    forces = contact_forces(task.ocp, task.guess.xs, task.guess.us)
    carrying = {foot for foot in FEET if forces[foot][4].any()}
    assert carrying in ({LF, RH}, {RF, LH})
    held = build(Settings(**{**OBSERVED, "schedule_of": str(soft), "min_contact_time": 0.08}), make_backend)  # type: ignore[arg-type]
    assert len(held.ocp.phases) == 1
    guess = to.resampled_guess(task.ocp, to.Solution.load(soft))
    started = to.solve(task.ocp, guess, {"max_iterations": 1}, solver="fddp")
    assert np.isfinite(started.cost)


def test_a_solution_of_another_robot_is_reported(soft):
    other = to.Solution.load(soft)
    path = replace(other, xs=other.xs[:, :-1]).save(soft.parent / "other.npz")
    with pytest.raises(ValueError, match="schedule_of: that solution has nx = 36, nu = 12; .* has nx = 37, nu = 12"):
        build(Settings(**{**OBSERVED, "schedule_of": str(path)}), make_backend)  # type: ignore[arg-type]


def test_a_solution_that_moves_sideways_is_reported(soft):
    """A schedule has no sideways steps; a small lateral displacement is accepted."""
    other = to.Solution.load(soft)
    for sideways, refused in ((0.04, False), (-0.3, True)):
        xs = other.xs.copy()
        xs[-1, 1] += sideways
        path = replace(other, xs=xs).save(soft.parent / "sideways.npz")
        settings = Settings(**{**OBSERVED, "schedule_of": str(path), "min_contact_time": 0.02})  # type: ignore[arg-type]
        if not refused:
            assert build(settings, make_backend).ocp.horizon
            continue
        with pytest.raises(ValueError, match=r"schedule_of: .* move 0.30 m sideways and 0.01 m along x"):
            build(settings, make_backend)


def test_a_step_length_and_a_solution_are_refused(soft):
    with pytest.raises(SettingsError, match="schedule_of: expected no step_length and no distance"):
        Settings(**{**SHORT, "schedule_of": str(soft)})  # type: ignore[arg-type]


def test_flight_is_a_separate_phase():
    gait = Gait(feet=FEET, phases=(GaitPhase(FEET, 0.1), GaitPhase((), 0.2), GaitPhase(FEET, 0.1)))
    times, contact = signals(gait, STEP)
    assert phases_of(Gait.observed(FEET, times, contact, step=STEP, min_duration=0.05)) == phases_of(gait)
    task = build(Settings(**{**SHORT, "swings": (FEET,)}), make_backend)  # type: ignore[arg-type]
    assert [phase.knots for phase in task.ocp.phases] == [1, 4, 1, 1]
    assert to.validate(task.ocp, task.guess) == [] and not task.guess.us[1:5].any()
