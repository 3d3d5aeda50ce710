"""Best known objectives of the first-try benchmark, stored in this folder and improved by ``--best``.

    best_known.csv    group, instance, seed, objective, and the start that found it

An objective counts if dynamics and constraints hold at the knots.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import trajopt as to
from experiments.benchmarks.first_try.instance import Instance
from experiments.benchmarks.first_try.runs import FEASIBLE, Job, Row, instances
from experiments.benchmarks.solvers.crocoddyl_peer import crocoddyl_solve

FILE = Path(__file__).with_name("best_known.csv")
SOLVERS = ("ddp", "fddp", "sqp", "ipm")
"""Further solvers that start from the instance's guess; "auto" and "dms" have their own rows."""
RANDOM = ("ddp", "ipm", "dms")
"""Solvers that start from random guesses; "dms" is IPOPT."""
SHOOTING = ("ddp", "fddp")
"""Solvers that are skipped for problems with constraints."""
CROCODDYL_ITERATIONS = 300
SPREAD = 1.0
"""Standard deviation of random detours of the states [rad, m], and of controls relative to their limits or to 1."""
Key = tuple[str, str, int]


class Best(NamedTuple):
    """Best objective of an instance. start: the solver, and its guess if random."""

    group: str
    instance: str
    seed: int
    objective: float
    start: str

    @property
    def key(self) -> Key:
        """Key of the instance."""
        return self.group, self.instance, self.seed


def read_best(path: Path = FILE) -> dict[Key, Best]:
    """Read the stored objectives; return {} if the file does not exist."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        lines = [
            Best(r["group"], r["instance"], int(r["seed"]), float(r["objective"]), r["start"])
            for r in csv.DictReader(file)
        ]
    return {best.key: best for best in lines}


def write_best(best: dict[Key, Best], path: Path = FILE) -> None:
    """Write the objectives, sorted by instance."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Best._fields)
        writer.writerows(b._replace(objective=float(f"{b.objective:.10g}")) for _, b in sorted(best.items()))


def merge_best(best: dict[Key, Best], found: Iterable[Best]) -> dict[Key, Best]:
    """Return the smaller objective of each instance."""
    both = dict(best)
    for b in found:
        if b.key not in both or b.objective < both[b.key].objective:
            both[b.key] = b
    return both


def from_rows(rows: Iterable[Row]) -> list[Best]:
    """Return the objectives of feasible rows."""
    return [Best(r.group, r.instance, r.seed, r.objective, r.solver) for r in rows if r.feasible]


def search(job: Job, starts: int, crocoddyl: Path | None) -> list[Best]:
    """Solve an instance with :data:`SOLVERS` from its guess, and with :data:`RANDOM` from ``starts`` random guesses.

    job: the instance, and the time limit of each solve. crocoddyl: Python of an environment with Crocoddyl, which solves the
    instances that it can state from all these guesses; None to leave it out.
    """
    instance = next(i for i in instances(job.group, job.seed) if i.name == job.instance)
    ocp, guess = instance.build()
    rng = np.random.default_rng([job.seed, zlib.crc32(job.instance.encode())])
    guesses = [random_guess(ocp, guess, rng) for _ in range(starts)]
    found = [] if crocoddyl is None else list(_by_crocoddyl(crocoddyl, instance, ocp, [guess, *guesses], job))
    for start, solver, first in _starts(ocp, guess, guesses):
        options = {} if job.time_limit is None else {"time_limit": job.time_limit}
        try:
            solution = to.solve(ocp, first, options, solver=solver)
        except Exception:  # the solver does not support the problem
            continue
        if solution.status.code.value in FEASIBLE:
            found.append(Best(job.group, job.instance, job.seed, float(solution.cost), start))
    return found


def _starts(ocp: to.OCP, guess: Any, guesses: list[to.Guess]) -> Iterator[tuple[str, str, to.Guess]]:
    for solver in SOLVERS:
        if solver not in SHOOTING or not ocp.constraints():
            yield solver, solver, guess
    for i, first in enumerate(guesses):
        for solver in RANDOM:
            if solver not in SHOOTING or not ocp.constraints():
                yield f"{solver}, random guess {i}", solver, first


def _by_crocoddyl(python: Path, instance: Instance, ocp: to.OCP, guesses: list[Any], job: Job) -> Iterator[Best]:
    """Yield the objectives of the controls that Crocoddyl finds from the guesses, the instance's own first.

    The motions start from x0 and follow these controls in the dynamics of this toolkit, so that an objective does not depend on
    Crocoddyl's model of the robot.
    """
    if instance.data is None:
        return
    arrays = [{"xs": np.asarray(g.xs).tolist(), "us": np.asarray(g.us).tolist()} for g in guesses]
    data = instance.data() | {"guesses": arrays, "max_iterations": CROCODDYL_ITERATIONS}
    for i, us in enumerate(crocoddyl_solve(python, data, 1)[1]["us"]):
        motion = to.solve(ocp, to.Guess(guesses[0].xs, us), {"max_iterations": 0}, solver="ilqr", check=False)
        name = "Crocoddyl" if i == 0 else f"Crocoddyl, random guess {i - 1}"
        if np.isfinite(motion.cost):
            yield Best(job.group, job.instance, job.seed, float(motion.cost), name)


def random_guess(ocp: to.OCP, guess: Any, rng: np.random.Generator) -> to.Guess:
    """Return a random smooth motion of the first half of the state from the initial state, with random constant controls."""
    N, ndx = ocp.horizon, ocp.manifold.ndx
    move, half = np.zeros((N + 1, ndx)), (ndx + 1) // 2
    fraction = np.asarray(ocp.times) / ocp.times[-1]
    away, bend = SPREAD * rng.standard_normal((2, half))
    move[:, :half] = np.outer(fraction, away) + np.outer(np.sin(np.pi * fraction), bend)
    xs = np.ascontiguousarray(ocp.manifold.integrate(np.asarray(guess.xs).T, move.T).T)
    bounds, us = ocp.control_bounds, np.asarray(guess.us, dtype=float)
    size = np.ones_like(us)
    if bounds is not None:
        widths = 0.25 * (bounds[1] - bounds[0])
        size = np.where(np.isfinite(widths), widths, 1.0)
    us = us + 0.3 * SPREAD * size * rng.standard_normal(us.shape[1])
    return to.Guess(xs, us if bounds is None else np.clip(us, *bounds))
