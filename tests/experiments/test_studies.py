"""Experiments: quick runs, methods, reports, and hand-derived derivatives."""

import csv
import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from dynamics_backends import environment
from dynamics_backends.machine import library
from dynamics_backends.machine.library import LibraryMissing, instruction_sets, lanes as library_lanes
from dynamics_backends.protocol import HasPartials
from experiments.baselines.cart_pendulum import CartPendulum
from experiments.cli.main import main
from experiments.papers import published, registry, report
from experiments.papers.astudillo_2021 import contour_times
from experiments.papers.beyond import local_convergence, peer_solves, peers, solver_matrix
from experiments.papers.giftthaler_2017 import (
    avoiding_arm,
    derivative_modes,
    replanning_times,
    slq_gaits,
    torque_derivative,
)
from experiments.papers.kudruss_2019 import directions_cost, lifting_convergence
from experiments.papers.method import Method, WrongMethod, ran
from experiments.papers.singh_2023 import second_order_errors, second_order_growth, tensor_products
from experiments.papers.study import LANES, Claim, Comparison, Outcome, Study
from problems.robots import load_robot
from problems.robots.textbook import multi_pendulum
from trajopt import Status, StatusCode, solve
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.solvers.qp.casadi_qp import ActiveSet
from trajopt.solvers.qp.qp import QP, QPStatus

BAD_INPUT = 2


EXACT = 1e-12


def _outcome(worse):
    rows = [{"n": 1, "time": 0.5}, {"n": 2, "time": 1.5}]
    lines = [Comparison("time", "1 us", "2 us", [Claim("at most 1 us", not worse)])]
    return Outcome(rows, lines, lambda path: path.write_bytes(b"png"), ["A remark."])


def _study(outcome, name="name"):
    return Study(name, "Title", "Paper, fig. 1", lambda quick: outcome)


@pytest.fixture(scope="module")
def quick_outcome():
    """Run an experiment in quick mode, once per session; return its outcome."""
    found = {}

    def outcome(name):
        if name not in found:
            try:
                found[name] = registry.study(name).run(True)
            except LibraryMissing:
                pytest.skip("not built: `make kernels` builds all")
        return found[name]

    return outcome


@pytest.mark.parametrize("name", registry.STUDIES)
def test_every_experiment_has_a_quick_run_with_data_picture_and_report(name, quick_outcome, tmp_path):
    study = replace(registry.study(name), run=lambda quick: quick_outcome(name))
    outcome = report.conduct(study, tmp_path, quick=True)
    with (tmp_path / report.DATA).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(outcome.rows) > 0
    assert (tmp_path / report.PICTURE).read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / report.REPORT).read_text(encoding="utf-8")
    assert text.startswith(f"# {study.title}") and all(c.what in text and c.ours in text for c in outcome.comparisons)
    assert report.is_done(tmp_path, quick=True) and not report.is_done(tmp_path, quick=False)


# -- methods: each quick run is the whole definition of the experiment, on a short horizon --------------------------

NAMED = {
    "lifting-convergence": lambda row: lifting_convergence.method(row["method"], row["tolerance"]),
    "contour-times": lambda row: contour_times.method(row["method"], row["QP solver"]),
    "slq-gaits": lambda row: slq_gaits.METHODS[row["method"]],
    "replanning-times": lambda row: replanning_times.METHODS[row["method"]],
    "avoiding-arm": lambda row: avoiding_arm.METHOD,
}
"""Experiment -> function from a row to its method."""


@pytest.mark.parametrize("name", NAMED)
def test_an_experiment_runs_the_method_that_it_names(name, quick_outcome):
    rows = quick_outcome(name).rows
    for row in rows:
        named = NAMED[name](row)
        found = tuple(row[key] for key in ("solver", "hessian", "integrator", "derivatives"))
        assert found == (named.solver, named.hessian, named.integrator, named.derivatives)
    assert {named.solver for named in map(NAMED[name], rows)} <= {"sqp", "slq", "dms"}  # "auto" names no method


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lifting-convergence", {"sqp"}),
        ("contour-times", {"sqp"}),
        ("slq-gaits", {"slq"}),
        ("replanning-times", {"dms"}),
        ("avoiding-arm", {"dms"}),
    ],
)
def test_the_solver_is_that_of_the_title(name, expected, quick_outcome):
    """SQP on the lifting problem, SCQP on contours, SLQ on gaits, IPOPT for multiple shooting."""
    assert {row["solver"] for row in quick_outcome(name).rows} == expected


def test_a_method_that_the_config_changes_is_an_error(monkeypatch):
    """An experiment fails if its solve used another solver."""

    def another(ocp, start, options, callback, solver, check):
        return solve(ocp, start, {"max_iterations": 1}, callback, "ipm", check=check)

    monkeypatch.setattr("trajopt.config.build.solve", another)
    with pytest.raises(WrongMethod, match=r"names solver sqp.*; solver ipm"):
        lifting_convergence.converged(0.0, lifting_convergence.method("FD", 1e-6), quick=True)


def test_a_method_sets_the_whole_solver_table():
    method = Method("sqp", "exact", "rk4", "forward_ad", {"max_iterations": 3, "second_order_correction": False})
    assert method.overrides() == [
        "solver={name='sqp', hessian='exact', max_iterations=3, second_order_correction=false}",
        "backend={name='forward_ad'}",
        "problem.integrator='rk4'",
    ]


def test_a_plan_by_another_solver_names_both():
    """The solver auto computes the first plan if the configured solver fails."""
    found = replace(_solution(), meta={**_solution().meta, "instead_of": {"solver": "dms"}})
    assert "instead of" in ran(found)["solver"]


def _solution():
    from trajopt.config.build import build_task
    from trajopt.config.config import load_config

    config = load_config(local_convergence.CONFIGS / "cart_pole_balance.toml").with_engine("numpy")
    task = build_task(config)
    return solve(task.ocp, task.guess, {"max_iterations": 1}, solver="slq", check=False)


@pytest.mark.parametrize("name", ["slq-gaits", "contour-times", "solver-matrix", "lifting-convergence"])
def test_interrupted_solves_are_not_reported(name, monkeypatch, tmp_path):
    def cut(*given, **named):
        found = solve(*given, **named)
        return replace(found, status=Status(StatusCode.INTERRUPTED, "By a test."))

    monkeypatch.setattr("trajopt.config.build.solve", cut)
    with pytest.raises(KeyboardInterrupt):
        report.conduct(registry.study(name), tmp_path, quick=True)
    assert not list(tmp_path.iterdir())


def test_a_report_begins_with_the_worse_rows():
    def second_line(worse):
        return report.markdown(_study(_outcome(worse)), _outcome(worse), True, 1.0).splitlines()[2]

    assert second_line(True) == "**Worse than published: time.**"
    assert second_line(False) == "Nothing is worse than published."


def test_the_flag_of_a_row_follows_from_all_its_claims():
    good, bad, other = Claim("fast", True), Claim("exact", False), Claim("forward", False, only_differs=True)
    assert not Comparison("row", "1", "1", [good]).failed
    assert Comparison("row", "1", "2", [good, bad]).worse and Comparison("row", "1", "2", [other, bad]).worse
    row = Comparison("row", "1", "2", [good, other])
    assert row.different and not row.worse
    assert "**different** (failed claims: forward): 2" in report.table([row])
    assert report.summary([row]) == "**Different from published: row.**"


def test_a_report_names_its_reference():
    """Theory and peers are not published figures."""
    outcome = replace(_outcome(True), reference="theory")
    text = report.markdown(_study(outcome), outcome, False, 1.0)
    assert "**Worse than theory: time.**" in text and "| what | theory | ours | remark |" in text


def test_a_quick_run_reports_no_comparison(tmp_path):
    for worse in (True, False):
        report.conduct(_study(_outcome(worse)), tmp_path, quick=True)
        lines = (tmp_path / report.REPORT).read_text(encoding="utf-8").splitlines()
        assert lines[2] == "No published figure was compared in this run."
        report.conduct(_study(_outcome(worse)), tmp_path, quick=False)
        lines = (tmp_path / report.REPORT).read_text(encoding="utf-8").splitlines()
        assert ("Worse" in lines[2]) == worse


@pytest.mark.parametrize(("running", "shared"), [(0.5, False), (1e6, True), (None, False)])
def test_a_report_from_a_loaded_machine_warns(running, shared, monkeypatch):
    """At a load above the number of cores, the report warns about comparing times with other machines."""
    monkeypatch.setattr(report, "load", lambda: running)
    text = report.markdown(_study(_outcome(False)), _outcome(False), False, 1.0)
    assert (report.SHARED in text) == shared and ("running processes" in text) == (running is not None)


def test_rows_without_claims_are_not_compared():
    """Omitted figures do not count as no worse."""
    absent = Comparison("row", "1", "n/a", (), report.LEFT_OUT)
    assert report.summary([absent]) == "No published figure was compared in this run."
    held = Comparison("other", "1", "1", [Claim("1", True)])
    assert report.summary([held, absent]) == ("Nothing is worse than published. 1 of 2 rows cannot be compared.")


def test_all_resumes_and_writes_a_self_contained_page(tmp_path, monkeypatch):
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
    """H and the bias follow from Lagrange's equations by complex steps and differences of the energies."""
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


@pytest.mark.parametrize("free", [False, True])
def test_forward_dynamics_by_hand_invert_inverse_dynamics(free):
    hand, rng = CartPendulum(free=free), np.random.default_rng(5)
    q, v, tau = rng.uniform(-2.0, 2.0, (3, hand.n, 1))
    found = hand.forward_dynamics(q, v, tau)
    np.testing.assert_allclose(hand.inverse_dynamics(q, v, found.value).value, tau, atol=1e-10)
    step = 1e-6
    for i in range(hand.n):
        moved = [hand.forward_dynamics(q + s * step * np.eye(hand.n)[:, [i]], v, tau).value for s in (1.0, -1.0)]
        np.testing.assert_allclose(found.dq[:, i], (moved[0] - moved[1]) / (2.0 * step), atol=1e-5)


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


# -- results of experiments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "name"), [(slq_gaits, "_solve"), (derivative_modes, "_rows")])
def test_single_thread_experiments_run_on_one_thread(module, name, monkeypatch):
    monkeypatch.setenv("TRAJOPT_THREADS", "2")
    threads, original = [], getattr(module, name)

    def noted(*given):
        threads.append(environment.threads())
        return original(*given)

    monkeypatch.setattr(module, name, noted)
    module.run(True)
    assert set(threads) == {1} and environment.threads() == 2


def test_dual_numbers_and_structured_sweeps_are_timed_in_numpy(monkeypatch):
    """The compiled engine has the same kernel for both."""
    backends, original = [], directions_cost.make_backend
    monkeypatch.setattr(
        directions_cost, "make_backend", lambda *a, **named: backends.append(original(*a, **named)) or backends[-1]
    )
    found = directions_cost.derivative_times(multi_pendulum(2), 4, 1)
    assert {b.name for b in backends} == set(directions_cost.TIMED.values())
    assert {b.engine for b in backends} == {"numpy"}
    assert all(set(times) == set(directions_cost.TIMED) for _, times in found.values())


@pytest.mark.parametrize("name", ["second-order-robots", "jacobian-times", "hessian-times", "derivative-modes"])
def test_reports_of_times_in_lanes_say_so(name, quick_outcome):
    assert LANES in quick_outcome(name).remarks


def test_inverse_dynamics_have_closed_derivatives_in_the_contour_experiment_with_that_method():
    """The residual of a constraint does not depend on the backend: the experiment replaces it."""
    config = load_config(contour_times.CONFIGS / "gen3_contour_id.toml", contour_times.QUICK).with_engine("numpy")
    task = build_task(config)
    by_ad, closed = (contour_times.with_inverse_dynamics(task, d).ocp.constraints() for d in ("AD", "analytic"))
    name, rng = contour_times.TORQUES, np.random.default_rng(2)
    one, other = (next(c.residual for c in found if c.name == name) for found in (by_ad, closed))
    assert isinstance(other, HasPartials) and not isinstance(one, HasPartials)
    x, u = rng.standard_normal((16, 1)), rng.standard_normal((8, 1))
    expected = np.stack(one(x, u, 0.0, {}))
    np.testing.assert_allclose(other(x[:14], u[:7], 0.0, {}), expected, rtol=0.0, atol=EXACT * np.abs(expected).max())


def test_the_solver_matrix_names_hessians_of_steps_only():
    common = {"problem": "p", "solver": "sqp", "engine": "compiled", "solved": True, "milliseconds": 1.0, "cost": 1.0}
    rows = [
        {**common, "derivatives": "analytic", "hessian": "exact", "iterations": 5},
        {**common, "derivatives": "central_difference", "hessian": "auto", "iterations": 0},
    ]
    assert not any("Hessian" in remark for remark in solver_matrix._remarks(rows))


def test_iterations_of_slq_are_timed_by_the_processor(monkeypatch):
    """The wall-clock time of an iteration depends on other programs."""
    clock = itertools.count()
    monkeypatch.setattr(slq_gaits, "time", SimpleNamespace(process_time=lambda: float(next(clock))))
    solution, seconds = slq_gaits._solve("trot", "closed form", True)
    assert seconds == [1.0] * len(solution.history)


def test_planning_methods_take_turns_in_each_scenario(monkeypatch):
    """Load of other programs then affects all methods."""
    order = []

    def plans(method, obstacle, threads, seed, quick, replans):
        order.append(method)
        row = {"method": method, "obstacle": obstacle, "threads": threads, "seed": seed, "stage": "planning"}
        return [{**row, "milliseconds": 2.0, "derivatives [ms]": 1.0, "iterations": 3, "solved": method != "Num-Diff"}]

    monkeypatch.setattr(replanning_times, "_plans", plans)
    outcome = replanning_times.run(False)
    methods = list(replanning_times.METHODS)
    assert order == methods * (len(order) // len(methods))
    assert "80 of 80 (Num-Diff), 0 of 80 (Auto-Diff)" in outcome.remarks[0]
    assert "derivatives take 1.0, 1.0, 1.0 ms" in outcome.comparisons[0].why


def test_inverses_in_loops_are_those_of_the_mass_matrix():
    """Branch-sparse L'L and dense L L' as C loops."""
    model, rng = load_robot("hyq"), np.random.default_rng(6)
    B = np.eye(model.nv)
    for i in range(model.nv):  # a matrix with the branch sparsity of the robot: L'L of such a factor
        j = model.dof_parent[i]
        while j >= 0:
            B[i, j], j = rng.uniform(-1.0, 1.0), model.dof_parent[j]
    M = B.T @ B
    for loops in torque_derivative._loops(model).values():
        found = torque_derivative.block_in_loops(loops, M)
        np.testing.assert_allclose(
            found, np.linalg.inv(M)[6:, 6:], rtol=0.0, atol=1e-10 * np.abs(np.linalg.inv(M)).max()
        )


def test_the_pseudo_inverse_formula_is_inverse_dynamics_with_a_free_base():
    import casadi as ca

    from dynamics_backends.registry import make_backend
    from dynamics_backends.systems.bodies.rigid_body_map import ActuatedInverseDynamics

    model, rng = load_robot("hyq"), np.random.default_rng(7)
    q, v, a = model.random_configuration(rng, 1)[0], rng.standard_normal(model.nv), rng.standard_normal(12)
    symbols = [ca.SX.sym(name, size) for name, size in (("q", model.nq), ("v", model.nv), ("a", 12))]
    f = ca.Function("f", symbols, [derivative_modes.pseudo_inverse_dynamics(model, *symbols)])
    backend = make_backend(ActuatedInverseDynamics(model), "analytic", engine="numpy")
    expected = backend.f(np.concatenate([q, v])[None], a[None])[0]
    np.testing.assert_allclose(np.asarray(f(q, v, a))[:, 0], expected, rtol=0.0, atol=EXACT * np.abs(expected).max())


def test_a_compiled_call_is_timed_after_its_first_run():
    """The first run touches the memory; long NumPy calls are timed in their first run."""
    calls = []
    second_order_growth._seconds(lambda: calls.append("numpy"), 3, -1.0)
    second_order_growth._seconds(lambda: calls.append("compiled"), 3, np.inf)
    assert calls.count("numpy") == 1 and calls.count("compiled") > 4


def test_errors_are_compared_over_the_bodies_of_all_methods():
    """Sizes that only one method computes are ignored; forward dynamics has a separate ranking."""
    errors = {"closed form": 1e-13, "chain rule": 1e-14, "FD-1": 1e-3, "FD-2": 1e-7}
    rows = [
        {"function": kind, "shape": shape, "bodies": n, "method": m, "RMSRE": e if n == 2 else 1.0}
        for kind in ("ID", "FD")
        for shape in second_order_errors.SHAPES
        for m, e in errors.items()
        for n in ((2,) if m == "chain rule" else (2, 3))
    ]
    lines = {c.what: c for c in second_order_errors._comparisons(rows)}
    for kind in ("ID", "FD"):
        row = lines[f"worst RMSRE of second-order {kind}"]
        assert not row.failed and "closed form 1.0e-13" in row.ours and "2 to 2 bodies" in row.why
    assert lines["worst RMSRE of second-order FD"].published == "chain rule < closed form < FD-1"
    assert lines["mean RMSRE of second-order ID, trees / chains"].different  # as large, not smaller


def test_a_solve_that_stops_short_of_its_tolerance_is_named():
    """Success at the default tolerance is not success at the experiment's; a final shortened step ends the full-step phase."""
    steps = [SimpleNamespace(iteration=k, step_length=alpha, stop=2.0) for k, alpha in enumerate((1.0, 0.5, 0.0))]
    solution = SimpleNamespace(history=steps, status=Status(StatusCode.CONVERGED, ""), cost=1.0)
    short = lifting_convergence.Run(solution, [3.0, 2.0, 0.0])
    assert not short.reached and short.full_steps_from == np.inf
    steps[-1].stop, steps[1].step_length = 0.5, 1.0
    whole = lifting_convergence.Run(solution, [3.0, 2.0, 0.0])
    assert whole.reached and whole.full_steps_from == 0


def test_qps_that_reach_an_active_set_solver_are_counted():
    original, free = ActiveSet.solve, np.full(2, np.inf)
    qp = QP(sp.csc_matrix(np.eye(2)), np.ones(2), sp.csc_matrix((0, 2)), np.zeros(0), np.zeros(0), -free, free)
    with contour_times.qps_by_active_sets() as results:
        found = ActiveSet("qrqp").solve(qp)
    assert results == [QPStatus.SOLVED] and ActiveSet.solve is original
    np.testing.assert_allclose(found.w, [-1.0, -1.0])


def test_the_crossover_is_the_least_size_from_which_on_the_recursion_is_faster():
    times = {"DTM": (1.0, 1.0, 5.0, 9.0), "IDFOZA": (0.5, 2.0, 4.0, 8.0)}
    rows = [
        {"bodies": n, "term": "inner", "method": method, "AVX": "AVX on", "microseconds": t}
        for method, column in times.items()
        for n, t in zip((2, 4, 8, 16), column, strict=True)
    ]
    assert tensor_products.crossover(rows, "inner", "AVX on") == 8
    assert tensor_products.crossover(rows[:-1] + [{**rows[-1], "microseconds": 10.0}], "inner", "AVX on") is None


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "library_file", lambda name: tmp_path / f"kernels-{name}.so")
    with pytest.raises(LibraryMissing, match="make kernels"):
        tensor_products.measure_in_process((2,), 1, avx=False)


@pytest.mark.skipif(len(instruction_sets()) == 1, reason="AVX is of x86-64 processors")
def test_recursions_without_avx_run_in_two_lanes(quick_outcome):
    lanes = {row["AVX"]: row["lanes"] for row in quick_outcome("tensor-products").rows}
    assert lanes["AVX off"] == 2 and lanes["AVX on"] == library_lanes()


# -- published figures ---------------------------------------------------------------------------------------

RESULTS = Path(__file__).parents[2] / "docs" / "benchmarks" / "results.md"


def _lines_of(page):
    """(what, published, ours, remark) of all tables of a page."""
    rows = (line.strip("|").split("|") for line in page.splitlines() if line.startswith("| "))
    return [tuple(cell.strip() for cell in row) for row in rows if len(row) >= 4]


@pytest.mark.parametrize("figure", published.FIGURES, ids=lambda f: f"{f.paper}: {f.what}")
def test_every_published_figure_is_compared_or_has_a_reason(figure):
    """Each published figure is on the results page; n/a needs a reason."""
    assert figure.experiment in (*registry.STUDIES, None) and (figure.experiment or figure.why)
    found = [row for row in _lines_of(RESULTS.read_text(encoding="utf-8")) if row[0].startswith(figure.what)]
    assert found and all(row[1] and row[2] and (row[2] != "n/a" or row[3]) for row in found)
    assert "not found by this run" not in {row[3] for row in found}


def test_a_figure_that_an_experiment_lacks_is_named():
    what = [Comparison("mean error of FD, worst", "about 5e-06", "4e-06")]
    left = [f.what for f in published.missing("derivative-accuracy", what)]
    assert left[:3] == ["mean error of FDC,", "mean error of AD,", "mean error of ED,"]
    assert left[3:] == [
        "order of the algorithms by FD's mean error, minimal",
        "order of the algorithms by FD's mean error, with constraints",
        "gain of exact derivatives over FD",
    ]


# -- peers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "order"), [(lambda e: 3.0 * e**2, 2.0), (lambda e: 1e-12, np.inf), (lambda e: np.nan, np.nan)]
)
def test_a_step_that_fails_has_no_order(after, order, monkeypatch):
    """A failed step differs from a step that reaches rounding level, which is better than any order."""
    monkeypatch.setattr(local_convergence, "iteration_errors", lambda *of: [of[4], after(of[4])])
    assert local_convergence.fitted_order(None, None, "ddp", {}, 1e-2) == pytest.approx(order, nan_ok=True)


@pytest.mark.parametrize("label", ["DDP, newton", "DDP, true"])
def test_ddp_converges_quadratically_with_control_bounds(label):
    """The barrier of the filter method would move the start of each iteration away from the solution."""
    make, size = local_convergence.PROBLEMS["cart-pole"]
    ocp = make()
    best = solve(ocp, None, {"shooting": "single", "gradient_tolerance": 1e-13, "kkt_tolerance": 1e-16}, solver="ddp")
    before, after = local_convergence.iteration_errors(ocp, best, *local_convergence.SOLVERS[label], size, 1)
    assert np.isfinite(ocp.u_upper).any() and after < 10.0 * before**2


def test_a_solve_that_ends_elsewhere_is_no_comparison_of_the_same_optimum():
    same, other = (peer_solves._row("reach", "peer", 2.0, 6.0, apart) for apart in (1e-9, 1e-3))
    assert same["what"] == "whole solve" and "another optimum" in other["what"]
    comparison = peers._comparison(same)
    assert (comparison.published, comparison.ours, comparison.worse) == (
        "6 ms",
        "2 ms",
        False,
    ) and "peer / ours 3;" in comparison.why
    assert peers._comparison(peer_solves._row("reach", "peer", 6.0, 2.0, 0.0)).worse
