"""Show a solve in a browser: each iterate while it runs, and afterwards a slider over the iterates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from dynamics_backends.protocol import Array
from trajopt.problem.annotations import Annotations
from trajopt.results.records import IterationRecord
from trajopt.view.motion import AnyMotion
from trajopt.view.surfaces import Geometry
from trajopt.view.viewer import HOST, PORT, Viewer

REFRESH = 0.1
"""Minimum time between two updates of the view [s], so that the solve is not slowed down."""
MAX_ITERATES = 200
"""Maximum number of stored iterates; beyond it, every other one is dropped."""
ITERATE = "iterate"
GHOST = 0.25
"""Opacity of ghosts: the guess, and all but the first of several solutions."""


class Watch:
    """Solver callback that shows the iterates; ``wait`` blocks until Ctrl-C, ``close`` stops the server.

    first: motion of the guess, shown as a ghost, and before the first iterate in its place. motion_of: converts states (N + 1, nx)
    to a motion. Raises the errors of :func:`~trajopt.view.viewer.server_for`.
    """

    def __init__(
        self,
        first: AnyMotion,
        motion_of: Callable[[Array], AnyMotion],
        annotations: Annotations | None = None,
        *,
        geometry: Geometry = "visual",
        host: str = HOST,
        port: int = PORT,
    ) -> None:
        self._motion_of = motion_of
        shown = [replace(first, name=ITERATE, opacity=1.0), replace(first, name="guess", opacity=GHOST)]
        self.viewer = Viewer(shown, annotations, geometry=geometry, host=host, port=port)
        self.iterates: list[AnyMotion] = []
        self._last: AnyMotion | None = None
        self._every, self._seen, self._drawn = 1, 0, 0.0

    def __call__(self, record: IterationRecord) -> None:
        """Show the iterate of a record, at most every REFRESH seconds, and store it, or only some iterates of a long solve.

        A record without iterate is ignored.
        """
        if record.iterate is None:
            return
        self._last = motion = self._motion_of(record.iterate()[0])
        if self._seen % self._every == 0:
            self._store(motion)
        self._seen += 1
        now = time.perf_counter()
        if now - self._drawn >= REFRESH:
            self._drawn = now
            self.viewer.replace(ITERATE, motion)

    def _store(self, motion: AnyMotion) -> None:
        """Store a motion; beyond MAX_ITERATES, every other stored one is dropped, and half as many are stored from then on."""
        self.iterates.append(motion)
        if len(self.iterates) > MAX_ITERATES:
            self.iterates, self._every = self.iterates[::2], 2 * self._every

    def wait(self) -> None:
        """Show the last iterate and a slider over the stored ones, and block until Ctrl-C or until the viewer is closed."""
        self.finish(self._last)
        self.viewer.wait()

    def close(self) -> None:
        """Stop the server."""
        self.viewer.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def finish(self, last: AnyMotion | None) -> None:
        """Show the last iterate with a slider over the stored ones, to which it is added if it is not there; None: do nothing.

        With a single iterate there is no slider.
        """
        self._last = None
        if last is None:
            return
        if not self.iterates or last is not self.iterates[-1]:
            self.iterates.append(last)
        self.viewer.replace(ITERATE, last)
        self.viewer.add_choice("iterate of the solve", ITERATE, self.iterates)
