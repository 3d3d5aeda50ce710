"""What happens at the knots of a phase, all of them as one batch: time steps, costs, constraints, and closed-loop roll-outs.

    values    x_next, d = x_next (-) node, l, g
    first     the same with d d, dl, dg, and the Hessian of l
    second    the Hessian of sigma l + lam'(x_next (-) node) + y'g
    rollout   trajectories of a policy, for several step lengths at once

Every solver sees a problem through these four, and two engines offer them: :mod:`trajopt.stage.numpy_stages` and
:mod:`trajopt.stage.compiled.compiled_stages`. Derivatives are those in (dx, du) of x (+) dx, u + du, in the tangent space at x; the
step is seen from that at a node: the next state of a trajectory with gaps, or the origin of a chart. The final knot has no time
step and no controls; there n is 0 for d and m is 0 for u, and roll-outs end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dynamics_backends.protocol import Array, Hessians
from trajopt.stage.pool import Pool


class StageValues(NamedTuple):
    """x_next (K, nx), d (K, n), cost (K,), constraints g (K, ng) of K knots."""

    x_next: Array
    d: Array
    cost: Array
    g: Array


class StageDerivatives(NamedTuple):
    """Values, and derivatives of d, A (K, n, n), B (K, n, m); of the cost, lx (K, n), lu (K, m), Q (K, n, n), S (K, m, n),
    R (K, m, m); of the constraints, gx (K, ng, n), gu (K, ng, m).
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
    """A step to be tried: dx (N + 1, ndx), du (N, nu), gains K (N, nu, ndx), gaps d (N, ndx) that it closes.

    bend: (ddx, ddu) of a parabola, along which dx + alpha/2 ddx and du + alpha/2 ddu stand in their places; None: a straight line.
    """

    dx: Array
    du: Array
    K: Array
    gaps: Array
    bend: tuple[Array, Array] | None = None

    def chord(self, alphas: Array) -> tuple[Array, Array]:
        """dx (L or 1, N + 1, ndx), du (L or 1, N, nu) to the points of the step lengths alphas (L,)."""
        if self.bend is None:
            return self.dx[None], self.du[None]
        halves = 0.5 * alphas[:, None, None]
        return self.dx + halves * self.bend[0], self.du + halves * self.bend[1]


class Candidates(NamedTuple):
    """L trajectories: xs (L, N + 1, nx), us (L, N, nu), defects (L, N, ndx), cost (L,)."""

    xs: Array
    us: Array
    defects: Array
    cost: Array


@dataclass(frozen=True)
class Shooting:
    """nodes: knots in 1 .. N where the state is a variable of its own, rising. gaps: how they close, "linear" or "nonlinear"."""

    nodes: tuple[int, ...] = ()
    gaps: str = "linear"

    @classmethod
    def every(cls, shooting: int | str, horizon: int, gaps: str) -> Shooting:
        """Nodes from the option: "single", "all" or every K knots."""
        named = {"single": horizon + 1, "all": 1}
        spacing = named[shooting] if isinstance(shooting, str) else shooting
        return cls(tuple(range(spacing, horizon + 1, spacing)), gaps)

    def parts(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """First knots and ends of the parts of a phase that are rolled out side by side: those between nodes with linear gaps."""
        inner = [node for node in self.nodes if first < node < last and self.gaps == "linear"]
        return [first, *inner], [*inner, last]


class Trials(NamedTuple):
    """A roll-out: u = us + alpha du + K (x (-) (xs (+) alpha dx)) within bounds on u, for alphas (L,).

    xs (N + 1, nx), us (N, nu), bounds: two of (N, nu) or None. X, U, D: where its trajectories go, xs, us and defects of
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
    """K consecutive knots that share dynamics, cost terms and constraints; x (K, nx), u (K, m), nodes (K, nx).

    compiled: whether by compiled code, now.
    """

    @property
    def compiled(self) -> bool: ...

    def values(self, x: Array, u: Array, nodes: Array) -> StageValues:
        """Values."""
        ...

    def first(
        self,
        x: Array,
        u: Array,
        nodes: Array,
        *,
        quadratic: bool = True,
        out: StageDerivatives | None = None,
        pool: Pool | None = None,
    ) -> StageDerivatives:
        """Values and first derivatives.

        quadratic: whether Q, S and R are asked for. out: contiguous arrays to write to. pool: where the work may be put, to be done
        before the arrays are read.
        """
        ...

    def second(
        self,
        x: Array,
        u: Array,
        nodes: Array,
        sigma: float,
        lam: Array | None = None,
        y: Array | None = None,
        first: int = 0,
        out: Hessians | None = None,
    ) -> Hessians:
        """The Hessian for lam (K, n) in the tangent spaces at the nodes, y (K, ng); None leaves a part out.

        first: of fewer knots, from this one on; for lam alone. out: contiguous arrays to write to. Raises TypeError for a time step
        without second derivatives.
        """
        ...

    def rollout(self, trials: Trials) -> Array:
        """Continue trajectories over these knots; returns their costs there (L,)."""
        ...

    def finer(self, pieces: int) -> Stages:
        """The same knots with each substep of their dynamics, a SampledSystem, in so many pieces, for roll-outs."""
        ...

    def shortened(self, share: float) -> Stages:
        """The same knots with time steps of this share of theirs, for values and first derivatives."""
        ...


@runtime_checkable
class SweptStages(Protocol):
    """Stages whose second derivatives a sweep in C asks for, knot by knot."""

    def sweep_part(self, x: Array, u: Array, nodes: Array) -> tuple[Any, Any] | None:
        """What it calls (:class:`~trajopt.lq.compiled_lq.CurvaturePart`), and what must live as long.

        None where they are not compiled.
        """
        ...


def room_for(K: int, sizes: tuple[int, int, int, int, int], quadratic: bool = True) -> StageDerivatives:
    """Empty arrays for K knots with sizes nx, n, n of d, m, ng."""
    nx, n, nd, m, ng = sizes
    values = StageValues(np.empty((K, nx if nd else 0)), np.empty((K, nd)), np.empty(K), np.empty((K, ng)))
    shapes = [(nd, n), (nd, m), (n,), (m,), (n, n), (m, n), (m, m), (ng, n), (ng, m)]
    if not quadratic:
        shapes[4:7] = [(0, n), (0, n), (0, m)]
    return StageDerivatives(values, *(np.empty((K, *shape)) for shape in shapes))
