"""Sheets of panels: what lines cover, where values stand, that nothing of matplotlib is loaded for a solve's pictures."""

import subprocess
import sys

import numpy as np
import pytest

from experiments.plots.ink import DOTS, POINTS, Ink
from experiments.plots.sheet import Bar, Curve, Graph, draw_sheet, powers
from experiments.plots.side_by_side import draw

BLACK, RED = "#000000", "#ff0000"


def pixels(path):
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image, dtype=float)


@pytest.mark.parametrize("angle", [0.0, 0.3, 1.1, 2.5])
def test_a_line_covers_its_area_and_its_round_ends(tmp_path, angle):
    """length x width + pi (width / 2)^2, within 2 %, however it is slanted; and one twice as strong where it is drawn twice."""
    along, width = np.array([np.cos(angle), np.sin(angle)]), 4.0
    ink = Ink(2.0, 2.0)
    ink.line(np.array([1.0, 1.0]) + np.linspace(-0.7, 0.7, 9)[:, None] * along, BLACK, width)
    dark = (255.0 - pixels(ink.save(tmp_path / "line.png"))[:, :, 0]).sum() / 255.0
    w = DOTS * width / POINTS
    assert dark == pytest.approx(1.4 * DOTS * w + 0.25 * np.pi * w**2, rel=0.02)


def test_dashes_are_half_of_a_line(tmp_path):
    whole, dashed = Ink(3.0, 1.0), Ink(3.0, 1.0)
    ends = np.array([[0.1, 0.5], [2.9, 0.5]])
    whole.straight([ends], BLACK, 1.0)
    dashed.straight([ends], BLACK, 1.0, 6.0)
    dark = [(255.0 - pixels(i.save(tmp_path / "x.png"))[:, :, 0]).sum() for i in (whole, dashed)]
    assert 0.45 < dark[1] / dark[0] < 0.65  # round ends add to each dash


def test_values_stand_where_they_belong(tmp_path):
    """A dot at the middle of both ranges is in the middle of the panel, also where lengths are alike."""
    graph = Graph(
        "", "", [Curve(np.array([3.0]), np.array([7.0]), RED, width=0.0, dots=9.0)], 6.0, 8.0, span=(1.0, 5.0)
    )
    graph.alike, graph.bars = True, [Bar((1.0, 6.0), (1.5, 6.5), "#00ff00")]
    image = pixels(draw_sheet(tmp_path / "x.png", "dot", [graph], 1, 6.0, 4.0))
    rows, columns = np.nonzero((image[:, :, 0] > 200) & (image[:, :, 1] < 60))
    assert columns.mean() / DOTS == pytest.approx(0.5 * (0.68 + 6.0 - 0.16), abs=0.01)
    assert rows.mean() / DOTS == pytest.approx(0.5 * (0.62 + 4.0 - 0.52), abs=0.01)
    rows, columns = np.nonzero((image[:, :, 1] > 200) & (image[:, :, 0] < 60))
    assert np.ptp(rows) == pytest.approx(np.ptp(columns), abs=2)  # half of a unit both ways


def test_powers_are_whole_and_few():
    assert list(powers(-9.7, 1.2, 5)) == [-8.0, -6.0, -4.0, -2.0, 0.0]
    assert list(powers(-0.5, 1.5, 5)) == [0.0, 1.0]


def test_what_goes_wrong_in_a_copy_is_raised(tmp_path):
    done = tmp_path / "done"

    def fail():
        raise ValueError("no such picture")

    with pytest.raises(ValueError, match="no such picture"):
        draw({tmp_path / "a": fail, tmp_path / "b": done.touch})
    assert done.exists()


DRAWN = """
import sys
import numpy as np
from pathlib import Path
from experiments.plots.plotting import Panel, plot_panels
plot_panels(Path(sys.argv[1]), "x", [Panel("a", "rad", np.arange(2.0), np.arange(2.0))])
print(*(name in sys.modules for name in ("matplotlib", "trimesh")))
"""


def test_panels_are_drawn_without_a_library_of_plots(tmp_path):
    command = [sys.executable, "-c", DRAWN, str(tmp_path / "x.png")]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "False"] and (tmp_path / "x.png").exists()
