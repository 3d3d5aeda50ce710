"""Recursions by the kernels of the library: the numbers of NumPy, which serves where there is no kernel."""

import numpy as np
import pytest
from rigid_body_cases import TREES, state, tree

from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.rigid_body.passes import drivers
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.tape import driver as driver_module
from dynamics_backends.tape.driver import LibraryDriver


def test_numpy_serves_other_numbers_and_programs_that_were_not_built(monkeypatch):
    model, driver = chain(4), LibraryDriver()
    q, v = np.zeros((4, 1)), np.ones((4, 1))
    served = driver(ABA, model, {"q": q, "v": v, "tau": v})
    assert set(served) == {"a"}  # NumPy returns all fields
    for numbers in ({"q": q + 0j}, {"v": Dual(v, np.zeros((4, 1, 2)))}):
        assert len(driver(ABA, model, {"q": q, "v": v, "tau": v, **numbers})) > 1
    monkeypatch.setattr(driver_module, "library_kernel", lambda program, model: None)
    by_numpy = LibraryDriver()(ABA, model, {"q": q, "v": v, "tau": v})
    assert len(by_numpy) > 1
    np.testing.assert_allclose(served["a"], by_numpy["a"], rtol=1e-12)


@pytest.mark.parametrize("name", TREES)
def test_all_joints_have_kernels(name):
    model = tree(name)
    q, v, tau = (x.T.copy() for x in state(model, 1, 3))
    given = {"q": q, "v": v, "tau": tau}
    served = LibraryDriver()(ABA, model, given)
    assert set(served) == {"a"}
    np.testing.assert_allclose(served["a"], drivers.run(ABA, model, given)["a"], rtol=1e-9, atol=1e-9)
