"""Constraints with SLQ's family and DDP: the inner solves of the augmented Lagrangian in lanes, those of all problems in one round.

What differs from problem to problem in an inner solve (multipliers, penalties, bounds) are weights and parameters of cost terms,
run-time values as any other.  Between rounds the multipliers of all problems are moved as arrays, and each decides for itself
(:class:`~trajopt.solvers.shooting.augmented_lagrangian.Rounds`).  Problems that are not through in lanes alone are solved as alone,
from their guess.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import residual_batch
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.batch.interrupts import interrupted
from trajopt.solvers.batch.problems.batch import Batch
from trajopt.solvers.batch.solution import MEASURES, BatchSolution
from trajopt.solvers.batch.threads import with_referred
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting.augmented_lagrangian import End, Inner, Rounds, status_of, stiffened
from trajopt.solvers.shooting.penalized import Imposed, Place, active_at, augmented, imposed, places

Told = Callable[[int], None]
EXACT = 10.0
"""Penalties above this multiple of a cost are not subtracted from their sum: digits would be lost."""
Run = Callable[..., BatchSolution]
"""in_lanes or in_newton."""


class AugmentedBatch(Batch):
    """The problems of a batch without constraints, with their cost terms. parts: constraints, the first axis over the problems."""

    def __init__(self, whole: Batch, parts: Sequence[Imposed]) -> None:
        self.whole, self.parts = whole, list(parts)
        self.members, self.fields, self.values, self._count = None, {}, {}, len(whole)
        self.ocp = self._augmented(whole.ocp, 0)

    def _augmented(self, ocp: OCP, i: int) -> OCP:
        return augmented(ocp, [_rows(part, [i], squeeze=True) for part in self.parts])

    def __getitem__(self, i: int) -> OCP:
        return self._augmented(self.whole[i], i)

    def subset(self, indices: Sequence[int]) -> AugmentedBatch:
        """The problems of these numbers."""
        chosen = list(indices)
        return AugmentedBatch(self.whole.subset(chosen), [_rows(part, chosen) for part in self.parts])

    def x0(self) -> Array:
        """(n or 1, nx)."""
        return self.whole.x0()

    def bounds(self) -> tuple[Array, Array] | None:
        """Bounds on the controls, each (n or 1, N, nu), or None."""
        return self.whole.bounds()

    def times(self) -> Array:
        """(n or 1, N + 1)."""
        return self.whole.times()

    def steps(self, i: int) -> Array:
        """The time steps of phase i, (n or 1, K)."""
        return self.whole.steps(i)

    def t(self) -> Array:
        """(n or 1, N + 1) what residuals and dynamics read as t."""
        return self.whole.t()

    def weights(self, i: int) -> Array:
        """The weights of phase i, (n or 1, K)."""
        return self.whole.weights(i)

    def parameters(self, i: int) -> Array:
        """The parameters of the dynamics of phase i, (n or 1, K, size)."""
        return self.whole.parameters(i)

    def theta(self, terms: Callable[[OCP], Sequence[CostTerm]], K: int) -> Array:
        """Weights and parameters of some cost terms on K knots, (n or 1, K, size), those of the constraints behind the others."""
        own = {id(term) for term in terms(self.ocp)}
        blocks = [self.whole.theta(terms, K)]
        for part, term in zip(self.parts, self._terms(), strict=True):
            if id(term) in own:
                blocks += [part.weight, _parameters(self.whole, part.place), *part.parameters.values()]
        return np.concatenate([np.broadcast_to(b, (self._count, K, b.shape[-1])) for b in blocks], axis=2)

    def _terms(self) -> list[CostTerm]:
        """The cost term of each of the parts."""
        found = []
        for part in self.parts:
            phase, place = part.place.phase, part.place
            terms = self.ocp.terminal if phase is None else self.ocp.phases[phase].terms
            before = self.whole.ocp.terminal if phase is None else self.whole.ocp.phases[phase].terms
            found.append(terms[len(before) + place.number])
        return found


def _rows(part: Imposed, chosen: Sequence[int], *, squeeze: bool = False) -> Imposed:
    """The part of some problems; squeeze: of one, without the first axis."""
    n = len(part.y)

    def rows(a: Array) -> Array:
        own = a[list(chosen)] if len(a) == n else a
        return own[0] if squeeze else own

    chosen_rows: dict[str, Any] = {name: rows(getattr(part, name)) for name in ("y", "rho", "scale", "lower", "upper")}
    return replace(part, **chosen_rows)


def _parameters(batch: Batch, place: Place) -> Array:
    """The parameters of a constraint, (n or 1, K, size)."""

    def alone(ocp: OCP) -> list[Constraint]:
        return [place(ocp)]

    return batch.path(alone, place.count)


def _imposed(batch: Batch, rho: float) -> list[Imposed]:
    """The constraints of all problems, without multipliers."""
    n, parts = len(batch), []
    for place in places(batch.ocp):
        c = place(batch.ocp)
        scale = np.ones((1, 1)) if place.phase is None else batch.weights(place.phase)
        y = np.zeros((n, place.count, c.residual.n_out))
        bounds = batch.limits(place, place.count)
        parts.append(Imposed(place, y, np.full(n, rho), scale, *bounds, active_at(place, c)))
    return parts


def _values(batch: Batch, part: Imposed, xs: Array, us: Array) -> Array:
    """g (n, K, nr) of a constraint along trajectories."""
    c, knots, n, K = part.place(batch.ocp), part.place.knots, len(xs), part.place.count

    def flat(a: Array) -> Array:
        return np.broadcast_to(a, (n, *a.shape[1:])).reshape(n * K, *a.shape[2:])

    given, at, p = flat(_parameters(batch, part.place)), 0, {}
    for key, own in c.parameters.items():
        size = np.shape(own)[-1]
        p[key], at = given[:, at : at + size], at + size
    u = us[:, knots] if part.place.phase is not None else us[:, :1, :0]
    with np.errstate(all="ignore"):
        rows = c.residual(*residual_batch(c.residual, flat(xs[:, knots]), flat(u), flat(batch.t()[:, knots]), p))
    return part.bounded(np.asarray(rows).T.reshape(n, K, -1))


def fits_rounds(ocp: OCP, options: Any, fits: Callable[[OCP, Any], bool]) -> bool:
    """Whether the inner solves of a problem with constraints go in lanes; fits: whether a problem without does."""
    if not isinstance(options, SLQOptions) or not ocp.constraints() or options.time_limit is not None:
        return False
    return fits(augmented(ocp, imposed(ocp, options.constraint_penalty, {})), options)


def in_rounds(
    batch: Batch,
    guess: tuple[Array, Array],
    options: SLQOptions,
    solver: str,
    run: Run,
    *,
    gains: bool,
    threads: int | None,
    told: Told | None,
) -> BatchSolution | None:
    """Solve a batch; guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). run: what solves problems without constraints.

    None where constraints of none are finite.
    """
    parts = _imposed(batch, options.constraint_penalty)
    began, common = time.perf_counter(), {"gains": gains, "threads": threads}
    outer = _Outer(batch, guess, options, parts, gains)
    outer.set_aside()
    if not len(outer.pending):
        return None
    while len(outer.pending):
        try:
            outer.step(run, told, common)
        except KeyboardInterrupt:
            outer.interrupt()
    found = outer.solution(began)
    rest: dict[str, Any] = {**common, "told": told}
    return with_referred(batch, guess, options, solver, found, outer.alone, **rest)


class _Outer:
    """The problems on their way: what they have come to, and which are not at their end.

    parts: constraints of the problems that are pending. alone: those that single solves are to have. lost: whose costs are to be
    found anew at the end. count: rounds.
    """

    def __init__(
        self, batch: Batch, guess: tuple[Array, Array], options: SLQOptions, parts: list[Imposed], gains: bool
    ) -> None:
        n, ocp = len(batch), batch.ocp
        self.batch, self.options, self.parts = batch, options, parts
        self.rounds = [Rounds(options, len(parts)) for _ in range(n)]
        self.xs, self.us = (np.array(np.broadcast_to(rows, (n, *rows.shape[1:]))) for rows in guess)
        self.K = np.zeros((n, ocp.horizon, ocp.nu, ocp.manifold.ndx)) if gains else None
        self.k = np.zeros((n, ocp.horizon, ocp.nu)) if gains else None
        self.cost, self.lost, self.times = np.full(n, np.nan), np.zeros(n, bool), np.zeros(n)
        self.measures = {name: np.full(n, np.nan) for name in MEASURES}  # of the last inner solves
        self.status: list[Status] = [termination.not_started()] * n
        self.pending, self.alone = np.arange(n), list[int]()
        self.use: dict[str, Any] = {}  # of the first round, which has all problems
        self.count = 0

    def set_aside(self) -> None:
        """Leave problems to single solves: whose constraints are not finite along their guess, and those of which other bounds are
        equalities than of most, since that is part of the code.
        """
        xs = self.xs.copy()
        xs[:, 0] = self.batch.x0()
        finite = [np.isfinite(part.violation(_values(self.batch, part, xs, self.us))) for part in self.parts]
        equal = [np.broadcast_to(part.equal, (len(self.batch), part.equal.shape[-1])) for part in self.parts]
        _, kinds, counts = np.unique(np.concatenate(equal, axis=1), axis=0, return_inverse=True, return_counts=True)
        stays = np.all(finite, axis=0) & (kinds.ravel() == counts.argmax())
        self.alone = np.flatnonzero(~stays).tolist()
        self._keep_pending(np.flatnonzero(stays))

    def _keep_pending(self, stays: Array) -> None:
        """Go on with these of the pending problems alone."""
        if len(stays) < len(self.pending):
            self.parts = [_rows(part, stays.tolist()) for part in self.parts]
            self.pending = self.pending[stays]

    @property
    def ended(self) -> int:
        """How many problems have."""
        return len(self.batch) - len(self.pending) - len(self.alone)

    def step(self, run: Run, told: Told | None, common: dict[str, Any]) -> None:
        """One round: inner solves of all that are pending, their multipliers, and who is at the end."""
        own, ended = self.pending, self.ended
        rounds = [self.rounds[i] for i in own]
        inner = replace(self.options, gradient_tolerance=rounds[0].tolerance)
        stopped, self.count = False, self.count + 1

        def tell(_: int) -> None:
            nonlocal stopped
            assert told is not None
            if stopped:
                raise KeyboardInterrupt
            try:
                told(ended)
            except KeyboardInterrupt:
                stopped = True
                raise

        found = run(
            AugmentedBatch(self.batch.subset(own.tolist()), self.parts),
            (self.xs[own], self.us[own]),
            inner,
            **common,
            told=None if told is None else tell,
            max_iterations=np.array([r.left for r in rounds]),
        )
        self._keep(own, found)
        errors, violation, penalties = self._multiplied(own, found)
        rho = [part.rho for part in self.parts]
        grows, ends = np.zeros((len(self.parts), len(own)), bool), np.zeros(len(own), bool)
        aside = {*found.meta.get("referred", ()), *found.meta.get("second_starts", ())}
        self.alone += [int(own[j]) for j in aside]
        for j, i in enumerate(own):
            measures = (float(self.measures[name][i]) for name in ("gradient", "defect", "kkt"))
            status, finite = found.status[j], bool(np.isfinite(found.cost[j]))
            if status == termination.not_started():
                continue  # which only Ctrl-C leaves
            read = Inner(status, finite, int(found.iterations[j]), *measures)
            rhos = [float(r[j]) for r in rho]
            end, grows[:, j] = self.rounds[i].after(read, [float(e[j]) for e in errors], float(violation[j]), rhos)
            ends[j] = end is not None or j in aside
            if end is not None:
                ocp = self.batch.ocp if end is End.SOLVED else self.batch[int(i)]
                self.status[i] = status_of(end, ocp, self.xs[i], self.us[i], read, self.rounds[i])
            self.cost[i] = found.cost[j] - penalties[j]
            self.lost[i] = not penalties[j] <= EXACT * abs(self.cost[i])
        self.parts = [stiffened(part, own_, self.options) for part, own_ in zip(self.parts, grows, strict=True)]
        self._keep_pending(np.flatnonzero(~ends))
        if stopped or found.stopped or interrupted():
            raise KeyboardInterrupt
        if told is not None:
            told(self.ended)

    def _keep(self, own: Array, found: BatchSolution) -> None:
        """What inner solves have left."""
        begun = np.array([s != termination.not_started() for s in found.status])
        first = ~begun & np.array([not self.rounds[i].begun for i in own])
        for to, new in ((self.xs, found.xs), (self.us, found.us)):
            to[own[begun]] = new[begun]
            to[own[first]] = np.nan
        self.times[own] += found.meta["solve_times"]
        for name, of in self.measures.items():
            of[own[begun]] = np.array(found.meta[f"{name}s"])[begun]
        if self.K is not None and self.k is not None and found.K is not None and found.k is not None:
            self.K[own[begun]], self.k[own[begun]] = found.K[begun], found.k[begun]
        self.use = self.use or {key: found.meta[key] for key in ("how", "lanes") if key in found.meta}

    def _multiplied(self, own: Array, found: BatchSolution) -> tuple[list[Array], Array, Array]:
        """New multipliers; the errors of each constraint, the largest violation, and the penalties in the costs, each (n,)."""
        errors, violation, penalties = list[Array](), np.zeros(len(own)), np.zeros(len(own))
        pending = self.batch.subset(own.tolist())
        for number, part in enumerate(self.parts):
            g = _values(pending, part, found.xs, found.us)
            self.parts[number], error = part.multiplied(g)
            violation = np.maximum(violation, part.violation(g))
            penalties += (self.parts[number].y ** 2).sum(axis=(1, 2)) / (2.0 * part.rho)
            errors.append(error)
        return errors, violation, penalties

    def interrupt(self) -> None:
        """Leave those that are not at their end."""
        for i in (*self.pending, *self.alone):
            if self.rounds[i].begun:
                self.status[i] = termination.interrupted(self.rounds[i].iterations)
        self.pending, self.alone = self.pending[:0], []
        self.use["stopped"] = True

    def solution(self, began: float) -> BatchSolution:
        """What the problems have come to."""
        iterations = np.array([r.iterations for r in self.rounds])
        for i in np.flatnonzero(self.lost & np.isfinite(self.xs).all(axis=(1, 2))):
            self.cost[i] = self.batch[int(i)].cost(self.xs[i], self.us[i])
        meta = {**self.use, "rounds": self.count, "solve_times": self.times.tolist()}
        violation = [r.violation if np.isfinite(r.violation) else np.nan for r in self.rounds]
        measures = self.measures | {"violation": np.maximum(self.measures["defect"], violation)}
        meta |= {f"{name}s": of.tolist() for name, of in measures.items()}
        meta["seconds"] = time.perf_counter() - began
        arrays = self.xs, self.us, self.cost, iterations
        return BatchSolution(*arrays, tuple(self.status), self.batch.times(), self.K, self.k, meta)
