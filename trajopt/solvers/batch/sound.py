"""The problems of a batch without those that no solver is given: these leave their guess, and have a status of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.status import Status
from trajopt.solvers.batch.solution import MEASURES, BatchSolution
from trajopt.solvers.problems.batch import Batch

Told = Callable[[int], None] | None
Run = Callable[[Batch, tuple[Array, Array], Told], BatchSolution]
OF_NUMBERS = ("referred", "second_starts")
"""What of ``meta`` holds numbers of problems."""


def solved_but(
    flaws: Mapping[int, Status], batch: Batch, guess: tuple[Array, Array], run: Run, told: Told, *, gains: bool
) -> BatchSolution:
    """The solutions of the problems without flaws, in their places among all.

    guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). run: solves a batch. told: how many have ended, those with flaws among them.
    """
    if not flaws:
        return run(batch, guess, told)
    n, ended, status = len(batch), len(flaws), dict(flaws)
    sound = [i for i in range(n) if i not in flaws]
    arrays, meta = (
        _unsolved(batch, guess, gains),
        {"how": "no problem was solved", "seconds": 0.0, "solve_times": [0.0] * n},
    )
    if sound:
        few: Any = tuple(rows[sound] if len(rows) == n else rows for rows in guess)
        found = run(batch.subset(sound), few, None if told is None else lambda done: told(ended + done))
        status |= dict(zip(sound, found.status, strict=True))
        for name, rows in arrays.items():
            rows[sound] = getattr(found, name)
        meta = _among(found.meta, sound, n)
    return BatchSolution(status=tuple(status[i] for i in range(n)), times=batch.times(), meta=meta, **arrays)


def _unsolved(batch: Batch, guess: tuple[Array, Array], gains: bool) -> dict[str, Any]:
    """The guesses, without costs and gains."""
    ocp, n = batch.ocp, len(batch)
    xs, us = (np.array(np.broadcast_to(rows, (n, *rows.shape[1:]))) for rows in guess)
    found: dict[str, Any] = {"xs": xs, "us": us, "cost": np.full(n, np.nan), "iterations": np.zeros(n, int)}
    if gains:
        found |= {"K": np.zeros((n, ocp.horizon, ocp.nu, ocp.manifold.ndx)), "k": np.zeros((n, ocp.horizon, ocp.nu))}
    return found


def _among(meta: Mapping[str, Any], sound: list[int], n: int) -> dict[str, Any]:
    """What is told of sound problems, of all: their numbers, and nothing of the others."""
    told = dict(meta)
    for name, nothing in {"solve_times": 0.0, "attempts": [], **{f"{m}s": np.nan for m in MEASURES}}.items():
        if name in meta:
            rows = [nothing] * n
            for i, own in zip(sound, meta[name], strict=True):
                rows[i] = own
            told[name] = rows
    return told | {name: [sound[j] for j in meta[name]] for name in OF_NUMBERS if name in meta}
