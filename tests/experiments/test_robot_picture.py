"""Images of robots, checked by the arguments of the drawing functions."""

from __future__ import annotations

import numpy as np
from PIL import Image

from experiments.plots import robot_picture
from problems.robots import load_robot


def test_shapes_are_drawn_within_the_limits_of_joints(tmp_path, monkeypatch):
    """HyQ's neutral posture, with straight knees, violates its joint limits."""
    drawn = []

    class Studio:
        missing = ()

        def __init__(self, motions, **_):
            drawn.append(motions[0].q[0])

        def picture(self, moments):
            return Image.new("RGB", (60, 40))

    monkeypatch.setattr(robot_picture, "Studio", Studio)
    model = load_robot("hyq")
    robot_picture.draw_shapes(tmp_path / "hyq.png", model)
    assert len(drawn) == 3 and (tmp_path / "hyq.png").exists()
    neutral = model.neutral()
    for q in drawn:
        assert (model.q_lower <= q).all() and (q <= model.q_upper).all()
        inside = (model.q_lower <= neutral) & (neutral <= model.q_upper)
        np.testing.assert_array_equal(q[inside], neutral[inside])
