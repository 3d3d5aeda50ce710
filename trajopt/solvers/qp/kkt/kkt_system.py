"""Newton systems of interior-point and active-set methods.

H dw + E'dE + C'dC = a,   E dw = b_E,   C dw - dC / D = b_C
"""

from __future__ import annotations

from typing import Protocol

from dynamics_backends.protocol import Array


class KKTSystem(Protocol):
    """Linear system of a Newton iteration; rows and bounds are stacked (m + n,), as in (A w, w)."""

    def factorize(self, weights: Array) -> bool:
        """Factorize the system with weights D (m + n,) of rows and bounds; return False if this fails.

        Infinite weights mark equations, zero those without bound; the others, multiplier over slack, belong to inequalities.
        """
        ...

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return dw (n,), and dE and dC stacked (m + n,), by the last factorization, from a (n,) and b (m + n,).

        With the Hessian H, equations E and inequalities C they solve H dw + E'dE + C'dC = a, E dw = b_E, C dw - dC / D = b_C; b is
        ignored where D = 0.
        """
        ...
