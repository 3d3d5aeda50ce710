"""Sensors with rate, delay, noise and faults; tracks of moving objects; the state between measurements; random motion."""

from __future__ import annotations

import numpy as np
import pytest
from replanning_cases import TICK, mass
from textbook_systems import spinning_body

from dynamics_backends.manifold import Manifold
from trajopt.replanning import measurements
from trajopt.replanning.measurements import Measurement, MovingObject, Observer, Sensor, Track, Wandering

LINE = Manifold.vector(1)


def series(sensor, ticks, tick=0.01):
    """Measurements of a sensor for x = t."""
    return [sensor.measure(k * tick, np.array([k * tick])) for k in range(ticks)]


def test_a_sensor_has_a_rate_and_a_delay():
    found = series(Sensor(LINE, 0.02, delay=0.01), 7)
    assert [None if m is None else round(m.time, 9) for m in found] == [None, 0.0, None, 0.02, None, 0.04, None]
    assert all(m is None or m.value[0] == pytest.approx(m.time) for m in found)


def test_measurements_are_dropped_and_corrupted_in_their_windows():
    found = series(Sensor(LINE, dropped=[(0.02, 0.04)], corrupted=[(0.05, 0.06)]), 7)
    assert [m is None for m in found] == [False, False, True, True, False, False, False]
    assert [k for k, m in enumerate(found) if m is not None and np.isnan(m.value[0])] == [5]


def test_noise_is_that_of_the_seed_and_stays_on_the_manifold():
    manifold = spinning_body().manifold
    truth = manifold.identity()

    def noisy(seed):
        sensor = Sensor(manifold, noise=0.1, seed=seed)
        return np.array([sensor.measure(0.01 * k, truth).value for k in range(400)])

    first = noisy(1)
    np.testing.assert_array_equal(first, noisy(1))
    assert np.any(first != noisy(2))
    np.testing.assert_allclose(np.linalg.norm(first[:, :4], axis=1), 1.0, atol=1e-12)
    spread = manifold.difference(np.tile(truth, (400, 1)).T, first.T).std(axis=1)
    np.testing.assert_allclose(spread, 0.1, rtol=0.15)  # four standard deviations of the estimate


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"period": "a"}, "period = 'a'; expected a number of seconds of at least 0"),
        ({"delay": -0.1}, "delay = -0.1; expected a number of seconds of at least 0"),
        ({"noise": -1.0}, r"noise = -1.0; expected a number of at least 0, or \(ndx = 1,\) of them"),
        ({"noise": [0.1, 0.2]}, r"noise = \[0.1, 0.2\]; expected a number of at least 0"),
    ],
)
def test_sensors_refuse_times_and_noise_that_cannot_be(changes, said):
    with pytest.raises(ValueError, match=said):
        Sensor(LINE, **changes)


def test_a_track_predicts_an_even_motion_exactly():
    track = Track(0.0, np.zeros(2), np.zeros(2))
    for t in (0.1, 0.25):
        track = track.updated(Measurement(t, np.array([2.0 * t, -t])))
    np.testing.assert_allclose(track.at(np.array([0.25, 1.0])), [[0.5, -0.25], [2.0, -1.0]], atol=1e-14)


def test_a_jump_is_no_speed():
    track = Track(0.0, np.zeros(1), np.array([0.3])).updated(Measurement(0.1, np.array([5.0])), max_speed=2.0)
    assert (track.position[0], track.velocity[0]) == (5.0, 0.0)


def test_smoothing_averages_over_noise():
    rng = np.random.default_rng(0)
    raw = smooth = Track(0.0, np.zeros(1), np.zeros(1))
    raw_errors, smooth_errors = [], []
    for k in range(1, 400):
        measured = Measurement(0.01 * k, np.array([0.01 * k]) + 1e-3 * rng.standard_normal(1))
        raw, smooth = raw.updated(measured), smooth.updated(measured, smoothing=0.2)
        raw_errors.append(raw.velocity[0] - 1.0)
        smooth_errors.append(smooth.velocity[0] - 1.0)
    assert np.std(smooth_errors[100:]) < 0.2 * np.std(raw_errors[100:])
    assert abs(np.mean(smooth_errors[100:])) < 0.02


def test_an_object_ignores_non_finite_measurements():
    item = MovingObject("goal", "goal", lambda t: [2.0 * t], Sensor(LINE, 0.1, corrupted=[(0.2, 0.3)]))
    assert item.observe(0.1) and not item.observe(0.2)
    np.testing.assert_allclose(item.prediction().at(np.array([0.5])), [[1.0]], atol=1e-14)
    item.predict_motion = False
    np.testing.assert_allclose(item.prediction().at(np.array([0.5])), [[0.2]], atol=1e-14)


def observer():
    dynamics = mass()
    return Observer(np.zeros(2), lambda x, u, t, dt: dynamics.step(x[None], u[None], t, dt)[0])


def under(controls, x=(0.0, 0.0)):
    """The exact motion of the mass under held controls."""
    q, v = x
    for u in controls:
        q, v = q + v * TICK + 0.5 * u * TICK**2, v + u * TICK
    return [q, v]


def test_the_state_follows_the_model_without_measurements():
    known, controls = observer(), [1.0, -2.0, 0.5]
    for k, u in enumerate(controls):
        known.applied(k * TICK, np.array([u]))
        np.testing.assert_allclose(known.state((k + 1) * TICK, np.zeros(2)), under(controls[: k + 1]), atol=1e-14)


def test_a_late_measurement_is_brought_to_the_present():
    known, controls = observer(), [1.0, -2.0, 0.5, 3.0]
    for k, u in enumerate(controls):
        known.state(k * TICK, np.zeros(2))
        known.applied(k * TICK, np.array([u]))
    known.correct(Measurement(2 * TICK, np.array([0.7, -0.1])))
    np.testing.assert_allclose(
        known.state(len(controls) * TICK, np.zeros(2)), under(controls[2:], (0.7, -0.1)), atol=1e-14
    )


def test_a_measurement_older_than_the_last_one_is_ignored():
    known, controls = observer(), [1.0, -2.0, 0.5, 3.0]
    for k, u in enumerate(controls):
        known.applied(k * TICK, np.array([u]))
    known.correct(Measurement(3 * TICK, np.array([0.7, -0.1])))
    known.correct(Measurement(1 * TICK, np.array([5.0, 5.0])))
    np.testing.assert_allclose(known.state(4 * TICK, np.zeros(2)), under(controls[3:], (0.7, -0.1)), atol=1e-14)


def test_a_gap_without_measurements_stores_a_limited_number_of_controls(monkeypatch):
    monkeypatch.setattr(measurements, "MAX_CONTROLS", 3)
    known, controls = observer(), [1.0, -2.0, 0.5, 3.0, -1.0, 0.2]
    for k, u in enumerate(controls):
        known.applied(k * TICK, np.array([u]))
        np.testing.assert_allclose(known.state((k + 1) * TICK, np.zeros(2)), under(controls[: k + 1]), atol=1e-14)
    assert len(known._controls) == 3
    known.correct(Measurement(4 * TICK, np.array([0.7, -0.1])))
    np.testing.assert_allclose(known.state(6 * TICK, np.zeros(2)), under(controls[4:], (0.7, -0.1)), atol=1e-14)


def test_a_model_that_fails_gives_way_to_the_fallback():
    known = Observer(np.zeros(2), lambda x, u, t, dt: x * np.nan)
    known.applied(0.0, np.zeros(1))
    np.testing.assert_array_equal(known.state(TICK, np.array([3.0, 4.0])), [3.0, 4.0])


def test_a_predicted_velocity_is_forgotten():
    """The position is the integral of a velocity that decays."""
    track = Track(1.0, np.array([2.0]), np.array([0.3]), memory=0.5)
    times = np.linspace(1.0, 4.0, 30001)
    speed = 0.3 * np.exp(-(times - 1.0) / 0.5)
    traveled = 2.0 + np.concatenate([[0.0], np.cumsum(0.5 * (speed[1:] + speed[:-1]) * np.diff(times))])
    np.testing.assert_allclose(track.at(times)[:, 0], traveled, atol=1e-8)
    later = track.updated(Measurement(1.1, np.array([2.02])))
    assert later.memory == 0.5 and later.velocity == pytest.approx([0.2])


# -- random motion ------------------------------------------------------------------------------------------------------


CENTER, SIZE, SPEED = np.array([1.0, 0.0, 2.0]), np.array([0.4, 0.5, 0.1]), 0.3


def test_it_stays_in_its_box_and_below_its_speed():
    times = np.arange(0.0, 30.0, 1e-3)
    wandering = Wandering(CENTER, SIZE, SPEED, 3)
    path = np.array([wandering(t) for t in times])
    assert (np.abs(path - CENTER) <= SIZE + 1e-12).all()
    speed = np.linalg.norm(np.diff(path, axis=0), axis=1) / 1e-3
    assert 0.99 * SPEED < speed.max() <= SPEED * (1.0 + 1e-9)
    assert np.ptp(path, axis=0).min() > 0.1  # it goes about


def test_its_places_are_those_of_the_seed():
    one, same, other = (Wandering(CENTER, SIZE, SPEED, seed) for seed in (1, 1, 2))
    late = one(20.0)
    same(3.0)  # whatever was asked before
    np.testing.assert_array_equal(late, same(20.0))
    assert np.abs(late - other(20.0)).max() > 1e-3


@pytest.mark.parametrize(("size", "speed"), [((0.0, 0.0, 0.0), 0.3), ((1.0, 1.0, -1.0), 0.3), ((1.0, 1.0, 1.0), 0.0)])
def test_a_box_and_a_speed_are_needed(size, speed):
    with pytest.raises(ValueError, match="positive"):
        Wandering(CENTER, np.array(size), speed, 0)
