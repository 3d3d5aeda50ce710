"""Quadruped gaits of Crocoddyl's examples as plain data: HyQ and ANYmal walk, trot, pace, bound and jump.

A gait is a list of knots. Keys: "stance" (stance feet), "feet" (goals of swing feet), "foot_weight", "center" (goal of
the center of mass, or None); or "lands" (feet of an impact). "end" is the terminal knot.

| gait | motion |
|---|---|
| walk | single feet swing by 0.25 m |
| trot, pace, bound | diagonal, lateral, or front and hind pairs swing by 0.15 m |
| jump | 0.3 m forward and 0.15 m high: 10 knots on the ground, 20 up, 20 down, an impact, 10 on the ground |

A swing has 25 knots of 10 ms along a triangle, after 2 (pace, bound: 5) knots on four feet. First steps are half as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import center_of_mass
from problems.robots import load_robot
from trajopt.config.task import position_of

Data = dict[str, Any]
COMMON = {"tight": 1e-18, "tolerance": 1e-9, "max_iterations": 300, "still": False}


class Quadruped(NamedTuple):
    """A quadruped. feet: left front, right front, left hind, right hind. standing: reference posture of the joints [rad]."""

    feet: tuple[str, str, str, str]
    standing: tuple[float, ...]


ROBOTS = {
    "hyq": Quadruped(
        ("lf_foot", "rf_foot", "lh_foot", "rh_foot"),
        (-0.2, 0.75, -1.5, -0.2, 0.75, -1.5, -0.2, -0.75, 1.5, -0.2, -0.75, 1.5),
    ),
    "anymal": Quadruped(
        ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"), (-0.1, 0.7, -1.0, 0.1, 0.7, -1.0, -0.1, -0.7, 1.0, 0.1, -0.7, 1.0)
    ),
}


class Steps(NamedTuple):
    """Parameters of a gait. rounds: groups of feet (indices of Quadruped.feet) that swing together, after ``support`` knots."""

    length: float
    height: float
    support: int
    rounds: tuple[tuple[tuple[int, ...], ...], ...]
    halved: int
    """Number of first steps with half the length."""


STEPS = {
    "walk": Steps(0.25, 0.15, 2, (((3,), (1,)), ((2,), (0,))), 2),
    "trot": Steps(0.15, 0.1, 2, (((1, 2),), ((0, 3),)), 1),
    "pace": Steps(0.15, 0.1, 5, (((1, 3),), ((0, 2),)), 1),
    "bound": Steps(0.15, 0.1, 5, (((0, 1),), ((2, 3),)), 1),
}
GAITS = (*STEPS, "jump")


def gait(robot: str, kind: str) -> Data:
    """Return the data of a gait of GAITS for a robot of ROBOTS."""
    feet, standing = ROBOTS[robot]
    model = load_robot(f"erd:{robot}", base="floating")
    q0 = np.concatenate([np.zeros(6), [1.0], standing])
    q0[2] = -np.mean([position_of(model, foot, q0)[2] for foot in feet])
    at = {foot: position_of(model, foot, q0) for foot in feet}
    center = np.append(np.mean([p[:2] for p in at.values()], axis=0), center_of_mass(model, q0)[2])
    hold: Data = {"stance": feet, "feet": {}, "center": None, "foot_weight": 0.0}
    knots = _jump(hold, at, center) if kind == "jump" else _steps(STEPS[kind], hold, at, center)
    state = [0.0] * 3 + [500.0] * 3 + [0.01] * 12 + [10.0] * 6 + [1.0] * 12
    impact = [1.0] * 6 + [10.0] * 12 + [10.0] * 18
    weights = {"control": 0.1, "center": 1e6, "cone": 10.0}
    weights |= {key: (10.0 * np.square(w)).tolist() for key, w in (("state", state), ("impact", impact))}
    return COMMON | {
        "kind": "trot",
        "robot": robot,
        "joints": list(model.q_names[7:]),
        "x0": [*q0.tolist(), *np.zeros(18)],
        "dt": 0.01,
        "friction": 0.7,
        "gain": 50.0,
        "weights": weights,
        "knots": knots,
        "end": hold,
        "still": True,
    }


def _steps(steps: Steps, hold: Data, at: dict[str, Array], center: Array) -> list[Data]:
    """Return the knots of all rounds. The center moves by the step length times the fraction of swing feet."""
    knots: list[Data] = []
    steps_taken = 0
    for group in steps.rounds:
        knots += [hold] * steps.support
        for numbers in group:
            length = steps.length * (0.5 if steps_taken < steps.halved else 1.0)
            feet, steps_taken = tuple(hold["stance"][i] for i in numbers), steps_taken + 1
            knots += _swing(feet, at, center, length, steps.height)
            center = center + [len(feet) / 4 * length, 0.0, 0.0]
            at = at | {foot: at[foot] + [length, 0.0, 0.0] for foot in feet}
    return knots


def _swing(
    feet: tuple[str, ...], at: Mapping[str, Array], center: Array, length: float, rise: float, knots: int = 25
) -> list[Data]:
    """Return the knots of a swing along a triangle, with the landing."""
    knots_of_swing: list[Data] = []
    stance = tuple(foot for foot in at if foot not in feet)
    for k in range(knots):
        half, forward = knots / 2, length * (k + 1) / knots
        height = rise * (k / half if k <= half else 1.0 - (k - half) / half)
        goals = {foot: (at[foot] + [forward, 0.0, height]).tolist() for foot in feet}
        goal = center + [len(feet) / 4 * forward, 0.0, 0.0]
        knots_of_swing.append({"stance": stance, "feet": goals, "center": goal.tolist(), "foot_weight": 1e6})
    return [*knots_of_swing, {"lands": feet, "feet": knots_of_swing[-1]["feet"], "foot_weight": 1e7}]


def _jump(hold: Data, at: Mapping[str, Array], center: Array) -> list[Data]:
    """Return the knots of a jump: stance, flight up and down, impact, stance."""
    forward, rise, ground, flight = np.array([0.3, 0.0, 0.0]), 0.15, 10, 20
    air: Data = {"stance": (), "feet": {}, "center": None, "foot_weight": 0.0}
    up = [{**air, "center": (center + (forward + [0.0, 0.0, rise]) * (k + 1) / flight).tolist()} for k in range(flight)]
    goals = {foot: (p + forward).tolist() for foot, p in at.items()}
    lands: Data = {"lands": hold["stance"], "feet": goals, "foot_weight": 1e7}
    landed = {**hold, "center": (center + forward).tolist()}
    return [*[hold] * ground, *up, *[air] * flight, lands, *[landed] * ground]
