"""Viewer scenes of saved solutions, of tasks with their solutions, and of a running solve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.mjcf.source import is_mjcf
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.urdf.xml_source import Element, read_xml
from trajopt import Guess, Solution
from trajopt.config.build import task_of_solution
from trajopt.config.task import Task
from trajopt.problem.annotations import Annotations
from trajopt.view.motion import AnyMotion, Motion
from trajopt.view.view import motions
from trajopt.view.watch import Watch
from ..analysis.gait_analysis import contact_forces


class ViewerScene(NamedTuple):
    """Motions (the first opaque, the others transparent), goals and obstacles, and warnings about missing parts."""

    motions: list[AnyMotion]
    annotations: Annotations
    warnings: tuple[str, ...] = ()


def solutions_scene(solutions: Sequence[Solution], guess: bool = False) -> ViewerScene:
    """Scene of saved solutions; goals, obstacles and guess are those of the first solution's problem, rebuilt from its settings.

    Raises ValueError if the solutions have neither a robot nor shapes.
    """
    task, warnings = task_of_solution(solutions[0])
    if task is None:
        annotations = solutions[0].annotations or Annotations()
        script = "config" not in solutions[0].meta  # the solution of a script contains its own scene
        lost = "forces are not shown"
        return ViewerScene(
            motions(solutions), annotations, () if script else tuple(f"{warning}: {lost}" for warning in warnings)
        )
    found = task_scene(solutions[0], task, solutions[0].meta.get("config"), task.guess if guess else None)
    others = motions(list(solutions), task.ocp)[1:] if len(solutions) > 1 else []
    return ViewerScene([*found.motions, *others], found.annotations, warnings)


def task_scene(solution: Solution, task: Task, settings: Any = None, guess: Guess | None = None) -> ViewerScene:
    """Scene of a task's solution. settings: configuration with obstacles; guess: shown as a transparent motion."""
    on_time = with_motion_times(solution, task)
    forces = contact_forces(task.ocp, solution.xs, solution.us) if task.feet else {}
    names = {frame.name for frame in task.ocp.model.frames} if task.ocp.model is not None else set()
    acting = {name: force for name, force in forces.items() if name in names}
    moving = motions(on_time, task.ocp, guess=guess, tracks=tracked_frames(task), forces=acting)
    return ViewerScene(moving, task_annotations(task, settings))


def tracked_frames(task: Task) -> tuple[str, ...]:
    """Return the frames whose paths are drawn: the feet, or the task's frame."""
    return task.feet or (() if task.frame is None else (task.frame,))


def task_annotations(task: Task, settings: Any = None) -> Annotations:
    """Return goals and obstacles of a task. settings: configuration with spheres."""
    goals = () if task.goal is None else (np.asarray(task.goal),)
    return Annotations(goals, tuple(_spheres(settings)), () if task.scene is None else task.scene.bodies)


def with_motion_times(solution: Solution, task: Task | None) -> Solution:
    """Return the solution with the times of its motion, which differ from the problem's times if durations are free."""
    times = None if task is None else task.clock(solution.xs)
    return replace(solution, times=solution.times if times is None else times)


# -- joints --------------------------------------------------------------------------------------------------


def has_link_shapes(model: Model | None) -> bool:
    """True if the robot's file has link shapes and the packages of the extra [view] are installed."""
    if model is None or find_spec("viser") is None or not can_be_drawn(model):
        return False
    return bool(model.source) and (is_mjcf(model.source) or bool(_shapes(model.source)))


def can_be_drawn(model: Model | None) -> bool:
    """True if there is a robot, and trimesh is installed if its file has meshes."""
    if model is None:
        return False
    if not model.source or is_mjcf(model.source):
        return True
    meshes = any(geometry.all("mesh") for shape in _shapes(model.source) for geometry in shape.all("geometry"))
    return not meshes or find_spec("trimesh") is not None


def _shapes(urdf: str) -> list[Element]:
    """Return the visual and collision elements of a URDF file."""
    links = read_xml(urdf).all("link")
    return [shape for link in links for kind in ("visual", "collision") for shape in link.all(kind)]


def _spheres(settings: Any) -> Iterable[tuple[np.ndarray, float]]:
    """Yield (center, radius) of the spheres in the settings of a problem: one table or a list of them."""
    problem = (settings or {}).get("problem", {})
    obstacles = problem.get("obstacle") or problem.get("obstacles") or []
    for table in [obstacles] if isinstance(obstacles, dict) else obstacles:
        if "center" in table and "radius" in table:
            yield np.asarray(table["center"], float), float(table["radius"])


def watch_task(task: Task, guess: Guess, settings: Any = None) -> Watch:
    """Return a solver callback that shows iterates with goals and obstacles. settings: configuration of the problem.

    Raises ValueError for a task without a robot, ModuleNotFoundError without viser.
    """
    model = task.ocp.model
    if model is None:
        raise ValueError(f"{task.ocp.name} has no robot to show")

    def motion_of(xs: Array) -> Motion:
        times = task.clock(xs)
        q = np.where(np.isfinite(xs), xs, 0.0)[:, : model.nq]
        return Motion("solve", model, task.ocp.times if times is None else times, q, tracks=tracked_frames(task))

    return Watch(motion_of(guess.xs), motion_of, task_annotations(task, settings))
