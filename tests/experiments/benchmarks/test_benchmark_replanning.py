"""Replanning benchmark: finished runs are stored and not repeated, and the table counts them."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.benchmarks.replanning.benchmark_replanning import (
    PLANNERS,
    Case,
    Outcome,
    cases,
    main,
    read,
    row,
    run,
    scenario,
    study,
    table,
    write,
)

GOOD = Outcome(1e-3, 0.05, (2, 4), (10.0, 20.0), 0, 1)
BAD = Outcome(1e-1, -0.05, (6,), (30.0, 40.0), 1, 0)


def test_runs_that_are_known_are_not_repeated(tmp_path):
    """If all runs are known, no process starts."""
    wanted = cases(["dms"], ["analytic", "casadi_ad"], 3, 1)
    assert len(wanted) == len(set(wanted)) == 2 * 3 + 1
    known = dict.fromkeys(wanted, GOOD)
    write(tmp_path / "runs.jsonl", known)
    assert read(tmp_path / "runs.jsonl") == known
    assert study(wanted[:2], tmp_path / "runs.jsonl", 1) == dict.fromkeys(wanted[:2], GOOD)


def test_a_row_counts_over_all_solves():
    cells = row("dms, analytic", True, [GOOD, BAD])
    assert cells == ["dms, analytic", "yes", "1 of 2", "-0.050 TOO CLOSE", "4, 6", "25.0, 38.5, 40.0", "1", "1 of 4"]
    assert row("sqp", False, [GOOD._replace(clearance=None)])[3] == ""
    assert row("sqp", False, [Outcome(unsupported="no second derivatives")])[2] == "no second derivatives"


def test_the_table_has_a_row_for_each_planner_and_method():
    found = dict.fromkeys(cases(["dms", "sqp"], ["analytic"], 2, 0), GOOD)
    assert table(found).count("2 of 2") == 4


@pytest.mark.parametrize("planner", PLANNERS)
def test_scenarios_differ_by_their_seed(planner):
    one, other, without = scenario(planner, 0, True), scenario(planner, 1, True), scenario(planner, 1, False)
    assert one.problem.q0 != other.problem.q0 == without.problem.q0
    assert np.abs(np.subtract(one.problem.q0, other.problem.q0)).max() <= 0.2
    assert without.problem.obstacle is None and not without.replan.obstacle.term


def test_an_unsupported_method_is_reported(monkeypatch):
    def refuse(config):
        raise ValueError("no second derivatives")

    monkeypatch.setattr("experiments.benchmarks.replanning.benchmark_replanning.setup", refuse)
    case = Case("dms", "analytic", True, 0)
    assert run(case) == (case, Outcome(unsupported="no second derivatives"))


class Interrupted:
    """Pool that finishes one run before Ctrl-C."""

    def Value(self, *_):
        return None

    def Pool(self, *_):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def join(self):
        return None

    def imap_unordered(self, function, left):
        yield left[0], GOOD
        raise KeyboardInterrupt


def test_an_interruption_keeps_finished_runs_and_ends_with_the_table(monkeypatch, tmp_path, capsys):
    where = "experiments.benchmarks.replanning.benchmark_replanning"
    monkeypatch.setattr(f"{where}.multiprocessing.get_context", lambda kind: Interrupted())
    monkeypatch.setattr(f"{where}.ONE_THREAD", {})
    options = ["--planners", "dms", "--methods", "analytic", "--seeds", "2", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["benchmark_replanning", *options])
    with pytest.raises(SystemExit) as end:
        main()
    assert "Interrupted: 1 of 4 runs are in" in str(end.value.code) and "resumes" in str(end.value.code)
    assert "1 of 1" in capsys.readouterr().out
    assert list(read(tmp_path / "runs.jsonl").values()) == [GOOD]


def test_earlier_runs_are_reported_and_repeated_on_request(monkeypatch, tmp_path, capsys):
    """Earlier results may be from an older version of the code."""
    others = dict.fromkeys(cases(["ipm"], ["analytic"], 1, 0), BAD)
    write(tmp_path / "runs.jsonl", dict.fromkeys(cases(["dms"], ["analytic"], 1, 0), BAD) | others)
    options = ["--planners", "dms", "--methods", "analytic", "--seeds", "1", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["benchmark_replanning", *options])
    main()
    output = capsys.readouterr()
    assert "0 of 1" in output.out and "2 of 2 runs exist already, from 2" in output.err
    where = "experiments.benchmarks.replanning.benchmark_replanning"
    monkeypatch.setattr(f"{where}.multiprocessing.get_context", lambda kind: Interrupted())
    monkeypatch.setattr(f"{where}.ONE_THREAD", {})
    monkeypatch.setattr("sys.argv", ["benchmark_replanning", *options, "--rerun"])
    with pytest.raises(SystemExit, match="without --rerun"):
        main()
    assert list(read(tmp_path / "runs.jsonl").values()) == [BAD, BAD, GOOD]
