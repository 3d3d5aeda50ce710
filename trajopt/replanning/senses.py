"""What a replanning loop knows of its plant and of the world around it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.replanning.measurements import Estimator, MovingObject, Observer
from trajopt.replanning.run_log import Account, EventKind
from trajopt.replanning.timing import SAME_TIME


class Senses:
    """The state, measured by the estimator and carried on by the observer, and the objects.

    tick: period of the control [s]. account: where events are noted.
    """

    def __init__(
        self, estimator: Estimator, observer: Observer, objects: Sequence[MovingObject], tick: float, account: Account
    ) -> None:
        self._estimator, self.observer, self.objects, self._account = estimator, observer, objects, account
        self._patience = max(estimator.patience, tick) - SAME_TIME
        self._heard: float | None = 0.0  # when the last measurement came; None where its absence is noted

    def measure(self, t: float, truth: Array) -> None:
        """Take in what becomes known at t [s], with the plant in the state ``truth`` (nx,)."""
        measured = self._estimator.measure(t, truth)
        if measured is None:
            self._note_silence(t)
        elif not np.isfinite(measured.value).all():
            told = "a measured state is not finite; using the model prediction"
            self._account.event(t, EventKind.BAD_MEASUREMENT, told)
        else:
            self.observer.correct(measured)
            self._heard = t
        for item in self.objects:
            if not item.observe(t):
                self._account.event(t, EventKind.BAD_MEASUREMENT, f"a measurement of {item.name!r} is not finite")

    def truths(self, t: float) -> list[Array]:
        """Where the objects are."""
        return [np.array(o.truth(t), dtype=float) for o in self.objects]

    def _note_silence(self, t: float) -> None:
        """An event for each time that no measurement comes for too long."""
        if self._heard is not None and t - self._heard > self._patience:
            self._heard = None
            self._account.event(t, EventKind.NO_MEASUREMENT, "no state measurements; using the model prediction")
