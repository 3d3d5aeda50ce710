"""`trajopt replan`: files, messages, replay, settings, and bundled scenarios."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import frame_placement
from experiments.cli.main import main
from experiments.cli.replan_command import late_plan_warnings, run_failures
from experiments.replan.plants import plants_of
from experiments.replan.run import distances, setup, simulate, statistics
from problems.robots import erd_names
from trajopt.config.config import ConfigError, load_config, read_config
from trajopt.config.scenario import MotionSettings, Settings, objects_of, planned
from trajopt.config.task import SettingsError
from trajopt.problem.goals import CLEARANCE
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.replanning.run_log import EventKind, RunLog
from trajopt.results.status import Status, StatusCode

CONFIG = """
[problem]
name = "arm_go_to"
robot = "double_pendulum"
frame = "tip"
q0 = [0.3, 0.4]
goal_position = [1.2, 0.0, -1.0]
horizon = 8
dt = 0.05
guess = "quasi_static"
[problem.weights]
control = 1e-2
goal = 100.0
[replan]
duration = 0.4
tick = 0.02
period = 0.04
lead = 0.02
charge = 0.02
[replan.plant]
step = 0.02
mass_factor = 1.1
[replan.goal]
term = "goal"
center = [1.2, 0.0, -1.0]
amplitude = [0.1, 0.0, 0.1]
frequency = [0.5, 0.0, 0.5]
[replan.faults]
fail_every = 3
"""
CONFIGS = Path(__file__).parents[2] / "problems" / "configs"
SCENARIOS = (
    "ur5_moving_goal",
    "cart_pole_balance",
    "ur5_faults",
    "irb4600_replan",
    "hyq_trot_mpc",
    "gen3_contour_fd_mpc",
    "gen3_contour_id_mpc",
)
FILES = {"run.npz", "run.json", "first_plan.npz", "config.toml"}
PICTURES = {"tracking.png", "states.png", "controls.png", "solve_times.png", "animation.html"}
SOLVED, FAILED, BAD_INPUT = 0, 1, 2


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(CONFIG)
    return str(path)


def _needs_ur5():
    if "ur5" not in erd_names():
        pytest.skip("the package example-robot-data is not installed")


def run(*arguments):
    return CliRunner().invoke(main, ["replan", *(str(a) for a in arguments)])


def test_a_run_is_reported_written_drawn_and_replayed(config, tmp_path):
    out = tmp_path / "out"
    result = run(config, "--out", out)
    assert result.exit_code == SOLVED, result.output
    assert {path.name for path in out.iterdir()} == FILES | PICTURES
    for said in ("solves", "failed solve 3", "distance to the goal [m]", str(out)):
        assert said in result.output
    account = json.loads((out / "run.json").read_text())
    assert account["statistics"]["failed"] == 3 and account["meta"]["plant"] == "own"
    page = (out / "animation.html").read_text()
    data = json.loads(page.split("const D = ", 1)[1].split(";\n", 1)[0])
    assert len(data["points"]) == len(data["times"]) == len(data["objects"]["goal"]) == 20
    assert [0.0, "failed solve"] not in data["events"] and len(data["events"]) == len(account["events"])
    again = run("--replay", out, "--out", tmp_path / "again", "--set", "output.plots=false")
    assert again.exit_code == BAD_INPUT and "remove CONFIG" in again.stderr
    again = run("--replay", out)
    assert again.exit_code == SOLVED, again.output
    assert ": 20 ticks, 10 solves" in again.output


def _ending_with(code):
    """Return a solve() whose solutions with the configuration's options have a given status code."""

    def solve(ocp, guess, *, solver="auto", options=None):
        found = to.solve(ocp, guess, solver=solver, options=options)
        return found if options is None else replace(found, status=Status(code, "By a test."))

    return solve


@pytest.mark.parametrize(
    ("code", "solver", "iterations", "instead"),
    [
        (StatusCode.LINE_SEARCH_FAILED, "slq", 200, True),
        (StatusCode.MAX_ITERATIONS, "slq", 200, True),
        (StatusCode.MAX_ITERATIONS, "slq", 30, False),  # requested by the configuration
        (StatusCode.TIME_LIMIT, "slq", 200, False),
        (StatusCode.LINE_SEARCH_FAILED, "auto", 200, False),
    ],
)
def test_auto_computes_the_first_plan_if_the_solver_fails(monkeypatch, config, code, solver, iterations, instead):
    monkeypatch.setattr("experiments.replan.run.solve", _ending_with(code))
    chosen = f"solver={{name='{solver}', max_iterations={iterations}}}"
    start = setup(load_config(config, [chosen]))
    expected = {"solver": solver, "status": f"{code}: By a test."} if instead else None
    assert start.first_plan.status.success is instead and start.first_plan.meta.get("instead_of") == expected


def test_an_interrupted_first_plan_is_not_executed(monkeypatch, config, tmp_path):
    monkeypatch.setattr("experiments.replan.run.solve", _ending_with(StatusCode.INTERRUPTED))
    out = tmp_path / "out"
    result = run(config, "--out", out)
    assert result.exit_code == FAILED and "interrupted: `trajopt replan` did not finish" in result.stderr
    assert not list(out.iterdir())


@pytest.mark.parametrize("looked_at", [0, 2, 5])
def test_ctrl_c_in_the_ticks_before_a_run_ends_it_too(monkeypatch, config, tmp_path, looked_at):
    """Also in the first solve of the run, before anything is saved."""
    from trajopt.replanning.sampled_plant import SampledPlant

    state, seen = SampledPlant.state, []

    def interrupted(plant):
        seen.append(plant)
        if len(seen) > looked_at:
            raise KeyboardInterrupt
        return state(plant)

    monkeypatch.setattr(SampledPlant, "state", interrupted)
    result = run(config, "--out", tmp_path / "out")
    assert result.exit_code == FAILED and "interrupted: `trajopt replan` did not finish" in result.stderr
    assert len(seen) == looked_at + 1


def test_a_first_plan_by_auto_is_reported_and_replayed(monkeypatch, config, tmp_path):
    """The saved first plan also contains the note that the Gauss-Newton solve failed."""
    monkeypatch.setattr("experiments.replan.run.solve", _ending_with(StatusCode.LINE_SEARCH_FAILED))
    out, curved = tmp_path / "out", []
    planner = RealTimeSLQ.__init__
    monkeypatch.setattr(
        RealTimeSLQ, "__init__", lambda self, *a, **k: curved.append(k["curved"]) or planner(self, *a, **k)
    )
    result = run(config, "--out", out, "--set", "solver='slq'", "--set", "output.plots=false")
    assert result.exit_code == SOLVED, result.output
    assert "solver slq failed, auto computed the first plan: line_search_failed: By a test." in result.stderr
    assert "replay identical" in run("--replay", out).output
    assert len(curved) > 2 and all(curved)


def test_a_replay_that_differs_is_reported(config, tmp_path):
    out = tmp_path / "out"
    run(config, "--out", out, "--set", "output.plots=false")
    text = (out / "config.toml").read_text()
    (out / "config.toml").write_text(text.replace("mass_factor = 1.1", "mass_factor = 1.2"))
    result = run("--replay", out)
    assert result.exit_code == FAILED and "replay differs" in result.stderr
    before = (out / "run.npz").read_bytes()
    refused = run("--replay", out, "--out", out)
    assert refused.exit_code and "choose another folder" in refused.stderr and (out / "run.npz").read_bytes() == before


def test_a_wall_clock_run_is_replayed(config, tmp_path):
    out = tmp_path / "out"
    result = run(config, "--realtime", "--out", out, "--set", "output.plots=false", "--set", "replan.duration=0.2")
    assert result.exit_code == SOLVED, result.output
    assert json.loads((out / "run.json").read_text())["meta"]["realtime"] is True
    assert "replay identical" in run("--replay", out).output


def test_plants_agree(config):
    """With exact masses, MuJoCo moves like the built-in plant."""
    pytest.importorskip("mujoco")
    changes = {"replan.plant.mass_factor": 1.0, "replan.plant.step": 0.005, "replan.duration": 0.2}
    settings = [load_config(config, changes | {"replan.plant.kind": kind}) for kind in ("own", "mujoco")]
    logs = [simulate(setup(one)) for one in settings]
    np.testing.assert_allclose(logs[0].xs, logs[1].xs, atol=1e-6)


@pytest.mark.parametrize(
    "extra", [{"mode": "converge"}, {"horizon": "shrinking"}, {"search": False}, {"bounds": False}]
)
def test_modes(config, extra):
    settings = load_config(config, ["replan.faults.fail_every=0", "solver.max_iterations=5"])
    start = setup(replace(settings, replan=replace(settings.replan, **extra)))
    log = simulate(start)
    assert {event.kind for event in log.events} <= {EventKind.HORIZON_ENDED}
    (distance,) = distances(start, log).values()
    assert distance[-1] < 0.5 * distance[0]
    assert statistics(start, log)["distance to the goal [m]"]["last"] == distance[-1]


def test_a_slow_planner_is_charged_for(config):
    settings = load_config(config, ["replan.faults.slow_factor=10.0", "replan.faults.fail_every=0"])
    log = simulate(setup(settings))
    assert [solve.known - solve.start for solve in log.solves] == [pytest.approx(0.2)]
    assert log.count(EventKind.LATE_PLAN) == 1 and log.count(EventKind.SKIPPED) == 8


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_can_be_built(name):
    config = load_config(CONFIGS / f"{name}.toml", ["engine='numpy'"])
    if name.startswith("ur5"):
        _needs_ur5()
    start = setup(replace(config, solver_options=replace(config.solver_options, max_iterations=0)))
    ocp = planned(start.task, config.replan)
    assert (ocp.control_bounds is None) is (
        not config.replan.bounds or name.startswith(("ur5", "hyq", "gen3_contour_id"))
    )
    robot = getattr(config.problem, "robot", config.problem_name)
    plant = plants_of(start.task, config.replan, lambda map: make_backend(map), robot)()
    np.testing.assert_array_equal(plant.state(), ocp.x0)


def test_the_dry_friction_of_a_light_wrist_is_integrated_in_steps_as_short_as_it_needs(tmp_path):
    """Held by friction, it creeps with w atanh(tau / c) of the smoothed law; steps of 1 ms alone make it oscillate."""
    path, c, w, tau = tmp_path / "wrist.urdf", 0.5, 0.05, 0.1
    inertia = '<inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" iyz="0"/>'
    path.write_text(
        '<robot name="wrist"><link name="base"/><joint name="j" type="revolute"><parent link="base"/><child link="tool"/>'
        '<axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="5"/></joint>'
        f'<link name="tool"><inertial><mass value="0.4"/>{inertia}</inertial></link></robot>'
    )
    problem = {"name": "arm_go_to", "robot": str(path), "goal_q": [0.5], "horizon": 5, "guess": "quasi_static"}
    run = {"plant": {"step": 0.001, "friction": c, "friction_velocity": w}}
    config = read_config({"engine": "numpy", "problem": problem, "solver": "sqp", "replan": run}, "test")
    task = setup(config).task
    plant = plants_of(task, config.replan, lambda map: make_backend(map, engine="numpy"), str(path))()
    for _ in range(20):
        plant.step(np.array([tau]), 0.001)
    np.testing.assert_allclose(plant.state()[1], w * np.arctanh(tau / c), rtol=1e-6)


def test_the_derivative_method_is_an_option_of_the_command(config, tmp_path):
    out = tmp_path / "out"
    result = run(config, "--backend", "complex_step", "--out", out, "--set", "output.plots=false")
    assert result.exit_code == SOLVED and load_config(out / "config.toml").backend.name == "complex_step"


@pytest.mark.parametrize("method", ["casadi_ad", "complex_step"])
def test_derivatives_are_a_setting(config, method):
    """Plans do not depend on the derivative method."""
    overrides = ["replan.faults.fail_every=0", "replan.duration=0.2", "solver='slq'"]
    logs = [simulate(setup(load_config(config, [*overrides, f"backend='{name}'"]))) for name in ("analytic", method)]
    np.testing.assert_allclose(logs[0].us, logs[1].us, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("method", ["casadi_ad", "complex_step"])
def test_derivatives_of_plans_around_an_obstacle_are_a_setting(method):
    """A solve from rest and one real-time iteration of SQP on few knots."""
    overrides = ["engine='numpy'", "problem.horizon=8", "problem.substeps=1", "replan.mode='real_time'"]
    overrides += [
        "replan.duration=0.1",
        "replan.tick=0.05",
        "replan.lead=0.0",
        "replan.charge=0.0",
        "replan.plant.step=0.05",
    ]
    path = CONFIGS / "irb4600_replan.toml"
    logs = []
    for name in ("analytic", method):
        once = "solver={name='sqp', hessian='gauss_newton', max_iterations=1}"  # exact ones need second derivatives
        config = load_config(path, [*overrides, once, f"backend='{name}'"])
        logs.append(simulate(setup(config)))
    assert all(solve.success for log in logs for solve in log.solves)
    np.testing.assert_allclose(logs[0].us, logs[1].us, rtol=1e-6, atol=1e-6)


def test_the_first_plan_is_not_judged_by_the_place_that_a_moving_obstacle_has_in_the_settings():
    """The sphere of the settings is in the way; the moving one is far away."""
    overrides = ["engine='numpy'", "problem.horizon=8", "problem.substeps=1"]
    config = load_config(CONFIGS / "irb4600_replan.toml", overrides)
    far = replace(config.replan.obstacle, center=(2.0, 0.0, -3.0))
    start = setup(replace(config, replan=replace(config.replan, obstacle=far)))
    plan, goals = start.first_plan, {goal.name: goal for goal in start.task.goals}
    assert goals[CLEARANCE].missed(plan.xs, plan.times)
    assert plan.status.code is not StatusCode.GOAL_MISSED


@pytest.mark.slow
def test_the_pole_is_balanced_under_pushes():
    config = load_config(
        CONFIGS / "cart_pole_balance.toml",
        ["replan.charge=0.0005", "replan.tick=0.002", "replan.period=0.002", "replan.lead=0.002"],
    )
    start = setup(config)
    log = simulate(start)
    assert not log.events and len(log.solves) == len(log.times) - 1
    angle = np.abs(log.xs[:, 1])
    pushed = log.times > 2.4
    assert 0.02 < angle[pushed].max() < 0.5  # pushes move it, and it does not fall
    assert angle[-1] < 1e-2 and abs(log.xs[-1, 0]) < 0.1


def test_limits_that_the_run_exceeds_are_reported(config, tmp_path):
    """A limit of velocity at the plant, which the plans do not enforce."""
    robot = tmp_path / "slow.urdf"
    source = Path(to.__file__).parents[1] / "problems" / "robots" / "double_pendulum.urdf"
    limit = '<limit effort="100" velocity="0.1"/>'
    robot.write_text(re.sub(r"<axis [^>]*/>", lambda axis: axis.group() + limit, source.read_text()))
    folder = tmp_path / "run"
    arguments = [
        "--set",
        f"problem.robot={robot}",
        "--set",
        "problem.velocity_limits=false",
        "--set",
        "replan.duration=0.1",
    ]
    result = run(config, *arguments, "--set", "output.plots=false", "--out", folder)
    assert result.exit_code == SOLVED, result.output
    assert "the velocity limit of " in result.output and "velocity_limits = true enforces it" in result.output


def test_clearance_of_the_links_is_in_the_log(config, tmp_path):
    """It is the smallest distance between the links and the sphere, by planar geometry."""
    path = tmp_path / "sphere.toml"
    obstacle = (
        "[problem.obstacle]\ncenter = [1.0, 0.0, -0.5]\nradius = 0.1\nmargin = 0.05\nweight = 1e3\nspacing = 0.5\n"
    )
    moving = '[replan.obstacle]\nterm = "obstacle"\nparameter = "center"\ncenter = [1.0, 0.0, -0.5]\nwander = [0.1, 0.1, 0.1]\n'
    path.write_text(CONFIG.replace("[replan]", obstacle + "[replan]") + moving)
    start = setup(load_config(str(path), ["replan.faults.fail_every=0", "replan.seed=5"]))
    log = simulate(start)
    model, nearest = start.task.ocp.model, np.full(len(log.times), np.inf)
    for first, last, begin in (("upper_rod", "lower_rod", 1), ("lower_rod", "tip", 0)):
        p, r = (frame_placement(model, log.xs[:, :2], name)[1] for name in (first, last))
        for fraction in np.linspace(0.0, 1.0, 101)[begin:]:
            nearest = np.minimum(nearest, np.linalg.norm(p + fraction * (r - p) - log.objects["obstacle"], axis=1))
    nearest -= 0.1
    np.testing.assert_allclose(log.clearances["obstacle"], nearest, atol=1e-12)
    failures = list(run_failures(start, replace(log, clearances={"obstacle": nearest - nearest.min() - 0.01}), {}))
    assert any("enters the obstacle by 0.01 m" in text for text in failures)
    assert statistics(start, log)["clearance from the obstacle [m]"]["smallest"] == pytest.approx(nearest.min())
    assert np.linalg.norm(np.diff(log.objects["obstacle"], axis=0), axis=1).max() <= 0.3 * 0.02 * (1 + 1e-9)
    log.save(tmp_path)
    np.testing.assert_array_equal(RunLog.load(tmp_path).clearances["obstacle"], log.clearances["obstacle"])


# -- settings -----------------------------------------------------------------------------------------------------------


def test_a_config_without_the_table_is_refused(config, tmp_path):
    path = tmp_path / "plain.toml"
    path.write_text(CONFIG.split("[replan]")[0])
    result = run(path)
    assert result.exit_code == BAD_INPUT and "`trajopt keys replan` lists its keys" in result.stderr
    assert run().exit_code == BAD_INPUT


@pytest.mark.parametrize("horizon, expected", [("receding", True), ("shrinking", False)])
def test_a_goal_that_recedes_with_its_horizon_is_reported_with_the_remedy(config, tmp_path, horizon, expected):
    """With a terminal weight alone, each plan postpones the motion; a shrinking horizon reaches the goal."""
    path = tmp_path / "still.toml"
    path.write_text(CONFIG.split("[replan.goal]")[0].replace("goal = 100.0", "terminal_goal = 1e4"))
    values = (
        "--set",
        f"replan.horizon={horizon}",
        "--set",
        "output.plots=false",
        "--set",
        "replan.plant.mass_factor=1.0",
    )
    result = run(path, "--out", tmp_path / "out", *values)
    assert result.exit_code == SOLVED, result.output
    assert ("set replan.horizon = 'shrinking'" in result.output) == expected


def test_constraints_that_the_planner_passes_over_are_named_before_the_first_plan(config, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.replan.run.solve", None)  # it would be called
    limits = "[[problem.obstacle]]\ncenter = [3.0, 0.0, 3.0]\nradius = 0.1\n"
    path = Path(config)
    path.write_text(path.read_text() + limits + '[solver]\nname = "slq"\n')
    result = run(config, "--out", tmp_path / "out")
    assert result.exit_code == BAD_INPUT
    assert (
        "does not support constraints, and the problem has 'obstacle 1'" in result.stderr
        and "replan.mode = 'converge'" in result.stderr
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("perod", 0.1, "replan.perod: unknown key; did you mean period?"),
        ("tick", -1.0, "replan.tick: expected a positive number"),
        ("period", 0.0001, "replan.period: expected at least the tick"),
        ("mode", "fast", "replan.mode: expected 'real_time' or 'converge'"),
        ("plant", {"pushes": [[1.0, 2.0, 3.0]]}, "replan.plant.pushes: expected rows"),
        ("sensor", {"dropped": [[2.0, 1.0]]}, "replan.sensor.dropped: expected pairs"),
        ("goal", {"amplitude": [1.0]}, "replan.goal.amplitude: expected as many numbers as center"),
        ("faults", {"slow_factor": 0.5}, "replan.faults.slow_factor: expected a number of at least 1"),
        ("duration", float("inf"), "replan.duration: expected at least one tick and at most 10000000 ticks"),
        ("duration", 1e12, "replan.duration: expected at least one tick and at most 10000000 ticks"),
        ("period", float("inf"), "replan.period: expected a finite number, got inf"),
        ("deadline", float("inf"), "replan.deadline: expected a finite number, got inf"),
        ("charge", float("inf"), "replan.charge: expected a finite number, got inf"),
        ("seed", -1, "replan.seed: expected a number of at least 0"),
        ("plant", {"mass_factor": float("inf")}, "replan.plant.mass_factor: expected a finite number, got inf"),
        ("plant", {"step": 1e-300}, "replan.tick: expected a positive number of seconds, of at most 10000 steps"),
        ("plant", {"slope": 0.1}, "replan.plant.slope: expected an angle below a right one, and 0 with kind = 'own'"),
        ("plant", {"boxes": [[1.0, 0.0, 1.0, 1.0, 0.1]]}, "replan.plant.boxes: expected rows"),
        (
            "plant",
            {"contact_friction": 0.4},
            "replan.plant.contact_friction: expected a finite number of at least 0; remove",
        ),
        (
            "plant",
            {"kind": "mujoco", "friction": 0.1},
            "replan.plant.friction: expected a finite number of at least 0, and 0",
        ),
        ("faults", {"slow_factor": float("inf")}, "replan.faults.slow_factor: expected a finite number, got inf"),
        ("goal", {"center": [1.0, 0.0, 0.0]}, "replan.goal: expected its term"),
        ("obstacle", {"term": "ball", "noise": float("inf")}, "replan.obstacle.noise: expected finite numbers"),
        (
            "obstacle",
            {"term": "ball", "wander": [1e-9, 1e-9, 1e-9]},
            "replan.obstacle.wander_speed: expected a positive number of at most 10000 times",
        ),
    ],
)
def test_mistakes_in_the_table(key, value, said):
    problem = {"name": "cart_pole"}
    with pytest.raises(ConfigError) as caught:
        read_config({"problem": problem, "replan": {key: value}})
    assert any(issue.startswith(said) for issue in caught.value.issues), caught.value.issues


def test_the_chosen_plant_decides_which_settings_are_valid(config):
    refused = run(config, "--plant", "mujoco", "--set", "replan.plant.friction=0.1")
    assert refused.exit_code == BAD_INPUT
    assert "replan.plant.friction: expected a finite number of at least 0, and 0 with kind" in refused.output
    pytest.importorskip("mujoco")
    short = ["--set", "replan.duration=0.05", "--set", "output.plots=false"]
    accepted = run(config, "--plant", "mujoco", "--set", "replan.plant.contact_friction=0.5", *short)
    assert accepted.exit_code == SOLVED, accepted.output


def test_times_that_ticks_round_are_listed():
    table = {"duration": 0.0123, "tick": 0.005, "period": 0.012, "lead": 0.01}
    notes = read_config({"problem": {"name": "cart_pole"}, "replan": table}).notes
    assert notes == (
        "replan.duration = 0.0123 s is rounded to 2 ticks: 0.01 s",
        "replan.period = 0.012 s is not a multiple of the tick, 0.005 s: solves begin at the next tick",
    )
    assert read_config({"problem": {"name": "cart_pole"}, "replan": {}}).notes == ()


def test_points_swing_and_jump():
    motion = MotionSettings(
        center=(1.0, 2.0), amplitude=(0.5, 0.0), frequency=(0.25, 0.0), phase=(0.0, 0.0), jumps=((3.0, 0.0, -1.0),)
    )
    np.testing.assert_allclose(motion.at(1.0), [1.5, 2.0], atol=1e-15)
    np.testing.assert_allclose(motion.at(3.0), [0.5, 1.0], atol=1e-15)
    with pytest.raises(SettingsError):
        MotionSettings(center=(1.0,), jumps=((1.0, 2.0, 3.0),))
    assert [item.name for item in objects_of(Settings(obstacle=MotionSettings(term="ball")))] == ["ball"]


def test_an_unknown_pushed_joint_is_named(config):
    settings = load_config(config, ["replan.plant.push_joints=['elbo']", "replan.plant.pushes=[[0.1, 0.1, 1.0]]"])
    with pytest.raises(KeyError, match="elbow"):
        simulate(setup(settings))


def test_falls_and_failed_plans_are_reported():
    """Each failure is reported; failed solves have the message of the first one."""
    kinds = [EventKind.LATE_PLAN, *3 * [EventKind.FAILED_SOLVE]]
    events = [SimpleNamespace(kind=kind, time=0.1 * i, message=f"reason {i}") for i, kind in enumerate(kinds)]
    seen = {"events": events, "solves": [0] * 5, "count": [e.kind for e in events].count, "clearances": {}}
    log = SimpleNamespace(xs=None, times=None, **seen)
    start = SimpleNamespace(task=SimpleNamespace(fallen=lambda xs, times: ["it falls"]))
    failed = "3 of 5 solves failed, the first at 0.100 s: reason 1"
    assert list(run_failures(start, log, {})) == ["it falls", failed]
    assert list(run_failures(start, log, {"distance to the goal [m]": {"smallest": 0.05}})) == ["it falls", failed]
    *_, expected = run_failures(start, log, {"distance to the goal [m]": {"smallest": 0.75}})
    assert "the smallest distance to the goal was 0.75 m" in expected
    log.solves = [0] * 6
    assert list(run_failures(start, log, {"distance to the goal [m]": {"smallest": 0.75}})) == ["it falls"]


def test_measured_times_of_late_plans_are_a_possible_cause(config):
    """The remedy of late or skipped solves is a fixed charge; punctual solves need none."""
    log = simulate(setup(load_config(config, ["replan.faults.slow_factor=10.0", "replan.faults.fail_every=0"])))
    (warning,) = late_plan_warnings(log)
    assert "1 plans were late, and 8 times no solve began" in warning and "replan.charge = " in warning
    assert late_plan_warnings(replace(log, events=[])) == []


def test_the_log_of_a_run_is_read_back(config, tmp_path):
    log = simulate(setup(load_config(config)))
    log.save(tmp_path)
    np.testing.assert_array_equal(RunLog.load(tmp_path).xs, log.xs)
