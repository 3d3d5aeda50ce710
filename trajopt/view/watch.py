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
"""Opacity of the guess."""


class Watch:
    """Solver callback that shows the iterates; ``wait`` blocks until Ctrl-C, ``close`` stops the server.

    first: motion of the guess, shown as a ghost. motion_of: converts states (N + 1, nx) to a motion. Raises
    ModuleNotFoundError without viser.
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
        """Store the iterate of a record, and show it, at most every REFRESH seconds; a record without iterate is ignored."""
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
        """Store a motion; beyond MAX_ITERATES, every other stored one is dropped, and fewer are stored from then on."""
        self.iterates.append(motion)
        if len(self.iterates) > MAX_ITERATES:
            self.iterates, self._every = self.iterates[::2], 2 * self._every

    def wait(self) -> None:
        """Block until Ctrl-C, showing the last iterate and a slider over the earlier ones."""
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
        """Show the last iterate with a slider over the stored ones, to which it is added; None: do nothing."""
        self._last = None
        if last is None:
            return
        if not self.iterates or last is not self.iterates[-1]:
            self.iterates.append(last)
        self.viewer.replace(ITERATE, last)
        self.viewer.add_choice("iterate of the solve", ITERATE, self.iterates)
