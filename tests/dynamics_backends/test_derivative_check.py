"""Comparison of derivatives: errors above the accuracy of differences are mistakes, smaller ones are not."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.derivative_check import Points, first_order


def lines(slope, claimed):
    """The report for sin(3 + slope u) and central differences of sin(3 + claimed u)."""
    map = to.FunctionMap(lambda x, u, t, p: [np.sin(3.0 + slope * u[0])], 1, 1)
    other = to.FunctionMap(lambda x, u, t, p: [np.sin(3.0 + claimed * u[0])], 1, 1)
    at = Points(np.zeros((4, 1)), np.linspace(-1.0, 1.0, 4)[:, None], np.zeros(4), np.full(4, 0.1), np.arange(4))
    differences = to.make_backend(other, "central_difference", engine="numpy")
    by_method = {"central_difference": lambda: differences.jacobians(at.x, at.u, at.t, {})}
    return [line for line in first_order("map", map, ("fx", "fu"), at, {}, by_method) if line.block == "fu"]


def test_a_small_slope_of_a_large_value_is_lost_in_rounding():
    """eps / h of the value is 4e-11, which is 4e-5 of a slope of 1e-6."""
    (line,) = lines(1e-6, 1e-6)
    assert line.passed


@pytest.mark.parametrize("slope", [1.0, 1e-2])
def test_a_wrong_slope_is_detected(slope):
    (line,) = lines(slope, 1.001 * slope)
    assert not line.passed
    (line,) = lines(slope, slope)
    assert line.passed
