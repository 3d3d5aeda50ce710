"""Browser viewer of motions with time slider, speed and layers; shows several robots, and a solve while it runs.

Access to its server is controlled by checks of the Host and Origin headers of requests, and an optional token. Pages of other sites
can reach a server on this machine by DNS rebinding or by WebSocket; their Host or Origin header reveals them. A token keeps out
clients that do not know it.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import ipaddress
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.annotations import Annotations
from trajopt.view.drawing import DrawnAnnotations, DrawnRobot, draw_ground
from trajopt.view.motion import ROUND, AnyMotion, with_annotations
from trajopt.view.surfaces import Geometry

COOKIE = "trajopt_token"
"""Name of the cookie, before its port, that carries the token after the first request."""
QUERY = "token"
Check = Callable[[Any, Any], Any]
"""Function of a websockets connection and request that returns a response, or None to accept the request."""


def is_loopback(host: str) -> bool:
    """True for a name or address that only this machine can reach."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_allowed(name: str | None, host: str) -> bool:
    """True if a Host header's name is valid for a server on ``host``; None, a missing name, is not.

    A loopback server accepts loopback names. Others also accept addresses (rebinding needs names) and the machine's names.
    """
    if name is None:
        return False
    if is_loopback(name):
        return True
    if is_loopback(host):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return True


def refusal(headers: Any, path: str, host: str, token: str | None) -> str | None:
    """Return the reason to refuse a request, or None to accept it.

    Reasons are a missing or wrong token, if one is set, the Origin of another page, and, if no token is set, a foreign Host name.
    headers: of websockets; path: of the request, with its query; host: address that the server listens on.
    """
    if token is not None:
        given = _request_token(headers, path)
        if given is None or not hmac.compare_digest(given.encode(), token.encode()):
            return "this view needs its token: open the address that was printed, which ends in ?token=..."
    hosts = headers.get_all("Host")
    name = _host_name(f"//{hosts[0]}") if len(hosts) == 1 else None
    if token is None and not is_allowed(name, host):
        return f"the name {name or 'missing'!r} does not belong to this view: open the address that was printed, or give it a token"
    origins = headers.get_all("Origin")
    if any(len(hosts) != 1 or urlsplit(origin).netloc != hosts[0] for origin in origins):
        return f"a page of {origins[0]} may not use this view"
    return None


def _request_token(headers: Any, path: str) -> str | None:
    """Return the token in a request's address, or else in its cookie; None if there is none."""
    asked = parse_qs(urlsplit(path).query).get(QUERY)
    if asked:
        return asked[0]
    for line in headers.get_all("Cookie"):
        for pair in line.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == _cookie_name(headers):
                return value
    return None


def _cookie_name(headers: Any) -> str:
    """Return the cookie name with the port of the Host header (80 if it has none): browsers send cookies to all ports of a host."""
    hosts = headers.get_all("Host")
    port = hosts[0].rpartition(":")[2] if hosts else ""
    return f"{COOKIE}_{port if port.isdigit() else 80}"


def _host_name(address: str) -> str | None:
    """Host name of an address, or None if it has none or is invalid."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


@contextlib.contextmanager
def guarded(host: str, token: str | None) -> Iterator[None]:
    """Context in which a started viser server checks each request (:func:`refusal`).

    It replaces the function of websockets that starts servers. Raises RuntimeError at its end if that was not called, so that the
    server does not check requests, which means an unsupported version of viser.
    """
    from websockets.asyncio import server as websockets_server

    original, started = websockets_server.serve, []

    def serve(*args: Any, process_request: Check | None = None, **options: Any) -> Any:
        """Start a websockets server with the check of requests."""
        started.append(True)
        return original(*args, process_request=_request_check(process_request, host, token), **options)

    websockets_server.serve = serve  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        websockets_server.serve = original  # type: ignore[misc]
    if not started:
        raise RuntimeError("this version of viser serves without the check of requests: install viser 1.1")


def _request_check(inner: Check | None, host: str, token: str | None) -> Check:
    """Return a check of requests: :func:`refusal`, then a cookie for a token in the address, then ``inner``."""

    def check(connection: Any, request: Any) -> Any:
        """Refuse a request with a reason, redirect one with a token in its address and set the cookie, else call ``inner``."""
        reason = refusal(request.headers, request.path, host, token)
        if reason is not None:
            return connection.respond(HTTPStatus.FORBIDDEN, reason + "\n")
        if token is not None and QUERY in parse_qs(urlsplit(request.path).query):
            response = connection.respond(HTTPStatus.SEE_OTHER, "")
            response.headers["Location"] = "/"
            cookie = f"{_cookie_name(request.headers)}={token}; HttpOnly; SameSite=Lax; Path=/"
            response.headers["Set-Cookie"] = cookie
            return response
        return None if inner is None else inner(connection, request)

    return check


FRAME_RATE = 40.0
"""Frames per second [Hz]."""
GOAL_SIZE = 0.02
"""Radius of a goal's ball, as a fraction of the scene's extent."""
NEAR = 0.55
"""Distance of the camera in extents of the scene, as a factor on TO_THE_CAMERA."""
MIN_EXTENT = 0.3
"""Minimum size of a scene [m]."""
TO_THE_CAMERA = np.array([1.0, -1.2, 0.7])
TO_THE_RIGHT = np.array([1.2, 1.0, 0.0]) / np.hypot(1.2, 1.0)
"""Horizontal direction to the right of the camera."""
APART = 0.1
"""Gap between robots side by side, in extents of the robots."""
WIDE = 0.45
"""Fraction of the length of a row of robots that is added to the extent of the scene for the distance of the camera.

It is below 1, because images are wider than high.
"""
HOST, PORT = "127.0.0.1", 8080


def server_for(host: str = HOST, port: int = PORT, token: str | None = None) -> Any:
    """Start a viser server that checks its requests; uses the next free port if the port is taken.

    Warns if other machines can reach the server. token: required from browsers; letters, digits, - and _. Raises
    ModuleNotFoundError without viser, ValueError for an invalid token, RuntimeError for an unsupported version of viser.
    """
    if token is not None and not re.fullmatch(r"[\w-]+", token, re.ASCII):
        raise ValueError("a token consists of letters, digits, - and _")
    try:
        import viser
    except ModuleNotFoundError as error:
        message = "the 3D view needs the package viser: pip install 'urdf-trajopt[view]'"
        raise ModuleNotFoundError(message, name="viser") from error
    if not is_loopback(host):
        known = "anyone who knows the token" if token is not None else "anyone"
        warnings.warn(
            f"host {host}: {known} can see the view and move its controls over the network, unencrypted; "
            f"{'' if token is not None else 'give a token, or '}keep 127.0.0.1 and forward the port (ssh -L)",
            stacklevel=3,
        )
    with _silent(), guarded(host, token):  # suppress its banner
        server = viser.ViserServer(host=host, port=port, verbose=False)
    server.scene.set_up_direction("+z")
    return server


def stop(server: Any) -> None:
    """Stop a server without printing its message."""
    with _silent():
        server.stop()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Suppress output, including that of rich in notebooks, which bypasses the output stream."""
    from rich import get_console

    console = get_console()
    before, console.quiet = console.quiet, True
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        console.quiet = before


def frames(motions: Sequence[AnyMotion]) -> Array:
    """Return the frame times (T,) [s] of simultaneous motions, from 0 to the end of the longest one, at about FRAME_RATE."""
    end = max(float(motion.times[-1]) for motion in motions)
    return np.linspace(0.0, end, max(round(end * FRAME_RATE), 1) + 1)


class Viewer:
    """Motions in a browser, at ``url``. ``show`` sets the time [s], ``close`` stops the server, ``wait`` blocks until Ctrl-C.

    motions: with unique names, shown together, starting at time 0. geometry: "visual", "collision" or "capsules". host, port,
    token: see :func:`server_for`. Raises ValueError without motions, and the errors of :func:`server_for`.
    """

    def __init__(
        self,
        motions: Sequence[AnyMotion],
        annotations: Annotations | None = None,
        *,
        geometry: Geometry = "visual",
        host: str = HOST,
        port: int = PORT,
        token: str | None = None,
    ) -> None:
        if not motions:
            raise ValueError("no motion to show")
        self.server, self._token = server_for(host, port, token), token
        self.annotations = annotations or Annotations()
        self.times = frames(motions)
        self.robots = {m.name: DrawnRobot(self.server.scene, m.at(self.times), geometry) for m in motions}
        self._around = [DrawnAnnotations(self.server.scene, self.annotations, GOAL_SIZE * extent(motions))]
        draw_ground(self.server.scene, self.annotations)
        look_at(self.server, motions, self.annotations)
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._add_controls()
        self.show(0.0)
        threading.Thread(target=self._play, daemon=True).start()

    @property
    def url(self) -> str:
        """Address of the page, with its token if it has one."""
        return (
            f"http://{self.server.get_host()}:{self.server.get_port()}{f'/?token={self._token}' if self._token else ''}"
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """Sentences about missing meshes."""
        return tuple(dict.fromkeys(sentence for robot in self.robots.values() for sentence in robot.missing))

    def show(self, t: float) -> None:
        """Show the frame nearest to a time t [s]; the time slider does not move."""
        i = int(np.argmin(np.abs(self.times - t)))
        with self._lock, self.server.atomic():
            for around in self._around:
                around.show(float(self.times[i]))
            for robot in self.robots.values():
                robot.show(i)

    def replace(self, name: str, motion: AnyMotion) -> None:
        """Replace the shown motion of this name by another one of the same robot, and show it at the present time."""
        with self._lock:
            self.robots[name].set_motion(replace(motion.at(self.times), name=name))
        self.show(float(self._slider.value))

    def add_choice(self, title: str, name: str, motions: Sequence[AnyMotion]) -> None:
        """Add a slider that selects which of ``motions`` is shown under a name, initially the last; nothing with fewer than two."""
        if len(motions) < 2:
            return
        last = len(motions) - 1
        slider = self.server.gui.add_slider(title, min=0, max=last, step=1, initial_value=last)
        slider.on_update(lambda _: self.replace(name, motions[int(slider.value)]))

    def arrange(self, side_by_side: bool) -> None:
        """Show the robots side by side, each with a copy of the annotations, or all in the same place; cameras are reset."""
        motions = [robot.motion for robot in self.robots.values()]
        low, high = with_annotations(*bounds(motions), self.annotations, ROUND * extent(motions))
        width = float(np.linalg.norm((high - low)[:2])) + APART * extent(motions)
        with self._lock, self.server.atomic():
            while len(self._around) < len(motions):
                name = f"around {len(self._around) + 1}"
                self._around.append(
                    DrawnAnnotations(self.server.scene, self.annotations, GOAL_SIZE * extent(motions), name)
                )
                self._around[-1].show(float(self._slider.value))
            for i, (robot, around) in enumerate(zip(self.robots.values(), self._around, strict=True)):
                offset = i * width * TO_THE_RIGHT if side_by_side else np.zeros(3)
                robot.place(offset)
                around.place(offset)
                around.set_visible(side_by_side or i == 0)
        row = (len(motions) - 1) * width * TO_THE_RIGHT if side_by_side else np.zeros(3)
        position, center = _camera(low, high, row)
        for client in self.server.get_clients().values():
            client.camera.position, client.camera.look_at = position, center

    def wait(self) -> None:
        """Block until Ctrl-C, which closes the viewer, or until the viewer is closed."""
        try:
            self._closed.wait()
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Stop the server, and end :meth:`wait`."""
        self._closed.set()
        stop(self.server)

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Return an iframe that shows the page in a notebook."""
        return f'<iframe src="{self.url}" width="100%" height="480" frameborder="0"></iframe>'

    def _add_controls(self) -> None:
        """Add time slider, play, speed and a check box for each robot; with several robots, "side by side"."""
        gui = self.server.gui
        end = float(self.times[-1])
        step = max(end / (len(self.times) - 1), 1e-6) if len(self.times) > 1 else 1.0
        self._slider = gui.add_slider("time [s]", min=0.0, max=max(end, step), step=step, initial_value=0.0)
        self._slider.on_update(lambda _: self.show(float(self._slider.value)))
        self._playing = gui.add_checkbox("play", initial_value=False)
        self._speed = gui.add_slider("speed", min=0.1, max=2.0, step=0.1, initial_value=1.0)
        for name, robot in self.robots.items():
            self._visibility(gui, name, robot)
        if len(self.robots) > 1:
            beside = gui.add_checkbox("side by side", initial_value=False)
            beside.on_update(lambda _: self.arrange(bool(beside.value)))

    def _visibility(self, gui: Any, name: str, robot: DrawnRobot) -> None:
        """Add a check box that shows or hides a robot."""
        box = gui.add_checkbox(name, initial_value=True)

        def changed(_: Any) -> None:
            """Show or hide the robot as the check box is set."""
            robot.set_visible(bool(box.value))

        box.on_update(changed)

    def _play(self) -> None:
        """Advance the time slider while "play" is selected, from 0 again after the end; returns when the viewer is closed."""
        while not self._closed.wait(1.0 / FRAME_RATE):
            if self._playing.value:
                after = float(self._slider.value) + float(self._speed.value) / FRAME_RATE
                self._slider.value = after if after <= self.times[-1] else 0.0


def bounds(motions: Sequence[AnyMotion]) -> tuple[Array, Array]:
    """Return the minimum and maximum coordinates (3) [m] of the motions over all times."""
    found = np.concatenate([motion.points() for motion in motions])
    return found.min(axis=0), found.max(axis=0)


def extent(motions: Sequence[AnyMotion]) -> float:
    """Return the diagonal of the box around the motions over all times [m], at least MIN_EXTENT."""
    low, high = bounds(motions)
    return max(float(np.linalg.norm(high - low)), MIN_EXTENT)


def look_at(server: Any, motions: Sequence[AnyMotion], annotations: Annotations) -> None:
    """Place the initial camera so that it shows motions and annotations obliquely from above."""
    camera = server.initial_camera
    camera.position, camera.look_at = _camera(*with_annotations(*bounds(motions), annotations, ROUND * extent(motions)))
    camera.up = (0.0, 0.0, 1.0)


def _camera(low: Array, high: Array, row: Array | None = None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return camera position and target for a box (low, high). row (3,) [m]: offset of the last of several boxes in a row."""
    row = np.zeros(3) if row is None else row
    center = 0.5 * (low + high + row)
    size = max(float(np.linalg.norm(high - low)), MIN_EXTENT) + WIDE * float(np.linalg.norm(row))
    return tuple((center + NEAR * size * TO_THE_CAMERA).tolist()), tuple(center.tolist())
