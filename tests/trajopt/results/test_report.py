"""HTML summary of a solution for notebooks: correct table entries, and curves at the values."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import trajopt as to
from trajopt.results.report import HEIGHT, POINTS, WIDTH, Panel, svg
from trajopt.validation.limit_violations import LimitViolation


@pytest.fixture(scope="module")
def solution() -> to.Solution:
    robot = to.FreeBody(to.load_robot("double_pendulum"))
    dynamics = to.SampledSystem(to.make_backend(robot, engine="numpy"), "semi_implicit_euler")
    goal = to.state_cost(robot.manifold, [0.3, 0.0, 0.0, 0.0], 10.0)
    ocp = to.OCP.single_phase(dynamics, np.zeros(4), 10, 0.05, [to.control_cost(2)], [goal], model=robot.model)
    return to.solve(ocp, solver="slq")


def curves(text: str) -> list[np.ndarray]:
    """The points of each curve of an SVG text."""
    root = ElementTree.fromstring(text)
    lines = [e.get("points", "") for e in root.iter() if e.tag.endswith("polyline")]
    return [np.array([[float(v) for v in p.split(",")] for p in line.split()]) for line in lines]


def test_the_table_and_the_sentence(solution):
    text = solution._repr_html_()
    assert "Converged after" in text and f"{solution.cost:.8g}" in text and "10 knots, 0.5 s" in text
    assert len(re.findall("<svg", text)) == 3
    assert "shoulder" in text and "u[elbow]" in text


def test_it_is_well_formed_and_names_are_escaped(solution):
    odd = replace(solution, meta={**solution.meta, "problem": "<b>a & b</b>"})
    text = odd._repr_html_()
    ElementTree.fromstring(text)
    assert "&lt;b&gt;a &amp; b" in text


def test_a_curve_is_where_its_values_are():
    axis = np.linspace(0.0, 2.0, 5)
    (line,) = curves(svg(Panel("a", axis, np.array([[0.0], [1.0], [2.0], [1.0], [0.0]]))))
    assert line[:, 0] == pytest.approx(np.linspace(line[0, 0], line[-1, 0], 5), abs=0.1)
    assert line[0, 1] == line[-1, 1] == max(line[:, 1]) and np.argmin(line[:, 1]) == 2
    assert line[1, 1] == pytest.approx(0.5 * (line[0, 1] + line[2, 1]), abs=0.1)
    assert (line >= 0.0).all() and (line <= [WIDTH, HEIGHT]).all()


def test_long_curves_are_thinned_and_keep_their_ends():
    axis = np.linspace(0.0, 1.0, 5000)
    (line,) = curves(svg(Panel("a", axis, np.sin(20 * axis)[:, None])))
    short = curves(svg(Panel("a", axis[[0, -1]], np.array([[-1.0], [1.0]]))))[0]
    assert len(line) == POINTS and line[[0, -1], 0] == pytest.approx(short[:, 0])


def test_values_that_are_not_finite_leave_gaps_not_errors():
    values = np.array([[1.0, 0.0], [np.nan, 2.0], [3.0, np.inf]])
    lines = curves(svg(Panel("a", np.arange(3.0), values)))
    assert [len(line) for line in lines] == [2, 2]
    curves(svg(Panel("none", np.arange(2.0), np.full((2, 1), np.nan))))
    zeros = curves(svg(Panel("log", np.arange(2.0), np.zeros((2, 1)), logarithmic=True)))
    assert np.isfinite(zeros[0]).all()


def test_the_short_form_is_one_line(solution):
    assert repr(solution).startswith("Solution(converged: cost ") and "\n" not in repr(solution)


def test_a_saved_solution_shows_the_same(solution, tmp_path):
    loaded = to.Solution.load(solution.save(tmp_path / "s.npz"))
    assert loaded._repr_html_() == solution._repr_html_()


@pytest.mark.parametrize(("joints", "lines"), [(4, 4), (5, 4), (7, 4)])
def test_the_worst_limits_have_lines_of_their_own_the_others_one_together(solution, joints, lines):
    x = LimitViolation("velocity", "", 3, 0.1, 0.0, 2.0, "rad/s", enforced=False, knots=1)
    broken = [x._replace(name=f"joint {i}", excess=1.0 + i) for i in range(joints)]
    collision = LimitViolation("constraint", "goal", 9, 0.5, 0.1, 0.0, "m", enforced=True, knots=1)
    limits = [b.as_meta() for b in (*broken, collision)]
    text = replace(solution, meta={**solution.meta, "limits": limits}).report()
    found = [line for line in text.splitlines() if "joint " in line]
    assert len(found) == lines and "constraint goal is exceeded by 0.1 m" in text
    if joints > 4:
        assert f"the velocity limit of joint {joints - 1} is exceeded by {joints} rad/s" in found[0]
        others = ", ".join(f"joint {i} by {i + 1} rad/s" for i in reversed(range(joints - 3)))
        assert f"{joints - 3} more velocity violations: {others}" in found[-1]
