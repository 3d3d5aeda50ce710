"""Comparisons in a script: rows, comparability, and the table of the command."""

import csv

import numpy as np
import pytest

import trajopt as to
from trajopt.comparison.compare import COLUMNS, NOTES, PLOTS

SYSTEM = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 2.0 * to.sin(x[0])], 2, 1, second_order=True)


class Pendulum:
    """Dynamics of the problem by a user-defined backend."""

    manifold, nu, second_order = 2, 1, True

    def __init__(self, system=None):
        self.calls = 0

    def f(self, x, u, t, p):
        """The time derivative of the state."""
        self.calls += 1
        return np.stack([x[:, 1], u[:, 0] - 2.0 * np.sin(x[:, 0])], axis=1)

    def jacobians(self, x, u, t, p):
        """Value and first derivatives."""
        fx, fu = np.zeros((len(x), 2, 2)), np.zeros((len(x), 2, 1))
        fx[:, 0, 1], fx[:, 1, 0], fu[:, 1, 0] = 1.0, -2.0 * np.cos(x[:, 0]), 1.0
        return self.f(x, u, t, p), fx, fu


def swing(backend=None, scheme="rk4"):
    step = to.SampledSystem(backend or to.make_backend(SYSTEM, "forward_ad", engine="numpy"), scheme)
    goal = to.state_cost(step.manifold, [2.6, 0.0], 50.0, "goal")
    return to.OCP.single_phase(step, [0.0, 0.0], 30, 0.1, [to.control_cost(1)], [goal], name="swing")


@pytest.fixture
def registered():
    from dynamics_backends.registry import METHODS

    to.register_backend("own", Pendulum)
    yield
    del METHODS["own"]


# -- solve(ocp, backend=...) -----------------------------------------------------------------------------------------


def test_a_solve_takes_another_backend(registered):
    ocp = swing()
    found = {name: to.solve(ocp, solver="slq", backend=name) for name in ("forward_ad", "complex_step", "own")}
    costs = [solution.cost for solution in found.values()]
    assert costs == pytest.approx(3 * [costs[0]], rel=1e-10)
    assert [solution.meta["backends"] for solution in found.values()] == [["forward_ad"], ["complex_step"], ["own"]]
    assert ocp.phases[0].dynamics.backend.name == "forward_ad"  # the problem is unchanged
    wide = to.solve(ocp, solver="slq", backend={"name": "central_difference", "step": 1e-3})
    assert wide.cost == pytest.approx(costs[0], rel=1e-6)


def test_a_registered_backend_gives_its_system_back(registered):
    own = swing(to.make_backend(SYSTEM, "own"))
    assert to.solve(own, solver="slq", backend="forward_ad").meta["backends"] == ["forward_ad"]


def test_another_backend_without_a_system_is_rejected():
    with pytest.raises(ValueError, match="only the backend Pendulum can evaluate the dynamics of phase 0; register it"):
        to.solve(swing(Pendulum()), backend="complex_step")
    with pytest.raises(to.UnknownName, match="did you mean 'complex_step'"):
        to.solve(swing(), backend="complexstep")
    with pytest.raises(ValueError, match="has no name"):
        to.solve(swing(), backend={"step": 1e-3})


def test_impacts_and_phases_take_another_backend():
    model = to.load_robot("hyq", base="floating")
    problem = to.load_problem("hyq_trot_rigid", horizon=None, engine="numpy")
    from trajopt.step.other_backend import with_backend

    other = with_backend(problem.ocp, "complex_step")
    assert {phase.dynamics.backend.name for phase in other.phases} == {"complex_step"}
    kinds = [type(phase.dynamics) for phase in problem.ocp.phases]
    assert [type(phase.dynamics) for phase in other.phases] == kinds and to.ImpactStage in kinds
    assert other.manifold.nx == model.nq + model.nv


# -- compare ---------------------------------------------------------------------------------------------------------


def test_the_rows_of_a_comparison(registered, tmp_path):
    found = to.compare(swing(), backends=["forward_ad", "forward_difference", "own"], solvers=["slq", "ddp"])
    named = [(row["solver"], row["backend"], row["status"]) for row in found.rows]
    assert named == [
        ("slq", "forward_ad", "converged"),
        ("slq", "forward_difference", "converged"),
        ("slq", "own", "converged"),
        ("ddp", "forward_ad", "converged"),
        ("ddp", "forward_difference", "not possible"),
        ("ddp", "own", "not possible"),
    ]
    rows = found.rows
    assert {row["problem"] for row in rows} == {"swing"} and {row["integrator"] for row in rows[:4]} == {"rk4"}
    assert [row["final_cost"] for row in rows[:4]] == pytest.approx(4 * [rows[0]["final_cost"]], rel=1e-8)
    assert max(rows[i]["derivative_error"] for i in (0, 2, 3)) < 1e-12 < rows[1]["derivative_error"]
    assert "ddp needs hessian_contraction: the backend own has no hessian_contraction" in rows[5][NOTES]
    assert [s is None for s in found.solutions] == [False] * 4 + [True] * 2
    assert str(found).startswith("| row | problem | backend |") and found._repr_markdown_() == str(found)
    with found.write_csv(tmp_path / "a.csv").open() as file:
        assert [row["backend"] for row in csv.DictReader(file)] == [row["backend"] for row in rows]
    assert found.plot(tmp_path / "a.png").stat().st_size > 10_000


def test_rows_that_differ_in_the_engine_alone_are_both_in_the_plot(registered, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setitem(PLOTS, "comparison", lambda path, histories, title: drawn.append(histories))
    backends = [{"name": "forward_ad", "engine": engine} for engine in ("numpy", "compiled")]
    to.compare(swing(), backends=backends, solvers=["slq"]).plot(tmp_path / "a.png")
    (histories,) = drawn
    assert [key[1] for key in histories] == ["forward_ad (row 1)", "forward_ad (row 2)"]


def test_a_backend_without_a_name_is_refused():
    with pytest.raises(ValueError, match="a backend has no name"):
        to.compare(swing(), backends=[{"engine": "numpy"}], solvers=["slq"])


def test_the_defaults_are_those_of_the_problem():
    (row,) = to.compare(swing()).rows
    assert (row["backend"], row["engine"], row["status"]) == ("forward_ad", "numpy", "converged")
    assert row["solver"].startswith("auto (")
    guess = to.solve(swing(), solver="slq")
    (row,) = to.compare(swing(), guess, solvers=["slq"]).rows
    assert row["iterations"] == 0


def test_hessians_and_options_by_solver():
    options = {"dms": {"max_iterations": 2}}
    found = to.compare(swing(), solvers=["slq", "dms"], hessians=["gauss_newton", "limited_memory"], options=options)
    assert [(row["solver"], row["hessian"]) for row in found.rows] == [
        ("slq", "gauss_newton"),
        ("slq", "limited_memory"),
        ("dms", "gauss_newton"),
        ("dms", "limited_memory"),
    ]
    assert found.rows[1][NOTES] == "solver = 'slq' has no hessian = 'limited_memory'"
    assert [row["iterations"] for row in found.rows[2:]] == [2, 2] and found.rows[0]["status"] == "converged"
    with pytest.raises(to.UnknownName, match=r"none of the solvers \(slq\) has hessian = 'scqp'"):
        to.compare(swing(), solvers=["slq"], hessians=["scqp"])
    with pytest.raises(to.UnknownName, match="did you mean 'slq'"):
        to.compare(swing(), solvers=["slqq"])
    with pytest.raises(to.UnknownName, match="did you mean 'forward_ad'"):
        to.compare(swing(), backends=["forwrd_ad"])


def test_errors_of_a_backend_become_a_row():
    class Broken(Pendulum):
        def f(self, x, u, t, p):
            if self.calls > 60:
                raise RuntimeError("the simulator is gone")
            return super().f(x, u, t, p)

    class Wrong(Pendulum):
        def f(self, x, u, t, p):
            return x[:, :1]

    (broken,) = to.compare(swing(Broken()), solvers=["slq"]).rows
    assert broken["status"] == "error" and broken[NOTES] == "RuntimeError: the simulator is gone"
    (wrong,) = to.compare(swing(Wrong()), solvers=["slq"]).rows
    assert wrong["status"] == "not possible" and "f has shape (30, 1); expected (30, 2)" in wrong[NOTES]


def test_a_loaded_problem_is_compared_as_by_the_command(tmp_path):
    from click.testing import CliRunner

    from experiments.cli.main import main

    problem = to.load_problem("cart_pole_swing_up", horizon=20)
    found = to.compare(problem, backends=["analytic", "complex_step"], solvers=["slq", "ilqr"])
    chosen = ["--set", "problem.horizon=20", "--backends", "analytic,complex_step"]
    done = CliRunner().invoke(
        main, ["compare", "cart_pole_swing_up", *chosen, "--solvers", "slq,ilqr", "--out", str(tmp_path)]
    )
    assert done.exit_code in (0, 1, 3), done.output
    with (tmp_path / "comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    untimed = [name for name in (*COLUMNS, NOTES) if not name.startswith("time_")]
    assert [[row[n] for n in untimed] for row in rows] == [[str(row[n]) for n in untimed] for row in found.rows]
    options = {"slq": {"max_iterations": 1}}
    (row,) = to.compare(problem, problem.guess, solvers=["slq"], options=options).rows
    assert (row["status"], row["iterations"]) == ("max_iterations", 1)
