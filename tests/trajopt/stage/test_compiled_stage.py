"""Compiled stages against NumPy stages: expansion and rollout of a problem, and the LQ solver."""

import numpy as np
import numpy_lq
import pytest
from numpy_lq import NumpyLQ
from stage_cases import ROBOTS, SCHEMES, SHOOTING, TOLERANCE, close, compiled_evaluator, pendulum, problem

import trajopt as to
from dynamics_backends.compiled.sources import traced_source
from dynamics_backends.compiled.sources.traced_source import TooLong
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.symbols import ca
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt import (
    OCP,
    Phase,
    SampledSystem,
    control_cost,
    state_cost,
)
from trajopt.lq.lq import LQProblem
from trajopt.lq.lq_solver import LQSolver
from trajopt.stage.compiled import taped_functions
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.evaluation import Direction, StageEvaluator
from trajopt.stage.evaluators import evaluator_for
from trajopt.stage.not_compiled import explanation
from trajopt.stage.numpy_stages import NumpyStages

each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def trajectory(ocp, seed=1):
    """xs (N + 1, nx) off the dynamics, us (N, nu)."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((ocp.horizon + 1, ocp.manifold.nx)), rng.standard_normal((ocp.horizon, ocp.nu))


def assert_same_expansion(ocp, hessian="gauss_newton"):
    xs, us = trajectory(ocp)
    actual, expected = (E(ocp, hessian).expand(xs, us) for E in (compiled_evaluator, StageEvaluator))
    assert actual.cost == pytest.approx(expected.cost, rel=TOLERANCE)
    close(actual.x_next, expected.x_next)
    for a, e in zip(actual.lq, expected.lq, strict=True):
        close(a, e)


# -- expansion ----------------------------------------------------------------------------------------------------------


@each_scheme
@pytest.mark.parametrize("robot", ROBOTS)
def test_expansion(robot, scheme):
    assert_same_expansion(problem(robot, scheme))


def test_expansion_with_the_exact_hessian_of_the_cost():
    ocp = problem()
    assert_same_expansion(ocp, "exact")
    xs, us = trajectory(ocp)
    blocks = [compiled_evaluator(ocp, h).expand(xs, us).lq.Q for h in ("gauss_newton", "exact")]
    assert np.abs(blocks[0] - blocks[1]).max() > 1e-3


def test_a_single_state_has_no_rate_before_it():
    """A map that calls itself of second order, whose state does not split into halves."""
    system = FunctionMap(lambda x, u, t, p: [u[0]], 1, 1, second_order=True)
    dynamics = SampledSystem(make_backend(system, "forward_ad"), "rk4")
    assert_same_expansion(OCP.single_phase(dynamics, [3.0], 8, 0.25, [control_cost(1)]))


@pytest.mark.parametrize("horizon", [1, 7, 8, 9, 130])
def test_horizons_of_any_length(horizon):
    """Tails of lane blocks, and two threads."""
    assert_same_expansion(problem(horizon=horizon))


def test_damping_and_friction():
    """The forces of the joints are part of the compiled dynamics."""
    model = pendulum()
    rough = model.replace(damping=np.array([0.3, 0.2]), friction=np.array([0.5, 0.1]))
    free = FreeBody(rough, friction_velocity=0.1, actuated=rough.dof_names[1:])
    dynamics = SampledSystem(make_backend(free, "analytic", engine="numpy"), "rk4", 2)
    assert_same_expansion(
        OCP.single_phase(dynamics, np.zeros(4), 5, 0.1, [control_cost(1)], [state_cost(free.manifold, np.ones(4))])
    )


# -- rollout ------------------------------------------------------------------------------------------------------------


def _direction(ocp, xs, us):
    rng = np.random.default_rng(2)
    gaps = StageEvaluator(ocp).expand(xs, us).lq.d
    gains = 0.3 * rng.standard_normal((ocp.horizon, ocp.nu, ocp.manifold.ndx))
    return Direction(0.1 * rng.standard_normal(xs.shape), rng.standard_normal(us.shape), gains, gaps)


def assert_same_rollout(ocp, shooting, count=11):
    xs, us = trajectory(ocp)
    direction, alphas = _direction(ocp, xs, us), 0.7 ** np.arange(count)
    actual, expected = (
        E(ocp).rollout(xs, us, direction, alphas, shooting) for E in (compiled_evaluator, StageEvaluator)
    )
    for a, e in zip(actual, expected, strict=True):
        close(a, e)


@pytest.mark.parametrize("kind", SHOOTING)
@pytest.mark.parametrize("bounded", [False, True], ids=["free", "bounded"])
def test_rollout_of_more_step_lengths_than_lanes(kind, bounded):
    assert_same_rollout(problem(bounded=bounded), SHOOTING[kind])


@each_scheme
def test_rollout_by_every_scheme(scheme):
    assert_same_rollout(problem(scheme=scheme), SHOOTING["every 10, linear"])


@pytest.mark.parametrize("count", [1, 8])
def test_rollout_of_an_arm(count):
    assert_same_rollout(problem("ur5", "semi-implicit"), SHOOTING["all, linear"], count)


@pytest.mark.parametrize("make", [compiled_evaluator, StageEvaluator], ids=["compiled", "numpy"])
@pytest.mark.parametrize("kind", SHOOTING)
def test_a_parabolic_rollout_follows_its_chords(kind, make):
    """Each length is that of a straight step to the same point."""
    ocp, alphas = problem(bounded=True), 0.7 ** np.arange(5)
    xs, us = trajectory(ocp)
    straight, rng, evaluator = _direction(ocp, xs, us), np.random.default_rng(3), make(ocp)
    ddx, ddu = 0.3 * rng.standard_normal(xs.shape), rng.standard_normal(us.shape)
    curved = evaluator.rollout(xs, us, straight._replace(parabola=(ddx, ddu)), alphas, SHOOTING[kind])
    for i, alpha in enumerate(alphas):
        chord = straight._replace(dx=straight.dx + 0.5 * alpha * ddx, du=straight.du + 0.5 * alpha * ddu)
        for a, e in zip(curved, evaluator.rollout(xs, us, chord, np.array([alpha]), SHOOTING[kind]), strict=True):
            close(a[i], e[0])


# -- what is compiled, and when -----------------------------------------------------------------------------------------


def test_changed_values_trace_nothing(monkeypatch):
    """dt, references, weights, bounds, parameters and the horizon are inputs of the same tapes."""
    first = problem()
    compiled_evaluator(first)
    monkeypatch.setattr(taped_functions, "_encoded", lambda *_: pytest.fail("a changed value was traced"))
    changed = [term.updated(weight=2.0 * term.weight) for term in first.phases[0].terms]
    changed[1] = changed[1].updated(reference=np.ones(4))
    for ocp in (problem(dt=0.05), problem(horizon=40), problem(shift=-1.0), problem(bounded=True)):
        assert_same_expansion(ocp)
    changed[1] = changed[1].updated(weight=np.ones(4))
    assert_same_expansion(OCP.single_phase(first.phases[0].dynamics, np.ones(4), 20, 0.01, changed, first.terminal))


@pytest.mark.parametrize("method", ["analytic", "complex_step", "structured_ad"])
@pytest.mark.parametrize("engine", ["compiled", "numpy"])
def test_who_serves_a_problem(engine, method):
    """Whole libraries for the methods that are written in C."""
    dynamics = SampledSystem(make_backend(FreeBody(pendulum()), method, engine=engine), "euler")
    evaluator = evaluator_for(OCP.single_phase(dynamics, np.zeros(4), 3, 0.1, [control_cost(2)]))
    kinds = [CompiledStages, CompiledEnd] if engine == "compiled" else [NumpyStages, NumpyStages]
    assert [type(stages) for stages in evaluator.stages] == kinds


def test_dynamics_too_long_to_compile_stay_in_numpy(monkeypatch):
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 15)
    dynamics = SampledSystem(make_backend(FreeBody(pendulum()), "forward_ad", engine="compiled"), "euler")
    ocp = OCP.single_phase(dynamics, np.zeros(4), 3, 0.1, [control_cost(2)])
    assert all(isinstance(stages, NumpyStages) for stages in evaluator_for(ocp).stages)
    with pytest.raises(TooLong, match="FreeBody takes .* operations; the limit is 15") as long:
        compiled_evaluator(ocp)
    assert explanation(ocp, 0, long.value).remedy.startswith("choose backend = 'analytic'")
    assert explanation(ocp, 0, TooLong("the running cost takes 99 operations")).remedy.startswith("simplify it")


def test_sparse_hessians_of_many_states_are_compiled(monkeypatch):
    """The limit counts a direction per color of the Hessian: one for squares of 40 states, a few for a row of springs."""
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 5000)

    def springs(x, u, t, p):
        return [x[(i + 1) % 40] - x[i] - (x[i] - x[i - 1]) ** 3 for i in range(40)]

    def coupled(x, u, t, p):
        return [to.sin(sum(x[j] * x[j] for j in range(40))) * x[i] for i in range(40)]

    for system, compiled in ((springs, True), (coupled, False)):
        dynamics = SampledSystem(make_backend(FunctionMap(system, 40, 1), "forward_ad", engine="auto"), "euler")
        ocp = OCP.single_phase(dynamics, np.ones(40), 3, 0.1, [state_cost(40, np.ones(40)), control_cost(1)])
        engines = to.solve(ocp, solver="ddp", options={"max_iterations": 1}, check=False).meta["engines"]
        assert (engines == ["compiled"]) == compiled, engines


def test_colors_of_a_hessian_are_not_searched_beyond_the_limit(monkeypatch):
    """A dense Hessian of n variables needs n colors; in two blocks of n / 2, as many as one block."""
    z, limit = ca.SX.sym("z", 40), "OPERATIONS_LIMIT"
    dense, blocks = ca.sin(ca.sumsqr(z)), ca.sin(ca.sumsqr(z[:20])) + ca.sin(ca.sumsqr(z[20:]))
    operations = ca.Function("value", [z], [blocks]).n_instructions()
    monkeypatch.setattr(traced_source, limit, 20 * operations)
    traced_source.require_short_hessian("blocks", blocks, z)
    monkeypatch.setattr(traced_source, limit, 19 * operations)
    with pytest.raises(TooLong, match=f"takes {40 * operations} operations"):
        traced_source.require_short_hessian("blocks", blocks, z)
    monkeypatch.setattr(ca.Sparsity, "star_coloring", None)
    with pytest.raises(TooLong):
        traced_source.require_short_hessian("dense", dense, z)


@pytest.mark.parametrize("kind", SHOOTING)
def test_phases_of_both_engines_beside_each_other(kind):
    """Each phase uses the engine of its backend; results equal those of a single engine."""

    def mixed(*engines):
        free = FreeBody(pendulum())
        steps = [SampledSystem(make_backend(free, "analytic", engine=engine), "rk4") for engine in engines]
        terms = [control_cost(2, reference=0.3, weight=1.0), state_cost(free.manifold, np.ones(4), 0.2)]
        phases = [Phase(step, np.full(n, 0.05), terms) for step, n in zip(steps, (4, 6, 3), strict=True)]
        return OCP(phases, np.zeros(4), [state_cost(free.manifold, np.ones(4), 3.0)], u_upper=[0.4, 0.5])

    ocp = mixed("numpy", "compiled", "numpy")
    evaluator, plain = evaluator_for(ocp), StageEvaluator(ocp)
    assert [type(stages) for stages in evaluator.stages] == [NumpyStages, CompiledStages, NumpyStages, CompiledEnd]
    xs, us = trajectory(ocp)
    direction, alphas = _direction(ocp, xs, us), 0.7 ** np.arange(5)
    for a, e in zip(evaluator.expand(xs, us).lq, plain.expand(xs, us).lq, strict=True):
        close(a, e)
    tried, expected = (e.rollout(xs, us, direction, alphas, SHOOTING[kind]) for e in (evaluator, plain))
    for a, e in zip(tried, expected, strict=True):
        close(a, e)
    lam = np.random.default_rng(3).standard_normal((13, 4))
    for a, e in zip(evaluator.curvature(xs, us, lam), plain.curvature(xs, us, lam), strict=True):
        close(a, e, 1e-9)


# -- the LQ problem -----------------------------------------------------------------------------------------------------


def lq_problem(n, m, N=12, seed=5):
    rng = np.random.default_rng(seed)
    joint = rng.standard_normal((N + 1, n + m, n + m))
    H = joint @ joint.transpose(0, 2, 1) / (n + m) + 0.1 * np.eye(n + m)
    A, B = np.eye(n) + 0.2 * rng.standard_normal((N, n, n)) / np.sqrt(n), rng.standard_normal((N, n, m))
    q, r, d, dx0 = (rng.standard_normal(s) for s in ((N + 1, n), (N, m), (N, n), n))
    return LQProblem(A, B, d, H[:, :n, :n], q, H[:N, n:, :n], H[:N, n:, n:].copy(), r, dx0)


SIZES = [(1, 1), (4, 1), (2, 3), (11, 5), (12, 6), (14, 7), (26, 13), (36, 12)]
each_size = pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")


@each_size
@pytest.mark.parametrize("regularize", ["control", "state"])
@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_riccati(size, regularize, mu):
    lq = lq_problem(*size)
    actual, expected = LQSolver().solve_riccati(lq, mu, regularize), numpy_lq.solve_riccati(lq, mu, regularize)
    assert actual.failed_at is None
    for a, e in zip(actual[:4], expected[:4], strict=True):
        close(a, e)


@each_size
def test_the_solution_satisfies_the_kkt_conditions(size):
    lq, compiled = lq_problem(*size), LQSolver()
    step, _ = compiled.forward(lq, compiled.solve_riccati(lq))
    residual = numpy_lq.kkt_residual(lq, step)
    scale = max(np.abs(numpy_lq.costates(lq, step)).max(), 1.0)
    assert np.abs(residual.control).max() < 1e-11 * scale
    assert np.abs(residual.dynamics).max() < 1e-11 * max(np.abs(step.dx).max(), 1.0)


@each_size
def test_roll_out_costates_and_gradient(size):
    lq = lq_problem(*size)
    lq.B[:, :, 0] *= 1e-12
    lq.r[:, 0] *= 1e-12
    policy = numpy_lq.solve_riccati(lq)
    (step, change), (expected, expected_change) = (solver.forward(lq, policy) for solver in (LQSolver(), NumpyLQ()))
    close(step.dx, expected.dx)
    close(step.du, expected.du)
    close(np.array(change), np.array(expected_change))
    for a, e in zip(LQSolver().stationarity(lq)[:2], NumpyLQ().adjoint(lq), strict=True):
        close(a, e)
    for K in (None, policy.K):
        found = [solver.stationarity(lq, K) for solver in (LQSolver(), NumpyLQ())]
        for a, e in zip(*found, strict=True):
            close(a, e)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_problem_with_one_number_that_is_none_is_told(value):
    compiled, lq = LQSolver(), lq_problem(4, 3)
    assert compiled.is_finite(lq)
    for name in lq._fields:
        block = getattr(lq, name).copy()
        block.flat[block.size - 1] = value
        assert not compiled.is_finite(lq._replace(**{name: block}))


@pytest.mark.parametrize("knot", [0, 5, 11])
def test_an_indefinite_knot_is_named(knot):
    lq = lq_problem(4, 2)
    lq.R[knot] = -1e3 * np.eye(2)
    compiled, expected = LQSolver().solve_riccati(lq), numpy_lq.solve_riccati(lq)
    assert compiled.failed_at == expected.failed_at == knot
    for a, e in zip(compiled[:2], expected[:2], strict=True):
        close(a[knot + 1 :], e[knot + 1 :])
    assert LQSolver().solve_riccati(lq, 1e6, "control").failed_at is None


def test_a_knot_that_is_no_number_is_named():
    lq = lq_problem(4, 2)
    lq.R[5] = np.nan
    assert LQSolver().solve_riccati(lq).failed_at == 5


@each_size
@pytest.mark.parametrize("regularize", ["control", "state"])
def test_riccati_within_bounds(size, regularize):
    """Active sets are NumPy's: clamped rows of K are zero, and the numbers are those of the box QP in NumPy."""
    lq = lq_problem(*size)
    rng = np.random.default_rng(6)
    bounds = (-rng.uniform(0.0, 0.4, lq.r.shape), rng.uniform(0.0, 0.4, lq.r.shape))
    bounds[0][0], bounds[1][1, :1] = -np.inf, np.inf
    actual, expected = (
        solver(lq, 0.1, regularize, bounds) for solver in (LQSolver().solve_riccati, numpy_lq.solve_riccati)
    )
    np.testing.assert_array_equal(actual.K == 0.0, expected.K == 0.0)
    clamped = (expected.k <= bounds[0]) | (expected.k >= bounds[1])
    assert clamped.any() and not clamped.all()
    np.testing.assert_array_equal(actual.k[clamped], expected.k[clamped])
    for a, e in zip(actual[:4], expected[:4], strict=True):
        close(a, e)


def test_an_indefinite_knot_within_bounds_is_named():
    lq = lq_problem(4, 2)
    lq.R[5] = -1e3 * np.eye(2)
    bounds = (np.full_like(lq.r, -9.0), np.full_like(lq.r, 9.0))
    for solver in (LQSolver().solve_riccati, numpy_lq.solve_riccati):
        assert solver(lq, bounds=bounds).failed_at == 5
