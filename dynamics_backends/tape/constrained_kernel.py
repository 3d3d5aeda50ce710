"""Solution of the derivatives of constrained motion as a kernel call in a trace: templates/constrained/constrained_solve.h.

Traced as a whole, four contacts of a quadruped take 100,000 operations, two thirds of which multiply sparse matrices with the
columns of dense ones (:mod:`~dynamics_backends.systems.constraints.constrained_derivatives`).  Here the traced part ends with the
right-hand sides and the entries of those matrices; the kernel does the rest, with tables of the positions of entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynamics_backends.compiled.emit.trace import Kernel, symbolic
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.scalar import Scalar
from dynamics_backends.symbols import ca
from dynamics_backends.systems.constraints.constrained_derivatives import DerivativeEquations, Directions

Entries = Sequence[Mapping[int, Scalar]]
"""Sparse matrix: for each row its entries by column."""


def directions_by_kernel(parts: DerivativeEquations) -> Directions:
    """Derivatives of accelerations and constraint forces in (q, v, u), by one call of the kernel that solves their equations.

    Returns symbols that stand for the outputs of that call. If ``parts`` has second derivatives g of the adjoint times the
    equations, also their products g_qy dy with the derivatives dy of accelerations and forces.
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
    """Sparse factors of the matrix K of constrained motion by name, in the order of the kernel: of M, D^-1 Z, and of S."""
    k = parts.factor
    W = [_nonzero(row) for row in k.W]
    both = {"along": [_scaled(row, -1.0) for row in W], "across": _transposed(W, len(k.mass.L))}
    return {**_triangular("", k.mass), **both, **_triangular("force_", k.delassus)}


def _triangular(prefix: str, f: ltl.Factor) -> dict[str, Entries]:
    """Strictly triangular parts of a factor, -L' (named ``prefix`` + "up") and -L ("down")."""
    L = [_scaled(row, -1.0) for row in f.L]
    return {f"{prefix}up": _transposed(L, len(L)), f"{prefix}down": L}


def _slopes(parts: DerivativeEquations) -> dict[str, Entries]:
    """Second derivatives g_qy of g in q and y = (x; -f), as sparse matrices of the columns x and -f, in the order of the kernel."""
    assert parts.g is not None
    qa, q_force = ([_nonzero(dict(enumerate(row))) for row in M] for M in (parts.g.qa, parts.g.q_force))
    return {"qa": qa, "qf": [_scaled(row, -1.0) for row in q_force]}


def _nonzero(row: Mapping[int, Scalar]) -> dict[int, Scalar]:
    """Entries of a row without structural zeros, in the order of columns."""
    return {j: x for j, x in sorted(row.items()) if not ca.SX(x).is_zero()}


def _scaled(row: Mapping[int, Scalar], by: float) -> dict[int, Scalar]:
    """Entries of a row times a number, without structural zeros."""
    return {j: by * x for j, x in _nonzero(row).items()}


def _transposed(M: Entries, columns: int) -> list[dict[int, Scalar]]:
    """Rows of M' for a sparse M with this number of columns."""
    return [{i: row[j] for i, row in enumerate(M) if j in row} for j in range(columns)]


def _entries(matrices: Mapping[str, Entries]) -> ca.SX:
    """Entries of all matrices, concatenated; an empty matrix contributes one zero."""
    return ca.vertcat(
        ca.SX(0, 1), *[x for M in matrices.values() for x in [x for row in M for x in row.values()] or [0.0]]
    )


def _table(M: Entries) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the entries of a matrix: the first entry of each row, and columns."""
    start = np.cumsum([0, *map(len, M)])
    return start.astype(np.int32), np.array([*(j for row in M for j in row), 0], np.int32)
