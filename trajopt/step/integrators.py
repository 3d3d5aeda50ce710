"""Integrators: one time step of xdot = f(x, u, t, p), generic in the scalar type.

Every scheme forms an increment delta in the tangent space at x, and x_next = x (+) delta.

    euler                 delta = h f(x)
    semi_implicit_euler   v+ = v + h a(x), q+ = q (+) h v+         delta = h (v + h a, a)
    rk4                   the tableau below, by Runge-Kutta-Munthe-Kaas on a Lie group:
                          delta_i = h sum_j a_ij kt_j
                          k_i     = f(x (+) delta_i, u, t + c_i h)
                          kt_i    = dexp^-1(delta_i) k_i
                          delta   = h sum_i b_i kt_i

Without dexp^-1, increments of stages in different tangent spaces would be added, and the order would drop to 2.
(H. Munthe-Kaas, High order Runge-Kutta methods on manifolds, Appl. Numer. Math. 29, 1999, Algorithm 2;
Hairer, Lubich, Wanner, Geometric Numerical Integration, IV.8.)

Joint damping D is implicit in every scheme if the system is a :class:`~dynamics_backends.protocol.DampsImplicitly`. Explicit steps
would be unstable for rates of M^-1 D above 2 / h, and robots have rates of thousands per second. A second tableau ai defines the
velocity at which damping acts, as in semi-implicit Runge-Kutta methods (S. Boscarino, F. Filbet, G. Russo,
High order semi-implicit schemes for time dependent partial differential equations, J. Sci. Comput. 68, 2016):

    w_i = v + h sum_(j <= i) ai_ij a_j,    M a_i = F(x_i) - D w_i,    that is, with e_i = h sum_(j < i) (ai_ij - a_ij) a_j
    (M + h ai_ii D) a_i = F(x_i) - D (v_i + e_i)

Each stage remains one evaluation of forward dynamics, with rotor inertias larger by h ai_ii D.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import IMPLICIT_STEP, DampsImplicitly, Map, damping_offsets, unwrapped
from dynamics_backends.scalar import Rows, Scalar

Field = Callable[[Rows, Scalar, float, "Rows | None"], Rows]
"""Dynamics xdot = f(x, t, fraction, e) with fixed control and parameters. fraction h is the implicit step; the velocity rows of
e (ndx, N) are the offset of the damped velocity (None: zero)."""


@dataclass(frozen=True)
class Tableau:
    """Coefficients of an explicit Runge-Kutta method: a (strictly lower triangular, by rows), b, c, and its order.

    implicit: ai of the module docstring (lower triangular with its diagonal, by rows).
    """

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    order: int
    implicit: tuple[tuple[float, ...], ...]

    def lag(self, i: int) -> tuple[float, ...]:
        """Coefficients, for j < i, of slopes in the velocity offset e of stage i: implicit tableau minus explicit one."""
        return tuple(own - a for own, a in zip(self.implicit[i][:-1], self.a[i] or (0.0,) * i, strict=True))


EULER = Tableau(a=((),), b=(1.0,), c=(0.0,), order=1, implicit=((1.0,),))
IMPLICIT_RK4 = (
    (0.16,),
    (0.19087452471482896, 0.14),
    (0.1967940111107163, 0.23233146417445472, 0.08),
    (0.1916593739555339, 0.47032081574967655, 0.37102336468816555, 0.12699644560662415),
)
"""Tableau of damping for RK4. With ci = ai 1 and componentwise products, it satisfies

    order 3     b ci = 1/2,   b (ci c) = 1/3,   b ai ci = b ai c = b a ci = 1/6      (forces are linear in w: b ci^2 is free)
    L-stable    b ai^-1 1 = 1, and b a ai^-1 1 = 1: positions, too, follow the quasi-static velocity immediately

The first three entries of the diagonal are free parameters. The chosen values keep the error terms of order 4 small (norm 0.03) and
the stages near the quasi-static velocity. Undamped systems are integrated by RK4 itself, of order 4."""
RK4 = Tableau(  # W. Kutta 1901; Hairer, Norsett, Wanner, Solving ODEs I, II.1, Table 1.2
    a=((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    c=(0.0, 0.5, 0.5, 1.0),
    order=4,
    implicit=IMPLICIT_RK4,
)
RUNGE_KUTTA = {"euler": EULER, "rk4": RK4}
SEMI_IMPLICIT_EULER = "semi_implicit_euler"
SCHEMES = ("euler", SEMI_IMPLICIT_EULER, "rk4")


def weighted_sum(weights: tuple[float, ...], terms: list[Any]) -> Any:
    """Sum of weights[j] terms[j] over the nonzero weights; None if all weights are zero."""
    total = None
    for w, term in zip(weights, terms, strict=False):
        if w:
            total = w * term if total is None else total + w * term
    return total


def runge_kutta_increment(f: Field, manifold: Manifold, tableau: Tableau, x: Rows, t: Scalar, h: Scalar) -> Rows:
    """Increment delta, rows (ndx, N), of a Runge-Kutta step; on a Lie group of a Runge-Kutta-Munthe-Kaas step."""
    slopes: list[Rows] = []
    for i, (row, c) in enumerate(zip(tableau.a, tableau.c, strict=True)):
        combined, lag, fraction = (
            weighted_sum(row, slopes),
            weighted_sum(tableau.lag(i), slopes),
            tableau.implicit[i][i],
        )
        e = None if lag is None else h * lag
        if combined is None:
            slopes.append(f(x, t + c * h, fraction, e))
        else:
            delta = h * combined
            slopes.append(manifold.dexp_inv(delta, f(manifold.integrate(x, delta), t + c * h, fraction, e)))
    return h * weighted_sum(tableau.b, slopes)


def semi_implicit_increment(xdot: Rows, h: Scalar) -> Rows:
    """Increment h (v + h a, a), rows (ndx, N), from xdot = (v, a)."""
    nv = xdot.shape[0] // 2
    return sm.stack([h * (xdot[i] + h * xdot[nv + i]) for i in range(nv)] + [h * xdot[nv + i] for i in range(nv)])


def stage_map(system: Map, scheme: str) -> Map:
    """System as the stages of a scheme evaluate it: with implicit damping if it has joint damping, else the system itself.

    A system whose damping is implicit already is returned unchanged. Schemes with several stages add controls for the velocity
    offset e at which the damping acts.
    """
    own = unwrapped(system)
    if damping_offsets(own) is not None or not isinstance(own, DampsImplicitly) or not own.damps:
        return system
    return own.implicit(offset=scheme in RUNGE_KUTTA and len(RUNGE_KUTTA[scheme].b) > 1)


def step_rows(
    system: Map, scheme: str, substeps: int, x: Rows, u: Rows, t: Scalar, dt: Scalar, p: Mapping[str, Rows]
) -> Rows:
    """State x_next, rows (nx, N), after ``substeps`` equal steps over dt [s]; x, u, p: rows of numbers, symbols or duals."""
    h, system = dt / substeps, stage_map(system, scheme)
    for i in range(substeps):
        x = system.manifold.integrate(x, _increment_rows(system, scheme, x, u, t + i * h, h, p))
    return x


def _increment_rows(stage: Map, scheme: str, x: Rows, u: Rows, t: Scalar, h: Scalar, p: Mapping[str, Rows]) -> Rows:
    """Increment of one step of length h, rows (ndx, N). stage: system as the stages evaluate it, see :func:`stage_map`."""
    offsets = damping_offsets(stage)

    def f(at: Rows, time: Scalar, fraction: float, e: Rows | None) -> Rows:
        """Evaluate the stage map; if it has implicit damping, with the offset e behind the controls and the implicit step."""
        if offsets is None:
            return stage(at, u, time, p)
        return stage(at, _with_offset(u, e, offsets, 0.0 * at[0]), time, {**p, IMPLICIT_STEP: [fraction * h]})

    if scheme == SEMI_IMPLICIT_EULER:
        return semi_implicit_increment(f(x, t, 1.0, None), h)
    return runge_kutta_increment(f, stage.manifold, RUNGE_KUTTA[scheme], x, t, h)


def _with_offset(u: Rows, e: Rows | None, offsets: int, zero: Scalar) -> Rows:
    """Append the ``offsets`` velocity rows of e (ndx, N), which follow as many position rows, to the controls; zeros for None."""
    if not offsets:
        return u
    behind = [zero] * offsets if e is None else [e[offsets + i] for i in range(offsets)]
    return sm.stack([*(u[i] + zero for i in range(u.shape[0])), *behind])
