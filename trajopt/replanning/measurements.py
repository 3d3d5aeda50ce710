"""Measurements of states and objects with noise, rate and delay, and predictions from them.

An object may wander (:class:`Wandering`): on straight lines between random positions in a box, at rest at each position. On a line
of length d with duration T = 3 d / (2 v), the traveled fraction is 3 s^2 - 2 s^3 with s = t / T, so the speed never exceeds v.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from trajopt.replanning.arguments import delay_seconds
from trajopt.replanning.workers import SAME_TIME

MAX_CONTROLS = 10_000
"""Number of latest controls that an observer stores: ticks up to which a measurement may be late after a long gap."""
Window = tuple[float, float]
"""Start and end of a time window [s]."""


class Measurement(NamedTuple):
    """Measured value (n,) and the time [s] that it refers to."""

    time: float
    value: Array


class Estimator(Protocol):
    """State estimator. patience: longest regular time [s] without a measurement; longer gaps become events of a run."""

    patience: float

    def measure(self, t: float, truth: Array) -> Measurement | None:
        """Return the measurement that arrives at t [s], or None; called at every tick, in order.

        truth: true state (nx,) at t.
        """


class Sensor:
    """Sensor that samples a state on a manifold every ``period`` [s] (0: at each call) and reports it ``delay`` [s] later.

    noise: standard deviation, a number or (ndx,), in the tangent space. dropped, corrupted: windows of the sampling time without
    measurements, and with NaN measurements. seed: of the noise. Raises ValueError for a negative period, delay or noise, and for
    noise of another size.
    """

    def __init__(
        self,
        manifold: Manifold,
        period: float = 0.0,
        *,
        noise: float | Sequence[float] = 0.0,
        delay: float = 0.0,
        dropped: Sequence[Window] = (),
        corrupted: Sequence[Window] = (),
        seed: int = 0,
    ) -> None:
        self.manifold = manifold
        self.period, self.delay = delay_seconds("period", period), delay_seconds("delay", delay)
        self.patience = self.period + self.delay
        self.noise = np.array(noise, dtype=float)
        if self.noise.shape not in ((), (manifold.ndx,)) or not (self.noise >= 0.0).all():
            raise ValueError(f"noise = {noise}; expected a number of at least 0, or (ndx = {manifold.ndx},) of them")
        self.dropped, self.corrupted = tuple(dropped), tuple(corrupted)
        self._random = np.random.default_rng(seed)
        self._due = 0.0
        self._pending: list[Measurement] = []

    def measure(self, t: float, truth: Array) -> Measurement | None:
        """Sample the true state if a sample is due; return the newest sample whose delay has passed at t [s], or None.

        At most one sample is taken at each call, and none within ``dropped``. Each sample is returned at most once; samples older
        than the returned one are discarded.
        """
        if t >= self._due - SAME_TIME:
            self._due += self.period if self.period else t - self._due
            if not _inside(self.dropped, t):
                self._pending.append(Measurement(t, self._sampled(t, truth)))
        known = [m for m in self._pending if m.time + self.delay <= t + SAME_TIME]
        self._pending = self._pending[len(known) :]
        return known[-1] if known else None

    def _sampled(self, t: float, truth: Array) -> Array:
        """Sample of the true state with noise; NaN in the windows with corrupted measurements."""
        if _inside(self.corrupted, t):
            return np.full(self.manifold.nx, np.nan)
        if not self.noise.any():
            return np.array(truth, dtype=float)
        off = self.noise * self._random.standard_normal(self.manifold.ndx)
        return np.asarray(self.manifold.integrate(truth, off))


def _inside(windows: Sequence[Window], t: float) -> bool:
    """True if t is in one of the windows, from its start to before its end."""
    return any(start - SAME_TIME <= t < end - SAME_TIME for start, end in windows)


class Track(NamedTuple):
    """Motion estimate of an object: position (n,) and velocity (n,) at a time [s].

    The predicted velocity decays as exp(-(t - time) / memory), the mean of a randomly changing velocity; it is constant for
    infinite memory [s].
    """

    time: float
    position: Array
    velocity: Array
    memory: float = np.inf

    def at(self, times: Array) -> Array:
        """Predicted positions (M, n) at times (M,) [s]."""
        elapsed = np.asarray(times)[:, None] - self.time
        lasting = elapsed if np.isinf(self.memory) else -self.memory * np.expm1(-elapsed / self.memory)
        return self.position + lasting * self.velocity

    def updated(self, measured: Measurement, max_speed: float = np.inf, smoothing: float = 0.0) -> Track:
        """Updated track after a measurement; a motion faster than ``max_speed`` counts as a jump, after which the object rests.

        A measurement that is not newer changes only the position. max_speed [m/s]. smoothing: time constant [s] of the running mean
        of measured velocities; 0: the latest one.
        """
        elapsed = measured.time - self.time
        if elapsed <= SAME_TIME:
            return self._replace(position=measured.value)
        velocity = (measured.value - self.position) / elapsed
        if np.linalg.norm(velocity) > max_speed:
            return Track(measured.time, measured.value, np.zeros_like(velocity), self.memory)
        weight = np.exp(-elapsed / smoothing) if smoothing else 0.0
        return Track(measured.time, measured.value, weight * self.velocity + (1.0 - weight) * velocity, self.memory)


@dataclass
class MovingObject:
    """Moving object that the problem depends on: a goal or an obstacle.

    name: of the cost terms and constraints that read it. parameter: their parameter for its position. truth: true position (n,) at
    a time [s]. sensor: measures it. max_speed [m/s], smoothing [s]: see :meth:`Track.updated`. predict_motion: extrapolate with the
    velocity; False: predict rest. memory [s]: of the prediction, see :class:`Track`. track: current estimate, at first the true
    position at time 0, at rest.
    """

    name: str
    parameter: str
    truth: Callable[[float], Array]
    sensor: Estimator
    max_speed: float = np.inf
    smoothing: float = 0.0
    predict_motion: bool = True
    memory: float = np.inf
    track: Track = field(init=False)

    def __post_init__(self) -> None:
        start = np.asarray(self.truth(0.0), dtype=float)
        self.track = Track(0.0, start, np.zeros_like(start), self.memory)

    def observe(self, t: float) -> bool:
        """Update the track with the measurement that arrives at t [s], if any.

        Returns False, without an update, if the measurement is not finite; else True.
        """
        measured = self.sensor.measure(t, np.asarray(self.truth(t), dtype=float))
        if measured is None:
            return True
        if not np.isfinite(measured.value).all():
            return False
        self.track = self.track.updated(measured, self.max_speed, self.smoothing)
        return True

    def prediction(self) -> Track:
        """Prediction from the current estimate; it predicts rest unless ``predict_motion``. Later measurements do not change it."""
        return self.track if self.predict_motion else self.track._replace(velocity=np.zeros_like(self.track.velocity))


class Observer:
    """State observer that predicts from the newest measurement with the controls applied since then.

    x0: (nx,) at t = 0. step: x_next (nx,) = step(x, u, t, dt) of the planning model.
    """

    def __init__(self, x0: Array, step: Callable[[Array, Array, float, float], Array]) -> None:
        self._step = step
        self._controls: list[tuple[float, Array]] = []
        self._at = 0  # index of the control applied at self._time
        self._time, self._state = 0.0, np.array(x0, dtype=float)
        self._measured = -np.inf  # time of the newest measurement

    def correct(self, measured: Measurement) -> None:
        """Restart the prediction from a finite measurement, which may be delayed.

        The controls applied since the time of the measurement are predicted again by the next :meth:`state`. A measurement that is
        older than the last one, as of packets in the wrong order, is ignored.
        """
        if measured.time < self._measured - SAME_TIME:
            return
        self._measured = measured.time
        starts = [t for t, _ in self._controls]
        del self._controls[
            : max(bisect_right(starts, measured.time + SAME_TIME) - 1, 0)
        ]  # controls that ended before the measurement
        self._time, self._state, self._at = measured.time, np.array(measured.value, dtype=float), 0

    def applied(self, t: float, u: Array) -> None:
        """Record the control u (nu,), which is applied from t [s] until the time of the next recorded control.

        Drops the oldest of more than MAX_CONTROLS, as during a long gap without measurements.
        """
        self._controls.append((t, u))
        if len(self._controls) > MAX_CONTROLS:
            del self._controls[0]
            self._at = max(self._at - 1, 0)

    def state(self, t: float, fallback: Array) -> Array:
        """Predict the state (nx,) at t [s] from the last measurement or prediction, and store it.

        The state is constant before the first control. If the prediction is not finite, stores and returns ``fallback`` (nx,).
        """
        while self._at < len(self._controls):
            begun, u = self._controls[self._at]
            last = self._at + 1 == len(self._controls)
            begun, end = max(begun, self._time), t if last else min(t, self._controls[self._at + 1][0])
            if end - begun > SAME_TIME:
                self._state = self._step(self._state, u, begun, end - begun)
            if last or end >= t:
                break
            self._at += 1
        self._time = max(self._time, t)
        if not np.isfinite(self._state).all():
            self._state = np.array(fallback, dtype=float)
        return self._state


class Wandering:
    """Random motion in a box with center (n,) and half sizes ``size`` (n,) [m], at a maximum speed [m/s]; seed: of the positions.

    See the module docstring. Raises ValueError for a box without extent or with a negative half size, and for a speed that is not
    positive.
    """

    def __init__(self, center: Array, size: Array, speed: float, seed: int) -> None:
        self._center, self._size, self._speed = np.asarray(center, dtype=float), np.asarray(size, dtype=float), speed
        if not (self._size.any() and (self._size >= 0.0).all() and speed > 0.0):
            raise ValueError(f"a box of half sizes {self._size} and a speed of {speed}: give positive numbers")
        self._random = np.random.default_rng(seed)
        self._places, self._times = [self._place()], [0.0]

    def __call__(self, t: float) -> Array:
        """Position (n,) at t >= 0 [s]."""
        while self._times[-1] <= t:
            place = self._place()
            self._times.append(self._times[-1] + 1.5 * float(np.linalg.norm(place - self._places[-1])) / self._speed)
            self._places.append(place)
        k = int(np.searchsorted(self._times, t, side="right")) - 1
        fraction = (t - self._times[k]) / (self._times[k + 1] - self._times[k])
        return self._places[k] + fraction * fraction * (3.0 - 2.0 * fraction) * (self._places[k + 1] - self._places[k])

    def _place(self) -> Array:
        """Random position in the box."""
        return self._center + self._size * self._random.uniform(-1.0, 1.0, len(self._center))
