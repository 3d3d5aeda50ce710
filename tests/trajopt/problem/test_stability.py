"""Warnings about time steps too long for a system: they name the joint, its rate and the remedy; no false positives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.step.integrators import SCHEMES
from trajopt.validation.stability import Linearization, amplification, stability_warnings

DT = 0.02


def arm(stiffness: float = 0.0, friction: float = 0.0, damping: float = 0.0, gravity: float = -9.81):
    builder = ModelBuilder("arm")
    for i, name in enumerate(("shoulder", "wrist")):
        link = {
            "mass": 1.0 / (1 + 9 * i),
            "com": (0, 0, -0.1),
            "inertia": np.diag([1.0, 1.0, 1.0]) * 1e-3 / (1 + 99 * i),
        }
        more = {"stiffness": stiffness, "friction": friction, "damping": damping}
        spec = JointSpec(axis=(0, 1, 0), **(more if i else {}))
        builder.add_body(name, "shoulder" if i else None, spec, xyz=(0, 0, -0.3), **link)
    return builder.build(gravity=(0, 0, gravity))


def problem(system, scheme: str, substeps: int = 1, method: str = "analytic"):
    dynamics = to.SampledSystem(make_backend(system, method, engine="numpy"), scheme, substeps)
    return to.OCP.single_phase(dynamics, np.zeros(system.manifold.nx), 3, DT, [to.control_cost(system.nu)])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_damped_arm_gives_no_warning(scheme: str) -> None:
    assert list(stability_warnings(problem(FreeBody(arm(damping=1e3)), scheme))) == []


@pytest.mark.parametrize("scheme", ["semi_implicit_euler", "rk4"])
@pytest.mark.parametrize("cause", ["spring", "friction"])
def test_the_joint_the_rate_and_a_remedy_that_helps(cause: str, scheme: str) -> None:
    given = {"stiffness": 300.0} if cause == "spring" else {"friction": 0.2}
    system = FreeBody(arm(**given), friction_velocity=None if cause == "spring" else 0.01)
    (message,) = stability_warnings(problem(system, scheme))
    assert "v[wrist_joint]" in message and "1/s" in message
    assert ("friction_velocity" in message) == (cause == "friction")
    needed = int(message.split("substeps = ")[1].split(" ")[0])
    assert list(stability_warnings(problem(system, scheme, needed))) == []
    assert list(stability_warnings(problem(system, scheme, max(needed - 2, 1)))) != []


def test_any_system_is_checked() -> None:
    stiff = FunctionMap(lambda x, u, t, p: [-500.0 * x[0] + u[0], x[0]], 2, 1)
    (message,) = stability_warnings(problem(stiff, "rk4", method="forward_ad"))
    assert "whose rate is 500 1/s" in message
    slow = FunctionMap(lambda x, u, t, p: [5.0 * x[0] + u[0], x[0]], 2, 1)
    assert list(stability_warnings(problem(slow, "rk4", method="forward_ad"))) == []


def test_rates_that_depend_on_the_controls_are_those_within_their_bounds() -> None:
    """A reaction whose rate depends on the temperature, which is not defined at zero."""
    reaction = FunctionMap(lambda x, u, t, p: [-1e3 * np.exp(-2000.0 / u[0]) * x[0]], 1, 1)
    ocp = problem(reaction, "rk4", method="forward_ad")
    ocp = replace(ocp, x0=np.ones(1), u_lower=np.array([250.0]), u_upper=np.array([1000.0]))
    assert list(stability_warnings(ocp)) == []
    hot = replace(ocp, phases=(replace(ocp.phases[0], dt=np.full(3, 0.05)),))
    assert list(stability_warnings(hot)) == []
    (message,) = stability_warnings(hot, extremes=True)
    assert "whose rate is 135 1/s: at x0 with the controls at their upper bounds" in message
    (message,) = stability_warnings(replace(hot, u_lower=np.array([900.0])))
    assert "whose rate is 108 1/s: at x0 rk4" in message


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_matrix_is_that_of_a_step_about_rest(scheme: str) -> None:
    """At rest without gravity the linearization of a step is the step of the linearization."""
    system = FreeBody(arm(damping=3.0, stiffness=20.0, gravity=0.0))
    x = np.array([[0.4, 0.0, 0.0, 0.0]])
    A = to.SampledSystem(make_backend(system, engine="numpy"), scheme).linearize(x, np.zeros((1, 2)), 0.0, DT).A[0]
    at = make_backend(system, engine="numpy").jacobians(x, np.zeros((1, 2)))
    L = np.concatenate([np.zeros((2, 2)), -at.fu[0][2:] * system.model.damping])
    F = at.fx[0].copy()
    F[:, 2:] -= L
    np.testing.assert_allclose(amplification(Linearization(F, L), scheme, DT), A, atol=1e-12)
