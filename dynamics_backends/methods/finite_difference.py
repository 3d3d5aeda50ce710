"""Finite differences, forward and central.

    forward   (f(x (+) h e_k) - f(x)) / h                 error h/2 f'' + eps |f| / h,    h = eps^(1/2)
    central   (f(x (+) h e_k) - f(x (+) -h e_k)) / (2h)   error h^2/6 f''' + eps |f| / h, h = eps^(1/3)

These errors hold for values accurate to eps |f|. Larger rounding errors of f, as in compiled forward dynamics, enlarge the
second term.

The step rule (Nocedal & Wright, Numerical Optimization, 8.1) balances both terms for functions of order one: h is multiplied by
max(1, |x_k|) for components of a vector space, angles of SO(2) and controls, and unscaled for quaternions and poses, whose
perturbations are radians and meters.

Second derivatives, contracted with lam, are central differences of central Jacobians, by default with h = eps^(1/4) for both:
rounding is divided by h^2, truncation is of the order h^2.  The result is their symmetric part, the Hessian along the exponential
chart.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.methods.base import Method, SecondOrderMethod, one_at_a_time, perturbed
from dynamics_backends.protocol import Array, Batch, Hessians, Jacobians, Map

EPS = float(np.finfo(float).eps)
LARGEST_STEP = 0.1
"""Largest valid step (relative, or in radians and meters); larger differences do not approximate derivatives."""


def step_sizes(manifold: Manifold, x: Array, u: Array, step: float) -> Array:
    """Steps h (ndx + nu, N) at x (nx, N), u (nu, N), rounded so that x + h - x = h.

    ``step`` max(1, |x_k|) for components of a vector space, angles and controls; ``step`` for quaternions and poses.
    """
    scales = []
    offset = 0
    for g in manifold.groups:
        flat = g.to_se3 is None
        scales.append(x[offset : offset + g.nq] if flat else np.zeros((g.nv, x.shape[1])))
        offset += g.nq
    at = np.concatenate([*scales, u])
    return (at + step * np.maximum(1.0, np.abs(at))) - at


class FiniteDifference(Method):
    """Forward or central differences.

    step: default eps^(1/2) (forward) or eps^(1/3) (central); it is multiplied by max(1, |x_k|) for components of vector spaces,
    angles of SO(2) and controls. Raises ValueError for another scheme, and for a step outside (0, LARGEST_STEP].
    """

    def __init__(self, map: Map, *, scheme: str = "central", step: float | None = None) -> None:
        super().__init__(map)
        if scheme not in ("forward", "central"):
            raise ValueError(f"scheme = {scheme!r}; known: 'forward', 'central'")
        if step is not None and not 0 < step <= LARGEST_STEP:
            raise ValueError(
                f"step = {step}; it must be positive and at most {LARGEST_STEP}, or None for the default rule"
            )
        self.scheme = scheme
        self.step = step or (EPS ** (1 / 2) if scheme == "forward" else EPS ** (1 / 3))
        self.name = f"{scheme}_difference"

    @property
    def settings(self) -> tuple[str, float]:
        """Settings that the derivatives depend on: the scheme and the step."""
        return self.scheme, self.step

    def _jacobians(self, b: Batch) -> Jacobians:
        """Value and differences with the method's step."""
        return self._differences(b, self._step_sizes(b, self.step))

    def _differences(self, b: Batch, h: Array) -> Jacobians:
        """Value and differences with steps h (ndx + nu, N)."""
        steps = one_at_a_time(self.map, b, h)
        value = self.map(*b)
        forward = self._evaluate(b, steps)
        if self.scheme == "forward":
            return self.split(value, (forward - value[:, :, None]) / h.T)
        return self.split(value, (forward - self._evaluate(b, -steps)) / (2.0 * h.T))

    def _evaluate(self, b: Batch, steps: Array) -> Array:
        """Values (n_out, N, K) at every knot perturbed by K steps."""
        values = self.map(*perturbed(self.map, b, steps))
        return values.reshape(len(values), b.size, -1)

    def _step_sizes(self, b: Batch, step: float) -> Array:
        """Steps h (ndx + nu, N); see :func:`step_sizes`."""
        return step_sizes(self.map.manifold, b.x, b.u, step)


class CentralDifference(FiniteDifference, SecondOrderMethod):
    """Central differences with second derivatives.

    step: of first and second derivatives; default eps^(1/3) for first and eps^(1/4) for second ones.
    """

    def __init__(self, map: Map, *, step: float | None = None) -> None:
        super().__init__(map, scheme="central", step=step)
        self.second_step = step or EPS ** (1 / 4)

    def _contraction(self, b: Batch, lam: Array) -> tuple[Jacobians, Hessians]:
        """First derivatives, and the second derivatives of lam' f for lam (N, n_out) by differences of differences."""
        n, h = self.map.manifold.ndx, self._step_sizes(b, self.second_step)
        steps = one_at_a_time(self.map, b, h)
        forward, backward = (self._gradients(perturbed(self.map, b, s), b.size, lam) for s in (steps, -steps))
        H = (forward - backward) / (2.0 * h.T[:, :, None])
        H = 0.5 * (H + H.transpose(0, 2, 1))
        found = None if self.compiled is None else self.compiled.jacobians(self, b)
        return found or self._jacobians(b), Hessians(H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])

    def _gradients(self, many: Batch, size: int, lam: Array) -> Array:
        """Gradients (N, K, ndx + nu) of lam' f, at K points about each of N knots."""
        first = self._differences(many, self._step_sizes(many, self.second_step))
        J = np.concatenate([first.fx, first.fu], axis=2)
        return np.einsum("ni,nkij->nkj", lam, J.reshape(size, -1, *J.shape[1:]))
