"""Steps in CasADi's virtual machine against those in NumPy."""

import numpy as np
import pytest
import textbook_systems as textbook
from contact_cases import FEET, hyq, standing_states

from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.ground_surface import Plane
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt import OCP, SampledSystem, control_cost, state_cost
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator
from trajopt.step.interpreted_step import InterpretedStep, interpreted


def _states(system, n, rng):
    model = getattr(system, "model", None)
    if model is None:
        tangent = rng.normal(size=(system.manifold.ndx, n))
        origin = np.zeros((system.manifold.nx, n))
        if not system.manifold.is_vector_space:
            origin[6] = 1.0
        return system.manifold.integrate(origin, tangent).T
    if model.floating_base:
        return standing_states(model, FEET, 0, n)
    return np.concatenate([model.random_configuration(rng, n), rng.normal(size=(n, model.nv))], axis=1)


def _systems():
    model = hyq()
    return {
        "pendulum in time": textbook.pendulum(),
        "free body": textbook.free_body(),
        "chain": FreeBody(chain(3)),
        "contact": SoftContact(model, FEET),
    }


@pytest.mark.parametrize("scheme", ["euler", "semi_implicit_euler", "rk4"])
@pytest.mark.parametrize("name", ["pendulum in time", "free body", "chain", "contact"])
def test_the_steps_are_those_of_numpy(name, scheme):
    system, rng = _systems()[name], np.random.default_rng(1)
    sampled = SampledSystem(make_backend(system, "analytic" if hasattr(system, "model") else "forward_ad"), scheme, 3)
    x, u = _states(system, 4, rng), rng.normal(size=(4, system.nu))
    t, dt = rng.normal(size=4), rng.uniform(0.0005, 0.002, 4)  # [s] contacts are stiff
    p = {"ground_height": rng.normal(scale=0.01, size=(4, 1))} if name == "contact" else None
    found = InterpretedStep(sampled).step(x, u, t, dt, p)
    np.testing.assert_allclose(found, sampled.step(x, u, t, dt, p), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("p", [None, {"contact_friction": np.array([0.4]), "contact_relaxation": np.array([0.01])}])
def test_contacts_that_are_solved_by_iterations_are_those_of_numpy(p):
    """Hard landings from random states, which take from two to some ten iterations each, with shortened ones among them."""
    system, rng = SteppedContact(hyq(), FEET), np.random.default_rng(3)
    sampled = SampledSystem(make_backend(system, "analytic"), "semi_implicit_euler", 2)
    x, u = standing_states(system.model, FEET, 3, 6), 20.0 * rng.normal(size=(6, system.nu))
    x[:, system.model.nq :] *= 3.0
    found, expected = (step.step(x, u, 0.0, 0.02, p) for step in (InterpretedStep(sampled), sampled))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_ground_that_cannot_be_traced_is_evaluated_in_numpy():
    class Terrace(Plane):
        def surface(self, at, p):
            if np.all(at.x < 100.0):
                return super().surface(at, p)
            raise AssertionError

    system = SteppedContact(hyq(), FEET, ground=Terrace())
    sampled = SampledSystem(make_backend(system, "analytic"), "semi_implicit_euler")
    x, u = standing_states(system.model, FEET, 3, 2), np.zeros((2, system.nu))
    np.testing.assert_array_equal(InterpretedStep(sampled).step(x, u, 0.0, 0.02), sampled.step(x, u, 0.0, 0.02))


def test_one_trace_serves_every_number_of_substeps():
    calls = []

    def f(x, u, t, p):
        calls.append(None)
        return [x[1], u[0] - x[0] * x[0]]

    backend = make_backend(FunctionMap(f, textbook.pendulum().manifold, 1, second_order=True), "forward_ad")
    steps = [InterpretedStep(SampledSystem(backend, "semi_implicit_euler", n)) for n in (2, 50)]
    x, traced = [], []
    for step in steps:
        x.append(step.step(np.array([[0.3, 0.1]]), np.zeros((1, 1)), 0.0, 0.1)[0])
        traced.append(len(calls))
    assert traced[0] == traced[1]
    assert np.abs(x[0] - x[1]).max() > 1e-5


def test_a_function_that_cannot_be_traced_is_evaluated_in_numpy():
    def f(x, u, t, p):
        return [x[1], np.vectorize(lambda angle, torque: torque - angle if angle > 0 else torque)(x[0], u[0])]

    system = FunctionMap(f, textbook.pendulum().manifold, 1, second_order=True)
    sampled = SampledSystem(make_backend(system, "central_difference"), "rk4", 2)
    x, u = np.array([[0.3, 0.1], [-0.2, 0.4]]), np.array([[0.5], [1.0]])
    np.testing.assert_array_equal(InterpretedStep(sampled).step(x, u, 0.0, 0.1), sampled.step(x, u, 0.0, 0.1))


def test_rollouts_need_no_compiler(monkeypatch):
    """Feedback rollouts of a problem whose backend would be compiled are those of the NumPy engine."""
    system = FreeBody(chain(3))
    ocps = []
    for engine in ("compiled", "numpy"):
        step = SampledSystem(make_backend(system, "analytic", engine=engine), "semi_implicit_euler", 4)
        terms = [control_cost(3), state_cost(system.manifold, np.ones(6), 1.0)]
        ocps.append(OCP.single_phase(step, np.zeros(6), 5, 0.05, terms, u_lower=-np.ones(3), u_upper=np.ones(3)))
    monkeypatch.setattr("dynamics_backends.compiled.runtime.toolchain.Toolchain.compile", None)
    rng = np.random.default_rng(2)
    xs, us, K = rng.normal(size=(6, 6)), rng.normal(size=(5, 3)), rng.normal(size=(5, 3, 6))
    direction = Direction(np.zeros((6, 6)), np.zeros((5, 3)), K, np.zeros((5, 6)))
    given = xs, us, direction, np.ones(1), Shooting()
    found = StageEvaluator(interpreted(ocps[0]), engine="numpy").rollout(*given)
    expected = StageEvaluator(ocps[1], engine="numpy").rollout(*given)
    np.testing.assert_allclose(found.xs, expected.xs, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.us, expected.us, rtol=1e-12, atol=1e-12)
