"""Orders of convergence of DDP, SLQ and SQP near a solution.

DDP solves each problem to rounding level. Each solver then iterates from starts near the solution: smoothly perturbed controls with
unchanged states, which leaves defects. SQP starts with the multipliers of the solution. The error is |u - u*|_max / |u*|_max. The
order is the slope of log e_1 against log e_0 over several distances; the plot shows the errors of all iterations from the farthest
start. In theory, DDP is quadratic, with and without the curvature of the step along the defects, and so is SQP with the exact
Hessian. SLQ omits second derivatives of the dynamics and is linear. Each iteration is a solve of its own. DDP therefore uses the
merit function: its filter method begins with a barrier for control bounds, which moves the start away from the solution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import problems
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import engine_in_use, make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from experiments.papers.method import require
from experiments.papers.study import Claim, Comparison, Outcome
from experiments.plots.canvas import BLUE, GREEN, ORANGE, RED, figure
from problems.legged.gaits.scheduled_gait import holding_torques
from problems.robots import load_robot
from trajopt import OCP, Guess, SampledSystem, Solution, WarmStart, control_cost, solve, state_cost
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.results.solution import uninterrupted

Array = np.ndarray
SOURCE = "Beyond the papers."
CONFIGS = Path(problems.__file__).parent / "configs"
FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")
LEGS = [-0.2, 0.723, -1.458] * 2 + [-0.2, -0.723, 1.458] * 2
"""HyQ's joints in its stance [rad]."""
SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SLQ": ("slq", {"hessian": "gauss_newton"}),
    "DDP, newton": ("ddp", {"hessian": "exact", "globalization": "merit", "curvature": "newton", "switch": 1.0}),
    "DDP, true": ("ddp", {"hessian": "exact", "globalization": "merit", "curvature": "true", "switch": 1.0}),
    "SQP, exact": ("sqp", {"hessian": "exact"}),
}
"""Label -> solver and options."""
STYLES = {"SLQ": (BLUE, "o"), "DDP, newton": (RED, "s"), "DDP, true": (ORANGE, "^"), "SQP, exact": (GREEN, "v")}
ITERATIONS = {"slq": 20, "ddp": 8, "sqp": 8}
SHOOTING = {"shooting": "all", "defect_tolerance": 1e-15}
DIRECT = {"constraint_tolerance": 1e-15}
DISTANCES = 10.0 ** -np.array([0.0, 0.5, 1.0])
"""Distances of the starts from the solution, as fractions of the farthest."""
FLOOR = 1e-11
"""Smaller errors are rounding errors."""
QUADRATIC, LINEAR = (1.8, 2.2), (0.8, 1.2)
"""Ranges of orders that count as quadratic and linear."""


class Convergence(NamedTuple):
    """One table row: errors by iteration and order of a solver. holds: True if the order is the expected one."""

    problem: str
    solver: str
    errors: str
    order: float
    holds: bool


def pendulum() -> OCP:
    """Swing-up of a pendulum in three seconds."""
    system = FunctionMap(
        lambda x, u, t, p: [x[1], -9.81 * sm.sin(x[0]) + u[0]],
        Manifold.vector(2, ("angle", "rate")),
        1,
        second_order=True,
    )
    dynamics = SampledSystem(make_backend(system, "forward_ad"), "rk4")
    goal = [state_cost(system.manifold, [np.pi, 0.0], [100.0, 10.0])]
    return OCP.single_phase(dynamics, [0.0, 0.0], 60, 0.05, [control_cost(1, weight=0.1)], goal)


def reorientation() -> OCP:
    """Reorientation of HyQ without gravity: the legs' motion turns the trunk, and momentum stays zero."""
    model = load_robot("hyq").with_gravity((0.0, 0.0, 0.0))
    system = FreeBody(model)
    backend = make_backend(system, "analytic", engine=engine_in_use("auto"))
    manifold = system.manifold
    x0 = np.r_[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, LEGS, np.zeros(model.nv)]
    turned = np.zeros(manifold.ndx)
    turned[3:6] = 0.05, 0.15, 0.1  # [rad] of the trunk
    goal = manifold.integrate(x0[:, None], turned[:, None])[:, 0]
    posture = np.r_[np.zeros(6), np.full(12, 1.0), np.full(model.nv, 0.1)]
    final = np.r_[np.zeros(3), np.full(3, 300.0), np.full(12, 1.0), np.full(model.nv, 1.0)]
    running = [control_cost(12, weight=1e-2), state_cost(manifold, x0, posture)]
    return OCP.single_phase(
        SampledSystem(backend, "semi_implicit_euler"), x0, 50, 0.02, running, [state_cost(manifold, goal, final)]
    )


def stance() -> OCP:
    """Stance of HyQ on four fixed feet: the trunk moves by 12 cm and turns."""
    model = load_robot("hyq")
    system = Holonomic(model, [PointContact(foot, gains=(0.0, 20.0)) for foot in FEET])
    backend = make_backend(system, "analytic", engine=engine_in_use("auto"))
    manifold = system.manifold
    x0 = np.r_[0.0, 0.0, 0.572, 0.0, 0.0, 0.0, 1.0, LEGS, np.zeros(model.nv)]
    shift = np.zeros(manifold.ndx)
    shift[:6] = 0.09, 0.03, -0.06, 0.06, 0.09, 0.03  # [m, rad] of the trunk
    goal = manifold.integrate(x0[:, None], shift[:, None])[:, 0]
    posture = np.r_[np.zeros(6), np.full(12, 1.0), np.full(model.nv, 1.0)]
    final = np.r_[np.full(6, 1e3), np.zeros(12), np.full(model.nv, 10.0)]
    running = [
        control_cost(12, reference=holding_torques(model, x0, FEET), weight=1e-3),
        state_cost(manifold, x0, posture),
    ]
    return OCP.single_phase(
        SampledSystem(backend, "semi_implicit_euler"), x0, 30, 0.02, running, [state_cost(manifold, goal, final)]
    )


def configured(name: str) -> OCP:
    """Load the problem of a configuration."""
    return build_task(load_config(CONFIGS / f"{name}.toml", ["backend={name='analytic'}"])).ocp


PROBLEMS: dict[str, tuple[Callable[[], OCP], float]] = {
    "pendulum": (pendulum, 1e-2),
    "cart-pole": (lambda: configured("cart_pole_swing_up"), 1e-4),
    "UR5 reach": (lambda: configured("ur5_reach"), 1e-5),
    "floating HyQ": (reorientation, 1e-5),
    "HyQ stance": (stance, 1e-2),
}
"""Name -> problem, and distance of the farthest start from its solution."""


def perturbed(us: Array, size: float) -> Array:
    """Return controls (N, nu) plus a smooth perturbation of ``size`` times the largest control."""
    s = np.linspace(0.0, np.pi, len(us))[:, None]
    phases = np.arange(us.shape[1])
    return us + size * np.abs(us).max() * np.sin(s + phases)


def iteration_errors(
    ocp: OCP, best: Solution, solver: str, options: Mapping[str, Any], size: float, iterations: int
) -> list[float]:
    """Return the error before each iteration and after the last one, from a start at a given distance to the solution."""
    guess, scale, errors = Guess(best.xs, perturbed(best.us, size)), np.abs(best.us).max(), []
    own = DIRECT if solver == "sqp" else SHOOTING
    once = {**own, "gradient_tolerance": 1e-15, "kkt_tolerance": 1e-16, "max_iterations": 1, **options}
    warm = WarmStart(guess, multipliers=best.multipliers if solver == "sqp" else {})
    for _ in range(iterations + 1):
        errors.append(float(np.abs(warm.guess.us - best.us).max() / scale))
        if errors[-1] < FLOOR:
            break
        solution = require(uninterrupted(solve(ocp, options=once, solver=solver, warm_start=warm)), solver=solver)
        warm = WarmStart(Guess(solution.xs, solution.us), multipliers=solution.multipliers if solver == "sqp" else {})
    return errors


def fitted_order(ocp: OCP, best: Solution, solver: str, options: Mapping[str, Any], size: float) -> float:
    """Return the slope of log e_1 against log e_0; inf if one step reaches rounding level from most starts, NaN if a step fails."""
    pairs = np.array([iteration_errors(ocp, best, solver, options, size * share, 1) for share in DISTANCES])
    if not np.isfinite(pairs).all():
        return float("nan")
    pairs = pairs[pairs[:, 1] > FLOOR]
    if len(pairs) < 2:
        return float("inf")
    return float(np.polyfit(np.log(pairs[:, 0]), np.log(pairs[:, 1]), 1)[0])


def run(quick: bool) -> Outcome:
    """Measure all orders. Quick runs: pendulum."""
    studies: dict[str, dict[str, list[float]]] = {}
    found: list[Convergence] = []
    for name, (make, size) in PROBLEMS.items():
        if not quick or name == "pendulum":
            studies[name], more = _measure(name, make(), size)
            found += more
    rows = [c._asdict() for c in found]
    lines = [
        Comparison(
            f"order of {c.solver}, {c.problem}",
            "1" if c.solver == "SLQ" else "2",
            "rounding in one step" if np.isinf(c.order) else f"{c.order:.2f}",
            [Claim("the order of the theory", c.holds)],
            f"errors by iteration: {c.errors}",
        )
        for c in found
    ]
    return Outcome(rows, lines, partial(_draw, studies), reference="theory")


def _measure(name: str, ocp: OCP, size: float) -> tuple[dict[str, list[float]], list[Convergence]]:
    """Return errors and orders of all solvers on a problem."""
    limits = {"shooting": "single", "gradient_tolerance": 1e-13, "kkt_tolerance": 1e-16, "max_iterations": 300}
    best = uninterrupted(solve(ocp, None, limits, solver="ddp"))
    direct = uninterrupted(
        solve(ocp, Guess(best.xs, best.us), {"hessian": "exact", "gradient_tolerance": 1e-11}, solver="sqp")
    )
    best = replace(best, multipliers=direct.multipliers)
    found, rows = {}, []
    for label, (solver, own) in SOLVERS.items():
        found[label] = iteration_errors(ocp, best, solver, own, size, ITERATIONS[solver])
        order = fitted_order(ocp, best, solver, own, size)
        low, high = LINEAR if solver == "slq" else QUADRATIC
        shown = " ".join(f"{e:.0e}" for e in found[label][:8])
        rows.append(Convergence(name, label, shown, order, bool(np.isinf(order)) or low <= order <= high))
    return found, rows


def _draw(studies: Mapping[str, Mapping[str, list[float]]], path: Path) -> None:
    """Draw one panel per problem."""
    width = max(4.5, 3.2 * len(studies))
    with figure(path, 1, len(studies), width, 3.4, "Error to the solution", sharey=True) as axes:
        for axis, (name, found) in zip(axes.flat, studies.items(), strict=True):
            for label, errors in found.items():
                color, marker = STYLES[label]
                axis.semilogy(errors, marker=marker, markersize=3.5, color=color, label=label)
            axis.set_title(name)
            axis.set_xlabel("iteration")
        axes.flat[0].set_ylabel("|u - u*| / |u*|")
        axes.flat[-1].legend()
