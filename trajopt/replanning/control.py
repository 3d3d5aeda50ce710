"""Control of a plant by successive plans, shared by the replanning loop and :class:`~trajopt.replanning.mpc.MPC`."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.replanning.measurements import Observer
from trajopt.replanning.planning import Planning
from trajopt.replanning.run_log import EventKind, RunRecorder


class Control:
    """Controls of the current plan from the observed state; a control that is not finite is replaced by the last one.

    x0: (nx,) the state at t = 0. recorder: receives events.
    """

    def __init__(self, planning: Planning, x0: Array, recorder: RunRecorder) -> None:
        self.planning, self._recorder = planning, recorder
        self.observer = Observer(x0, planning.model.step)
        self._u = np.zeros(planning.model.problem.nu)

    def at(self, k: int, t: float) -> tuple[Array, Array]:
        """Observed state (nx,) and control (nu,) at tick k and time t [s]; the control is applied until the next tick."""
        x = self.observer.state(t, self.planning.reference(t))
        self.planning.tick(k, t, x)
        u = self.planning.control(t, x)
        if np.isfinite(u).all():
            self._u = u
        else:
            message = "a control of the plan is not finite; holding the last control"
            self._recorder.event(t, EventKind.BAD_CONTROL, message)
        self.observer.applied(t, self._u)
        return x, self._u
