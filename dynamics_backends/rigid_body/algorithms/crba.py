"""Joint-space inertia matrix by the composite-rigid-body algorithm, in the ground frame (Featherstone, RBDA 6.2).

In one common frame composite inertias are plain subtree sums, and M_kd = S_k' I_d^c S_d for k on the path from the root to d.
"""

from __future__ import annotations

from typing import Any

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.rigid_body.passes.ground import INERTIA, PLACE, at_base
from dynamics_backends.rigid_body.passes.passes import Program, dof, own_pair, pair, up_sum, whole
from dynamics_backends.scalar import Rows
from dynamics_backends.scalars.entries import takes_entries


@dof("IS")
def MOMENTUM(S, I_b):
    """Momentum of the subtree at unit rate of the DoF. I_b: inertia of the subtree of the DoF's body."""
    return I_b * S


@pair("M[k,d]", "M[d,k]")
def ENTRIES(S_k, IS_d):
    """Entries M_kd = M_dk = S_k' I S_d of the mass matrix for a DoF d and a DoF k of a joint that carries it.

    IS_d: inertia of the subtree of d times S_d.
    """
    entry = S_k.dot(IS_d)
    return entry, entry


@own_pair("M[k,d]")
def OWN_ENTRIES(S_k, IS_d):
    """Entry S_k' I S_d of the mass matrix for DoFs k and d of one joint. IS_d: inertia of the subtree times S_d."""
    return S_k.dot(IS_d)


@whole("M", template="add_to_diagonal")
def ADD_ROTORS(M, armature):
    """Add rotor inertias to the diagonal of the mass matrix."""
    for d, rotor in enumerate(armature):
        M[d][d] = M[d][d] + rotor
    return M


MASS_MATRIX = [MOMENTUM, ENTRIES, OWN_ENTRIES, ADD_ROTORS]
CRBA = Program("crba", [PLACE, INERTIA, up_sum("I"), *MASS_MATRIX], ["M"])


@takes_entries
def crba(model: Model, q: Rows, *, driver: Driver = run) -> Any:
    """Mass matrix M[i][j]: (nv, nv, N) from q (nq, N); nested lists for symbols."""
    return driver(CRBA, model, {"q": at_base(model, q)})["M"]
