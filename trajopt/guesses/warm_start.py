"""What an earlier solution of a similar problem tells a solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess


class Kept:
    """What solvers have prepared for problems of one structure: memory, compiled code, plans of calls.

    A solve leaves it here for the next one, whose problem may have other values; one that does not fit is made anew. Of use to one
    solve at a time. Empty where it is pickled or copied.
    """

    def __init__(self) -> None:
        self.prepared: dict[str, Any] = {}

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Where a solver may start; each takes of it what it can use.

    guess: states and controls. K: gains (N, nu, ndx) of feedback about them, for replanning.
    multipliers: of the dynamics, constraints and bounds, as those of a :class:`~trajopt.results.solution.Solution`, one row for
    each knot; for IPOPT, SQP and the augmented Lagrangian of the shooting solvers.
    barrier: IPOPT's first barrier parameter; small where the guess is near the solution. penalty: the augmented Lagrangian's
    first one. None for those of the options.
    kept: what the interior point takes up of its earlier solves, and leaves for later ones.
    """

    guess: Guess
    K: Array | None = None
    multipliers: Mapping[str, Array] = field(default_factory=dict)
    barrier: float | None = None
    penalty: float | None = None
    kept: Kept = field(default_factory=Kept)
