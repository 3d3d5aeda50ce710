"""The experiments: quick runs of all of them, their reports, and the derivatives by hand that they compare with."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from experiments.baselines.cart_pendulum import CartPendulum
from experiments.cli.main import main
from experiments.papers import published, registry, report
from experiments.papers.beyond import local_convergence, peer_solves, peers
from experiments.papers.study import Comparison, Outcome, Study
from trajopt import Status, StatusCode, solve

BAD_INPUT = 2


def _outcome(worse):
    rows = [{"n": 1, "time": 0.5}, {"n": 2, "time": 1.5}]
    return Outcome(
        rows, [Comparison("time", "1 us", "2 us", worse)], lambda path: path.write_bytes(b"png"), ["A remark."]
    )


def _study(outcome, name="name"):
    return Study(name, "Title", "Paper, fig. 1", lambda quick: outcome)


@pytest.mark.parametrize("name", registry.STUDIES)
def test_every_experiment_has_a_quick_run_with_data_picture_and_report(name, tmp_path):
    study = registry.study(name)
    outcome = report.conduct(study, tmp_path, quick=True)
    with (tmp_path / report.DATA).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(outcome.rows) > 0
    assert (tmp_path / report.PICTURE).read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / report.REPORT).read_text(encoding="utf-8")
    assert text.startswith(f"# {study.title}") and all(c.what in text and c.ours in text for c in outcome.comparisons)
    assert report.is_done(tmp_path, quick=True) and not report.is_done(tmp_path, quick=False)


@pytest.mark.parametrize("name", ["slq-gaits", "contour-times", "solver-matrix", "lifting-convergence"])
def test_nothing_is_reported_of_solves_that_ctrl_c_has_cut(name, monkeypatch, tmp_path):
    def cut(*given, **named):
        found = solve(*given, **named)
        return replace(found, status=Status(StatusCode.INTERRUPTED, "By a test."))

    monkeypatch.setattr("experiments.config.build.solve", cut)
    with pytest.raises(KeyboardInterrupt):
        report.conduct(registry.study(name), tmp_path, quick=True)
    assert not list(tmp_path.iterdir())


def test_a_report_begins_with_what_is_worse():
    def second_line(worse):
        return report.markdown(_study(_outcome(worse)), _outcome(worse), True, 1.0).splitlines()[2]

    assert second_line(True) == "**Worse here than published: time.**"
    assert second_line(False) == "Nothing here is worse than published."


def test_all_goes_on_where_it_was_and_its_page_stands_alone(tmp_path, monkeypatch):
    ran = []

    def counted(name):
        return Study(name, "Title", "Paper", lambda quick: (ran.append(name), _outcome(False))[1])

    monkeypatch.setattr(registry, "STUDIES", {"one": "", "two": ""})
    monkeypatch.setattr(registry, "study", counted)
    (tmp_path / "one").mkdir()
    command = ["experiment", "all", "--quick", "--out", str(tmp_path)]
    assert CliRunner().invoke(main, command).exit_code == 0 and ran == ["one", "two"]
    (tmp_path / "two" / report.DONE).unlink()
    assert CliRunner().invoke(main, [*command, "--resume"]).exit_code == 0 and ran == ["one", "two", "two"]
    page = (tmp_path / report.PAGE).read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2 and f'src="{report.PICTURE}"' not in page


def test_a_broken_mark_of_completion_counts_as_unfinished(tmp_path):
    for text in ("", "[1]", json.dumps({"seconds": 1})):
        (tmp_path / report.DONE).write_text(text, encoding="utf-8")
        assert not report.is_done(tmp_path, quick=True)


def test_the_list_names_all_and_a_wrong_name_the_nearest():
    listed = CliRunner().invoke(main, ["experiment", "list"])
    assert listed.exit_code == 0 and all(name in listed.output for name in registry.STUDIES)
    wrong = CliRunner().invoke(main, ["experiment", "code-sise"])
    assert wrong.exit_code == BAD_INPUT and "code-size" in wrong.output


def test_the_documentation_lists_all_experiments():
    page = (Path(__file__).parents[2] / "docs" / "benchmarks" / "index.md").read_text(encoding="utf-8")
    missing = [name for name, what in registry.STUDIES.items() if f"| `{name}` | {what} |" not in page]
    assert not missing


@pytest.mark.parametrize("free", [False, True])
def test_derivatives_by_hand_are_those_of_the_energy(free):
    """H and the bias follow from the kinetic and potential energy by complex steps and differences: Lagrange's equations."""
    hand, rng = CartPendulum(free=free), np.random.default_rng(3)
    n = hand.n
    q, v, a = rng.uniform(-2.0, 2.0, (3, n))

    def lagrangian(q, v):
        z, phi, theta = (q[1], q[2], q[3]) if free else (0.0 * q[0], 0.0 * q[0], q[1])
        dx, dz, dphi, dtheta = (v[0], v[1], v[2], v[3]) if free else (v[0], 0.0 * v[0], 0.0 * v[0], v[1])
        b, db = phi + theta, dphi + dtheta
        ball = (dx + hand.l * np.cos(b) * db) ** 2 + (dz - hand.l * np.sin(b) * db) ** 2
        kinetic = hand.M * (dx**2 + dz**2) + hand.J * dphi**2 + hand.m * ball + hand.I * db**2
        return 0.5 * kinetic - hand.M * hand.g * z - hand.m * hand.g * (z + hand.l * np.cos(b))

    def momentum(q, v):
        step = 1e-20
        return np.array([lagrangian(q + 0j, v + 1j * step * e).imag / step for e in np.eye(n)])

    step, h = 1e-20, 1e-5
    rate = (momentum(q + h * v, v + h * a) - momentum(q - h * v, v - h * a)) / (2.0 * h)
    force = rate - np.array([lagrangian(q + 1j * step * e, v + 0j).imag / step for e in np.eye(n)])
    found = hand.inverse_dynamics(*(x[:, None] for x in (q, v, a))).value[:, 0]
    np.testing.assert_allclose(found, force, rtol=1e-7, atol=1e-7)


def test_constrained_dynamics_by_hand_keep_the_cart_on_its_rail():
    hand, rng = CartPendulum(free=True), np.random.default_rng(4)
    q, v, tau = rng.uniform(-2.0, 2.0, (3, 4, 1))
    found = hand.constrained_dynamics(q, v, tau)
    np.testing.assert_array_equal(found.value[[1, 2]], 0.0)
    missing = hand.inverse_dynamics(q, v, found.value).value - tau
    np.testing.assert_allclose(missing[[0, 3]], 0.0, atol=1e-10)
    step = 1e-6
    for i in range(4):
        moved = [hand.constrained_dynamics(q + s * step * np.eye(4)[:, [i]], v, tau).value for s in (1.0, -1.0)]
        np.testing.assert_allclose(found.dq[:, i], (moved[0] - moved[1]) / (2.0 * step), atol=1e-5)


# -- published figures ---------------------------------------------------------------------------------------

RESULTS = Path(__file__).parents[2] / "docs" / "benchmarks" / "results.md"


def _lines_of(page):
    """(what, published, ours, remark) of all tables of a page."""
    rows = (line.strip("|").split("|") for line in page.splitlines() if line.startswith("| "))
    return [tuple(cell.strip() for cell in row) for row in rows if len(row) >= 4]


@pytest.mark.parametrize("figure", published.FIGURES, ids=lambda f: f"{f.paper}: {f.what}")
def test_every_published_figure_has_ours_beside_it_or_a_reason(figure):
    """On the page of kept results; n/a needs a remark that says why."""
    assert figure.experiment in (*registry.STUDIES, None) and (figure.experiment or figure.why)
    found = [row for row in _lines_of(RESULTS.read_text(encoding="utf-8")) if row[0].startswith(figure.what)]
    assert found and all(row[1] and row[2] and (row[2] != "n/a" or row[3]) for row in found)
    assert "not found by this run" not in {row[3] for row in found}


def test_a_figure_that_an_experiment_lacks_is_named():
    what = [Comparison("mean error of FD, worst", "about 5e-06", "4e-06")]
    left = [f.what for f in published.missing("derivative-accuracy", what)]
    assert left == ["mean error of FDC,", "mean error of AD,", "mean error of ED,"]


# -- peers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "order"), [(lambda e: 3.0 * e**2, 2.0), (lambda e: 1e-12, np.inf), (lambda e: np.nan, np.nan)]
)
def test_a_step_that_fails_has_no_order(after, order, monkeypatch):
    """It is told apart from one that reaches rounding, which is better than any order."""
    monkeypatch.setattr(local_convergence, "errors_of", lambda *of: [of[4], after(of[4])])
    assert local_convergence.fitted_order(None, None, "ddp", {}, 1e-2) == pytest.approx(order, nan_ok=True)


def test_a_solve_that_ends_elsewhere_is_no_comparison_of_the_same_optimum():
    same, other = (peer_solves._row("reach", "peer", 2.0, 6.0, apart) for apart in (1e-9, 1e-3))
    assert same["what"] == "whole solve" and "another optimum" in other["what"]
    told = peers._comparison(same)
    assert (told.published, told.ours, told.worse) == ("6 ms in this run", "2 ms", False) and "by ours 3;" in told.why
    assert peers._comparison(peer_solves._row("reach", "peer", 6.0, 2.0, 0.0)).worse
