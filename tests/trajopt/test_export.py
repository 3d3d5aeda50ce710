"""Exported C99 against the numpy engine: built by its own Makefile, without a warning, and called through ctypes."""

import ctypes
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy_lq import NumpyLQ, solve_riccati
from rigid_body_cases import state, tree
from stage_cases import pendulum, problem

from dynamics_backends.environment import compiler_command
from dynamics_backends.manifold import Manifold
from dynamics_backends.methods.exact_methods import ForwardAD
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from experiments.cli.cli_support import configured
from experiments.cli.engine_commands import export
from trajopt import (
    OCP,
    Guess,
    SampledSystem,
    control_cost,
    discrete_dynamics,
    residual_cost,
    solve,
    state_bounds,
    state_cost,
)
from trajopt.config.build import build_task
from trajopt.export.controller import ExportError, controller_files
from trajopt.export.example import closed_loop_rollout, example_start, run_example
from trajopt.lq.lq_solver import shared_lq
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator
from trajopt.stage.source.term_source import theta_of

CONFIGS = str(Path(__file__).resolve().parents[2] / "problems" / "configs" / "{}.toml")
CASES = {  # settings that make them short
    "double_pendulum_swing_up": ["problem.horizon=30"],
    "gen3_reach": ["problem.horizon=12", "problem.substeps=2", "problem.weights.control=0.1"],
}
HALVINGS, ACCEPT_RATIO = 10, 1e-4  # of export_controller.c
QUICKLY = "CFLAGS=-std=c99 -pedantic -Wall -Wextra -O0"
"""The Makefile's flags without optimization, which takes most of the time of a build."""
WORKSPACE = 1 << 22
"""Bytes, more than any of the small problems needs."""


class Problem(ctypes.Structure):
    """NAME_problem."""

    _fields_ = [(key, ctypes.c_void_p) for key in ("t", "dt", "theta", "theta_end", "u_lower", "u_upper")]


class Exported:
    """A built controller: its functions on arrays, and the problem it was written for."""

    def __init__(self, ocp, name, folder, *flags):
        self.ocp, self.name, self.folder, self.flags = ocp, name, folder, flags
        built = self.make(f"lib{name}.so")
        self.output = built.stdout + built.stderr
        self.library = ctypes.CDLL(str(folder / f"lib{name}.so"))
        self.problem = Problem.from_buffer_copy(Problem.in_dll(self.library, f"{name}_default_problem"))
        self.workspace = ctypes.create_string_buffer(WORKSPACE)

    def make(self, *targets):
        command = ["make", "-C", str(self.folder), f"CC={' '.join(compiler_command())}", *self.flags, *targets]
        return subprocess.run(command, capture_output=True, text=True, check=True)

    def call(self, function, *arguments, shapes=()):
        """The outputs, which stand behind the inputs: arrays of these shapes."""
        results = [np.full(shape, np.nan) for shape in shapes]
        inputs = [a if isinstance(a, ctypes.c_double) else _address(a) for a in (*arguments, *results)]
        getattr(self.library, f"{self.name}_{function}")(*inputs)
        return results

    def slq_step(self, horizon, x0, xs, us, K):
        """Cost and k; xs, us, K are changed."""
        step = getattr(self.library, f"{self.name}_slq_step")
        step.restype = ctypes.c_double
        k = np.zeros_like(us)
        pointers = [_address(a) for a in (x0, xs, us)]
        rest = [ctypes.byref(self.problem), _address(K), _address(k), self.workspace]
        return step(ctypes.c_long(horizon), *pointers, *rest), k


def _address(a):
    assert a.flags.c_contiguous and a.dtype == np.float64
    return ctypes.c_void_p(a.ctypes.data)


def _built(ocp, name, folder, *flags):
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    return Exported(ocp, name, folder, *flags)


def _written(ocp, name, folder):
    for file, text in controller_files(ocp, name).items():
        (folder / file).write_text(text, encoding="utf-8")
    return _built(ocp, name, folder, QUICKLY)


@pytest.fixture(scope="module", params=CASES)
def exported(request, tmp_path_factory):
    """A controller written by the command, and built."""
    folder, config = tmp_path_factory.mktemp("export"), CONFIGS.format(request.param)
    changes = [word for setting in CASES[request.param] for word in ("--set", setting)]
    result = CliRunner().invoke(export, [config, "--out", str(folder), *changes])
    assert result.exit_code == 0, result.output
    task = build_task(configured(config, CASES[request.param]).with_engine("numpy"))
    controller = _built(task.ocp, request.param, folder)
    controller.guess = task.guess
    return controller


def close(actual, expected, tolerance):
    scale = max(np.abs(expected).max(initial=0.0), 1e-12)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def points(ocp, count=5):
    rng = np.random.default_rng(0)
    return zip(rng.standard_normal((count, ocp.manifold.nx)), rng.standard_normal((count, ocp.nu)), strict=True)


# -- building -----------------------------------------------------------------------------------------------------------


@pytest.mark.needs_compiler
def test_it_builds_without_a_warning_and_the_example_runs(exported):
    built = exported.make()
    assert "warning" not in exported.output + built.stdout + built.stderr
    assert_the_example_runs(exported)


def assert_the_example_runs(exported):
    """Twenty steps, each at no higher cost."""
    lines = subprocess.run([exported.folder / f"{exported.name}_main"], capture_output=True, text=True, check=True)
    costs = [float(line.split()[2]) for line in lines.stdout.splitlines()]
    assert len(costs) == 20 and all(b <= a for a, b in pairwise(costs))


@pytest.mark.needs_compiler
def test_the_files_stand_alone(exported):
    """Only headers of C99, no allocation, and no symbol without the prefix."""
    source = (exported.folder / f"{exported.name}.c").read_text()
    header = (exported.folder / f"{exported.name}.h").read_text()
    included = {line.split()[1] for line in source.splitlines() if line.startswith("#include")}
    assert included == {f'"{exported.name}.h"', "<math.h>", "<string.h>"}
    assert "alloc" not in source + header and "@" not in source + header
    if shutil.which("nm") is None:
        return
    library = exported.folder / f"lib{exported.name}.so"
    symbols = subprocess.run(["nm", "-g", "--defined-only", library], capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in symbols.stdout.splitlines()]
    assert len(names) == 7 and all(n.startswith(f"{exported.name}_") for n in names)


# -- dynamics and time step ---------------------------------------------------------------------------------------------


@pytest.mark.needs_compiler
def test_dynamics_and_their_partial_derivatives(exported):
    ocp, n, m = exported.ocp, exported.ocp.manifold.ndx, exported.ocp.nu
    backend = ocp.phases[0].dynamics.backend
    for x, u in points(ocp):
        expected = backend.jacobians(x[None], u[None], np.zeros(1), {})
        actual = exported.call("dynamics_partials", x, u, shapes=[n, (n, n), (n, m)])
        for a, e in zip(actual, expected, strict=True):
            close(a, np.asarray(e)[0], 1e-12)
        close(exported.call("dynamics", x, u, shapes=[n])[0], np.asarray(expected[0])[0], 1e-12)


def assert_same_linearization(exported, dt=0.013):
    ocp, n, m = exported.ocp, exported.ocp.manifold.ndx, exported.ocp.nu
    for x, u in points(ocp):
        expected = ocp.phases[0].dynamics.linearize(x[None], u[None], 0.0, dt)
        actual = exported.call("linearize", x, u, ctypes.c_double(dt), shapes=[n, (n, n), (n, m)])
        for a, e in zip(actual, expected, strict=True):
            close(a, e[0], 1e-12)
        close(exported.call("step", x, u, ctypes.c_double(dt), shapes=[n])[0], expected[0][0], 1e-12)


@pytest.mark.needs_compiler
def test_linearization(exported):
    assert_same_linearization(exported)


@pytest.mark.needs_compiler
@pytest.mark.parametrize("scheme", ["euler", "three semi-implicit", "three rk4"])
def test_linearization_by_other_schemes(scheme, tmp_path):
    assert_same_linearization(_written(problem(scheme=scheme), "double_pendulum", tmp_path))


@pytest.mark.needs_compiler
@pytest.mark.parametrize("scheme", ["semi_implicit_euler", "rk4"])
def test_implicit_damping(scheme, tmp_path):
    model = tree("fixed3", 3)
    model = model.replace(damping=np.full(model.nv, 30.0))
    system = FreeBody(model)
    dynamics = SampledSystem(make_backend(system, engine="numpy"), scheme)
    terms = [control_cost(system.nu, weight=0.1)]
    x0 = np.concatenate([model.neutral(), np.zeros(model.nv)])
    ocp = OCP.single_phase(dynamics, x0, 4, 0.02, terms, [state_cost(system.manifold, x0, 1.0)])
    exported = _written(ocp, "damped", tmp_path)
    assert "warning" not in exported.output + exported.make().stdout
    assert_same_linearization(exported)


@pytest.mark.needs_compiler
def test_a_floating_base(tmp_path):
    """States with a quaternion: derivatives in the tangent space, RKMK, and a step of SLQ."""
    free = FreeBody(tree("floating90", 2))
    dynamics = SampledSystem(make_backend(free, "analytic", engine="numpy"), "rk4", 2)
    rng, manifold = np.random.default_rng(0), free.manifold
    x0 = np.concatenate([free.model.random_configuration(rng, 1)[0], np.zeros(free.model.nv)])
    goal = manifold.integrate(x0[:, None], 0.2 * rng.standard_normal((manifold.ndx, 1)))[:, 0]
    ocp = OCP.single_phase(dynamics, x0, 6, 0.02, [control_cost(free.nu)], [state_cost(manifold, goal, 10.0)])
    exported = _written(ocp, "floating", tmp_path)
    assert "warning" not in exported.output + exported.make().stdout
    q, v, _ = state(free.model, 1, 3)
    for x in np.concatenate([q, v], axis=1):
        u = rng.standard_normal(free.nu)
        expected = ocp.phases[0].dynamics.linearize(x[None], u[None], 0.0, 0.02)
        n, m = manifold.ndx, free.nu
        actual = exported.call("linearize", x, u, ctypes.c_double(0.02), shapes=[manifold.nx, (n, n), (n, m)])
        for a, e in zip(actual, expected, strict=True):
            close(a, e[0], 1e-12)
    us = np.zeros((6, free.nu))
    xs = tracked(ocp, x0, np.tile(x0, (6, 1)), us, np.zeros((6, free.nu, n)))[0]
    assert_same_step(exported, ocp, x0, xs, us, np.zeros((6, free.nu, n)))
    assert_the_example_runs(exported)


@pytest.mark.needs_compiler
@pytest.mark.parametrize("scheme", ["forward", "central"])
def test_differences_on_a_floating_base(scheme, tmp_path):
    """Damping is implicit: the step is a parameter of the dynamics."""
    model = tree("floating90", 2)
    free = FreeBody(model.replace(damping=np.full(model.nv, 3.0)))
    dynamics = SampledSystem(make_backend(free, f"{scheme}_difference", engine="numpy"), "semi_implicit_euler")
    rng, n, m = np.random.default_rng(0), free.manifold.ndx, free.nu
    x0 = np.concatenate([free.model.random_configuration(rng, 1)[0], np.zeros(free.model.nv)])
    terms = [control_cost(free.nu)], [state_cost(free.manifold, x0)]
    exported = _written(OCP.single_phase(dynamics, x0, 6, 0.02, *terms), "differences", tmp_path)
    assert "warning" not in exported.output + exported.make().stdout
    q, v, _ = state(free.model, 1, 3)
    for x in np.concatenate([q, v], axis=1):
        u = rng.standard_normal(m)
        expected = dynamics.linearize(x[None], u[None], 0.0, 0.02)
        actual = exported.call("linearize", x, u, ctypes.c_double(0.02), shapes=[free.manifold.nx, (n, n), (n, m)])
        for a, e in zip(actual, expected, strict=True):
            close(a, e[0], {"forward": 1e-5, "central": 1e-8}[scheme])


# -- SLQ ----------------------------------------------------------------------------------------------------------------


def tracked(ocp, x0, xs, us, K):
    """The trajectory from x0 under us + K (x - xs)."""
    found, applied = [x0], []
    for i, h in enumerate(ocp.dt):
        u = us[i] + K[i] @ ocp.manifold.difference(xs[i], found[-1])
        if ocp.control_bounds is not None:
            u = np.clip(u, ocp.control_bounds[0][i], ocp.control_bounds[1][i])
        applied.append(u)
        found.append(ocp.phases[0].dynamics.step(found[-1][None], u[None], ocp.times[i], h)[0])
    return np.array(found), np.array(applied)


def searched(ocp, xs, us):
    """K, k, and trajectory and cost after the line search, from the parts of trajopt's own loop."""
    evaluator, lq_solver = StageEvaluator(ocp), NumpyLQ()
    expansion = evaluator.expand(xs, us)
    cost, lq = expansion.cost, expansion.lq._replace(dx0=np.zeros(ocp.manifold.ndx))  # from wherever xs starts
    if ocp.control_bounds is None:
        policy = solve_riccati(lq)
    else:
        policy, step = shared_lq().solve_bounded(lq, tuple(limit - us for limit in ocp.control_bounds))
        policy = policy._replace(k=step.du - (policy.K @ step.dx[:-1, :, None])[..., 0])
    assert policy.failed_at is None
    step, (D1, D2) = lq_solver.forward(lq, policy)
    alphas = 0.5 ** np.arange(HALVINGS + 1)
    found = evaluator.rollout(xs, us, Direction(step.dx, step.du, policy.K, lq.d), alphas, Shooting())
    good = found.cost - cost <= ACCEPT_RATIO * (alphas * D1 + 0.5 * alphas**2 * D2)
    assert good.any()
    i = int(np.argmax(good))
    return policy.K, policy.k, found.xs[i], found.us[i], found.cost[i]


def assert_same_step(exported, ocp, x0, xs, us, K):
    horizon = len(us)
    expected_K, expected_k, *expected = searched(ocp, *tracked(ocp, x0, xs, us, K))
    ctypes.memset(exported.workspace, 0, WORKSPACE)
    xs, us, K = xs.copy(), us.copy(), K.copy()
    cost, k = exported.slq_step(horizon, x0, xs, us, K)
    for a, e in zip((K, k, xs, us, cost), (expected_K, expected_k, *expected), strict=True):
        close(a, e, 1e-10)
    return xs, us, K


@pytest.mark.needs_compiler
def test_steps_of_slq(exported):
    """From the guess, then from where the first step led, with the robot pushed elsewhere."""
    ocp = exported.ocp
    xs, us = (np.array(a, float) for a in exported.guess)
    K = np.zeros((ocp.horizon, ocp.nu, ocp.manifold.ndx))
    xs, us, K = assert_same_step(exported, ocp, ocp.x0, xs, us, K)
    assert_same_step(exported, ocp, ocp.x0 + 0.01, xs, us, K)


@pytest.mark.needs_compiler
def test_terms_of_many_kinds_and_references_that_change(tmp_path):
    ocp = problem(horizon=8, bounded=True)
    controller = _written(ocp, "double_pendulum", tmp_path)
    rng = np.random.default_rng(1)
    xs, us = rng.standard_normal((9, 4)), 0.1 * rng.standard_normal((8, 2))
    assert_same_step(controller, ocp, ocp.x0, xs, us, np.zeros((8, 2, 4)))


@pytest.mark.needs_compiler
def test_steps_reach_the_optimum_at_active_bounds(tmp_path):
    """Optimum by an interior-point method."""
    arm = FreeBody(pendulum())
    dynamics = SampledSystem(make_backend(arm, "analytic"), "rk4")
    terms = [control_cost(2, weight=0.01)], [state_cost(arm.manifold, [1.2, 0.4, 0.0, 0.0], 50.0)]
    free = solve(OCP.single_phase(dynamics, np.zeros(4), 20, 0.05, *terms), solver="slq")
    limit = 0.5 * np.abs(free.us).max()
    ocp = OCP.single_phase(dynamics, np.zeros(4), 20, 0.05, *terms, u_lower=-limit, u_upper=limit)
    optimum = solve(ocp, solver="ipm")
    assert (np.abs(optimum.us) > 0.999 * limit).any()
    exported = _written(ocp, "arm", tmp_path)
    xs, us, K = np.zeros((21, 4)), np.zeros((20, 2)), np.zeros((20, 2, 4))
    for _ in range(20):
        cost, _ = exported.slq_step(20, ocp.x0, xs, us, K)
    assert cost == pytest.approx(optimum.cost, rel=1e-6)
    np.testing.assert_allclose(us, optimum.us, atol=1e-3 * limit)


@pytest.mark.needs_compiler
def test_weights_are_inputs(exported):
    """A problem with other weights at the end, solved by the same code."""
    terminal = [term.updated(weight=2.0 * term.weight) for term in exported.ocp.terminal]
    ocp = OCP(exported.ocp.phases, exported.ocp.x0, terminal, exported.ocp.u_lower, exported.ocp.u_upper)
    values, before = theta_of(terminal, 1), exported.problem.theta_end
    xs, us = (np.array(a, float) for a in exported.guess)
    try:
        exported.problem.theta_end = values.ctypes.data
        assert_same_step(exported, ocp, ocp.x0, xs, us, np.zeros((ocp.horizon, ocp.nu, ocp.manifold.ndx)))
    finally:
        exported.problem.theta_end = before


@pytest.mark.needs_compiler
@pytest.mark.parametrize("change", [-1000, 1])
def test_a_horizon_that_does_not_fit_changes_nothing(exported, change):
    ocp = exported.ocp
    xs, us = (np.array(a, float) for a in exported.guess)
    cost, _ = exported.slq_step(ocp.horizon + change, ocp.x0, xs, us, np.zeros((ocp.horizon, ocp.nu, 2 * ocp.nu)))
    assert np.isnan(cost)
    np.testing.assert_array_equal(us, exported.guess.us)


# -- what is refused ----------------------------------------------------------------------------------------------------


def test_a_function_that_cannot_be_traced_is_named():
    branch = FunctionMap(lambda x, u, t, p: [u[0] if x[0] > 0.1 else 2.0 * u[0]], 1, 1)
    with pytest.raises(ExportError, match="cannot be traced"):
        controller_files(_ocp(branch, "forward_ad"), "branch")


def _ocp(system, method="complex_step"):
    dynamics = SampledSystem(make_backend(system, method, engine="numpy"), "rk4")
    x0 = system.manifold.identity()
    terminal = [state_cost(system.manifold, x0)]
    return OCP.single_phase(dynamics, x0, 3, 0.1, [control_cost(system.nu)], terminal)


def _two_phases():
    ocp = _ocp(FreeBody(pendulum()))
    return OCP(ocp.phases * 2, ocp.x0, ocp.terminal)


class Jump:
    """Discrete dynamics that are no sampled system."""

    manifold, nu, control_names = Manifold.vector(2), 1, ("u",)
    takes_time, sampling, contract = True, None, None


class UserMethod(ForwardAD):
    """A method that the toolkit does not know."""

    name = "own"


def test_the_header_names_states_and_controls():
    system = FunctionMap(
        lambda x, u, t, p: [x[1], u[0]], Manifold.vector(2, ("angle", "rate")), 1, control_names=("pull*/",)
    )
    header = controller_files(_ocp(system), "own")["own.h"]
    assert "in the order of x:\n     angle, rate\n   Components of the controls u:\n     pull<U+002A>/ */" in header


REFUSED = {
    "2 phases": _two_phases,
    "are Jump: give a system sampled in time": lambda: OCP.single_phase(Jump(), np.zeros(2), 3, 0.1),
    "are a discrete map: give a system": lambda: OCP.single_phase(
        discrete_dynamics(lambda x, u, t, p: [x[0] + u[0]], 1, 1), np.zeros(1), 3, 0.1
    ),
    "by own": lambda: OCP.single_phase(SampledSystem(UserMethod(FreeBody(pendulum())), "euler"), np.zeros(4), 3, 0.1),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_unsupported_problems_are_rejected_with_the_reason(reason):
    with pytest.raises(ValueError, match=reason):
        controller_files(REFUSED[reason](), "name")


@pytest.mark.parametrize("name", ["2link", "a-b", "", "main", "Main", "lq", "a" * 64])
def test_a_name_that_c_or_the_files_do_not_allow(name):
    with pytest.raises(ValueError, match="cannot be the export's name"):
        controller_files(_ocp(FreeBody(pendulum())), name)


@pytest.mark.needs_compiler
def test_a_name_that_is_taken_compiles_or_is_refused(tmp_path):
    """Names that are prefixes of identifiers in the code: those that the C compiler rejects are refused."""
    ocp = _ocp(FreeBody(pendulum()))
    code = controller_files(ocp, "Q")["Q.c"]
    names = {
        found.rpartition("_")[0] for found in re.findall(r"\b[a-zA-Z]\w*_(?:problem|step|H|NU|NX|WORKSPACE)\b", code)
    }
    assert "lq" in names and len(names) > 3
    for name in sorted(names):
        try:
            files = controller_files(ocp, name)
        except ValueError as error:
            assert "cannot be the export's name" in str(error)
            continue
        for file, text in files.items():
            (tmp_path / file).write_text(text, encoding="utf-8")
        subprocess.run(["cc", "-std=c99", "-fsyntax-only", f"{name}.c"], cwd=tmp_path, check=True)


def test_the_command_writes_nothing_that_it_refuses(tmp_path):
    config, out = CONFIGS.format("double_pendulum_swing_up"), tmp_path / "out"
    result = CliRunner().invoke(export, [config, "--out", str(out), "--name", "a-b"])
    assert result.exit_code == 2 and "cannot be the export's name" in result.stderr
    assert not list(out.iterdir())


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    (tmp_path / "a_file").write_text("")
    result = CliRunner().invoke(
        export, [CONFIGS.format("double_pendulum_swing_up"), "--out", str(tmp_path / "a_file" / "out")]
    )
    assert result.exit_code == 2 and "cannot store the results" in result.stderr and "another --out" in result.stderr


def test_the_command_needs_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent/cc")
    config = CONFIGS.format("double_pendulum_swing_up")
    result = CliRunner().invoke(export, [config, "--out", str(tmp_path), "--name", "pendulum"])
    assert result.exit_code == 0, result.output
    assert "example: not run, no C compiler: CC names /nonexistent/cc, which was not found" in result.output
    assert {p.name for p in tmp_path.iterdir()} == {"pendulum.h", "pendulum.c", "main.c", "Makefile"}


# -- messages: what removes each reason ---------------------------------------------------------------------------------


def test_every_reason_names_the_argument_that_removes_it():
    ocp = _ocp(FreeBody(pendulum()), "analytic")
    limits = state_bounds(ocp.manifold, -np.ones(4), np.ones(4), "box")
    phase = replace(ocp.phases[0], constraints=(limits,), parameters={"wind": np.ones(1)})
    constrained = replace(ocp, phases=(phase, phase), terminal_constraints=(limits,))
    with pytest.raises(ExportError) as error:
        controller_files(constrained, "name")
    phases, parameters, box = error.value.reasons
    assert "2 phases" in phases and "to.OCP.single_phase" in phases
    assert "(wind)" in parameters and "leave out parameters=" in parameters
    assert "'box'" in box and "leave it out of constraints= and terminal_constraints=" in box


@pytest.mark.parametrize(
    "config, settings",
    [
        (
            "irb4600_obstacle",
            [
                "set problem.position_limits = false",
                "set weight = 1e4 in problem.obstacle",
                'set problem.terminal = "cost"',
            ],
        ),
        ("hyq_trot_rigid", ['set problem.contact = "soft"']),
        ("gen3_contour_id", ["set problem.torque_limits = false", "no setting of this problem removes it"]),
    ],
)
def test_the_command_names_the_setting_that_removes_each_reason(config, settings, tmp_path):
    result = CliRunner().invoke(export, [CONFIGS.format(config), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2 and not list((tmp_path / "out").iterdir())
    for setting in settings:
        assert setting in result.stderr


def test_the_settings_that_the_command_names_make_an_export(tmp_path):
    changes = ["position_limits=false", 'terminal="cost"', "obstacle.weight=1e4", "horizon=4", "substeps=1"]
    words = [word for change in changes for word in ("--set", f"problem.{change}")]
    result = CliRunner().invoke(export, [CONFIGS.format("irb4600_obstacle"), "--out", str(tmp_path), *words])
    assert result.exit_code == 0, result.output
    assert "obstacle: weight" in (tmp_path / "irb4600_obstacle.h").read_text()


# -- the example --------------------------------------------------------------------------------------------------------


def unstable(weight=1.0):
    """xdot = x^3 + u near x = 2, where u = -8 holds it: off by 0.001, x runs to infinity within a second."""
    system = FunctionMap(lambda x, u, t, p: [x[0] * x[0] * x[0] + u[0]], 1, 1)
    dynamics = SampledSystem(make_backend(system, "casadi_ad", engine="numpy"), "rk4")
    hold = state_cost(system.manifold, [2.0], weight)
    return OCP.single_phase(
        dynamics, [2.001], 150, 0.02, [control_cost(1, reference=-8.0, weight=1e-2 * weight), hold], [hold]
    )


HELD = Guess(np.full((151, 1), 2.0), np.full((150, 1), -8.0))


def test_an_example_that_diverges_starts_with_gains(tmp_path):
    ocp = unstable()
    assert closed_loop_rollout(ocp, HELD.xs, HELD.us, np.zeros((150, 1, 1))) is None
    start = example_start(ocp, HELD)
    assert start.K.any() and start.cost < 1e-3
    np.testing.assert_allclose(start.xs[-1], 2.0, atol=1e-3)


@pytest.mark.needs_compiler
def test_the_example_with_gains_runs_in_c(tmp_path):
    files = controller_files(unstable(), "unstable", HELD)
    costs = run_example(files)
    assert len(costs) == 20 and np.isfinite(costs).all() and costs[-1] <= costs[0] < 1e-3
    start = example_start(unstable(), HELD)
    gains = re.search(r" K\[[^\]]*\] = \{[^}]*\}", files["main.c"])[0]
    without = {**files, "main.c": files["main.c"].replace(gains, " K[UNSTABLE_HORIZON]")}
    assert start.K.any() and run_example(without)[0] == pytest.approx(costs[0])  # the states obey the dynamics
    pushed = files["unstable.c"].replace("2.001", "2.1")
    with pytest.raises(ValueError, match="the trajectory diverges"):
        run_example({**without, "unstable.c": pushed})


def test_a_guess_that_gains_do_not_hold_is_refused_with_the_remedy():
    """Without weights there are no gains."""
    with pytest.raises(ValueError, match="diverges, with feedback gains too; .*--solution FILE"):
        controller_files(unstable(weight=0.0), "unstable", HELD)


def test_the_example_starts_at_a_solution(tmp_path):
    """With the gains of the solution; without weights no other gains exist."""
    ocp = unstable()
    solution = solve(ocp, HELD, solver="slq", options={"shooting": "all", "gaps": "nonlinear"})
    start = example_start(unstable(weight=0.0), solution)
    np.testing.assert_array_equal(start.K, solution.K)
    np.testing.assert_allclose(start.xs, solution.xs, atol=1e-6)


def test_a_guess_of_another_problem_is_refused():
    with pytest.raises(ValueError, match="xs and us have shapes"):
        controller_files(unstable(), "name", Guess(np.zeros((4, 1)), np.zeros((3, 1))))


# -- names of users -----------------------------------------------------------------------------------------------------

NAMES = (
    "ends in a backslash\\\n",
    "*/ int injected; /*",
    "trigraph ??/\n*/ int injected; /*",
    "// line\r\n#error injected",
    "right to left \u202e */",
    '@SIZES@ prefix_step PREFIX_NX %s "quoted"',
    "H\u00f6he [m]",
    "x" * 5000,
)


@pytest.mark.needs_compiler
@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_term_or_parameter_leaves_its_comment(name, plain, tmp_path):
    """The C compiles without a warning; stripped of comments it is that of harmless names."""
    assert _named(name, tmp_path) == plain


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return _named("plain", tmp_path_factory.mktemp("plain"))


def _named(name, folder):
    ocp = unstable()
    terms = (
        *ocp.phases[0].terms,
        residual_cost(name, lambda x, u, t, p: [x[0] - p[name][0]], ocp.manifold, 1, parameters={name: [2.0]}),
    )
    files = controller_files(replace(ocp, phases=(replace(ocp.phases[0], terms=terms),)), "swing", HELD)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wtrigraphs"]
    compiler = compiler_command()
    subprocess.run([*compiler, *flags, "-fsyntax-only", "swing.c", "main.c"], cwd=folder, check=True)
    seen = subprocess.run([*compiler, "-std=c99", "-E", "-P", "swing.c"], cwd=folder, capture_output=True, check=True)
    assert len(max((folder / "swing.h").read_text().splitlines(), key=len)) < 250
    return seen.stdout


@pytest.mark.needs_compiler
def test_the_c_compiles_under_strict_flags(exported):
    """As C99 and as C11; warnings that need optimization are those of the build by the Makefile."""
    sources = ["main.c", f"{exported.name}.c"]
    for standard in ("-std=c99", "-std=c11"):
        command = [*compiler_command(), standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run([*command, *sources], cwd=exported.folder, check=True)
