"""The compiled stage of every kind of system against the same stage in NumPy: groups, methods, phases, parameters, curvature."""

from dataclasses import replace

import numpy as np
import pytest
from numpy_lq import convex_lq, solve_riccati
from rigid_body_cases import tree
from stage_cases import SCHEMES, SHOOTING, close, compiled_evaluator, pendulum
from twin_cases import HORIZON, assert_same_curvature, assert_same_expansion, assert_same_rollout, trajectory

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.sources import traced_source
from dynamics_backends.manifold import SO3, Manifold, vector_space
from dynamics_backends.protocol import FunctionMap, Hessians
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt import OCP, Phase, SampledSystem, control_cost, frame_position_cost, free_time, state_cost
from trajopt.lq.lq_solver import LQSolver
from trajopt.solvers.shooting.ddp_model import Damping
from trajopt.stage.evaluation import StageEvaluator

SYSTEMS = {  # the second has friction in its joints
    "small tree": lambda: FreeBody(tree("floating90", 2)),
    "large tree": lambda: FreeBody(tree("floating90", 4), friction_velocity=0.1),
}
CASES = [("small tree", "semi-implicit"), ("small tree", "three rk4"), ("large tree", "three rk4")]
METHODS = {  # tolerance: what rounding of the values becomes in the derivatives
    "casadi_ad": 1e-11,
    "complex_step": 1e-11,
    "forward_ad": 1e-11,
    "central_difference": 1e-7,
    "forward_difference": 1e-5,
}


def problem(system, scheme="three rk4", method="analytic", frame=None):
    """A problem of a robot, with a terminal frame term where a frame is named."""
    dynamics = SampledSystem(make_backend(system, method, engine="numpy"), *SCHEMES[scheme])
    manifold, rng = system.manifold, np.random.default_rng(0)
    x0 = manifold.integrate(manifold.identity()[:, None], 0.3 * rng.standard_normal((manifold.ndx, 1)))[:, 0]
    running = [
        control_cost(system.nu, reference=0.1, weight=0.5),
        state_cost(manifold, x0, rng.uniform(0.1, 1.0, manifold.ndx)),
    ]
    terminal = [state_cost(manifold, manifold.identity(), 3.0)]
    if frame is not None:
        terminal.append(frame_position_cost(system.model, manifold, frame, [0.3, 0.2, 0.1], 20.0))
    return OCP.single_phase(dynamics, x0, HORIZON, 0.02 * np.linspace(0.8, 1.2, HORIZON), running, terminal)


# -- groups -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("system", "scheme"), CASES)
def test_expansion_on_a_floating_base(system, scheme):
    assert_same_expansion(problem(SYSTEMS[system](), scheme))


def test_expansion_with_the_exact_hessian_of_the_cost():
    system = SYSTEMS["small tree"]()
    assert_same_expansion(problem(system, frame="body1"), "exact")


@pytest.mark.parametrize("kind", SHOOTING)
def test_rollout_on_a_floating_base(kind):
    assert_same_rollout(problem(SYSTEMS["small tree"]()), SHOOTING[kind])


def test_far_from_the_origin():
    """The base 1 km away: derivatives keep their digits."""
    system = SYSTEMS["large tree"]()
    ocp = problem(system)
    xs, us = trajectory(ocp)
    far = xs.copy()
    far[:, :3] += 1000.0
    here, there = (compiled_evaluator(ocp).expand(x, us).lq for x in (xs, far))
    for a, e in zip((there.A, there.B), (here.A, here.B), strict=True):
        close(a, e, 1e-9)


# -- methods, parameters and phases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_methods_on_a_floating_base(method):
    assert_same_expansion(problem(SYSTEMS["small tree"](), "semi-implicit", method), tolerance=METHODS[method])


def _driven(x, u, t, p):
    """Two masses on a vector space that time, parameters and three controls act on."""
    return [
        x[2],
        x[3],
        p["gain"][0] * u[0] - sm.sin(x[0]) * p["stiffness"][0] + t,
        u[1] * x[1] - p["stiffness"][1] * u[2],
    ]


def phases(method="forward_ad"):
    """A robot between two phases of another system with other controls, parameters and terms; the state is shared."""
    robot = FreeBody(pendulum())
    other = FunctionMap(_driven, robot.manifold, 3, second_order=True)
    first = SampledSystem(make_backend(other, method, engine="numpy"), "rk4")
    second = SampledSystem(make_backend(robot, "analytic", engine="numpy"), "semi_implicit_euler", 2)
    rng = np.random.default_rng(0)
    values = {"gain": rng.standard_normal((5, 1)), "stiffness": [0.3, 0.7]}
    terms = (control_cost(3, reference=0.1, weight=0.3), state_cost(robot.manifold, -np.ones(4)))
    parts = [
        Phase(first, np.full(5, 0.02), terms, values),
        Phase(second, np.full(9, 0.01), (control_cost(2), state_cost(robot.manifold, rng.standard_normal((9, 4))))),
        Phase(first, np.full(2, 0.03), terms[1:], {"gain": [2.0], "stiffness": [0.1, 0.2]}),
    ]
    return OCP(tuple(parts), 0.1 * np.arange(4.0), (state_cost(robot.manifold, np.ones(4), 3.0),))


@pytest.mark.parametrize("hessian", ["gauss_newton", "exact"])
def test_phases_and_parameters(hessian):
    assert_same_expansion(phases(), hessian)


def test_differences_of_a_map_with_parameters():
    assert_same_expansion(phases("central_difference"), tolerance=METHODS["central_difference"])


@pytest.mark.parametrize("kind", ["single", "every 10, linear", "all, nonlinear"])
def test_rollout_through_phases(kind):
    nodes = SHOOTING[kind]
    assert_same_rollout(phases(), nodes)


def phases_of_robots():
    """Two robots that differ in what acts on them, one with one control."""
    rough = pendulum().replace(damping=np.array([0.3, 0.2]))
    bodies = (FreeBody(pendulum()), FreeBody(rough, actuated=rough.dof_names[1:]))
    schemes = (("semi_implicit_euler", 1), ("rk4", 1))
    parts = [
        Phase(SampledSystem(make_backend(b, "analytic"), *s), np.full(4, 0.05), (control_cost(b.nu),))
        for b, s in zip(bodies, schemes, strict=True)
    ]
    return OCP(tuple(parts), 0.1 * np.arange(4.0), (state_cost(bodies[0].manifold, np.ones(4), 3.0),))


def test_curvature_through_phases():
    assert_same_curvature(phases_of_robots())


# -- curvature ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["semi-implicit", "three semi-implicit", "three rk4"])
def test_curvature_on_a_vector_space(scheme):
    rough = pendulum().replace(friction=np.array([0.5, 0.1]))
    assert_same_curvature(problem(FreeBody(rough, friction_velocity=0.1), scheme))


@pytest.mark.parametrize(("system", "scheme"), CASES)
def test_curvature_on_a_floating_base(system, scheme):
    assert_same_curvature(problem(SYSTEMS[system](), scheme))


def _spinning(x, u, t, p):
    """A rigid body with a quaternion, whose wheel is driven too; time and a parameter act on it."""
    w = [x[4], x[5], x[6]]
    turn = [
        u[0] - w[1] * w[2],
        p["gain"][0] * u[1] * sm.cos(t) + w[2] * w[0] * x[3],
        sm.tanh(w[0] * w[1]) - u[0] * u[1],
    ]
    return [*w, *turn, sm.select(x[7], x[7] * x[7] * u[1], sm.sin(x[7]) * x[1])]


def spinning(method, scheme, function=_spinning):
    system = FunctionMap(function, Manifold([SO3, vector_space(4)]), 2)
    dynamics = SampledSystem(make_backend(system, method, engine="numpy"), *SCHEMES[scheme])
    steps, terms = 0.02 * np.linspace(0.8, 1.2, HORIZON), [control_cost(2, reference=0.1, weight=1.0)]
    x0 = system.manifold.identity()
    return OCP.single_phase(
        dynamics, x0, HORIZON, steps, terms, parameters={"gain": np.linspace(1.0, 2.0, HORIZON)[:, None]}
    )


@pytest.mark.parametrize("scheme", ["euler", "three rk4"])
@pytest.mark.parametrize("method", ["forward_ad", "structured_ad", "complex_step", "casadi_ad"])
def test_curvature_of_a_function_comes_from_its_trace(method, scheme):
    assert_same_curvature(spinning(method, scheme))


def test_curvature_of_a_function_with_a_free_duration():
    def autonomous(x, u, t, p):
        return _spinning(x, u, 0.3, p)

    assert_same_curvature(free_time(spinning("forward_ad", "rk4", autonomous), (0.1, 1.0)).ocp)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_curvature_by_the_modes_of_casadi(mode):
    (phase,) = spinning("casadi_ad", "rk4").phases
    backend = make_backend(phase.dynamics.system, "casadi_ad", engine="numpy", mode=mode)
    ocp = spinning("casadi_ad", "rk4")
    assert_same_curvature(replace(ocp, phases=(replace(phase, dynamics=SampledSystem(backend, "rk4")),)))


def test_curvature_by_differences_is_left_to_numpy():
    ocp = spinning("central_difference", "rk4")
    compiled, (xs, us) = compiled_evaluator(ocp), trajectory(ocp)
    assert compiled.knot_curvatures(xs, us) is None
    lam = np.ones((HORIZON, 7))
    for a, e in zip(compiled.curvature(xs, us, lam), StageEvaluator(ocp).curvature(xs, us, lam), strict=True):
        np.testing.assert_array_equal(a, e)


def test_curvature_of_a_long_function_is_left_to_numpy(monkeypatch):
    ocp = spinning("forward_ad", "euler")
    compiled, (xs, us) = compiled_evaluator(ocp), trajectory(ocp)
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 10)
    assert compiled.knot_curvatures(xs, us) is None
    lam = np.ones((HORIZON, 7))
    for a, e in zip(compiled.curvature(xs, us, lam), StageEvaluator(ocp).curvature(xs, us, lam), strict=True):
        np.testing.assert_array_equal(a, e)


def test_curvature_too_long_to_compile_is_left_to_numpy(monkeypatch):
    swing = FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0] - sm.sin(x[0] + x[1]), u[1] - sm.sin(x[1]) * x[2]], 4, 2)
    dynamics = SampledSystem(make_backend(swing, "casadi_ad"), "euler")
    ocp = OCP.single_phase(dynamics, np.full(4, 0.1), HORIZON, 0.05, [control_cost(2, reference=0.1, weight=1.0)])
    compiled = compiled_evaluator(ocp)
    xs, us = trajectory(ocp)
    lam, expected = np.ones((HORIZON, 4)), StageEvaluator(ocp).curvature(xs, us, np.ones((HORIZON, 4)))
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 10)
    assert compiled.knot_curvatures(xs, us) is None
    for a, e in zip(compiled.curvature(xs, us, lam), expected, strict=True):
        np.testing.assert_array_equal(a, e)


# -- the sweep of DDP -------------------------------------------------------------------------------------------------------


def damping(ocp, mu, regularize, bounded):
    limits = (np.full((ocp.horizon, ocp.nu), -0.1), np.full((ocp.horizon, ocp.nu), 0.2))
    return Damping(mu, regularize, limits if bounded else None)


def perturbed_expansion(ocp):
    """A trajectory, and the LQ problem about it with an R that is indefinite at some knots."""
    xs, us = trajectory(ocp)
    lq = StageEvaluator(ocp).expand(xs, us).lq
    R = lq.R.copy()
    R[::3] += np.diag(np.linspace(-2.0, 1.0, ocp.nu)) + 0.2
    return xs, us, lq._replace(R=R)


@pytest.mark.parametrize("problem_of", [lambda: problem(FreeBody(pendulum()), "semi-implicit"), phases_of_robots])
@pytest.mark.parametrize("bounded", [False, True], ids=["free", "bounded"])
@pytest.mark.parametrize("regularize", ["control", "state"])
def test_the_sweep_of_ddp(problem_of, bounded, regularize):
    """Curvature contracted on the way, Quu made definite, and the policy of the problem that comes out."""
    ocp = problem_of()
    xs, us, lq = perturbed_expansion(ocp)
    compiled, numpy = compiled_evaluator(ocp), StageEvaluator(ocp)
    d = damping(ocp, 0.01, regularize, bounded)

    def curvature(i, lam):
        at_knot = np.eye(len(us))[i, :, None] * lam
        return Hessians(*(block[i : i + 1] for block in numpy.curvature(xs, us, at_knot)))

    expected = convex_lq(lq, d, curvature)
    actual, policy = LQSolver().convex(lq, *d, compiled.knot_curvatures(xs, us))
    unmodified = convex_lq(lq, d, curvature, modify=False)
    assert np.abs(expected.R - unmodified.R).max() > 0.1 * np.abs(lq.R).max()  # the case is one
    for a, e in zip(actual, expected, strict=True):
        close(a, e, 1e-8)
    for a, e in zip(policy[:4], solve_riccati(expected, *d)[:4], strict=True):
        close(a, e, 1e-8)


def test_a_sweep_that_may_not_modify_names_the_knot():
    ocp = problem(FreeBody(pendulum()), "semi-implicit")
    lq = StageEvaluator(ocp).expand(*trajectory(ocp)).lq
    lq.R[5] = -1e3 * np.eye(2)
    solver = LQSolver()
    assert solver.convex(lq, modify=False)[1].failed_at == 5
    changed, policy = solver.convex(lq)
    assert policy.failed_at is None and np.linalg.eigvalsh(changed.R[5]).min() > 0.0
    lq.R[5, 0, 0] = np.nan
    assert solver.convex(lq)[1].failed_at == 5
