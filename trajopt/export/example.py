"""Example of an export: its initial trajectory, a feasible rollout with stabilizing gains if the open-loop rollout is unstable;
build and run of its files, to check it before the export is reported as successful.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dynamics_backends.environment import CompilerError, compiler_command
from dynamics_backends.protocol import Array
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP, fitting
from trajopt.results.solution import Solution
from trajopt.solvers.feedback import tracking_gains

LARGEST_COST = 1e300
"""Cost above which a rollout counts as diverged, as in ``prefix_slq_step``."""
WORSE = 10.0
"""A rollout whose cost exceeds this multiple of the guess's cost is compared with rollouts with the next gains."""
REMEDY = "solve it first and start the example at the solution"


class ExampleStart(NamedTuple):
    """A trajectory that satisfies the dynamics: xs (N + 1, nx), us (N, nu), gains K (N, nu, ndx), and its cost."""

    xs: Array
    us: Array
    K: Array
    cost: float


def example_start(ocp: OCP, guess: Guess | Solution | None = None) -> ExampleStart:
    """Roll out a guess from x0, if necessary with feedback gains.

    guess: default: x0 at all knots with zero controls. Tried in turn are the gains of a solution (if it is one), open loop, and
    the gains of the linear-quadratic regulator along the guess, until a rollout costs at most WORSE times the guess. Without such
    a rollout, returns the cheapest one. Raises ValueError for a guess of wrong shape, and if all rollouts diverge.
    """
    N, n, m = ocp.horizon, ocp.manifold.ndx, ocp.nu
    if guess is None:
        guess = Guess(np.tile(ocp.x0, (N + 1, 1)), np.zeros((N, m)))
    xs, us = fitting(ocp, guess.xs, guess.us)
    with np.errstate(all="ignore"):
        enough = WORSE * ocp.cost(xs, us)
    found = []
    for K in _gains(ocp, guess, np.zeros((N, m, n))):
        start = closed_loop_rollout(ocp, xs, us, K)
        if start is not None:
            found.append(start)
            if start.cost <= enough:
                break
    if not found:
        raise ValueError(
            f"cannot export {ocp.name!r}: from its guess the trajectory diverges, with feedback gains too; {REMEDY} "
            "(trajopt export CONFIG --solution FILE; guess=solution in a script)"
        )
    return min(found, key=lambda start: start.cost)


def _gains(ocp: OCP, guess: Guess | Solution, zero: Array) -> Iterator[Array]:
    """Yield gains to try: those of a solution if they are finite and of the shape of ``zero``, then ``zero``, then those of the
    regulator along the guess unless they are zero.
    """
    if isinstance(guess, Solution) and np.shape(guess.K) == zero.shape and np.isfinite(guess.K).all():
        yield np.array(guess.K, dtype=float)
    yield zero
    K = tracking_gains(ocp, guess.xs, guess.us)
    if K.any():
        yield K


def closed_loop_rollout(ocp: OCP, xs: Array, us: Array, K: Array) -> ExampleStart | None:
    """Roll out us + K (x (-) xs) from x0, clipped to the control bounds.

    Returns None if a state is not finite or the cost exceeds LARGEST_COST.
    """
    dynamics, bounds, times = ocp.phases[0].dynamics, ocp.control_bounds, ocp.t
    states, controls = np.empty_like(xs), np.empty_like(us)
    states[0] = ocp.x0
    with np.errstate(all="ignore"):
        for i, h in enumerate(ocp.dt):
            u = us[i] + K[i] @ ocp.manifold.difference(xs[i], states[i])
            controls[i] = u if bounds is None else np.clip(u, bounds[0][i], bounds[1][i])
            states[i + 1] = dynamics.step(states[i : i + 1], controls[i : i + 1], times[i], h)[0]
            if not np.isfinite(states[i + 1]).all():
                return None
        cost = ocp.cost(states, controls)
    return ExampleStart(states, controls, K, cost) if abs(cost) <= LARGEST_COST else None


# -- build and run ------------------------------------------------------------------------------------------------------


FLAGS = ("-std=c99", "-O1", "-w")
"""Flags that minimize compilation plus run time: HyQ on soft ground takes 7 s + 17 s; with -O0, 5 s + 75 s."""


def run_example(files: Mapping[str, str]) -> list[float] | None:
    """Return the cost after each SLQ step of an exported example, or None without a C compiler.

    files: texts by file name, from :func:`~trajopt.export.controller.controller_files`. Raises ValueError if the example fails,
    for example because it diverges, CompilerError if it does not compile.
    """
    try:
        command = compiler_command()
    except CompilerError:
        return None
    with tempfile.TemporaryDirectory(prefix="trajopt.export.") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        sources = [name for name in files if name.endswith(".c")]
        built = _call([*command, *FLAGS, *sources, "-o", "example", "-lm"], folder)
        if built.returncode:
            raise CompilerError(f"the exported C does not compile: {built.stderr.strip()[:2000]}")
        done = _call([str(Path(folder) / "example")], folder)
    costs = [float(line.split()[2]) for line in done.stdout.splitlines() if line.split()[1:2] == ["cost"]]
    if done.returncode or not costs:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise ValueError(f"nothing was written: the exported example failed: {reason}")
    return costs


def _call(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder without input; returns its exit code and output."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
