"""Newton systems of interior-point and active-set methods.

H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C
"""

from __future__ import annotations

from typing import Protocol

from dynamics_backends.protocol import Array


class KKTSystem(Protocol):
    """Linear system of a Newton iteration; rows and bounds are stacked (m + n,), as in (A w, w)."""

    def factorize(self, weights: Array) -> bool:
        """Factorize with D (m + n,): infinite for the rows E, zero without a bound. Returns False if this fails."""
        ...

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return dw (n,), and dE and dC stacked (m + n,), from a (n,) and b (m + n,); b is ignored where D = 0."""
        ...
