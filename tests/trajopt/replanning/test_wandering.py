"""Random motion of points: bounds on position and speed, continuity, seeds."""

import numpy as np
import pytest

from trajopt.replanning.wandering import Wandering

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
