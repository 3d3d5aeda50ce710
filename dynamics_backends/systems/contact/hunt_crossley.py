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

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.contact.contact_law import ContactLaw, in_unit, parameter, require_positive

SIGMA = 0.1
"""Smoothing length of the damper's factor P(1 - kappa c), about 1 at c = 0; it keeps the factor positive for kappa c > 1."""


@dataclass(frozen=True)
class HuntCrossley(ContactLaw):
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
        grip = parameter(p, "contact_friction", self.friction) / sm.sqrt(wt.dot(wt) + self.slip_speed * self.slip_speed)
        return (n - wt * grip) * self._normal(g, c, p)

    def _normal(self, g: Scalar, c: Scalar, p: Mapping[str, Rows]) -> Scalar:
        """Normal force N [N] at the gap g and its rate c."""
        k = parameter(p, "contact_stiffness", self.stiffness)
        kappa = parameter(p, "contact_dissipation", self.dissipation)
        depth = _positive(-g, self.smoothing)
        return k * depth * sm.sqrt(depth) * _positive(1.0 - kappa * c, SIGMA)


def _positive(z: Scalar, s: float) -> Scalar:
    """Smooth max(z, 0), (z + sqrt(z^2 + s^2)) / 2, without cancellation for negative z."""
    size = sm.select(z, z, -z)
    r = sm.sqrt(z * z + s * s)
    return sm.select(z, 0.5 * (size + r), 0.5 * s * s / (size + r))
