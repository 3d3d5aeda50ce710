"""Checks of the values of a batch: problems with NaN, forbidden infinities or crossed control bounds get a status."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.problem_batch import Batch, named_values
from trajopt.validation.not_finite import explained

UNLIMITED = ("u_lower", "u_upper", "lower", "upper")
"""Names of bounds, which may be infinite."""


def invalid_values(batch: Batch, guess: tuple[Array, Array]) -> dict[int, Status]:
    """Return the status of each problem with NaN, a forbidden infinity, or crossed control bounds, by its number.

    It is "non_finite", or "infeasible" for crossed bounds. Crossed bounds are reported only for problems without the other
    errors. guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu); a guess shared by all problems is not checked.
    """
    found = {
        i: termination.non_finite_value(name, i, may_be_infinite=_may_be_infinite(name))
        for i, name in _not_numbers(batch, guess).items()
    }
    for i, bounds in _crossed(batch):
        found.setdefault(i, termination.infeasible(bounds, f"Correct the bounds. {termination.REST_OF_BATCH}"))
    return found


def _crossed(batch: Batch) -> Iterator[tuple[int, termination.CrossedBounds]]:
    """Yield the number of each problem with a lower control bound above the upper one, and its first such control."""
    bounds = batch.bounds()
    if bounds is None:
        return
    lower, upper = (np.broadcast_to(b, (len(batch), *b.shape[1:])) for b in np.broadcast_arrays(*bounds))
    for i in np.flatnonzero((lower > upper).any(axis=(1, 2))).tolist():
        k, j = (int(v) for v in np.argwhere(lower[i] > upper[i])[0])
        name = f"{batch.ocp.control_names[j]} at knot {k} of problem {i}"
        yield i, termination.CrossedBounds(name, float(lower[i, k, j]), float(upper[i, k, j]))


def _not_numbers(batch: Batch, guess: tuple[Array, Array]) -> dict[int, str]:
    """Return the name of the first value with a NaN or a forbidden infinity, by problem number; a shared guess is not checked."""
    found: dict[int, str] = {}
    for name, rows in _named(batch):
        for i in _bad_rows(name, rows):
            found.setdefault(int(i), name)
    for name, rows in zip(("guess.xs", "guess.us"), guess, strict=True):
        for i in _bad_rows(name, rows) if len(rows) == len(batch) else ():
            found.setdefault(int(i), name)
    if batch.members is not None:
        for i, member in enumerate(batch.members):
            bad = next((name for name, value in _values(member) if len(_bad_rows(name, value[None]))), None)
            if bad is not None:
                found.setdefault(i, bad)
    return found


def with_culprits(batch: Batch, found: BatchSolution, flaws: Mapping[int, Status]) -> BatchSolution:
    """Name the terms that produced NaN or infinity in each non-finite status, except those of problems in ``flaws``.

    The time of the diagnosis is added to meta["seconds"].
    """
    began = time.perf_counter()
    status = tuple(
        explained(s, batch[i], found.xs[i], found.us[i]) if s.code is StatusCode.NON_FINITE and i not in flaws else s
        for i, s in enumerate(found.status)
    )
    meta = {**found.meta, "seconds": found.meta["seconds"] + time.perf_counter() - began}
    return replace(found, status=status, meta=meta)


def _bad_rows(name: str, rows: Array) -> Array:
    """Return the indices of rows of (n, ...) with a NaN, or an infinity where ``name`` does not allow it."""
    good = ~np.isnan(rows) if _may_be_infinite(name) else np.isfinite(rows)
    return np.flatnonzero(~good.reshape(len(rows), -1).all(axis=1))


def _may_be_infinite(name: str) -> bool:
    """True for the name of a bound, as the part after the last dot: u_lower, u_upper, lower or upper."""
    return name.rpartition(".")[2] in UNLIMITED


def _named(batch: Batch) -> Iterator[tuple[str, Array]]:
    """Yield the name and the stacked values (n, ...) of each quantity that the batch varies."""
    yield from batch.fields.items()
    yield from ((f"{owner}.{key}", rows) for (owner, key), rows in batch.values.items())


def _values(ocp: OCP) -> Iterator[tuple[str, Array]]:
    """Yield the name and value of x0, start, time steps, bounds, weights and parameters of one problem."""
    yield "x0", ocp.x0
    yield "start", np.asarray(ocp.start, float)
    yield from (("dt", phase.dt) for phase in ocp.phases)
    yield from ((key, bound) for key in UNLIMITED[:2] if (bound := getattr(ocp, key)) is not None)
    yield from ((f"{owner}.{key}", np.asarray(value, float)) for owner, key, value in named_values(ocp))
