"""Commanded and achieved speeds and distances of gaits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from contact_cases import FEET, STANCE

from dynamics_backends.registry import make_backend
from experiments.cli.main import main
from problems.legged.gaits import quadruped_gait, receding_gait, scheduled_gait
from problems.legged.gaits.commands import distance_sentence, speed_sentence, travel_sentences
from problems.legged.gaits.gait import Gait
from trajopt.config.build import build_task
from trajopt.config.config import ConfigError, load_config
from trajopt.config.task import SettingsError

CONFIGS = Path(__file__).parents[3] / "problems" / "configs"
TIMES = {"swing": 0.2, "support": 0.05}


def numpy_backend(system):
    return make_backend(system, "analytic", engine="numpy")


def accelerated(count=101, duration=2.0):
    """States whose base is at x = t^2, and their times."""
    times = np.linspace(0.0, duration, count)
    xs = np.zeros((count, 37))
    xs[:, 0] = times**2
    return xs, times


def test_speed_is_the_mean_over_a_part_of_the_motion():
    xs, times = accelerated()
    whole, second_half = speed_sentence(1.0, xs, times), speed_sentence(1.0, xs, times, 0.5)
    part = "mean velocity of the base along x from"
    assert whole == f"commanded 1.00 m/s, achieved 2.00 m/s ({part} 0.00 to 2.00 s)"
    assert second_half == f"commanded 1.00 m/s, achieved 3.00 m/s ({part} 1.00 to 2.00 s)"
    assert distance_sentence(3.0, xs, times) == "commanded 3.00 m, achieved 4.00 m along x in 2.00 s"
    assert travel_sentences(0.0, xs, times) == []


@pytest.mark.parametrize("name", ["trot", "pace", "walk", "jump"])
def test_the_base_of_a_gait_travels_the_distance(name):
    gait = Gait.named(name, FEET, **TIMES, cycles=3).over(0.9)
    base = gait.references(np.array([0.0, gait.duration]), np.zeros((4, 3))).base
    assert base[1, 0] == pytest.approx(0.9)
    assert gait.step_length == pytest.approx(0.3)


def test_distance_of_a_gait_whose_feet_step_unevenly():
    gait = Gait.in_turn(FEET, [FEET[:1], FEET[:1], FEET[1:2]], **TIMES).over(0.3)
    base = gait.references(np.array([0.0, gait.duration]), np.zeros((4, 3))).base
    assert base[1, 0] == pytest.approx(0.3)


def test_a_gait_without_steps_cannot_travel():
    with pytest.raises(ValueError, match="takes no steps"):
        Gait.named("stand", FEET, **TIMES).over(0.3)


def test_distance_of_a_scheduled_gait():
    settings = {"joints": tuple(STANCE), "swing": 0.04, "support": 0.01, "step_height": 0.01}
    task = scheduled_gait.build(scheduled_gait.Settings(**settings, distance=0.05, cycles=2), numpy_backend)
    goal = task.ocp.terminal[0].parameters["position"]
    assert np.ravel(goal)[0] == pytest.approx(0.05)
    xs = np.tile(task.ocp.x0, (len(task.ocp.times), 1))
    speed, distance = task.commands(xs, task.ocp.times)
    assert speed.startswith(f"commanded {0.05 / task.ocp.times[-1]:.2f} m/s, achieved 0.00 m/s")
    assert distance.startswith("commanded 0.05 m, achieved 0.00 m")


def test_distance_of_a_quadruped_gait_is_its_goal_and_its_velocity():
    s = quadruped_gait.Settings(horizon=100, dt=0.02, distance=1.0)
    assert s.end == (1.0, 0.0) and s.speed == pytest.approx(0.5)
    plain = quadruped_gait.Settings()
    assert plain.end == (0.0, 0.0) and plain.speed == 0.0


def test_distance_of_a_receding_gait_is_that_of_all_cycles():
    s = receding_gait.Settings(joints=tuple(STANCE), horizon=2, substeps=2, distance=3.0, cycles=10)
    task = receding_gait.build(s, numpy_backend)
    late = task.moved(task.ocp, 60.0)
    base = next(term for term in late.terms() if term.name == "base")
    assert np.atleast_2d(base.parameters["position"])[0, 0] == pytest.approx(3.0)


def test_distance_of_a_free_gait_is_that_of_the_run():
    config = load_config(CONFIGS / "hyq_free_walk.toml", ["problem.distance=3.0", "replan.duration=6.0"])
    assert (config.problem.velocity, config.problem.distance) == (0.5, None)
    assert config.notes == ("problem.distance = 3 m in replan.duration of 6 s: problem.velocity is 0.5 m/s",)


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        (lambda: scheduled_gait.Settings(distance=0.3, step_length=0.1), "step_length"),
        (lambda: receding_gait.Settings(distance=0.3, step_length=0.1), "step_length"),
        (lambda: quadruped_gait.Settings(distance=0.3, velocity=0.1), "velocity or goal"),
        (lambda: quadruped_gait.Settings(distance=0.3, goal=(1.0, 0.0)), "velocity or goal"),
        (lambda: quadruped_gait.Settings(distance=float("inf")), "velocity or goal"),
    ],
)
def test_a_distance_with_the_keys_that_it_replaces_is_rejected(settings, other):
    with pytest.raises(SettingsError, match=f"distance: expected a finite number, and {other} unset"):
        settings()


def test_a_distance_given_on_the_command_line_replaces_the_velocity_of_the_file():
    left_out = []
    config = load_config(CONFIGS / "hyq_trot.toml", ["problem.distance=2.0"], left_out.append)
    assert (config.problem.distance, config.problem.velocity, config.problem.goal) == (2.0, None, None)
    assert sorted(left_out) == [
        "problem.goal of the file is left out: problem.distance is given",
        "problem.velocity of the file is left out: problem.distance is given",
    ]
    with pytest.raises(ConfigError, match="problem.distance: expected a finite number, and velocity or goal unset"):
        load_config(CONFIGS / "hyq_trot.toml", ["problem.distance=2.0", "problem.velocity=1.0"])


def test_phases_that_are_no_whole_number_of_steps_are_rounded_with_a_warning():
    """The references use the rounded times, so feet land at knots."""
    settings = {"joints": tuple(STANCE), "support": 0.0, "step_height": 0.01, "dt": 0.03, "swing": 0.1}
    task = scheduled_gait.build(scheduled_gait.Settings(**settings), numpy_backend)
    assert task.ocp.times[-1] == pytest.approx(0.21)
    (warning,) = task.warnings
    assert "phases are rounded to time steps of problem.dt = 0.03 s: 0.1 s to 0.09 s, 0.1 s to 0.12 s" in warning
    weights = [np.asarray(term.weight).max() for phase in task.ocp.phases for term in phase.terms]
    assert scheduled_gait.Settings().foot_weights.landing in weights
    assert not scheduled_gait.build(scheduled_gait.Settings(**{**settings, "dt": 0.05}), numpy_backend).warnings


def test_a_waypoint_beyond_the_motion_is_a_warning():
    task = build_task(load_config(CONFIGS / "hyq_jump.toml", ["engine=numpy", "problem.horizon=2"]))
    assert any("problem.waypoint has no effect" in w and "lasts 0.01 s" in w for w in task.warnings)


def test_commands_list_scaled_numbers_and_achieved_values(small_hyq, tmp_path):
    """`validate`, `solve` and `replan` print the same notes; a velocity given by the user is not listed."""
    short = ["problem.horizon=2", "problem.velocity=0.5", f"problem.robot={small_hyq}", "engine=numpy"]
    short += ["solver.max_iterations=1", "replan.duration=0.01", "replan.plant.kind=own", "output.plots=false"]
    arguments = [str(CONFIGS / "hyq_free_walk.toml"), *(a for o in short for a in ("--set", o))]
    listed = []
    for command in ("validate", "solve", "replan"):
        out = [] if command == "validate" else ["--out", str(tmp_path / command)]
        output = CliRunner().invoke(main, [command, *arguments, *out]).output
        assert "Traceback" not in output, output
        listed.append([line for line in output.splitlines() if " -> " in line or line.startswith("numbers for hyq")])
        if command != "validate":
            assert "commanded 0.50 m/s, achieved" in output
    assert listed[0] and listed[0] == listed[1] == listed[2]
    assert any("problem.dt: 0.02 -> 0.01265" in line for line in listed[0])
    assert not any("problem.velocity" in line for line in listed[0])
