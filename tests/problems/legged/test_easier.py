"""Gaits on stepped contacts, solved after problems with more relaxed contacts."""

from pathlib import Path

import numpy as np
import pytest

import problems
from experiments.analysis.gait_analysis import LOADED, contact_forces, contacts, foot_positions
from experiments.cli.console_reports import print_report
from experiments.replan.run import setup
from experiments.sweep.run import FromConfig
from problems.legged.gaits.free_gait import resting_controls
from problems.legged.gaits.quadruped_gait import Settings
from trajopt import Guess, StatusCode, solve
from trajopt.config.build import build_task, solve_task
from trajopt.config.config import load_config
from trajopt.config.task import SettingsError
from trajopt.sweeps.rows import solve_row

CONFIG = Path(problems.__file__).parent / "configs" / "hyq_trot_stepped.toml"
SHORT = [
    "engine='numpy'",
    "problem.horizon=2",
    "solver.name='slq'",
    "solver.max_iterations=1",
    "solver.kkt_tolerance=1e-12",
]


def relaxation(ocp):
    (phase,) = ocp.phases
    return float(phase.parameters["contact_relaxation"][0])


def test_a_gait_starts_from_the_solution_on_more_relaxed_contacts():
    config = load_config(CONFIG, [*SHORT, "solver.gradient_tolerance=1e-12"])
    task = build_task(config)
    assert [relaxation(ocp) for ocp in (*task.easier, task.ocp)] == [1.0, 0.05]
    found = solve_task(config, task)
    assert found.meta["easier"] == [{"iterations": 1, "status": "max_iterations", "success": False}]
    eased = solve(task.easier[0], task.guess, config.solver_options, solver="slq", check=False)
    own = solve(task.ocp, Guess(eased.xs, eased.us), config.solver_options, solver="slq", check=False)
    np.testing.assert_array_equal(found.xs, own.xs)
    assert (
        "easier" not in solve_task(config, task, guess=task.guess).meta
    )  # relaxed problems are skipped for a user-defined guess


def test_rows_of_a_study_and_first_plans_start_from_relaxed_problems():
    config = load_config(CONFIG, [*SHORT, "replan.duration=0.1", "replan.mode='converge'"])
    found = solve_task(config, build_task(config))
    row, first = solve_row(FromConfig.from_config(config)()), setup(config).first_plan
    np.testing.assert_array_equal(row.xs, found.xs)
    np.testing.assert_array_equal(first.xs, found.xs)
    assert row.meta["easier"] == first.meta["easier"] == found.meta["easier"]


def test_ctrl_c_in_a_relaxed_problem_names_the_solution():
    def interrupted(record):
        raise KeyboardInterrupt

    config = load_config(CONFIG, SHORT)
    found = solve_task(config, build_task(config), interrupted)
    assert found.status.code is StatusCode.INTERRUPTED
    assert "relaxed problem 1 of 1; the actual problem was not started" in found.status.message


def test_easier_problems_that_were_not_solved_are_reported(capsys):
    config = load_config(CONFIG, SHORT)
    task = build_task(config)
    print_report(solve_task(config, task))
    out, err = capsys.readouterr()
    assert "Relaxed problems: 1 iteration." in out
    assert "warning: relaxed problem 1 was not solved: max_iterations" in err


def test_relaxations_are_those_of_the_robots_size():
    task = build_task(load_config(CONFIG, [*SHORT, "problem.robot='erd:go2'"]))
    eased, own = relaxation(task.easier[0]), relaxation(task.ocp)
    assert eased / own == pytest.approx(20.0) and 0.0 < own < 0.05


def test_relaxations_of_other_contacts_are_refused():
    with pytest.raises(
        SettingsError, match=r"easier: expected positive numbers \[J\], with contact_law one of relaxed_cone"
    ):
        Settings(contact_law="exponential", easier=(1.0,))


def test_a_relaxed_contact_is_on_the_ground_where_it_touches():
    """At 3 cm above the ground the feet of a falling robot carry a tenth of their standing load, which is no contact."""
    task = build_task(load_config(CONFIG, [*SHORT, "problem.contact_parameters.relaxation=1.0"]))
    resting = resting_controls(task.ocp.phases[0].dynamics.sampling.backend, task.ocp.x0)
    xs, us = np.tile(task.ocp.x0, (3, 1)), np.tile(resting, (2, 1))
    assert contacts(task.ocp, task.feet, xs, us).all()
    xs[:, 2] += 0.03 - foot_positions(task.ocp, task.feet, xs[:1])[0, :, 2].min()
    fraction = 9.81 * task.ocp.model.total_mass / 4
    assert min(force[0, 2] for force in contact_forces(task.ocp, xs, 0.0 * us).values()) > LOADED * fraction
    assert not contacts(task.ocp, task.feet, xs, 0.0 * us).any()


def test_a_foot_that_slips_above_the_ground_is_in_the_air():
    """Slipping feet are pushed from 1 cm below by more than resting ones that just touch."""
    task = build_task(load_config(CONFIG, SHORT))
    nq, still = task.ocp.model.nq, np.zeros((2, task.ocp.nu))
    xs = np.tile(task.ocp.x0, (3, 1))
    xs[:, 2] += 0.01 - foot_positions(task.ocp, task.feet, xs[:1])[0, :, 2].min()
    xs[:, nq] = 3.0
    touching = np.sqrt(task.ocp.phases[0].dynamics.sampling.backend.map.law.stiffness * relaxation(task.ocp))
    assert max(force[0, 2] for force in contact_forces(task.ocp, xs, still).values()) > touching
    assert not contacts(task.ocp, task.feet, xs, still).any()
