"""The example of a ROS 2 node, with a fake ROS that records messages."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import trajopt as to

NODE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "ros2_node.py"
RATE = 50.0


class FakeNode:
    """Fake of rclpy's Node with publishers, subscriptions, a timer and a clock."""

    made: list = []  # noqa: RUF012

    def __init__(self, name):
        self.name, self.sent, self.heard, self.now = name, {}, {}, 0
        FakeNode.made.append(self)

    def create_publisher(self, kind, topic, depth):
        return types.SimpleNamespace(publish=self.sent.setdefault(topic, []).append)

    def create_subscription(self, kind, topic, callback, depth):
        self.heard[topic] = callback

    def create_timer(self, period, callback):
        self.timer_of = period, callback

    def get_clock(self):
        return types.SimpleNamespace(now=lambda: types.SimpleNamespace(nanoseconds=self.now))

    def destroy_node(self):
        self.destroyed = True


@pytest.fixture
def ros(monkeypatch):
    """The module of the node, with ROS replaced."""
    message = types.SimpleNamespace
    fakes = {
        "rclpy": {"init": lambda args=None: None, "spin": lambda node: None, "try_shutdown": lambda: None},
        "rclpy.node": {"Node": FakeNode},
        "geometry_msgs": {},
        "geometry_msgs.msg": {"PointStamped": message},
        "sensor_msgs": {},
        "sensor_msgs.msg": {"JointState": message},
        "std_msgs": {},
        "std_msgs.msg": {"Float64MultiArray": message},
    }
    for name, entries in fakes.items():
        module = types.ModuleType(name)
        module.__dict__.update(entries)
        monkeypatch.setitem(sys.modules, name, module)
    FakeNode.made.clear()
    spec = importlib.util.spec_from_file_location("ros2_node", NODE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reach():
    """A double pendulum whose tip goes to a point."""
    model = to.load_robot("double_pendulum")
    robot = to.FreeBody(model)
    dynamics = to.SampledSystem(to.make_backend(robot, "analytic"), "semi_implicit_euler")
    x0 = np.array([0.3, -0.2, 0.0, 0.0])
    hold = to.inverse_dynamics(model, x0[:2], np.zeros(2), np.zeros(2))
    start = to.frame_placement(model, x0[:2], model.frames[-1].name)[1]
    goal = to.frame_position_cost(model, robot.manifold, model.frames[-1].name, start, 1e3, "goal")
    slow = to.state_cost(robot.manifold, x0, [0.0, 0.0, 1.0, 1.0], "speed")
    return to.OCP.single_phase(
        dynamics, x0, 20, 0.02, [to.control_cost(2, reference=hold, weight=1e-3), goal, slow], [goal, slow], model=model
    )


def state_of(ocp, x, order):
    names = [ocp.model.dof_names[i] for i in order]
    n = len(x) // 2
    return types.SimpleNamespace(name=names, position=x[:n][order], velocity=x[n:][order])


def test_the_node_drives_the_robot_to_its_goal(ros):
    ocp = reach()
    node = ros.MPCNode(ocp, RATE)
    period, tick = node.timer_of
    tick()
    assert period == 1.0 / RATE and not node.sent["effort_controller/commands"]  # no state was measured yet
    plant, x, tip = to.Simulator(ocp.phases[0].dynamics), ocp.x0, ocp.model.frames[-1].name
    start = to.frame_placement(ocp.model, x[:2], tip)[1]
    goal = to.frame_placement(ocp.model, x[:2] + [0.2, 0.15], tip)[1]
    node.heard["goal"](types.SimpleNamespace(point=types.SimpleNamespace(x=goal[0], y=goal[1], z=goal[2])))
    for k in range(100):
        node.now = 1_700_000_000_000_000_000 + int(1e9 * k / RATE)
        if k % 10 != 7:  # a message that is lost
            node.heard["joint_states"](state_of(ocp, x, [1, 0]))
        tick()
        u = np.array(node.sent["effort_controller/commands"][-1].data)
        x = plant.advance(x, u[None], 1.0 / RATE)
    end = to.frame_placement(ocp.model, x[:2], tip)[1]
    assert len(node.sent["effort_controller/commands"]) == 100
    assert np.linalg.norm(end - goal) < 0.1 * np.linalg.norm(start - goal)
    assert node.mpc.statistics()["events"] == {"no measurement": 10}


def test_efforts_end_without_measurements_and_begin_again_with_them(ros):
    ocp = reach()
    node, sent = ros.MPCNode(ocp, RATE), []
    for k in range(30):
        node.now = int(3e7 * k)
        if k < 5 or k >= 20:
            node.heard["joint_states"](state_of(ocp, ocp.x0, [1, 0]))
        node.timer_of[1]()
        sent.append(len(node.sent["effort_controller/commands"]))
    assert np.flatnonzero(np.diff(sent, prepend=0)).tolist() == [*range(8), *range(20, 30)]  # up to 0.1 s after step 4


def test_a_message_without_all_joints_is_ignored(ros):
    ocp = reach()
    node = ros.MPCNode(ocp, RATE)
    node.heard["joint_states"](state_of(ocp, ocp.x0, [1]))
    node.timer_of[1]()
    assert node.x is None and not node.sent["effort_controller/commands"]


def test_robots_that_are_not_fixed_are_refused(ros):
    model = to.load_robot("hyq")
    dynamics = to.SampledSystem(to.make_backend(to.FreeBody(model), "analytic"), "semi_implicit_euler")
    ocp = to.OCP.single_phase(
        dynamics, np.r_[model.neutral(), np.zeros(18)], 2, 0.01, [to.control_cost(12)], [], model=model
    )
    with pytest.raises(ValueError, match="expected a robot with a fixed base"):
        ros.MPCNode(ocp, RATE)


def test_the_command_controls_a_bundled_problem(ros, capsys):
    ros.main(["double_pendulum_swing_up", "--rate", "50"])
    (node,) = FakeNode.made
    assert node.destroyed and "solves" in capsys.readouterr().out
