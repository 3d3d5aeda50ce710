"""Second starts of the problems of a batch whose linear gaps have blown up (:mod:`trajopt.solvers.shooting.restart`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dynamics_backends.protocol import Array
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers.batch.solution import MEASURES, BatchSolution
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting.restart import blown_up, of_both


def firsts_of(found: BatchSolution, defects: Array, options: SLQOptions) -> dict[int, Solution]:
    """By their places, the solutions that are worth a second start; defects (n,): the largest gap of each."""
    stuck = (StatusCode.LINE_SEARCH_FAILED, StatusCode.NON_FINITE)
    firsts = {i: found[i] for i, s in enumerate(found.status) if s.code in stuck}
    return {i: s for i, s in firsts.items() if blown_up(s, float(defects[i]), options)}


def with_seconds(
    found: BatchSolution, firsts: Mapping[int, Solution], seconds: Mapping[int, Solution], spent: float
) -> BatchSolution:
    """The batch with what came of second starts; spent: seconds that they took together."""
    status, times = list(found.status), list(found.meta["solve_times"])
    measures = {name: list(found.meta[f"{name}s"]) for name in MEASURES}
    for i, second in seconds.items():
        s = of_both(firsts[i], second)
        status[i] = s.status
        times[i] += second.meta["solve_time"]
        found.xs[i], found.us[i], found.cost[i], found.iterations[i] = s.xs, s.us, s.cost, s.iterations
        if found.K is not None and found.k is not None:
            found.K[i], found.k[i] = s.K, s.k
        for name, own in measures.items():
            own[i] = (
                s.meta[name] if name in s.meta else getattr(s.history[-1], "defect" if name == "violation" else name)
            )
    meta = {**found.meta, **{f"{name}s": own for name, own in measures.items()}}
    meta |= {"seconds": found.meta["seconds"] + spent, "solve_times": times, "second_starts": list(seconds)}
    return replace(found, status=tuple(status), meta=meta)
