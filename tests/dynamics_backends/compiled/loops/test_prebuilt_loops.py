"""Recursions by the kernels of the library: the numbers of NumPy, rows where there is no kernel."""

import numpy as np
import pytest
from rigid_body_cases import TREES, state, tree

from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend, untraced
from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.rigid_body.passes import drivers
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.tape import driver as driver_module
from dynamics_backends.tape.driver import LibraryDriver
from trajopt.step.sensitivities import SampledSystem


def points(system, seed=3, n=5):
    """States, controls and the time."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, system.manifold.nx)), rng.normal(size=(n, system.nu)), 0.0


@pytest.mark.parametrize("method", ["analytic", "complex_step", "central_difference"])
def test_the_numbers_are_those_of_rows(method):
    system = FreeBody(chain(4))
    own = untraced(make_backend(system, method, engine="compiled"))
    reference = make_backend(system, method, engine="numpy")
    assert own.engine == "numpy"
    found, expected = (b.jacobians(*points(system)) for b in (own, reference))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6 if method == "central_difference" else 1e-11, atol=1e-9)


def test_tapes_serve_other_numbers_and_programs_that_were_not_built(monkeypatch):
    system, driver = FreeBody(chain(4)), LibraryDriver()
    q, v = np.zeros((4, 1)), np.ones((4, 1))
    served = driver(ABA, system.model, {"q": q, "v": v, "tau": v})
    assert set(served) == {"a"}  # rows leave all fields behind
    on_tape = driver(ABA, system.model, {"q": q + 0j, "v": v, "tau": v})
    assert set(on_tape) == {"a"}
    np.testing.assert_allclose(served["a"], on_tape["a"].real, rtol=1e-12)
    monkeypatch.setattr(driver_module, "prebuilt_kernel", lambda program, model: None)
    unrolled = LibraryDriver()(ABA, system.model, {"q": q, "v": v, "tau": v})
    assert set(unrolled) == {"a"}
    np.testing.assert_allclose(served["a"], unrolled["a"], rtol=1e-12)
    monkeypatch.setattr(driver_module, "UP_TO_DOFS", 3)
    assert len(LibraryDriver()(ABA, system.model, {"q": q, "v": v, "tau": v})) > 1


@pytest.mark.parametrize("name", TREES)
def test_all_joints_have_kernels(name):
    model = tree(name)
    q, v, tau = (x.T.copy() for x in state(model, 1, 3))
    given = {"q": q, "v": v, "tau": tau}
    served = LibraryDriver()(ABA, model, given)
    assert set(served) == {"a"}
    np.testing.assert_allclose(served["a"], drivers.run(ABA, model, given)["a"], rtol=1e-9, atol=1e-9)


def test_maps_of_users_stay_as_they_are():
    pendulum = FunctionMap(lambda x, u, t, p: [x[1], u[0] - x[0]], 2, 1)
    found = untraced(make_backend(pendulum, "forward_ad", engine="compiled"))
    assert found.name == "forward_ad" and found.engine == "numpy"
    np.testing.assert_allclose(found.jacobians(np.ones((1, 2)), np.ones((1, 1)), 0.0).fx[0], [[0, 1], [-1, 0]])


def test_a_damped_robot_keeps_its_loops_in_time_steps():
    """Their damping is implicit, which makes another system of it."""
    model = chain(3)
    damped = FreeBody(model.replace(damping=np.full(model.nv, 0.3)))
    step = SampledSystem(untraced(make_backend(damped, "analytic", engine="compiled")), "semi_implicit_euler")
    assert step.stages.map is not step.backend.map and isinstance(step.stages.map.driver, LibraryDriver)
    reference = SampledSystem(make_backend(damped, "analytic", engine="numpy"), "semi_implicit_euler")
    x, u, t = points(damped)
    for a, b in zip(step.linearize(x, u, t, 0.01), reference.linearize(x, u, t, 0.01), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
