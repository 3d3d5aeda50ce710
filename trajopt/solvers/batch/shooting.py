"""SLQ's family in lanes: statuses of the problems of a batch, and second starts of those whose linear gaps blew up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.batch.abreast.shooting_lanes import Lanes
from trajopt.solvers.batch.problems.batch import Batch
from trajopt.solvers.batch.problems.values import (
    COST_CONVERGED,
    ENDS,
    NOT_BEGUN,
    NOT_POSITIVE_DEFINITE,
    Members,
    measures_of,
)
from trajopt.solvers.batch.second_starts import firsts_of, with_seconds
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting import shooting_diagnosis
from trajopt.solvers.shooting.restart import restarted
from trajopt.stage.numerics import numerics_for


def in_lanes(
    batch: Batch,
    guess: tuple[Array, Array],
    options: SLQOptions,
    *,
    gains: bool,
    threads: int | None,
    told: Callable[[int], None] | None,
    max_iterations: Array | None = None,
) -> BatchSolution:
    """Solve a batch; guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). max_iterations (n,): of each, where they differ.

    Raises ValueError where the problem is not compiled.
    """
    lanes, n = Lanes(batch[0], options), len(batch)  # which has the bounds that only members have
    limits = np.full(n, options.max_iterations) if max_iterations is None else max_iterations
    began = time.perf_counter()
    members = Members(batch, lanes.stages, lanes.end, guess, limits, gains)
    use = lanes.run(members, threads, told)
    members.results["seconds"] /= use.together
    seconds = time.perf_counter() - began
    status = tuple(_status(batch, i, members, _limited(options, int(limits[i]))) for i in range(n))
    r = members.results
    meta = {"seconds": seconds, "solve_times": r["seconds"].tolist(), "lanes": use.told, **measures_of(r)}
    meta |= {"stopped": True} if use.stopped else {}
    for i in np.flatnonzero(r["code"] == ENDS["non_finite"]):  # which leaves the guess behind
        members.xs[i], members.us[i] = (rows[i if len(rows) == n else 0] for rows in guess)
        r["cost"][i] = np.nan
    arrays = members.xs, members.us, r["cost"].copy(), r["iterations"].copy()
    found = BatchSolution(*arrays, status, batch.times(), members.K, members.k, meta)
    return _second_starts(batch, guess, options, found, r["defect"], threads=threads)


def _limited(options: SLQOptions, limit: int) -> SLQOptions:
    """The options with another limit of iterations."""
    return options if limit == options.max_iterations else replace(options, max_iterations=limit)


def _status(batch: Batch, i: int, members: Members, o: SLQOptions) -> Status:
    """The status of problem i: that of a single solve, with a new expansion where it names a knot."""
    r: Any = members.results[i]
    code, n, kkt = int(r["code"]), int(r["iterations"]), float(r["kkt"])
    errors = termination.Errors(kkt, float(r["gradient"]), float(r["defect"]))
    measured = termination.Measured(n, errors, o.tolerances)
    ends: dict[int, Callable[[], Status]] = {
        ENDS["converged"]: lambda: termination.converged(measured._replace(errors=errors._replace(kkt=None))),
        ENDS["optimal"]: lambda: termination.converged(measured),
        COST_CONVERGED: lambda: termination.cost_converged(n, float(r["change"]), o.cost_tolerance, kkt),
        ENDS["max_iterations"]: lambda: termination.max_iterations(o.max_iterations, measured),
        ENDS["time_limit"]: lambda: termination.time_limit(o.time_limit, measured),
        ENDS["precision_limit"]: lambda: termination.precision_limit(measured),
        ENDS["gaps_stay_open"]: lambda: termination.line_search_failed(termination.OPEN_DEFECTS, measured),
        NOT_POSITIVE_DEFINITE: lambda: termination.not_positive_definite(
            int(r["failed_at"]), o.max_regularization, o.hessian
        ),
        ENDS["interrupted"]: lambda: termination.interrupted(n),
        NOT_BEGUN: termination.not_started,
    }
    if code in ends:
        return ends[code]()
    ocp, xs, us = batch[i], members.xs[i], members.us[i]
    with np.errstate(all="ignore"):
        expansion = numerics_for(ocp, o.hessian).evaluator.expand(xs, us)
    if code == ENDS["non_finite"]:
        return termination.non_finite(
            shooting_diagnosis.non_finite_entry(ocp, xs, expansion), termination.BETTER_ROLLOUT
        )
    return shooting_diagnosis.no_step(ocp, expansion.lq, measured)


def _second_starts(
    batch: Batch,
    guess: tuple[Array, Array],
    options: SLQOptions,
    found: BatchSolution,
    defects: Array,
    *,
    threads: int | None,
) -> BatchSolution:
    """Those whose linear gaps have blown up once more, with nonlinear ones: see :mod:`trajopt.solvers.shooting.restart`."""
    firsts = firsts_of(found, defects, options)
    if not firsts:
        return found
    chosen = list(firsts)
    again = [restarted(options, s, 0.0) for s in firsts.values()]
    guesses = tuple(g[chosen] if len(g) == len(batch) else g for g in guess)
    limits = np.array([o.max_iterations for o in again])
    common = replace(again[0], max_iterations=options.max_iterations)
    rest: dict[str, Any] = {"gains": found.K is not None, "threads": threads, "told": None}
    second = in_lanes(batch.subset(chosen), guesses, common, max_iterations=limits, **rest)  # type: ignore[arg-type]
    return with_seconds(found, firsts, {i: second[j] for j, i in enumerate(chosen)}, second.meta["seconds"])
