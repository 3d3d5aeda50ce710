"""HyQ's trot and gallop on soft ground: where they end, what gait they are, and what they cost.

    python -m experiments.benchmark_gaits [--quick] [--methods analytic,central_difference]

Every task is solved after compilation as published, from the motion of its joint controller and by SLQ, and to an optimum, from a
guess that steps on the spot (problems/configs/hyq_*.toml). The published trot is solved with other derivative methods on the same
engine too, for a few iterations with --quick.
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
from experiments.benchmarks.tables import markdown
from problems.legged.gaits.gait_analysis import GaitReport, analyze, contacts, diagonal_pairs, foot_positions
from trajopt import Solution
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import Config, load_config
from trajopt.config.task import Task

CONFIGS = Path(problems.__file__).parent / "configs"
PUBLISHED = "hyq_trot_published"
GOALS = {"hyq_trot": 1.5, "hyq_gallop": 2.0, PUBLISHED: 1.5, "hyq_gallop_published": 2.0}
ITERATIONS, KKT = 80, 1e-4
HEIGHT = 0.572
PLACE, LEVEL = 0.10, 0.03  # [m] of the base at the end
PHASE, AIRBORNE = 0.10, 0.15  # of the period, of the time
TIME_LIMIT = 30.0  # [s] of the trot
RIGID_LIMIT = 45.0  # [ms] of the rigid trot
FRICTION = 0.7  # of its cone
QUICK_ITERATIONS = 5


class Run(NamedTuple):
    """A solve, with the seconds it took after ``preparation`` seconds of compilation and tracing."""

    task: Task
    solution: Solution
    seconds: float
    preparation: float

    @property
    def per_iteration(self) -> float:
        """Seconds of one iteration."""
        return self.seconds / max(self.solution.iterations, 1)


def solved(config: Config) -> Run:
    """A gait from its configuration."""
    began = time.perf_counter()
    task = build_task(config)
    make_ready(config, task)
    ready = time.perf_counter()
    solution = solve_task(config, task)
    return Run(task, solution, time.perf_counter() - ready, ready - began)


def gait(run: Run) -> GaitReport:
    """Feet that carry load, over time."""
    ocp, s, feet = run.task.ocp, run.solution, run.task.feet
    return analyze(feet, s.times, contacts(ocp, feet, s.xs, s.us, LEVEL))


def ends(name: str, run: Run) -> list[list[str]]:
    """Where the base ends, beside the figures."""
    x, z = run.solution.xs[-1, 0], run.solution.xs[-1, 2]
    return [
        [f"{name}: x at the end", f"{x:.3f} m", f"{GOALS[name]} +- {PLACE}", _verdict(abs(x - GOALS[name]) <= PLACE)],
        [f"{name}: height at the end", f"{z:.3f} m", f"{HEIGHT} +- {LEVEL}", _verdict(abs(z - HEIGHT) <= LEVEL)],
        [f"{name}: finite", "", "", _verdict(bool(np.isfinite(run.solution.xs).all()))],
        [f"{name}: {run.solution.status.code.value}", *_iterations(name, run.solution.iterations)],
        [f"{name}: scaled KKT measure", *_optimality(name, run.solution.status.kkt)],
        [f"{name}: time", f"{run.seconds:.1f} s", f"{TIME_LIMIT}" if name == PUBLISHED else "", ""],
        [f"{name}: time per iteration", f"{1e3 * run.per_iteration:.0f} ms", "", ""],
        [f"{name}: compilation and tracing", f"{run.preparation:.1f} s", "", ""],
    ]


def _iterations(name: str, count: int) -> tuple[str, str, str]:
    """Measured, asked, held."""
    asked = name == "hyq_trot"
    return f"{count} iterations", f"<= {ITERATIONS}" if asked else "", _verdict(count <= ITERATIONS) if asked else ""


def _optimality(name: str, kkt: float | None) -> tuple[str, str, str]:
    """Measured, asked, held."""
    kkt = np.nan if kkt is None else kkt
    asked = name in ("hyq_trot", "hyq_gallop")
    return f"{kkt:.1e}", f"<= {KKT:g}" if asked else "", _verdict(kkt <= KKT) if asked else ""


def trot(name: str, run: Run, report: GaitReport) -> list[list[str]]:
    """True if a gait is a trot: diagonal feet in phase, every foot airborne for a while."""
    start = foot_positions(run.task.ocp, report.feet, run.solution.xs[:1])[0] - run.solution.xs[0, :3]
    pairs = [(report.feet[i], report.feet[j]) for i, j in diagonal_pairs(start)]
    rows = [
        [
            f"{name}: {b} later than {a}",
            f"{report.shift(a, b):+.3f} periods",
            f"<= {PHASE}",
            _verdict(abs(report.shift(a, b)) <= PHASE),
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
            _verdict(1 - d >= AIRBORNE),
        ]
        for foot, d in zip(report.feet, report.duty, strict=True)
    ]
    return [*rows, [f"{name}: period", f"{report.period:.3f} s", "", ""]]


def rigid(repeats: int = 20) -> list[list[str]]:
    """The trot on rigid contacts: least time of several solves without checks, by the clock and of the processor, and
    what the feet do."""
    config = load_config(CONFIGS / "hyq_trot_rigid.toml")
    run = solved(config)
    clock, processor = [], []
    for _ in range(repeats):
        began = time.perf_counter(), time.process_time()
        solve_task(config, run.task, check=False)
        clock.append(time.perf_counter() - began[0])
        processor.append(time.process_time() - began[1])
    force, ratio = stance_forces(run)
    return [
        [f"rigid trot: {run.solution.status.code.value}", f"{run.solution.iterations} iterations", "", ""],
        [
            "rigid trot: time without checks",
            f"{1e3 * min(clock):.0f} ms",
            f"{RIGID_LIMIT}",
            _verdict(1e3 * min(clock) <= RIGID_LIMIT),
        ],
        ["rigid trot: processor time without checks", f"{1e3 * min(processor):.0f} ms", "", ""],
        ["rigid trot: compilation and tracing", f"{run.preparation:.1f} s", "", ""],
        ["rigid trot: least normal force", f"{force:.0f} N", "> 0", _verdict(force > 0)],
        ["rigid trot: largest force ratio", f"{ratio:.2f}", f"{FRICTION}", _verdict(ratio <= FRICTION)],
    ]


def stance_forces(run: Run) -> tuple[float, float]:
    """The least normal force [N] of standing feet, and the largest ratio of tangential to normal force."""
    s, found = run.solution, []
    for phase, knots in zip(run.task.ocp.phases, run.task.ocp.phase_slices, strict=True):
        dynamics: Any = phase.dynamics
        system = unwrapped(dynamics.backend.map)
        if isinstance(system, Holonomic):
            forces = make_backend(ConstraintForces(system), "analytic", engine="numpy")
            found.append(forces.f(s.xs[knots], s.us[knots]).reshape(-1, 3))
    f = np.concatenate(found)
    return float(f[:, 2].min()), float((np.hypot(f[:, 0], f[:, 1]) / f[:, 2]).max())


def _verdict(good: bool) -> str:
    return "yes" if good else "NO"


def with_method(config: Config, method: str, iterations: int | None) -> Config:
    """A configuration with another derivative method, stopped after some iterations."""
    options = config.solver_options if iterations is None else replace(config.solver_options, max_iterations=iterations)
    return replace(config, backend=replace(config.backend, name=method), solver_options=options)


def methods(config: Config, names: list[str], iterations: int | None) -> list[list[str]]:
    """Iterations, time and cost of the trot by each derivative method on one engine, the first of them the reference."""
    runs = {name: solved(with_method(config, name, iterations)) for name in names}
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
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the other methods for a few iterations only")
    parser.add_argument("--methods", default="analytic,forward_difference,central_difference")
    arguments = parser.parse_args()
    rows = []
    for name in GOALS:
        run = solved(load_config(CONFIGS / f"{name}.toml"))
        rows += ends(name, run)
        report = gait(run)
        print(f"{name}: {'; '.join(report.sentences())}. {run.solution.status}")
        rows += trot(name, run, report) if name in ("hyq_trot", PUBLISHED) else []
    rows += rigid()
    print(markdown(["figure", "measured", "asked", "held"], rows))
    config = load_config(CONFIGS / f"{PUBLISHED}.toml")
    chosen = methods(config, arguments.methods.split(","), QUICK_ITERATIONS if arguments.quick else None)
    print(markdown(["trot by", "iterations", "ms per iteration", "ratio", "cost"], chosen))


if __name__ == "__main__":
    main()
