"""DDP compared with SLQ on five problems: iterations, and time per iteration.

    python -m experiments.benchmark_ddp [--quick] [--out DIR]

Each problem is a configuration of problems/configs, solved from its guess by SLQ and by both curvatures of DDP with
equal tolerances. The time of an iteration is the median over the iterations with the variant's curvature; it includes
derivatives, backward pass and rollout. The fastest of several solves counts, since other load only adds time. ``fraction``
is the number of these iterations. Times exclude tracing.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from experiments.benchmarks.tables import markdown, write_report
from trajopt import Solution, solve
from trajopt.config.build import build_task, make_ready
from trajopt.config.config import Config, load_config

CONFIGS = Path("problems/configs")
PROBLEMS = ("ur5_reach", "iiwa7_reach", "gen3_reach", "irb4600_go_to", "double_pendulum_swing_up")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "slq": ("slq", {}),
    "newton": ("ddp", {"curvature": "newton"}),
    "true": ("ddp", {"curvature": "true"}),
}
"""Variant -> solver and options. The ``hessian`` of iteration records is the variant, or the Hessian of the cost for SLQ."""
LIMITS = {"newton": 1.6, "true": 2.5}
"""Largest allowed time of a DDP iteration, relative to SLQ, on the first problem."""


class Entry(NamedTuple):
    """Results of one solve. fraction: iterations with the variant's curvature; iteration_ms: their median time.

    iterations_ratio, time_ratio: iterations and iteration_ms relative to SLQ.
    """

    problem: str
    variant: str
    status: str
    cost: float
    iterations: int
    fraction: int
    iteration_ms: float
    solve_ms: float
    iterations_ratio: float
    time_ratio: float


def options_of(config: Config) -> dict[str, Any]:
    """Return the options shared by all variants."""
    options = asdict(config.solver_options)
    return {
        key: options[key] for key in ("shooting", "gaps", "gradient_tolerance", "defect_tolerance", "max_iterations")
    }


def iteration_times(solution: Solution, variant: str) -> list[float]:
    """Return the times [s] of the iterations with the variant's curvature."""
    kinds = ("gauss_newton", "exact") if variant == "slq" else (variant,)
    return [sum(r.times.values()) for r in solution.history[:-1] if r.hessian in kinds]


def entries(name: str, repetitions: int) -> Iterator[Entry]:
    """Measure all variants on a problem."""
    config = load_config(CONFIGS / f"{name}.toml")
    task, shared = build_task(config), options_of(config)
    make_ready(config, task)
    first: Entry | None = None
    for variant, (solver, options) in VARIANTS.items():
        solve(task.ocp, task.guess, shared | options, solver=solver)  # compiles missing kernels
        runs = [solve(task.ocp, task.guess, shared | options, solver=solver) for _ in range(repetitions)]
        times = [median(found) for run in runs if (found := iteration_times(run, variant))]
        s, one = runs[0], 1e3 * min(times, default=float("nan"))
        solve_ms = 1e3 * min(run.meta["solve_time"] for run in runs)
        numbers = (str(s.status.code), s.cost, s.iterations, len(iteration_times(s, variant)), one, solve_ms)
        base = (s.iterations, one) if first is None else (first.iterations, first.iteration_ms)
        entry = Entry(name, variant, *numbers, s.iterations / base[0], one / base[1])
        first = first or entry
        yield entry


def report(found: Sequence[Entry], file: Path | None = None) -> str:
    """Format the table, and check the limits; file: CSV file to write the table to."""
    rows = [[f"{v:.6g}" if isinstance(v, float) else str(v) for v in e] for e in found]
    header = [field.replace("_", " ") for field in Entry._fields]
    lines = [f"{platform.machine()}, Python {platform.python_version()}", "", markdown(header, rows, file), ""]
    for e in found:
        if e.problem == PROBLEMS[0] and e.variant in LIMITS:
            held = "held" if e.time_ratio <= LIMITS[e.variant] else "NOT held"
            lines.append(
                f"{e.problem}, {e.variant}: {e.time_ratio:.2f} of an SLQ iteration, at most {LIMITS[e.variant]}: {held}"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first problem only, fewer repetitions")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_ddp"), help="folder of the results")
    options = parser.parse_args()
    problems = PROBLEMS[:1] if options.quick else PROBLEMS
    found = [entry for name in problems for entry in entries(name, 3 if options.quick else 9)]
    text = report(found, options.out / "table.csv")
    write_report(options.out, text, ddp=found)


if __name__ == "__main__":
    main()
