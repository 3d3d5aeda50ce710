"""Plots of solutions: labels within the picture, and attempts of the solver auto apart."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import trajopt as to
from experiments.plots import canvas, plotting
from problems.robots import robot_path
from trajopt import IterationRecord


@pytest.fixture
def drawn(monkeypatch):
    """The axes of figures that are drawn."""
    found = []

    @contextmanager
    def kept(*args, **options):
        with canvas.figure(*args, **options) as axes:
            found.append(axes)
            yield axes

    monkeypatch.setattr(plotting, "figure", kept)
    return found


def records(*costs):
    return [IterationRecord(i, cost, cost, 1.0, cost, defect=cost) for i, cost in enumerate(costs)]


def test_convergence_without_a_finite_number_draws_no_empty_legend(tmp_path, recwarn):
    plotting.plot_convergence(tmp_path / "c.png", records(np.nan))
    assert not recwarn.list


def test_curves_of_attempts_are_not_connected(drawn, tmp_path):
    """Of 2 and 3 iterations, each with the record of its result; without all records, attempts are not separated."""
    attempts = [{"solver": "ddp", "iterations": 2}, {"solver": "ipm", "iterations": 3}]
    history = records(5.0, 4.0, 3.0, 9.0, 2.0, 1.5, 1.0)
    for part in (history, history[:-1]):
        plotting.plot_convergence(tmp_path / "c.png", part, attempts=attempts)
    for axis in drawn[0].flat:
        assert [text.get_text() for text in axis.texts] == ["ddp", "ipm"]
        assert {len(line.get_xdata()) for line in axis.lines if line.get_marker() == "o"} <= {3, 4}
    assert not any(axis.texts for axis in drawn[1].flat)
    assert max(len(line.get_xdata()) for line in drawn[1].flat[1].lines) == 6


def test_labels_of_a_path_are_within_the_picture(drawn, tmp_path):
    """Ticks with a minus sign and three decimals are the widest of most paths."""
    model = to.load_urdf(robot_path("double_pendulum"), base="fixed")
    xs = np.c_[np.linspace(-0.005, 0.005, 5) + 1.5, np.zeros((5, 3))]
    task = SimpleNamespace(ocp=SimpleNamespace(model=model), frame="tip", goal=None)
    plotting.plot_path(tmp_path / "p.png", SimpleNamespace(xs=xs, times=np.arange(5.0)), task)
    axis = drawn[0].flat[0]
    assert any("\N{MINUS SIGN}" in text.get_text() for text in axis.get_yticklabels())
    assert axis.yaxis.label.get_window_extent().x0 >= 0.0
