"""Guesses that step on the spot."""

import numpy as np
import pytest

from problems.legged.gaits.quadruped_gait import Marching, Settings
from problems.task import SettingsError

JOINTS = tuple(np.tile([-0.2, 0.723, -1.458], 2)) + tuple(np.tile([-0.2, -0.723, 1.458], 2))
DRAWN = tuple(np.tile([-0.2, 1.023, -2.058], 2)) + tuple(np.tile([-0.2, -1.023, 2.058], 2))


def lifted(gait, times):
    """(N, legs, 3)"""
    standing = Settings(robot="hyq", joints=JOINTS).stand()
    offsets = Marching(gait=gait, period=0.8, joints=DRAWN).lifted(np.array(times), standing)
    return offsets.reshape(len(times), 4, 3)


def test_diagonal_legs_are_drawn_up_in_turn():
    """Legs are left front, right front, left hind, right hind."""
    at = lifted("trot", [0.0, 0.2, 0.4, 0.6, 0.8 / 12, 1.0])
    away = np.subtract(DRAWN, JOINTS).reshape(4, 3)
    np.testing.assert_allclose(at[[0, 2]], 0.0, atol=1e-12)
    for row, legs, share in ((1, [1, 2], 1.0), (3, [0, 3], 1.0), (4, [1, 2], 0.5), (5, [1, 2], 1.0)):
        expected = np.zeros((4, 3))
        expected[legs] = share * away[legs]
        np.testing.assert_allclose(at[row], expected, atol=1e-12)


def test_a_walk_draws_up_one_leg_at_a_time():
    at = np.abs(lifted("walk", 0.8 * (np.arange(4) + 0.5) / 4)).max(axis=2) > 0.1
    assert at.tolist() == np.eye(4, dtype=bool)[[2, 0, 3, 1]].tolist()


@pytest.mark.parametrize("wrong", [{"gait": "hop"}, {"period": 0.0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Marching(**{"period": 0.8, "joints": DRAWN} | wrong)
