"""The command `trajopt view`: a saved solution in a browser, as a page, or as a picture."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cli_support import command, content_checked, fail, results_folder, warn

if TYPE_CHECKING:
    from trajopt import Solution
    from trajopt.view.surfaces import Geometry
    from ..view.scenes import ViewerScene


PICTURES, PAGES = (".png", ".jpg"), (".html", ".htm")
"""File suffixes of pictures and of pages."""


@click.command()
@click.argument("solutions", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--geometry", type=click.Choice(["visual", "collision", "capsules"]), default="visual", show_default=True)
@click.option("--page", type=click.Path(dir_okay=False), help="Write one HTML file instead of opening the viewer.")
@click.option("--screenshot", type=click.Path(dir_okay=False), help="Write a PNG with five poses instead.")
@click.option("--video", type=click.Path(dir_okay=False), help="Write a video (.gif, .mp4) instead; needs no display.")
@click.option("--guess", is_flag=True, help="Also show the initial guess of the first solution.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 accepts other machines."
)
@click.option("--token", help="Token required from browsers; 'random' generates one. The printed address contains it.")
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
    """Show saved SOLUTIONS in 3D; the second and later ones are transparent."""
    from trajopt import Solution
    from ..view.scenes import solutions_scene

    if screenshot is not None:
        require_file(Path(screenshot), PICTURES, "--screenshot")
    if page is not None:
        require_file(Path(page), PAGES, "--page")
    if video is not None:
        require_video(Path(video))
    loaded: list[Solution] = [Solution.load(path) for path in solutions]
    with content_checked(", ".join(solutions)):
        scene = solutions_scene(loaded, guess)
    warn(scene.warnings)
    if screenshot is not None:
        from ..plots.robot_picture import draw_poses

        warn(draw_poses(Path(screenshot), scene, geometry))
        click.echo(f"written to {screenshot}")
    if page is not None:
        from trajopt.view.files import write_page

        warn(write_page(Path(page), scene.motions, scene.annotations, geometry)[1])
        click.echo(f"written to {page}")
    if video is not None:
        write_video(Path(video), scene, geometry)
    if page is None and screenshot is None and video is None:
        show_in_window(scene, geometry, host, port, secrets.token_urlsafe() if token == "random" else token)


def require_file(path: Path, suffixes: tuple[str, ...], option: str) -> None:
    """Exit with code 2 if the path of an option has none of the suffixes, or is not writable."""
    if path.suffix.lower() not in suffixes:
        fail(f"{option} {path}: the file name must end in {' or '.join(suffixes)}")
    results_folder(path.parent, (path.name,), option)


def require_video(path: Path) -> None:
    """Exit with code 2 if the path is not a valid video file."""
    from trajopt.view.files import require_film

    try:
        require_film(path)
    except (ValueError, ModuleNotFoundError) as error:
        fail(f"--video {path}: {error}")
    results_folder(path.parent, (path.name,), "--video")


def write_video(path: Path, scene: ViewerScene, geometry: Geometry) -> None:
    """Write a video and print its path."""
    from trajopt.view.files import write_film

    warn(write_film(path, scene.motions, scene.annotations, geometry)[1])
    click.echo(f"written to {path}")


def show_in_window(
    scene: ViewerScene,
    geometry: Geometry = "visual",
    host: str = "127.0.0.1",
    port: int = 8080,
    token: str | None = None,
) -> None:
    """Show a scene in a browser until Ctrl-C."""
    from trajopt.view.viewer import Viewer

    with Viewer(scene.motions, scene.annotations, geometry=geometry, host=host, port=port, token=token) as viewer:
        warn(viewer.missing)
        click.echo(f"viewer: {viewer.url} (stop with Ctrl-C)")
        viewer.wait()
