"""Identities that the second-order recursions use, checked with dense 6 x 6 matrices.

Algebra: operators on matrices of motions and forces give tensors whose pages belong to columns (Singh, Russell, Wensing, arXiv
2302.06001, sec. III and table II; derived here, the formulas of the paper's table are in no text).  Kinematics: derivatives of
ground-frame quantities along the DoFs of a joint j at or above joint i (the paper's appendix B, derived in the same way: a
perturbation turns the subtree of j rigidly, and what remains is what an observer sees who rides along).
"""

import dense_dynamics as dense
import numpy as np
import pytest
from rigid_body_cases import error, state, tree

from dynamics_backends.rigid_body.model.state import configuration_manifold
from dynamics_backends.rigid_body.passes.drivers import rows
from dynamics_backends.rigid_body.spatial.spatial import leaves
from experiments.baselines.rnea_tensors import IDSVA_SO

STEP = 1e-30

# -- algebra ------------------------------------------------------------------------------------------------------------


def pages(operator, columns):
    """The tensor (6, 6, n) of an operator applied to every column."""
    return np.stack([operator(c) for c in columns.T], axis=2)


def swapped(f):
    """f xbar*: the matrix that takes a motion m to m x* f."""
    return np.stack([dense.force_cross(e) @ f for e in np.eye(6)], axis=1)


def X(V):
    return pages(dense.motion_cross, V)


def XF(V):
    return pages(dense.force_cross, V)


def XB(F):
    return pages(swapped, F)


def coriolis(inertia, V):
    """2 B(I, V)."""
    return pages(lambda v: dense.force_cross(v) @ inertia - inertia @ dense.motion_cross(v) + swapped(inertia @ v), V)


def product(*factors):
    """Products page by page, where one factor is a tensor and the others are matrices."""
    depth = max(f.shape[2] if f.ndim == 3 else 1 for f in factors)
    per_page = [[f[:, :, k] if f.ndim == 3 else f for f in factors] for k in range(depth)]
    return np.stack([np.linalg.multi_dot(page) if len(page) > 1 else page[0] for page in per_page], axis=2)


def T12(Y):
    return np.swapaxes(Y, 0, 1)


def T23(Y):
    return np.swapaxes(Y, 1, 2)


_rng = np.random.default_rng(0)
U, V, W, F = _rng.standard_normal((4, 6, 6))
U, V, W, F = U[:, :2], V[:, :3], W[:, :4], F[:, :3]
u, w = U[:, 0], W[:, 0]
I = dense.spatial_inertia(1.3, _rng.standard_normal(3), np.diag(_rng.uniform(1.0, 2.0, 3)))
Iu = dense.force_cross(u) @ I - I @ dense.motion_cross(u)  # how I changes as it moves with u
ux, uxf = dense.motion_cross(u), dense.force_cross(u)
Bw = coriolis(I, W)

ALGEBRA = {
    "force operator is minus the transpose": (XF(U), -T12(X(U))),
    "swapped operator is antisymmetric": (XB(F), -T12(XB(F))),
    "swapping the operands of motions": (product(X(U), V), -T23(product(X(V), U))),
    "swapping a motion and a force": (product(XF(U), F), T23(product(XB(F), U))),
    "transpose of a product": (-product(V.T, XF(U)), T12(product(X(U), V))),
    "power is invariant": (product(V.T, XF(U), F), -product(T12(product(X(U), V)), F)),
    "three motions and a force": (product(V.T, XB(F), W), -T12(product(W.T, XB(F), V))),
    "Jacobi, motions": (X(ux @ V), product(ux, X(V)) - product(X(V), ux)),
    "Jacobi, forces": (XF(ux @ V), product(uxf, XF(V)) - product(XF(V), uxf)),
    "a turned force, swapped": (XB(uxf @ F), product(uxf, XB(F)) - product(XB(F), ux)),
    "turning a product of motions": (product(X(ux @ U), V) + product(X(U), ux @ V), product(ux, X(U), V)),
    "turning a product of a motion and a force": (
        product(XF(ux @ U), F) + product(XF(U), uxf @ F),
        product(uxf, XF(U), F),
    ),
    "swapped operator on a momentum": (product(XB(I @ V), U), T23(product(XF(U), I @ V))),
    "Coriolis matrix: symmetric part": (Bw + T12(Bw), 2.0 * (product(XF(W), I) - product(I, X(W)))),
    "Coriolis matrix: antisymmetric part": (Bw - T12(Bw), 2.0 * XB(I @ W)),
    "Coriolis matrix: right half": (Bw[:, 3:], 0.0 * Bw[:, 3:]),
    "Coriolis matrix: linear in the motion": (
        coriolis(I, 2.0 * U + V[:, :2]),
        2.0 * coriolis(I, U) + coriolis(I, V[:, :2]),
    ),
    "Coriolis matrix: linear in the inertia": (coriolis(I + Iu, W), Bw + coriolis(Iu, W)),
    "Coriolis matrix: the two motions swapped": (
        product(coriolis(I, U), V) - T23(product(coriolis(I, V), U)),
        -2.0 * product(I, X(U), V),
    ),
    "Coriolis matrix: on its own motion": (coriolis(I, w[:, None])[:, :, 0] @ w, 2.0 * dense.force_cross(w) @ I @ w),
    "Coriolis matrix: no power on its own motion": (w @ coriolis(I, w[:, None])[:, :, 0] @ w, 0.0),
    "Coriolis matrix: moved with a body": (
        product(uxf, Bw) - product(Bw, ux),
        coriolis(Iu, W) + coriolis(I, ux @ W),
    ),
}


@pytest.mark.parametrize("name", ALGEBRA)
def test_algebra(name):
    left, right = (np.asarray(side) for side in ALGEBRA[name])
    assert left.shape == right.shape
    np.testing.assert_allclose(left, right, atol=1e-12)


# -- kinematics ---------------------------------------------------------------------------------------------------------

FIELDS = ("S", "vel", "acc", "psid", "psidd", "rate", "I", "B", "f")


def evaluate(model, q, v, a):
    """Ground-frame quantities: of DoFs (6, nv), of bodies (6, nb) or (6, 6, nb); Sdot is the rate without psidot."""
    fields = rows(IDSVA_SO, model, {"q": q, "v": v, "a": a})
    found = {name: np.array([x[:, 0] + 0.0 * q[0] for x in leaves(fields[name])]) for name in FIELDS}
    found["Sdot"] = found.pop("rate") - found["psid"]
    for name, matrix in (("I", inertia_matrix), ("B", coriolis_matrix)):
        found[name] = np.stack([matrix(column) for column in found[name].T], axis=-1)
    return found


def inertia_matrix(x):
    m, h, (xx, xy, xz, yy, yz, zz) = x[0], dense.skew(x[1:4]), x[4:]
    return np.block([[np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), h], [-h, m * np.eye(3)]])


def coriolis_matrix(x):
    return np.block([[x[3:].reshape(3, 3).T, np.zeros((3, 3))], [-dense.skew(x[:3]), np.zeros((3, 3))]])


class Case:
    """A tree, its quantities, and their derivatives along one DoF j."""

    def __init__(self, name):
        self.model = tree(name, 5)
        self.point = [x.T for x in state(self.model, 0, 1)]
        self.at = evaluate(self.model, *self.point)

    def slope(self, j, in_q):
        q, v, a = (x + 0j for x in self.point)
        step = np.zeros((self.model.nv, 1), complex)
        step[j] = 1j * STEP
        if in_q:
            q = configuration_manifold(self.model).integrate(q, step)
        moved = evaluate(self.model, q, v + (0.0 if in_q else step), a)
        return {name: x.imag / STEP for name, x in moved.items()}

    def columns(self, *names):
        return [self.at[name] for name in names]


def in_q_of_dofs(c, j, i, body, parent):
    """S, psidot, psiddot, Sdot of a DoF i of the subtree of j."""
    S, psid, psidd, Sdot = c.columns("S", "psid", "psidd", "Sdot")
    turn, rate, bend = (dense.motion_cross(x[:, j]) for x in (S, psid, psidd))
    return {
        "S": turn @ S[:, i],
        "psid": turn @ psid[:, i] + rate @ S[:, i],
        "psidd": turn @ psidd[:, i] + bend @ S[:, i] + 2.0 * rate @ psid[:, i],
        "Sdot": turn @ Sdot[:, i] + rate @ S[:, i],
    }


def in_q_of_bodies(c, j, b, deep):
    """v, a of a body b of the subtree of j; I, B, f of the subtree of b, which holds that of j or is held by it."""
    S, psid, psidd, vel, acc, inertia, B, f = c.columns("S", "psid", "psidd", "vel", "acc", "I", "B", "f")
    s, force = dense.motion_cross(S[:, j]), dense.force_cross(S[:, j])
    found = {
        "I": force @ inertia[..., deep] - inertia[..., deep] @ s,
        "B": force @ B[..., deep] - B[..., deep] @ s + coriolis(inertia[..., deep], psid[:, [j]])[..., 0],
        "f": force @ f[:, deep] + B[..., deep] @ psid[:, j] + inertia[..., deep] @ psidd[:, j],
    }
    if deep == b:
        found["vel"] = s @ vel[:, b] + psid[:, j]
        found["acc"] = s @ acc[:, b] + psidd[:, j] - dense.motion_cross(vel[:, b]) @ psid[:, j]
    return found


def in_v_of_dofs(c, j, i, body, parent):
    """psidot and psiddot feel j only above the own joint, Sdot also at it."""
    S, psid, Sdot, vel = c.columns("S", "psid", "Sdot", "vel")
    turned = dense.motion_cross(S[:, j]) @ S[:, i]
    if c.model.dof_body[j] == body:
        return {"S": 0.0 * turned, "psid": 0.0 * turned, "psidd": 0.0 * turned, "Sdot": turned}
    v_p = dense.motion_cross(vel[:, parent])
    acceleration = psid[:, j] + Sdot[:, j] - v_p @ S[:, j]
    bend = dense.motion_cross(acceleration) @ S[:, i] + dense.motion_cross(S[:, j]) @ psid[:, i] + v_p @ turned
    return {"S": 0.0 * turned, "psid": turned, "psidd": bend, "Sdot": turned}


def in_v_of_bodies(c, j, b, deep):
    S, psid, Sdot, vel, inertia, B = c.columns("S", "psid", "Sdot", "vel", "I", "B")
    found = {
        "I": 0.0 * inertia[..., deep],
        "B": coriolis(inertia[..., deep], S[:, [j]])[..., 0],
        "f": B[..., deep] @ S[:, j] + inertia[..., deep] @ (psid[:, j] + Sdot[:, j]),
    }
    if deep == b:
        found["vel"] = S[:, j]
        found["acc"] = psid[:, j] + Sdot[:, j] - dense.motion_cross(vel[:, b]) @ S[:, j]
    return found


@pytest.mark.parametrize("in_q", [True, False], ids=["in q", "in v"])
@pytest.mark.parametrize("name", ["fixed0", "floating1", "floating0"])
def test_kinematics(name, in_q):
    """Nine quantities: of every DoF and body below j, of composites also above it, and zero on other branches."""
    c = Case(name)
    model = c.model
    of_dofs, of_bodies = (in_q_of_dofs, in_q_of_bodies) if in_q else (in_v_of_dofs, in_v_of_bodies)
    above = [set(model.ancestors(b)) for b in range(model.nb)]
    scale = {k: np.abs(x).max() for k, x in c.at.items()}
    for j in range(model.nv):
        slope, own = c.slope(j, in_q), int(model.dof_body[j])
        for i, b in enumerate(map(int, model.dof_body)):
            expected = of_dofs(c, j, i, b, int(model.parent[b])) if j in above[b] else {}
            for field in ("S", "psid", "psidd", "Sdot"):
                assert error(slope[field][:, i], expected.get(field, np.zeros(6)), scale[field]) < 1e-12, field
        for b in range(model.nb):
            related = j in above[b] or set(model.dofs(b)) <= above[own]
            expected = of_bodies(c, j, b, b if j in above[b] else own) if related else {}
            for field in ("vel", "acc", "I", "B", "f"):
                actual = slope[field][..., b]
                assert error(actual, expected.get(field, np.zeros(actual.shape)), scale[field]) < 1e-12, field
