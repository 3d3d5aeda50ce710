"""Forward dynamics in two parts, between which the caller computes contact forces and joint accelerations.

    CONTACT_START   (q, v) -> poses, motions, composites, bias force, mass matrix and its factor
    CONTACT_FINISH  and (a, f_ground) -> d ID/dq, d ID/dv at a, with external forces fixed to their bodies
    CONTACT_SECOND  and mu            -> the second derivatives of mu' ID as well
    CONSTRAINED_FINISH, CONSTRAINED_SECOND: the same without external forces
    RATES_AT        (a) -> accelerations and psiddot only
    CONTACT_MOTION  (q, v) -> poses and motions only

The caller computes the contact forces and a from fields of the first part.  ``f_ground`` are the external forces about the
working origin in world axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from dynamics_backends.scalar import Rows


@body("acc", "f_joint")
def FORCE_SHARE(I_own, acc, acc_joint, f_ground):
    """Accelerations with the joints' contribution, and the contribution of joints and external forces to the forces."""
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
    """Run CONTACT_START on rows q (nq, N), v (nv, N); returns its fields."""
    return driver(CONTACT_START, model, {"q": at_base(model, q), "v": v})


def finished(
    program: Program, model: Model, fields: Mapping[str, Any], driver: Driver = run, **arguments: Any
) -> dict[str, Any]:
    """Fields of a program that continues CONTACT_START, together with the fields of the latter."""
    carried = {k: x for k, x in fields.items() if k not in TABLES and k != "factor"}
    return {**carried, **driver(program, model, {**carried, **arguments})}
