"""Linear-quadratic problem with equality constraints at its knots, solved by a Riccati recursion in C (kernels/equality_riccati.h).

    minimize    sum_k [1/2 dx'Q dx + du'S dx + 1/2 du'R du + q'dx + r'du]_k + 1/2 dx_N'Q_N dx_N + q_N'dx_N
    subject to  dx_0 given,  dx_(k+1) = A_k dx_k + B_k du_k + d_k,     C_k dx_k + D_k du_k + e_k = 0

L. Vanroye, A. Sathya, J. De Schutter, W. Decré, FATROP: a fast constrained optimal control problem solver for robot trajectory
optimization and control, IROS 2023. The value function of a knot is quadratic on the states with H dx + h = 0, the equations that
later knots impose on the state. One backward step substitutes the dynamics into these equations, appends the equations of the knot,
and eliminates both by Gauss-Jordan with full pivoting:

    T [H B  H A; D  C] = [E  X; 0  H'; 0  0]

H on the left is that of the next knot, H' that of this one. E is square: the identity on the controls with a pivot, and zero rows
for the other controls. With free controls w and t, the first rows of the right-hand side T [H d + h; e], du = -X dx - t + (1 - E)
w. Quu must be positive definite on the free controls only, that is, the reduced Hessian must be positive definite. The Cholesky
factor is that of (1 - E)'Quu (1 - E), with ones on the diagonal for the controls with a pivot. H' is passed to the previous knot.
Zero rows are linearly dependent equations; a nonzero right-hand side means that they contradict the others. Multipliers are
recovered through T' in the forward sweep.

``soft`` dynamics may be violated, A dx + B du + d - dx_next = s lambda: P of the next knot is replaced by P (1 + s P)^-1.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence

import numpy as np

from dynamics_backends.compiled.loops.kernel import kernel_text
from dynamics_backends.compiled.runtime.memory import address, aligned, structs_in
from dynamics_backends.protocol import Array

_LINE = 8  # doubles of a cache line
TYPES = kernel_text("trajopt.lq", "lq_types.h", "equality_types.h")
"""C source of the types."""
_Matrices, _Vectors, _Factors, _Step = structs_in(TYPES, "elq_matrices", "elq_vectors", "elq_factors", "elq_step")


def allotted(shapes: Sequence[tuple[int, ...]]) -> tuple[list[Array], list[int]]:
    """Return zero arrays of these shapes in one block of memory, each aligned to 64 bytes, and their addresses."""
    sizes = [math.prod(shape) for shape in shapes]
    starts = [0, *itertools.accumulate(-(-size // _LINE) * _LINE for size in sizes)]
    block = aligned(starts[-1])
    at = address(block) if len(block) else 0
    arrays = [block[i : i + size].reshape(shape) for i, size, shape in zip(starts, sizes, shapes, strict=False)]
    return arrays, [at + 8 * i for i in starts[:-1]]


def source() -> str:
    """Return the C source of the Riccati recursion with equality constraints, for one problem at a time, with its types."""
    own = "numbers.h", "small_matrices.h", "equality_knot.h", "equality_riccati.h"
    return "\n".join([TYPES, kernel_text("trajopt.lq", *own)])


class EqualityLQ:
    """Memory of an LQ problem with equations at knots, for kernels that solve it: N steps, n = ndx states, m = nu controls.

    max_equations: maximum number of equations at a knot. Inputs, filled by the caller: A (N, n, n), B (N, n, m), Q (N + 1, n, n), S
    (N, m, n), R (N, m, m), row (N + 2) offsets of the equations by knot, C (rows, n), D (rows, m); d (N, n), q (N + 1, n), r (N,
    m), e (rows). Results: dx (N + 1, n), du (N, m), multipliers lam (N, n) of the dynamics and y (rows). ``parts``: addresses of
    elq_matrices, elq_vectors, elq_factors and elq_step; ``addresses``: of Q, S, R, q, r, d, C, D, e and row.
    """

    def __init__(self, ndx: int, nu: int, horizon: int, rows: int, max_equations: int) -> None:
        n, m, N = ndx, nu, horizon
        self.n, self.m, self.N = n, m, N
        self.most = most = n + max_equations if rows else 0
        of_matrices = [(N, n, n), (N, n, m), (N + 1, n, n), (N, m, n), (N, m, m), (rows, n), (rows, m)]
        of_vectors = [(N, n), (N + 1, n), (N, m), (rows,)]
        of_step = [(N + 1, n), (N, m), (N, n), (rows,), ((N + 1) * (3 * m + most),)]
        of_knots = [(N + 1, n, n), (N + 1, m, n), (N + 1, m, n), (N + 1, m, m), (N + 1, m, m)]
        arrays, at = allotted(
            [
                *of_matrices,
                *of_vectors,
                *of_step,
                *of_knots,
                ((N + 1) * ((m + most) * most + m * (m + n) + most * n if most else 0),),
            ]
        )
        self.A, self.B, self.Q, self.S, self.R, self.C, self.D, *rest = arrays
        self.d, self.q, self.r, self.e, self.dx, self.du, self.lam, self.y, *_ = rest
        self.row = np.zeros(N + 2, np.dtype(ctypes.c_long))
        self._counts = np.zeros((N + 1, 3), np.dtype(ctypes.c_long))
        self._soft: Array | None = None
        self.addresses = [*at[2:5], *at[8:10], at[7], *at[5:7], at[10], address(self.row)]
        self._matrices = _Matrices(*at[:7], address(self.row), N, n, m)
        self._vectors = _Vectors(*at[7:11])
        self._factors = _Factors(*at[16:21], address(self._counts), at[21], None, most)
        self._step = _Step(*at[11:16])
        self.parts = [ctypes.addressof(s) for s in (self._matrices, self._vectors, self._factors, self._step)]

    def soften(self) -> None:
        """Allocate memory for soft dynamics, whose defects are s times their costates; does nothing if it is allocated."""
        if self._soft is None:
            self._soft = np.zeros((self.N, self.n, self.n))
            self._factors.F = address(self._soft)
