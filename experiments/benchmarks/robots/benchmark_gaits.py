"""HyQ's trot and gallop on soft ground: final base position, gait, cost and time.

    python -m experiments.benchmark_gaits [--quick] [--methods analytic,central_difference] [--out DIR]

Every task is solved twice after its functions are traced (problems/configs/hyq_*.toml): as published, by SLQ from the motion of a
joint controller; and to an optimum, from a guess that steps in place. The published trot is also solved with other
derivative methods on the same engine, for a few iterations with --quick.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import problems
from dynamics_backends.protocol import unwrapped
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from experiments.analysis.gait_analysis import GaitReport, analyze, contacts, diagonal_pairs, foot_positions
from experiments.benchmarks.tables import markdown
from trajopt import Solution
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import Config, load_config
from trajopt.config.task import Task

CONFIGS = Path(problems.__file__).parent / "configs"
PUBLISHED = "hyq_trot_published"
GOALS = {"hyq_trot": 1.5, "hyq_gallop": 2.0, PUBLISHED: 1.5, "hyq_gallop_published": 2.0}
ITERATIONS, KKT = 80, 1e-4
HEIGHT = 0.572
PLACE, LEVEL = 0.10, 0.03  # [m] tolerances of the final base position
PHASE, AIRBORNE = 0.10, 0.15  # fraction of the period, fraction of the time
TIME_LIMIT = 30.0  # [s] largest allowed time of the trot
RIGID_LIMIT = 45.0  # [ms] largest allowed time of the rigid trot
FRICTION = 0.7  # coefficient of its friction cone
QUICK_ITERATIONS = 5


class Run(NamedTuple):
    """A solve with its time [s], and the time of tracing before it [s]."""

    task: Task
    solution: Solution
    seconds: float
    preparation: float

    @property
    def per_iteration(self) -> float:
        """Time per iteration [s]."""
        return self.seconds / max(self.solution.iterations, 1)


def solve_gait(config: Config) -> Run:
    """Build, compile and solve a gait from its configuration."""
    began = time.perf_counter()
    task = build_task(config)
    make_ready(config, task)
    ready = time.perf_counter()
    solution = solve_task(config, task)
    return Run(task, solution, time.perf_counter() - ready, ready - began)


def gait(run: Run) -> GaitReport:
    """Return the gait report from the loaded feet over time."""
    ocp, s, feet = run.task.ocp, run.solution, run.task.feet
    return analyze(feet, s.times, contacts(ocp, feet, s.xs, s.us, LEVEL))


def final_rows(name: str, run: Run) -> list[list[str]]:
    """Return table rows of the final base position, optimality and times."""
    x, z = run.solution.xs[-1, 0], run.solution.xs[-1, 2]
    return [
        [f"{name}: x at the end", f"{x:.3f} m", f"{GOALS[name]} +- {PLACE}", _yes_no(abs(x - GOALS[name]) <= PLACE)],
        [f"{name}: height at the end", f"{z:.3f} m", f"{HEIGHT} +- {LEVEL}", _yes_no(abs(z - HEIGHT) <= LEVEL)],
        [f"{name}: finite", "", "", _yes_no(bool(np.isfinite(run.solution.xs).all()))],
        [f"{name}: {run.solution.status.code.value}", *_iterations(name, run.solution.iterations)],
        [f"{name}: scaled KKT error", *_optimality(name, run.solution.status.kkt)],
        [f"{name}: time", f"{run.seconds:.1f} s", f"{TIME_LIMIT}" if name == PUBLISHED else "", ""],
        [f"{name}: time per iteration", f"{1e3 * run.per_iteration:.0f} ms", "", ""],
        [f"{name}: tracing", f"{run.preparation:.1f} s", "", ""],
    ]


def _iterations(name: str, count: int) -> tuple[str, str, str]:
    """Return the cells measured, required, held."""
    required = name == "hyq_trot"
    return (
        f"{count} iterations",
        f"<= {ITERATIONS}" if required else "",
        _yes_no(count <= ITERATIONS) if required else "",
    )


def _optimality(name: str, kkt: float | None) -> tuple[str, str, str]:
    """Return the cells measured, required, held."""
    kkt = np.nan if kkt is None else kkt
    required = name in ("hyq_trot", "hyq_gallop")
    return f"{kkt:.1e}", f"<= {KKT:g}" if required else "", _yes_no(kkt <= KKT) if required else ""


def trot(name: str, run: Run, report: GaitReport) -> list[list[str]]:
    """Return table rows that check a trot: diagonal feet in phase, and a minimum airborne time of every foot."""
    start = foot_positions(run.task.ocp, report.feet, run.solution.xs[:1])[0] - run.solution.xs[0, :3]
    pairs = [(report.feet[i], report.feet[j]) for i, j in diagonal_pairs(start)]
    rows = [
        [
            f"{name}: {b} later than {a}",
            f"{report.shift(a, b):+.3f} periods",
            f"<= {PHASE}",
            _yes_no(abs(report.shift(a, b)) <= PHASE),
        ]
        for a, b in pairs
    ]
    across = abs(report.shift(report.feet[0], report.feet[1]))
    rows.append([f"{name}: front feet apart", f"{across:.3f} periods", "0.5", ""])
    rows += [
        [
            f"{name}: {foot} in the air",
            f"{100 * (1 - d):.0f} %",
            f">= {100 * AIRBORNE:.0f} %",
            _yes_no(1 - d >= AIRBORNE),
        ]
        for foot, d in zip(report.feet, report.duty, strict=True)
    ]
    return [*rows, [f"{name}: period", f"{report.period:.3f} s", "", ""]]


def rigid(repeats: int = 20) -> list[list[str]]:
    """Return table rows of the trot on rigid contacts: minimum times of solves without checks, and contact forces."""
    config = load_config(CONFIGS / "hyq_trot_rigid.toml")
    run = solve_gait(config)
    wall_times, processor_times = [], []
    for _ in range(repeats):
        began = time.perf_counter(), time.process_time()
        solve_task(config, run.task, check=False)
        wall_times.append(time.perf_counter() - began[0])
        processor_times.append(time.process_time() - began[1])
    force, ratio = stance_forces(run)
    return [
        [f"rigid trot: {run.solution.status.code.value}", f"{run.solution.iterations} iterations", "", ""],
        [
            "rigid trot: time without checks",
            f"{1e3 * min(wall_times):.0f} ms",
            f"{RIGID_LIMIT}",
            _yes_no(1e3 * min(wall_times) <= RIGID_LIMIT),
        ],
        ["rigid trot: processor time without checks", f"{1e3 * min(processor_times):.0f} ms", "", ""],
        ["rigid trot: tracing", f"{run.preparation:.1f} s", "", ""],
        ["rigid trot: smallest normal force", f"{force:.0f} N", "> 0", _yes_no(force > 0)],
        ["rigid trot: largest force ratio", f"{ratio:.2f}", f"{FRICTION}", _yes_no(ratio <= FRICTION)],
    ]


def stance_forces(run: Run) -> tuple[float, float]:
    """Return the smallest normal force [N] of standing feet, and the largest ratio of tangential to normal force."""
    s, found = run.solution, []
    for phase, knots in zip(run.task.ocp.phases, run.task.ocp.phase_slices, strict=True):
        dynamics: Any = phase.dynamics
        system = unwrapped(dynamics.backend.map)
        if isinstance(system, Holonomic):
            forces = make_backend(ConstraintForces(system), "analytic", engine="numpy")
            found.append(forces.f(s.xs[knots], s.us[knots]).reshape(-1, 3))
    f = np.concatenate(found)
    return float(f[:, 2].min()), float((np.hypot(f[:, 0], f[:, 1]) / f[:, 2]).max())


def _yes_no(good: bool) -> str:
    return "yes" if good else "NO"


def with_method(config: Config, method: str, iterations: int | None) -> Config:
    """Return a configuration with another derivative method and iteration limit."""
    options = config.solver_options if iterations is None else replace(config.solver_options, max_iterations=iterations)
    return replace(config, backend=replace(config.backend, name=method), solver_options=options)


def methods(config: Config, names: list[str], iterations: int | None) -> list[list[str]]:
    """Return iterations, time and cost of the trot by derivative method; ratios are relative to the first method."""
    runs = {name: solve_gait(with_method(config, name, iterations)) for name in names}
    first = runs[names[0]]
    return [
        [
            name,
            str(run.solution.iterations),
            f"{1e3 * run.per_iteration:.0f}",
            f"{run.per_iteration / first.per_iteration:.2f}",
            f"{run.solution.cost:.8g}",
        ]
        for name, run in runs.items()
    ]


def main() -> None:
    """Run the benchmark and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="other derivative methods for a few iterations only")
    parser.add_argument("--methods", default="analytic,forward_difference,central_difference")
    parser.add_argument("--out", type=Path, help="folder of table.csv and derivatives.csv")
    arguments = parser.parse_args()
    rows = []
    for name in GOALS:
        run = solve_gait(load_config(CONFIGS / f"{name}.toml"))
        rows += final_rows(name, run)
        report = gait(run)
        print(f"{name}: {'; '.join(report.sentences())}. {run.solution.status}")
        rows += trot(name, run, report) if name in ("hyq_trot", PUBLISHED) else []
    rows += rigid()
    out = arguments.out
    print(markdown(["figure", "measured", "required", "held"], rows, out and out / "table.csv"))
    config = load_config(CONFIGS / f"{PUBLISHED}.toml")
    chosen = methods(config, arguments.methods.split(","), QUICK_ITERATIONS if arguments.quick else None)
    heads = ["derivatives", "iterations", "ms per iteration", "ratio", "cost"]
    print(markdown(heads, chosen, out and out / "derivatives.csv"))


if __name__ == "__main__":
    main()
