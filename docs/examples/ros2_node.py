"""A node of ROS 2 that streams a plan to a robot's controller.

    python3 ros2_node.py out/trot/solution.npz --rate 500

It needs rclpy and the messages named below, and trajopt; the toolkit itself needs no ROS. At each tick of its timer it publishes

    ~/joint_commands    sensor_msgs/JointState          positions [rad, m], velocities, torques [N m, N] of the driven joints
    ~/base              nav_msgs/Odometry               pose in the world and velocity in the base's axes, of a floating base
    ~/gains             std_msgs/Float64MultiArray      K, a row a driven joint: u = effort + K (measured (-) planned)
    ~/contacts/NAME     geometry_msgs/WrenchStamped     what the ground exerts on a contact, in world axes
    ~/feet/NAME         geometry_msgs/PointStamped      where a foot is to be

and stops at the end of the plan, where the last setpoint is held by whoever listens. In a replanning loop publish
`publish(loop.setpoint(t, feet))` from its `on_tick` instead of the timer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import rclpy
from geometry_msgs.msg import PointStamped, WrenchStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension

import trajopt as to

WORLD, BASE = "world", "base_link"
LATEST = 1
"""Depth of the queues: a controller wants the newest setpoint, not all of them."""


class PlanStreamer(Node):
    """Publishes the setpoints of a plan at a rate [Hz]; feet: frames that are told too."""

    def __init__(self, ocp: to.OCP, stream: Iterator[to.Setpoint], rate: float) -> None:
        super().__init__("plan_streamer")
        self.model, self.stream = ocp.model, stream
        self.driven = [
            name[2:].removesuffix("]") for name in ocp.control_names
        ]  # u[joint], or a[joint], whose forces are told
        self.of_q = [self.model.q_names.index(name) for name in self.driven]
        self.of_v = [self.model.dof_names.index(name) for name in self.driven]
        self.joints = self.create_publisher(JointState, "~/joint_commands", LATEST)
        self.base = self.create_publisher(Odometry, "~/base", LATEST) if self.model.floating_base else None
        self.gains = self.create_publisher(Float64MultiArray, "~/gains", LATEST)
        self.others: dict[str, object] = {}
        self.timer = self.create_timer(1.0 / rate, self.tick)

    def tick(self) -> None:
        """Publish the next setpoint; the last one ends the stream."""
        setpoint = next(self.stream, None)
        if setpoint is None:
            self.timer.cancel()
        else:
            self.publish(setpoint)

    def publish(self, s: to.Setpoint) -> None:
        """One message of each kind, with one stamp."""
        stamp = self.get_clock().now().to_msg()
        q, v = s.x[: self.model.nq], s.x[self.model.nq :][: self.model.nv]
        command = JointState()
        command.header.stamp, command.name = stamp, list(self.driven)
        command.position, command.velocity = q[self.of_q].tolist(), v[self.of_v].tolist()
        command.effort = s.u.tolist()
        self.joints.publish(command)
        if self.base is not None:
            self.base.publish(self._odometry(stamp, q, v))
        self.gains.publish(_matrix(s.K))
        for name, force in s.forces.items():
            self._publisher(WrenchStamped, f"~/contacts/{_topic(name)}").publish(_wrench(stamp, force))
        for name, place in s.feet.items():
            self._publisher(PointStamped, f"~/feet/{_topic(name)}").publish(_point(stamp, place))

    def _odometry(self, stamp: object, q: Sequence[float], v: Sequence[float]) -> Odometry:
        """The base: q = position and quaternion x y z w in the world, v = linear and angular velocity in its own axes."""
        message = Odometry()
        message.header.stamp, message.header.frame_id, message.child_frame_id = stamp, WORLD, BASE
        pose, twist = message.pose.pose, message.twist.twist
        pose.position.x, pose.position.y, pose.position.z = map(float, q[:3])
        pose.orientation.x, pose.orientation.y, pose.orientation.z, pose.orientation.w = map(float, q[3:7])
        twist.linear.x, twist.linear.y, twist.linear.z = map(float, v[:3])
        twist.angular.x, twist.angular.y, twist.angular.z = map(float, v[3:6])
        return message

    def _publisher(self, kind: type, topic: str):
        if topic not in self.others:
            self.others[topic] = self.create_publisher(kind, topic, LATEST)
        return self.others[topic]


def _topic(name: str) -> str:
    """A name of a frame as one of a topic, which takes letters, digits and _ alone."""
    return "".join(c if c.isalnum() else "_" for c in name)


def _matrix(K) -> Float64MultiArray:
    message = Float64MultiArray(data=K.ravel().tolist())
    sizes = (("joint", K.shape[0], K.size), ("tangent", K.shape[1], K.shape[1]))
    message.layout.dim = [MultiArrayDimension(label=label, size=n, stride=stride) for label, n, stride in sizes]
    return message


def _wrench(stamp: object, force) -> WrenchStamped:
    message = WrenchStamped()
    message.header.stamp, message.header.frame_id = stamp, WORLD
    wrench = message.wrench
    wrench.force.x, wrench.force.y, wrench.force.z = map(float, force[:3])
    if len(force) == 6:
        wrench.torque.x, wrench.torque.y, wrench.torque.z = map(float, force[3:])
    return message


def _point(stamp: object, place) -> PointStamped:
    message = PointStamped()
    message.header.stamp, message.header.frame_id = stamp, WORLD
    message.point.x, message.point.y, message.point.z = map(float, place)
    return message


def main(arguments: Sequence[str] | None = None) -> None:
    """Stream a saved solution."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solution", help="a file that `trajopt solve` has saved")
    parser.add_argument("--rate", type=float, default=500.0, help="of the controller [Hz]")
    given, of_ros = parser.parse_known_args(arguments)
    solution = to.Solution.load(given.solution)
    problem = to.load_problem(solution)
    rclpy.init(args=of_ros)
    node = PlanStreamer(problem.ocp, to.setpoints(problem.ocp, solution, given.rate, problem.task.feet), given.rate)
    try:
        rclpy.spin(node)
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
