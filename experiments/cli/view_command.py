"""The command `trajopt view`: a saved solution in a browser, as a page, or as a picture."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from experiments.cli.cli_support import command, fail, results_folder, warn

if TYPE_CHECKING:
    from experiments.view.shown import Shown
    from trajopt import Solution
    from trajopt.view.surfaces import Geometry


PICTURES = (".png", ".jpg")
"""Kinds of pictures by the ends of their names."""


@click.command()
@click.argument("solutions", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--geometry", type=click.Choice(["visual", "collision", "capsules"]), default="visual", show_default=True)
@click.option("--page", type=click.Path(dir_okay=False), help="Write one HTML file instead of opening a window.")
@click.option("--screenshot", type=click.Path(dir_okay=False), help="Write a picture (PNG) of five poses instead.")
@click.option(
    "--video", type=click.Path(dir_okay=False), help="Write a film (.gif, .mp4) instead, drawn without a window."
)
@click.option("--guess", is_flag=True, help="Show the guess of the first one's problem too.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 lets other machines look.")
@click.option("--token", help="Ask a browser for this token; 'random' makes one. The printed address has it.")
@command
def view(
    solutions: tuple[str, ...],
    geometry: Geometry,
    page: str | None,
    screenshot: str | None,
    video: str | None,
    guess: bool,
    port: int,
    host: str,
    token: str | None,
) -> None:
    """Show saved SOLUTIONS in three dimensions, the second and later ones as ghosts."""
    from experiments.view.shown import shown
    from trajopt import Solution

    if screenshot is not None:
        require_picture(Path(screenshot))
    if page is not None:
        results_folder(Path(page).parent, (Path(page).name,), "--page")
    if video is not None:
        require_video(Path(video))
    loaded: list[Solution] = [Solution.load(path) for path in solutions]
    scene = shown(loaded, guess)
    warn(scene.doubts)
    if screenshot is not None:
        from experiments.plots.robot_picture import draw_poses

        warn(draw_poses(Path(screenshot), scene, geometry))
        click.echo(f"written to {screenshot}")
    if page is not None:
        from trajopt.view.page import write_page

        warn(write_page(Path(page), scene.motions, scene.marks, geometry)[1])
        click.echo(f"written to {page}")
    if video is not None:
        write_video(Path(video), scene, geometry)
    if page is None and screenshot is None and video is None:
        show_in_window(scene, geometry, host, port, secrets.token_urlsafe() if token == "random" else token)


def require_picture(path: Path) -> None:
    """See to it that a picture of this name can be written; else exit code 2."""
    if path.suffix.lower() not in PICTURES:
        fail(f"--screenshot {path}: the name of a picture ends in {' or '.join(PICTURES)}")
    results_folder(path.parent, (path.name,), "--screenshot")


def require_video(path: Path) -> None:
    """See to it, before anything is computed, that a film of this name can be written; else exit code 2."""
    from trajopt.view.video import require_film

    try:
        require_film(path)
    except (ValueError, ModuleNotFoundError) as error:
        fail(f"--video {path}: {error}")
    results_folder(path.parent, (path.name,), "--video")


def write_video(path: Path, scene: Shown, geometry: Geometry) -> None:
    """Write a film, and tell."""
    from trajopt.view.video import write_film

    warn(write_film(path, scene.motions, scene.marks, geometry)[1])
    click.echo(f"written to {path}")


def show_in_window(
    scene: Shown,
    geometry: Geometry = "visual",
    host: str = "127.0.0.1",
    port: int = 8080,
    token: str | None = None,
) -> None:
    """Show a scene in a browser until Ctrl-C."""
    from trajopt.view.viewer import Viewer

    with Viewer(scene.motions, scene.marks, geometry=geometry, host=host, port=port, token=token) as viewer:
        warn(viewer.missing)
        click.echo(f"the view is at {viewer.url}; Ctrl-C ends it")
        viewer.wait()
