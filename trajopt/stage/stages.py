"""Evaluation of the knots of a phase as one batch: time steps, costs, constraints, and closed-loop rollouts.

    values    x_next, d = x_next (-) node, l, g
    first     values with the derivatives of d, l and g, and the Hessian of l
    second    Hessian of sigma l + lam'(x_next (-) node) + y'g
    rollout   trajectories of a policy, for several step lengths

Solvers evaluate knots by these four operations. Two engines implement them: :mod:`trajopt.stage.numpy_stages` and
:mod:`trajopt.stage.compiled.compiled_stages`. Derivatives are in (dx, du) of x (+) dx, u + du, in the tangent space at x. The
defect d is in the tangent space at a node: the next state of a trajectory with gaps, or the origin of a chart. The final knot has
no time step and no controls: d has n = 0 columns, u has m = 0, and rollouts end there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array, Hessians


class Knots(NamedTuple):
    """K consecutive knots: states x (K, nx), controls u (K, m), and the states from which defects are measured, nodes (K, nx).

    nodes: the next states of the trajectory, or origins of charts. The final knot has m = 0 and no nodes.
    """

    x: Array
    u: Array
    nodes: Array

    @classmethod
    def of(cls, xs: Array, us: Array, k: slice) -> Knots:
        """Return knots of a trajectory xs (N + 1, nx), us (N, m); k: knots of a phase, or slice(N, N + 1), the final one."""
        return cls(xs[k], us[k] if k.start < len(us) else us[:1, :0], xs[k.start + 1 : k.stop + 1])


class StageValues(NamedTuple):
    """Next states x_next (K, nx), defects d (K, n), weighted cost (K,), constraints g (K, ng) of K knots.

    x_next and d have no entries at the final knot.
    """

    x_next: Array
    d: Array
    cost: Array
    g: Array


class StageDerivatives(NamedTuple):
    """Values, and derivatives at K knots in dx and du.

    Of d: A (K, n, n), B (K, n, m). Of the cost: lx (K, n), lu (K, m), and the Hessian Q (K, n, n), S (K, m, n), R (K, m, m). Of
    the constraints: gx (K, ng, n), gu (K, ng, m).
    """

    values: StageValues
    A: Array
    B: Array
    lx: Array
    lu: Array
    Q: Array
    S: Array
    R: Array
    gx: Array
    gu: Array


class Direction(NamedTuple):
    """Search direction: dx (N + 1, ndx), du (N, nu), gains K (N, nu, ndx), gaps d (N, ndx) that a full step closes.

    parabola: (ddx, ddu) of a parabolic path, with dx + alpha/2 ddx and du + alpha/2 ddu instead; None: a straight line.
    """

    dx: Array
    du: Array
    K: Array
    gaps: Array
    parabola: tuple[Array, Array] | None = None

    def chord(self, alphas: Array) -> tuple[Array, Array]:
        """Return displacements dx (L or 1, N + 1, ndx), du (L or 1, N, nu) that, times alpha, lead to the trial points.

        alphas (L,): step lengths. They are dx[None], du[None] on a straight line, and depend on alpha on a parabolic path
        (``parabola``).
        """
        if self.parabola is None:
            return self.dx[None], self.du[None]
        halves = 0.5 * alphas[:, None, None]
        return self.dx + halves * self.parabola[0], self.du + halves * self.parabola[1]


class Candidates(NamedTuple):
    """L trajectories: xs (L, N + 1, nx), us (L, N, nu), defects (L, N, ndx), cost (L,)."""

    xs: Array
    us: Array
    defects: Array
    cost: Array


@dataclass(frozen=True)
class Shooting:
    """Shooting nodes, increasing knots in 1 .. N whose state is a variable, and the treatment of gaps in rollouts.

    gaps: "linear" restarts a rollout at each node from xs (+) alpha dx; "nonlinear" continues it, with (1 - alpha) of the gap.
    """

    nodes: tuple[int, ...] = ()
    gaps: str = "linear"

    @classmethod
    def every(cls, shooting: int | str, horizon: int, gaps: str) -> Shooting:
        """Return the shooting of an option: no nodes ("single"), each knot from 1 on ("all"), or each K-th one (an integer K)."""
        named = {"single": horizon + 1, "all": 1}
        spacing = named[shooting] if isinstance(shooting, str) else shooting
        return cls(tuple(range(spacing, horizon + 1, spacing)), gaps)

    def parts(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Return the first and the end knots of the segments of [first, last] that are rolled out in parallel.

        With linear gaps, segments begin at the nodes; with nonlinear gaps there is a single segment.
        """
        inner = [node for node in self.nodes if first < node < last and self.gaps == "linear"]
        return [first, *inner], [*inner, last]


class Trials(NamedTuple):
    """Arguments of a rollout: u = us + alpha du + K (x (-) (xs (+) alpha dx)) within bounds on u, for alphas (L,).

    xs (N + 1, nx), us (N, nu), bounds: lower and upper (N, nu), or None. X, U, D: output arrays, xs, us and defects of
    :class:`Candidates`.
    """

    xs: Array
    us: Array
    direction: Direction
    alphas: Array
    shooting: Shooting
    bounds: tuple[Array, Array] | None
    X: Array
    U: Array
    D: Array


class Stages(Protocol):
    """K consecutive knots that share dynamics, cost terms and constraints."""

    @property
    def compiled(self) -> bool:
        """True if the time steps are evaluated by compiled code."""

    def values(self, at: Knots) -> StageValues:
        """Return next states, defects, costs and constraints at the knots."""

    def first(self, at: Knots, *, quadratic: bool = True, out: StageDerivatives | None = None) -> StageDerivatives:
        """Return values and first derivatives of defects, costs and constraints.

        quadratic: compute Q, S and R of the cost too. out: contiguous output arrays.
        """

    def second(
        self, at: Knots, sigma: float, lam: Array | None = None, y: Array | None = None, out: Hessians | None = None
    ) -> Hessians:
        """Return the Hessian blocks of sigma l + lam'(x_next (-) node) + y'g at the knots.

        lam (K, n): in the tangent spaces at the nodes; y (K, ng); None omits a part. out: contiguous output arrays. Raises
        TypeError for a time step without second derivatives.
        """

    def rollout(self, trials: Trials) -> Array:
        """Write X, U and D of ``trials`` over these knots, for all step lengths; returns the costs of these knots (L,)."""

    def finer(self, pieces: int) -> Stages:
        """Return a copy whose time steps, of a SampledSystem, have ``pieces`` times as many substeps; for rollouts."""

    def shortened(self, share: float) -> Stages:
        """Return a copy with the time steps multiplied by ``share`` in [0, 1], for values and first derivatives."""


def workspace_for(K: int, sizes: tuple[int, int, int, int, int], quadratic: bool = True) -> StageDerivatives:
    """Return uninitialized output arrays for K knots; sizes: nx, ndx, length of d (0 at the final knot), nu, length of g.

    quadratic: False for empty Q, S and R.
    """
    nx, n, nd, m, ng = sizes
    values = StageValues(np.empty((K, nx if nd else 0)), np.empty((K, nd)), np.empty(K), np.empty((K, ng)))
    shapes = [(nd, n), (nd, m), (n,), (m,), (n, n), (m, n), (m, m), (ng, n), (ng, m)]
    if not quadratic:
        shapes[4:7] = [(0, n), (0, n), (0, m)]
    return StageDerivatives(values, *(np.empty((K, *shape)) for shape in shapes))
