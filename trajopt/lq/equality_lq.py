"""The linear-quadratic problem with equations at its knots, by a Riccati recursion in C (kernels/equality_riccati.h).

    minimize    sum_k [1/2 dx'Q dx + du'S dx + 1/2 du'R du + q'dx + r'du]_k + 1/2 dx_N'Q_N dx_N + q_N'dx_N
    subject to  dx_0 given,  dx_(k+1) = A_k dx_k + B_k du_k + d_k,     C_k dx_k + D_k du_k + e_k = 0

L. Vanroye, A. Sathya, J. De Schutter, W. Decré, FATROP: a fast constrained optimal control problem solver for robot trajectory
optimization and control, IROS 2023.  The value function of a knot is quadratic on the states that meet H dx + h = 0, all that later
knots ask for.  One step back puts the dynamics into these equations, joins those of the knot, and turns both by Gauss-Jordan with
full pivoting:

    T [H B  H A; D  C] = [E  X; 0  H'; 0  0]

E holds a unit matrix on the controls that have a pivot, and zeros as the rows of the others, which makes it square: with free
controls w, du = -X dx - t + (1 - E) w.  Quu is asked to be positive definite on these alone, which is to ask for a positive
definite reduced Hessian: Cholesky's factor is that of (1 - E)'Quu (1 - E), and of one on the controls that have a pivot.  H' goes
to the knot before; rows of zeros depend on others, and say by their right-hand sides whether they contradict them.  Multipliers
come back through T' on the way forth.

``soft`` dynamics give way, A dx + B du + d - dx_next = s lambda: the next value function is seen through P (1 + s P)^-1.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from importlib.resources import files

import numpy as np

from dynamics_backends.compiled.interface.libraries import (
    address,
    aligned,
    bound,
    kernels,
    prelude,
    struct_of,
    template,
)
from dynamics_backends.protocol import Array

_LINE = 8  # doubles of a line of the cache
_Matrices = struct_of("elq_matrices", "A B Q S R C D row N:l n:i m:i shift:d soft:d")
_Vectors = struct_of("elq_vectors", "d q r e")
_Factors = struct_of("elq_factors", "P K ux uu G counts turned F most:l")
_Step = struct_of("elq_step", "dx du lambda y room")


def allotted(shapes: Sequence[tuple[int, ...]]) -> tuple[list[Array], list[int]]:
    """Zeroed arrays of these shapes in one block of memory, each on a boundary of 64 bytes, and their addresses."""
    sizes = [math.prod(shape) for shape in shapes]
    starts = [0, *itertools.accumulate(-(-size // _LINE) * _LINE for size in sizes)]
    block = aligned(starts[-1])
    at = address(block) if len(block) else 0
    arrays = [block[i : i + size].reshape(shape) for i, size, shape in zip(starts, sizes, shapes, strict=False)]
    return arrays, [at + 8 * i for i in starts[:-1]]


def source() -> str:
    """The C text of the recursion for one problem."""
    return kernel_text("numbers.h", "small_matrices.h", "equality_knot.h", "equality_riccati.h")


def source_abreast() -> str:
    """The C text of the factorization with a problem in each lane: equality_abreast.h."""
    kernels = ("numbers.h", "small_matrices.h", "equality_knot.h", "equality_abreast.h")
    return "\n".join([prelude(), template("lanes/rows.h"), "#define ABREAST", kernel_text(*kernels)])


def kernel_text(*names: str) -> str:
    """The C text of kernels of this folder, behind the types."""
    folder = files("trajopt.lq") / "kernels"
    return "\n".join((folder / name).read_text() for name in ("lq_types.h", "equality_types.h", *names))


class EqualityLQ:
    """Memory for a problem of N steps, n = ndx states, m = nu controls, with at most ``own`` equations at a knot.

    What the caller fills: A (N, n, n), B (N, n, m), Q (N + 1, n, n), S (N, m, n), R (N, m, m), row (N + 2) offsets of the equations
    by knot, C (rows, n), D (rows, m); d (N, n), q (N + 1, n), r (N, m), e (rows). A and B may be read from elsewhere
    (:meth:`read_dynamics`). What :meth:`solve` leaves: dx (N + 1, n), du (N, m), multipliers lam (N, n) of the dynamics and
    y (rows). ``factors``: arrays of elq_knot (equality_types.h) by their names. ``parts``: addresses of elq_matrices, elq_vectors,
    elq_factors and elq_step; ``addresses``: of Q, S, R, q, r, d, C, D, e and row.
    """

    def __init__(self, ndx: int, nu: int, horizon: int, rows: int, own: int) -> None:
        n, m, N = ndx, nu, horizon
        library = kernels()
        self._factor = bound(library, "elq_factor", "pp", ctypes.c_long)
        self._solve = bound(library, "elq_solve", "pppp", ctypes.c_double)
        self.n, self.m, self.N = n, m, N
        self.most = most = n + own if rows else 0
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
        self.d, self.q, self.r, self.e, self.dx, self.du, self.lam, self.y, self._room, *rest = rest
        self.factors = dict(zip(("P", "K", "ux", "uu", "G"), rest, strict=False))
        self._turned = rest[-1]
        self.row = np.zeros(N + 2, np.dtype(ctypes.c_long))
        self._counts = np.zeros((N + 1, 3), np.dtype(ctypes.c_long))
        self._soft: Array | None = None
        self.addresses = [*at[2:5], *at[8:10], at[7], *at[5:7], at[10], address(self.row)]
        self._matrices = _Matrices(*at[:7], address(self.row), N, n, m)
        self._vectors = _Vectors(*at[7:11])
        self._factors = _Factors(*at[16:21], address(self._counts), at[21], None, most)
        self._step = _Step(*at[11:16])
        self.parts = [ctypes.addressof(s) for s in (self._matrices, self._vectors, self._factors, self._step)]

    @property
    def gains(self) -> Array:
        """K (N, m, n) of the last factorization."""
        return self.factors["K"][: self.N]

    def read_dynamics(self, A: Array, B: Array) -> None:
        """Read A and B from these arrays from now on, which the caller keeps."""
        self.A, self.B = A, B
        self._matrices.A, self._matrices.B = address(A), address(B)

    def factor(self, shift: float = 0.0, soft: float = 0.0) -> int | None:
        """Factor the matrices, ``shift`` added to the diagonals of Q and R.

        soft: of the dynamics; with it there must be no equations. Returns the knot where the reduced Hessian is not positive
        definite, or None.
        """
        if soft > 0.0:
            self.soften()
        self._matrices.shift, self._matrices.soft = shift, soft
        failed = self._factor(self.parts[0], self.parts[2])
        return None if failed < 0 else int(failed)

    def soften(self) -> None:
        """Memory for dynamics that give way."""
        if self._soft is None:
            self._soft = np.zeros((self.N, self.n, self.n))
            self._factors.F = address(self._soft)

    def solve(self) -> float:
        """Solve for the vectors with the last factors, from the state dx[0]; the largest contradiction of dependent equations."""
        return float(self._solve(*self.parts))
