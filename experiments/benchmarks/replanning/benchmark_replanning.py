"""The IRB 4600's go-to around a sphere that wanders through its way, with and without it, from many seeds; HyQ's trot.

    python -m experiments.benchmark_replanning [--processes 2] [--seeds 20] [--other-seeds 2] [--planners dms,ipm] [--methods ...]

Each seed moves the start by up to START in each joint and has a sphere of its own (problems/configs/irb4600_replan.toml).
Published: 20 scenarios, 13 to 15 iterations, less than 50 ms with eight threads (M. Giftthaler et al., Advanced Robotics 31, 2017).
The distance from the true sphere is that of points of the links, at every tick of the plant's control.  Plans are charged the time
they take, on one thread: each process runs one scenario at a time, on a processor of its own.

Every run is a line of runs.jsonl in the folder of the results as soon as it is done; the same command goes on where the last one
was stopped, and tells when what it does not repeat was measured; --anew measures that again.  Methods of derivatives other
than the first run fewer seeds, as the table says, and only with the sphere.  With --trot: HyQ in receding horizon for ten seconds
(problems/configs/hyq_trot_mpc.toml).
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
from experiments.replan.run import setup, simulate, whole
from trajopt.config.config import Config, load_config
from trajopt.config.scenario import MotionSettings
from trajopt.replanning.run_log import EventKind, RunLog

CONFIG = Path(problems.__file__).parent / "configs" / "irb4600_replan.toml"
START = 0.1
"""[rad]"""
REACHED, FREE = 1e-2, 0.25
"""The goal counts as reached within the first [rad]; a sphere whose center is nearer than the second [m] is close."""
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
"""Overrides of the config. Real-time iterations of SLQ know no constraints: the goal is a cost there, joint limits are left out."""
METHODS = ("analytic", "casadi_ad", "forward_ad", "complex_step", "central_difference", "forward_difference")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TRAJOPT_THREADS": "1"}
RUNS_FILE, TABLE_FILE = "runs.jsonl", "replanning.md"


class Case(NamedTuple):
    """A run: who plans, by which derivatives, with or without the sphere, from which seed."""

    planner: str
    method: str
    obstacle: bool
    seed: int


class Outcome(NamedTuple):
    """What became of it. error: the largest of a joint at the end [rad]. clearance: least distance from the sphere's center [m].

    iterations: of each solve that succeeded; ms: of each solve. failed, late: how many. refused: why there was no run.
    """

    error: float = np.inf
    clearance: float | None = None
    iterations: tuple[int, ...] = ()
    ms: tuple[float, ...] = ()
    failed: int = 0
    late: int = 0
    refused: str = ""


def scenario(planner: str, seed: int, obstacle: bool, overrides: Sequence[str] = ()) -> Config:
    """The config of a run. Raises KeyError for an unknown planner."""
    config = load_config(CONFIG, [f"replan.seed={seed}", *PLANNERS[planner], *overrides])
    moved = np.random.default_rng(seed).uniform(-START, START, len(config.problem.q0))
    q0 = tuple((np.array(config.problem.q0) + moved).tolist())
    if obstacle:
        return replace(config, problem=replace(config.problem, q0=q0))
    still = replace(config.replan, obstacle=MotionSettings())
    return replace(config, problem=replace(config.problem, q0=q0, obstacle=None), replan=still)


def outcome(config: Config, log: RunLog) -> Outcome:
    """The numbers of a run."""
    goal = np.array(config.problem.goal_q)
    error = float(np.abs(log.xs[-1, : len(goal)] - goal).max())
    clearance = min((float(c.min()) for c in log.clearances.values()), default=None)
    found = tuple(s.iterations for s in log.solves if s.success)
    ms = tuple(round(1e3 * s.seconds, 3) for s in log.solves)
    return Outcome(error, clearance, found, ms, len(ms) - len(found), log.count(EventKind.LATE_PLAN))


def run(case: Case) -> tuple[Case, Outcome]:
    """Run a scenario; a method that cannot serve a planner says so."""
    config = scenario(case.planner, case.seed, case.obstacle, [f"backend='{case.method}'"])
    try:
        return case, outcome(config, whole(simulate(setup(config))))
    except ValueError as reason:
        return case, Outcome(refused=str(reason))


def cases(planners: Sequence[str], methods: Sequence[str], seeds: int, others: int) -> list[Case]:
    """All runs; methods after the first have ``others`` seeds, and a sphere in each."""
    first, *rest = methods
    full = itertools.product(planners, [first], (True, False), range(seeds))
    fewer = ((planner, method, True, seed) for method in rest for planner in planners for seed in range(others))
    return [Case(*case) for case in (*full, *fewer)]


def read(file: Path) -> dict[Case, Outcome]:
    """The runs so far."""
    if not file.exists():
        return {}
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {Case(**entry["case"]): _outcome(entry["outcome"]) for entry in entries}


def _outcome(entry: dict[str, Any]) -> Outcome:
    return Outcome(**{**entry, "iterations": tuple(entry["iterations"]), "ms": tuple(entry["ms"])})


def study(wanted: Sequence[Case], file: Path, processes: int) -> dict[Case, Outcome]:
    """The runs in the file, and those still wanted, each written there as soon as it is done; fewer where it is interrupted."""
    known = read(file)
    left, began = [case for case in wanted if case not in known], time.monotonic()
    if left:
        os.environ.update(ONE_THREAD)
        context = multiprocessing.get_context("spawn")
        numbers = context.Value("i", 0)
        pool = context.Pool(processes, _alone, (numbers,))
        try:
            with pool, file.open("a", encoding="utf-8") as lines:
                for count, (case, found) in enumerate(pool.imap_unordered(run, left), start=1):
                    lines.write(_line(case, found))
                    lines.flush()
                    known[case] = found
                    _tell(case, found, count, len(left), time.monotonic() - began)
        except KeyboardInterrupt:
            pool.join()
    return {case: known[case] for case in wanted if case in known}


def _line(case: Case, found: Outcome) -> str:
    return json.dumps({"case": case._asdict(), "outcome": found._asdict()}) + "\n"


def write(file: Path, found: Mapping[Case, Outcome]) -> None:
    """Put these runs into the file, and no others."""
    new = file.with_suffix(".new")
    new.write_text("".join(_line(case, outcome) for case, outcome in found.items()), encoding="utf-8")
    new.replace(file)


def _tell_of_old(file: Path, wanted: Sequence[Case]) -> None:
    """Say how many of the runs are from before, and from when: the code may have changed since."""
    old = len(read(file).keys() & set(wanted))
    if old:
        when = datetime.fromtimestamp(file.stat().st_mtime).isoformat(" ", "minutes")
        print(
            f"{old} of {len(wanted)} runs are there already, from {when} or before; --anew repeats them",
            file=sys.stderr,
        )


def _alone(numbers: Any) -> None:
    """Keep a process to one processor, where the system can; an interrupt is its parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with numbers.get_lock():
        number, numbers.value = numbers.value, numbers.value + 1
    if hasattr(os, "sched_setaffinity"):
        available = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {available[number % len(available)]})


def _tell(case: Case, found: Outcome, count: int, total: int, elapsed: float) -> None:
    name = f"{case.planner}, {case.method}, {'sphere' if case.obstacle else 'no sphere'}, seed {case.seed}"
    said = found.refused or f"error {found.error:.1e} rad, {np.median(found.ms):.1f} ms a solve, {found.late} late"
    print(f"{count}/{total} {elapsed:5.0f} s  {name}: {said}", file=sys.stderr, flush=True)


HEAD = (
    "planner",
    "sphere",
    "goal reached",
    "least distance [m]",
    "iterations p50, max",
    "ms p50, p95, max",
    "failed",
    "late",
)


def row(name: str, obstacle: bool, outcomes: Sequence[Outcome]) -> list[str]:
    """The numbers of some runs, their solves taken together."""
    sphere = "yes" if obstacle else "no"
    if refused := next((run.refused for run in outcomes if run.refused), ""):
        return [name, sphere, refused, *[""] * (len(HEAD) - 3)]
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


def table(found: dict[Case, Outcome]) -> str:
    """A row for each planner and method, with and without the sphere."""
    groups: dict[tuple[str, bool], list[Outcome]] = {}
    for case, result in found.items():
        groups.setdefault((f"{case.planner}, {case.method}", case.obstacle), []).append(result)
    return markdown(HEAD, [row(*group, outcomes) for group, outcomes in groups.items()])


def trot() -> list[list[str]]:
    """What became of HyQ, and how often it could have planned."""
    config = load_config(CONFIG.with_name("hyq_trot_mpc.toml"))
    start = setup(config)
    log = whole(simulate(start))
    seconds = np.array([(s.respond, s.prepare) for s in log.spells])
    height, wanted = log.xs[:, 2], config.problem.height
    return [
        ["on its feet for", f"{log.times[-1] + log.tick:.1f} s, {log.xs[-1, 0]:.2f} m", f"{config.replan.duration} s"],
        ["largest error of its height", f"{np.abs(height - wanted).max():.3f} m", ""],
        ["planned at", f"{1.0 / config.replan.period:.0f} Hz", "20 Hz"],
        ["possible, median of plans", f"{1.0 / np.median(seconds.sum(axis=1)):.0f} Hz", ""],
        ["ms of responses p50, max", f"{1e3 * np.median(seconds[:, 0]):.1f}, {1e3 * seconds[:, 0].max():.1f}", ""],
        ["late, failed", f"{log.count(EventKind.LATE_PLAN)}, {sum(not s.success for s in log.solves)}", "0, 0"],
    ]


def _known(names: str, known: Iterable[str]) -> list[str]:
    """A comma-separated list of names. Raises ValueError for one that is not known."""
    chosen = names.split(",")
    if unknown := set(chosen) - set(known):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    return chosen


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many scenarios")
    parser.add_argument("--other-seeds", type=int, default=2, help="how many with methods after the first")
    parser.add_argument("--planners", type=lambda names: _known(names, PLANNERS), default=list(PLANNERS))
    parser.add_argument("--methods", type=lambda names: _known(names, METHODS), default=list(METHODS))
    parser.add_argument("--processes", type=int, default=1, help="scenarios run at a time")
    parser.add_argument("--out", type=Path, default=Path("out") / "benchmark_replanning", help="folder of the results")
    parser.add_argument("--anew", action="store_true", help="repeat the runs that are there from before")
    parser.add_argument("--trot", action="store_true", help="HyQ's trot instead")
    arguments = parser.parse_args()
    if arguments.trot:
        print(markdown(["HyQ's trot", "measured", "asked"], trot()))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    wanted = cases(arguments.planners, arguments.methods, arguments.seeds, arguments.other_seeds)
    file = arguments.out / RUNS_FILE
    if arguments.anew:
        write(file, {case: outcome for case, outcome in read(file).items() if case not in wanted})
    _tell_of_old(file, wanted)
    found = study(wanted, file, arguments.processes)
    text = table(found)
    (arguments.out / TABLE_FILE).write_text(text + "\n", encoding="utf-8")
    print(text)
    if len(found) < len(wanted):
        kept = f"{len(found)} of {len(wanted)} runs are in {file}"
        again = "the same command" + " without --anew" * arguments.anew
        sys.exit(f"Interrupted: {kept}; {again} goes on from there.")


if __name__ == "__main__":
    main()
