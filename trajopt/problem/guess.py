"""States and controls over the knots of a problem."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array


class Guess(NamedTuple):
    """xs (N + 1, nx), us (N, nu)."""

    xs: Array
    us: Array

    def __repr__(self) -> str:
        return f"Guess(xs {np.shape(self.xs)}, us {np.shape(self.us)})"


class Motion(Protocol):
    """States (N + 1, nx) and controls (N, nu), as a solution and a guess have them."""

    @property
    def xs(self) -> Array: ...

    @property
    def us(self) -> Array: ...


def as_guess(given: Motion | tuple[Array, Array]) -> Guess:
    """A guess from what has states and controls, such as a solution, or from both. Raises TypeError for anything else."""
    if isinstance(given, Guess):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        return Guess(*given)
    if hasattr(given, "xs") and hasattr(given, "us"):
        return Guess(given.xs, given.us)
    raise TypeError(f"the guess is a {type(given).__name__}; expected a solution, or trajopt.Guess(xs, us)")
