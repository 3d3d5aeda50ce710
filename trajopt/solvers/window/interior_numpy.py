"""The answers to the interior point by NumPy: for backends and functions that are not compiled, and as the reference of the
kernels.

Evaluations are those of :class:`~trajopt.solvers.interior.stage_program.StageProgram`; its Newton systems are condensed and
solved by the kernels of :mod:`trajopt.solvers.interior.library`, one call after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.results.records import Journal
from trajopt.solvers.barrier_rules import KAPPA_SIGMA
from trajopt.solvers.interior.feasibility import Restoration
from trajopt.solvers.interior.named_multipliers import from_names
from trajopt.solvers.interior.newton import LARGEST_ESTIMATE, Step
from trajopt.solvers.interior.stage_program import Point
from trajopt.solvers.methods.interior_point import Size
from trajopt.solvers.methods.interior_requests import (
    Begun,
    Correct,
    Corrected,
    Direction,
    Measure,
    Multipliers,
    Newton,
    Request,
    Restore,
    Restored,
    Return,
    Start,
    Take,
    Trial,
    Try,
    Way,
)
from trajopt.solvers.rules.interior_measures import Violation
from trajopt.solvers.window.interior_workspace import Workspace

_NO_TRIAL = Trial(np.nan, Violation(*5 * (np.nan,)))


class InteriorNumpy:
    """The slot of one problem, in a workspace. journal: times what is done."""

    def __init__(self, room: Workspace, journal: Journal) -> None:
        self.room, self.journal = room, journal
        self.program, self.system, self.z = room.program, room.system, room.z
        self.point, self.other = room.points
        self._restoration = Restoration(room.system, journal)
        self._d, self._rows, self._fixes = (np.zeros(size) for size in self._sizes)
        self._new_rows, self._new_fixes = (np.zeros(size) for size in self._sizes[1:])
        self._answers: dict[type, Callable[[Any], Any]] = {
            Start: self._start,
            Multipliers: self._multipliers,
            Measure: lambda r: self._sums(r.mu, r.scale),
            Newton: self._newton,
            Try: lambda r: self._tried(r.alpha, False),
            Correct: self._correct,
            Take: self._take,
            Restore: self._restore,
            Return: lambda _: self._come_back(),
        }

    @property
    def _sizes(self) -> tuple[Any, int, int]:
        p = self.program
        return (p.N, p.n), p.rows, len(p.fixed)

    def take(self, guess: Guess, multipliers: Mapping[str, Array] | None = None) -> Size:
        """Take the problem that the program has, with a guess, maybe with multipliers by the names of the constraints."""
        self._guess, self._given = guess, multipliers
        return Size(self.program.numbers, self.system.equations, bool(multipliers))

    def answer(self, request: Request) -> Any:
        """The answer to a request (:mod:`trajopt.solvers.methods.interior_requests`)."""
        return self._answers[type(request)](request)

    def note_times(self, journal: Journal) -> None:
        """The journal has timed what was done."""

    # -- the start ----------------------------------------------------------------------------------------------------------
    def _start(self, r: Start) -> Begun:
        p = self.point
        self.program.place(p, *self._guess)
        self._push(p, r.push, slacks=False)
        objective = self._first(p)
        self._push(p, r.push, slacks=True)
        with self.journal.timed("backward"):
            at = self.system.violation(p)
        steepest = max(float(np.abs(p.lx[1:]).max(initial=0.0)), float(np.abs(p.lu).max(initial=0.0)))
        return Begun(objective, at, steepest)

    def _first(self, p: Point) -> float:
        """The objective at a point, with its first derivatives."""
        with self.journal.timed("derivatives"):
            return self.program.first(p)

    def _push(self, p: Point, push: float, *, slacks: bool) -> None:
        given = address(p.g) if slacks else None, push, push, address(p.v)
        self.room.kernels.push(self.program.ref, *given)

    def _multipliers(self, r: Multipliers) -> list[float]:
        z, program, p = self.z, self.program, self.point
        if r.way is Way.GIVEN:
            assert self._given is not None
            from_names(program, self._given, r.scale, z)
        for own, distance in ((z.zl, p.v - program.lower), (z.zu, program.upper - p.v)):
            central = r.mu / distance
            if r.way is Way.COLD:  # on wide bounds no more than mu asks for: they would set the barrier's first mean
                found = np.minimum(1.0, central)
            elif r.way is Way.AGAIN:
                found = np.minimum(central, LARGEST_ESTIMATE)
            else:
                found = central if r.way is Way.NEAR else np.maximum(own, central)
            own[:] = np.where(np.isfinite(distance), found, 0.0)
        if r.way is not Way.GIVEN:
            with self.journal.timed("backward"):
                self._estimate(r.scale)
        return self._sums(r.mu, r.scale)

    def _estimate(self, scale: float) -> None:
        """Least-squares multipliers, or zero ones."""
        z, (step, _) = self.z, self.room.steps
        self.system.estimate(self.point, z, scale, step)
        arrays = ((z.lam, step.z.lam), (z.y, step.z.y), (z.f, step.z.f))
        largest = np.max([np.abs(new).max(initial=0.0) for _, new in arrays])  # NaN if any is
        for own, new in arrays:
            own[:] = new if largest <= LARGEST_ESTIMATE else 0.0

    def _sums(self, mu: float, scale: float) -> list[float]:
        with self.journal.timed("backward"):
            return self.system.sums(self.point, self.z, scale, mu)

    # -- steps --------------------------------------------------------------------------------------------------------------
    def _newton(self, r: Newton) -> Direction:
        system, (to, other), mu = self.system, self.room.steps, r.mu
        with self.journal.timed("derivatives"):
            self.program.second(self.point, r.scale, self.z)
        with self.journal.timed("backward"):
            system.condense(self.point, self.z, mu, r.scale)
            found = system.factor(reflect=r.reflect)
            changes = system.shift, float(system.reflected)
            if not found:
                return Direction(*5 * (0.0,), mu, *changes, _NO_TRIAL)
            if r.centered:
                step, mu = system.centered(self.point, self.z, r[5:], other, to)
            else:
                step = system.solve(self.point, self.z, r.share, to)
        self._step = step
        trial = self._tried(step.alpha, r.differentiate)
        return Direction(1.0, step.alpha, step.alpha_z, step.slope, _size(step), mu, *changes, trial)

    def _tried(self, alpha: float, differentiate: bool) -> Trial:
        with self.journal.timed("rollout"):
            self.program.move(self.point, alpha, self._step.v, self.other)
            objective = self._first(self.other) if differentiate else self.program.values(self.other)
            return Trial(objective, self.system.violation(self.other))

    def _correct(self, r: Correct) -> Corrected:
        program, system, p, to = self.program, self.system, self.point, self.other
        if r.first:
            self._d, self._rows, self._fixes = p.d.copy(), system.rows.copy(), system.fixes.copy()
        with self.journal.timed("rollout"):
            found = address(to.v), address(to.g), address(self._new_rows), address(self._new_fixes)
            system.kernels.residuals(program.ref, *found)
            self._d = r.length * self._d + to.d
            self._rows = r.length * self._rows + self._new_rows
            self._fixes = r.length * self._fixes + self._new_fixes
            with self.journal.timed("backward"):
                system.vectors(p, self._d, self._rows, self._fixes)
                self._corrected = step = system.solve(p, self.z, r.share, self.room.steps[1], self._rows)
            program.move(p, step.alpha, step.v, to)
            objective = program.values(to)
            at = self.system.violation(to)
        return Corrected(step.alpha, step.alpha_z, _size(step), objective, at)

    def _take(self, r: Take) -> list[float]:
        z, step = self.z, self._corrected if r.corrected else self._step
        self.point, self.other = self.other, self.point
        if not r.known:
            self._first(self.point)
        lengths = r.alpha, r.alpha_z, r.mu, KAPPA_SIGMA
        self.room.kernels.take(self.program.ref, self.point.at, step.z.ref, *lengths, z.ref)
        if not self.program.flat:
            self._carry(r.alpha * step.v)
        return self._sums(r.mu, r.scale)

    def _carry(self, step: Array) -> None:
        """The multipliers of gaps, from the tangent spaces at the old nodes to those at the new ones."""
        n, N = self.program.n, self.program.N
        E = self.program.ocp.manifold.d_integrate(step[n : (N + 1) * n].reshape(N, n))[1]
        self.z.lam[:] = np.linalg.solve(E.transpose(0, 2, 1), self.z.lam[:, :, None])[:, :, 0]

    # -- steps for feasibility alone ------------------------------------------------------------------------------------------
    def _restore(self, r: Restore) -> Restored:
        found, self.point, self.other = self._restoration.run(self.point, self.other, r)
        return found

    def _come_back(self) -> Trial:
        self._restoration.come_back(self.point)
        return Trial(self._first(self.point), self.system.violation(self.point))


def _size(step: Step) -> float:
    return float(np.abs(step.v).max(initial=0.0))
