"""Solver of the LQ problem of :mod:`trajopt.lq.lq`, by kernels of the C library.

Within bounds on du, a knot is a box-constrained quadratic program,

    minimize 1/2 x' H x + g' x   subject to   lower <= x <= upper,

solved by projected Newton: variables at a bound whose gradient points outwards are clamped; the others take a Newton step,
projected on the box, with an Armijo line search. (Y. Tassa, N. Mansard, E. Todorov, Control-Limited Differential Dynamic
Programming, ICRA 2014, section III-B; D. Bertsekas, Projected Newton methods, SIAM J. Control Optim. 20, 1982.)

A bounded sweep chooses the clamped controls at dx = 0. The choice is correct for a trajectory without gaps, and wrong if large
gaps move the trajectory. So a solve within bounds (:meth:`LQSolver.solve_bounded`) first closes the gaps: a few policies are
rolled out with controls clipped to the bounds, and the cheapest trajectory is used. Then the problem is re-centered on this
trajectory, where it has no gaps,

    q <- q + Q dx + S'du,   r <- r + S dx + R du,   d <- 0,   bounds <- bounds - du,

and its cost is reduced until its projected gradient is small. Each step is that of a bounded sweep; if it raises the cost, because
feedback moves controls at their bounds, which the sweep ignores, the step is that of projected Newton over the whole trajectory
(Bertsekas 1982): a sweep over the free controls, with those at a bound held that the gradient pushes out, and further ones that
the step would move out. The problem is convex, so every shortened step that stays within the bounds and lowers the cost is
progress.

An indefinite Quu = X diag(s) X' is made positive definite by reflecting its negative eigenvalues, which, unlike clamping, keeps
the magnitude of the curvature: the shift X diag(max(|s|, FLOOR max|s|) - s) X' is added to R.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.loops.kernel import definitions, kernel_text, prelude, template
from dynamics_backends.compiled.runtime.memory import address, bound, code_of, packing, structs_in
from dynamics_backends.machine.library import kernels
from dynamics_backends.protocol import Array
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy, Stationarity

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
"""Eigenvalues up to MARGIN times the floor, FLOOR times the largest absolute one, count as not positive."""
MAX_SWEEPS = 8
"""Maximum number of sweeps about trajectories within bounds."""
MAX_HOLDS = 4
"""Maximum number of sweeps to find the controls that are held at a bound during one step."""
NEAR = 1e-8
"""Largest distance of a control at its bound, relative to ranges below 1."""
ENOUGH = 1e-2
"""Tolerance on the projected gradient of a problem with bounds, relative to its size at du = 0."""
LENGTHS = 16
"""Number of lengths 1, 1/2, ... that are tried for a step of projected Newton."""
CONSTANTS = definitions(
    {
        "MAX_SWEEPS": MAX_SWEEPS,
        "MAX_HOLDS": MAX_HOLDS,
        "NEAR": NEAR,
        "ENOUGH": ENOUGH,
        "LENGTHS": LENGTHS,
        "MAX_BOX_ITERATIONS": MAX_BOX_ITERATIONS,
        "ARMIJO": ARMIJO,
        "GRADIENT_TOLERANCE": GRADIENT_TOLERANCE,
        "SHORTEN": SHORTEN,
        "SHORTEST": SHORTEST,
        "FLOOR": FLOOR,
        "MARGIN": MARGIN,
    }
)
"""C text of the constants, the generated header lq_constants.h."""
_PRODUCTS = ("lq_types.h", "numbers.h", "small_matrices.h")
_RICCATI = ("box_qp.h", "definite_shift.h", "riccati.h")
SIZES = ((2, 1), (4, 1), (4, 2), (6, 3), (8, 4), (10, 5), (12, 6), (14, 7))
"""Sizes (n, m) with kernels of their own: robots with one to seven driven joints, and the cart-pole."""


def source(sizes: Sequence[tuple[int, int]] = ()) -> str:
    """Return the C source of the LQ kernels for one problem of any size, which choose a kernel by the size.

    sizes: pairs (n, m) for which a :func:`sized_source` is linked.
    """
    names = [_table(*size) for size in sizes]
    declared = "".join(f"extern const lq_kernels_t {name};\n" for name in names)
    listed = f"#define KERNELS_BY_SIZE {' '.join(f'&{name},' for name in names)}\n"
    return (
        _text(*_PRODUCTS, *_RICCATI)
        + "\n"
        + declared
        + listed
        + kernel_text("trajopt.lq", "lq_dispatch.h", "bounded_lq.h")
    )


def sized_source(n: int, m: int) -> str:
    """Return the C source of the LQ kernels with n states and m controls as compile-time constants."""
    return f"#define SIZED {_table(n, m)}\n{definitions({'N_': n, 'M_': m})}\n{_text(*_PRODUCTS, *_RICCATI)}"


def _table(n: int, m: int) -> str:
    """Return the C name of the table of kernels for these sizes, such as lq_kernels_4_1."""
    return f"lq_kernels_{n}_{m}"


def lanes_source() -> str:
    """Return the C source of the LQ kernels that solve one problem in each SIMD lane."""
    return "\n".join(
        [prelude(), template("lanes/rows.h"), "#define IN_LANES", _text(*_PRODUCTS, "riccati.h", "directions.h")]
    )


def _text(*names: str) -> str:
    """Return the C source of these files of trajopt/lq/kernels, after the definitions of constants."""
    return "\n".join([CONSTANTS, kernel_text("trajopt.lq", *names)])


_TEXT = kernel_text("trajopt.lq", "lq_types.h", "riccati.h")
_PROBLEM, _BOUNDS, _POLICY, _CHANGES = map(
    packing, structs_in(_TEXT, "lq_problem", "lq_bounds", "lq_policy", "lq_changes")
)
"""Structs as bytes: filling a ctypes.Structure takes longer than a knot of a small sweep."""
CurvaturePart, Tensors = structs_in(_TEXT, "lq_curvature", "lq_tensors")


class KnotCurvatures(NamedTuple):
    """Second derivatives of every knot for a C sweep: an array of CurvaturePart, and the objects that it points to."""

    parts: Any
    referenced: Any


def tensor_curvatures(tensors: Sequence[Array]) -> KnotCurvatures:
    """Return the second derivatives of N steps from tensors xx (N, n, n, n), ux (N, n, m, n), uu (N, n, m, m).

    The first axis after N is the component of x_next; a sweep contracts it with the gradient of the value function.
    """
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
        self._stationarity = bound(library, "lq_stationarity", "pppp p")
        self._finite = bound(library, "lq_finite", "p", ctypes.c_int)
        self._linear_rollout = bound(library, "lq_rollout", "ppp ppp")
        self._bounded = bound(library, "lq_bounded", "pp dd pppp", ctypes.c_long)
        self._bounded_workspace = bound(library, "lq_bounded_workspace", "iil", ctypes.c_long)

    def solve_riccati(
        self, lq: LQProblem, mu: float = 0.0, regularize: str = "control", bounds: Bounds | None = None
    ) -> Policy:
        """Solve an LQ problem by a backward Riccati sweep; within bounds on du, each (N, m), knots are box-constrained QPs.

        mu: damping, added to Quu for regularize = "control", to V'xx for "state". It changes the policy, not the cost that the
        value function evaluates. ``failed_at`` of the policy: knot where Quu is not positive definite; None after a success.
        """
        return self._swept(_contiguous(lq), mu, regularize, bounds)

    def solve_bounded(
        self, lq: LQProblem, bounds: Bounds, mu: float = 0.0, regularize: str = "control"
    ) -> tuple[Policy, LQStep]:
        """Solve within bounds on du, each (N, m), by at most MAX_SWEEPS sweeps about trajectories.

        The sweeps end at the tolerance :data:`ENOUGH`, or earlier if a sweep fails or no step length lowers the cost. Returns the
        policy, whose gains are zero for the controls that the last sweep clamped or held, and a trajectory within the bounds; if
        ``failed_at`` of the policy reports a failure of the first sweep, the trajectory is zero except for dx_0. mu on "control"
        adds mu/2 |du|^2 to the problem. On "state" it damps V'xx in each sweep; then sweeps about trajectories, which would undo
        this, are left out, except for one if du is zero.
        """
        data = _contiguous(lq)
        N, n, m = data[1].shape
        policy, step = _new_policy(N, n, m), LQStep(np.zeros(lq.q.shape), np.zeros(lq.r.shape))
        step.dx[0] = lq.dx0
        workspace = np.empty(self.bounded_workspace(n, m, N))
        _held, limits = _limits(bounds)
        to = _POLICY.pack(*map(address, policy[:4]))
        damping = _damping(mu, regularize)
        failed = self._bounded(_problem(data), limits, *damping, to, *map(address, (*step, workspace)))
        return policy._replace(failed_at=None if failed < 0 else int(failed)), step

    def bounded_workspace(self, n: int, m: int, N: int) -> int:
        """Return the number of doubles in the workspace of a solve within bounds, of n states, m controls and N steps."""
        return int(self._bounded_workspace(n, m, N))

    def convex(
        self,
        lq: LQProblem,
        mu: float = 0.0,
        regularize: str = "control",
        bounds: Bounds | None = None,
        curvature: KnotCurvatures | None = None,
        modify: bool = True,
    ) -> tuple[LQProblem, Policy]:
        """Make the damped Quu positive definite by reflecting its negative eigenvalues, and solve, in one sweep.

        Returns the modified problem and the policy. The shift that reflects is added to R; Q, S, R are copies. curvature: second
        derivatives of the dynamics, contracted with V'x + V'xx d and added during the sweep
        (:meth:`~trajopt.stage.evaluation.StageEvaluator.knot_curvatures`, :func:`tensor_curvatures`). modify: False leaves Quu
        unchanged; then ``failed_at`` of the policy reports an indefinite one.
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
        """Return the policy of one sweep over the blocks A .. r.

        changes: packed struct of the changes by :meth:`convex`, or None.
        """
        policy = _new_policy(*data[1].shape)
        _held, limits = _limits(bounds)
        to = _POLICY.pack(*map(address, policy[:4]))
        failed = self._riccati(_problem(data), limits, *_damping(mu, regularize), changes, to)
        return policy._replace(failed_at=None if failed < 0 else int(failed))

    def stationarity(self, lq: LQProblem, K: Array | None = None) -> Stationarity:
        """Return costates, gradient g (N, m) and sizes s (m,) of its terms under du = K dx, K (N, m, n), or du = 0 for None.

        lambda_k = q + A'lambda_(k+1) + K'g_k,   g_k = r + B'lambda_(k+1),   s_i = max_k (|r_i| + sum_j |B_ji| |lambda_j|).

        Sizes are at least :func:`~trajopt.lq.lq.least_size`, because all terms may be rounding errors.
        """
        data = _contiguous(lq)
        result = Stationarity(np.empty(lq.q.shape), np.empty(lq.r.shape), np.empty(lq.r.shape[1]))
        K = None if K is None else np.ascontiguousarray(K)
        self._stationarity(_problem(data), None if K is None else address(K), *map(address, result))
        return result

    def is_finite(self, lq: LQProblem) -> bool:
        """True if all entries of an LQ problem, dx0 included, are finite."""
        return bool(self._finite(_problem(_contiguous(lq))) and np.isfinite(lq.dx0).all())

    def forward(
        self, lq: LQProblem, policy: Policy, bounds: Bounds | None = None
    ) -> tuple[LQStep, tuple[float, float]]:
        """Return the linear rollout of a policy from dx0, clipped to the bounds on du, and (D1, D2) of its cost change.

        The change for a fraction alpha of the step is alpha D1 + alpha^2/2 D2.
        """
        dx, du, change = np.empty(lq.q.shape), np.empty(lq.r.shape), np.empty(2)
        dx[0] = lq.dx0
        data, gains = _contiguous(lq), (np.ascontiguousarray(policy.K), np.ascontiguousarray(policy.k))
        _held, limits = _limits(bounds)
        along = _POLICY.pack(*map(address, gains), 0, 0)
        self._linear_rollout(_problem(data), limits, along, *map(address, (dx, du, change)))
        return LQStep(dx, du), (float(change[0]), float(change[1]))


@lru_cache(maxsize=1)
def shared_lq() -> LQSolver:
    """Return the LQ solver that all callers share; it has no state."""
    return LQSolver()


def solve_riccati(lq: LQProblem, mu: float = 0.0, regularize: str = "control", bounds: Bounds | None = None) -> Policy:
    """Solve an LQ problem by a backward Riccati sweep; within bounds on du, each (N, m), knots are box-constrained QPs.

    mu: damping, added to Quu for regularize = "control", to V'xx for "state". Returns the policy du = k + K dx, with K (N, m, n)
    and k (N, m), and the value function. Its ``failed_at`` is the knot where Quu is not positive definite; None after a success.
    """
    return shared_lq().solve_riccati(lq, mu, regularize, bounds)


def _new_policy(N: int, n: int, m: int) -> Policy:
    """Return a policy with zero gains and uninitialized value functions, for a sweep to fill."""
    return Policy(np.zeros((N, m, n)), np.zeros((N, m)), np.empty((N + 1, n)), np.empty((N + 1, n, n)))


def _damping(mu: float, regularize: str) -> tuple[float, float]:
    """Return what a regularization mu on "state" or "control" adds to the diagonals of (V'xx, Quu): (mu, 0) or (0, mu)."""
    return (mu, 0.0) if regularize == "state" else (0.0, mu)


def _problem(data: list[Array]) -> bytes:
    """Pack the blocks A .. r as lq_problem; the caller keeps the blocks alive during the C call."""
    return _PROBLEM.pack(*map(address, data), *data[1].shape)


def _limits(bounds: Bounds | None) -> tuple[list[Array], bytes | None]:
    """Return the bounds in C order, to be kept alive during the C call, and their packed struct; [] and None without bounds."""
    if bounds is None:
        return [], None
    limits = [np.ascontiguousarray(b, float) for b in bounds]
    return limits, _BOUNDS.pack(*map(address, limits))


def _contiguous(lq: LQProblem) -> list[Array]:
    """Return the blocks A .. r in C order; the caller keeps them alive while their addresses are used."""
    return [np.ascontiguousarray(block) for block in lq[:8]]
