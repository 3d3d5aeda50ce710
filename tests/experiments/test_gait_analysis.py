"""Duty factors, periods and phases of synthetic gaits whose numbers are known."""

import numpy as np
import pytest

from experiments.analysis.gait_analysis import analyze, diagonal_pairs, duty_factors

FEET = ("lf", "rf", "lh", "rh")
STEP = 0.01


def footfalls(period, duty, phases, horizon=2.5, step=STEP, jitter=0.0):
    """Contact signals (M, F): foot i lands at (k + phases[i]) period and stays for duty * period."""
    times = step * np.arange(round(horizon / step) + 1)
    at = times[:-1, None] + 0.5 * step + jitter
    return times, ((at / period - np.array(phases)) % 1.0) < np.array(duty)


@pytest.mark.parametrize(
    ("phases", "duty"),
    [
        ((0.0, 0.5, 0.5, 0.0), (0.5, 0.5, 0.5, 0.5)),  # trot
        ((0.0, 0.5, 0.0, 0.5), (0.6, 0.6, 0.6, 0.6)),  # pace
        ((0.0, 0.0, 0.5, 0.5), (0.4, 0.4, 0.4, 0.4)),  # bound
        ((0.0, 0.5, 0.75, 0.25), (0.8, 0.8, 0.8, 0.8)),  # walk
    ],
)
def test_a_periodic_gait_is_recognized(phases, duty):
    times, contact = footfalls(0.5, duty, phases)
    report = analyze(FEET, times, contact)
    assert report.period == pytest.approx(0.5, abs=STEP)
    assert np.allclose(report.duty, duty, atol=0.02)
    difference = report.shifts - np.array(phases)
    assert np.abs(difference - np.round(difference)).max() <= 0.021
    assert report.shift("rf", "rf") == 0.0


def test_shifts_between_feet_are_signed_and_wrap():
    times, contact = footfalls(0.4, (0.5,) * 4, (0.0, 0.25, 0.75, 0.05))
    report = analyze(FEET, times, contact)
    assert report.shift("lf", "rf") == pytest.approx(0.25, abs=0.03)
    assert report.shift("lf", "lh") == pytest.approx(-0.25, abs=0.03)
    assert report.shift("rf", "lf") == pytest.approx(-0.25, abs=0.03)


def test_uneven_time_steps_weigh_by_their_length():
    contact = np.array([[True], [False], [False]])
    assert duty_factors(contact, np.array([0.3, 0.1, 0.2])) == pytest.approx(0.5)
    times, even = footfalls(0.5, (0.5,) * 4, (0.0, 0.5, 0.5, 0.0))
    selected = np.sort(
        np.unique(np.r_[0, np.flatnonzero(np.diff(even.astype(int), axis=0).any(axis=1)) + 1, len(even), 3, 4])
    )
    report = analyze(FEET, times[selected], even[selected[:-1]])
    reference = analyze(FEET, times, even)
    assert report.period == pytest.approx(reference.period) and np.allclose(report.duty, reference.duty)


def test_standing_has_no_period():
    report = analyze(FEET, np.arange(51) * STEP, np.ones((50, 4), dtype=bool))
    assert np.isnan(report.period) and np.isnan(report.shifts).all() and (report.duty == 1.0).all()
    assert report.sentences() == ["on the ground: lf 100 %, rf 100 %, lh 100 %, rh 100 %"]


def test_a_foot_that_never_lands_has_no_phase():
    times, contact = footfalls(0.5, (0.5, 0.5, 0.5, 0.0), (0.0, 0.5, 0.5, 0.0))
    report = analyze(FEET, times, contact)
    assert np.isnan(report.shifts[3]) and np.isfinite(report.shifts[:3]).all()
    assert "period 0.500 s" in report.sentences()[1]


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="contact has shape"):
        analyze(FEET, np.arange(10), np.ones((10, 4), dtype=bool))


def test_diagonal_feet():
    assert diagonal_pairs(np.array([[0.3, 0.2], [0.3, -0.2], [-0.3, 0.2], [-0.3, -0.2]])) == [(0, 3), (1, 2)]
    assert diagonal_pairs(np.array([[0.3, 0.0], [-0.3, 0.0]])) == []
