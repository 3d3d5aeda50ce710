"""Show solutions in 3D with one call each: in a browser, as an HTML page, or as a video.

view(solution)                      a browser window; view([a, b]) shows the second as a ghost
write_animation(path, solution)     an HTML file
write_video(path, solution)         a video, .gif or .mp4
watch(ocp)                          a callback of solve that shows the iterates

A solution stores the robot of its problem, goals, obstacles, and the shapes of a system without a robot model
(``OCP(..., annotations=Annotations(draw=...))``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.user_input import shortened
from trajopt.guesses.guesses import constant_guess
from trajopt.problem.annotations import Annotations, Drawn, problem_annotations
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.view.files import write_film, write_page
from trajopt.view.motion import AnyMotion, Motion, ShapeMotion
from trajopt.view.surfaces import Geometry
from trajopt.view.viewer import HOST, PORT, Viewer
from trajopt.view.watch import GHOST, Watch


def view(
    solution: Solution | Sequence[Solution],
    ocp: OCP | None = None,
    *,
    model: Model | None = None,
    guess: Guess | None = None,
    annotations: Annotations | None = None,
    tracks: Sequence[str] = (),
    forces: Mapping[str, Array] | None = None,
    geometry: Geometry = "visual",
    host: str = HOST,
    port: int = PORT,
    token: str | None = None,
) -> Viewer:
    """Show one or several solutions in a browser. ``viewer.url`` is the address, ``viewer.close()`` stops the server.

    ocp, model: problem or robot that replaces the one stored in the solution. guess: shown as a ghost. annotations: goals [m],
    obstacles and shapes that replace those of the solution; without shapes, those of the solution remain. tracks: frames, or bodies
    of ``Annotations.draw``, whose paths are drawn. forces: drawn as lines; frame -> (N + 1, 3) [N] in world axes, at the knots of
    the first solution. token: required from browsers; default: none. Raises ValueError without a robot and shapes, UnknownName for
    an unknown name in ``tracks`` or ``forces``, ModuleNotFoundError without viser.
    """
    around = task_annotations(solution, ocp, annotations)
    shown = motions(solution, ocp, model, guess, tracks, forces, around)
    return Viewer(shown, around, geometry=geometry, host=host, port=port, token=token)


def write_animation(
    path: str | os.PathLike[str],
    solution: Solution | Sequence[Solution],
    ocp: OCP | None = None,
    *,
    model: Model | None = None,
    guess: Guess | None = None,
    annotations: Annotations | None = None,
    tracks: Sequence[str] = (),
    forces: Mapping[str, Array] | None = None,
    geometry: Geometry = "visual",
) -> Path:
    """Write the motions of :func:`view` as one HTML file that works without server and network, and return its path.

    Raises the errors of :func:`view`, and OSError if the file cannot be written.
    """
    around = task_annotations(solution, ocp, annotations)
    return write_page(Path(path), motions(solution, ocp, model, guess, tracks, forces, around), around, geometry)[0]


def write_video(
    path: str | os.PathLike[str],
    solution: Solution | Sequence[Solution],
    ocp: OCP | None = None,
    *,
    model: Model | None = None,
    annotations: Annotations | None = None,
    tracks: Sequence[str] = (),
    forces: Mapping[str, Array] | None = None,
    geometry: Geometry = "visual",
) -> Path:
    """Write the motions of :func:`view` as a video, .gif or .mp4, drawn without a window, and return its path.

    Raises ValueError for another suffix, and without a robot and shapes; ModuleNotFoundError if MP4 lacks its package
    (extra view).
    """
    around = task_annotations(solution, ocp, annotations)
    return write_film(Path(path), motions(solution, ocp, model, None, tracks, forces, around), around, geometry)[0]


def watch(
    ocp: OCP,
    guess: Guess | None = None,
    *,
    annotations: Annotations | None = None,
    tracks: Sequence[str] = (),
    geometry: Geometry = "visual",
    host: str = HOST,
    port: int = PORT,
) -> Watch:
    """Return a callback that shows a solve in a browser: pass it to ``solve`` as ``callback``.

    guess: start of the solve, shown as a ghost; default: x0 at all knots. annotations: goals [m], obstacles and shapes that
    replace those of the problem; without shapes, those of the problem remain. tracks: frames or bodies whose paths are drawn.
    Raises ValueError without a robot and shapes, ModuleNotFoundError without viser.
    """
    around = task_annotations((), ocp, annotations)
    show = _motion_factory((), ocp, None, tracks, around)

    def motion_of(xs: Array) -> AnyMotion:
        """Motion of an iterate's states xs (N + 1, nx), at the times of its durations."""
        return show("solve", ocp.times_of(xs), xs)

    first = motion_of((guess or constant_guess(ocp)).xs)
    return Watch(first, motion_of, around, geometry=geometry, host=host, port=port)


def task_annotations(
    solution: Solution | Sequence[Solution], ocp: OCP | None, annotations: Annotations | None
) -> Annotations:
    """Return ``annotations``, or else the annotations of the problem, or else those of the first solution; empty without any.

    If ``annotations`` has no shapes, the shapes of the problem, or else of the solution, are added. Raises TypeError for what is
    no solution, such as a path.
    """
    first = solution if isinstance(solution, Solution) else next(iter(solution), None)
    if not isinstance(first, (Solution, NoneType)):
        raise TypeError(f"expected a solution, or several, not {type(solution).__name__} {shortened(repr(solution))}")
    known = problem_annotations(ocp) if ocp is not None else first.annotations if first is not None else None
    if annotations is None:
        return known or Annotations()
    return replace(annotations, draw=known.draw) if annotations.draw is None and known is not None else annotations


def motions(
    solution: Solution | Sequence[Solution],
    ocp: OCP | None = None,
    model: Model | None = None,
    guess: Guess | None = None,
    tracks: Sequence[str] = (),
    forces: Mapping[str, Array] | None = None,
    annotations: Annotations | None = None,
) -> list[AnyMotion]:
    """Return the motions of solutions and of the guess, if given; all but the first solution are ghosts.

    forces: of the first solution. annotations: with moving shapes for systems without a robot. Raises ValueError without a robot
    and shapes.
    """
    solutions = [solution] if isinstance(solution, Solution) else list(solution)
    around = task_annotations(solutions, ocp, annotations)
    show = _motion_factory(solutions, ocp, model, tracks, around)
    found: list[AnyMotion] = []
    for i, one in enumerate(solutions):
        name = "solution" if len(solutions) == 1 else f"solution {i + 1}"
        if isinstance(around.draw, Drawn) and one.annotations is not None:  # solutions from files store their own poses
            show = _motion_factory([one], ocp, model, tracks, one.annotations)
        motion = show(name, one.times, one.xs)
        if isinstance(motion, Motion):
            motion = replace(motion, forces=dict(forces or {}) if i == 0 else {})
        found.append(motion if i == 0 else replace(motion, opacity=GHOST))
    if guess is not None:
        times = solutions[0].times if ocp is None else ocp.times_of(guess.xs)
        found.append(replace(show("guess", times, guess.xs), tracks=(), opacity=GHOST))
    return found


def _motion_factory(
    solutions: Sequence[Solution], ocp: OCP | None, model: Model | None, tracks: Sequence[str], annotations: Annotations
) -> Callable[[str, Array, Array], AnyMotion]:
    """Return a function from name, times and states to a motion of the robot, or else of the annotations' shapes.

    The robot is ``model``, or that of the problem, or of the first solution. Raises ValueError without a robot and shapes.
    """
    robot: Any = model or (ocp.model if ocp is not None else None) or (solutions[0].model if solutions else None)
    title = ocp.name if ocp is not None else str(solutions[0].meta.get("problem", "")) if solutions else ""
    if robot is None and annotations.draw is None:
        raise ValueError(
            f"{title or 'the solution'} has no robot and no shapes to show: give the problem "
            "annotations=to.Annotations(draw=...), a function from a state to bodies, or model=... (to.load_urdf)"
        )

    def show(name: str, times: Array, xs: Array) -> AnyMotion:
        """Motion at times (N + 1,) [s] with states xs (N + 1, nx); entries that are not finite count as 0."""
        finite = np.where(np.isfinite(xs), xs, 0.0)
        if robot is not None:
            return Motion(name, robot, times, robot.configuration_of(finite), {}, tuple(tracks))
        drawn = annotations.drawn(finite)
        assert drawn is not None  # see above
        return ShapeMotion(name, drawn, times, title or name, tuple(tracks))

    return show
