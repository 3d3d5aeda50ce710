"""Interface of soft contact laws: the force on a point from its gap and velocity, with derivatives.

A point at the gap g [m] (its distance from a plane, its height above a terrain; negative below the ground) moves with the
velocity w [m/s]; the ground has the unit normal n.  Derivatives are partial in (g, n, w);
:mod:`~dynamics_backends.systems.contact.ground_contact` derives g and n from the position.  Laws by name are in
:mod:`~dynamics_backends.systems.contact.registry`.

Friction laws depend on the slip

    w_t = w - (n.w) n,     X = w_t.w_t,     y = s.w_t for a fixed s,

whose derivatives in n and w are those of :class:`Slip`.  w_t is the tangential velocity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import inf
from typing import Any, NamedTuple, Protocol

from dynamics_backends.protocol import Parameters
from dynamics_backends.rigid_body.spatial.spatial import Mat, Vec
from dynamics_backends.scalar import Rows, Scalar

LOADED = 0.1
"""Load above which a foot counts as in contact, relative to the robot's weight divided by the number of feet."""


def in_unit(default: Any, exponents: tuple[float, float, float]) -> Any:
    """Dataclass field of a law; ``exponents``: powers of kg, m, s in its unit, by which its value is scaled to other robots."""
    return field(default=default, metadata={"unit": exponents})


class Derivatives(NamedTuple):
    """First derivatives in the gap g, the normal n and the velocity w: of a force (g: Vec; n, w: Mat, a row for each component of
    the force), or of one number (g: scalar; n, w: Vec).

    Those in n hold for changes that keep n a unit vector.
    """

    g: Any
    n: Any
    w: Any


class SecondDerivatives(NamedTuple):
    """Second derivatives of one number in (g, n, w): gg for (g, g) and so on; nw has a row for each component of n."""

    gg: Scalar
    gn: Vec
    gw: Vec
    nn: Mat
    nw: Mat
    ww: Mat


def scaled(M: Mat, s: Scalar) -> Mat:
    """Product s M."""
    return Mat(M.a * s, M.b * s, M.c * s)


def diagonal(s: Scalar) -> Mat:
    """Scaled identity s E."""
    return Mat(Vec(s, 0.0, 0.0), Vec(0.0, s, 0.0), Vec(0.0, 0.0, s))


class ContactLaw(Protocol):
    """Soft contact law, generic in the scalar type; p: run-time parameters by name, such as contact_stiffness -> (1, N)."""

    def force(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Vec:
        """Force [N] on a point at the gap g [m] with the velocity w [m/s], where the ground has the normal n."""
        ...

    def slopes(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Derivatives:
        """First derivatives of the force in (g, n, w), without the force itself."""
        ...

    def second_derivatives(
        self, g: Scalar, n: Vec, w: Vec, s: Vec, p: Mapping[str, Rows]
    ) -> tuple[Derivatives, SecondDerivatives]:
        """First and second derivatives in (g, n, w) of s . force for a fixed vector s."""
        ...


class StepLaw(Protocol):
    """Contact law evaluated at the velocity w of a point at the end of a step, from the gap g at its start.

    The step length is p[IMPLICIT_STEP] [s].  The force's derivative in w must be symmetric and negative semidefinite: the force
    is the gradient of a concave function of w.
    """

    def force(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Vec:
        """Force [N] on a point during the step, from its gap g and normal n at the start and its velocity w at the end."""
        ...

    def slopes(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> tuple[Vec, Derivatives]:
        """Force and its first derivatives in (g, n, w)."""
        ...

    def slower(self, time: float, p: Parameters) -> tuple[StepLaw, Parameters]:
        """Law and parameters whose force in steps shorter by ``time`` [s] is that of this law with p at the same gap, normal and
        velocity.
        """
        ...

    def second_derivatives(
        self, g: Scalar, n: Vec, w: Vec, s: Vec, p: Mapping[str, Rows]
    ) -> tuple[Derivatives, SecondDerivatives]:
        """First and second derivatives in (g, n, w) of s . force for a fixed vector s."""
        ...


class Slip(NamedTuple):
    """Slip y = s.w_t for a fixed vector s, with first and second derivatives of X = w_t.w_t and y in the normal n and the
    velocity w.

    w_t = w - (n.w) n with a unit normal n; X is differentiated as w.w - (n.w)^2, which agrees for changes that keep n a unit
    vector. Xnw and ynw have a row for each component of n. The second derivatives of y in (w, w) are zero and not stored.
    """

    y: Scalar
    Xn: Vec
    Xw: Vec
    yn: Vec
    yw: Vec
    Xnn: Mat
    Xnw: Mat
    Xww: Mat
    ynn: Mat
    ynw: Mat

    @classmethod
    def at_velocity(cls, n: Vec, w: Vec, s: Vec) -> Slip:
        """Slip y = s.w_t and derivatives of y and X = w_t.w_t at the unit normal n and the velocity w, for a fixed s."""
        c, sn = n.dot(w), s.dot(n)
        wt, st = w - n * c, s - n * sn
        return cls(
            y=s.dot(wt),
            Xn=w * (-2.0 * c),
            Xw=wt * 2.0,
            yn=-(w * sn) - s * c,
            yw=st,
            Xnn=w.outer(w * -2.0),
            Xnw=-(w.outer(n * 2.0)) - diagonal(2.0 * c),
            Xww=diagonal(2.0) - n.outer(n * 2.0),
            ynn=-(w.outer(s)) - s.outer(w),
            ynw=-(s.outer(n)) - diagonal(sn),
        )


def require_positive(law: object, *names: str, or_zero: bool = False) -> None:
    """Raise ValueError if an attribute ``names`` of a law is not positive and finite; zero is accepted if ``or_zero``."""
    for name in names:
        value = getattr(law, name)
        if not (value >= 0 if or_zero else value > 0) or value == inf:
            raise ValueError(
                f"{name} = {value}; it must be positive and finite{', or zero for none' if or_zero else ''}"
            )


def parameter(p: Mapping[str, Rows], name: str, default: float) -> Scalar:
    """First row of the run-time parameter ``name``, or ``default`` if p does not have it."""
    return p[name][0] if name in p else default
