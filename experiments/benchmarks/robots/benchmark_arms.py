"""Random goals of many arms with default settings: success rate, cost and time of first tries.

    python -m experiments.benchmark_arms [--arms NAME_OR_FILE[:FRAME] ...] [--goals 20] [--seed 0] [--solvers auto,ddp,...]
                                         [--hard] [--guess NAME] [--time-limit 60] [--out DIR] [--best CSV ...]

Arms: the bundled ones and those of example-robot-data, or the given ones
(:mod:`experiments.benchmarks.robots.arm_goals`), with locked fingers. Each task has 100 knots of 20 ms, a goal
position, torques within the limits of the URDF, and the weights of problems/configs/kinova_reach.toml. With --hard,
goal and rest are terminal constraints, and position and velocity limits apply.

The table counts the status codes of each solver by the checks of :mod:`trajopt.solvers.success`. Iterations and times
are quantiles over all solves; times include the checks, but neither building nor tracing the task. The distance from
the goal and the cost above the best known are quantiles over converged solves. The best cost is the lowest of this run
and of the files --best from earlier runs. DIR receives arms.csv, one row per solve.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.benchmarks.robots.arm_goals import Arm, Reach, all_arms, config_of, load_arm, reach
from experiments.benchmarks.tables import STATUS_HEADS, markdown, status_counts, write_csv
from trajopt import Solution
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import Config, read_config
from trajopt.config.task import Task, position_of

SOLVERS = "auto,slq,ddp,sqp,dms"
FILE = "arms.csv"


TaskKey = tuple[str, int, str, int]


class Row(NamedTuple):
    """One solve. status: status code, or "error"; miss: distance from the goal [mm]; processor: processor time [ms].

    reason: message of the status if the solve did not converge.
    """

    variant: str
    seed: int
    arm: str
    goal: int
    solver: str
    status: str
    converged: bool
    miss: float
    iterations: int
    milliseconds: float
    processor: float
    cost: float
    reason: str

    @property
    def task(self) -> TaskKey:
        """Key of the task."""
        return self.variant, self.seed, self.arm, self.goal


class Job(NamedTuple):
    """Common settings of all solves."""

    variant: str
    seed: int
    goals: int
    solvers: tuple[str, ...]
    guess: str | None
    time_limit: float | None


def arm_rows(name: str, job: Job) -> Iterator[Row]:
    """Yield the solves of an arm; a failed loading gives error rows."""
    try:
        arm = load_arm(name)
    except Exception as error:  # a failing robot must not stop the others
        for number in range(job.goals):
            yield from (_error_row(name, number, solver, job, error) for solver in job.solvers)
        return
    for number in range(job.goals):
        task = reach(arm, job.variant, job.seed, number)
        for solver in job.solvers:
            try:
                yield solve_reach(arm, task, number, solver, job)
            except Exception as error:
                yield _error_row(name, number, solver, job, error)


def solve_reach(arm: Arm, goal: Reach, number: int, solver: str, job: Job, engine: str | None = None) -> Row:
    """Solve one task. engine: None for that of the configuration."""
    config = read_config(config_of(arm, goal, job.variant, solver, job.guess, job.time_limit), arm.name)
    config = config if engine is None else config.with_engine(engine)
    task = build_task(config)
    _compile(config, task)
    began = time.perf_counter(), time.process_time()
    solution = solve_task(config, task)
    elapsed = 1e3 * (time.perf_counter() - began[0]), 1e3 * (time.process_time() - began[1])
    return _row(arm, goal, number, solver, job, solution, elapsed)


def _compile(config: Config, task: Task) -> None:
    """Compile the kernels of a task; the solve repeats and reports errors."""
    try:
        make_ready(config, task)
    except (ValueError, ArithmeticError, RuntimeError):
        return


def _row(
    arm: Arm, goal: Reach, number: int, solver: str, job: Job, solution: Solution, elapsed: tuple[float, float]
) -> Row:
    q, status = solution.xs[-1, : arm.model.nq], solution.status
    finite = bool(np.isfinite(q).all())
    miss = 1e3 * float(np.linalg.norm(position_of(arm.model, arm.frame, q) - goal.goal)) if finite else np.inf
    return Row(
        job.variant,
        job.seed,
        arm.name,
        number,
        solver,
        status.code.value,
        status.success,
        miss,
        solution.iterations,
        *elapsed,
        float(solution.cost),
        "" if status.success else status.message,
    )


def _error_row(name: str, number: int, solver: str, job: Job, error: Exception) -> Row:
    sentence = f"{type(error).__name__}: {error}".splitlines()[0]
    nothing = (np.inf, 0, np.nan, np.nan, np.nan)
    return Row(job.variant, job.seed, name, number, solver, "error", False, *nothing, sentence)


# -- tables --------------------------------------------------------------------------------------------------


def lowest_costs(rows: Iterable[Row]) -> dict[TaskKey, float]:
    """Return the lowest cost of each task among converged solves."""
    best: dict[TaskKey, float] = {}
    for row in rows:
        if row.converged:
            best[row.task] = min(row.cost, best.get(row.task, np.inf))
    return best


def table(rows: list[Row], best: dict[TaskKey, float], file: Path | None = None) -> str:
    """Format the results, one row per solver; file: CSV file to write them to."""
    header = [
        "solver",
        "solves",
        *STATUS_HEADS,
        "mm from the goal, 50 / 90 %",
        "iterations",
        "ms",
        "ms, 90 %",
        "processor ms",
        "above best, 50 / 90 %",
    ]
    return markdown(header, [_line(s, [r for r in rows if r.solver == s], best) for s in _solvers(rows)], file)


def _line(solver: str, rows: list[Row], best: dict[TaskKey, float]) -> list[str]:
    ran, converged = [r for r in rows if r.status != "error"], [r for r in rows if r.converged]
    above = [100.0 * (r.cost / best[r.task] - 1.0) for r in converged if best[r.task] > 0]
    return [
        solver,
        str(len(rows)),
        *status_counts(r.status for r in rows),
        f"{_quantile([r.miss for r in converged], 50)} / {_quantile([r.miss for r in converged], 90)}",
        _quantile([r.iterations for r in ran], 50),
        _quantile([r.milliseconds for r in ran], 50),
        _quantile([r.milliseconds for r in ran], 90),
        _quantile([r.processor for r in ran], 50),
        f"{_quantile(above, 50)} / {_quantile(above, 90)} %",
    ]


def _quantile(values: list[float], percent: float) -> str:
    return f"{np.percentile(values, percent):.3g}" if values else "-"


def _solvers(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.solver for row in rows))


def by_arm(rows: list[Row]) -> str:
    """Format the number of converged tasks by arm and solver."""
    solvers, arms = _solvers(rows), list(dict.fromkeys(row.arm for row in rows))
    converged = Counter((r.arm, r.solver) for r in rows if r.converged)
    goals = {arm: len({r.goal for r in rows if r.arm == arm}) for arm in arms}
    return markdown(
        ["arm", "tasks", *solvers], [[a, str(goals[a]), *(str(converged[a, s]) for s in solvers)] for a in arms]
    )


def failures(rows: list[Row]) -> str:
    """List the solves that did not converge."""
    lines = [
        f"{r.arm} goal {r.goal}, {r.solver}: {r.status}, {r.miss:.3g} mm from the goal: {r.reason}"
        for r in rows
        if not r.converged
    ]
    return "\n".join(lines) or "all solves converged"


def read_rows(path: Path) -> list[Row]:
    """Read the rows of an earlier run. Raises OSError, and KeyError or ValueError for another kind of file."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_read(line) for line in csv.DictReader(file)]


def _read(line: dict[str, str]) -> Row:
    kinds = {
        "seed": int,
        "goal": int,
        "iterations": int,
        "miss": float,
        "milliseconds": float,
        "processor": float,
        "cost": float,
    }
    values = {key: kinds.get(key, str)(line[key]) for key in Row._fields}
    return Row(**{**values, "converged": line["converged"] == "True"})


# -- command -------------------------------------------------------------------------------------------------


def run(arms: list[str], job: Job, out: Path | None) -> list[Row]:
    """Run all solves and print them as they finish. An interrupt keeps the finished rows."""
    rows: list[Row] = []
    total, began = len(arms) * job.goals * len(job.solvers), time.perf_counter()
    try:
        for name in arms:
            for row in arm_rows(name, job):
                rows.append(row)
                remaining = (time.perf_counter() - began) / len(rows) * (total - len(rows))
                print(
                    f"{len(rows)}/{total} {row.arm} goal {row.goal} {row.solver}: {row.status}, {row.miss:.2g} mm, "
                    f"{row.iterations} iterations, {row.milliseconds:.0f} ms; about {remaining:.0f} s left",
                    flush=True,
                )
            if out is not None:
                write_csv(out / FILE, rows)
    except KeyboardInterrupt:
        print(f"interrupted after {len(rows)} of {total} solves")
    return rows


def main() -> None:
    """Solve and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", metavar="NAME_OR_FILE[:FRAME]", help="default: all")
    parser.add_argument("--goals", type=int, default=20, help="number of tasks per arm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solvers", default=SOLVERS, help="comma-separated names")
    parser.add_argument("--hard", action="store_true", help="limits and goal as constraints")
    parser.add_argument("--guess", help="guess; default: that of the problem")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="time limit of a solve [s]")
    parser.add_argument("--out", type=Path, help="folder of the CSV")
    parser.add_argument("--best", type=Path, nargs="*", default=[], metavar="CSV", help="files of earlier runs")
    a = parser.parse_args()
    solvers = tuple(name.strip() for name in a.solvers.split(",") if name.strip())
    job = Job("hard" if a.hard else "plain", a.seed, a.goals, solvers, a.guess, a.time_limit)
    earlier = [row for path in a.best for row in read_rows(path)]
    if a.out is not None:
        a.out.mkdir(parents=True, exist_ok=True)
    rows = run(a.arms or all_arms(), job, a.out)
    if rows:
        best = lowest_costs([*rows, *earlier])
        print("\n\n".join(["", table(rows, best, a.out and a.out / "table.csv"), by_arm(rows), failures(rows)]))


if __name__ == "__main__":
    main()
