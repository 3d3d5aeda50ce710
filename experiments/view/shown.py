"""From a saved solution, or a task and its solution, to motions and marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.mjcf.source import is_mjcf
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.urdf.xml_source import Element, read_xml
from problems.legged.gaits.gait_analysis import contact_forces
from trajopt import Guess, Solution
from trajopt.config.build import task_of_solution
from trajopt.config.task import Task
from trajopt.problem.marks import Marks
from trajopt.view.motion import AnyMotion
from trajopt.view.view import motions


class Shown(NamedTuple):
    """Motions, the first solid and the others ghosts; marks; sentences about what cannot be shown."""

    motions: list[AnyMotion]
    marks: Marks
    warnings: tuple[str, ...] = ()


def shown(solutions: Sequence[Solution], guess: bool = False) -> Shown:
    """What saved solutions show; the problem of the first, built again from its settings, gives goals, obstacles and the guess.

    Raises ValueError where there is neither a robot nor shapes.
    """
    task, warnings = task_of_solution(solutions[0])
    if task is None:
        marks = solutions[0].marks or Marks()
        script = "config" not in solutions[0].meta  # whose solution carries all there is to show
        lost = "forces are not shown"
        return Shown(motions(solutions), marks, () if script else tuple(f"{warning}: {lost}" for warning in warnings))
    found = of_task(solutions[0], task, solutions[0].meta.get("config"), task.guess if guess else None)
    others = motions(list(solutions), task.ocp)[1:] if len(solutions) > 1 else []
    return Shown([*found.motions, *others], found.marks, warnings)


def of_task(solution: Solution, task: Task, settings: Any = None, guess: Guess | None = None) -> Shown:
    """What the solution of a task shows; settings: of its problem, for the obstacles in them; guess: shown as a ghost."""
    on_time = on_the_clock(solution, task)
    forces = contact_forces(task.ocp, solution.xs, solution.us) if task.feet else {}
    names = {frame.name for frame in task.ocp.model.frames} if task.ocp.model is not None else set()
    acting = {name: force for name, force in forces.items() if name in names}
    moving = motions(on_time, task.ocp, guess=guess, tracks=tracks_of(task), forces=acting)
    return Shown(moving, marks_of(task, settings))


def tracks_of(task: Task) -> tuple[str, ...]:
    """The frames whose paths are drawn: the feet, or the task's frame."""
    return task.feet or (() if task.frame is None else (task.frame,))


def marks_of(task: Task, settings: Any = None) -> Marks:
    """What stands around; settings: of the task's problem, for the spheres in them."""
    goals = () if task.goal is None else (np.asarray(task.goal),)
    return Marks(goals, tuple(_spheres(settings)), () if task.scene is None else task.scene.bodies)


def on_the_clock(solution: Solution, task: Task | None) -> Solution:
    """The solution with the times of its motion, where these are not the problem's."""
    times = None if task is None else task.clock(solution.xs)
    return replace(solution, times=solution.times if times is None else times)


# -- joints --------------------------------------------------------------------------------------------------


def can_be_shown(model: Model | None) -> bool:
    """True if a robot's file gives shapes to its links, and the packages of the extra view are there."""
    if model is None or find_spec("viser") is None or not can_be_pictured(model):
        return False
    return bool(model.source) and (is_mjcf(model.source) or bool(_shapes(model.source)))


def can_be_pictured(model: Model | None) -> bool:
    """True if there is a robot, and the package that reads its meshes where its file names some."""
    if model is None:
        return False
    if not model.source or is_mjcf(model.source):
        return True
    meshes = any(geometry.all("mesh") for shape in _shapes(model.source) for geometry in shape.all("geometry"))
    return not meshes or find_spec("trimesh") is not None


def _shapes(urdf: str) -> list[Element]:
    """The elements by which a URDF file gives shapes to its links."""
    links = read_xml(urdf).all("link")
    return [shape for link in links for kind in ("visual", "collision") for shape in link.all(kind)]


def _spheres(settings: Any) -> Iterable[tuple[np.ndarray, float]]:
    """The spheres in the settings of a problem, one table or a list of them."""
    problem = (settings or {}).get("problem", {})
    obstacles = problem.get("obstacle") or problem.get("obstacles") or []
    for table in [obstacles] if isinstance(obstacles, dict) else obstacles:
        if "center" in table and "radius" in table:
            yield np.asarray(table["center"], float), float(table["radius"])
