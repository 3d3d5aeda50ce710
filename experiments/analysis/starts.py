"""Solves from several starts, and the distinct local optima that they end in.

The first start is the task's guess, then come the task's other guesses (an arm has one for each configuration at its goal), then
smooth random detours from the guess, all states moved by

    x_k (+) sin^2(pi t_k / T) delta,    delta of :data:`DETOUR` in the first half of the tangent, zero in the second

so that the ends stay; the velocities of a state (q, v) move with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from experiments.config.build import solve_task
from experiments.config.config import Config
from problems.task import Task
from trajopt import Guess, Solution

DETOUR = 0.5
"""Standard deviation [rad, m]."""
SAME_COST, SAME_STATE = 1e-4, 1e-2
"""Solutions whose costs (relative) and states differ by less are one optimum."""


class Optimum(NamedTuple):
    """A local optimum: a solution, and which starts ended there."""

    solution: Solution
    starts: tuple[int, ...]


def guesses(task: Task, count: int, seed: int) -> Iterator[Guess]:
    """Where to start."""
    rng = np.random.default_rng(seed)
    listed = [task.guess, *task.other_guesses][:count]
    yield from listed
    for _ in range(count - len(listed)):
        yield detour(task, rng)


def detour(task: Task, rng: np.random.Generator) -> Guess:
    """The guess with its states moved aside between the ends, and the same controls."""
    ocp = task.ocp
    ndx, half = ocp.manifold.ndx, ocp.manifold.ndx // 2
    share = ocp.times / ocp.times[-1]
    delta = np.zeros(ndx)
    delta[:half] = DETOUR * rng.standard_normal(half)
    move = np.sin(np.pi * share)[:, None] ** 2 * delta
    if ocp.model is not None and ndx == 2 * ocp.model.nv:
        move[:, half:] = np.pi / ocp.times[-1] * np.sin(2.0 * np.pi * share)[:, None] * delta[:half]
    xs = np.asarray(task.guess.xs, dtype=float)
    return Guess(np.ascontiguousarray(ocp.manifold.integrate(xs.T, move.T).T), task.guess.us)


def solutions(config: Config, task: Task, count: int, seed: int = 0) -> Iterator[Solution]:
    """A solution from each start; its number is in the metadata."""
    for number, guess in enumerate(guesses(task, count, seed)):
        found = solve_task(config, task, guess=guess)
        yield replace(found, meta={**found.meta, "start": number})


def optima(found: list[Solution]) -> list[Optimum]:
    """The distinct ones among solutions that converged, the cheapest first."""
    distinct: list[Optimum] = []
    for s in sorted((s for s in found if s.status.success), key=lambda s: s.cost):
        same = next((i for i, o in enumerate(distinct) if _same(o.solution, s)), None)
        if same is None:
            distinct.append(Optimum(s, (s.meta["start"],)))
        else:
            distinct[same] = Optimum(distinct[same].solution, (*distinct[same].starts, s.meta["start"]))
    return distinct


def _same(a: Solution, b: Solution) -> bool:
    near = abs(a.cost - b.cost) <= SAME_COST * max(abs(a.cost), abs(b.cost))
    return near and bool(np.abs(a.xs - b.xs).max() <= SAME_STATE * max(1.0, np.abs(a.xs).max()))


def best(found: list[Solution]) -> Solution:
    """The cheapest that converged, else the first."""
    distinct = optima(found)
    return distinct[0].solution if distinct else found[0]
