"""How fast the shooting solvers converge near a solution: DDP quadratically, SLQ linearly.

    python -m experiments.local_convergence [--out DIR]

Each problem is solved to rounding level by DDP. From starts near the solution, its controls smoothly disturbed and its states
kept, so that gaps open, iterations are then those of a solver. The error is |u - u*|_max / |u*|_max. The order is the slope of
log e_1 against log e_0 over starts of several distances; the plot shows the errors of all iterations from the farthest.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from experiments.config.build import build_task, engine_in_use
from experiments.config.config import Backend, load_config
from experiments.plots.canvas import BLUE, ORANGE, RED, figure
from problems.legged.scheduled_gait import holding_torques
from problems.robots import load_robot
from trajopt import OCP, Guess, SampledSystem, Solution, control_cost, solve, state_cost

from .benchmark_first_order import markdown, write_csv

Array = np.ndarray
CONFIGS = Path("problems/configs")
FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")
LEGS = [-0.2, 0.723, -1.458] * 2 + [-0.2, -0.723, 1.458] * 2
"""HyQ's joints as it stands [rad]."""
SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SLQ": ("slq", {}),
    "DDP, newton": ("ddp", {"curvature": "newton", "switch": 1.0}),
    "DDP, true": ("ddp", {"curvature": "true", "switch": 1.0}),
}
"""Label -> solver and options."""
STYLES = {"SLQ": (BLUE, "o"), "DDP, newton": (RED, "s"), "DDP, true": (ORANGE, "^")}
ITERATIONS = {"slq": 20, "ddp": 8}
DISTANCES = 10.0 ** -np.array([0.0, 0.5, 1.0])
"""Distances of the starts from the solution, as shares of the farthest."""
FLOOR = 1e-11
"""Errors below it are rounding."""
QUADRATIC, LINEAR = (1.8, 2.2), (0.8, 1.2)
"""Orders that count as such."""


class Convergence(NamedTuple):
    """A row of the table: a solver's errors by iteration, its order; holds: whether it is the expected one."""

    problem: str
    solver: str
    errors: str
    order: float
    holds: bool


def pendulum() -> OCP:
    """A pendulum swings up in three seconds."""
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
    """HyQ, floating without gravity, turns its trunk by moving its legs; its momentum stays zero."""
    model = load_robot("hyq").with_gravity((0.0, 0.0, 0.0))
    system = FreeBody(model)
    backend = make_backend(system, "analytic", engine=engine_in_use(Backend()))
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
    """HyQ on four feet that hold the ground shifts its trunk by 12 cm and turns it."""
    model = load_robot("hyq")
    system = Holonomic(model, [PointContact(foot, gains=(0.0, 20.0)) for foot in FEET])
    backend = make_backend(system, "analytic", engine=engine_in_use(Backend()))
    manifold = system.manifold
    x0 = np.r_[0.0, 0.0, 0.572, 0.0, 0.0, 0.0, 1.0, LEGS, np.zeros(model.nv)]
    shift = np.zeros(manifold.ndx)
    shift[:6] = 0.09, 0.03, -0.06, 0.06, 0.09, 0.03  # [m, rad] of the trunk
    goal = manifold.integrate(x0[:, None], shift[:, None])[:, 0]
    posture = np.r_[np.zeros(6), np.full(12, 1.0), np.full(model.nv, 1.0)]
    final = np.r_[np.full(6, 1e3), np.zeros(12), np.full(model.nv, 10.0)]
    running = [control_cost(12, holding_torques(model, x0, FEET), 1e-3), state_cost(manifold, x0, posture)]
    return OCP.single_phase(
        SampledSystem(backend, "semi_implicit_euler"), x0, 30, 0.02, running, [state_cost(manifold, goal, final)]
    )


def configured(name: str) -> OCP:
    """The problem of a configuration."""
    return build_task(load_config(CONFIGS / f"{name}.toml")).ocp


PROBLEMS: dict[str, tuple[Callable[[], OCP], float]] = {
    "pendulum": (pendulum, 1e-2),
    "cart-pole": (lambda: configured("cart_pole_swing_up"), 1e-4),
    "UR5 reach": (lambda: configured("ur5_reach"), 1e-5),
    "floating HyQ": (reorientation, 1e-5),
    "HyQ stance": (stance, 1e-2),
}
"""Name -> problem, and how far the farthest start is from its solution."""


def disturbed(us: Array, size: float) -> Array:
    """Controls (N, nu) with a smooth disturbance of ``size`` times the largest of them."""
    s = np.linspace(0.0, np.pi, len(us))[:, None]
    phases = np.arange(us.shape[1])
    return us + size * np.abs(us).max() * np.sin(s + phases)


def errors_of(
    ocp: OCP, best: Solution, solver: str, options: Mapping[str, Any], size: float, iterations: int
) -> list[float]:
    """The error before each iteration, from a start of this distance to a solution; one more than iterations."""
    guess, scale, errors = Guess(best.xs, disturbed(best.us, size)), np.abs(best.us).max(), []
    once = {"shooting": "all", "gradient_tolerance": 1e-15, "defect_tolerance": 1e-15, "max_iterations": 1, **options}
    for _ in range(iterations + 1):
        errors.append(float(np.abs(guess.us - best.us).max() / scale))
        if errors[-1] < FLOOR:
            break
        solution = solve(ocp, guess, once, solver=solver)
        guess = Guess(solution.xs, solution.us)
    return errors


def fitted_order(ocp: OCP, best: Solution, solver: str, options: Mapping[str, Any], size: float) -> float:
    """The slope of log e_1 against log e_0."""
    pairs = np.array([errors_of(ocp, best, solver, options, size * share, 1) for share in DISTANCES])
    return float(np.polyfit(np.log(pairs[:, 0]), np.log(pairs[:, 1]), 1)[0])


def study(name: str, ocp: OCP, size: float) -> tuple[dict[str, list[float]], list[Convergence]]:
    """The errors of all solvers on a problem, and their orders."""
    limits = {"shooting": "single", "gradient_tolerance": 1e-13, "max_iterations": 300}
    best = solve(ocp, None, limits, solver="ddp")
    found, rows = {}, []
    for label, (solver, own) in SOLVERS.items():
        found[label] = errors_of(ocp, best, solver, own, size, ITERATIONS[solver])
        order = fitted_order(ocp, best, solver, own, size)
        low, high = LINEAR if solver == "slq" else QUADRATIC
        shown = " ".join(f"{e:.0e}" for e in found[label][:8])
        rows.append(Convergence(name, label, shown, order, low <= order <= high))
    return found, rows


def plot(path: Path, studies: Mapping[str, Mapping[str, list[float]]]) -> Path:
    """One panel for each problem."""
    with figure(path, 1, len(studies), 3.2 * len(studies), 3.4, "Error to the solution", sharey=True) as axes:
        for axis, (name, found) in zip(axes.flat, studies.items(), strict=True):
            for label, errors in found.items():
                color, marker = STYLES[label]
                axis.semilogy(errors, marker=marker, markersize=3.5, color=color, label=label)
            axis.set_title(name)
            axis.set_xlabel("iteration")
        axes.flat[0].set_ylabel("|u - u*| / |u*|")
        axes.flat[-1].legend()
    return path


def main() -> None:
    """Run, print the table, and write it with the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/local_convergence"), help="folder of the results")
    options = parser.parse_args()
    studies, rows = {}, []
    for name, (make, size) in PROBLEMS.items():
        studies[name], more = study(name, make(), size)
        rows += more
    options.out.mkdir(parents=True, exist_ok=True)
    write_csv(options.out / "orders.csv", rows)
    plot(options.out / "local_convergence.png", studies)
    cells = [[r.problem, r.solver, r.errors, f"{r.order:.2f}", "yes" if r.holds else "NO"] for r in rows]
    print(markdown(["problem", "solver", "errors", "order", "as expected"], cells))
    print(f"\nWritten to {options.out}")


if __name__ == "__main__":
    main()
