"""What an earlier solution of a similar problem tells a solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.stage.solver_cache import SolverCache as SolverCache


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Starting point of a solver; each solver uses the fields that it supports.

    guess: states and controls. K: gains (N, nu, ndx) of feedback about them, for replanning.
    multipliers: of the dynamics, constraints and bounds, as those of a :class:`~trajopt.results.solution.Solution`, one row for
    each knot; for dms, ipm, sqp and the augmented Lagrangian of the shooting solvers.
    barrier: the first barrier parameter of dms and ipm; small where the guess is near the solution. penalty: the augmented
    Lagrangian's first one. None for those of the options.
    kept: workspaces of earlier solves, which later ones use again; None: those of this thread
    (:mod:`trajopt.stage.solver_cache`).
    """

    guess: Guess
    K: Array | None = None
    multipliers: Mapping[str, Array] = field(default_factory=dict)
    barrier: float | None = None
    penalty: float | None = None
    kept: SolverCache | None = None
