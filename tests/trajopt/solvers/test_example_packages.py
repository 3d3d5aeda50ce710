"""Installed packages of docs/examples: found by entry points, and compared with built-in backends."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import trajopt as to
from dynamics_backends import extensions
from dynamics_backends.registry import METHODS
from trajopt.config.registry import PROBLEMS

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
PACKAGES = sorted(path.parent.name for path in EXAMPLES.glob("*/pyproject.toml"))
LINES = 62


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts an example with the metadata of a distribution on Python's path."""

    def installed(name):
        project = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text())["project"]
        info = tmp_path / f"{name}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        groups = project["entry-points"].items()
        texts = ["\n".join([f"[{group}]", *(f"{k} = {v}" for k, v in points.items())]) for group, points in groups]
        (info / "entry_points.txt").write_text("\n".join(texts))
        for folder in (tmp_path, EXAMPLES / name):
            monkeypatch.syspath_prepend(str(folder))
        extensions._entry_points.cache_clear()

    yield installed
    extensions._entry_points.cache_clear()
    for registry, name in ((METHODS, "pinocchio"), (METHODS, "torch_residual"), (PROBLEMS, "mujoco_swing_up")):
        if name in registry.loaded():
            del registry[name]
    for name in PACKAGES:
        sys.modules.pop(name, None)


def batch(system, count=6):
    rng = np.random.default_rng(3)
    start = np.tile(system.manifold.identity()[:, None], count)
    x = system.manifold.integrate(start, rng.normal(size=(system.manifold.ndx, count))).T
    return x, rng.normal(size=(count, system.nu))


def test_they_are_short():
    assert PACKAGES == ["mujoco_step", "pinocchio_backend", "torch_residual"]
    assert all(len((EXAMPLES / name / f"{name}.py").read_text().splitlines()) <= LINES for name in PACKAGES)


@pytest.mark.parametrize("robot", ["iiwa7", "hyq", "cart_pole"])
def test_pinocchio_agrees_with_the_closed_form(install, robot):
    pytest.importorskip("pinocchio")
    install("pinocchio_backend")
    model = to.load_robot(robot)
    system = to.FreeBody(model, actuated=["slider"]) if robot == "cart_pole" else to.FreeBody(model)
    own, expected = (to.make_backend(system, name, engine="numpy") for name in ("pinocchio", "analytic"))
    x, u = batch(system)
    for found, wanted in zip(own.jacobians(x, u), expected.jacobians(x, u), strict=True):
        assert np.abs(found - wanted).max() < 1e-9 * np.abs(wanted).max()
    assert np.allclose(own.f(x, u), expected.f(x, u), rtol=1e-9, atol=1e-9)


def test_pinocchio_is_one_word_of_a_configuration(install):
    pytest.importorskip("pinocchio")
    install("pinocchio_backend")
    assert "pinocchio" in to.backend_names()
    own = to.load_problem("iiwa7_reach", backend="pinocchio", solver="slq").solve(report=False)
    expected = to.load_problem("iiwa7_reach", solver="slq").solve(report=False)
    assert own.meta["backends"] == ["pinocchio"] and own.status.success
    assert own.cost == pytest.approx(expected.cost, rel=1e-9)
    with pytest.raises(ValueError, match="needs a trajopt.FreeBody of a URDF file"):
        to.load_problem("hyq_stand", backend="pinocchio")  # its ground is a contact law


def test_mujoco_steps_are_those_of_mujoco(install):
    mujoco = pytest.importorskip("mujoco")
    install("mujoco_step")
    problem = to.load_problem("mujoco_swing_up", solver="ipm")
    step, x, u = problem.ocp.phases[0].dynamics, np.array([[0.1, 2.0, -0.3, 0.5]]), np.array([[1.5]])
    data = mujoco.MjData(step.model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = x[0, :2], x[0, 2:], u[0]
    mujoco.mj_step(step.model, data, 10)
    at = step.linearize(x, u, 0.0, 0.02)
    assert np.array_equal(at.x_next[0], np.concatenate([data.qpos, data.qvel]))
    moves = 1e-5 * np.eye(5)
    forward, backward = (step.step(x + s * moves[:, :4], u + s * moves[:, 4:], 0.0, 0.02) for s in (1.0, -1.0))
    assert np.abs((forward - backward).T / 2e-5 - np.hstack([at.A[0], at.B[0]])).max() < 1e-6


def test_mujoco_swings_the_pole_up(install):
    pytest.importorskip("mujoco")
    install("mujoco_step")
    solution = to.load_problem("mujoco_swing_up", solver="ipm").solve(report=False)
    assert solution.status.success and np.abs(solution.xs[-1]).max() < 5e-3
    with pytest.raises(to.InvalidProblem, match="ddp needs hessian_contraction: MujocoStep has no second derivatives"):
        to.load_problem("mujoco_swing_up", solver="ddp").solve(report=False)


def test_a_network_is_a_residual_of_the_dynamics(install, tmp_path):
    torch = pytest.importorskip("torch")
    install("torch_residual")
    system = to.FreeBody(to.load_robot("double_pendulum"))
    backend = to.make_backend(system, "torch_residual", seed=4)
    x, u = batch(system)
    at, e = backend.jacobians(x, u), 1e-6
    for i in range(4 + system.nu):
        move = np.zeros(4 + system.nu)
        move[i] = e
        forward, backward = (backend.f(x + s * move[:4], u + s * move[4:]) for s in (1.0, -1.0))
        slope = np.concatenate([at.fx, at.fu], axis=2)[:, :, i]
        assert np.abs((forward - backward) / (2.0 * e) - slope).max() < 1e-6 * max(1.0, np.abs(slope).max())
    torch.save({key: 0.0 * value for key, value in backend.own.network.state_dict().items()}, tmp_path / "zero.pt")
    options = {"weights": str(tmp_path / "zero.pt")}  # without a residual the dynamics are those of the robot
    own = to.load_problem(
        "double_pendulum_swing_up", backend={"name": "torch_residual", "options": options}, solver="slq"
    )
    expected = to.load_problem("double_pendulum_swing_up", solver="slq").solve(report=False)
    assert own.solve(report=False).cost == pytest.approx(expected.cost, rel=1e-8)
