"""Second derivatives of composed maps: closed form against forward differentiation of the composed values."""

import casadi as ca
import numpy as np
import pytest
from contact_cases import FEET, arguments, hyq, relative

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import composed
from dynamics_backends.manifold import Manifold
from dynamics_backends.methods.exact_methods import contracted_hessian
from dynamics_backends.protocol import Batch, Contraction, HasContraction, Partials
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.constraint_kinds import FrameContact, FrameLoop, PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from problems.legged.contact.friction_cone import friction_constraint, friction_cost
from problems.legged.contact.wrench_cone import Sole, wrench_constraint


class Product:
    """y = (x_0 x_1, sin u_0 + x_1^2), with its derivatives."""

    manifold, nu, control_names, output_names, n_out = Manifold.vector(2), 1, ("push",), ("a", "b"), 2

    def __call__(self, x, u, t, p):
        return sm.stack([x[0] * x[1], sm.sin(u[0]) + x[1] * x[1]])

    def partials(self, x, u, t, p):
        zero = 0.0 * x[0]
        fx = [sm.stack([x[1], x[0]]), sm.stack([zero, 2.0 * x[1]])]
        return Partials(self(x, u, t, p), fx, [sm.stack([zero]), sm.stack([sm.cos(u[0])])])

    def contracted(self, x, u, t, p, lam):
        zero = 0.0 * x[0]
        xx = [sm.stack([zero, lam[0]]), sm.stack([lam[0], 2.0 * lam[1]])]
        second = Contraction(xx, [sm.stack([zero, zero])], [sm.stack([-lam[1] * sm.sin(u[0])])])
        return self.partials(x, u, t, p), second


def _standing():
    return Holonomic(hyq(), [PointContact(foot) for foot in FEET])


def _on_a_sole():
    system = Holonomic(hyq(), [FrameContact("lf_foot"), PointContact("rh_foot")])
    return wrench_constraint(system, [Sole("lf_foot", 0.1, 0.05, 0.04, 0.03)], 0.5)


def _nonlinear(y, p):
    return [y[0] * y[1], sm.exp(y[0]) + p["a"][0], 3.0 * y[1]]


CASES = {
    "facets, linear in the forces": lambda: friction_constraint(_standing(), FEET, 0.4),
    "smooth cone": lambda: friction_cost(_standing(), FEET, 0.4, 1.0),
    "softened, composed twice": lambda: to.softened(friction_constraint(_standing(), FEET, 0.4), 1.0, 0.3),
    "soles": _on_a_sole,
    "a map with both orders": lambda: to.CostTerm(
        "both", composed(Product(), _nonlinear, names=("c", "d", "e")), np.ones(3), {"a": np.array([0.3])}
    ),
}


def _given(case):
    part = CASES[case]()
    if part.name == "both":
        x, u = np.random.default_rng(2).standard_normal((2, 5, 2))
        u = u[:, :1]
    else:
        x, u, _ = arguments(part.residual.inner, FEET)
    lam = np.random.default_rng(3).standard_normal((len(x), part.residual.n_out))
    p = {key: np.broadcast_to(v, (len(x), v.shape[-1])) for key, v in part.parameters.items()}
    return part.residual, x, u, p, lam


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives_are_those_of_the_values(case):
    map, x, u, p, lam = _given(case)
    assert isinstance(map, HasContraction)
    expected = contracted_hessian(map, Batch.of(map, x, u, 0.0, p), lam)
    first, (xx, ux, uu) = make_backend(map, "analytic", engine="numpy").hessian_contraction(x, u, 0.0, p, lam)
    n = map.manifold.ndx
    assert np.abs(expected).max() > 1e-3
    for found, block in ((xx, expected[:, :n, :n]), (ux, expected[:, n:, :n]), (uu, expected[:, n:, n:])):
        assert relative(found, block) < 1e-11 or np.abs(found - block).max() < 1e-13
    for a, b in zip(first, make_backend(map, "forward_ad", engine="numpy").jacobians(x, u, 0.0, p), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-11 * max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("case", ["facets, linear in the forces", "softened, composed twice", "a map with both orders"])
def test_they_are_the_same_on_symbols(case):
    map, x, u, p, lam = _given(case)
    sx, su, sl = (ca.SX.sym(name, size) for name, size in (("x", x.shape[1]), ("u", u.shape[1]), ("lam", map.n_out)))
    sp = {key: ca.SX.sym(key, v.shape[1]) for key, v in p.items()}
    _, second = map.contracted(sx, su, ca.SX(0.0), sp, sl)
    rows = [ca.vertcat(*[ca.densify(ca.SX(row)).T for row in block]) for block in second]
    at = ca.Function("second", [sx, su, sl, *sp.values()], rows)
    expected = make_backend(map, "analytic", engine="numpy").hessian_contraction(x, u, 0.0, p, lam)[1]
    for i in range(len(x)):
        for found, block in zip(at(x[i], u[i], lam[i], *(v[i] for v in p.values())), expected, strict=True):
            np.testing.assert_allclose(np.array(found), block[i], atol=1e-10 * max(1.0, np.abs(block[i]).max()))


def test_shifted_wrenches_have_no_closed_form():
    """Loops report their wrench at a frame; its second derivatives are found by differentiation."""
    forces = ConstraintForces(Holonomic(hyq(), [FrameLoop("lf_foot", "rf_foot")]))
    map = composed(forces, lambda y, p: [y[0] * y[1]], names=("product",))
    assert not forces.has_second_derivatives and not isinstance(map, HasContraction)
    x, u, _ = arguments(forces, FEET)
    _, second = make_backend(map, "forward_ad", engine="numpy").hessian_contraction(x, u, 0.0, {}, np.ones((len(x), 1)))
    assert np.isfinite(second.xx).all() and np.abs(second.uu).max() > 0.0
