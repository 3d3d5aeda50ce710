"""The Newton systems of interior-point and active-set methods.

H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C
"""

from __future__ import annotations

from typing import Protocol

from dynamics_backends.protocol import Array


class KKTSystem(Protocol):
    """The linear systems of the iterations; rows and bounds are stacked (m + n,), as in (A w, w)."""

    def factorize(self, weights: Array) -> bool:
        """Take D (m + n,): infinite for the rows E, zero where there is no bound; whether it can be solved."""
        ...

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """dw (n,), and dE and dC (m + n,), from a (n,) and b (m + n,), which counts where D > 0."""
        ...
