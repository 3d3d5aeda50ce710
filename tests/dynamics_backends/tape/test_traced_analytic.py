"""Analytic derivatives of a map as tapes: those of the numpy engine."""

import numpy as np
import pytest
from rigid_body_cases import error, foreign, tree
from textbook_systems import double_integrator

from dynamics_backends.compiled.sources import traced_source
from dynamics_backends.protocol import Batch, SecondOrderBackend
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.rigid_body_map import FrameMotion
from dynamics_backends.systems.contact.soft_contact import SoftContact

MAPS = {
    "frame motion": lambda: FrameMotion(foreign("ur5"), "tool0"),  # no control, no second derivatives
    "soft contact": lambda: SoftContact(tree("floating90", 3), ["body2"]),
}


def both_engines(map):
    return [make_backend(map, "analytic", engine=engine) for engine in ("compiled", "numpy")]


def points(map, N=11):
    rng = np.random.default_rng(0)
    steps = rng.standard_normal((map.manifold.ndx, N))
    x = map.manifold.integrate(np.repeat(map.manifold.identity()[:, None], N, axis=1), steps).T
    return x, rng.standard_normal((N, map.nu)), rng.standard_normal((N, map.n_out))


@pytest.mark.parametrize("name", MAPS)
def test_first_derivatives(name):
    map = MAPS[name]()
    x, u, _ = points(map)
    compiled, numpy = both_engines(map)
    assert compiled.compiled.jacobians(compiled, Batch.of(map, x, u)) is not None
    for a, e in zip(compiled.jacobians(x, u), numpy.jacobians(x, u), strict=True):
        assert error(a, e) < 1e-12


def test_second_derivatives_and_parameters():
    map = MAPS["soft contact"]()
    x, u, lam = points(map)
    p = {"ground_height": np.linspace(-0.1, 0.1, len(x))[:, None]}
    compiled, numpy = both_engines(map)
    actual, expected = (b.hessian_contraction(x, u, 0.3, p, lam) for b in (compiled, numpy))
    for a, e in zip((*actual[0], *actual[1]), (*expected[0], *expected[1]), strict=True):
        assert error(a, e) < 1e-11


def test_a_map_without_second_derivatives_has_none():
    assert not isinstance(both_engines(MAPS["frame motion"]())[0], SecondOrderBackend)


def test_long_traces_are_evaluated_by_numpy(monkeypatch):
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 10)
    map = MAPS["soft contact"]()
    x, u, lam = points(map, 3)
    compiled, numpy = both_engines(map)
    np.testing.assert_array_equal(compiled.jacobians(x, u).fx, numpy.jacobians(x, u).fx)
    actual, expected = (b.hessian_contraction(x, u, 0.0, {}, lam)[1].xx for b in (compiled, numpy))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("engine", ["compiled", "numpy"])
def test_a_map_that_writes_out_no_derivatives_is_refused(engine):
    with pytest.raises(TypeError, match="has no analytic derivatives"):
        make_backend(double_integrator(), "analytic", engine=engine)
