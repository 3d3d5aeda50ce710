"""Soft ground of legged robots in configurations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from contact_cases import FEET, hyq

import trajopt as to
from dynamics_backends.protocol import IMPLICIT_STEP, unwrapped
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley
from dynamics_backends.systems.contact.registry import CONTACT_LAWS
from problems.legged.contact.soft_ground import SoftGround
from trajopt.config.build import build_task
from trajopt.config.config import ConfigError, load_config

CONFIGS = Path(__file__).parents[3] / "problems/configs"
LAW = ["problem.contact_law=hunt_crossley", "problem.contact_parameters.stiffness=3e5"]


def ground(name: str, overrides: list[str]):
    """Return the system of the first phase of a configuration, with a short guess."""
    config = load_config(CONFIGS / f"{name}.toml", [*overrides, "engine=numpy"])
    dynamics = build_task(config).ocp.phases[0].dynamics
    return unwrapped(dynamics.system)


@pytest.mark.parametrize("name", ["hyq_stand", "hyq_trot_mpc"])
def test_a_configuration_names_the_law_and_its_numbers(name):
    assert ground(name, ["problem.horizon=2"]).law == to.SoftContactLaw()
    assert ground(name, ["problem.horizon=2", *LAW]).law == HuntCrossley(stiffness=3e5)


def test_a_scheduled_gait_on_soft_ground_has_the_law_too():
    soft = ["problem.contact=soft", "problem.swing=0.02", "problem.support=0.01"]
    assert ground("hyq_trot_rigid", [*soft, *LAW]).law == HuntCrossley(stiffness=3e5)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("problem.contact_law=hunt_crossly", "problem.contact_law: expected one of exponential, hunt_crossley"),
        (
            "problem.contact_parameters.stifness=3",
            r"problem.contact_parameters: expected numbers for the keys stiffness, .* \(did you mean 'stiffness'\?\), got ",
        ),
        (
            "problem.contact_law=relaxed_cone",
            "problem.integrator: expected semi_implicit_euler, required by contact_law = 'relaxed_cone'",
        ),
        ("problem.contact_parameters=3", "problem.contact_parameters: expected a table of numbers by name"),
    ],
)
def test_mistakes_are_reported_before_anything_is_built(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(CONFIGS / "hyq_stand.toml", [override])


@dataclass(frozen=True)
class Spring(to.StepLaw):
    """A spring that acts on the gap after the step."""

    stiffness: float = 2e4  # N/m

    def force(self, gap, n, w, p):
        after = gap + p[IMPLICIT_STEP][0] * n.dot(w)
        return n * (0.5 * self.stiffness * (to.sqrt(after * after + 1e-4) - after))

    def slower(self, time, p):
        return self, p


@pytest.mark.parametrize("problem", ["quadruped_gait", "free_gait"])
def test_a_robot_stands_on_the_ground_of_a_user_defined_step_law(problem, tmp_path, monkeypatch):
    monkeypatch.setitem(CONTACT_LAWS, "spring", Spring)
    file = tmp_path / "own.toml"
    file.write_text(f'engine = "numpy"\n[problem]\nname = "{problem}"\ncontact_law = "spring"\nhorizon = 2\n')
    task = build_task(load_config(file))
    gaps = unwrapped(task.ocp.phases[0].dynamics.system).gaps(task.ocp.x0)
    z = np.array([*gaps.values()])
    assert 4.0 * 1e4 * (np.sqrt(z * z + 1e-4) - z) == pytest.approx(9.81 * hyq().mass.sum(), rel=0.05)
    assert not task.easier  # this law has no relaxation


def test_a_robot_stands_on_either_ground():
    """The foot forces carry the weight, within the penetration range of the law."""
    model = hyq()
    for law in to.CONTACT_LAWS:
        system = SoftGround(contact_law=law).contact_dynamics(model, FEET)

        def carried(gap: float, law=system.law) -> float:
            w = Vec(*np.zeros((3, 1)))
            return 4.0 * law.force(np.array([gap]), Vec(0.0, 0.0, 1.0), w, {}).z.item()

        weight = 9.81 * model.mass.sum()
        assert carried(-0.02) > weight > carried(0.02)
