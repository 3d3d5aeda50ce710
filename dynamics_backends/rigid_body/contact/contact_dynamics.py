"""Dynamics with contact and constraint forces: forward dynamics in two parts, and the equations of constrained motion.

    CONTACT_START   (q, v) -> poses, motions, composites, bias force, mass matrix and its factor
    CONTACT_FINISH  and (a, f_ground) -> d ID/dq, d ID/dv at a, with external forces fixed to their bodies
    CONTACT_SECOND  and mu            -> the second derivatives of mu' ID as well
    CONSTRAINED_FINISH, CONSTRAINED_SECOND: the same without external forces, and with the fields of RATES_AT
    RATES_AT        (a) -> accelerations, psiddot, and psidot + Sdot only
    CONTACT_MOTION  (q, v) -> poses and motions only

Between the parts the caller computes the contact forces and a from fields of the first part. ``f_ground`` are the external forces
about the working origin in world axes.

The equations of constrained motion are solved with one factorization for values and derivatives,

    [ M   J' ] (  x )   ( top    )
    [ J  -R  ] ( -f ) = ( bottom )          R = diag(damping) >= 0

With M = L' D L along the branches and Z = L'^-1 J', whose columns have the sparsity of the constrained branches,

    S f = bottom - Z' D^-1 L'^-1 top,     S = Z' D^-1 Z + R,     x = L^-1 D^-1 (L'^-1 top + Z f)

(the Delassus matrix S is small and dense).  For redundant constraints S would be singular without R.  A small R > 0 then selects
nearly the forces f of least R-norm, and hardly affects x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.crba import MASS_MATRIX
from dynamics_backends.rigid_body.algorithms.forward_dynamics import BIAS, FACTORIZE
from dynamics_backends.rigid_body.derivatives.fd_derivatives import (
    ACCELERATION_SHARE,
    FORCE_SHARE as FREE_SHARE,
    TOTAL_FORCE,
)
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import ENTRIES, KINEMATICS
from dynamics_backends.rigid_body.derivatives.rnea_second_order import BLOCK_NAMES, CONTRACTION
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import BIAS_ACCELERATION, FORCE, INERTIA, RATES, at_base
from dynamics_backends.rigid_body.passes.passes import TABLES, Program, body, up_sum
from dynamics_backends.scalar import Rows, Scalar


@dataclass(frozen=True)
class ConstrainedFactor:
    """Factor of the equations of constrained motion. mass, delassus: factors of M and S.

    Z, W: the columns of Z and of D^-1 Z, one for each row of J, as {DoF: entry}.
    """

    mass: ltl.Factor
    Z: list[dict[int, Scalar]]
    W: list[dict[int, Scalar]]
    delassus: ltl.Factor


def factor(mass: ltl.Factor, J: Sequence[Mapping[int, Scalar]], damping: Sequence[Scalar]) -> ConstrainedFactor:
    """Factorize [[M, J'], [J, -R]] from the factor of M, the rows of J by DoF, and the damping R on the diagonal."""
    Z = [_upward(mass, row) for row in J]
    W = [{k: z * mass.D_inverse[k] for k, z in column.items()} for column in Z]
    S = [[_product(Z[r], W[s]) for s in range(r + 1)] for r in range(len(J))]
    for r, extra in enumerate(damping):
        S[r][r] = S[r][r] + extra
    return ConstrainedFactor(mass, Z, W, ltl.factor(S, range(-1, len(J) - 1)))


def solve(f: ConstrainedFactor, top: Sequence[Any], bottom: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the accelerations x and the constraint forces that solve the system factorized in f, for the sides top and bottom.

    All are lists by row; their entries may be arrays, for many right-hand sides.
    """
    t = ltl.solve_upward(f.mass, top)
    rhs = [sum((-(t[k] * w) for k, w in W.items()), b) for W, b in zip(f.W, bottom, strict=True)]
    forces = ltl.solve(f.delassus, rhs)
    x = [t[k] * f.mass.D_inverse[k] for k in range(len(t))]
    for W, force in zip(f.W, forces, strict=True):
        for k, w in W.items():
            x[k] = x[k] + force * w
    return ltl.solve_downward(f.mass, x), forces


def _upward(mass: ltl.Factor, row: Mapping[int, Scalar]) -> dict[int, Scalar]:
    """Product of L'^-1 and a sparse column given by DoF."""
    x = dict(row)
    for k in range(len(mass.ancestors) - 1, -1, -1):
        if k in x:
            for i in mass.ancestors[k]:
                change = x[k] * mass.L[k][i]
                x[i] = x[i] - change if i in x else -change
    return dict(sorted(x.items()))


def _product(a: Mapping[int, Scalar], b: Mapping[int, Scalar]) -> Scalar:
    """Dot product of sparse vectors; 0.0 if they have no common entry."""
    terms = [x * b[k] for k, x in a.items() if k in b]
    return sum(terms[1:], terms[0]) if terms else 0.0


@body("acc", "f_joint")
def FORCE_SHARE(I_own, acc, acc_joint, f_ground):
    """Accelerations including the joint accelerations, and the force on each body due to these, minus the external force."""
    return acc + acc_joint, I_own * acc_joint - f_ground


_FINISH = [ACCELERATION_SHARE, FORCE_SHARE, up_sum("f_joint"), TOTAL_FORCE, *ENTRIES]
CONTACT_FINISH = Program("contact_finish", _FINISH, ["dtau_dq", "dtau_dv"])
CONTACT_SECOND = Program(
    "contact_second", [*_FINISH, *CONTRACTION], [*CONTACT_FINISH.outputs, "w", "chi", *BLOCK_NAMES]
)

RATES_AT = Program("rates_at", [ACCELERATION_SHARE, FREE_SHARE, RATES], ["acc", "psidd", "rate"])
_AT_ACCELERATION = [ACCELERATION_SHARE, FREE_SHARE, up_sum("f_joint"), TOTAL_FORCE, *ENTRIES]
CONSTRAINED_FINISH = Program("constrained_finish", _AT_ACCELERATION, [*CONTACT_FINISH.outputs, *RATES_AT.outputs])
CONSTRAINED_SECOND = Program(
    "constrained_second", [*_AT_ACCELERATION, *CONTRACTION], [*CONTACT_SECOND.outputs, *RATES_AT.outputs]
)

CONTACT_MOTION = Program("contact_motion", KINEMATICS, ["X", "S", "vel", "psid"])
_START = [*KINEMATICS, BIAS_ACCELERATION, INERTIA, FORCE, up_sum("I", "B", "f"), *MASS_MATRIX, BIAS, FACTORIZE]
_FROM_CALLER = ("a", "f_ground", "mu")
"""Arguments of the second parts that the caller computes; the others are fields of the first part."""
_CARRIED = [n for p in (CONTACT_SECOND, CONSTRAINED_SECOND) for n in p.arguments if n not in _FROM_CALLER]
_USED = [*CONTACT_MOTION.outputs, "acc", "M", "tau_bias", "factor", *_CARRIED]
CONTACT_START = Program("contact_start", _START, list(dict.fromkeys(_USED)))


def started(model: Model, q: Rows, v: Rows, driver: Driver = run) -> dict[str, Any]:
    """Run CONTACT_START on rows q (nq, N), v (nv, N); return its fields by name.

    They are poses, motions, composite inertias, bias force, mass matrix and its factor, at zero joint accelerations and about the
    position of a floating base (:func:`~.ground.at_base`).
    """
    return driver(CONTACT_START, model, {"q": at_base(model, q), "v": v})


def finished(
    program: Program, model: Model, fields: Mapping[str, Any], driver: Driver = run, **arguments: Any
) -> dict[str, Any]:
    """Run a program that continues CONTACT_START on the latter's ``fields`` and further arguments.

    arguments: accelerations a, external forces f_ground, multipliers mu, as the program needs. Returns the fields of
    CONTACT_START, without the factor of the mass matrix and the constants of the model, updated by those of the program.
    """
    carried = {k: x for k, x in fields.items() if k not in TABLES and k != "factor"}
    given = {**carried, **arguments}
    return {**carried, **driver(program, model, {name: given[name] for name in program.arguments})}
