"""Gaits with enabled joint limits of their robot."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from contact_cases import STANCE

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.robots import robot_path
from trajopt.config.registry import PROBLEMS

NUMPY = partial(make_backend, engine="numpy")
SHORT = {"joints": tuple(STANCE), "swing": 0.04, "support": 0.01, "step_length": 0.02, "step_height": 0.01}
ASKED = dict.fromkeys(("torque_limits", "position_limits", "velocity_limits"), True)
GAITS = {"scheduled_gait": SHORT, "quadruped_gait": {"horizon": 5}, "receding_gait": {}, "free_gait": {}}


def built(name, **settings):
    problem = PROBLEMS[name]
    return problem.build(problem.Settings(**GAITS[name] | settings), NUMPY)


def beyond(ocp):
    """Return a motion at rest, except for a joint, its velocity and a torque beyond their limits at knot 2."""
    model = ocp.model
    xs, us = np.tile(ocp.x0, (ocp.horizon + 1, 1)), np.zeros((ocp.horizon, ocp.nu))
    xs[2, 9], xs[2, model.nq + 8], us[2, 4] = model.q_upper[9] + 0.1, -model.velocity_limit[8] - 1.0, 200.0
    return xs, us


@pytest.mark.parametrize("name", GAITS)
def test_limits_are_reported_and_hold_if_requested(name):
    plain, limited = built(name).ocp, built(name, **ASKED).ocp
    violations = to.limit_violations(plain, *beyond(plain))
    assert sorted(b.kind for b in violations) == ["position", "torque", "velocity"] and not any(
        b.enforced for b in violations
    )
    held = to.limit_violations(limited, *beyond(limited))
    assert sorted(b.kind for b in held) == ["constraint", "constraint", "control"] and all(b.enforced for b in held)
    assert sorted(b.excess for b in held) == pytest.approx([0.1, 1.0, 50.0])
    assert to.validate(limited) == []


def test_a_motion_within_the_torques_of_weaker_motors(tmp_path):
    def solved(**settings):
        task = built("scheduled_gait", control_weight=1e-3, **settings)
        solution = to.solve(task.ocp, task.guess, {"max_iterations": 40, "gradient_tolerance": 1e-6}, solver="fddp")
        assert solution.status.success, solution.status
        return task.ocp, solution

    ocp, free = solved()
    lasting = free.us[ocp.dt > 0.0]  # torques at impacts have no effect
    limit = round(0.9 * np.abs(lasting).max(), 1)
    weak = tmp_path / "weak.urdf"
    weak.write_text(robot_path("hyq").read_text().replace('effort="150"', f'effort="{limit}"'))
    ocp, solution = solved(robot=str(weak), torque_limits=True)
    assert np.abs(solution.us).max() == pytest.approx(limit) and solution.cost > free.cost
    assert to.limit_violations(ocp, solution.xs, solution.us) == []


def test_a_robot_without_limits_of_torque_is_reported(tmp_path):
    file = tmp_path / "strong.urdf"
    file.write_text(robot_path("hyq").read_text().replace('effort="150"', 'effort="0"'))
    with pytest.raises(ValueError, match="torque_limits = true, but the file of hyq has no effort limits"):
        built("scheduled_gait", robot=str(file), torque_limits=True)
