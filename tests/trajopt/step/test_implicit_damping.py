"""Damping taken implicitly by every scheme: orders, energy, the stiff limit, derivatives, engines, and MuJoCo's step."""

from __future__ import annotations

import numpy as np
import pytest

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import energy, inverse_dynamics, mass_matrix
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder
from dynamics_backends.rigid_body.urdf.loader import load_urdf
from dynamics_backends.systems.bodies.coupled_body import CoupledBody
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.soft_contact import SoftContact
from trajopt import OCP, SampledSystem, control_cost, state_cost
from trajopt.stage.evaluation import StageEvaluator
from trajopt.step.first_order_hold import HeldStep
from trajopt.step.integrators import RK4, SCHEMES

DT = 0.02
LINK = {"mass": 1.5, "com": (0.0, 0.02, -0.2), "inertia": np.diag([0.02, 0.018, 0.004])}


def arm(damping: float, **joint) -> Model:
    builder = ModelBuilder("arm")
    for i, axis in enumerate([(0, 0, 1), (0, 1, 0), (1, 0, 0)]):
        parent = f"link{i - 1}" if i else None
        spec = JointSpec(axis=axis, damping=damping * (1 + i), **joint)
        builder.add_body(f"link{i}", parent, spec, xyz=(0, 0, -0.4), **LINK)
    builder.add_frame("tip", "link2", xyz=(0, 0, -0.4))
    return builder.build()


def floating(damping: float) -> Model:
    builder = ModelBuilder("floating")
    builder.add_body("base", joint="floating", mass=4.0, inertia=np.diag([0.1, 0.2, 0.15]))
    builder.add_body("leg", "base", JointSpec(axis=(0, 1, 0), damping=damping), xyz=(0.1, 0, -0.1), **LINK)
    builder.add_body("shank", "leg", JointSpec(axis=(0, 1, 0), damping=2 * damping), xyz=(0, 0, -0.4), **LINK)
    builder.add_frame("foot", "shank", xyz=(0, 0, -0.4))
    return builder.build()


def sampled(system, scheme: str, substeps: int = 1, method: str = "analytic", engine: str = "numpy") -> SampledSystem:
    return SampledSystem(make_backend(system, method, engine=engine), scheme, substeps)


def points(system, count: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    model = system.model
    x = np.concatenate([model.random_configuration(rng, count), rng.normal(size=(count, model.nv))], axis=1)
    if isinstance(system, SoftContact):
        x[:, :7] = [0.0, 0.0, 0.9, 0.0, 0.0, 0.0, 1.0]  # near the ground
    return x, 3.0 * rng.normal(size=(count, system.nu))


def test_the_tableau_meets_its_conditions() -> None:
    size = len(RK4.b)
    a, ai = (np.array([(*row, *[0.0] * (size - len(row))) for row in rows]) for rows in (RK4.a, RK4.implicit))
    b, c, one = np.array(RK4.b), np.array(RK4.c), np.ones(size)
    ci = ai @ one
    conditions = [b @ ci - 1 / 2, b @ (ci * c) - 1 / 3, b @ ai @ ci - 1 / 6, b @ ai @ c - 1 / 6, b @ a @ ci - 1 / 6]
    limits = [b @ np.linalg.solve(ai, one) - 1, b @ a @ np.linalg.solve(ai, one) - 1]
    np.testing.assert_allclose([*conditions, *limits], 0.0, atol=1e-13)
    z = -np.logspace(-3, 8, 200)
    R = [1 + w * b @ np.linalg.solve(np.eye(size) - w * ai, one) for w in z]
    assert np.abs(R).max() < 1.0


@pytest.fixture(scope="module")
def accurate_step():
    """State of the damped arm after 0.2 s by 320 substeps: their error is a 64th of that of 80."""
    body = FreeBody(arm(0.4))
    return sampled(body, "rk4", 320).step(*points(body, 1), 0.0, 0.2)


@pytest.mark.parametrize(("scheme", "order"), [("euler", 1), ("semi_implicit_euler", 1), ("rk4", 3)])
def test_order(scheme: str, order: int, accurate_step) -> None:
    body = FreeBody(arm(0.4))
    x, u = points(body, 1)
    errors = [np.abs(sampled(body, scheme, n).step(x, u, 0.0, 0.2) - accurate_step).max() for n in (20, 40, 80)]
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(slopes - order) < 0.35), slopes


@pytest.mark.parametrize("damping", [0.1, 10.0, 1e4])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_energy_of_a_damped_arm_never_rises(scheme: str, damping: float) -> None:
    model = arm(damping).with_gravity((0, 0, 0))
    step = sampled(FreeBody(model), scheme)
    x = np.concatenate([[0.3, -0.5, 0.8], [1.0, -2.0, 1.5]])[None]
    kinetic = [np.inf]
    for _ in range(50):
        kinetic.append(energy(model, x[0, :3], x[0, 3:])[0])
        x = step.step(x, np.zeros((1, 3)), 0.0, DT)
    assert np.all(np.diff(kinetic) <= 1e-12 * kinetic[1])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_overdamped_joints_move_quasi_statically(scheme: str) -> None:
    """With damping beyond all rates, v = D^-1 (u - g(q)); from a wrong velocity within few steps, never far off."""
    model = arm(1e6)
    body, u, force = FreeBody(model), np.array([[3.0, -2.0, 1.0]]), np.zeros(3)
    x = np.concatenate([[0.3, -0.5, 0.8], [1.0, -2.0, 1.5]])[None]
    step = sampled(body, scheme)
    for _ in range(5):
        x = step.step(x, u, 0.0, DT)
        assert np.abs(x).max() < 3.0
    force = u[0] - inverse_dynamics(model, x[0, :3], np.zeros(3), np.zeros(3))
    np.testing.assert_allclose(x[0, 3:], force / model.damping, rtol=1e-3)


def test_explicit_steps_were_unstable_here() -> None:
    """The rates of the test above: what implicit steps are for."""
    model = arm(10.0)
    rates = np.linalg.eigvals(np.linalg.solve(mass_matrix(model, np.zeros(3)), np.diag(model.damping)))
    assert rates.real.max() * DT > 2.8


SYSTEMS = {
    "springs": lambda: FreeBody(
        arm(5.0, stiffness=30.0, spring_reference=0.2, armature=0.1, friction=0.5), friction_velocity=0.3
    ),
    "floating": lambda: FreeBody(floating(4.0)),
    "soft contact": lambda: SoftContact(floating(4.0), ["foot"]),
    "holonomic": lambda: Holonomic(floating(4.0), [PointContact("foot")]),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", SYSTEMS)
def test_derivatives_of_both_orders(name: str, scheme: str) -> None:
    system = SYSTEMS[name]()
    step, (x, u) = sampled(system, scheme, 2), points(system, 2)
    manifold, n, eps = step.manifold, step.manifold.ndx, 1e-6
    lam = np.random.default_rng(1).normal(size=(2, n))

    def moved(d: np.ndarray, sign: float):
        dx = np.tile(sign * eps * d[:n, None], (1, 2))
        return manifold.integrate(x.T, dx).T, u + sign * eps * d[n:]

    def slope(d: np.ndarray) -> np.ndarray:
        ends = [step.step(*moved(d, sign), 0.0, DT) for sign in (1.0, -1.0)]
        at = step.step(x, u, 0.0, DT).T
        forward, backward = (manifold.difference(at, end.T).T for end in ends)
        return (forward - backward) / (2 * eps)

    directions = np.eye(n + system.nu)
    found = step.linearize(x, u, 0.0, DT)
    expected = np.stack([slope(d) for d in directions], axis=-1)
    both = np.concatenate([found.A, found.B], axis=2)
    np.testing.assert_allclose(both, expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())
    if not manifold.is_vector_space:
        return  # second differences would leave the tangent space; the other engine and the generic map check these

    def gradient(sign: float, d: np.ndarray) -> np.ndarray:
        s = step.linearize(*moved(d, sign), 0.0, DT)
        return np.einsum("ni,nij->nj", lam, np.concatenate([s.A, s.B], axis=2))

    H = step.contract(x, u, 0.0, DT, None, lam)
    second = np.stack([(gradient(1.0, d) - gradient(-1.0, d)) / (2 * eps) for d in directions], axis=-1)
    scale = 2e-7 * np.abs(second).max()
    np.testing.assert_allclose(H.xx, second[:, :n, :n], rtol=1e-5, atol=scale)
    np.testing.assert_allclose(H.ux, second[:, n:, :n], rtol=1e-5, atol=scale)
    np.testing.assert_allclose(H.uu, second[:, n:, n:], rtol=1e-5, atol=scale)


@pytest.mark.parametrize("method", ["forward_ad", "complex_step", "casadi_ad", "central_difference"])
def test_methods_agree(method: str) -> None:
    system = SYSTEMS["springs"]()
    x, u = points(system, 3)
    own, other = (sampled(system, "rk4", method=m).linearize(x, u, 0.0, DT) for m in ("analytic", method))
    tolerance = 1e-7 if "difference" in method else 1e-11
    for a, b in zip(own, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scheme", ["semi_implicit_euler", "rk4"])
@pytest.mark.parametrize("name", ["springs", "floating", "loops", "holonomic"])
def test_compiled_stages_agree(name: str, scheme: str) -> None:
    system = FreeBody(chain(11, 3.0)) if name == "loops" else SYSTEMS[name]()
    (xs, us), N = points(system, 6), 5
    xs, lam = xs + 0.0, np.random.default_rng(2).normal(size=(N, system.manifold.ndx))
    found = []
    for engine in ("numpy", "compiled"):
        step = sampled(system, scheme, 2, engine=engine)
        terms = [control_cost(system.nu, reference=np.zeros(system.nu), weight=1e-2)]
        ocp = OCP.single_phase(step, xs[0], N, DT, terms, [state_cost(step.manifold, xs[0], 1.0)])
        made = StageEvaluator(ocp, engine=engine)
        lq = made.expand(xs, us[:N]).lq
        found.append([lq.A, lq.B, lq.d, *made.curvature(xs, us[:N], lam)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11 * max(np.abs(a).max(), 1.0))


def chain(count: int, damping: float) -> Model:
    """A robot of more degrees of freedom than straight-line code serves."""
    builder = ModelBuilder("chain")
    for i in range(count):
        parent = f"link{i - 1}" if i else None
        axis = [(0, 0, 1), (0, 1, 0)][i % 2]
        spec = JointSpec(axis=axis, damping=damping, stiffness=i % 3)
        builder.add_body(f"link{i}", parent, spec, xyz=(0, 0.05, -0.2), **LINK)
    return builder.build()


def test_a_first_order_hold_carries_the_offset() -> None:
    system = FreeBody(arm(20.0))
    step = HeldStep(sampled(system, "rk4"))
    x, u = points(system, 2)
    both = np.concatenate([u, u + 0.5], axis=1)
    L, eps = step.linearize(x, both, 0.0, DT), 1e-6
    for j, d in enumerate(eps * np.eye(6)):
        slope = (step.step(x, both + d, 0.0, DT) - step.step(x, both - d, 0.0, DT)) / (2 * eps)
        np.testing.assert_allclose(L.B[:, :, j], slope, rtol=1e-5, atol=1e-8)


def test_coupled_joints() -> None:
    model = load_urdf(FOLLOWER, mimic="follow")
    system = CoupledBody(model.replace(damping=np.linspace(1.0, 5.0, model.nv), stiffness=np.full(model.nv, 3.0)))
    step, rng, n, eps = sampled(system, "rk4"), np.random.default_rng(0), system.manifold.ndx, 1e-6
    x, u = rng.normal(size=(2, system.manifold.nx)), rng.normal(size=(2, system.nu))
    L = step.linearize(x, u, 0.0, DT)
    for j, d in enumerate(eps * np.eye(n)):
        slope = (step.step(x + d, u, 0.0, DT) - step.step(x - d, u, 0.0, DT)) / (2 * eps)
        np.testing.assert_allclose(L.A[:, :, j], slope, rtol=1e-5, atol=1e-8)


FOLLOWER = (
    """<robot name="gripper"><link name="hand"/>"""
    + "".join(
        f"""<link name="{name}"><inertial><origin xyz="0 0.01 -0.1"/><mass value="0.5"/><inertia ixx="0.01" iyy="0.01" izz="0.002"/>
    </inertial></link><joint name="{name}" type="continuous"><parent link="{parent}"/><child link="{name}"/>
    <origin xyz="0.1 0 -0.2"/><axis xyz="0 1 0"/>{mimic}</joint>"""
        for name, parent, mimic in (
            ("a", "hand", ""),
            ("b", "a", '<mimic joint="a" multiplier="-2" offset="0.3"/>'),
            ("c", "b", ""),
        )
    )
    + "</robot>"
)
MJCF = """<mujoco><option timestep="0.02" integrator="Euler" gravity="0 0 -9.81"/><compiler angle="radian"/>
<worldbody><body name="a" pos="0 0 -0.4"><joint name="a" axis="0 0 1" damping="{d}" armature="0.05"/>{i}
<body name="b" pos="0 0 -0.4"><joint name="b" axis="0 1 0" damping="{e}" armature="0.05" stiffness="7" springref="0.3"/>{i}
</body></body></worldbody></mujoco>"""


@pytest.mark.parametrize("damping", [0.2, 50.0])
def test_semi_implicit_euler_is_the_step_of_mujoco(damping: float) -> None:
    mujoco = pytest.importorskip("mujoco")
    inertial = '<inertial pos="0 0.02 -0.2" mass="1.5" diaginertia="0.02 0.018 0.004"/>'
    theirs = mujoco.MjModel.from_xml_string(MJCF.format(d=damping, e=2 * damping, i=inertial))
    data = mujoco.MjData(theirs)
    builder = ModelBuilder("two")
    builder.add_body("a", joint=JointSpec(axis=(0, 0, 1), damping=damping, armature=0.05), xyz=(0, 0, -0.4), **LINK)
    spring = {"stiffness": 7.0, "spring_reference": 0.3}
    spec = JointSpec(axis=(0, 1, 0), damping=2 * damping, armature=0.05, **spring)
    builder.add_body("b", "a", spec, xyz=(0, 0, -0.4), **LINK)
    step = sampled(FreeBody(builder.build()), "semi_implicit_euler")
    x, u = np.array([[0.2, -0.4, 1.0, -2.0]]), np.array([[0.7, -0.3]])
    data.qpos[:], data.qvel[:] = x[0, :2], x[0, 2:]
    for _ in range(20):
        data.qfrc_applied[:] = u[0]
        mujoco.mj_step(theirs, data)
        x = step.step(x, u, 0.0, DT)
    np.testing.assert_allclose(x[0], [*data.qpos, *data.qvel], rtol=1e-9, atol=1e-9)
