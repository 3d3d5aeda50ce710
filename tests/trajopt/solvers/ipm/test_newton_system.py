"""Linear systems of the interior-point method: points of compiled stages, convexified Hessians, states on their bounds."""

from dataclasses import replace

import numpy as np
import pytest
import textbook_systems as textbook
from interior_cases import factored, set_trajectory
from stage_cases import close, pendulum, problem

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt import OCP, StatusCode, bounded, control_cost, state_bounds, state_cost
from trajopt.results.records import Journal
from trajopt.solvers.interior.feasibility import Restoration
from trajopt.solvers.interior.library import Kernels
from trajopt.solvers.interior.newton import NewtonSystem
from trajopt.solvers.interior.stage_program import Point, StageProgram
from trajopt.solvers.methods.interior_requests import RestorationEnd, Restore
from trajopt.solvers.rules.barrier import STUCK, Barrier
from trajopt.solvers.rules.line_search import Filter
from trajopt.solvers.rules.regularization import Curvature


def with_engine(engine):
    """Problem of two pendulums with path and terminal constraints."""
    ocp = problem()
    backend = make_backend(FreeBody(pendulum()), "analytic", engine=engine)
    manifold = ocp.manifold
    path = to.residual_constraint("path", lambda x, u, t, p: [x[0] * x[3] + u[0] * u[1]], manifold, 1, -1.0, 9.0, nu=2)
    end = to.residual_constraint("end", lambda x, u, t, p: [to.sin(x[0]) * x[1]], manifold, 1)
    phase = replace(ocp.phases[0], dynamics=to.SampledSystem(backend, "rk4", 2), constraints=(path,))
    return replace(ocp, phases=(phase,), terminal_constraints=(end,))


def test_points_have_second_derivatives_of_their_own():
    """Evaluate another point between first and second derivatives of a point; the results equal those of NumPy stages."""
    blocks = []
    for engine in ("compiled", "numpy"):
        ocp, rng = with_engine(engine), np.random.default_rng(0)
        program = StageProgram(ocp, np.zeros((ocp.horizon, ocp.nu)), "exact")
        p, other, z = Point(program), Point(program), program.multipliers()
        z.lam[:], z.y[:] = rng.standard_normal(z.lam.shape), rng.standard_normal(z.y.shape)
        for point in (p, other):
            shape = (ocp.horizon + 1, ocp.manifold.nx), (ocp.horizon, ocp.nu)
            set_trajectory(program, point, *(rng.standard_normal(s) for s in shape))
        objective = program.first(p)
        program.first(other)
        program.values(other)
        program.second(p, 0.7, z)
        blocks.append((np.array([objective]), p.d, p.g, p.A, p.B, p.lx, p.lu, p.gx, p.gu, p.Q, p.S, p.R))
    for mine, numpys in zip(*blocks, strict=True):
        close(mine, numpys, 1e-10)


def test_reflected_hessians_have_the_sizes_of_the_eigenvalues():
    ocp, rng = with_engine("numpy"), np.random.default_rng(2)
    program = StageProgram(ocp, np.zeros((ocp.horizon, ocp.nu)), "exact")
    system, p, z = NewtonSystem(program), Point(program), program.multipliers()
    set_trajectory(program, p, rng.standard_normal((14, 4)), rng.standard_normal((13, 2)))
    program.first(p)
    p.v[program.s] = rng.uniform(0.0, 1.0, program.rows)
    z.lam[:] = 30.0 * rng.standard_normal(z.lam.shape)
    program.second(p, 1.0, z)
    system.condense(p, z, 0.1, 1.0)
    lq = system.lq
    before, last = hessians(lq), lq.Q[-1].copy()
    assert factored(system) and system.data.reflected > 1 and system.data.shift == 0.0
    changed = [k for k, (a, b) in enumerate(zip(before, hessians(lq), strict=True)) if not np.array_equal(a, b)]
    assert len(changed) > 1 and min(changed) >= 14 - system.data.reflected
    for k in changed:
        np.testing.assert_allclose(hessians(lq)[k], size_of(before[k]), atol=1e-9 * np.abs(before[k]).max())
    np.testing.assert_allclose(lq.Q[-1], size_of(last), atol=1e-9 * np.abs(last).max())
    for k in set(range(14 - system.data.reflected, 13)) - set(changed):
        assert np.linalg.eigvalsh(before[k]).min() > 0.0


def hessians(lq):
    """Return the Hessians H (N, n + m, n + m) of the knots."""
    return np.block([[lq.Q[:-1], lq.S.transpose(0, 2, 1)], [lq.S, lq.R]])


def size_of(H):
    values, vectors = np.linalg.eigh(H)
    return vectors @ np.diag(np.abs(values)) @ vectors.T


def steps_by_shift(curvature, most=100):
    """Return the number of steps until reflections are tried again."""
    for count in range(most):
        if not curvature.shifts:
            return count
        curvature.watch(1.0, 1.0, changed=True)
    return most


@pytest.mark.parametrize(
    ("steps", "shifts"),
    [
        ([(1.0, 1.0, True), (0.9, 1.0, True), (0.9, 1.0, True)], False),
        ([(1.0, 1.0, True), (0.9, 1.0, True), (0.9, 1.0, True), (0.8, 1.0, True)], True),  # slow
        ([(1.0, 1.0, True), (0.9, 1.0, True), (0.9, 1.0, True), (0.4, 1.0, True)], False),
        ([(1.0, 1.0, True), (0.9, 1.0, True), (0.9, 1.0, False), (0.8, 1.0, True)], False),  # one was convex
        ([(1.0, 0.05, True)], False),
        ([(1.0, 0.05, True), (1.0, 0.05, True)], True),  # short twice
        ([(1.0, 0.05, True), (1.0, 0.5, True), (1.0, 0.05, True)], False),
        ([(1.0, 0.005, True)], True),  # shorter than a hundredth once
        ([(1.0, 0.005, False)], False),
    ],
)
def test_the_shift_takes_the_place_of_reflections_that_creep(steps, shifts):
    curvature = Curvature()
    for error, alpha, changed in steps:
        assert not curvature.shifts
        curvature.watch(error, alpha, changed)
    assert curvature.shifts is shifts


def test_each_spell_of_shifts_is_twice_as_long():
    curvature, spells = Curvature(), []
    for _ in range(4):
        curvature.watch(1.0, 1e-3, changed=True)
        spells.append(steps_by_shift(curvature))
    assert spells == [5, 10, 20, 40]


def test_an_adaptive_barrier_becomes_monotone_where_it_makes_no_progress():
    barrier = Barrier(0.1, 1e-8, adaptive=True)
    for _ in range(4):
        assert not barrier.watch(0.2, 1e-6)
    assert barrier.watch(0.2, 1e-6) and not barrier.free
    assert barrier.mu == pytest.approx(8e-7)
    changed = [barrier.watch(0.2, 1e-6) for _ in range(100)]
    assert changed.index(True) == STUCK and changed.count(True) == 1
    assert not barrier.adaptive and not barrier.free
    assert barrier.mu == pytest.approx(0.02)  # an error of at most ten mu ends a barrier problem
    assert not barrier.watch(1e-9, 1e-9) and not barrier.free


def test_a_monotone_barrier_does_not_rise_above_its_start():
    barrier = Barrier(1e-3, 1e-8, adaptive=True)
    for _ in range(100):
        barrier.watch(1e3, 1e-4)
    assert not barrier.adaptive and barrier.mu == 1e-3


def walls(scheme):
    """Problems of a mass whose x_0 or equations put states on their bounds, without an interior."""
    dynamics = to.SampledSystem(to.make_backend(textbook.double_integrator(), "forward_ad"), scheme)
    manifold, free = dynamics.manifold, np.inf
    goal = bounded(state_cost(manifold, [1.0, 0.0]), name="goal")
    curved = to.residual_constraint("goal", lambda x, u, t, p: [x[0] + x[0] ** 3 - 2.0, x[1]], manifold, 2)
    beyond = state_bounds(manifold, [-free, -free], [1.0, free], "beyond")
    behind = state_bounds(manifold, [0.0, -free], [free, free], "behind")
    row = to.residual_constraint(
        "row", lambda x, u, t, p: [x[0] ** 2 + x[1] ** 2 + 0.0 * u[0]], manifold, 1, 0.0, 4.0, nu=1
    )
    cases = {"start": ([behind], [goal]), "goal": ([beyond], [curved, beyond]), "row of the start": ([row], [goal])}
    for name, (path, end) in cases.items():
        fields = {"constraints": path, "terminal_constraints": end, "replay_tolerance": np.inf}
        yield name, OCP.single_phase(dynamics, np.zeros(2), 10, 0.1, [control_cost(1)], **fields)


@pytest.mark.parametrize("name", ["start", "goal", "row of the start"])
@pytest.mark.parametrize("scheme", ["euler", "rk4"])
def test_states_that_equations_put_on_bounds(scheme, name):
    ocp = dict(walls(scheme))[name]
    free = replace(ocp, phases=tuple(replace(phase, constraints=()) for phase in ocp.phases))
    s, other = to.solve(ocp, solver="ipm"), to.solve(free, solver="ipm")
    assert s.status.code == StatusCode.CONVERGED, s.status
    assert s.iterations <= 15 and s.cost == pytest.approx(other.cost, rel=1e-7)
    assert max(np.abs(values).max() for values in s.multipliers.values()) < 1e3


def test_stages_of_numpy_have_the_linear_algebra_of_the_library():
    s = to.solve(with_engine("numpy"), solver="ipm")
    assert s.status.code == StatusCode.CONVERGED, s.status


def test_cached_preparations_serve_only_problems_of_the_same_structure():
    """Solves with a cached workspace equal fresh solves, for other goals, bounds, numbers of rows and terms."""
    from trajopt.guesses.guesses import SolverCache, WarmStart, constant_guess

    ocp, cache = with_engine("compiled"), SolverCache()
    (phase,) = ocp.phases
    (path,) = phase.constraints
    limited = replace(ocp, u_lower=np.full(ocp.nu, -0.3), u_upper=np.full(ocp.nu, 0.4))
    wider = replace(ocp, phases=(replace(phase, constraints=(path.updated(lower=-2.0, upper=np.inf),)),))
    slower = replace(ocp, phases=(replace(phase, dt=1.1 * phase.dt),), x0=0.9 * ocp.x0)
    freer = replace(ocp, terminal_constraints=())
    fewer = replace(ocp, phases=(replace(phase, terms=phase.terms[:1]),))
    taken = []
    for other in (ocp, limited, wider, slower, freer, fewer, ocp):
        before = cache.prepared.get("ipm")
        start = WarmStart(constant_guess(other), cache=cache)
        mine = to.solve(other, solver="ipm", warm_start=start, check=False)
        own = to.solve(other, solver="ipm", check=False)
        taken.append(before is not None and cache.prepared["ipm"] is before)
        assert mine.status == own.status and mine.iterations == own.iterations
        for a, b in zip((mine.xs, mine.us, mine.K), (own.xs, own.us, own.K), strict=True):
            np.testing.assert_array_equal(a, b)
    assert taken == [False, True, True, True, False, False, False]


def test_preparations_that_were_interrupted_are_not_taken_up(monkeypatch):
    """After an interrupted preparation for another structure, the next solve creates a new workspace of the right size."""
    from trajopt.guesses.guesses import SolverCache, constant_guess
    from trajopt.solvers.ipm import ipm
    from trajopt.solvers.window import interior

    def interrupt(*_):
        raise KeyboardInterrupt

    cache, inside = SolverCache(), with_engine("compiled")
    goal = state_bounds(inside.manifold, np.full(inside.manifold.ndx, -9.0), np.full(inside.manifold.ndx, 9.0), "goal")
    inside = replace(inside, terminal_constraints=(goal,))
    at = inside.x0 + 0.01
    fixed = replace(inside, terminal_constraints=(goal.updated(lower=at, upper=at),))
    ipm(inside, constant_guess(inside), cache=cache)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(interior, "StageProgram", interrupt)
        ipm(fixed, constant_guess(fixed), cache=cache)
    assert not cache.prepared
    mine, own = ipm(fixed, constant_guess(fixed), cache=cache), ipm(fixed, constant_guess(fixed))
    assert mine.status == own.status
    np.testing.assert_array_equal(mine.xs, own.xs)


@pytest.mark.parametrize("horizon", [15, 16, 31])
@pytest.mark.parametrize("far", [1e3, 1e10, 1e18])
def test_bounds_however_far_leave_the_objective_finite(far, horizon):
    """Distant bounds leave the barrier finite: its logarithms are those of the distances."""
    dynamics = to.SampledSystem(to.make_backend(textbook.double_integrator(), "forward_ad"), "euler")
    ocp = OCP.single_phase(dynamics, np.zeros(2), horizon, 0.1, [control_cost(1)], u_lower=[-far], u_upper=[far])
    program = StageProgram(ocp, np.zeros((horizon, 1)), "gauss_newton")
    p, out = Point(program), np.zeros(5)
    set_trajectory(program, p, np.zeros((horizon + 1, 2)), np.zeros((horizon, 1)))
    program.values(p)
    Kernels().values(program.ref, *(a.ctypes.data for a in (p.v, p.d, p.g, out)))
    assert out[3] == pytest.approx(-2 * np.log(program.upper[program.u]).sum(), rel=1e-12)
    assert out[3] == pytest.approx(-2 * horizon * np.log(far), rel=1e-9)


def test_a_small_violation_is_restored_without_a_way_to_the_middle_of_the_bounds():
    """From a nearly feasible point close to its bounds, restoration reduces the violation and stays close to the bounds."""
    dynamics = to.SampledSystem(to.make_backend(textbook.double_integrator(), "forward_ad"), "euler")
    us = np.repeat([0.95, -0.95], 20)[:, None]
    xs = np.zeros((41, 2))
    for k in range(40):
        xs[k + 1] = dynamics.step(xs[k : k + 1], us[k : k + 1], 0.0, 0.05)[0]
    goal = bounded(state_cost(dynamics.manifold, xs[-1] + [1e-4, 0.0]), name="goal")
    bounds = {"u_lower": [-1.0], "u_upper": [1.0]}
    ocp = OCP.single_phase(dynamics, np.zeros(2), 40, 0.05, [control_cost(1)], terminal_constraints=[goal], **bounds)
    program = StageProgram(ocp, us, "exact")
    system, p = NewtonSystem(program), Point(program)
    set_trajectory(program, p, xs, us)
    program.first(p)
    at = system.violation(p)
    assert 5e-5 < at.largest < 2e-4
    asked = Restore(at, 1e-7, 1.0, Filter(1.0), 50, np.inf, to_feasible=False)
    found, point = Restoration(system, Journal()).run(p, Point(program), asked)
    assert found.end == RestorationEnd.ACCEPTABLE and found.iterations <= 3 and found.at.largest < 0.9 * at.largest
    assert np.abs(point.us - us).max() < 0.01
