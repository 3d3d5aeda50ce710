"""Warm start of a solver from the solution of a similar problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.stage.solver_cache import SolverCache as SolverCache


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Starting point of a solver; each solver uses the fields that it supports.

    guess: states and controls. K: feedback gains (N, nu, ndx) about them, for replanning.
    multipliers: of dynamics, constraints and bounds, as in a :class:`~trajopt.results.solution.Solution`, one row for each knot;
    for dms, ipm, sqp and the augmented Lagrangian of the shooting solvers. barrier: initial barrier parameter of dms and ipm, small
    for a guess near the solution. penalty: initial penalty of the augmented Lagrangian. None: the values of the options. cache:
    cached workspaces of earlier solves; None: those of this thread (:mod:`trajopt.stage.solver_cache`).
    """

    guess: Guess
    K: Array | None = None
    multipliers: Mapping[str, Array] = field(default_factory=dict)
    barrier: float | None = None
    penalty: float | None = None
    cache: SolverCache | None = None
