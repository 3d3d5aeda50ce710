"""Contact law of Neunert, Giftthaler et al. (exponential spring, sigmoid damper), with its derivatives.

Force on a point at the gap g [m] (negative below the ground) that moves with the velocity w [m/s] where the ground has the unit
normal n:

    force = N(g) n - D(g) w,     N = k exp(-alpha_n (g - z_off)),     D = d / (1 + exp(alpha g))

(Giftthaler et al. 2017, eq. 19, with the penetration as -g; z_off is the offset.)  The damper acts in all directions with the
same D(g), also as a pull along the normal.  With a friction coefficient mu, its tangential part saturates smoothly at mu times
the spring's force,

    force = N n - D (n.w) n - D w_t / sqrt(1 + r^2 w_t.w_t),     w_t = w - (n.w) n,     r = D / (mu (N + FORCE_FLOOR)).

The exponentials do not overflow.  Above ``LIMIT`` the spring's exponential continues as the parabola exp(LIMIT) (1 + y + y^2 /
2), y = exponent - LIMIT, which is twice continuously differentiable; that is 15 cm below z_off with the usual parameters, at a
force of 10^10 N.  The sigmoid is (1 - tanh(alpha g / 2)) / 2.

Derivatives are partial in (g, n, w); :mod:`~dynamics_backends.systems.contact.ground_contact` derives g and n from the
position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

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

LIMIT = 15.0
"""Exponent of the spring above which its exponential continues as a parabola."""
FORCE_FLOOR = 1e-6
"""Force [N] added to the spring's force in the friction limit; it avoids 0/0 far above the ground, where N and D vanish."""


@dataclass(frozen=True)
class SoftContactLaw:
    """Exponential contact law with stiffness k [N], damping d [N s/m] and offset z_off [m].

    damper_sharpness: alpha [1/m]; spring_sharpness: alpha_n [1/m]. The defaults are HyQ's. ``friction``: coefficient mu of the
    smooth friction limit; None for no limit. Stiffness, damping and friction may be given at run time as the parameters
    contact_stiffness, contact_damping, contact_friction (1 each); contact_friction has no effect if ``friction`` is None. Raises
    ValueError for a stiffness, sharpness or friction that is not positive, or a negative damping.
    """

    stiffness: float = in_unit(5000.0, (1, 1, -2))
    damping: float = in_unit(1000.0, (1, 0, -1))
    damper_sharpness: float = in_unit(100.0, (0, -1, 0))
    spring_sharpness: float = in_unit(100.0, (0, -1, 0))
    offset: float = in_unit(-0.02, (0, 1, 0))
    friction: float | None = in_unit(None, (0, 0, 0))

    def __post_init__(self) -> None:
        require_positive(self, "stiffness", "damper_sharpness", "spring_sharpness")
        if not np.isfinite(self.offset):
            raise ValueError(f"offset = {self.offset}; expected a finite number of meters")
        if not 0 <= self.damping < np.inf:
            raise ValueError(f"damping = {self.damping}; it must be positive, or zero for an elastic contact")
        if self.friction is not None and not self.friction > 0:
            raise ValueError(f"friction = {self.friction}; it must be positive, or None for no limit")

    # -- the law --------------------------------------------------------------------------------------------------------
    def force(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Vec:
        """Force [N] on the point: spring and damper, the damper limited tangentially if ``friction`` is not None."""
        N, D = self._spring(g, p)[0], self._damper(g, p)[0]
        plain = n * N - w * D
        if self.friction is None:
            return plain
        tangential = w - n * n.dot(w)
        return plain + tangential * self._excess(g, tangential, p)[0]

    def slopes(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Derivatives:
        """First derivatives of the force in (g, n, w)."""
        (N, N1, _), (D, D1, _) = self._spring(g, p), self._damper(g, p)
        in_g, in_n, in_w = n * N1 - w * D1, diagonal(N), diagonal(-D)
        if self.friction is not None:
            c = n.dot(w)
            wt = w - n * c
            E, Eg, EX, *_ = self._excess(g, wt, p)
            in_g = in_g + wt * Eg
            in_n = in_n - diagonal(E * c) - n.outer(w * E) - wt.outer(w * (2.0 * c * EX))
            in_w = in_w + diagonal(E) - n.outer(n * E) + wt.outer(wt * (2.0 * EX))
        return Derivatives(in_g, in_n, in_w)

    def second_derivatives(
        self, g: Scalar, n: Vec, w: Vec, s: Vec, p: Mapping[str, Rows]
    ) -> tuple[Derivatives, SecondDerivatives]:
        """First and second derivatives in (g, n, w) of s . force for a fixed vector s."""
        (N, N1, N2), (D, D1, D2) = self._spring(g, p), self._damper(g, p)
        sn, sw = s.dot(n), s.dot(w)
        zero = Mat(*(Vec(0.0, 0.0, 0.0) for _ in range(3)))
        first = Derivatives(N1 * sn - D1 * sw, s * N, s * -D)
        second = SecondDerivatives(N2 * sn - D2 * sw, s * N1, s * -D1, zero, zero, zero)
        return (first, second) if self.friction is None else self._with_excess(first, second, (g, n, w, s), p)

    def _with_excess(
        self, first: Derivatives, second: SecondDerivatives, at: tuple[Scalar, Vec, Vec, Vec], p: Mapping[str, Rows]
    ) -> tuple[Derivatives, SecondDerivatives]:
        """Return first and second derivatives of s . force with those of E(g, X) y added, X = w_t.w_t, y = s.w_t.

        E y is the part of s . force by which the friction limit reduces the damping. first, second: derivatives without it. at:
        (g, n, w, s).
        """
        g, n, w, s = at
        y, Xn, Xw, yn, yw, Xnn, Xnw, Xww, ynn, ynw = Slip.at_velocity(n, w, s)
        E, Eg, EX, Egg, EgX, EXX = self._excess(g, w - n * n.dot(w), p)

        def block(Xa: Vec, Xb: Vec, Xab: Mat, ya: Vec, yb: Vec, yab: Mat | None) -> Mat:
            """Second derivative of E y in a and b, each n or w, from those of X and y; yab: None for zero."""
            M = Xa.outer(Xb * (EXX * y) + yb * EX) + ya.outer(Xb * EX) + scaled(Xab, EX * y)
            return M if yab is None else M + scaled(yab, E)

        first = Derivatives(first.g + Eg * y, first.n + Xn * (EX * y) + yn * E, first.w + Xw * (EX * y) + yw * E)
        return first, SecondDerivatives(
            second.gg + Egg * y,
            second.gn + Xn * (EgX * y) + yn * Eg,
            second.gw + Xw * (EgX * y) + yw * Eg,
            second.nn + block(Xn, Xn, Xnn, yn, yn, ynn),
            second.nw + block(Xn, Xw, Xnw, yn, yw, ynw),
            second.ww + block(Xw, Xw, Xww, yw, yw, None),
        )

    # -- scalar functions of the law ------------------------------------------------------------------------------------
    def _spring(self, g: Scalar, p: Mapping[str, Rows]) -> tuple[Scalar, Scalar, Scalar]:
        """Spring force N [N] at the gap g and its derivatives N', N'' in g."""
        a = self.spring_sharpness
        exponent = -a * (g - self.offset)
        above = exponent - LIMIT
        y = sm.select(above, above, 0.0 * above)
        curvature = parameter(p, "contact_stiffness", self.stiffness) * sm.exp(exponent - y)
        slope = curvature * (1.0 + y)
        return curvature * (1.0 + y * (1.0 + 0.5 * y)), -a * slope, a * a * curvature

    def _damper(self, g: Scalar, p: Mapping[str, Rows]) -> tuple[Scalar, Scalar, Scalar]:
        """Damping D [N s/m] at the gap g and its derivatives D', D'' in g."""
        a, d = self.damper_sharpness, parameter(p, "contact_damping", self.damping)
        t = sm.tanh(0.5 * a * g)
        fall = 0.25 * a * d * (1.0 - t * t)
        return 0.5 * d * (1.0 - t), -fall, a * t * fall

    def _excess(self, g: Scalar, tangential: Vec, p: Mapping[str, Rows]) -> tuple[Scalar, ...]:
        """Damping beyond the friction limit, E = D (1 - (1 + r^2 X)^(-1/2)), X = w_t.w_t, and E_g, E_X, E_gg, E_gX, E_XX.

        tangential: w_t; r: see the module. ``friction`` must not be None.
        """
        assert self.friction is not None
        mu = parameter(p, "contact_friction", self.friction)
        (N, N1, N2), (D, D1, D2) = self._spring(g, p), self._damper(g, p)
        X = tangential.dot(tangential)
        inverse = 1.0 / (mu * (N + FORCE_FLOOR))
        r = D * inverse
        r1 = (D1 - r * mu * N1) * inverse
        r2 = (D2 - 2.0 * r1 * mu * N1 - r * mu * N2) * inverse
        xi_g, xi_X, xi_gg, xi_gX = 2.0 * r * r1 * X, r * r, 2.0 * (r1 * r1 + r * r2) * X, 2.0 * r * r1
        root = 1.0 / sm.sqrt(1.0 + xi_X * X)
        fall = 0.5 * root * root * root  # -d root / d xi
        curvature = 1.5 * fall * root * root
        return (
            D * (1.0 - root),
            D1 * (1.0 - root) + D * fall * xi_g,
            D * fall * xi_X,
            D2 * (1.0 - root) + 2.0 * D1 * fall * xi_g + D * (fall * xi_gg - curvature * xi_g * xi_g),
            D1 * fall * xi_X + D * (fall * xi_gX - curvature * xi_g * xi_X),
            -D * curvature * xi_X * xi_X,
        )
