"""Startup times from a command to its first solution: empty cache, second process, added cost term, changed weight.

    python -m experiments.benchmark_startup                       this checkout
    python -m experiments.benchmark_startup --baseline DIR        and another checkout, in the same run
    python -m experiments.benchmark_startup --only ur5_reach,pictures
    python -m experiments.benchmark_startup --baseline DIR --only speed,expansion    compares compiled solves and expansions

Each figure is the wall-clock time of a separate process [s], with its processor time and that of its compilers in
brackets, which is more reliable under load. ``solve`` stops at the solution, ``first`` after one iteration. ``own`` runs scripts
with a user's own functions, and gives the times of the import, of the first solve and of the second solve of a process, with
an empty cache and again. Plots are drawn twice: with meshes from the robot's files, and
with cached meshes. ``speed`` is the fastest of many solves, ``expansion`` the fastest of many expansions at the guess
(first order, and Hessian of the cost), in ROUNDS processes each; both also run with old checkouts.
"""

from __future__ import annotations

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
STEPS = ("cold", "warm", "term", "number")
OWN = Path(__file__).parent / "own_functions"
"""Folder of scripts with a user's own functions."""
OWN_CASES = ("double_cart_pole", "quadrotor", "arm")
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
import runpy, sys, time
began = time.perf_counter()
import trajopt as to
print(f"import {time.perf_counter() - began:.2f} s", end="")
problem = runpy.run_path(sys.argv[1])["problem"]
for which in ("first", "second"):
    began = time.perf_counter()
    solution = to.solve(*problem())
    print(f", {which} solve {time.perf_counter() - began:.3f} s", end="")
print(f", {solution.status.code}, {solution.iterations} iterations")
"""


class Seconds(NamedTuple):
    """Wall-clock time and processor time [s]."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:7.2f} ({self.cpu:6.2f})"


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


def script_times(name: str, checkout: Path, folder: Path) -> Iterator[str]:
    """Yield the times of a script with own functions, with an empty cache and again."""
    worker = folder / "own.py"
    worker.write_text(_OWN)
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        for when in ("cold", "warm"):
            whole, output = run([str(worker), str(OWN / f"{name}.py")], checkout, Path(cache))
            yield f"{when:>8}{whole!s:>18}  {output.strip()}"


def plot_times(config: str, checkout: Path, folder: Path, solution: Path) -> Seconds:
    """Measure the plots of a solution, in a process that has loaded the solution."""
    worker = folder / "pictures.py"
    worker.write_text(_PICTURES)
    _, output = run([str(worker), str(solution), str(folder / "pictures")], checkout, folder / "cache")
    wall, cpu = (float(x) for x in output.strip().splitlines()[-1].strip("[]").split(","))
    return Seconds(wall, cpu)


class Repeated(NamedTuple):
    """A repeated measurement: script of its process, configurations, and unit of its second output."""

    worker: str
    configs: tuple[str, ...]
    counted: str


REPEATED = {
    "speed": Repeated(_SPEED, SOLVED, "iterations"),
    "expansion": Repeated(_EXPANSION, EXPANDED, "knots"),
}


def fastest(what: str, config: str, checkouts: Mapping[str, Path], folder: Path) -> Iterator[str]:
    """Yield the fastest time of each checkout, its count, and its time relative to the last checkout."""
    worker, found = folder / f"{what}.py", dict.fromkeys(checkouts, (float("inf"), ""))
    worker.write_text(REPEATED[what].worker)
    for _ in range(ROUNDS):
        for name, checkout in checkouts.items():
            path = str(checkout / "problems" / "configs" / f"{config}.toml")
            best, count = run([str(worker), path], checkout, folder / f"cache of {name}")[1].split()
            found[name] = min(found[name], (float(best), count))
    last = found[list(found)[-1]][0]
    for name, (took, count) in found.items():
        ratio = f"{100.0 * (took / last - 1.0):+8.1f} %"
        yield f"{f'{what} of {config}':28}{name:10}{1e3 * took:10.3f} ms{count:>6} {REPEATED[what].counted}{ratio}"


def command_line(checkout: Path) -> str:
    """Return the module of the command line in a checkout."""
    return "experiments.cli.main" if (checkout / "experiments" / "cli").is_dir() else "experiments.cli"


def help_times(checkout: Path, folder: Path) -> Iterator[tuple[str, Seconds]]:
    """Measure the help commands."""
    for words in (["--help"], ["solve", "--help"]):
        yield f"trajopt {' '.join(words)}", run(["-m", command_line(checkout), *words], checkout, folder)[0]


def report(checkouts: Mapping[str, Path], chosen: list[str], folder: Path) -> Iterator[str]:
    """Yield the table lines."""
    for checkout in checkouts.values():
        run(["-m", "compileall", "-q", "dynamics_backends", "trajopt", "problems", "experiments"], checkout, folder)
    yield f"{'':24}{'':10}" + "".join(f"{step:>18}" for step in STEPS)
    for case in (case for case in CASES if not chosen or case in chosen):
        for name, checkout in checkouts.items():
            found = startup_times(case, checkout, folder)
            yield f"{case:24}{name:10}" + "".join(f"{found[step]!s:>18}" for step in STEPS)
    if not chosen or "own" in chosen:
        for case in OWN_CASES:
            for name, checkout in checkouts.items():
                for line in script_times(case, checkout, folder):
                    yield f"{'own ' + case:24}{name:10}{line}"
    if not chosen or "help" in chosen:
        for name, checkout in checkouts.items():
            for what, seconds in help_times(checkout, folder):
                yield f"{what:24}{name:10}{seconds!s:>18}"
    if not chosen or "pictures" in chosen:
        for config in PICTURES:
            for name, checkout in checkouts.items():
                solve = ["solve", f"problems/configs/{config}.toml", "--set", "output.plots=false", "--out"]
                run(["-m", command_line(checkout), *solve, str(folder / config)], checkout, folder / "cache")
                both = [plot_times(config, checkout, folder, folder / config / "solution.npz") for _ in range(2)]
                yield f"{'pictures of ' + config:28}{name:6}" + "".join(f"{seconds!s:>18}" for seconds in both)
    for what, repeated in REPEATED.items():
        for config in repeated.configs if what in chosen else ():
            yield from fastest(what, config, checkouts, folder)


@click.command()
@click.option(
    "--baseline", type=click.Path(exists=True, file_okay=False), help="Another checkout, measured in the same run."
)
@click.option(
    "--only",
    default="",
    help=f"Comma-separated names out of {', '.join([*CASES, 'own', 'help', 'pictures', *REPEATED])}.",
)
def main(baseline: str | None, only: str) -> None:
    """Measure the time from a command to its first solution."""
    checkouts = {"this": ROOT} | ({} if baseline is None else {"baseline": Path(baseline).resolve()})
    with tempfile.TemporaryDirectory() as folder:
        for line in report(checkouts, [name for name in only.split(",") if name], Path(folder)):
            click.echo(line)


if __name__ == "__main__":
    main()
