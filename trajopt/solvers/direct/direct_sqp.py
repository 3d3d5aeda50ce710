"""Direct multiple shooting with SQP: the transcription of :mod:`trajopt.solvers.direct.transcription` solved by
:mod:`trajopt.solvers.sqp.sqp`.

The programs of this module know their stages, for ``qp_solver = "riccati"``, and Hessians without second derivatives of
dynamics and constraints.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.direct.dms import trajectory_solution, warm_multipliers
from trajopt.solvers.direct.program_parts import Part, parts_of
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.nlp.nlp import NLP
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.qp import QPSolver, StageLayout, make_qp_solver
from trajopt.solvers.qp.stage_hessian import StageHessian, StagePlaces
from trajopt.solvers.sqp.sqp import solve_nlp
from trajopt.stage.engine import is_compiled, lq_solver_for

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = deferred("scipy.sparse")


class StagedProgram(Transcription):
    """A transcription with its :class:`~trajopt.solvers.qp.qp.StageLayout` and its Gauss-Newton Hessian."""

    @cached_property
    def layout(self) -> StageLayout | None:
        """Where the stages are; None with a first-order hold, whose controls belong to two of them."""
        if self.hold != "zero_order":
            return None
        return StageLayout(self.ix, self.iu, self._defect_rows, np.zeros(0, dtype=int))

    def convex_hessian(self, w: Array, sigma: float, multipliers: Array) -> sp.csc_matrix:
        """See :class:`~trajopt.solvers.nlp.nlp.ConvexOverNonlinear`."""
        return self._assembled(self._part_hessians(self.convex_parts, w, sigma, multipliers, self._convex_kind))

    def stage_hessian(self, w: Array, sigma: float, multipliers: Array, convex: bool) -> StageHessian | None:
        """See :class:`~trajopt.solvers.sqp.sqp_iterate.Staged`."""
        if self.hold != "zero_order":
            return None
        n, parts = self.n, self.convex_parts if convex else self.parts
        kind = self._convex_kind if convex else self.kind
        found = self._part_hessians(parts, w, sigma, multipliers, kind)
        blocks = np.zeros((self.N + 1, n + self.m, n + self.m))
        for part, (xx, ux, uu) in zip(parts, found, strict=True):
            own, end = blocks[part.knots], n + part.iu.shape[1]
            own[:, :n, :n], own[:, n:end, :n], own[:, n:end, n:end] = xx, ux, uu
            own[:, :n, n:end] = ux.transpose(0, 2, 1)
        return StageHessian(blocks, self._places)

    @cached_property
    def _places(self) -> StagePlaces:
        return StagePlaces(self.ix, self.iu, self.size)

    @property
    def _convex_kind(self) -> str:
        return "gauss_newton" if self.kind == "exact" else self.kind

    @cached_property
    def convex_parts(self) -> list[Part]:
        """The parts with convex Hessians; beside exact ones, which are used by default, they are not worth a library."""
        if self.kind != "exact":
            return self.parts
        return parts_of(self.ocp, self.ix, self.iu, self.hold, "gauss_newton", self.N * self.n, engine="numpy")

    def recentered(self, w: Array) -> tuple[NLP, Array]:
        """See :class:`~trajopt.solvers.nlp.nlp.NLP`."""
        if self.original.manifold.is_vector_space:
            return self, w
        xs, us = self.trajectory(w)
        new = type(self)(self.original, Guess(xs, us), self.hold, self.kind)
        return new, new.variables(xs, us)


def sqp(
    ocp: OCP,
    guess: Guess,
    options: SQPOptions | None = None,
    callback: Callback | None = None,
    multipliers: Mapping[str, Array] | None = None,
) -> Solution:
    """Solve a valid problem from a guess, whose states need not satisfy the dynamics.

    multipliers: of an earlier solution of the same structure; the first QP starts at their active set.

    hessian = "scqp", the default, counts the outer functions of constraints that have a
    :class:`~trajopt.problem.constraints.Composition`, and is "gauss_newton" where none has. Raises ValueError where
    ``qp_solver = "riccati"`` meets a constraint that couples knots or is an equality, by its name.
    """
    options = options or SQPOptions()
    program = staged_program(ocp, guess, options)
    warm = None if multipliers is None else warm_multipliers(program, multipliers)
    w, qp_solver = program.variables(*guess), qp_solver_for(ocp, options)
    found = solve_nlp(program, w, options, callback, multipliers=warm, qp_solver=qp_solver)
    return trajectory_solution(found.nlp, found)  # type: ignore[arg-type]


def staged_program(ocp: OCP, guess: Guess, options: SQPOptions) -> StagedProgram:
    """The program that the SQP method solves."""
    return StagedProgram(ocp, guess, options.hold, "scqp" if options.hessian == "auto" else options.hessian)


def qp_solver_for(ocp: OCP, options: SQPOptions) -> QPSolver:
    """The QP solver of the options; Riccati sweeps are compiled where the problem's backends are."""
    sweeping = options.qp_solver in ("riccati", "interior_point") and options.hold == "zero_order"
    if not sweeping or not is_compiled(ocp):
        return make_qp_solver(options.qp_solver)
    return make_qp_solver(options.qp_solver, lq_solver=lq_solver_for(ocp))
