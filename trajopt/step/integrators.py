"""One time step of xdot = f(x, u, t, p), written once for every scalar.

Every scheme forms an increment delta in the tangent space at x, and x_next = x (+) delta.

    euler                 delta = h f(x)
    semi_implicit_euler   v+ = v + h a(x), q+ = q (+) h v+         delta = h (v + h a, a)
    rk4                   the tableau below, by Runge-Kutta-Munthe-Kaas on a Lie group:
                          delta_i = h sum_j a_ij kt_j
                          k_i     = f(x (+) delta_i, u, t + c_i h)
                          kt_i    = dexp^-1(delta_i) k_i
                          delta   = h sum_i b_i kt_i

Without dexp^-1 the increments of different stages would be added in different tangent spaces, and the order would
drop to 2. (H. Munthe-Kaas, High order Runge-Kutta methods on manifolds, Appl. Numer. Math. 29, 1999, Algorithm 2;
Hairer, Lubich, Wanner, Geometric Numerical Integration, IV.8.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Map
from dynamics_backends.scalar import Rows, Scalar

Field = Callable[[Rows, Scalar], Rows]
"""xdot = f(x, t), with control and parameters held."""


@dataclass(frozen=True)
class Tableau:
    """Coefficients of an explicit Runge-Kutta method: a (strictly lower triangular, by rows), b, c; its order."""

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    order: int


EULER = Tableau(a=((),), b=(1.0,), c=(0.0,), order=1)
RK4 = Tableau(  # W. Kutta 1901; Hairer, Norsett, Wanner, Solving ODEs I, II.1, Table 1.2
    a=((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    c=(0.0, 0.5, 0.5, 1.0),
    order=4,
)
RUNGE_KUTTA = {"euler": EULER, "rk4": RK4}
SEMI_IMPLICIT_EULER = "semi_implicit_euler"
SCHEMES = ("euler", SEMI_IMPLICIT_EULER, "rk4")


def weighted_sum(weights: tuple[float, ...], terms: list[Any]) -> Any:
    """sum_j weights[j] terms[j] over the non-zero weights; None if there is none."""
    total = None
    for w, term in zip(weights, terms, strict=False):
        if w:
            total = w * term if total is None else total + w * term
    return total


def runge_kutta_increment(f: Field, manifold: Manifold, tableau: Tableau, x: Rows, t: Scalar, h: Scalar) -> Rows:
    """The increment delta, rows (ndx, N), of an explicit Runge-Kutta(-Munthe-Kaas) step."""
    slopes: list[Rows] = []
    for row, c in zip(tableau.a, tableau.c, strict=True):
        combined = weighted_sum(row, slopes)
        if combined is None:
            slopes.append(f(x, t + c * h))
        else:
            delta = h * combined
            slopes.append(manifold.dexp_inv(delta, f(manifold.integrate(x, delta), t + c * h)))
    return h * weighted_sum(tableau.b, slopes)


def semi_implicit_increment(xdot: Rows, h: Scalar, stack: Callable[[list[Scalar]], Rows]) -> Rows:
    """The increment h (v + h a, a), rows (ndx, N), from xdot = (v, a)."""
    nv = xdot.shape[0] // 2
    return stack([h * (xdot[i] + h * xdot[nv + i]) for i in range(nv)] + [h * xdot[nv + i] for i in range(nv)])


def step_rows(
    system: Map, scheme: str, substeps: int, x: Rows, u: Rows, t: Scalar, dt: Scalar, p: Mapping[str, Rows]
) -> Rows:
    """x_next, rows (nx, N), after ``substeps`` equal steps over dt; generic in the scalar."""
    h = dt / substeps
    for i in range(substeps):
        x = system.manifold.integrate(x, increment_rows(system, scheme, x, u, t + i * h, h, p))
    return x


def increment_rows(system: Map, scheme: str, x: Rows, u: Rows, t: Scalar, h: Scalar, p: Mapping[str, Rows]) -> Rows:
    """The increment of one step of length h, rows (ndx, N)."""
    if scheme == SEMI_IMPLICIT_EULER:
        from dynamics_backends.scalar import stack

        return semi_implicit_increment(system(x, u, t, p), h, stack)

    def f(at: Rows, time: Scalar) -> Rows:
        return system(at, u, time, p)

    return runge_kutta_increment(f, system.manifold, RUNGE_KUTTA[scheme], x, t, h)
