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
"""

from __future__ import annotations

from typing import NamedTuple

from dynamics_backends.protocol import Array

Bounds = tuple[Array, Array]
"""Lower and upper bounds on du, each (N, m)."""


class LQProblem(NamedTuple):
    """Data of a linear-quadratic problem with n = ndx states dx and m = nu controls du, such as a step of SLQ.

        minimize    sum_k [1/2 dx'Q dx + du'S dx + 1/2 du'R du + q'dx + r'du]_k + 1/2 dx_N'Q_N dx_N + q_N'dx_N
        subject to  dx_0 = dx0,  dx_(k+1) = A_k dx_k + B_k du_k + d_k

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


HALF_OF_DIGITS = 2.0**-26
"""Square root of the machine epsilon."""


class Stationarity(NamedTuple):
    """Costates (N + 1, n), gradient g (N, m) of the Lagrangian in the controls, and sizes s (m,) of its terms."""

    costates: Array
    gradient: Array
    size: Array


def least_size(sizes: Array) -> float:
    """Return the size below which an entry of a gradient counts as a rounding error: 2^-26 times the largest of ``sizes`` and 1.

    sizes: sizes of the terms of each control. Terms of a control with little effect are rounding errors of the other ones; terms
    far below 1 are rounding errors of states and references of magnitude 1, for example at a cost of zero.
    """
    return float(HALF_OF_DIGITS * max(1.0, sizes.max(initial=0.0)))
