"""A node of ROS 2 that controls a robot by MPC.

    python3 ros2_node.py ur5_moving_goal --rate 100

It needs rclpy and the messages named below, and trajopt; the toolkit itself needs no ROS. The node

    subscribes to   joint_states                 sensor_msgs/JointState        of a robot with a fixed base, joints in any order
                    goal                         geometry_msgs/PointStamped    in the world, for problems with a term "goal"
    publishes to    effort_controller/commands   std_msgs/Float64MultiArray    controls [N m, N] in the order of the problem

At each tick of its timer it plans from the newest measured state; without a new one the model predicts it. Nothing is published
before the first measurement, and once the last one is older than PATIENCE, until the next one: configure the effort controller to
stop the robot without commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import rclpy
from geometry_msgs.msg import PointStamped
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

import trajopt as to

LATEST = 1
"""Depth of the queues: the newest message counts, not all of them."""


PATIENCE = 0.1
"""Longest time [s] without a measured state in which efforts are published."""


class MPCNode(Node):
    """Plans and publishes at a rate [Hz]. Raises ValueError for a problem whose state is not the joints of a robot."""

    def __init__(self, ocp: to.OCP, rate: float) -> None:
        super().__init__("mpc")
        model = ocp.model
        if model is None or model.floating_base or ocp.manifold.nx != model.nq + model.nv:
            raise ValueError(
                f"problem {ocp.name!r}: expected a robot with a fixed base, whose state is (q, v) of its joints"
            )
        self.joints, self.x, self.measured = model.dof_names, None, False
        self.mpc = to.MPC(ocp, period=1.0 / rate)
        self.efforts = self.create_publisher(Float64MultiArray, "effort_controller/commands", LATEST)
        self.create_subscription(JointState, "joint_states", self.take, LATEST)
        self.create_subscription(PointStamped, "goal", self.aim, LATEST)
        self.timer = self.create_timer(1.0 / rate, self.tick)

    def take(self, message: JointState) -> None:
        """A measured state; messages that lack a joint are ignored."""
        positions, velocities = (dict(zip(message.name, v, strict=False)) for v in (message.position, message.velocity))
        if all(name in positions and name in velocities for name in self.joints):
            self.x = np.array([values[name] for values in (positions, velocities) for name in self.joints])

    def aim(self, message: PointStamped) -> None:
        """Set the goal of the robot to the point of a message."""
        self.mpc.set("goal", [message.point.x, message.point.y, message.point.z])

    def tick(self) -> None:
        """One step of the controller."""
        self.measured = self.measured or self.x is not None
        if self.measured:
            x, self.x = self.x, None
            u = self.mpc.step(x, 1e-9 * self.get_clock().now().nanoseconds)
            if self.mpc.measurement_age <= PATIENCE:
                self.efforts.publish(Float64MultiArray(data=u.tolist()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Control the robot of a problem until ROS stops the node, then print how planning went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", help="a name that `to.load_problem` knows, or the path of a configuration")
    parser.add_argument("--rate", type=float, default=100.0, help="of the controller [Hz]")
    given, of_ros = parser.parse_known_args(arguments)
    ocp = to.load_problem(given.problem).ocp
    rclpy.init(args=of_ros)
    node = MPCNode(ocp, given.rate)
    try:
        rclpy.spin(node)
    finally:
        print(node.mpc.statistics())
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
