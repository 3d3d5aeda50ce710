"""Recursions by the kernels of the library: the numbers of NumPy."""

import numpy as np
import pytest
from rigid_body_cases import TREES, state, tree

from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.passes import drivers
from dynamics_backends.tape.driver import by_library


@pytest.mark.parametrize("name", TREES)
def test_all_joints_have_kernels(name):
    model = tree(name)
    q, v, tau = (x.T.copy() for x in state(model, 1, 3))
    given = {"q": q, "v": v, "tau": tau}
    served = by_library(ABA, model, given)
    assert set(served) == {"a"}
    np.testing.assert_allclose(served["a"], drivers.run(ABA, model, given)["a"], rtol=1e-9, atol=1e-9)
