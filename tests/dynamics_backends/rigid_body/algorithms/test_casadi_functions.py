"""CasADi functions of the dynamics: Jacobians in a user's graph equal the closed forms, also with respect to quaternions in q."""

import casadi as ca
import numpy as np
import pytest
from rigid_body_cases import error, state, tree

from dynamics_backends.manifold import SO3
from dynamics_backends.rigid_body import batched
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.casadi_functions import casadi_forward_dynamics, casadi_inverse_dynamics
from dynamics_backends.rigid_body.model.coupling import Coupling
from dynamics_backends.rigid_body.model.sample_models import chain, random_tree
from dynamics_backends.trace import trace_expressions
from problems.robots import load_robot

KINDS = {  # the function, its algorithm, both in closed form
    "FD": (casadi_forward_dynamics, aba, batched.forward_dynamics_derivatives),
    "ID": (casadi_inverse_dynamics, rnea, batched.inverse_dynamics_derivatives),
}
TREES = ("fixed14", "fixed31", "floating26")  # of four bodies, all joint types between them
H = 1e-30
each_kind = pytest.mark.parametrize("kind", KINDS)
each_tree = pytest.mark.parametrize("name", TREES)


def point(model, seed: int = 0) -> list[np.ndarray]:
    return [x[0] for x in state(model, seed, 1)]


def users_graph(f, model):
    """An expression that calls f twice on computed arguments: MX inputs and the value."""
    q, v, w = (ca.MX.sym(n, size) for n, size in (("q", model.nq), ("v", model.nv), ("w", model.nv)))
    once = f(q, 2.0 * v, ca.sin(w))
    return [q, v, w], v * f(q, v, once) + once


def calls(expression) -> list[str]:
    """Names of the functions that an MX expression calls."""
    f = ca.Function("f", ca.symvar(expression), [expression])
    nodes = (k for k in range(f.n_instructions()) if f.instruction_id(k) == ca.OP_CALL)
    return [f.instruction_MX(k).which_function().name() for k in nodes]


@each_kind
def test_jacobians_are_the_closed_form_ones(kind):
    """For a robot with a vector-space q."""
    make, algorithm, derivatives = KINDS[kind]
    model = load_robot("iiwa7")
    given = point(model)
    f = make(model)
    symbols = [ca.MX.sym(n, model.nv) for n in ("q", "v", "w")]
    blocks = ca.Function("J", symbols, [ca.jacobian(f(*symbols), s) for s in symbols])(*given)
    for block, expected in zip(blocks, derivatives(model, *given), strict=True):
        assert error(block.full(), expected) < 1e-12
    assert error(f(*given).full()[:, 0], algorithm(model, *(x[:, None] for x in given))[:, 0]) < 1e-12


@each_kind
@each_tree
def test_differentiation_through_a_users_expression(name, kind):
    """AD of the graph around the calls, closed form inside, against complex step along the numbers of q, v and w."""
    make, algorithm, _ = KINDS[kind]
    model = tree(name, 4)
    given = point(model)
    symbols, y = users_graph(make(model), model)
    z = ca.vertcat(*symbols)
    J = ca.Function("J", symbols, [ca.jacobian(y, s) for s in symbols])
    actual = np.concatenate([block.full() for block in J(*given)], axis=1)

    def value(numbers):
        q, v, w = np.split(numbers[:, None], np.cumsum([model.nq, model.nv]))
        q = normalized(model, q)
        once = algorithm(model, q, 2.0 * v, np.sin(w))
        return (v * algorithm(model, q, v, once) + once)[:, 0]

    at = np.concatenate(given)
    steps = [value(at + 1j * H * unit) for unit in np.eye(z.numel())]
    assert error(actual, np.stack([s.imag / H for s in steps], axis=1)) < 1e-11


def normalized(model, q: np.ndarray) -> np.ndarray:
    """Rows of q with quaternions of unit length, for complex numbers too."""
    q = q.copy()
    for b, joint_type in enumerate(model.joint_types):
        first = int(model.q_index[b]) + {"spherical": 0, "floating": 3}.get(joint_type, model.nq)
        part = q[first : first + 4]
        part /= np.sqrt((part * part).sum(axis=0))
    return q


@each_kind
def test_every_way_to_differentiate_calls_the_closed_form(kind):
    """Jacobian, directional derivatives both ways: one call of the function, one of its Jacobian, none of its AD."""
    model = chain(3)
    f = KINDS[kind][0](model, "dynamics")
    symbols = [ca.MX.sym(n, model.nv) for n in ("q", "v", "w")]
    y, direction = f(*symbols), ca.DM([1.0, -2.0, 0.5])
    q = symbols[0]
    for derivative in (ca.jacobian(y, q), ca.jtimes(y, q, direction), ca.jtimes(y, q, direction, True)):
        assert set(calls(derivative)) <= {"dynamics", "jac_dynamics"} and calls(derivative).count("jac_dynamics") == 1


@each_kind
def test_the_jacobian_in_the_graph_has_the_operations_of_the_closed_form(kind):
    """Counted on a robot arm; AD of the value takes several times as many for FD."""
    model = load_robot("gen3")
    make, algorithm, _ = KINDS[kind]
    symbols = [ca.SX.sym(n, model.nv) for n in ("q", "v", "w")]
    blocks = make(model).jacobian().call([*symbols, ca.SX(model.nv, 1)], True)
    closed = sum(trace_expressions(symbols, blocks).count().values())
    by_ad = sum(
        trace_expressions(symbols, [ca.jacobian(algorithm(model, *symbols), ca.vertcat(*symbols))]).count().values()
    )
    published = {"FD": 14565, "ID": 9426}[kind]  # Astudillo et al. 2021, table S1
    assert closed < published and by_ad > {"FD": 3.0, "ID": 1.5}[kind] * closed


@each_kind
def test_second_derivatives(kind):
    """AD of the closed form against AD of AD."""
    make, algorithm, _ = KINDS[kind]
    model = tree("fixed14", 4)
    given, weights = point(model), np.random.default_rng(5).standard_normal(model.nv)
    hessians = []
    for f, kind_of_symbol in ((make(model), ca.MX), (lambda *a: algorithm(model, unit(model, a[0]), *a[1:]), ca.SX)):
        symbols = [kind_of_symbol.sym(n, len(x)) for n, x in zip("qvw", given, strict=True)]
        gradients = ca.gradient(ca.dot(weights, f(*symbols)), symbols[0])
        H = ca.Function("H", symbols, [ca.jacobian(gradients, s) for s in symbols])
        hessians.append(np.concatenate([b.full() for b in H(*given)], axis=1))
    assert error(*hessians) < 1e-12


def unit(model, q):
    """q of symbols with quaternions of unit length."""
    parts = [q[int(i) : int(i) + n] for i, n in zip(model.q_index, map(numbers_of, model.joint_types), strict=True)]
    return ca.vertcat(
        *[x / ca.norm_2(x) if t == "spherical" else x for x, t in zip(parts, model.joint_types, strict=True)]
    )


def numbers_of(joint_type: str) -> int:
    return {"spherical": 4, "planar": 3, "floating": 7}.get(joint_type, 1)


def test_along_the_manifold_the_length_of_a_quaternion_does_not_matter():
    """With q = q0 exp(w t) the graph gives the tangent Jacobian times w; scaling q0 changes nothing."""
    model = random_tree(0, 1, joints=("spherical",))
    q, v, tau = point(model)
    dq = batched.forward_dynamics_derivatives(model, q, v, tau)[0]
    w = np.array([0.3, -1.0, 0.7])
    for scale in (1.0, 2.5):
        t, f = ca.MX.sym("t"), casadi_forward_dynamics(model)
        s = ca.SX.sym("t")
        turned = ca.Function("turned", [s], [ca.vertcat(*SO3.integrate(list(scale * q), [x * s for x in w]))])
        slope = ca.Function("slope", [t], [ca.jacobian(f(turned(t), v, tau), t)])(0.0)
        assert error(slope.full()[:, 0], dq @ w) < 1e-12


def test_functions_map_expand_and_refuse():
    model = chain(2)
    f = casadi_forward_dynamics(model, "arm")
    q, v, tau = (x.T for x in state(model, 1, 3))
    assert error(f.map(3)(q, v, tau).full(), aba(model, q, v, tau)) < 1e-12
    assert f.name() == "arm" and f.name_in() == ["q", "v", "tau"] and f.name_out() == ["a"]
    follow = Coupling(np.array([0, 0]), np.array([1.0, 2.0]), np.zeros(2), coordinate=np.arange(2), nq=2)
    with pytest.raises(ValueError, match="mimic joints that follow others; load it with mimic = 'free' or 'lock'"):
        casadi_forward_dynamics(model.replace(coupling=follow))


@each_kind
def test_a_saved_function_keeps_its_jacobian(kind, tmp_path):
    """CasADi alone reads the file, and its derivatives are those of the closed form."""
    make, _, derivatives = KINDS[kind]
    model = load_robot("iiwa7")
    make(model).save(str(tmp_path / "f.casadi"))
    f = ca.Function.load(str(tmp_path / "f.casadi"))
    symbols, given = [ca.MX.sym(n, model.nv) for n in ("q", "v", "w")], point(model)
    in_q = ca.jacobian(f(*symbols), symbols[0])
    assert f"jac_{f.name()}" in calls(in_q)
    found = ca.Function("J", symbols, [in_q])(*given).full()
    assert error(found, derivatives(model, *given)[0]) < 1e-12


def test_the_functions_are_public():
    import trajopt as to

    assert to.casadi_forward_dynamics is casadi_forward_dynamics
    assert to.casadi_inverse_dynamics is casadi_inverse_dynamics
