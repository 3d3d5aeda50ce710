"""Limits of contacts on a single ball of mass 2 kg, whose forces and impulses are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley
from dynamics_backends.systems.contact.impact import Impact
from dynamics_backends.systems.contact.soft_contact import SoftContact
from problems.legged.contact.contact_limits import contact_limits, landing_sentences
from problems.legged.contact.stance_drift import DRIFT
from problems.robots.loading import load_floating_base
from trajopt import OCP, SampledSystem
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import Phase

MASS, MU = 2.0, 0.6
BALL = f"""<robot name="ball"><link name="base"><inertial><mass value="{MASS}"/>
<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>"""


@pytest.fixture(scope="module")
def ball(tmp_path_factory):
    file = tmp_path_factory.mktemp("robots") / "ball.urdf"
    file.write_text(BALL)
    return load_floating_base(str(file))


def states(*velocities, height=0.0):
    """Return states (K, 13) of the ball with velocities in the world, at the identity orientation."""
    return np.array([[0.0, 0.0, height, 0.0, 0.0, 0.0, 1.0, *v, 0.0, 0.0, 0.0] for v in velocities])


def landing(ball):
    """Return a problem that consists of one landing."""
    stage = ImpactStage(make_backend(Impact(ball, [PointContact("base")]), engine="numpy"))
    return OCP((Phase(stage, np.zeros(1), ()),), states((0.0, 0.0, 0.0))[0], (), model=ball)


@pytest.mark.parametrize(
    ("velocity", "found"),
    [
        ((0.0, 0.0, -1.0), {}),
        ((0.5, 0.0, -1.0), {}),
        ((0.9, 1.2, -1.0), {"landing friction cone": MASS * (1.5 - MU)}),
        ((0.0, 0.0, 1.0), {"landing pull": MASS}),
    ],
)
def test_impulses_of_landings(ball, velocity, found):
    """The impulse of a ball that stops is -m v."""
    limits = contact_limits(landing(ball), MU, states(velocity, (0.0, 0.0, 0.0)), np.zeros((1, 0)))
    assert {v.kind: v.excess for v in limits} == pytest.approx(found)
    assert {v.unit for v in limits} <= {"N s"}


def test_small_landings_outside_the_cone_are_reported(ball):
    """Their excess, 2 g s of the ball, is below the tolerance of limits; landings without load are no news."""
    ocp, times = landing(ball), np.array([0.3, 0.3])
    small = states((0.008, 0.0, -0.01), (0.0, 0.0, 0.0))
    assert contact_limits(ocp, MU, small, np.zeros((1, 0))) == []
    (sentence,) = landing_sentences(ocp, MU, small, times)
    assert sentence.startswith(
        "the impulse of base at 0.3 s, 0.016 N s along the ground and 0.02 N s upward, needs a friction of 0.80"
    )
    assert landing_sentences(ocp, 0.9, small, times) == []
    assert landing_sentences(ocp, MU, states((0.0008, 0.0, -0.0009), (0.0, 0.0, 0.0)), times) == []


@pytest.mark.parametrize(
    ("law", "pull"), [(SoftContactLaw(), 2.0 * 500.0 - 5000.0 * np.exp(-2.0)), (HuntCrossley(), None)]
)
def test_pulls_of_soft_ground(ball, law, pull):
    """The damper of the exponential law, 500 N s/m at the surface, pulls a ball that leaves it at 2 m/s; its spring pushes less.

    The law of Hunt and Crossley never pulls.
    """
    dynamics = SampledSystem(make_backend(SoftContact(ball, ["base"], law=law), engine="numpy"), "semi_implicit_euler")
    ocp = OCP.single_phase(dynamics, states((0.0, 0.0, 0.0))[0], 2, 0.01, [], [], model=ball)
    xs = states((0.0, 0.0, 0.0), (0.0, 0.0, 2.0), (0.0, 0.0, 0.0))
    found = contact_limits(ocp, None, xs, np.zeros((2, ocp.nu)))
    expected = [] if pull is None else [("soft-ground pull", 1, pytest.approx(pull))]
    assert [(v.kind, v.knot, v.excess) for v in found] == expected
    assert all('contact_law = "hunt_crossley"' in v.sentence() for v in found)


def test_a_standing_foot_that_moves_is_reported():
    """The displacement counts from the landing on, also over several phases; swings and small displacements do not."""
    settings = ["engine=numpy", "problem.swing=0.05", "problem.support=0.02", "problem.step_length=0.05"]
    task = build_task(load_config("hyq_trot_rigid", settings))
    xs = np.tile(task.ocp.x0, (task.ocp.horizon + 1, 1))
    us = np.zeros((task.ocp.horizon, task.ocp.nu))

    def drifts(xs):
        found = [v for v in task.contact_limits(xs, us) if v.kind == "stance drift"]
        return {v.name: (v.knot, v.excess) for v in found}

    assert drifts(xs) == {}
    limit = DRIFT * 0.68
    sinking = xs.copy()
    sinking[:, 2] -= np.linspace(0.0, 2.0 * limit, len(xs))
    ends = drifts(sinking)  # feet that swing first stand again for less time
    assert 0 < len(ends) <= 4 and all(0.0 < excess <= limit + 1e-4 for _, excess in ends.values())
    late = xs.copy()
    late[-1, 2] -= 1.5 * limit
    assert drifts(late) == {f: (len(xs) - 1, pytest.approx(0.5 * limit, abs=1e-4)) for f in task.feet}
    sentences = [v.sentence() for v in task.contact_limits(late, us) if v.kind == "stance drift"]
    assert all(text.endswith("; dt (smaller) or gains (kp > 0) enforces it") for text in sentences)
