"""Perception of a replanning loop: state measurements and moving objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.replanning.measurements import Estimator, MovingObject, Observer
from trajopt.replanning.run_log import EventKind, RunRecorder
from trajopt.replanning.timing import SAME_TIME


class Perception:
    """Passes measurements of the estimator to the observer, and updates the objects.

    tick: control period [s]. recorder: receives events.
    """

    def __init__(
        self,
        estimator: Estimator,
        observer: Observer,
        objects: Sequence[MovingObject],
        tick: float,
        recorder: RunRecorder,
    ) -> None:
        self._estimator, self.observer, self.objects, self._recorder = estimator, observer, objects, recorder
        self._patience = max(estimator.patience, tick) - SAME_TIME
        self._last_measurement: float | None = 0.0  # time of the last measurement; None once its absence is recorded

    def measure(self, t: float, truth: Array) -> None:
        """Process the measurements that arrive at t [s]; truth: true state of the plant (nx,)."""
        measured = self._estimator.measure(t, truth)
        if measured is None:
            self._record_missing(t)
        elif not np.isfinite(measured.value).all():
            message = "a measured state is not finite; using the model prediction"
            self._recorder.event(t, EventKind.BAD_MEASUREMENT, message)
        else:
            self.observer.correct(measured)
            self._last_measurement = t
        for item in self.objects:
            if not item.observe(t):
                self._recorder.event(t, EventKind.BAD_MEASUREMENT, f"a measurement of {item.name!r} is not finite")

    def truths(self, t: float) -> list[Array]:
        """True positions of the objects at t [s]."""
        return [np.array(o.truth(t), dtype=float) for o in self.objects]

    def _record_missing(self, t: float) -> None:
        """Record one event for each period without measurements that exceeds the patience."""
        if self._last_measurement is not None and t - self._last_measurement > self._patience:
            self._last_measurement = None
            self._recorder.event(t, EventKind.NO_MEASUREMENT, "no state measurements; using the model prediction")
