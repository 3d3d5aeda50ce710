"""Startup times from a command to its first solution: empty cache, second process, added cost term, changed weight.

    python -m experiments.benchmark_startup                       this checkout
    python -m experiments.benchmark_startup --baseline DIR        and another checkout, in the same run
    python -m experiments.benchmark_startup --only ur5_reach,pictures
    python -m experiments.benchmark_startup --baseline DIR --only speed,expansion    compares compiled solves and expansions

Each time is the wall-clock time of a separate process [s], with its processor time in brackets, which is more reliable under load.
Gaits on soft ground and of many stages stop after one iteration, other configurations at the solution. ``own`` runs scripts with
user-defined functions, with an empty cache and again, and reports the seconds of the import, the first and the second solve. Plots
are drawn twice: with meshes from the robot's files, and with cached meshes. ``speed`` is the fastest of many solves, ``expansion``
the fastest of many expansions at the guess (first order, and Hessian of the cost), in ROUNDS processes each; both also run with old
checkouts. --out writes each table to a CSV file in a folder.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from experiments.benchmarks.tables import print_table

ROOT = Path(__file__).resolve().parents[3]
CASES = {
    "ur5_reach": ("ur5_reach", "solve"),
    "ur5_obstacle": ("ur5_obstacle", "solve"),
    "hyq_trot_rigid": ("hyq_trot_rigid", "solve"),
    "hyq_trot": ("hyq_trot", "first"),
    "anymal_20_stages": ("anymal_trot", "first"),
}
PICTURES = ("ur5_reach", "hyq_trot_rigid")
SOLVED = ("ur5_reach", "ur5_obstacle", "hyq_trot_rigid")
EXPANDED = ("hyq_trot", "hyq_trot_rigid")
ROUNDS = 3
STEPS = {"cold": "empty cache", "warm": "again", "term": "a term added", "number": "a number changed"}
OWN = Path(__file__).parent / "own_functions"
"""Folder of scripts with user-defined functions."""
OWN_CASES = ("double_cart_pole", "quadrotor", "arm")
SCRIPT_HEADER = [
    "script",
    "checkout",
    "cache",
    "process",
    "import",
    "first solve",
    "second solve",
    "status",
    "iterations",
]
KINDS = 20
"""Number of different stages in ANYmal's gait: each set of stance feet has its own posture cost."""

_WORKER = """
import sys, json
from dataclasses import fields, replace
import numpy as np
config, until, step, kinds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
try:
    from trajopt.config.config import load_config
    from trajopt.config import build
except ImportError:
    from trajopt.config import load_config
    from experiments import build
import trajopt as to

settings = load_config(config)
if until == "first":
    known = {f.name for f in fields(settings.solver_options)}
    settings = replace(settings, solver_options=replace(settings.solver_options, max_iterations=1))
task = build.build_task(settings)
guess = None if kinds else task.guess  # which may be rolled out
ocp = task.ocp

def posture(joint, x, u, t, p):
    return [x[joint] - p["rest"][0]]

def more(phase, joint, weight, name):
    from functools import partial
    term = to.residual_cost(name, partial(posture, joint), ocp.manifold, 1, weight, parameters={"rest": [0.0]})
    return replace(phase, terms=(*phase.terms, term))

phases = list(ocp.phases)
if kinds:
    own = [phases[k % len(phases)] for k in range(kinds)]
    phases = [more(phase, 7 + k % 12, 1e-3, f"posture {k}") if k < 12 else
              more(more(phase, 7 + k % 12, 1e-3, f"posture {k}"), 7 + (k + 1) % 12, 1e-3, f"other {k}")
              for k, phase in enumerate(own)]
if step == "term":
    phases[0] = more(phases[0], ocp.manifold.nx - 1, 1e-4, "added")
if step == "number":
    first, *others = phases[0].terms
    phases[0] = replace(phases[0], terms=(replace(first, weight=1.01 * first.weight), *others))
ocp = replace(ocp, phases=tuple(phases)) if not kinds else replace(ocp, phases=tuple(phases), u_lower=None, u_upper=None)
solution = to.solve(ocp, guess, settings.solver_options, None, settings.solver_name)
print(json.dumps([solution.iterations, solution.cost]))
"""
_PICTURES = """
import sys, json, time
from pathlib import Path
try:
    from trajopt.config.build import task_of_solution
    from experiments.plots.plotting import plot_solution
except ImportError:
    from experiments.cli import _task_of_solution as task_of_solution
    from experiments.plotting import plot_solution
from trajopt import Solution
solution = Solution.load(sys.argv[1])
task = task_of_solution(solution)
task = task[0] if isinstance(task, tuple) else task
began, used = time.perf_counter(), time.process_time()
plot_solution(solution, Path(sys.argv[2]), task)
print(json.dumps([time.perf_counter() - began, time.process_time() - used]))
"""


_SPEED = """
import inspect, sys, time
try:
    from trajopt.config.config import load_config
    from trajopt.config import build
except ImportError:
    from trajopt.config import load_config
    from experiments import build
import trajopt as to
settings = load_config(sys.argv[1])
task = build.build_task(settings)
unchecked = {"check": False} if "check" in inspect.signature(to.solve).parameters else {}
solve = lambda: to.solve(task.ocp, task.guess, settings.solver_options, None, settings.solver_name, **unchecked)
solve()
best, until = float("inf"), time.monotonic() + 3.0
while time.monotonic() < until:
    began = time.perf_counter()
    solution = solve()
    best = min(best, time.perf_counter() - began)
print(best, solution.iterations)
"""


_EXPANSION = """
import sys, time
try:
    from trajopt.config.config import load_config
    from trajopt.config import build
    from trajopt.stage.evaluators import evaluator_for
except ImportError:
    from trajopt.config import load_config
    from experiments import build
    from trajopt.numerics import numerics_for
    evaluator_for = lambda ocp: numerics_for(ocp).evaluator
task = build.build_task(load_config(sys.argv[1]))
evaluator = evaluator_for(task.ocp)
expand = lambda: evaluator.expand(task.guess.xs, task.guess.us)
expand()
best, until = float("inf"), time.monotonic() + 3.0
while time.monotonic() < until:
    began = time.perf_counter()
    expand()
    best = min(best, time.perf_counter() - began)
print(best, task.ocp.horizon)
"""


_OWN = """
import json, runpy, sys, time
began = time.perf_counter()
import trajopt as to
seconds = [time.perf_counter() - began]
problem = runpy.run_path(sys.argv[1])["problem"]
for _ in range(2):
    began = time.perf_counter()
    solution = to.solve(*problem())
    seconds.append(time.perf_counter() - began)
print(json.dumps([*(f"{s:.3f}" for s in seconds), str(solution.status.code), str(solution.iterations)]))
"""


class Seconds(NamedTuple):
    """Wall-clock time and processor time [s]."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} ({self.cpu:.2f})"


def run(command: list[str], checkout: Path, cache: Path) -> tuple[Seconds, str]:
    """Run a process in a checkout. Raises RuntimeError if it fails."""
    env = os.environ | {"PYTHONPATH": str(checkout), "TRAJOPT_CACHE_DIR": str(cache)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have byte code
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command], cwd=checkout, env=env, capture_output=True, text=True, check=False
    )
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} in {checkout} failed:\n{done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seconds(elapsed, cpu), done.stdout


def startup_times(case: str, checkout: Path, folder: Path) -> dict[str, Seconds]:
    """Measure all steps of a case from an empty cache."""
    config, until = CASES[case]
    worker = folder / "worker.py"
    worker.write_text(_WORKER)
    path = str(ROOT / "problems" / "configs" / f"{config}.toml")
    kinds = str(KINDS if "stages" in case else 0)
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        return {step: run([str(worker), path, until, step, kinds], checkout, Path(cache))[0] for step in STEPS}


def script_times(name: str, checkout: Path, folder: Path) -> Iterator[list[str]]:
    """Yield the times of a script with user-defined functions, with an empty cache and again; columns: SCRIPT_HEADER."""
    worker = folder / "own.py"
    worker.write_text(_OWN)
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        for step in ("cold", "warm"):
            process, output = run([str(worker), str(OWN / f"{name}.py")], checkout, Path(cache))
            yield [STEPS[step], str(process), *json.loads(output)]


def plot_times(config: str, checkout: Path, folder: Path, solution: Path) -> Seconds:
    """Measure the plots of a solution, in a process that has loaded the solution."""
    worker = folder / "pictures.py"
    worker.write_text(_PICTURES)
    _, output = run([str(worker), str(solution), str(folder / "pictures")], checkout, folder / "cache")
    wall, cpu = (float(x) for x in output.strip().splitlines()[-1].strip("[]").split(","))
    return Seconds(wall, cpu)


class Repeated(NamedTuple):
    """A repeated measurement: script of its process, configurations, and name of its second output."""

    worker: str
    configs: tuple[str, ...]
    counts: str


REPEATED = {
    "speed": Repeated(_SPEED, SOLVED, "iterations"),
    "expansion": Repeated(_EXPANSION, EXPANDED, "knots"),
}


def fastest(what: str, config: str, checkouts: Mapping[str, Path], folder: Path) -> Iterator[list[str]]:
    """Yield the fastest time [ms] of each checkout, its count, and its time relative to the last checkout."""
    worker, found = folder / f"{what}.py", dict.fromkeys(checkouts, (float("inf"), ""))
    worker.write_text(REPEATED[what].worker)
    for _ in range(ROUNDS):
        for name, checkout in checkouts.items():
            path = str(checkout / "problems" / "configs" / f"{config}.toml")
            best, count = run([str(worker), path], checkout, folder / f"cache of {name}")[1].split()
            found[name] = min(found[name], (float(best), count))
    last = found[list(found)[-1]][0]
    for name, (took, count) in found.items():
        yield [config, name, f"{1e3 * took:.3f}", count, f"{100.0 * (took / last - 1.0):+.1f} %"]


def command_line(checkout: Path) -> str:
    """Return the module of the command line in a checkout."""
    return "experiments.cli.main" if (checkout / "experiments" / "cli").is_dir() else "experiments.cli"


def help_times(checkout: Path, folder: Path) -> Iterator[tuple[str, Seconds]]:
    """Measure the help commands."""
    for words in (["--help"], ["solve", "--help"]):
        yield f"`trajopt {' '.join(words)}`", run(["-m", command_line(checkout), *words], checkout, folder)[0]


def plot_rows(config: str, checkouts: Mapping[str, Path], folder: Path) -> Iterator[list[str]]:
    """Solve a configuration by each checkout, and yield the times of its plots."""
    for name, checkout in checkouts.items():
        solve = ["solve", f"problems/configs/{config}.toml", "--set", "output.plots=false", "--out"]
        run(["-m", command_line(checkout), *solve, str(folder / config)], checkout, folder / "cache")
        solution = folder / config / "solution.npz"
        yield [config, name, *(str(plot_times(config, checkout, folder, solution)) for _ in range(2))]


def tables(
    checkouts: Mapping[str, Path], chosen: list[str], folder: Path
) -> Iterator[tuple[str, list[str], Iterator[list[str]]]]:
    """Yield name, header and rows of each table; the rows are measured as they are read."""
    for checkout in checkouts.values():
        run(["-m", "compileall", "-q", "dynamics_backends", "trajopt", "problems", "experiments"], checkout, folder)
    pairs = list(checkouts.items())
    if cases := [case for case in CASES if not chosen or case in chosen]:
        found = ((case, name, startup_times(case, at, folder)) for case in cases for name, at in pairs)
        rows = ([case, name, *(str(times[step]) for step in STEPS)] for case, name, times in found)
        yield "table", ["configuration", "checkout", *STEPS.values()], rows
    if not chosen or "own" in chosen:
        rows = (
            [case, name, *row] for case in OWN_CASES for name, at in pairs for row in script_times(case, at, folder)
        )
        yield "own", SCRIPT_HEADER, rows
    if not chosen or "help" in chosen:
        rows = ([words, name, str(seconds)] for name, at in pairs for words, seconds in help_times(at, folder))
        yield "help", ["command", "checkout", "time"], rows
    if not chosen or "pictures" in chosen:
        rows = (row for config in PICTURES for row in plot_rows(config, checkouts, folder))
        yield "pictures", ["configuration", "checkout", "meshes from files", "cached meshes"], rows
    for what, repeated in REPEATED.items():
        if what in chosen:
            header = ["configuration", "checkout", f"{what} [ms]", repeated.counts, "relative to the last checkout"]
            yield what, header, (row for config in repeated.configs for row in fastest(what, config, checkouts, folder))


@click.command()
@click.option(
    "--baseline", type=click.Path(exists=True, file_okay=False), help="Another checkout, measured in the same run."
)
@click.option(
    "--only",
    default="",
    help=f"Comma-separated names out of {', '.join([*CASES, 'own', 'help', 'pictures', *REPEATED])}.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the tables as CSV files.")
def main(baseline: str | None, only: str, out: Path | None) -> None:
    """Measure the time from a command to its first solution."""
    checkouts = {"this": ROOT} | ({} if baseline is None else {"baseline": Path(baseline).resolve()})
    with tempfile.TemporaryDirectory() as folder:
        for name, header, rows in tables(checkouts, [name for name in only.split(",") if name], Path(folder)):
            print_table(header, rows, out and out / f"{name}.csv")
            print()


if __name__ == "__main__":
    main()
