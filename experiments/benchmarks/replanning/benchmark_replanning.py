"""Replanning of the IRB 4600 with and without a moving sphere, for many seeds; HyQ's trot.

    python -m experiments.benchmark_replanning [--processes 2] [--seeds 20] [--other-seeds 2] [--planners dms,ipm] [--methods ...]

Each seed changes the start by up to START per joint, and the path of the sphere (problems/configs/irb4600_replan.toml).
Published: 20 scenarios, 13 to 15 iterations, less than 50 ms with eight threads (M. Giftthaler et al., Advanced
Robotics 31, 2017). Distances to the true sphere are between its center and points of the links, at every control tick
of the plant. Plans are charged their computation time on one thread: each process runs one scenario at a time on its
own processor.

Each finished run is written as a line of runs.jsonl in the output folder. The same command resumes after an interrupt,
and reports the date of earlier runs; --rerun repeats them. Derivative methods other than the first run with fewer seeds,
and only with the sphere. With --trot: HyQ with a receding horizon for ten seconds (problems/configs/hyq_trot_mpc.toml).
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import problems
from experiments.benchmarks.tables import markdown
from experiments.replan.run import require_uninterrupted, setup, simulate
from trajopt.config.config import Config, load_config
from trajopt.config.scenario import MotionSettings
from trajopt.replanning.run_log import EventKind, RunLog

CONFIG = Path(problems.__file__).parent / "configs" / "irb4600_replan.toml"
START = 0.1
"""Largest change of the start position [rad]."""
REACHED, FREE = 1e-2, 0.0
"""Goal tolerance [rad], and distance from the sphere [m] below which a run is too close."""
_LOOSE = "gradient_tolerance=1e-4, constraint_tolerance=1e-5, max_iterations=6"
_SOFT_GOAL = [
    "problem.terminal='cost'",
    "problem.position_limits=false",
    "problem.weights.terminal_goal=1e5",
    "problem.weights.terminal_velocity=1e4",
]
PLANNERS: dict[str, list[str]] = {
    "dms": ["solver.name='dms'"],
    "ipm": [],
    "sqp": [f"solver={{name='sqp', hessian='exact', {_LOOSE}}}"],
    "real_time_sqp": [f"solver={{name='sqp', hessian='gauss_newton', {_LOOSE}}}", "replan.mode='real_time'"],
    "real_time_slq": ["solver={name='slq'}", "replan.mode='real_time'", *_SOFT_GOAL],
}
"""Planner -> overrides. Real-time iterations of SLQ support no constraints: the goal is a cost, and joint limits are off."""
METHODS = ("analytic", "casadi_ad", "forward_ad", "complex_step", "central_difference", "forward_difference")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TRAJOPT_THREADS": "1"}
RUNS_FILE = "runs.jsonl"


class Case(NamedTuple):
    """A run: planner, derivative method, obstacle (True with the sphere), seed."""

    planner: str
    method: str
    obstacle: bool
    seed: int


class Outcome(NamedTuple):
    """Results of a run. error: largest joint error at the end [rad]. clearance: smallest distance from the sphere [m].

    iterations: of each successful solve; ms: of each solve. failed, late: numbers of plans. unsupported: the reason if
    there was no run.
    """

    error: float = np.inf
    clearance: float | None = None
    iterations: tuple[int, ...] = ()
    ms: tuple[float, ...] = ()
    failed: int = 0
    late: int = 0
    unsupported: str = ""


def scenario(planner: str, seed: int, obstacle: bool, overrides: Sequence[str] = ()) -> Config:
    """Return the configuration of a run. Raises KeyError for an unknown planner."""
    config = load_config(CONFIG, [f"replan.seed={seed}", *PLANNERS[planner], *overrides])
    moved = np.random.default_rng(seed).uniform(-START, START, len(config.problem.q0))
    q0 = tuple((np.array(config.problem.q0) + moved).tolist())
    if obstacle:
        return replace(config, problem=replace(config.problem, q0=q0))
    still = replace(config.replan, obstacle=MotionSettings())
    return replace(config, problem=replace(config.problem, q0=q0, obstacle=None), replan=still)


def outcome(config: Config, log: RunLog) -> Outcome:
    """Return the results of a run."""
    goal = np.array(config.problem.goal_q)
    error = float(np.abs(log.xs[-1, : len(goal)] - goal).max())
    clearance = min((float(c.min()) for c in log.clearances.values()), default=None)
    found = tuple(s.iterations for s in log.solves if s.success)
    ms = tuple(round(1e3 * s.seconds, 3) for s in log.solves)
    return Outcome(error, clearance, found, ms, len(ms) - len(found), log.count(EventKind.LATE_PLAN))


def run(case: Case) -> tuple[Case, Outcome]:
    """Run a scenario; an unsupported combination of planner and method gives a reason in ``unsupported``."""
    config = scenario(case.planner, case.seed, case.obstacle, [f"backend='{case.method}'"])
    try:
        return case, outcome(config, require_uninterrupted(simulate(setup(config))))
    except ValueError as reason:
        return case, Outcome(unsupported=str(reason))


def cases(planners: Sequence[str], methods: Sequence[str], seeds: int, fewer_seeds: int) -> list[Case]:
    """Return all runs; methods after the first have ``fewer_seeds`` seeds, always with the sphere."""
    first, *rest = methods
    full = itertools.product(planners, [first], (True, False), range(seeds))
    fewer = ((planner, method, True, seed) for method in rest for planner in planners for seed in range(fewer_seeds))
    return [Case(*case) for case in (*full, *fewer)]


def read(file: Path) -> dict[Case, Outcome]:
    """Read the finished runs of a file."""
    if not file.exists():
        return {}
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {Case(**entry["case"]): _outcome(entry["outcome"]) for entry in entries}


def _outcome(entry: dict[str, Any]) -> Outcome:
    return Outcome(**{**entry, "iterations": tuple(entry["iterations"]), "ms": tuple(entry["ms"])})


def study(requested: Sequence[Case], file: Path, processes: int) -> dict[Case, Outcome]:
    """Return the requested runs; missing ones are run and written to the file as they finish. An interrupt returns fewer."""
    known = read(file)
    missing, began = [case for case in requested if case not in known], time.monotonic()
    if missing:
        os.environ.update(ONE_THREAD)
        context = multiprocessing.get_context("spawn")
        numbers = context.Value("i", 0)
        pool = context.Pool(processes, _pin_process, (numbers,))
        try:
            with pool, file.open("a", encoding="utf-8") as lines:
                for count, (case, found) in enumerate(pool.imap_unordered(run, missing), start=1):
                    lines.write(_line(case, found))
                    lines.flush()
                    known[case] = found
                    _report_run(case, found, count, len(missing), time.monotonic() - began)
        except KeyboardInterrupt:
            pool.join()
    return {case: known[case] for case in requested if case in known}


def _line(case: Case, found: Outcome) -> str:
    return json.dumps({"case": case._asdict(), "outcome": found._asdict()}) + "\n"


def write(file: Path, found: Mapping[Case, Outcome]) -> None:
    """Replace the content of the file by these runs."""
    new = file.with_suffix(".new")
    new.write_text("".join(_line(case, outcome) for case, outcome in found.items()), encoding="utf-8")
    new.replace(file)


def _report_earlier_runs(file: Path, requested: Sequence[Case]) -> None:
    """Print the number and date of earlier runs, since the code may have changed."""
    old = len(read(file).keys() & set(requested))
    if old:
        when = datetime.fromtimestamp(file.stat().st_mtime).isoformat(" ", "minutes")
        print(
            f"{old} of {len(requested)} runs exist already, from {when} or earlier; --rerun repeats them",
            file=sys.stderr,
        )


def _pin_process(numbers: Any) -> None:
    """Pin a process to one processor, if the system supports it; the parent process handles interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with numbers.get_lock():
        number, numbers.value = numbers.value, numbers.value + 1
    if hasattr(os, "sched_setaffinity"):
        available = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {available[number % len(available)]})


def _report_run(case: Case, found: Outcome, count: int, total: int, elapsed: float) -> None:
    name = f"{case.planner}, {case.method}, {'sphere' if case.obstacle else 'no sphere'}, seed {case.seed}"
    text = (
        found.unsupported or f"error {found.error:.1e} rad, {np.median(found.ms):.1f} ms per solve, {found.late} late"
    )
    print(f"{count}/{total} {elapsed:5.0f} s  {name}: {text}", file=sys.stderr, flush=True)


HEAD = (
    "planner",
    "sphere",
    "goal reached",
    "smallest distance [m]",
    "iterations p50, max",
    "ms p50, p95, max",
    "failed",
    "late",
)


def row(name: str, obstacle: bool, outcomes: Sequence[Outcome]) -> list[str]:
    """Format the results of a group of runs, pooled over their solves."""
    sphere = "yes" if obstacle else "no"
    if unsupported := next((run.unsupported for run in outcomes if run.unsupported), ""):
        return [name, sphere, unsupported, *[""] * (len(HEAD) - 3)]
    iterations, ms = (list(itertools.chain(*(getattr(run, key) for run in outcomes))) for key in ("iterations", "ms"))
    clearance = min((run.clearance for run in outcomes if run.clearance is not None), default=None)
    close = clearance is not None and clearance < FREE
    return [
        name,
        sphere,
        f"{sum(run.error <= REACHED for run in outcomes)} of {len(outcomes)}",
        "" if clearance is None else f"{clearance:.3f}{' TOO CLOSE' if close else ''}",
        f"{np.median(iterations):.0f}, {max(iterations)}" if iterations else "",
        ", ".join(f"{v:.1f}" for v in np.percentile(ms, (50, 95, 100))),
        str(sum(run.failed for run in outcomes)),
        f"{sum(run.late for run in outcomes)} of {len(ms)}",
    ]


def table(found: dict[Case, Outcome], file: Path | None = None) -> str:
    """Format a table, one row per planner and method, with and without the sphere; file: CSV file to write it to."""
    groups: dict[tuple[str, bool], list[Outcome]] = {}
    for case, result in found.items():
        groups.setdefault((f"{case.planner}, {case.method}", case.obstacle), []).append(result)
    return markdown(HEAD, [row(*group, outcomes) for group, outcomes in groups.items()], file)


def trot() -> list[list[str]]:
    """Measure HyQ's trot: distance, height errors, and possible replanning rates."""
    config = load_config(CONFIG.with_name("hyq_trot_mpc.toml"))
    start = setup(config)
    log = require_uninterrupted(simulate(start))
    seconds = np.array([(s.respond, s.prepare) for s in log.spells])
    height, requested = log.xs[:, 2], config.problem.height
    return [
        ["on its feet for", f"{log.times[-1] + log.tick:.1f} s, {log.xs[-1, 0]:.2f} m", f"{config.replan.duration} s"],
        ["largest error of its height", f"{np.abs(height - requested).max():.3f} m", ""],
        ["planned at", f"{1.0 / config.replan.period:.0f} Hz", "20 Hz"],
        ["possible, median of plans", f"{1.0 / np.median(seconds.sum(axis=1)):.0f} Hz", ""],
        ["ms of responses p50, max", f"{1e3 * np.median(seconds[:, 0]):.1f}, {1e3 * seconds[:, 0].max():.1f}", ""],
        ["late, failed", f"{log.count(EventKind.LATE_PLAN)}, {sum(not s.success for s in log.solves)}", "0, 0"],
    ]


def _parse_names(names: str, known: Iterable[str]) -> list[str]:
    """Split a comma-separated list of names. Raises ArgumentTypeError for an unknown name."""
    chosen = names.split(",")
    if unknown := set(chosen) - set(known):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    return chosen


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="number of scenarios")
    parser.add_argument("--other-seeds", type=int, default=2, help="number of scenarios of methods after the first")
    parser.add_argument("--planners", type=lambda names: _parse_names(names, PLANNERS), default=list(PLANNERS))
    parser.add_argument("--methods", type=lambda names: _parse_names(names, METHODS), default=list(METHODS))
    parser.add_argument("--processes", type=int, default=1, help="number of parallel scenarios")
    parser.add_argument("--out", type=Path, default=Path("out") / "benchmark_replanning", help="folder of the results")
    parser.add_argument("--rerun", action="store_true", help="repeat earlier runs")
    parser.add_argument("--trot", action="store_true", help="run HyQ's trot instead")
    arguments = parser.parse_args()
    if arguments.trot:
        print(markdown(["HyQ's trot", "measured", "asked"], trot()))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    requested = cases(arguments.planners, arguments.methods, arguments.seeds, arguments.other_seeds)
    file = arguments.out / RUNS_FILE
    if arguments.rerun:
        write(file, {case: outcome for case, outcome in read(file).items() if case not in requested})
    _report_earlier_runs(file, requested)
    found = study(requested, file, arguments.processes)
    print(table(found, arguments.out / "table.csv"))
    if len(found) < len(requested):
        saved = f"{len(found)} of {len(requested)} runs are in {file}"
        again = "the same command" + " without --rerun" * arguments.rerun
        sys.exit(f"Interrupted: {saved}; {again} resumes.")


if __name__ == "__main__":
    main()
