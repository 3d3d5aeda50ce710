"""First-try benchmark: instances, files, tolerance on the best known objective, performance profiles, and independent formulas."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from experiments.benchmarks.first_try import benchmark_first_try, best_known, optimum, runs
from experiments.benchmarks.first_try.best_known import Best, from_rows, merge_best, read_best, write_best
from experiments.benchmarks.first_try.complementarity import CLEARANCE, COUNT, FAMILIES, OBSTACLES, instances
from experiments.benchmarks.first_try.instance import Instance
from experiments.benchmarks.first_try.report import above, panels, profile, table, worse_solves
from experiments.benchmarks.first_try.runs import Job, Row, read_rows, solve_job
from experiments.benchmarks.tables import write_csv
from experiments.plots.performance_profiles import draw_profiles


def row(instance: str, solver: str, objective: float = 1.0, status: str = "converged", seconds: float = 1.0) -> Row:
    success, nothing = status == "converged", np.nan
    numbers = (success, 7, seconds, seconds, objective, 0.01, 0.2, nothing, nothing)
    return Row("optimum", "reach", instance, 0, solver, status, *numbers, "" if success else "no luck")


def two_ways() -> tuple[to.OCP, to.Guess]:
    """x1 = u, 1/2 u^2 + 50 ((x1 - 0.1)^2 - 1)^2: minima near 1.1 and -0.9, that of the guess u = 0 is the worse one."""
    cart = to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1)
    step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "euler")
    ends = to.residual_cost("ends", lambda x, u, t, p: [(x[0] - 0.1) * (x[0] - 0.1) - 1.0], cart.manifold, 1, 100.0)
    ocp = to.OCP.single_phase(step, [0.0], 1, 1.0, [to.control_cost(1)], [ends])
    return ocp, to.constant_guess(ocp)


@pytest.fixture
def one_instance(monkeypatch):
    found = Instance("two ways 0", "optimum", "ways", two_ways)
    monkeypatch.setattr(
        optimum, "instances", lambda seed: [found, Instance("broken 0", "optimum", "ways", lambda: 1 / 0)]
    )
    runs.instances.cache_clear()
    yield
    runs.instances.cache_clear()


def test_there_are_200_instances_that_depend_on_the_seed_alone():
    first, again = optimum.instances(3), optimum.instances(3)
    assert len({i.name for i in first}) == len(first) == 200
    assert [i.name for i in first] == [i.name for i in again]
    number = next(k for k, i in enumerate(first) if i.name.startswith("cart-pole"))
    one, other = (found[number].build()[0] for found in (first, again))
    assert np.array_equal(one.x0, other.x0) and np.array_equal(one.control_bounds[1], other.control_bounds[1])
    assert not np.array_equal(one.x0, optimum.instances(4)[number].build()[0].x0)


@pytest.mark.parametrize("family", ["swing-up", "vehicles"])
def test_every_build_of_an_instance_is_the_same_problem(family):
    """Solvers in one process build an instance in turn, and their objectives are compared."""
    for instance in (i for i in optimum.instances(3) if i.family == family):
        (one, guess), (other, _) = instance.build(), instance.build()
        assert np.array_equal(one.x0, other.x0) and np.array_equal(one.control_bounds, other.control_bounds)
        assert one.cost(guess.xs + 0.1, guess.us) == other.cost(guess.xs + 0.1, guess.us)
        pairs = zip(one.constraints(), other.constraints(), strict=True)
        assert all(np.array_equal(a.lower, b.lower) for a, b in pairs)


def test_half_of_the_arms_start_straight():
    ur5 = [i for i in optimum.instances() if i.name.startswith("ur5 reach")]
    straight = [not i.build()[0].x0.any() for i in ur5]
    assert len(ur5) == 5 and sum(straight) == 3


def test_rows_are_read_as_they_were_written(tmp_path):
    rows = [row("a", "auto"), row("b", "dms", 2.5, "infeasible")]
    write_csv(tmp_path / "rows.csv", rows)
    assert [r._replace(violation=0.0, violation_ratio=0.0) for r in read_rows(tmp_path / "rows.csv")] == [
        r._replace(violation=0.0, violation_ratio=0.0) for r in rows
    ]
    assert read_rows(tmp_path / "none.csv") == []


def test_a_solve_and_a_broken_instance_are_rows(one_instance):
    found, broken = (solve_job(Job("optimum", name, 0, "auto", 10.0)) for name in ("two ways 0", "broken 0"))
    assert found.success and found.seconds > 0.0
    u = np.linspace(-2.0, 2.0, 400_001)
    assert found.objective >= (0.5 * u**2 + 50.0 * ((u - 0.1) ** 2 - 1.0) ** 2).min() - 1e-8
    assert broken.status == "error" and "ZeroDivisionError" in broken.reason and not broken.feasible


def test_solves_of_an_earlier_run_are_not_repeated(one_instance, tmp_path, capsys):
    jobs = [Job("optimum", "two ways 0", 0, solver, 10.0) for solver in ("auto", "ddp")]
    first = benchmark_first_try.run(jobs[:1], 1, tmp_path, rerun=False)
    capsys.readouterr()
    both = benchmark_first_try.run(jobs, 1, tmp_path, rerun=False)
    assert both[0].seconds == first[0].seconds
    assert capsys.readouterr().out.startswith("1/1 two ways 0 by ddp")


def test_random_guesses_find_the_better_optimum(one_instance):
    pytest.importorskip("cyipopt")
    found = best_known.search(Job("optimum", "two ways 0", 0, "auto", 10.0), 4, None)
    u = np.linspace(-2.0, 2.0, 400_001)
    least = (0.5 * u**2 + 50.0 * ((u - 0.1) ** 2 - 1.0) ** 2).min()
    assert min(b.objective for b in found) == pytest.approx(least, abs=1e-6)
    assert {b.start for b in found} >= {"ddp", "ipm, random guess 3", "dms, random guess 3"}


def test_the_best_known_objective_only_decreases(tmp_path):
    best = merge_best({}, from_rows([row("a", "auto", 2.0), row("a", "dms", 1.0), row("b", "dms", 0.5, "infeasible")]))
    best = merge_best(best, [Best("optimum", "a", 0, 1.5, "ddp")])
    write_best(best, tmp_path / "best.csv")
    assert read_best(tmp_path / "best.csv") == {("optimum", "a", 0): Best("optimum", "a", 0, 1.0, "dms")}


def test_distance_from_the_best_known_objective():
    best = {("optimum", "a", 0): 2.0}
    assert above(row("a", "auto", 2.5), best) == pytest.approx(0.25)
    assert above(row("a", "auto", 2.5, "goal_missed"), best) == pytest.approx(0.25)
    assert above(row("a", "auto", 1.0, "infeasible"), best) == np.inf


def test_table_counts_optima_by_family_and_group():
    rows = [row("a", "auto", 1.005), row("b", "auto", 1.05), row("c", "auto", 3.0), row("d", "auto", 1.0, "infeasible")]
    best = {("optimum", name, 0): 1.0 for name in "abcd"}
    lines = table(rows, best).splitlines()[2:]
    assert len(lines) == 2
    assert all("| 4 | 3 | 0 | 1 infeasible | 7 |" in line and "| 1 / 2 |" in line for line in lines)
    assert worse_solves(rows, best).splitlines() == [
        "- c: 3, 200.0 % above the best known",
        "- b: 1.05, 5.0 % above the best known",
    ]


def test_performance_profile():
    rows = [row("a", "x", seconds=1.0), row("a", "y", seconds=3.0), row("b", "x", 1.0, "infeasible"), row("b", "y")]
    found = profile(rows, lambda r: r.seconds)
    assert found["x"].tolist() == [1.0, np.inf]
    assert found["y"].tolist() == [1.0, 3.0]


def test_the_picture_is_drawn(tmp_path):
    rows = [row("a", "auto", 1.2), row("a", "dms", 1.0)]
    found = panels(rows, {("optimum", "a", 0): 1.0})
    assert found["optimum"][2].values["auto"] == pytest.approx([0.2])
    draw_profiles(found, tmp_path / "profiles.png")
    assert (tmp_path / "profiles.png").read_bytes().startswith(b"\x89PNG")


# -- complementarity problems: solutions satisfy independent formulas ---------------------------------------------------


def first(family, number=0):
    """The problem and the guess of an instance, with the values of its parameters."""
    ocp, guess = [i for i in instances() if i.family == family][number].build()
    return ocp, guess, {key: np.squeeze(v) for key, v in ocp.phases[0].parameters.items()}


def test_instances_are_named_once_and_follow_from_the_seed():
    found = instances(3)
    assert len(found) == COUNT * len(FAMILIES) == len({i.name for i in found})
    again, other = instances(3)[60].build(), instances(4)[60].build()
    ocp, guess = found[60].build()
    np.testing.assert_array_equal(ocp.x0, again[0].x0)
    np.testing.assert_array_equal(guess.xs, again[1].xs)
    assert np.abs(ocp.x0 - other[0].x0).max() > 1e-3


@pytest.mark.parametrize("number", [0, 31])
def test_the_car_keeps_its_distance(number):
    """Compare with the distance of a point from a rectangle with corners; CLEARANCE is the radius of the car."""
    ocp, guess, p = first("car among obstacles", number)
    s = to.solve(ocp, guess, solver="ipm", check=False)
    assert s.status.success
    for cx, cy, turn, a, b in p["obstacles"].reshape(OBSTACLES, 5):
        R = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        beyond = np.abs((s.xs[1:-1, :2] - [cx, cy]) @ R) - [a, b]
        assert np.hypot(*np.maximum(beyond, 0.0).T).min() >= CLEARANCE - 1e-6


def test_friction_opposes_the_motion_of_the_cart():
    ocp, guess, p = first("cart-pole with friction", 1)
    s = to.solve(ocp, guess, solver="ipm", check=False)
    assert s.status.success
    force, speed, slack = s.us[:, 1] - s.us[:, 2], s.xs[1:, 2], s.us[:, 7]
    assert np.abs(force).max() <= p["cart_friction"] + 1e-6
    slides = np.abs(speed) > 0.1
    assert slides.sum() > 10
    off = np.abs(force - p["cart_friction"] * np.sign(speed))[slides]
    assert off.max() <= (2.0 * slack[slides] / 0.1).max() + 1e-3


def test_torques_at_the_joint_limits_act_there_alone():
    ocp, guess, p = first("acrobot with joint limits")
    s = to.solve(ocp, guess, solver="ipm", check=False)
    assert s.status.success
    angle = s.xs[1:, 1]
    assert np.abs(angle).max() <= p["limit"] + 1e-6
    for torque, distance in ((s.us[:, 1], p["limit"] - angle), (s.us[:, 2], p["limit"] + angle)):
        assert (torque * distance <= s.us[:, 3] + 1e-6).all()
    assert s.us[:, 3].max() < 1e-2


def test_the_contact_slides_at_the_edge_of_the_friction_cone_alone():
    ocp, guess, p = first("planar pushing", 1)
    s = to.solve(ocp, guess, solver="ipm", check=False)
    assert s.status.success
    normal, tangent, slides = s.us[:, 0], s.us[:, 1], (s.us[:, 2] - s.us[:, 3])
    inside = p["friction"] * normal - np.abs(tangent)
    assert inside.min() >= -1e-6
    assert (np.maximum(inside, 0.0) * np.abs(slides) <= 2.0 * s.us[:, 4] + 1e-6).all()
    np.testing.assert_allclose(np.diff(s.xs[:, 3]), p["dt"] * slides, atol=1e-9)


def test_swing_ups_through_contact_are_solved_at_first_try():
    """Reflections alone solve 2 of these 8; different rounding may lose one."""
    found = []
    for number in range(4, 12):
        ocp, guess, _ = first("acrobot with joint limits", number)
        found.append(to.solve(ocp, guess, solver="ipm", check=False).status.success)
    assert sum(found) >= len(found) - 1
