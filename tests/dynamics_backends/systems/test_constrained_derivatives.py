"""Derivatives of constrained motion as tapes and in compiled stages, against NumPy and complex step."""

import numpy as np
import pytest
from contact_cases import FEET, arguments, contraction_error, deviation, hyq
from rigid_body_cases import tree
from shooting_cases import order_of_one_iteration
from twin_cases import assert_same_curvature

from dynamics_backends.compiled.sources import traced_source
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.constraint_kinds import FrameContact, PointContact, PointLoop
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.impact import Impact
from dynamics_backends.tape.compiled_derivatives import CompiledDerivatives
from trajopt import OCP, SampledSystem, control_cost, solve, state_cost

GAINS = (25.0, 10.0)
PLACE = (0.1, 0.2, 0.3, 0.5, -0.5, 0.5, 0.5)
FRAMES = ("body1", "body3")  # of a floating base: a helical and a planar joint


def held(*constraints, robot=("floating90", 4)):
    """A tree under constraints, with friction in its joints."""
    return Holonomic(tree(*robot), constraints, friction_velocity=0.1)


SYSTEMS = {
    "frame": lambda: held(FrameContact("body1", reference=PLACE, gains=GAINS), robot=("floating2", 2)),
    "loop": lambda: held(PointLoop(*FRAMES, offset_a=(0.1, 0.0, 0.2), gains=GAINS)),
    "impact": lambda: Impact(tree("floating90", 4), [PointContact(FRAMES[0])], restitution=0.3),
}


def assert_engines_agree(system, x, u, lam, p=None):
    """Compare to rounding, relative to each block or to a thousandth of the largest."""
    compiled, numpy = (make_backend(system, "analytic", engine=engine) for engine in ("compiled", "numpy"))
    assert isinstance(compiled.compiled, CompiledDerivatives)
    own, expected = (b.hessian_contraction(x, u, 0.0, p, lam) for b in (compiled, numpy))
    assert deviation(own[0], expected[0]) < 1e-11
    least = 1e-3 * np.abs(expected[1].xx).max()
    for a, e in zip(own[1], expected[1], strict=True):
        assert np.abs(a - e).max(initial=0.0) < 1e-11 * max(np.abs(e).max(initial=0.0), least)


@pytest.mark.parametrize("name", SYSTEMS)
def test_engines_agree_to_second_order(name):
    system = SYSTEMS[name]()
    assert_engines_agree(system, *arguments(system, ["body1"], N=9))


def test_contacts_that_are_switched_and_moved_at_run_time():
    system = held(*(PointContact(f, gains=GAINS) for f in FRAMES))
    x, u, lam = arguments(system, FRAMES, N=5)
    p = {f"reference[{f}]": np.random.default_rng(0).standard_normal((5, 3)) for f in FRAMES}
    assert_engines_agree(system, x, u, lam, {**p, "active[body1]": np.array([[1.0], [0.0], [1.0], [0.0], [1.0]])})


def test_a_standing_quadruped():
    """Four feet of HyQ, against NumPy and complex step."""
    system = Holonomic(hyq(), [PointContact(f, reference=(0.1, -0.2, 0.01), gains=GAINS) for f in FEET])
    x, u, lam = arguments(system, FEET, N=3)
    assert_engines_agree(system, x, u, lam)
    assert contraction_error(system, x, u, lam, engine="compiled") < 1e-9


# -- as part of a stage ---------------------------------------------------------------------------------------------------


def standing():
    """A floating base with one joint shifts over a foot that stays."""
    system = held(PointContact(FRAMES[0], offset=(0.1, 0.2, -0.1), gains=(0.0, 20.0)), robot=("floating2", 2))
    manifold, rng = system.manifold, np.random.default_rng(0)
    x0 = manifold.integrate(manifold.identity()[:, None], 0.3 * rng.standard_normal((manifold.ndx, 1)))[:, 0]
    dynamics = SampledSystem(make_backend(system, "analytic", engine="numpy"), "semi_implicit_euler")
    running = [control_cost(system.nu, weight=0.5), state_cost(manifold, x0, 0.3)]
    return OCP.single_phase(dynamics, x0, 13, 0.02, running, [state_cost(manifold, manifold.identity(), 3.0)])


def test_curvature_of_a_stage():
    assert_same_curvature(standing())


def test_long_traces_are_evaluated_by_numpy(monkeypatch):
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 10)
    system = SYSTEMS["impact"]()
    x, u, lam = arguments(system, FRAMES)
    own, expected = (
        make_backend(system, "analytic", engine=engine).hessian_contraction(x, u, 0.0, None, lam)[1].xx
        for engine in ("compiled", "numpy")
    )
    np.testing.assert_array_equal(own, expected)


def test_ddp_converges_quadratically_and_slq_linearly():
    ocp = standing()
    solution = solve(ocp, None, {"gradient_tolerance": 1e-11, "shooting": "single"}, solver="ddp")
    assert solution.history[-1].gradient < 1e-9
    for curvature in ("newton", "true"):
        assert 1.8 < order_of_one_iteration(ocp, solution, "ddp", curvature=curvature, switch=1.0) < 2.3
    assert 0.8 < order_of_one_iteration(ocp, solution, "slq") < 1.2
