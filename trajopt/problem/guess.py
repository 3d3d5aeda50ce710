"""Guesses: states and controls at the knots of a problem."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array


class Guess(NamedTuple):
    """Initial guess of a solve: states xs (N + 1, nx), controls us (N, nu)."""

    xs: Array
    us: Array

    def __repr__(self) -> str:
        return f"Guess(xs {np.shape(self.xs)}, us {np.shape(self.us)})"


class Motion(Protocol):
    """Protocol of solutions and guesses: states xs (N + 1, nx) and controls us (N, nu)."""

    @property
    def xs(self) -> Array: ...

    @property
    def us(self) -> Array: ...


def as_guess(motion: Motion | tuple[Array, Array]) -> Guess:
    """Convert a pair (xs, us), a solution or another object with xs and us to a Guess. Raises TypeError for anything else."""
    if isinstance(motion, Guess):
        return motion
    if isinstance(motion, tuple) and len(motion) == 2:
        return Guess(*motion)
    if hasattr(motion, "xs") and hasattr(motion, "us"):
        return Guess(motion.xs, motion.us)
    raise TypeError(f"the guess is a {type(motion).__name__}; expected a solution, or trajopt.Guess(xs, us)")
