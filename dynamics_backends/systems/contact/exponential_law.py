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
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.contact.contact_law import ContactLaw, in_unit, parameter, require_positive

LIMIT = 15.0
"""Exponent of the spring above which its exponential continues as a parabola."""
FORCE_FLOOR = 1e-6
"""Force [N] added to the spring's force in the friction limit; it avoids 0/0 far above the ground, where N and D vanish."""


@dataclass(frozen=True)
class SoftContactLaw(ContactLaw):
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
        N, D = self._spring(g, p), self._damper(g, p)
        plain = n * N - w * D
        if self.friction is None:
            return plain
        tangential = w - n * n.dot(w)
        ratio = D / (parameter(p, "contact_friction", self.friction) * (N + FORCE_FLOOR))
        excess = D * (1.0 - 1.0 / sm.sqrt(1.0 + ratio * ratio * tangential.dot(tangential)))
        return plain + tangential * excess

    # -- scalar functions of the law ------------------------------------------------------------------------------------
    def _spring(self, g: Scalar, p: Mapping[str, Rows]) -> Scalar:
        """Spring force N [N] at the gap g."""
        exponent = -self.spring_sharpness * (g - self.offset)
        above = exponent - LIMIT
        y = sm.select(above, above, 0.0 * above)
        scale = parameter(p, "contact_stiffness", self.stiffness) * sm.exp(exponent - y)
        return scale * (1.0 + y * (1.0 + 0.5 * y))

    def _damper(self, g: Scalar, p: Mapping[str, Rows]) -> Scalar:
        """Damping D [N s/m] at the gap g."""
        d = parameter(p, "contact_damping", self.damping)
        return 0.5 * d * (1.0 - sm.tanh(0.5 * self.damper_sharpness * g))
