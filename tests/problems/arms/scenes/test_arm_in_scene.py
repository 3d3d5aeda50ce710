"""Arms in scenes: a planar arm of two links around a post, and errors of wrong settings."""

import gc
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from weakref import ref

import numpy as np
import pytest
from two_link_arm import two_link_arm

import trajopt as to
from dynamics_backends.names import UnknownName
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from problems.arms.scenes import arm_in_scene
from problems.arms.scenes.arm_in_scene import Settings, build, robot_of
from problems.arms.scenes.in_scene import Limits, guess_from_timing, motion_at
from problems.arms.scenes.scene_refinement import matching_multipliers
from problems.arms.scenes.scene_robot import CACHE_SIZE, Carried, LinkCapsule
from problems.arms.scenes.scene_settings import SceneBody, load_scene, quaternion_matrix
from trajopt.collisions.free_space import FreeSpace
from trajopt.config.build import (
    build_task,
    solve_task,
    solve_with_refinement,
    with_iteration_limit,
    with_smaller_tolerance,
)
from trajopt.config.config import read_config
from trajopt.config.task import Refined, SettingsError
from trajopt.guesses.timed_path import Timing
from trajopt.solvers.refinement import Again
from trajopt.validation.limit_violations import constraint_violations

needs_coal = pytest.mark.skipif(find_spec("coal") is None, reason="the package coal is not installed")
ARM = two_link_arm(effort=20, velocity=2)
POST = {"name": "post", "type": "cylinder", "radius": 0.05, "length": 1.0, "position": [0.95, 0.0, 0.0]}


@pytest.fixture
def robot(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    return str(path)


def config(robot, **problem):
    settings = {
        "name": "arm_in_scene",
        "robot": robot,
        "q0": [-0.6, 0.0],
        "goal_q": [0.6, 0.0],
        "body": [POST],
        "knots": 24,
    }
    settings |= {"acceleration_limits": 10.0, "self_collision": False, "guess": "straight"} | problem
    solver = {"name": "dms", "gradient_tolerance": 1e-5, "constraint_tolerance": 1e-7}
    return read_config({"problem": settings, "solver": solver}, "test")


def test_a_goal_that_is_the_start_is_refused(robot):
    with pytest.raises(ValueError, match=r"the goal is the start: change problem\.q0 or the goal"):
        build_task(config(robot, goal_q=[-0.6, 0.0]))


def test_a_margin_that_is_large_for_the_robot_is_reported(robot):
    assert not any("problem.margin" in w for w in build_task(config(robot)).warnings)
    warnings = build_task(config(robot, body=[], self_collision=True, margin=0.1)).warnings
    assert any("problem.margin = 100 mm is large for a reach of" in w for w in warnings)


def test_covers_that_touch_at_the_start_prevent_a_plan_and_say_so(robot, monkeypatch):
    assert not any("no path" in w for w in build_task(config(robot, guess="auto")).warnings)
    monkeypatch.setattr(FreeSpace, "touches", lambda *_: True)
    (warning,) = [w for w in build_task(config(robot, guess="auto")).warnings if "no path" in w]
    assert "reduce problem.cover_tolerance (0.02 m)" in warning
    assert not any("no path" in w for w in build_task(config(robot)).warnings)
    with pytest.raises(ValueError, match='guess = "rrt": the convex pieces .* no path is planned'):
        build_task(config(robot, guess="rrt"))


@needs_coal
def test_around_a_post_and_within_all_limits(robot):
    pytest.importorskip("cyipopt")
    chosen = config(robot)
    solution = solve_task(chosen, build_task(chosen))
    assert solution.status.success, solution.status.message
    assert "smallest distance" in solution.meta["check"]
    q, v, a, times = motion_at(solution, 2, 1000.0)
    np.testing.assert_allclose([q[0], q[-1]], [[-0.6, 0.0], [0.6, 0.0]], atol=1e-6)
    assert np.abs(v[-1]).max() < 1e-6 and np.abs(v).max() < 2.0 + 1e-3 and np.abs(a).max() < 10.0 + 1e-6
    model = build_task(chosen).ocp.model
    assert np.abs(inverse_dynamics(model, q, v, a)).max() < 20.0 * 1.02
    assert np.abs(q[:, 1]).max() > 0.3  # it folds to pass
    tip = np.stack(
        [0.5 * np.cos(q[:, 0]) + 0.5 * np.cos(q.sum(axis=1)), 0.5 * np.sin(q[:, 0]) + 0.5 * np.sin(q.sum(axis=1))]
    )
    assert np.hypot(tip[0] - 0.95, tip[1]).min() > 0.05
    assert times[-1] < 2.0
    stream = list(to.setpoints(build_task(chosen).ocp, solution, 200.0))
    assert solution.duration == stream[-1].t == pytest.approx(times[-1])
    np.testing.assert_allclose(stream[0].u, inverse_dynamics(model, q[0], v[0], a[0]), rtol=1e-9)
    assert max(np.abs(s.u).max() for s in stream) < 20.0 * 1.02


@needs_coal
def test_a_load_is_carried_around_the_post_and_costs_torque(robot):
    """A rod along the last link reaches farther, and its 3 kg take part of the torque."""
    ipm = {"name": "ipm", "hessian": "gauss_newton", "gradient_tolerance": 1e-4, "constraint_tolerance": 1e-6}
    rod = {
        "name": "rod",
        "frame": "l2",
        "type": "cylinder",
        "radius": 0.02,
        "length": 0.2,
        "position": [0.45, 0.0, 0.0],
    }

    carried = [{**rod, "rotation": [0.0, 1.5708, 0.0], "mass": 3.0}]
    values = config(robot, guess="auto", torque_scale=0.75, carried=carried).as_dict()
    chosen = read_config({**values, "solver": ipm}, "test")
    task = build_task(chosen)
    loaded = solve_task(chosen, task)
    assert loaded.status.success, loaded.status.message
    q, v, a, _ = motion_at(loaded, 2, 200.0)
    tau = inverse_dynamics(task.ocp.model, q, v, a)
    bare = inverse_dynamics(load_urdf(robot, base="fixed"), q, v, a)
    assert 15.0 * 0.97 < np.abs(tau).max() < 15.0 * 1.01
    assert np.abs(bare).max() < 0.8 * np.abs(tau).max()
    reach = np.cos(q[:, 0]) * 0.5 + np.cos(q.sum(axis=1)) * 0.55, np.sin(q[:, 0]) * 0.5 + np.sin(q.sum(axis=1)) * 0.55
    assert np.hypot(reach[0] - 0.95, reach[1]).min() > 0.05  # the far end of the rod


def test_user_defined_capsules(robot):
    capsule = {"link": "l2", "a": (0.0, 0.0, 0.0), "b": (0.5, 0.0, 0.0), "radius": 0.2}
    settings = Settings(robot=robot, goal_q=(0.6, 0.0), capsule=LinkCapsule(**capsule), self_collision=False)
    cover = robot_of(settings).cover
    (own,) = [i for i, link in enumerate(cover.links) if link == "l2"]
    assert cover.radii[own] == 0.2
    with pytest.raises(SettingsError, match="positive length"):
        LinkCapsule(**{**capsule, "radius": 0.0})
    with pytest.raises(UnknownName):
        robot_of(replace(settings, capsule=LinkCapsule(**{**capsule, "link": "l9"})))


def test_capsules_of_few_robots_are_cached(robot):
    """Carried bodies may differ in every scene of a study; the latest robots are cached."""

    def cover(mass):
        thing = Carried(name="ball", type="sphere", radius=0.1, frame="l2", mass=mass)
        return robot_of(Settings(robot=robot, goal_q=(0.6, 0.0), carried=thing, self_collision=False)).cover

    first = ref(cover(0.5))
    assert cover(0.5) is first()
    last = [cover(1.0 + i) for i in range(CACHE_SIZE)][-1]
    gc.collect()
    assert first() is None and cover(float(CACHE_SIZE)) is last


def test_invalid_carried_bodies_are_refused(robot):
    with pytest.raises(SettingsError, match="a bounded shape"):
        Carried(name="floor", type="half_space", frame="l2")
    with pytest.raises(SettingsError, match="moves with the robot"):
        Carried(name="ball", type="sphere", radius=0.1, frame="l2", times=(0.0, 1.0), offsets=((0, 0, 0), (1, 0, 0)))
    thing = Carried(name="ball", type="sphere", radius=0.1, frame="ground")
    with pytest.raises(ValueError, match="fixed to the ground"):
        robot_of(Settings(robot=robot, goal_q=(0.6, 0.0), carried=thing))


def test_pairs_by_an_srdf(robot, tmp_path):
    srdf = tmp_path / "arm.srdf"
    srdf.write_text('<robot name="arm"><disable_collisions link1="l1" link2="l2" reason="Adjacent"/></robot>')
    own = robot_of(Settings(robot=robot, goal_q=(0.6, 0.0), srdf=str(srdf))).self_pairs
    assert own.pairs == () and own.disabled == {frozenset(("l1", "l2"))}
    srdf.write_text('<robot name="arm"/>')
    assert robot_of(Settings(robot=robot, goal_q=(0.6, 0.0), srdf=str(srdf))).self_pairs.pairs == ((0, 1),)


@needs_coal
def test_without_bodies_the_duration_is_that_of_bang_bang(robot):
    """Two joints, one moves by 0.4 rad with at most 10 rad/s^2 and never meets its limit of 2 rad/s: T = 2 sqrt(0.4 / 10)."""
    pytest.importorskip("cyipopt")
    chosen = config(robot, body=[{**POST, "position": [5.0, 5.0, 0.0]}], goal_q=[-0.2, 0.0], torque_scale=10.0)
    chosen = read_config(
        {**chosen.as_dict(), "problem": {**chosen.as_dict()["problem"], "weights": {"acceleration": 0.0}}}, "test"
    )
    solution = solve_task(chosen, build_task(chosen))
    assert solution.status.success, solution.status.message
    assert solution.xs[-1, -1] == pytest.approx(2.0 * np.sqrt(0.04), rel=1e-3)


@pytest.mark.parametrize("exact", [pytest.param(True, marks=needs_coal), False])
def test_a_load_without_bodies_around_it_has_no_distance(robot, exact, monkeypatch):
    """The report gave an infinite distance between two names that were empty; capsules ended in an error of NumPy."""
    pytest.importorskip("cyipopt")
    if not exact:
        monkeypatch.setattr(arm_in_scene, "find_spec", lambda name: None if name == "coal" else find_spec(name))
    ball = {"name": "ball", "frame": "l2", "type": "sphere", "radius": 0.1, "position": [0.4, 0.0, 0.0], "mass": 1.0}
    chosen = config(robot, body=[], carried=[ball])
    report = solve_task(chosen, build_task(chosen)).report()
    assert "no bodies to avoid" in report and "smallest distance" not in report


@needs_coal
def test_a_motion_slower_than_its_guess_is_solved_more_accurately_and_reported(robot):
    """The guess is at the limits of velocity and acceleration of one joint: 1.2 rad in 1.2 / 2 + 2 / 10 = 0.8 s. Steps that begin
    when the acceleration switches, and a motion sped up to its limits, reach this duration."""
    far = {**config(robot).as_dict()["problem"], "body": [{**POST, "position": [5.0, 5.0, 0.0]}]}
    ipm = {"name": "ipm", "hessian": "gauss_newton", "gradient_tolerance": 1e-3, "constraint_tolerance": 1e-5}
    chosen = read_config(
        {"problem": {**far, "knots": 21, "torque_scale": 10.0, "guess": "auto"}, "solver": ipm}, "test"
    )
    task = build_task(chosen)
    first = to.solve(task.ocp, task.guess, chosen.solver_options, solver="ipm")
    solution = solve_task(chosen, task)
    assert task.guess.xs[-1, -1] == pytest.approx(0.8, rel=1e-2)
    assert (
        solution.meta["rounds"] == 2 and "its guess" not in solution.meta["check"]
    )  # the motion is as fast as its guess
    assert 0.8 * (1.0 - 1e-9) <= solution.xs[-1, -1] < first.xs[-1, -1]
    assert solution.xs[-1, -1] == pytest.approx(0.8, rel=5e-5)
    np.testing.assert_array_equal(solution.times, task.ocp.times_of(solution.xs))
    assert solution.duration == solution.times[-1] == pytest.approx(solution.xs[-1, -1], rel=1e-12)
    assert solution.meta["replay"]["open"]["amount"] < ipm["constraint_tolerance"] and solution.meta["findings"] == []


@needs_coal
def test_other_costs_may_take_longer_than_the_guess(robot):
    """With a high weight of accelerations, no shorter motion is searched, and a slow motion is not abandoned."""
    weights = {"time": 1.0, "acceleration": 5.0}
    far = [{**POST, "position": [5.0, 5.0, 0.0]}]
    chosen = config(robot, body=far, weights=weights, guess="auto", torque_scale=10.0)
    ipm = {"name": "ipm", "hessian": "gauss_newton", "gradient_tolerance": 1e-2, "constraint_tolerance": 1e-3}
    chosen = read_config({**chosen.as_dict(), "solver": ipm}, "test")
    task = build_task(chosen)
    solution = solve_task(chosen, task)
    assert solution.status.success, solution.status.message
    assert solution.meta["rounds"] == 1 and solution.xs[-1, -1] > 1.1 * task.guess.xs[-1, -1]
    assert "its guess" not in solution.meta["check"]


@needs_coal
def test_a_start_in_collision_names_the_pair_and_the_depth(robot):
    with pytest.raises(ValueError, match=r"the start is in collision: l2 and post, .* mm deep"):
        build_task(config(robot, q0=[0.0, 0.0]))
    with pytest.raises(ValueError, match="the goal is in collision"):
        build_task(config(robot, goal_q=[0.0, 0.0]))


@needs_coal
@pytest.mark.parametrize(("end", "of"), [("q0", "start"), ("goal_q", "goal")])
def test_a_start_or_goal_closer_than_half_of_the_margin_is_refused(robot, end, of):
    """Every motion to it failed, after ten solves, with the advice to increase the margin."""
    close = [-0.12 if end == "q0" else 0.12, 0.0]
    with pytest.raises(
        ValueError, match=rf"the {of} is too close: l2 and post, .* mm apart instead of 100 mm, half of problem.margin"
    ):
        build_task(config(robot, margin=0.2, **{end: close}))


def test_capsules_closer_than_half_of_the_margin_are_refused(robot, monkeypatch):
    monkeypatch.setattr(arm_in_scene, "find_spec", lambda name: None if name == "coal" else find_spec(name))
    with pytest.raises(
        ValueError,
        match=r"at the start capsules .* mm from a body instead of 100 mm, .* reduce cover_tolerance or problem.margin",
    ):
        build_task(config(robot, margin=0.2, q0=[-0.15, 0.0]))


@pytest.mark.parametrize(
    ("key", "q", "advice"),
    [("q0", [0.1, 3.1], "above its upper limit 3:"), ("goal_q", [0.1, -3.1], "below its lower limit -3:")],
)
def test_a_joint_beyond_its_limit_is_named(robot, key, q, advice):
    with pytest.raises(ValueError, match=f"{key} has j2 at .*, {advice} move it"):
        build_task(config(robot, **{key: q}))


def test_a_goal_out_of_reach_is_reported_with_the_smallest_error(robot):
    settings = Settings(robot=robot, q0=(-0.6, 0.1), goal_position=(2.0, 0.0, 0.0), frame="l2", self_collision=False)
    with pytest.raises(ValueError, match=r"does not reach the goal: smallest error"):
        build(settings, lambda system: make_backend(system, "analytic", engine="numpy"))


@needs_coal
def test_a_goal_that_touches_wherever_it_is_reached_names_the_pair(robot):
    body = SceneBody(name="block", type="box", size=(0.1, 0.1, 0.1), position=(0.5, 0.0, 0.0))
    settings = Settings(
        robot=robot, q0=(-1.5, 0.1), goal_position=(0.5, 0.0, 0.0), frame="l2", self_collision=False, body=body
    )
    with pytest.raises(ValueError, match=r"at the goal collide; the best one: l\d and block, .* mm deep"):
        build(settings, lambda system: make_backend(system, "analytic", engine="numpy"))


def test_a_missing_mesh_is_named(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM.replace('<box size="0.5 0.04 0.04"/>', '<mesh filename="gone.stl"/>', 1))
    settings = Settings(robot=str(path), q0=(-0.6, 0.0), goal_q=(0.6, 0.0), self_collision=False)

    def backend(system):
        return make_backend(system, "analytic", engine="numpy")

    with pytest.raises(ValueError, match=r"gone\.stl.*l1.*leave_out"):
        build(settings, backend)
    from dataclasses import replace

    task = build(replace(settings, missing_meshes="leave_out", guess="straight"), backend)
    assert any("gone.stl" in warning for warning in task.warnings)


def test_the_frame_that_is_moved_and_its_goal_are_reported(robot):
    task = build_task(config(robot, body=[]))
    at = ", ".join(f"{c:.3f}" for c in to.frame_placement(task.ocp.model, np.array([0.6, 0.0]), task.frame)[1])
    assert task.notes[0] == f"goal: {task.frame} at ({at}) m"
    ending = np.array([0.6, 0.0, 0.0, 0.0, 1.25])
    assert task.outcome(ending) == [f"the motion takes 1.250 s and brings {task.frame} to ({at}) m"]


def test_time_is_weighed_by_the_key_of_the_problem(robot):
    assert build_task(config(robot, time="free")).ocp.horizon == build_task(config(robot)).ocp.horizon
    with pytest.raises(ValueError, match=r"problem.time_weight: .* use problem.weights.time"):
        build_task(config(robot, time="free", time_weight=7.0))


def test_settings_that_contradict_each_other():
    with pytest.raises(SettingsError, match="exactly one of goal_q and goal_position"):
        Settings()
    with pytest.raises(SettingsError, match="goal_position: expected the key frame too"):
        Settings(goal_position=(0.1, 0.2, 0.3))
    with pytest.raises(SettingsError, match="shortest and a longest"):
        Settings(goal_q=(0.0,), duration=(2.0, 1.0))
    with pytest.raises(SettingsError, match="required by the type box"):
        SceneBody(name="b", type="box")


def test_scenes_from_toml_and_urdf(tmp_path):
    toml, urdf = tmp_path / "scene.toml", tmp_path / "scene.urdf"
    toml.write_text(
        '[[body]]\nname = "ball"\ntype = "sphere"\nradius = 0.1\nposition = [1.0, 0.0, 0.0]\n'
        "times = [0.0, 1.0]\noffsets = [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]\n"
    )
    urdf.write_text(
        '<robot name="table"><link name="top"><collision><origin xyz="1 0 0.5"/><geometry><box size="1 1 0.1"/></geometry>'
        "</collision></link></robot>"
    )
    (ball,), (top,) = load_scene(toml).bodies, load_scene(urdf).bodies
    np.testing.assert_allclose(ball.places(np.array(0.5)), [1.0, 0.5, 0.0])
    np.testing.assert_allclose(top.p, [1.0, 0.0, 0.5])
    with pytest.raises(FileNotFoundError, match="scene file .* does not exist"):
        load_scene(tmp_path / "other.toml")


def test_multipliers_stay_with_their_pairs(robot):
    """Multipliers of a slot whose pair changed start at zero; the others are unchanged."""
    task = build_task(config(robot))
    before = task.ocp
    path = before.phases[1].constraints
    y = {c.name: np.ones((24, c.residual.n_out)) for c in path}
    clearance = next(c for c in path if "pairs" in c.parameters)
    pairs = clearance.parameters["pairs"].copy()
    pairs[5, 21] += 0.1  # the second slot, at one knot
    reused = matching_multipliers(y, before, before.updated(clearance.name, pairs=pairs))
    expected = np.ones_like(y[clearance.name])
    expected[5, 1] = 0.0
    np.testing.assert_array_equal(reused.pop(clearance.name), expected)
    assert all((values == 1.0).all() for values in reused.values())


@needs_coal
def test_a_motion_is_checked_by_the_problem_that_it_solves(robot):
    """Later problems have other pairs, margins and tubes than the problem of the solution."""
    pytest.importorskip("cyipopt")
    chosen = config(robot)
    task = build_task(chosen)
    solution = solve_task(chosen, task)
    own, refinement = task.latest(), task.refined.__self__
    refinement._again("", refinement.start, solution)
    assert task.latest() is not own
    assert refinement._best_with_report().solution is refinement.best and task.latest() is own


def test_a_restarted_solve_ends_early():
    assert with_iteration_limit(to.solver_options("ipm"), 60).max_iterations == 60
    assert with_iteration_limit(to.solver_options("ipm", max_iterations=20), 60).max_iterations == 20
    assert with_iteration_limit(to.solver_options("ipm"), None) == to.solver_options("ipm")


@pytest.mark.parametrize(("most", "patience", "advice"), [(200, 0, "problem.seed"), (0, 60, "Increase max_iterations")])
def test_more_iterations_are_advised_only_where_they_would_be_taken(most, patience, advice):
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    dynamics = to.SampledSystem(to.make_backend(cart, "complex_step"), "euler")
    terms = [to.control_cost(1, reference=1.0, weight=1.0), to.state_cost(cart.manifold, [1.0, 0.0], [1.0, 0.0], "way")]
    ocp = to.OCP.single_phase(
        dynamics, [0.0, 0.0], 5, 0.1, terms, [to.state_cost(cart.manifold, [1.0, 0.0], 1.0, "goal")]
    )
    config = SimpleNamespace(solver_options=to.solver_options("slq", max_iterations=most), solver_name="slq")
    task = SimpleNamespace(ocp=ocp, patience=patience, latest=None, refined=lambda solution: Refined(False, "far away"))
    status = solve_with_refinement(config, task, to.constant_guess(ocp)).status
    assert status.code == "max_iterations" and advice in status.advice


def test_a_sharper_solve_ends_nearer_to_an_optimum():
    before, after = (
        f(to.solver_options("ipm", gradient_tolerance=1e-4, barrier=1e-3))
        for f in (lambda o: o, with_smaller_tolerance)
    )
    assert (after.gradient_tolerance, after.barrier) == pytest.approx((1e-6, 1e-5))
    assert with_smaller_tolerance(replace(after, gradient_tolerance=1e-7)).gradient_tolerance == 1e-8
    assert with_smaller_tolerance(replace(after, gradient_tolerance=1e-9)).gradient_tolerance == 1e-9
    assert after.constraint_tolerance == before.constraint_tolerance


def test_auto_ends_sharper_than_the_method_that_it_chose():
    auto, ipm = to.solver_options("auto"), to.solver_options("ipm")
    assert with_smaller_tolerance(auto, ipm) == replace(auto, gradient_tolerance=ipm.gradient_tolerance)
    assert with_smaller_tolerance(replace(auto, gradient_tolerance=1e-3), ipm).gradient_tolerance == 1e-5


def test_a_problem_that_auto_solves_is_solved_sharper(robot):
    """The refined problem of a motion with a smaller tolerance, for the solver chosen by ``auto``."""
    c = read_config({"engine": "numpy", "problem": {"name": "cart_pole", "horizon": 5}}, "test")
    task = build_task(c)
    looks = [Refined(False, "", Again(task.ocp, task.guess, sharp=True)), Refined(True, "it stands")]
    short = replace(task.ocp, goals=())  # the pole is not up after five steps
    task = replace(task, ocp=short, refined=lambda solution: looks.pop(0))
    solution = solve_with_refinement(c, task, task.guess)
    used = to.solver_options(solution.meta["attempts"][-1]["solver"])
    assert solution.meta["rounds"] == 2 and solution.status.success
    assert solution.meta["options"]["gradient_tolerance"] == pytest.approx(0.1 * used.gradient_tolerance)


def test_quaternions():
    half = np.sqrt(0.5)
    np.testing.assert_allclose(quaternion_matrix((0.0, 0.0, half, half)) @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], atol=1e-12)
    with pytest.raises(ValueError, match="normalize"):
        quaternion_matrix((0.0, 0.0, 1.0, 1.0))


@needs_coal
def test_around_a_post_that_is_a_convex_mesh(robot, tmp_path):
    """A hexagonal prism as obstacle; its corners are on a circle of 0.06 m."""
    pytest.importorskip("trimesh")
    pytest.importorskip("ompl")
    angles = np.pi / 3.0 * np.arange(6)
    ring = 0.06 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = [*((x, y, -0.5) for x, y in ring), *((x, y, 0.5) for x, y in ring)]
    sides = [(i, (i + 1) % 6, 6 + (i + 1) % 6) for i in range(6)] + [(i, 6 + (i + 1) % 6, 6 + i) for i in range(6)]
    caps = [(0, i + 1, i) for i in range(1, 5)] + [(6, 6 + i, 7 + i) for i in range(1, 5)]
    lines = [f"v {x} {y} {z}" for x, y, z in points] + [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in sides + caps]
    (tmp_path / "post.obj").write_text("\n".join(lines))
    post = {"name": "post", "type": "mesh", "file": str(tmp_path / "post.obj"), "position": [0.95, 0.0, 0.0]}
    problem = config(robot, body=[post], knots=16, guess="auto").as_dict()["problem"]
    ipm = {"name": "ipm", "hessian": "gauss_newton", "gradient_tolerance": 1e-3, "constraint_tolerance": 1e-5}
    chosen = read_config({"problem": problem, "solver": ipm}, "test")
    task = build_task(chosen)
    slots = next(c for c in task.ocp.constraints() if "pairs" in c.parameters).residual.slots
    assert any(slot.kind == "triangle" for slot in slots)
    solution = solve_task(chosen, task)
    assert solution.status.success, solution.status.message
    q = motion_at(solution, 2, 500.0)[0]
    tip = [0.5 * f(q[:, 0]) + 0.5 * f(q.sum(axis=1)) for f in (np.cos, np.sin)]
    assert np.hypot(tip[0] - 0.95, tip[1]).min() > 0.06 * np.cos(np.pi / 6.0)


def test_a_body_whose_mesh_is_missing_is_named(tmp_path):
    pytest.importorskip("trimesh")
    with pytest.raises(ValueError, match=r"body 'vase': .*gone\.stl"):
        SceneBody(name="vase", type="mesh", file="gone.stl").body(tmp_path)


@needs_coal
def test_a_motion_limited_by_its_tube_restarts_from_its_timed_path(robot):
    """One joint, 1.2 rad within 2 rad/s and 10 rad/s^2, takes 0.8 s at best. A motion of 1.2 s at the edge of its tube restarts
    from the TOPP-RA timing of its path, in the same tube; a motion that no tube limits is accepted."""
    pytest.importorskip("toppra")
    chosen = config(robot, body=[{**POST, "position": [5.0, 5.0, 0.0]}], guess="auto", torque_scale=10.0)
    task = build_task(chosen)
    refinement = task.refined.__self__
    slow = replace_duration(task.guess, 1.2)
    refinement.best, refinement.known = SimpleNamespace(xs=slow.xs, us=slow.us, times=task.ocp.times_of(slow.xs)), 2.0
    refinement.planned, refinement.best_tube = True, 0.125  # the planner's path has been tried
    assert refinement._faster()[0] is None
    refinement.at_limit = True
    found = refinement._finish_or_restart()
    assert found.again is not None and not found.good
    assert found.again.guess.xs[-1, -1] == pytest.approx(0.8, rel=2e-2)
    assert refinement.tube == 0.125


@needs_coal
def test_a_motion_longer_than_the_planned_path_is_replaced_by_it(robot):
    """One joint, 1.2 rad within 2 rad/s and 10 rad/s^2, takes 0.8 s at best, as TOPP-RA finds on the straight path: a motion of
    1.2 s is rejected, and one of 0.8 s is reported as equally fast."""
    pytest.importorskip("toppra")
    chosen = config(robot, body=[{**POST, "position": [5.0, 5.0, 0.0]}], guess="auto", torque_scale=10.0)
    task = build_task(chosen)
    refinement = task.refined.__self__
    solution = solve_task(chosen, task)
    assert (
        " times the duration of TOPP-RA on the path of the planner" in solution.meta["check"]
        and "longer" not in solution.meta["check"]
    )
    slow = replace_duration(task.guess, 1.2)
    refinement.best = replace(solution, xs=slow.xs, us=slow.us)
    assert "TOPP-RA on the path of the planner, 400 ms longer" in refinement.timing.compared(1.2)
    found = refinement._best_with_report()
    assert "this is the path of the planner" in found.report and found.solution.xs[-1, -1] < 0.9
    q, v, a, _ = motion_at(found.solution, 2, 1000.0)
    np.testing.assert_allclose([q[0], q[-1]], [[-0.6, 0.0], [0.6, 0.0]], atol=1e-9)
    assert np.abs(v).max() <= 2.0 * (1.0 + 1e-9) and np.abs(a).max() <= 10.0 * (1.0 + 1e-9)
    assert np.abs(v[-1]).max() < 1e-9
    own = found.solution
    assert not any(constraint_violations(refinement.latest, own.xs, own.us))
    assert "not optimal" in own.status.message and not own.multipliers and not own.k.any()
    np.testing.assert_array_equal(own.xs[0], slow.xs[0])  # start of the motion that it replaces


@needs_coal
@pytest.mark.parametrize("opens", [True, False])
def test_an_arm_waits_for_a_body_that_opens_the_way(robot, opens):
    """A column that no motion passes leaves after 1 s: the arm waits. If it stays, the motion is not feasible, and
    constraints are compared with the column at the times of the motion."""
    column = {"name": "column", "type": "cylinder", "radius": 0.3, "length": 1.0, "position": [0.7, 0.0, 0.0]}
    column |= {"times": [1.0, 1.4], "offsets": [[0.0, 0.0, 0.0], [0.0, 0.0, 5.0 if opens else 0.01]]}
    values = config(robot, body=[column], duration=[0.1, 4.0]).as_dict()
    chosen = read_config({**values, "solver": {"name": "ipm"}}, "test")
    task = build_task(chosen)
    solution = solve_task(chosen, task)
    check, violations = solution.meta["check"], [*constraint_violations(task.latest(), solution.xs, solution.us)]
    if opens:
        assert solution.status.success, solution.status.message
        assert "the duration is that of a guess that waits for moving bodies" in check
        assert task.guess.xs[-1, -1] + 0.4 < solution.duration < 2.5
        assert not any(violations)
    else:
        assert solution.status.code is to.StatusCode.NOT_FEASIBLE, solution.status.message
        assert "too close" in check and "the last solve placed the moving bodies at the times of a guess of" in check


@needs_coal
@pytest.mark.parametrize("by_frame", [False, True])
def test_a_goal_that_a_body_leaves_is_reached_afterwards(robot, by_frame):
    """A column at the goal leaves between 1 and 1.4 s. One that returns to the goal, and one that stays, block it at all times."""
    column = {"name": "column", "type": "cylinder", "radius": 0.1, "length": 1.0, "position": [0.36, 0.25, 0.0]}

    def task_with(offsets, times=(1.0, 1.4)):
        body = [{**column, "times": list(times), "offsets": [[0.0, 0.0, z] for z in offsets]}]
        goal = (
            {"goal_position": [0.5 * np.cos(0.6), 0.5 * np.sin(0.6), 0.0], "frame": "l2", "goal_q": None}
            if by_frame
            else {}
        )
        values = config(robot, body=body, duration=[0.1, 4.0], **goal).as_dict()
        values["problem"] = {key: value for key, value in values["problem"].items() if value is not None}
        chosen = read_config({**values, "solver": {"name": "ipm"}}, "test")
        return chosen, build_task(chosen)

    chosen, task = task_with([0.0, 5.0])
    assert task.guess.xs[-1, -1] > 1.0
    solution = solve_task(chosen, task)
    assert solution.status.success, solution.status.message
    assert 1.0 < solution.duration < 1.6
    with pytest.raises(
        ValueError, match="collide|the goal is in collision at all times at which it can be reached: l1"
    ):
        task_with([0.0, 0.01])
    with pytest.raises(ValueError, match="collide|the goal is in collision at all times"):
        task_with([0.0, 5.0, 0.0], (0.0, 0.05, 0.1))


@pytest.mark.parametrize("least", [0.1, 2.0])
def test_a_plan_that_must_last_longer_is_a_motion(least):
    """Constant accelerations lead from each state to the next, within the duration limits."""
    limits = Limits(*np.full((5, 2), np.inf), (least, 10.0))
    s = np.linspace(0.0, 1.0, 101)
    timing = Timing(np.outer(3 * s**2 - 2 * s**3, [0.6, -0.4]), 0.8 * s)
    plan = guess_from_timing(timing, limits, np.full(20, 0.05))
    T = plan.xs[-1, -1]
    assert T == plan.us[0, 0] == pytest.approx(max(least, 0.8), rel=0.1)
    q, v, a, h = plan.xs[1:, :2], plan.xs[1:, 2:4], plan.us[1:], 0.05 * T
    np.testing.assert_allclose(v[1:], v[:-1] + h * a, atol=1e-12)
    np.testing.assert_allclose(q[1:], q[:-1] + h * (v[:-1] + 0.5 * h * a), atol=1e-12)


def replace_duration(guess, duration):
    """Return the motion of a guess with another duration [s]."""
    n, fraction = 2, duration / guess.xs[-1, -1]
    xs, us = guess.xs.copy(), guess.us.copy()
    xs[:, n : 2 * n] /= fraction
    us[1:] /= fraction**2
    xs[:, -1] = us[0, 0] = duration
    return to.Guess(xs, us)
