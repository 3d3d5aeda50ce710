"""A user-defined method: Gauss-Newton multiple shooting (GNMS) with a nonmonotone line search, on every backend and in batches.

L. Grippo, F. Lampariello, S. Lucidi, SIAM J. Numer. Anal. 23, 1986: a step has to improve on the largest of the last few
merits, here cost + penalty * l1 norm of the gaps.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

import trajopt as to
from trajopt.solvers.methods import GAUSS_NEWTON, Accept, End, FirstGains, Roll, Start, Step

ARMIJO, MAX_DAMPING = 1e-4, 1e10


@dataclass(frozen=True)
class Options(to.MethodOptions):
    """memory: number of last iterates whose merits the line search compares with; 1 is the monotone line search."""

    memory: int = 5


def nonmonotone_gnms(size, options):
    """Gauss-Newton steps on states and controls; damping grows where the LQ problem is not convex or no step is accepted."""
    yield Start()
    at = yield FirstGains(0.0)
    last, damping, penalty = deque([at], options.memory), 0.0, 0.0
    while damping < MAX_DAMPING:
        if max(at.gradient / options.gradient_tolerance, at.defect / options.defect_tolerance) <= 1.0:
            return End.OPTIMAL
        step = yield Step(0, GAUSS_NEWTON, GAUSS_NEWTON + 1, damping)  # solve the LQ problem, roll out its full step
        found = None
        if step is not None:
            if at.theta > 0.0:
                penalty = max(penalty, 2.0 * step.slope / at.theta)
            reference = max(point.cost + penalty * point.theta for point in last)
            slope, first, trials = step.slope - penalty * at.theta, 0, [step.trial]
            while found is None and trials:
                merit = [trial.cost + penalty * trial.theta for trial in trials]
                enough = [reference + ARMIJO * 0.5 ** (first + row) * slope for row in range(len(trials))]
                found = next((row for row in range(len(trials)) if merit[row] <= enough[row]), None)
                first += len(trials)
                left = options.max_backtracks + 1 - first
                trials = (yield Roll(0, first, left)) if found is None and left > 0 else []  # the lengths 1/2, 1/4, ...
        if found is None:
            damping = max(1e-6, 10.0 * damping)
            continue
        damping = 0.0 if damping < 1e-6 else 0.1 * damping
        at = yield Accept(0, found, 1 << GAUSS_NEWTON)  # move to the trial point, and expand
        last.append(at)
    return End.NO_STEP


def reach(dynamics, model=None):
    """Move six joints from one posture to another within a second."""
    start, goal = np.array([0.0, -1.2, 1.6, -1.9, -1.57, 0.0]), np.array([0.5, -1.0, 1.2, -1.5, -1.2, 0.4])
    still = np.concatenate([goal, np.zeros(6)])
    terms = [to.control_cost(6, weight=1e-3), to.state_cost(dynamics.manifold, still, 0.1, "way")]
    end = [to.state_cost(dynamics.manifold, still, 1e3, "goal")]
    return to.OCP.single_phase(dynamics, np.concatenate([start, np.zeros(6)]), 50, 0.02, terms, end, model=model)


to.register_method("nonmonotone_gnms", nonmonotone_gnms, Options)
arm = to.FreeBody(to.load_robot("erd:ur5"))
springs = lambda x, u, t, p: np.concatenate([x[6:], 8.0 * u - 0.5 * np.sin(x[:6])])  # noqa: E731
numpy_arm = to.FunctionMap(springs, 12, 6, second_order=True)
problems = {
    "UR5": reach(to.SampledSystem(to.make_backend(arm, "analytic"), "semi_implicit_euler"), arm.model),
    "a NumPy function": reach(to.SampledSystem(to.make_backend(numpy_arm, "forward_ad"), "semi_implicit_euler")),
}
for name, ocp in problems.items():
    for solver in ("nonmonotone_gnms", "gnms"):
        found = min((to.solve(ocp, solver=solver) for _ in range(3)), key=lambda solution: solution.meta["solve_time"])
        print(f"{name}, {solver}: {found.status.code}, cost {found.cost:.9g}, {1e3 * found.meta['solve_time']:.1f} ms")
starts = problems["UR5"].x0 + np.random.default_rng(0).normal(0.0, 0.1, (100, 12)) * np.repeat([1.0, 0.0], 6)
for solver in ("nonmonotone_gnms", "gnms"):
    many = to.solve_batch(problems["UR5"], {"x0": starts}, solver=solver)
    print(f"batch, {solver}: {many.success.sum()} converged, cost {many.cost.sum():.9g}, {many.meta['seconds']:.2f} s")
