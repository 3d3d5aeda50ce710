"""DDP beside SLQ on five problems: iterations, and the time of one.

    python -m experiments.benchmark_ddp [--quick] [--out DIR]

Each problem is a configuration of problems/configs, solved from its guess by SLQ and by both curvatures of DDP to the same
tolerances. The time of an iteration is the median over its records, which hold the time of derivatives, backward sweep and
roll-out, of those iterations that used the curvature in question; the fastest of several solves counts, since other load only
adds time. ``share`` tells how many iterations those are. Compilation is not counted.
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
"""Name -> solver and options; a record's ``hessian`` is the name, or that of the Hessian of the cost."""
LIMITS = {"newton": 1.6, "true": 2.5}
"""Times of one SLQ iteration that one of DDP may take, on the first problem."""


class Entry(NamedTuple):
    """iterations, those of them with the variant's curvature, ms of one such, ms of the solve, and the first two over SLQ's."""

    problem: str
    variant: str
    status: str
    cost: float
    iterations: int
    share: int
    iteration_ms: float
    solve_ms: float
    iterations_ratio: float
    time_ratio: float


def options_of(config: Config) -> dict[str, Any]:
    """The options that all variants share."""
    own = asdict(config.solver_options)
    return {key: own[key] for key in ("shooting", "gaps", "gradient_tolerance", "defect_tolerance", "max_iterations")}


def iteration_times(solution: Solution, variant: str) -> list[float]:
    """Seconds of the iterations that used the variant's curvature."""
    kinds = ("gauss_newton", "exact") if variant == "slq" else (variant,)
    return [sum(r.times.values()) for r in solution.history[:-1] if r.hessian in kinds]


def entries(name: str, repetitions: int) -> Iterator[Entry]:
    """The variants on a problem."""
    config = load_config(CONFIGS / f"{name}.toml")
    task, shared = build_task(config), options_of(config)
    make_ready(config, task)
    first: Entry | None = None
    for variant, (solver, own) in VARIANTS.items():
        solve(task.ocp, task.guess, shared | own, solver=solver)  # compiles what is missing
        runs = [solve(task.ocp, task.guess, shared | own, solver=solver) for _ in range(repetitions)]
        times = [median(found) for run in runs if (found := iteration_times(run, variant))]
        s, one = runs[0], 1e3 * min(times, default=float("nan"))
        whole = 1e3 * min(run.meta["solve_time"] for run in runs)
        numbers = (str(s.status.code), s.cost, s.iterations, len(iteration_times(s, variant)), one, whole)
        base = (s.iterations, one) if first is None else (first.iterations, first.iteration_ms)
        entry = Entry(name, variant, *numbers, s.iterations / base[0], one / base[1])
        first = first or entry
        yield entry


def report(found: Sequence[Entry]) -> str:
    """The table, and whether the limits hold."""
    rows = [[f"{v:.6g}" if isinstance(v, float) else str(v) for v in e] for e in found]
    header = [field.replace("_", " ") for field in Entry._fields]
    lines = [f"{platform.machine()}, Python {platform.python_version()}", "", markdown(header, rows), ""]
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
    text = report(found)
    write_report(options.out, text, ddp=found)


if __name__ == "__main__":
    main()
