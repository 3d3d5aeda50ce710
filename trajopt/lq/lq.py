"""Linear-quadratic (LQ) problem with defects, and its solution by the Riccati recursion.

    minimize    sum_k [1/2 dx'Q dx + du'S dx + 1/2 du'R du + q'dx + r'du]_k + 1/2 dx_N'Q_N dx_N + q_N'dx_N
    subject to  dx_0 given,  dx_(k+1) = A_k dx_k + B_k du_k + d_k
    and, with bounds,  lower_k <= du_k <= upper_k

The defects d_k are the gaps of a multiple-shooting trajectory. V'(dx) = 1/2 dx'V'xx dx + V'x dx is the value function of the next
knot, with V'x evaluated after the gap, V'x + V'xx d:

    Qx  = q + A'V'x          Qxx = Q + A'V'xx A
    Qu  = r + B'V'x          Qux = S + B'V'xx A          Quu = R + B'V'xx B
    k = -Quu^-1 Qu,  K = -Quu^-1 Qux

Regularization adds mu I to Quu ("control") or to V'xx in Quu and Qux ("state"), for k and K only. The value function is that of the
resulting policy. (Y. Tassa, T. Erez, E. Todorov, Synthesis and stabilization of complex behaviors through online trajectory
optimization, IROS 2012, eq. 10-11; with gaps: M. Giftthaler et al., A family of iterative Gauss-Newton shooting methods for
nonlinear optimal control, IROS 2018, eq. 14-17.) With bounds, k solves the box QP at dx = 0, and rows of K of clamped controls are
zero (Tassa 2014, section III-C).

Kernels of the C library solve it (:class:`LQSolver`). Within bounds on du, a knot is a box-constrained quadratic program,

    minimize 1/2 x' H x + g' x   subject to   lower <= x <= upper,

solved by projected Newton: variables at a bound whose gradient points outwards are clamped; the others take a Newton step,
projected on the box, with an Armijo line search. (Y. Tassa, N. Mansard, E. Todorov, Control-Limited Differential Dynamic
Programming, ICRA 2014, section III-B; D. Bertsekas, Projected Newton methods, SIAM J. Control Optim. 20, 1982.)

An indefinite Quu = X diag(s) X' is made positive definite by reflecting its negative eigenvalues, which, unlike clamping, keeps
the magnitude of the curvature: the shift X diag(max(|s|, FLOOR max|s|) - s) X' is added to R.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.interface import (
    address,
    bound,
    code_of,
    definitions,
    kernel_text,
    kernels,
    prelude,
    template,
)
from dynamics_backends.protocol import Array

Bounds = tuple[Array, Array]
"""Lower and upper bounds on du, each (N, m)."""


class LQProblem(NamedTuple):
    """Data of an LQ problem, n = ndx, m = nu.

    A (N, n, n), B (N, n, m), d (N, n), Q (N + 1, n, n), q (N + 1, n), S (N, m, n), R (N, m, m), r (N, m), dx0 (n,).
    """

    A: Array
    B: Array
    d: Array
    Q: Array
    q: Array
    S: Array
    R: Array
    r: Array
    dx0: Array

    @property
    def horizon(self) -> int:
        """Number of time steps N."""
        return len(self.A)


class Policy(NamedTuple):
    """Policy du = k + K dx with its value function.

    K (N, m, n), k (N, m), Vx (N + 1, n), Vxx (N + 1, n, n). failed_at: knot where Quu was not positive definite, or None; the
    policy is then valid only after that knot.
    """

    K: Array
    k: Array
    Vx: Array
    Vxx: Array
    failed_at: int | None = None


class LQStep(NamedTuple):
    """Trajectory of the LQ problem: dx (N + 1, n), du (N, m)."""

    dx: Array
    du: Array


def curvature_along(lq: LQProblem, step: LQStep) -> float:
    """Second derivative D2 of the cost along alpha (dx, du)."""
    dx, du = step
    Qdx = (lq.Q @ dx[:, :, None])[:, :, 0]
    cross, Rdu = (lq.S @ dx[:-1, :, None])[:, :, 0], (lq.R @ du[:, :, None])[:, :, 0]
    return float(np.sum(dx * Qdx) + np.sum(du * (2.0 * cross + Rdu)))


HALF_OF_DIGITS = 2.0**-26
"""Square root of the machine epsilon."""


class Stationarity(NamedTuple):
    """Costates (N + 1, n), gradient g (N, m) of the Lagrangian in the controls, and sizes s (m,) of its terms."""

    costates: Array
    gradient: Array
    size: Array


def least_size(sizes: Array) -> float:
    """Return the smallest size of the terms of a gradient that are no rounding errors.

    Terms of a control with little effect are rounding errors of the other ones; terms far below 1 are rounding errors of states and
    references of magnitude 1, for example at a cost of zero.
    """
    return float(HALF_OF_DIGITS * max(1.0, sizes.max(initial=0.0)))


MAX_BOX_ITERATIONS = 100
ARMIJO = 0.1
"""Minimum decrease of a step relative to the decrease predicted by the gradient; gamma of eq. 16 of Tassa 2014."""
SHORTEN = 0.6
"""Factor on the length of a rejected step; stepDec of the code published with Tassa 2014."""
SHORTEST = 1e-10
"""Step length below which rounding allows no decrease."""
GRADIENT_TOLERANCE = 1e-14
"""Tolerance on the gradient of the free variables, relative to the size of its terms: rounding level."""
FLOOR = 1e-6
"""Smallest reflected eigenvalue, relative to the largest absolute one."""
MARGIN = 1e-4
"""Eigenvalues below MARGIN times the floor count as not positive."""
_CONSTANTS = {
    "MAX_BOX_ITERATIONS": MAX_BOX_ITERATIONS,
    "ARMIJO": ARMIJO,
    "GRADIENT_TOLERANCE": GRADIENT_TOLERANCE,
    "SHORTEN": SHORTEN,
    "SHORTEST": SHORTEST,
    "FLOOR": FLOOR,
    "MARGIN": MARGIN,
}
"""Python constants that are macros of the C source."""
_PRODUCTS = ("lq_types.h", "numbers.h", "small_matrices.h")
_RICCATI = ("box_qp.h", "definite_shift.h", "riccati.h")
SIZES = ((2, 1), (4, 1), (4, 2), (6, 3), (8, 4), (10, 5), (12, 6), (14, 7))
"""Sizes (n, m) with kernels of their own: robots with one to seven driven joints, and the cart-pole."""


def source(sizes: Sequence[tuple[int, int]] = ()) -> str:
    """C source of the kernels for one problem; sizes: those with a :func:`sized_source`."""
    names = [_table(*size) for size in sizes]
    declared = "".join(f"extern const lq_kernels_t {name};\n" for name in names)
    listed = f"#define KERNELS_BY_SIZE {' '.join(f'&{name},' for name in names)}\n"
    return _text(*_PRODUCTS, *_RICCATI) + "\n" + declared + listed + kernel_text("trajopt.lq", "lq_dispatch.h")


def sized_source(n: int, m: int) -> str:
    """C source of the kernels for one problem with n states and m controls."""
    return f"#define SIZED {_table(n, m)}\n{definitions({'N_': n, 'M_': m})}\n{_text(*_PRODUCTS, *_RICCATI)}"


def _table(n: int, m: int) -> str:
    return f"lq_kernels_{n}_{m}"


def lanes_source() -> str:
    """C source of the kernels with one problem in each lane: riccati.h and directions.h."""
    kernels = ("box_qp.h", "riccati.h", "directions.h")
    return "\n".join([prelude(), template("lanes/rows.h"), "#define IN_LANES", _text(*_PRODUCTS, *kernels)])


def _text(*names: str) -> str:
    return "\n".join([definitions(_CONSTANTS), kernel_text("trajopt.lq", *names)])


# Packed structs of kernels/riccati.h: filling a ctypes.Structure takes longer than a knot of a small sweep.
_PROBLEM = Struct("8P l 2i")
"""Struct lq_problem: addresses of A .. r, N, n and m."""
_BOUNDS = Struct("2P")
"""Struct lq_bounds: addresses of lower and upper."""
_POLICY = Struct("4P")
"""Struct lq_policy: addresses of K, k, Vx and Vxx."""
_CHANGES = Struct("i i 4P")
"""Struct lq_changes: modify, parts, and addresses of curvature, Q, S and R."""


class CurvaturePart(ctypes.Structure):
    """Struct lq_curvature of kernels/riccati.h: second derivatives of the knots first .. last."""

    _fields_ = [
        ("first", ctypes.c_long),
        ("last", ctypes.c_long),
        ("contract", ctypes.c_void_p),
        ("knots", ctypes.c_void_p),
    ]


class KnotCurvatures(NamedTuple):
    """Second derivatives of every knot for a C sweep: an array of CurvaturePart, and the objects that it points to."""

    parts: Any
    referenced: Any


class Tensors(ctypes.Structure):
    """Struct lq_tensors of kernels/riccati.h: sizes, and second derivatives xx, ux, uu of every entry of every step."""

    _fields_ = [("n", ctypes.c_int), ("m", ctypes.c_int), *((name, ctypes.c_void_p) for name in ("xx", "ux", "uu"))]


def tensor_curvatures(tensors: Sequence[Array]) -> KnotCurvatures:
    """Return the second derivatives of N steps from tensors (N, n, n, n), (N, n, m, n) and (N, n, m, m), the entry first."""
    blocks = [np.ascontiguousarray(block, float) for block in tensors]
    N, n, m, _ = blocks[1].shape
    data = Tensors(n, m, *map(address, blocks))
    contract = code_of(bound(kernels(), "lq_contract_tensors", "pl pppp"))
    part = CurvaturePart(0, N, contract, ctypes.addressof(data))
    return KnotCurvatures((CurvaturePart * 1)(part), (data, blocks))


class LQSolver:
    """Sweeps over the knots of LQ problems of any size; it has no state."""

    def __init__(self) -> None:
        library = kernels()
        self._riccati = bound(library, "lq_riccati", "pp dd pp", ctypes.c_long)
        self._adjoint = bound(library, "lq_adjoint", "ppp")
        self._stationarity = bound(library, "lq_stationarity", "pppp p")
        self._finite = bound(library, "lq_finite", "p", ctypes.c_int)
        self._linear_rollout = bound(library, "lq_rollout", "ppp ppp")

    def solve_riccati(
        self, lq: LQProblem, mu: float = 0.0, regularize: str = "control", bounds: Bounds | None = None
    ) -> Policy:
        """Backward sweep. mu: regularization on "control" or "state"; bounds on du, each (N, m).

        ``failed_at`` of the policy reports a failure.
        """
        return self._swept(_contiguous(lq), mu, regularize, bounds)

    def convex(
        self,
        lq: LQProblem,
        mu: float = 0.0,
        regularize: str = "control",
        bounds: Bounds | None = None,
        curvature: KnotCurvatures | None = None,
        modify: bool = True,
    ) -> tuple[LQProblem, Policy]:
        """Make Quu positive definite and solve, in one sweep; returns the modified problem and its policy.

        curvature: second derivatives of the dynamics, contracted with V'x + V'xx d and added during the sweep
        (:meth:`~trajopt.stage.evaluation.StageEvaluator.knot_curvatures`, :func:`tensor_curvatures`). modify: False leaves Quu
        unchanged.
        """
        lq = lq._replace(Q=lq.Q.copy(), S=lq.S.copy(), R=lq.R.copy())
        data = _contiguous(lq)
        parts = (0, 0) if curvature is None else (len(curvature.parts), ctypes.addressof(curvature.parts))
        Q, S, R = data[3], data[5], data[6]
        changes = _CHANGES.pack(modify, *parts, *map(address, (Q, S, R)))
        policy = self._swept(data, mu, regularize, bounds, changes)
        return lq._replace(Q=Q, S=S, R=R), policy

    def _swept(
        self, data: list[Array], mu: float, regularize: str, bounds: Bounds | None, changes: bytes | None = None
    ) -> Policy:
        N, n, m = data[1].shape
        K, k, Vx, Vxx = np.zeros((N, m, n)), np.zeros((N, m)), np.empty((N + 1, n)), np.empty((N + 1, n, n))
        on_state, on_control = (mu, 0.0) if regularize == "state" else (0.0, mu)
        _held, limits = _limits(bounds)
        to = _POLICY.pack(*map(address, (K, k, Vx, Vxx)))
        failed = self._riccati(_problem(data), limits, on_state, on_control, changes, to)
        return Policy(K, k, Vx, Vxx, failed_at=None if failed < 0 else int(failed))

    def adjoint(self, lq: LQProblem) -> tuple[Array, Array]:
        """Costates lambda_k = q + A'lambda_(k+1), (N + 1, n), at du = 0, and the reduced gradient r + B'lambda_(k+1), (N, m)."""
        lam, gradient = np.empty(lq.q.shape), np.empty(lq.r.shape)
        data = _contiguous(lq)
        self._adjoint(_problem(data), address(lam), address(gradient))
        return lam, gradient

    def stationarity(self, lq: LQProblem, K: Array | None = None) -> Stationarity:
        """Costates and gradient under the feedback du = K dx, K (N, m, n), None for du = 0, by one sweep:

        lambda_k = q + A'lambda_(k+1) + K'g_k,   g_k = r + B'lambda_(k+1),   s_i = max_k (|r_i| + sum_j |B_ji| |lambda_j|).

        Sizes are at least :func:`~trajopt.lq.lq.least_size`, because all terms may be rounding errors.
        """
        data = _contiguous(lq)
        result = Stationarity(np.empty(lq.q.shape), np.empty(lq.r.shape), np.empty(lq.r.shape[1]))
        K = None if K is None else np.ascontiguousarray(K)
        self._stationarity(_problem(data), None if K is None else address(K), *map(address, result))
        return result

    def is_finite(self, lq: LQProblem) -> bool:
        """True if all entries of a problem are finite."""
        return bool(self._finite(_problem(_contiguous(lq))) and np.isfinite(lq.dx0).all())

    def forward(
        self, lq: LQProblem, policy: Policy, bounds: Bounds | None = None
    ) -> tuple[LQStep, tuple[float, float]]:
        """Linear rollout of a policy within bounds on du, and (D1, D2) of its cost change alpha D1 + alpha^2/2 D2."""
        dx, du, change = np.empty(lq.q.shape), np.empty(lq.r.shape), np.empty(2)
        dx[0] = lq.dx0
        data, gains = _contiguous(lq), (np.ascontiguousarray(policy.K), np.ascontiguousarray(policy.k))
        _held, limits = _limits(bounds)
        along = _POLICY.pack(*map(address, gains), 0, 0)
        self._linear_rollout(_problem(data), limits, along, *map(address, (dx, du, change)))
        return LQStep(dx, du), (float(change[0]), float(change[1]))


@lru_cache(maxsize=1)
def shared_lq() -> LQSolver:
    """Return the shared solver."""
    return LQSolver()


def solve_riccati(lq: LQProblem, mu: float = 0.0, regularize: str = "control", bounds: Bounds | None = None) -> Policy:
    """Solve an LQ problem by a Riccati sweep; see :meth:`LQSolver.solve_riccati`."""
    return shared_lq().solve_riccati(lq, mu, regularize, bounds)


def _problem(data: list[Array]) -> bytes:
    """Pack the blocks A .. r as lq_problem; the caller keeps the blocks alive during the C call."""
    return _PROBLEM.pack(*map(address, data), *data[1].shape)


def _limits(bounds: Bounds | None) -> tuple[list[Array], bytes | None]:
    """Bounds in C order, which the caller keeps alive during the C call, and their lq_bounds; None without bounds."""
    if bounds is None:
        return [], None
    limits = [np.ascontiguousarray(b, float) for b in bounds]
    return limits, _BOUNDS.pack(*map(address, limits))


def _contiguous(lq: LQProblem) -> list[Array]:
    """Blocks A .. r in C order; the caller keeps them alive while their addresses are used."""
    return [np.ascontiguousarray(block) for block in lq[:8]]
