"""Interface of soft contact laws: the force on a point from its gap and velocity, with derivatives.

A point at the gap g [m] (its distance from a plane, its height above a terrain; negative below the ground) moves with the
velocity w [m/s]; the ground has the unit normal n.  Derivatives are partial in (g, n, w);
:mod:`~dynamics_backends.systems.contact.ground_contact` derives g and n from the position.  Laws by name are in
:mod:`~dynamics_backends.systems.contact.registry`.

A law needs only its force: derivatives are by CasADi for symbols, by dual numbers for arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from math import inf
from typing import Any, NamedTuple, Protocol

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import outer_hessian, outer_jacobian
from dynamics_backends.protocol import IMPLICIT_STEP, Parameters
from dynamics_backends.rigid_body.spatial.spatial import Mat, Vec, leaves
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.scalars.user_function import user_code_line

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


def first_derivatives(law: Any, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Derivatives:
    """First derivatives of a law's force in (g, n, w), by CasADi for symbols, by dual numbers for arrays."""
    J = outer_jacobian(_components(law), _arguments(g, n, w), p)
    columns = [Vec(*(row.get(j, 0.0) for row in J)) for j in range(7)]
    return Derivatives(columns[0], Mat(*columns[1:4]), Mat(*columns[4:]))


def second_derivatives(
    law: Any, g: Scalar, n: Vec, w: Vec, s: Vec, p: Mapping[str, Rows]
) -> tuple[Derivatives, SecondDerivatives]:
    """First and second derivatives in (g, n, w) of s . force for a fixed vector s, as :func:`first_derivatives`."""
    at = _arguments(g, n, w)
    gradient, H = outer_hessian(_components(law), at, p, sm.stack([x + 0.0 * at[0] for x in leaves(s)]))
    M = [[H.get(i, {}).get(j, 0.0) for j in range(7)] for i in range(7)]

    def block(rows: slice, columns: range) -> Mat:
        """Block of the Hessian."""
        return Mat(*(Vec(*(row[j] for row in M[rows])) for j in columns))

    in_n, in_w = range(1, 4), range(4, 7)
    first = Derivatives(gradient[0], Vec(*gradient[1:4]), Vec(*gradient[4:]))
    blocks = block(slice(1, 4), in_n), block(slice(1, 4), in_w), block(slice(4, 7), in_w)
    return first, SecondDerivatives(M[0][0], Vec(*M[0][1:4]), Vec(*M[0][4:]), *blocks)


def _arguments(g: Scalar, n: Vec, w: Vec) -> Rows:
    """Rows (g, n, w), seven numbers."""
    return sm.stack([g, *leaves(n), *leaves(w)])


def _components(law: Any) -> Callable[[Rows, Mapping[str, Rows]], list[Scalar]]:
    """Function of y = (g, n, w) and of the parameters that returns the components of a law's force."""
    return lambda y, p: leaves(law.force(y[0], Vec(y[1], y[2], y[3]), Vec(y[4], y[5], y[6]), p))


class ContactLaw(Protocol):
    """Soft contact law, generic in the scalar type; p: run-time parameters by name, such as contact_stiffness -> (1, N).

    A subclass needs only ``force``; it may define the derivatives too, if theirs take fewer operations. Functions of NumPy
    cannot be traced: use those of trajopt, such as ``to.sqrt``.
    """

    def force(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Vec:
        """Force [N] on a point at the gap g [m] with the velocity w [m/s], where the ground has the normal n."""

    def slopes(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Derivatives:
        """First derivatives of the force in (g, n, w), without the force itself."""
        return first_derivatives(self, g, n, w, p)

    def second_derivatives(
        self, g: Scalar, n: Vec, w: Vec, s: Vec, p: Mapping[str, Rows]
    ) -> tuple[Derivatives, SecondDerivatives]:
        """First and second derivatives in (g, n, w) of s . force for a fixed vector s."""
        return second_derivatives(self, g, n, w, s, p)


class StepLaw(Protocol):
    """Contact law evaluated at the velocity w of a point at the end of a step, from the gap g at its start.

    The step length is p[IMPLICIT_STEP] [s].  The force's derivative in w must be symmetric and negative semidefinite: the force
    is the gradient of a concave function of w. A subclass needs only ``force`` and ``slower``.
    """

    def force(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Vec:
        """Force [N] on a point during the step, from its gap and normal n at the start and its velocity w at the end."""

    def force_and_slopes(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> tuple[Vec, Derivatives]:
        """Force and its first derivatives in (g, n, w)."""
        return self.force(g, n, w, p), first_derivatives(self, g, n, w, p)

    def slower(self, time: float, p: Parameters) -> tuple[StepLaw, Parameters]:
        """Law and parameters whose force in steps shorter by ``time`` [s] is that of this law with p at the same gap, normal and
        velocity.
        """

    def second_derivatives(
        self, g: Scalar, n: Vec, w: Vec, s: Vec, p: Mapping[str, Rows]
    ) -> tuple[Derivatives, SecondDerivatives]:
        """First and second derivatives in (g, n, w) of s . force for a fixed vector s."""
        return second_derivatives(self, g, n, w, s, p)


def require_law(law: Any, *, stepped: bool) -> None:
    """Raise TypeError unless ``law`` is a soft law, or with ``stepped`` a :class:`StepLaw`, whose force can be evaluated.

    The force is evaluated at two points with numbers that carry derivatives, without run-time parameters but the step.
    """
    name = law.__name__ if isinstance(law, type) else type(law).__name__
    if isinstance(law, type):
        raise TypeError(f"contact law {name} is a class; create the law, {name}()")
    if stepped != hasattr(law, "slower"):
        kinds = ("a soft law: use trajopt.SoftContact", "a StepLaw: use trajopt.SteppedContact")
        raise TypeError(f"contact law {name} is {kinds[hasattr(law, 'slower')]}")
    if getattr(law, "slower", None) and type(law).slower is StepLaw.slower:
        raise TypeError(f"contact law {name}, a StepLaw, does not define slower")
    y = Dual.seed(np.array([[1e-3, -1e-3], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0], *[[0.1, -0.1]] * 3]), np.eye(7))
    try:
        with np.errstate(all="ignore"):
            p = {IMPLICIT_STEP: np.full((1, 2), 0.01)} if stepped else {}
            force = law.force(y[0], Vec(y[1], y[2], y[3]), Vec(y[4], y[5], y[6]), p)
    except KeyError:  # a run-time parameter
        return
    except Exception as error:
        raise TypeError(
            f"the force of contact law {name} fails{user_code_line(error, None)}: {error}; write it with arithmetic and "
            "functions of trajopt, such as to.sqrt and to.select (instead of if)"
        ) from error
    if not isinstance(force, Vec):
        raise TypeError(
            f"the force of contact law {name} is a {type(force).__name__}; expected a vector, such as n * a + w * b"
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
