"""Solution of the equations of constrained motion with one factorization for values and derivatives.

    [ M   J' ] (  x )   ( top    )
    [ J  -R  ] ( -f ) = ( bottom )          R = diag(damping) >= 0

With M = L' D L along the branches and Z = L'^-1 J', whose columns have the sparsity of the constrained branches,

    S f = bottom - Z' D^-1 L'^-1 top,     S = Z' D^-1 Z + R,     x = L^-1 D^-1 (L'^-1 top + Z f)

(the Delassus matrix S is small and dense).  For redundant constraints S would be singular without R: then f has the
least R-norm up to rounding, and x is not affected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.scalar import Scalar


@dataclass(frozen=True)
class ConstrainedFactor:
    """Factor of M, for each row of J the columns Z and D^-1 Z by DoF, and the factor of S."""

    mass: ltl.Factor
    Z: list[dict[int, Scalar]]
    W: list[dict[int, Scalar]]
    delassus: ltl.Factor


def factor(mass: ltl.Factor, J: Sequence[Mapping[int, Scalar]], damping: Sequence[Scalar]) -> ConstrainedFactor:
    """Factorize K, from the factor of M, the rows of J by DoF, and the damping on the diagonal of the Delassus matrix."""
    Z = [_upward(mass, row) for row in J]
    W = [{k: z * mass.D_inverse[k] for k, z in column.items()} for column in Z]
    S = [[_product(Z[r], W[s]) for s in range(r + 1)] for r in range(len(J))]
    for r, extra in enumerate(damping):
        S[r][r] = S[r][r] + extra
    return ConstrainedFactor(mass, Z, W, ltl.factor(S, range(-1, len(J) - 1)))


def solve(f: ConstrainedFactor, top: Sequence[Any], bottom: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Solve for x and f as rows, for one or many right-hand sides."""
    t = ltl.solve_upward(f.mass, top)
    rhs = [sum((-(t[k] * w) for k, w in W.items()), b) for W, b in zip(f.W, bottom, strict=True)]
    forces = ltl.solve(f.delassus, rhs)
    x = [t[k] * f.mass.D_inverse[k] for k in range(len(t))]
    for W, force in zip(f.W, forces, strict=True):
        for k, w in W.items():
            x[k] = x[k] + force * w
    return ltl.solve_downward(f.mass, x), forces


def _upward(mass: ltl.Factor, row: Mapping[int, Scalar]) -> dict[int, Scalar]:
    """Product of L'^-1 and a sparse column given by DoF."""
    x = dict(row)
    for k in range(len(mass.ancestors) - 1, -1, -1):
        if k in x:
            for i in mass.ancestors[k]:
                change = x[k] * mass.L[k][i]
                x[i] = x[i] - change if i in x else -change
    return dict(sorted(x.items()))


def _product(a: Mapping[int, Scalar], b: Mapping[int, Scalar]) -> Scalar:
    terms = [x * b[k] for k, x in a.items() if k in b]
    return sum(terms[1:], terms[0]) if terms else 0.0
