"""Warnings about soft contacts: the ground at the start, and the largest stable step."""

from __future__ import annotations

import numpy as np
import pytest
from contact_cases import FEET, STANCE, hyq

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.contact.ground_contact import Plane, Terrain
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt.step.integrators import step_rows
from trajopt.validation.stability import Linearization, largest_stable_step


def problem(height=0.572, scheme="rk4", substeps=5, dt=0.005, **system):
    model = hyq()
    s = SoftContact(model, FEET, **system)
    x0 = np.r_[0.0, 0.0, height, 0.0, 0.0, 0.0, 1.0, STANCE, np.zeros(model.nv)]
    dynamics = to.SampledSystem(make_backend(s), scheme, substeps)
    return to.OCP.single_phase(dynamics, x0, 4, dt, [to.control_cost(s.nu)], model=model)


def said(ocp):
    return [finding.message for finding in to.validate(ocp) if finding.severity == "warning"]


def test_the_published_trot_gives_no_warning():
    assert said(problem()) == []


def test_steps_that_are_too_long_are_reported_with_a_remedy():
    (message,) = said(problem(substeps=2))
    assert (
        "rk4 is stable for steps up to 1.2 ms, but its steps are 2.5 ms long" in message
        and "substeps = 5 or more" in message
    )
    (message,) = said(problem(scheme="euler", dt=0.001, substeps=1))
    assert "euler is stable for steps up to 0.84 ms" in message  # published: 0.84 ms
    assert said(problem(scheme="euler", dt=0.001, substeps=2)) == []
    assert "semi_implicit_euler is stable" in said(problem(scheme="semi_implicit_euler", substeps=1))[0]


def test_the_remedy_helps():
    for scheme in ("euler", "rk4", "semi_implicit_euler"):
        (message,) = said(problem(scheme=scheme, substeps=1))
        needed = int(message.split("substeps = ")[1].split(" ")[0])
        assert said(problem(scheme=scheme, substeps=needed)) == []
        assert said(problem(scheme=scheme, substeps=max(1, needed - 2))) != []


@pytest.mark.parametrize("scheme", ["euler", "rk4", "semi_implicit_euler"])
def test_the_largest_step_is_where_a_stiff_oscillator_begins_to_ring(scheme):
    """Steps of a damped spring, iterated: bounded just below the limit, growing just above."""
    omega, damping = 300.0, 0.5
    fx = np.array([[0.0, 1.0], [-(omega**2), -2.0 * damping * omega]])
    limit = largest_stable_step(Linearization(fx), scheme, 1.0)

    def grown(h):
        from dynamics_backends.protocol import FunctionMap

        system = FunctionMap(lambda x, u, t, p: [x[1], fx[1, 0] * x[0] + fx[1, 1] * x[1]], 2, 0, second_order=True)
        x = np.array([[1.0], [0.0]])
        for _ in range(3000):
            x = step_rows(system, scheme, 1, x, np.zeros((0, 1)), np.zeros(1), np.full(1, h), {})
        return float(np.abs(x).max())

    assert grown(0.98 * limit) < 10.0 < grown(1.02 * limit)


@pytest.mark.parametrize("scheme", ["euler", "rk4", "semi_implicit_euler"])
@pytest.mark.parametrize("implicit", [False, True])
def test_a_step_whose_growth_overflows_is_not_stable(scheme, implicit):
    """The limit is that of a search from any longest step."""
    fx = np.array([[0.0, 1.0], [-9e4, -300.0]])
    damping = np.array([[0.0], [-20.0]]) if implicit else None
    longest, moderate = (largest_stable_step(Linearization(fx, damping), scheme, h) for h in (1e308, 1.0))
    assert 0.0 < longest == pytest.approx(moderate, rel=2e-3)


def test_advised_substeps_are_within_the_allowed_number():
    (text,) = (m for m in said(problem(dt=1e305)) if "too stiff" in m)
    assert "; use softer" in text and "substeps" not in text


def test_unstable_systems_give_no_step_warning():
    fx = np.array([[0.0, 1.0], [9.81, 0.0]])  # an inverted pendulum
    assert all(
        largest_stable_step(Linearization(fx), scheme, 0.05) == 0.05
        for scheme in ("euler", "rk4", "semi_implicit_euler")
    )


def test_a_start_in_the_ground_or_aloft():
    (sunk,) = (m for m in said(problem(0.53)) if "below the ground" in m)
    assert sunk.startswith("x0 has ") and "4.6 cm below" in sunk
    (aloft,) = said(problem(0.8))
    assert "all contact points of x0 are above the ground" in aloft and "22 cm" in aloft


@pytest.mark.parametrize(("stiffness", "warns"), [(1e4, False), (1e5, True)])
def test_a_start_deep_in_soft_ground_that_just_carries_the_robot_gives_no_warning(stiffness, warns):
    """Feet 2.1 cm below ground carry 210 N each at 1e4 N/m, about the weight."""
    model, x0 = problem().phases[0].dynamics.system.model, problem().x0.copy()
    ground = SteppedContact(model, FEET, law=RelaxedCone(stiffness=stiffness))
    x0[2] -= 0.021 + min(ground.gaps(x0).values())
    assert any("below the ground" in m for m in ground.state_warnings(x0, {})) == warns


def test_gaps_are_those_of_the_ground():
    flat = problem().phases[0].dynamics.system
    x0 = problem().x0
    low = SoftContact(flat.model, FEET, ground=Plane(-0.1)).gaps(x0)
    hilly = SoftContact(flat.model, FEET, ground=Terrain(lambda x, y: 0.05 + 0.0 * x)).gaps(x0)
    for foot, gap in flat.gaps(x0).items():
        assert gap == pytest.approx(-0.003537, abs=1e-6)
        assert low[foot] == pytest.approx(gap + 0.1) and hilly[foot] == pytest.approx(gap - 0.05)
    raised = flat.gaps(x0, {"ground_height": np.array([0.2])})
    assert raised[FEET[0]] == pytest.approx(-0.2035, abs=1e-4)
