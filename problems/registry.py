"""The problems by name, loaded when asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from dynamics_backends.names import unknown_name
from problems.task import Task

PROBLEMS = {
    "arm_go_to": "problems.arms.arm_go_to",
    "arm_in_scene": "problems.arms.scenes.arm_in_scene",
    "cart_pendulum": "problems.textbook.cart_pendulum",
    "cart_pole": "problems.textbook.cart_pole",
    "contour_following": "problems.arms.contour_following",
    "double_pendulum": "problems.textbook.double_pendulum",
    "four_bar": "problems.textbook.four_bar",
    "free_gait": "problems.legged.gaits.free_gait",
    "lifting": "problems.arms.lifting",
    "multi_pendulum": "problems.textbook.multi_pendulum",
    "quadruped_gait": "problems.legged.gaits.quadruped_gait",
    "receding_gait": "problems.legged.gaits.receding_gait",
    "scheduled_gait": "problems.legged.gaits.scheduled_gait",
}
"""name -> module with ``Settings`` and ``build``."""


class Problem(NamedTuple):
    """Settings is a frozen dataclass; build(settings, backend) returns a Task."""

    Settings: Any
    build: Callable[..., Task]


def load_problem(name: str) -> Problem:
    """The problem of this name. Raises UnknownName, with the nearest names."""
    if name not in PROBLEMS:
        raise unknown_name("problem", name, list(PROBLEMS))
    module = import_module(PROBLEMS[name])
    return Problem(module.Settings, module.build)
