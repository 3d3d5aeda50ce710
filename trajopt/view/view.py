"""Solutions in three dimensions, by one call each: in a browser, or as a page.

view(solution, ocp)                      a window; view([a, b], ocp) shows several as ghosts of the first
write_animation(path, solution, ocp)     one HTML file
write_video(path, solution, ocp)         a film, .gif or .mp4
watch(ocp)                               a callback of solve that shows the iterates
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from trajopt.guesses.guesses import Guess, constant_guess
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.view.motion import Marks, Motion
from trajopt.view.page import write_page
from trajopt.view.surfaces import Geometry
from trajopt.view.video import write_film
from trajopt.view.viewer import HOST, PORT, Viewer
from trajopt.view.watch import GHOST, Watch


def view(
    solution: Solution | Sequence[Solution],
    ocp: OCP | None = None,
    *,
    model: Model | None = None,
    guess: Guess | None = None,
    marks: Marks | None = None,
    tracks: Sequence[str] = (),
    geometry: Geometry = "visual",
    host: str = HOST,
    port: int = PORT,
) -> Viewer:
    """Show a solution, or several over each other, in a browser; the viewer tells its address and is closed by ``close``.

    ocp, model: the problem or the robot; without both the solution's own robot. guess: shown as a ghost. marks: goals [m], spheres.
    tracks: frames whose paths are drawn. Raises ValueError where no robot is known, ModuleNotFoundError without viser.
    """
    shown = motions(solution, ocp, model, guess, tracks)
    return Viewer(shown, marks, geometry=geometry, host=host, port=port)


def write_animation(
    path: str | os.PathLike[str],
    solution: Solution | Sequence[Solution],
    ocp: OCP | None = None,
    *,
    model: Model | None = None,
    guess: Guess | None = None,
    marks: Marks | None = None,
    tracks: Sequence[str] = (),
    geometry: Geometry = "visual",
) -> Path:
    """Write what :func:`view` shows as one HTML file that needs neither server nor network. Raises as it does."""
    return write_page(Path(path), motions(solution, ocp, model, guess, tracks), marks, geometry)[0]


def write_video(
    path: str | os.PathLike[str],
    solution: Solution | Sequence[Solution],
    ocp: OCP | None = None,
    *,
    model: Model | None = None,
    marks: Marks | None = None,
    tracks: Sequence[str] = (),
    geometry: Geometry = "visual",
) -> Path:
    """Write what :func:`view` shows as a film, .gif or .mp4, drawn without a window.

    Raises ValueError for another ending or where no robot is known, ModuleNotFoundError where MP4 lacks its package (extra video).
    """
    return write_film(Path(path), motions(solution, ocp, model, None, tracks), marks, geometry)[0]


def watch(
    ocp: OCP,
    guess: Guess | None = None,
    *,
    marks: Marks | None = None,
    tracks: Sequence[str] = (),
    geometry: Geometry = "visual",
    host: str = HOST,
    port: int = PORT,
) -> Watch:
    """Show a solve in a browser while it converges: give what is returned as ``callback`` to ``solve``.

    guess: where the solve starts, shown as a ghost; default x0 at all knots. marks: goals [m], spheres. tracks: frames whose paths
    are drawn. Raises ValueError where no robot is known, ModuleNotFoundError without viser.
    """
    robot = robot_of((), ocp, None)

    def motion_of(xs: Array) -> Motion:
        return _motion("solve", robot, ocp.times_of(xs), xs, tracks, None, 1.0)

    first = motion_of((guess or constant_guess(ocp)).xs)
    return Watch(first, motion_of, marks, geometry=geometry, host=host, port=port)


def motions(
    solution: Solution | Sequence[Solution],
    ocp: OCP | None = None,
    model: Model | None = None,
    guess: Guess | None = None,
    tracks: Sequence[str] = (),
    forces: dict[str, Array] | None = None,
) -> list[Motion]:
    """The motions of solutions, and of the guess: all but the first are ghosts.

    Raises ValueError where no robot is known.
    """
    solutions = [solution] if isinstance(solution, Solution) else list(solution)
    robot = robot_of(solutions, ocp, model)
    found = []
    for i, one in enumerate(solutions):
        name = "solution" if len(solutions) == 1 else f"solution {i + 1}"
        found.append(
            _motion(name, robot, one.clock, one.xs, tracks, forces if i == 0 else None, 1.0 if i == 0 else GHOST)
        )
    if guess is not None:
        times = solutions[0].times if ocp is None else ocp.times_of(guess.xs)
        found.append(_motion("guess", robot, times, guess.xs, (), None, GHOST))
    return found


def robot_of(solutions: Sequence[Solution], ocp: OCP | None, model: Model | None) -> Model:
    """The robot that moves. Raises ValueError where nothing tells it."""
    robot: Any = model or (ocp.model if ocp is not None else None) or (solutions[0].model if solutions else None)
    if robot is None:
        raise ValueError("no robot is known to this solution: give the problem or model=... (to.load_urdf)")
    return robot


def _motion(
    name: str,
    model: Model,
    times: Array,
    xs: Array,
    tracks: Sequence[str],
    forces: dict[str, Array] | None,
    opacity: float,
) -> Motion:
    q = np.where(np.isfinite(xs), xs, 0.0)[:, : model.nq]
    return Motion(name, model, times, q, forces or {}, tuple(tracks), opacity)
