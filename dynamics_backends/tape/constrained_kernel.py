"""Solution of the derivatives of constrained motion as a kernel call in a trace: templates/constrained/constrained_solve.h.

Traced as a whole, four contacts of a quadruped take 100,000 operations, two thirds of which multiply sparse matrices with the
columns of dense ones (:mod:`~dynamics_backends.systems.constraints.constrained_derivatives`).  Here the traced part ends with the
right-hand sides, the entries of those matrices and inverse diagonals; the kernel solves the equations and multiplies the solution
with second derivatives, with tables of the positions of entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.scalar import Scalar
from dynamics_backends.symbols import ca
from dynamics_backends.systems.constraints.constrained_derivatives import DerivativeEquations, Directions
from dynamics_backends.trace import Kernel, symbolic

Entries = Sequence[Mapping[int, Scalar]]
"""Sparse matrix: for each row its entries by column."""


def directions_by_kernel(parts: DerivativeEquations) -> Directions:
    """Derivatives of x (such as accelerations) and constraint forces f in (q, v, u), by one call of the kernel that solves the
    linear equations ``parts`` for them.

    Returns rows (2 nv + nu) of symbols that stand for the outputs of that call. If ``parts`` has second derivatives g,
    ``through`` has the products g_qy dy with the derivatives dy of y = (x; -f), else it is empty.
    """
    n, rows, columns = len(parts.top), len(parts.bottom), parts.top[0].shape[0]
    factors = _factor(parts)
    slopes = {} if parts.g is None else _slopes(parts)
    head = np.array([n, rows, columns, bool(slopes)], np.int32)
    tables = [head, *(table for M in (*factors.values(), *slopes.values()) for table in _table(M))]
    diagonals = [*parts.factor.mass.D_inverse, *parts.factor.delassus.D_inverse]
    right = [*parts.top, *parts.bottom]
    numbers = ca.densify(ca.vertcat(_entries(factors), *diagonals, _entries(slopes), *right))
    counts = [n, rows, n if slopes else 0]
    kernel = Kernel("constrained_solve", (tables, []), numbers.numel(), sum(counts) * columns)
    solved = symbolic(kernel)(numbers)
    found = [solved[i * columns : (i + 1) * columns] for i in range(sum(counts))]
    return Directions(found[:n], found[n : n + rows], found[n + rows :])


def _factor(parts: DerivativeEquations) -> dict[str, Entries]:
    """Sparse matrices that solve equations with the matrix K of constrained motion, by name, in the order of the kernel.

    They are -L' and -L, strictly triangular, of the mass matrix M = L' D L; -W' and W for W = D^-1 Z; and -L' and -L of the
    Delassus matrix S (:mod:`~dynamics_backends.rigid_body.contact.contact_dynamics`). Diagonals are not included.
    """
    k = parts.factor
    W = [_nonzero(row) for row in k.W]
    both = {"along": [_scaled(row, -1.0) for row in W], "across": _transposed(W, len(k.mass.L))}
    return {**_triangular("", k.mass), **both, **_triangular("force_", k.delassus)}


def _triangular(prefix: str, f: ltl.Factor) -> dict[str, Entries]:
    """Strictly triangular parts of a factor's unit matrix L: -L' (named ``prefix`` + "up") and -L (``prefix`` + "down")."""
    L = [_scaled(row, -1.0) for row in f.L]
    return {f"{prefix}up": _transposed(L, len(L)), f"{prefix}down": L}


def _slopes(parts: DerivativeEquations) -> dict[str, Entries]:
    """Second derivatives of g, rows q, as sparse matrices in the order of the kernel: "qa", columns x, and "qf", columns f.

    y = (x; -f), so "qf" is minus the derivative in the second half of y. Raises AssertionError if ``parts`` has no g.
    """
    assert parts.g is not None
    qa, q_force = ([_nonzero(dict(enumerate(row))) for row in M] for M in (parts.g.qa, parts.g.q_force))
    return {"qa": qa, "qf": [_scaled(row, -1.0) for row in q_force]}


def _nonzero(row: Mapping[int, Scalar]) -> dict[int, Scalar]:
    """Entries of a row by column, in the order of columns, without those that are the constant 0."""
    return {j: x for j, x in sorted(row.items()) if not ca.SX(x).is_zero()}


def _scaled(row: Mapping[int, Scalar], by: float) -> dict[int, Scalar]:
    """Entries of a row times a number, as :func:`_nonzero` selects and sorts them."""
    return {j: by * x for j, x in _nonzero(row).items()}


def _transposed(M: Entries, columns: int) -> list[dict[int, Scalar]]:
    """Rows of M' for a sparse M with this number of columns."""
    return [{i: row[j] for i, row in enumerate(M) if j in row} for j in range(columns)]


def _entries(matrices: Mapping[str, Entries]) -> ca.SX:
    """Entries of all matrices, row by row, as one column; a matrix without entries contributes one zero."""
    return ca.vertcat(
        ca.SX(0, 1), *[x for M in matrices.values() for x in [x for row in M for x in row.values()] or [0.0]]
    )


def _table(M: Entries) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the entries of a matrix as int32: start (rows + 1), columns (entries + 1, the last one an unused 0).

    The entries of row j are those from start[j] to start[j + 1], excluded.
    """
    start = np.cumsum([0, *map(len, M)])
    return start.astype(np.int32), np.array([*(j for row in M for j in row), 0], np.int32)
