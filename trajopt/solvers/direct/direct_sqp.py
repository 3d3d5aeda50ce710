"""Direct multiple shooting with SQP (:mod:`trajopt.solvers.direct.transcription`, :mod:`trajopt.solvers.sqp.sqp`).

The programs of this module return their derivatives by stages, for Riccati recursions. They also provide positive semidefinite
Hessians, without second derivatives of the dynamics and of inner functions of cost and constraints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from dynamics_backends.protocol import Array, Hessians
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.direct.dms import trajectory_solution, warm_multipliers
from trajopt.solvers.direct.program_parts import Part, parts_of
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.blocks.stage_hessian import StageHessian, StagePlaces
from trajopt.solvers.qp.blocks.stage_jacobian import RowPlaces, StageJacobian
from trajopt.solvers.qp.qp import Hessian, Jacobian
from trajopt.solvers.sqp.sqp import solve_nlp
from trajopt.step.sensitivities import has_curvature


class StagedProgram(Transcription):
    """Multiple-shooting program with derivatives by stages and a Gauss-Newton Hessian.

    With a first-order hold, a stage has the state (x_k, u_k) and the controls u_(k+1), which become part of the next state.
    """

    def differentiate(self, w: Array) -> tuple[Array, Jacobian]:
        """Return the gradient of f (n,) and the Jacobian of g, stored by stages."""
        N, n, places = self.N, self.n, self._row_places
        size, width = self._places.states.shape[1], self._places.index.shape[1]
        gradient, found = self._linearized(w)
        F, G = np.zeros((N, n, width)), np.zeros((*places.within.shape, width))
        for part, d in zip(self.parts, found, strict=True):
            present, end = (part.rows >= 0)[:, :, None], n + part.iu.shape[1]
            if part.stepped:
                F[part.knots, :, :n], F[part.knots, :, n:] = d.A, d.B
            own = G[part.knots, : part.rows.shape[1]]
            own[:, :, :n], own[:, :, n:end] = np.where(present, d.gx, 0.0), np.where(present, d.gu, 0.0)
        return gradient, StageJacobian(F[:, :, :size], F[:, :, size:], G, places)

    @cached_property
    def _row_places(self) -> RowPlaces:
        """Row numbers of the defects, and those of the constraints by knot (N + 1, most rows of a knot), -1 for none."""
        within = np.full((self.N + 1, max(part.rows.shape[1] for part in self.parts)), -1)
        for part in self.parts:
            within[part.knots, : part.rows.shape[1]] = part.rows
        return RowPlaces(self._places, self._defect_rows, within)

    def hessian(self, w: Array, sigma: float, multipliers: Array) -> Hessian:
        """Return the Hessian of sigma f + multipliers' g, stored by stages: exact, Gauss-Newton or "scqp", by program kind."""
        return self._stage_hessian(self.parts, self._part_hessians(self.parts, w, sigma, multipliers, self.kind))

    def convex_hessian(self, w: Array, sigma: float, multipliers: Array) -> Hessian:
        """Return the positive semidefinite Gauss-Newton Hessian of sigma f, stored by stages.

        A program of kind "scqp" adds the convex outer functions of constraints, with their multipliers.
        """
        kind = "gauss_newton" if self.kind == "exact" else self.kind
        found = self._part_hessians(self.convex_parts, w, sigma, multipliers, kind)
        return self._stage_hessian(self.convex_parts, found)

    def _stage_hessian(self, parts: Sequence[Part], found: Sequence[Hessians]) -> StageHessian:
        """Sum the Hessians of parts into blocks by knot of the variables (x, u) of a stage."""
        n = self.n
        width = self._places.index.shape[1]
        blocks = np.zeros((self.N + 1, width, width))
        for part, (xx, ux, uu) in zip(parts, found, strict=True):
            own, end = blocks[part.knots], n + part.iu.shape[1]
            own[:, :n, :n] += xx
            own[:, n:end, :n] += ux
            own[:, :n, n:end] += ux.transpose(0, 2, 1)
            own[:, n:end, n:end] += uu
        return StageHessian(blocks, self._places)

    @cached_property
    def _places(self) -> StagePlaces:
        """Indices in w of the states and controls of each stage.

        With a first-order hold the state is (x_k, u_k), the control u_(k+1).
        """
        if self.hold == "zero_order":
            return StagePlaces(self.ix, self.iu)
        return StagePlaces(np.hstack([self.ix, self.iu]), self.iu[1:])

    @cached_property
    def convex_parts(self) -> list[Part]:
        """Parts (knots with their stages) that compute Gauss-Newton Hessians of the cost.

        Those of the program unless its kind is "exact".
        """
        if self.kind != "exact":
            return self.parts
        return parts_of(self.ocp, self.ix, self.iu, self.hold, "gauss_newton", self.N * self.n, cost_alone=True)


def sqp(
    ocp: OCP,
    guess: Guess,
    options: SQPOptions | None = None,
    callback: Callback | None = None,
    multipliers: Mapping[str, Array] | None = None,
) -> Solution:
    """Solve a valid problem by SQP with direct multiple shooting; the states of the guess need not satisfy the dynamics.

    multipliers: of an earlier solution of the same structure; the first QP starts with their active set.

    hessian = "auto", the default, selects "exact" if all time steps have second derivatives, else "scqp". The latter includes the
    outer functions of constraints with a :class:`~trajopt.problem.constraints.Composition`; without any it equals "gauss_newton".
    Feedback gains are those of an LQR along the solution.
    """
    options = with_selected_hessian(ocp, options or SQPOptions())
    program = staged_program(ocp, guess, options)
    warm = None if multipliers is None else warm_multipliers(program, multipliers)
    found = solve_nlp(program, program.variables(*guess), options, callback, multipliers=warm)
    return trajectory_solution(found.nlp, found, options)  # type: ignore[arg-type]


def with_selected_hessian(ocp: OCP, options: SQPOptions) -> SQPOptions:
    """Return the options with hessian = "auto" replaced: "exact" if all time steps have second derivatives, else "scqp"."""
    if options.hessian != "auto":
        return options
    return replace(options, hessian="exact" if has_curvature(ocp) else "scqp")


def staged_program(ocp: OCP, guess: Guess, options: SQPOptions) -> StagedProgram:
    """Return the program of the SQP method; hessian = "auto" selects "scqp" here, as in real-time iterations."""
    return StagedProgram(ocp, guess, options.hold, "scqp" if options.hessian == "auto" else options.hessian)
