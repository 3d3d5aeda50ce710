"""Branch-sparse factorization M = L' D L of a mass matrix and solution of M x = b (Featherstone, RBDA 6.5, LTDL form).

M[i][j] is zero unless i and j lie on one path to the root, and so is L: elimination from the leaves makes no fill-in. Entries are
scalars of any kind; a right-hand side is a list of rows that need only subtraction and multiplication by a scalar from the right
(scalars, arrays (K, N), spatial forces).  Cost O(n d^2) for the factor and O(n d) for one right-hand side, d the depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynamics_backends.scalar import Scalar, copied, identity_rows


@dataclass(frozen=True)
class Factor:
    """L (unit, row k has entries at the ancestors of k only), the inverse of D, and the ancestors of each DoF, nearest first."""

    L: list[dict[int, Scalar]]
    D_inverse: list[Scalar]
    ancestors: list[list[int]]


def ancestor_lists(dof_parent: Sequence[int]) -> list[list[int]]:
    """Proper ancestors of each DoF in the tree expanded to single DoFs, nearest first."""
    lists: list[list[int]] = []
    for parent in dof_parent:
        lists.append([] if parent < 0 else [int(parent), *lists[parent]])
    return lists


def factor(M: Any, dof_parent: Sequence[int]) -> Factor:
    """Factorize the symmetric matrix M[i][j] (lower triangle read), nested lists or an array (n, n, N).

    dof_parent: parent of each DoF in the tree expanded to single DoFs, -1 at a root.
    """
    ancestors = ancestor_lists(dof_parent)
    n = len(ancestors)
    H = [{j: M[i][j] for j in (i, *ancestors[i])} for i in range(n)]
    D_inverse: list[Scalar] = [None] * n
    for k in reversed(range(n)):
        D_inverse[k] = 1.0 / H[k].pop(k)
        scaled = {i: H[k][i] * D_inverse[k] for i in ancestors[k]}
        for position, i in enumerate(ancestors[k]):
            for j in ancestors[k][position:]:
                H[i][j] = H[i][j] - scaled[i] * H[k][j]
        H[k] = scaled
    return Factor(H, D_inverse, ancestors)


def solve(f: Factor, b: Sequence[Any]) -> list[Any]:
    """Solve M x = b, for the rows b of one or of many right-hand sides."""
    x = solve_upward(f, b)
    return solve_downward(f, [x[k] * f.D_inverse[k] for k in range(len(x))])


def solve_upward(f: Factor, b: Sequence[Any]) -> list[Any]:
    """Solve L' x = b from the leaves to the root, so that only b's nonzeros and their ancestors are nonzero in x."""
    x = list(b)
    for k in reversed(range(len(x))):
        for i in f.ancestors[k]:
            x[i] = x[i] - x[k] * f.L[k][i]
    return x


def solve_downward(f: Factor, b: Sequence[Any]) -> list[Any]:
    """Solve L x = b."""
    x = list(b)
    for k in range(len(x)):
        for i in f.ancestors[k]:
            x[k] = x[k] - x[i] * f.L[k][i]
    return x


def inverse(f: Factor) -> list[Any]:
    """Rows of M^-1, [i][j]; symmetric, so each row is computed starting at its diagonal."""
    n = len(f.ancestors)
    zero = 0.0 * f.D_inverse[0]
    X = [copied(row + zero) for row in identity_rows(n, like=f.D_inverse[0])]
    for k in reversed(range(n)):
        for i in f.ancestors[k]:
            X[i][k:] = X[i][k:] - X[k][k:] * f.L[k][i]
    for k in range(n):
        X[k][k:] = X[k][k:] * f.D_inverse[k]
        for i in f.ancestors[k]:
            X[k][k:] = X[k][k:] - X[i][k:] * f.L[k][i]
        for j in range(k):
            X[k][j] = X[j][k]
    return X


def solve_dense(A: Sequence[Sequence[Scalar]], b: Sequence[Any]) -> list[Any]:
    """Solve A x = b for a small symmetric positive definite matrix without sparsity."""
    return solve(factor(A, range(-1, len(b) - 1)), b)
