"""Contact law of Hunt and Crossley (ASME J. Appl. Mech. 42, 1975), smoothed, with Coulomb friction and derivatives.

Force on a point at the gap g [m] that moves with the velocity w [m/s] where the ground has the unit normal n; c = n.w is the rate
of the gap and w_t = w - c n the tangential velocity:

    force = N (n - mu phi w_t),     N = k P(-g; eps)^(3/2) P(1 - kappa c; SIGMA),     phi = 1 / sqrt(w_t.w_t + v^2)

P(z; s) = (z + sqrt(z^2 + s^2)) / 2 > 0 is max(z, 0) smoothed over a length s.  The spring is that of a sphere on a plane
(Hertz).  The damper is a factor of the spring's force: it vanishes with the spring's force, up to the smoothing, and N is always
positive.  kappa follows from the coefficient of restitution e at low impact speeds v_0, kappa = 3 (1 - e) / (2 v_0).  Friction
opposes the tangential velocity, is smaller than mu N, and is close to it at tangential speeds well above v.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.spatial.spatial import Mat, Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.contact.contact_law import (
    Derivatives,
    SecondDerivatives,
    Slip,
    diagonal,
    in_unit,
    parameter,
    require_positive,
    scaled,
)

SIGMA = 0.1
"""Smoothing length of the damper's factor P(1 - kappa c), about 1 at c = 0; it keeps the factor positive for kappa c > 1."""


class _Normal(NamedTuple):
    """Normal force N with its first and second derivatives in the gap g and its rate c."""

    N: Scalar
    g: Scalar
    c: Scalar
    gg: Scalar
    gc: Scalar
    cc: Scalar


@dataclass(frozen=True)
class HuntCrossley:
    """Hunt-Crossley contact law with smoothed spring and Coulomb friction.

    stiffness k [N/m^(3/2)], dissipation kappa [s/m], smoothing eps [m], friction mu, slip_speed v [m/s]. HyQ stands with 1 cm of
    penetration under the defaults. Stiffness, dissipation and friction may be given at run time as the parameters
    contact_stiffness, contact_dissipation, contact_friction (1 each). Raises ValueError for a stiffness, smoothing or slip_speed
    that is not positive, or a negative dissipation or friction.
    """

    stiffness: float = in_unit(2e5, (1, -0.5, -2))
    dissipation: float = in_unit(2.0, (0, -1, 1))
    smoothing: float = in_unit(2e-3, (0, 1, 0))
    friction: float = in_unit(0.7, (0, 0, 0))
    slip_speed: float = in_unit(0.2, (0, 1, -1))

    def __post_init__(self) -> None:
        require_positive(self, "stiffness", "smoothing", "slip_speed")
        require_positive(self, "dissipation", "friction", or_zero=True)

    def force(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Vec:
        """Force [N] on the point: N (n - mu phi w_t), the spring's force times the damper's factor, with friction."""
        c = n.dot(w)
        wt = w - n * c
        grip, _, _ = self._grip(wt, p)
        return (n - wt * grip) * self._normal(g, c, p).N

    def slopes(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Derivatives:
        """First derivatives of the force in (g, n, w)."""
        c = n.dot(w)
        wt = w - n * c
        N, (grip, fall, _) = self._normal(g, c, p), self._grip(wt, p)
        along = n - wt * grip
        turned = diagonal(1.0 + grip * c) + n.outer(w * grip) + wt.outer(w * (2.0 * c * fall))
        slid = n.outer(n * grip) - diagonal(grip) - wt.outer(wt * (2.0 * fall))
        return Derivatives(
            along * N.g, scaled(turned, N.N) + along.outer(w * N.c), scaled(slid, N.N) + along.outer(n * N.c)
        )

    def second_derivatives(
        self, g: Scalar, n: Vec, w: Vec, s: Vec, p: Mapping[str, Rows]
    ) -> tuple[Derivatives, SecondDerivatives]:
        """First and second derivatives in (g, n, w) of s . force = N Q for a fixed s, with Q = s.n - mu phi s.w_t.

        g: gap, n: normal, w: velocity, w_t = w - (n.w) n, phi = 1 / sqrt(w_t.w_t + v^2), N: normal force.
        """
        c = n.dot(w)
        wt, slip = w - n * c, Slip.at_velocity(n, w, s)
        N, (grip, fall, curvature) = self._normal(g, c, p), self._grip(wt, p)
        Q = s.dot(n) - grip * slip.y
        Qn = s - slip.Xn * (fall * slip.y) - slip.yn * grip
        Qw = -(slip.Xw * (fall * slip.y)) - slip.yw * grip

        def block(Xa: Vec, Xb: Vec, Xab: Mat, ya: Vec, yb: Vec, yab: Mat | None) -> Mat:
            """Second derivative of -mu phi y in a and b, each n or w, from those of X and y; yab: None for zero."""
            M = Xa.outer(Xb * (curvature * slip.y) + yb * fall) + ya.outer(Xb * fall) + scaled(Xab, fall * slip.y)
            return scaled(M if yab is None else M + scaled(yab, grip), -1.0)

        Qnn = block(slip.Xn, slip.Xn, slip.Xnn, slip.yn, slip.yn, slip.ynn)
        Qnw = block(slip.Xn, slip.Xw, slip.Xnw, slip.yn, slip.yw, slip.ynw)
        Qww = block(slip.Xw, slip.Xw, slip.Xww, slip.yw, slip.yw, None)
        first = Derivatives(N.g * Q, w * (N.c * Q) + Qn * N.N, n * (N.c * Q) + Qw * N.N)
        return first, SecondDerivatives(
            N.gg * Q,
            w * (N.gc * Q) + Qn * N.g,
            n * (N.gc * Q) + Qw * N.g,
            w.outer(w * (N.cc * Q) + Qn * N.c) + Qn.outer(w * N.c) + scaled(Qnn, N.N),
            w.outer(n * (N.cc * Q) + Qw * N.c) + Qn.outer(n * N.c) + diagonal(N.c * Q) + scaled(Qnw, N.N),
            n.outer(n * (N.cc * Q) + Qw * N.c) + Qw.outer(n * N.c) + scaled(Qww, N.N),
        )

    def _normal(self, g: Scalar, c: Scalar, p: Mapping[str, Rows]) -> _Normal:
        """Normal force N [N] with its first and second derivatives in the gap g and its rate c."""
        k = parameter(p, "contact_stiffness", self.stiffness)
        kappa = parameter(p, "contact_dissipation", self.dissipation)
        depth, slope, curvature = _positive(-g, self.smoothing)
        h, h1, h2 = _positive(1.0 - kappa * c, SIGMA)
        root = sm.sqrt(depth)
        S, S1 = k * depth * root, -1.5 * k * root * slope
        S2 = 1.5 * k * (0.5 * slope * slope / root + root * curvature)
        return _Normal(S * h, S1 * h, -S * kappa * h1, S2 * h, -S1 * kappa * h1, S * kappa * kappa * h2)

    def _grip(self, tangential: Vec, p: Mapping[str, Rows]) -> tuple[Scalar, Scalar, Scalar]:
        """Friction factor mu phi, phi = 1 / sqrt(X + v^2), and its first and second derivative in X = w_t.w_t.

        tangential: the tangential velocity w_t.
        """
        phi = 1.0 / sm.sqrt(tangential.dot(tangential) + self.slip_speed * self.slip_speed)
        grip = parameter(p, "contact_friction", self.friction) * phi
        fall = -0.5 * grip * phi * phi
        return grip, fall, -1.5 * fall * phi * phi


def _positive(z: Scalar, s: float) -> tuple[Scalar, Scalar, Scalar]:
    """Smooth max(z, 0), (z + sqrt(z^2 + s^2)) / 2, without cancellation for negative z, and its derivatives up to the second."""
    size = sm.select(z, z, -z)
    r = sm.sqrt(z * z + s * s)
    value = sm.select(z, 0.5 * (size + r), 0.5 * s * s / (size + r))
    return value, value / r, 0.5 * s * s / (r * r * r)
