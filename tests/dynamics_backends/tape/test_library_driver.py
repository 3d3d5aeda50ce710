"""Recursions by the kernels of the library: the numbers of NumPy, rows where there is no kernel."""

import numpy as np
import pytest
from rigid_body_cases import TREES, state, tree

from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.rigid_body.passes import drivers
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.tape import driver as driver_module
from dynamics_backends.tape.driver import LibraryDriver


def test_tapes_serve_other_numbers_and_programs_that_were_not_built(monkeypatch):
    system, driver = FreeBody(chain(4)), LibraryDriver()
    q, v = np.zeros((4, 1)), np.ones((4, 1))
    served = driver(ABA, system.model, {"q": q, "v": v, "tau": v})
    assert set(served) == {"a"}  # rows leave all fields behind
    on_tape = driver(ABA, system.model, {"q": q + 0j, "v": v, "tau": v})
    assert set(on_tape) == {"a"}
    np.testing.assert_allclose(served["a"], on_tape["a"].real, rtol=1e-12)
    monkeypatch.setattr(driver_module, "library_kernel", lambda program, model: None)
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
