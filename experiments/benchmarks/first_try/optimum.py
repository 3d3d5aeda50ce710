"""200 problems with several optima, to rate the optimum that a solver finds at first try.

Arms move a tool within one second from rest. They start straight (joints at zero, or at the nearest limit) or in a random posture.
The weights are those of aligator's UR5 example, with a tenfold goal weight and torques relative to their limits.

    reach           to a position, without limits
    half torque     to a position, with half of the torque limits
    tool in a box   to a position, half torque, the tool within a box around start and goal
    pose            to a pose at rest, as constraints, within torque, position and velocity limits
    obstacles       to a position, within the torque limits, points along the links outside of two spheres
    swing-up        pendulum, cart-pole and acrobot with bounded forces
    vehicles        a unicycle and a planar quadrotor among circles

The guess is the initial state at all knots, with zero controls, or with gravity compensation for half of the arm problems.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.robots import ROBOT_WARNINGS, robot_path
from experiments.benchmarks.first_try.instance import Instance
from experiments.benchmarks.robots.arm_goals import Arm, load_arm, ranges
from trajopt.config.task import position_of

ARMS = (
    "erd:ur5",
    "erd:panda",
    "iiwa7",
    "erd:kinova:j2s6s200_end_effector",
    "gen3",
    "erd:z1",
    "erd:xarm7",
    "erd:ur10",
)
KNOTS, DT = 100, 0.01
START_RANGE = 0.6
"""Range of random starts around the middle of the joint ranges, as a fraction of the joint ranges."""
TORQUE_WEIGHT = 1e-4 * 150.0**2
"""Weight of relative torques: aligator's 1e-4 at the UR5's limit of 150 N m."""
STATE_WEIGHTS, FINAL_STATE_WEIGHT, GOAL_WEIGHT, REST_WEIGHT = (1e-4, 1e-2), 1e-4, 100.0, 100.0
MARGIN = 0.05
"""Margin of a box around the start and the goal [m]."""
CARTS, CARTS_DT = 60, 0.04
GRAVITY = 9.81

Built = tuple[to.OCP, to.Guess]


def instances(seed: int = 0) -> list[Instance]:
    """Return all instances in mixed order, so that the first ones are of all families."""
    arms = [
        Instance(
            f"{_short_name(arm)} {family} {number}",
            "optimum",
            family,
            partial(_arm_problem, family, arm, number, seed),
            partial(_arm_data, family, arm, number, seed) if family in ("reach", "half torque") else None,
        )
        for family, count in (("reach", 5), ("half torque", 4), ("tool in a box", 3), ("pose", 4), ("obstacles", 4))
        for number in range(count)
        for arm in ARMS
    ]
    others = [
        Instance(f"{name} {number}", "optimum", family, partial(_random_problem, build, (seed, i, number)))
        for i, (name, family, build, count) in enumerate(SYSTEMS)
        for number in range(count)
    ]
    all_instances = [*arms, *others]
    order = np.random.default_rng(zlib.crc32(b"order")).permutation(len(all_instances))
    return [all_instances[i] for i in order]


def _random_problem(build: Callable[[np.random.Generator], Built], seed: tuple[int, int, int]) -> Built:
    """Build a random problem; every call returns the same one."""
    return build(np.random.default_rng(seed))


def _short_name(arm: str) -> str:
    return arm.removeprefix("erd:").split(":")[0]


# -- arms ----------------------------------------------------------------------------------------------------


@cache
def _arm(name: str) -> Arm:
    return load_arm(name)


class _Task(NamedTuple):
    """Motion of an arm from rest at q0 (nq,) to the goal (3,) [m], where the frame is at q (nq,); torques up to limits (nv,)."""

    arm: Arm
    q0: Array
    q: Array
    goal: Array
    limits: Array

    @property
    def x0(self) -> Array:
        """Initial state (nq + nv,)."""
        return np.concatenate([self.q0, np.zeros(self.arm.model.nv)])


def _arm_task(family: str, name: str, number: int, seed: int) -> _Task:
    """Draw the task of an arm; even numbers start with the straight arm, odd ones with a random posture."""
    with warnings.catch_warnings():
        for category in ROBOT_WARNINGS:
            warnings.simplefilter("ignore", category)
        arm = _arm(name)
    model = arm.model
    rng = np.random.default_rng([seed, zlib.crc32(f"{family} {name}".encode()), number])
    lower, upper = ranges(model)
    middle = 0.5 * (lower + upper)
    q0 = np.clip(0.0, lower, upper) if number % 2 == 0 else middle + START_RANGE * (rng.uniform(lower, upper) - middle)
    q = middle + START_RANGE * (rng.uniform(lower, upper) - middle)
    if family == "pose":  # goal within reach at the velocity limits
        q = q0 + min(1.0, float((0.5 * model.velocity_limit * KNOTS * DT / 1.875 / np.abs(q - q0)).min())) * (q - q0)
    limits = model.effort_limit * (0.5 if family in ("half torque", "tool in a box") else 1.0)
    return _Task(arm, q0, q, position_of(model, arm.frame, q), limits)


def _arm_problem(family: str, name: str, number: int, seed: int) -> Built:
    """Build an arm problem (:func:`_arm_task`)."""
    task = _arm_task(family, name, number, seed)
    arm, q0, q, goal, limits = task
    model, robot = arm.model, to.FreeBody(arm.model, damping=False)
    low, high = (None, None) if family == "reach" else (-limits, limits)
    running, terminal = _costs(arm, robot, task.x0, goal)
    path, final = _constraints(family, arm, robot, q0, q, goal)
    ocp = to.OCP.single_phase(
        to.SampledSystem(to.make_backend(robot, "analytic"), "semi_implicit_euler"),
        task.x0,
        KNOTS,
        DT,
        running,
        terminal[:1] if family == "pose" else terminal,
        constraints=path,
        terminal_constraints=final,
        model=model,
        name=family,
        u_lower=low,
        u_upper=high,
    )
    holding = to.inverse_dynamics(model, q0, np.zeros(model.nv), np.zeros(model.nv)) if number % 4 in (1, 2) else 0.0
    return ocp, to.constant_guess(ocp, np.clip(holding, -limits, limits))


def _arm_data(family: str, name: str, number: int, seed: int) -> dict[str, Any]:
    """Return the problem of :func:`_arm_problem`, without constraints, as data of crocoddyl_side.py."""
    task = _arm_task(family, name, number, seed)
    arm = task.arm
    return {
        "kind": "tool",
        "urdf": str(robot_path(arm.robot)),
        "locked": dict(arm.locked),
        "joints": list(arm.model.dof_names),
        "frame": arm.frame,
        "x0": task.x0.tolist(),
        "goal": task.goal.tolist(),
        "dt": DT,
        "horizon": KNOTS,
        "limits": None if family == "reach" else task.limits.tolist(),
        "state": np.repeat(STATE_WEIGHTS, arm.model.nv).tolist(),
        "control": (TORQUE_WEIGHT / arm.model.effort_limit**2).tolist(),
        "terminal": {"state": FINAL_STATE_WEIGHT, "goal": GOAL_WEIGHT, "rest": REST_WEIGHT},
    }


def _costs(arm: Arm, robot: to.FreeBody, x0: Array, goal: Array) -> tuple[list[to.CostTerm], list[to.CostTerm]]:
    model, manifold = arm.model, robot.manifold
    weights = np.repeat(STATE_WEIGHTS, model.nv)
    running = [
        to.state_cost(manifold, x0, weights, "posture"),
        to.control_cost(model.nv, weight=TORQUE_WEIGHT / model.effort_limit**2),
    ]
    terminal = [
        to.state_cost(manifold, x0, FINAL_STATE_WEIGHT, "final posture"),
        to.frame_position_cost(model, manifold, arm.frame, goal, GOAL_WEIGHT, "goal"),
        to.frame_velocity_cost(model, manifold, arm.frame, weight=REST_WEIGHT),
    ]
    return running, terminal


def _constraints(
    family: str, arm: Arm, robot: to.FreeBody, q0: Array, q: Array, goal: Array
) -> tuple[list[to.Constraint], list[to.Constraint]]:
    """Return path and terminal constraints."""
    model, manifold = arm.model, robot.manifold
    start = position_of(model, arm.frame, q0)
    if family == "tool in a box":
        place = to.frame_position_cost(model, manifold, arm.frame, np.zeros(3), name="box")
        corners = np.minimum(start, goal) - MARGIN, np.maximum(start, goal) + MARGIN
        return [to.bounded(place, *corners)], []
    if family == "obstacles":
        return [_obstacle(arm, robot, start, goal, fraction, i) for i, fraction in enumerate((0.35, 0.7))], []
    if family == "pose":
        rotation = to.frame_placement(model, q[None], arm.frame)[0][0]
        pose = to.frame_placement_cost(model, manifold, arm.frame, goal, rotation, name="pose")
        low, high = (np.repeat([free, 0.0], model.nv) for free in (-np.inf, np.inf))
        rest = to.state_bounds(manifold, low, high)
        return [to.joint_limits(model, manifold), to.velocity_limits(model, manifold)], [to.bounded(pose), rest]
    return [], []


def _obstacle(arm: Arm, robot: to.FreeBody, start: Array, goal: Array, fraction: float, i: int) -> to.Constraint:
    """Return a sphere between start and goal that leaves space around both."""
    center = start + fraction * (goal - start)
    radius = 0.4 * min(fraction, 1.0 - fraction) * float(np.linalg.norm(goal - start))
    last = to.link_points(arm.model, arm.frame, 0.1)[-1:]
    return to.sphere_obstacle(arm.model, robot.manifold, last, center, max(radius, 0.02), f"obstacle {i}")


# -- other systems -------------------------------------------------------------------------------------------


def _system_problem(
    f: Callable[..., list], nx: int, nu: int, x0: Array, running: list, terminal: list, **more
) -> Built:
    """Build a problem with dynamics dx/dt = f(x, u); the guess is the initial state at all knots."""
    system = to.FunctionMap(lambda x, u, t, p: f(x, u), nx, nu)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad"), "rk4")
    ocp = to.OCP.single_phase(dynamics, x0, CARTS, CARTS_DT, running, terminal, **more)
    return ocp, to.constant_guess(ocp)


def _pendulum(rng: np.random.Generator) -> Built:
    """Swing-up of a pendulum (1 kg, 1 m) with a torque limit below the torque of horizontal rest."""
    torque, angle = rng.uniform(3.0, 9.0), rng.uniform(-0.5, 0.5) * rng.integers(0, 2)
    goal = [np.pi, 0.0]
    manifold = to.Manifold.vector(2)
    return _system_problem(
        lambda x, u: [x[1], u[0] - GRAVITY * np.sin(x[0])],
        2,
        1,
        np.array([angle, 0.0]),
        [to.control_cost(1, weight=0.1), to.state_cost(manifold, goal, [0.1, 0.01])],
        [to.state_cost(manifold, goal, [100.0, 10.0])],
        u_lower=-torque,
        u_upper=torque,
    )


def _cart_pole(rng: np.random.Generator) -> Built:
    """Swing-up of a pole of random mass and length on a cart with a limited track."""
    mass, length, force = rng.uniform(0.1, 0.5), rng.uniform(0.3, 0.8), rng.uniform(6.0, 15.0)
    goal, manifold = np.array([0.0, np.pi, 0.0, 0.0]), to.Manifold.vector(4)

    def f(x, u):
        s, c = np.sin(x[1]), np.cos(x[1])
        push = u[0] + mass * s * (length * x[3] * x[3] + GRAVITY * c)
        a = push / (1.0 + mass * s * s)
        return [x[2], x[3], a, -(a * c + GRAVITY * s) / length]

    return _system_problem(
        f,
        4,
        1,
        np.array([rng.uniform(-0.5, 0.5), 0.0, 0.0, 0.0]),
        [to.control_cost(1, weight=0.01), to.state_cost(manifold, goal, 0.1)],
        [to.state_cost(manifold, goal, 200.0)],
        constraints=[to.state_bounds(manifold, [-1.5, *3 * [-np.inf]], [1.5, *3 * [np.inf]])],
        u_lower=-force,
        u_upper=force,
    )


def _acrobot(rng: np.random.Generator) -> Built:
    """Swing-up of an acrobot (two links of 1 kg and 1 m)."""
    torque, elbow = rng.uniform(8.0, 25.0), rng.uniform(-0.3, 0.3) * rng.integers(0, 2)
    goal, manifold = np.array([np.pi, 0.0, 0.0, 0.0]), to.Manifold.vector(4)
    m, l, inertia = 1.0, 1.0, 0.083
    c = 0.5 * l

    def f(x, u):
        bend, s2 = np.cos(x[1]), np.sin(x[1])
        m11 = 2.0 * inertia + m * c * c + m * (l * l + c * c + 2.0 * l * c * bend)
        m12, m22 = inertia + m * (c * c + l * c * bend), inertia + m * c * c
        g1 = GRAVITY * ((m * c + m * l) * np.sin(x[0]) + m * c * np.sin(x[0] + x[1]))
        g2 = GRAVITY * m * c * np.sin(x[0] + x[1])
        h = m * l * c * s2
        r1, r2 = h * (2.0 * x[2] * x[3] + x[3] * x[3]) - g1, u[0] - h * x[2] * x[2] - g2
        determinant = m11 * m22 - m12 * m12
        return [x[2], x[3], (m22 * r1 - m12 * r2) / determinant, (m11 * r2 - m12 * r1) / determinant]

    return _system_problem(
        f,
        4,
        1,
        np.array([0.0, elbow, 0.0, 0.0]),
        [to.control_cost(1, weight=0.01), to.state_cost(manifold, goal, [0.01, 0.01, 0.01, 0.01])],
        [to.state_cost(manifold, goal, [200.0, 200.0, 20.0, 20.0])],
        u_lower=-torque,
        u_upper=torque,
    )


def _circles(rng: np.random.Generator, start: Array, goal: Array, nx: int) -> list[to.Constraint]:
    """Return three circular obstacles; the first is halfway between start and goal."""
    centers = [0.5 * (start + goal), *(start + s * (goal - start) + rng.normal(0.0, 0.6, 2) for s in (0.3, 0.75))]
    found = []
    for i, center in enumerate(centers):
        clearance = min(float(np.linalg.norm(center - end)) for end in (start, goal)) - 0.3
        radius = float(np.clip(rng.uniform(0.3, 0.7), 0.05, max(clearance, 0.05)))
        found.append(
            to.residual_constraint(
                f"circle {i}",
                lambda x, u, t, p: [(x[0] - p["at"][0]) ** 2 + (x[1] - p["at"][1]) ** 2],
                to.Manifold.vector(nx),
                1,
                radius**2,
                np.inf,
                parameters={"at": center},
            )
        )
    return found


def _unicycle(rng: np.random.Generator) -> Built:
    """Unicycle with bounded speed and turn rate that moves past circles to a goal pose."""
    start, goal = np.zeros(2), np.array([3.0, rng.uniform(-0.5, 0.5)])
    at_goal, manifold = np.array([*goal, rng.uniform(-1.0, 1.0)]), to.Manifold.vector(3)
    return _system_problem(
        lambda x, u: [u[0] * np.cos(x[2]), u[0] * np.sin(x[2]), u[1]],
        3,
        2,
        np.array([*start, rng.uniform(-1.0, 1.0) * rng.integers(0, 2)]),
        [to.control_cost(2, weight=0.1)],
        [to.state_cost(manifold, at_goal, 100.0)],
        constraints=_circles(rng, start, goal, 3),
        u_lower=np.array([-2.5, -3.0]),
        u_upper=np.array([2.5, 3.0]),
    )


def _quadrotor(rng: np.random.Generator) -> Built:
    """Planar quadrotor that flies past circles to rest. State: x, y, angle and their rates; controls: two thrusts."""
    start, goal = np.zeros(2), np.array([3.0, rng.uniform(-0.5, 0.5)])
    at_goal, manifold = np.array([*goal, 0.0, 0.0, 0.0, 0.0]), to.Manifold.vector(6)
    arm, inertia = 0.2, 0.02

    def f(x, u):
        push = u[0] + u[1]
        return [x[3], x[4], x[5], -push * np.sin(x[2]), push * np.cos(x[2]) - GRAVITY, arm * (u[1] - u[0]) / inertia]

    ocp, guess = _system_problem(
        f,
        6,
        2,
        np.array([*start, 0.0, 0.0, 0.0, 0.0]),
        [
            to.control_cost(2, reference=GRAVITY / 2.0, weight=0.1),
            to.state_cost(manifold, at_goal, [0.0, 0.0, 0.1, 0.1, 0.1, 0.1]),
        ],
        [to.state_cost(manifold, at_goal, 100.0)],
        constraints=_circles(rng, start, goal, 6),
        u_lower=0.0,
        u_upper=GRAVITY,
    )
    return ocp, to.Guess(guess.xs, np.full_like(guess.us, GRAVITY / 2.0))


SYSTEMS: tuple[tuple[str, str, Callable[[np.random.Generator], Built], int], ...] = (
    ("pendulum", "swing-up", _pendulum, 6),
    ("cart-pole", "swing-up", _cart_pole, 8),
    ("acrobot", "swing-up", _acrobot, 6),
    ("unicycle", "vehicles", _unicycle, 10),
    ("planar quadrotor", "vehicles", _quadrotor, 10),
)
