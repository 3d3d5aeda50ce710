"""Stages of systems whose derivatives have rows with few entries, which straight-line code packs for steps of several stages."""

import re

import numpy as np
import pytest
from stage_cases import close, compiled_evaluator

import trajopt as to
from dynamics_backends.compiled.sources.dynamics_source import dynamics_source
from dynamics_backends.compiled.sources.traced_source import packed
from dynamics_backends.symbols import ca
from trajopt.stage.evaluation import StageEvaluator

pytestmark = pytest.mark.needs_compiler


def arm(*, floating=False, damping=0.0):
    model = to.random_tree(3, 2 if floating else 4, ("revolute",), floating_base=floating)
    return model.replace(damping=np.r_[np.zeros(6 * floating), np.full(model.nv - 6 * floating, damping)])


def freed(model, scheme, substeps, method="analytic"):
    """A motion of free duration, whose state has a row that stays and rows that read a velocity and the duration."""
    body = to.FreeBody(model)
    dynamics = to.SampledSystem(to.make_backend(body, method, engine="numpy"), scheme, substeps)
    rest = body.manifold.identity()
    terms = [to.control_cost(body.nu), to.state_cost(body.manifold, rest, 0.3)]
    ocp = to.OCP.single_phase(dynamics, rest, 5, 0.04, terms, terms[1:], model=model)
    return to.free_time(ocp).ocp


def motion(ocp, seed=2):
    rng, n = np.random.default_rng(seed), ocp.horizon
    xs = np.tile(ocp.x0[:, None], n + 1)
    xs = ocp.manifold.integrate(xs, rng.uniform(-0.5, 0.5, (ocp.manifold.ndx, n + 1))).T
    xs[:, -1] += 1.0
    return xs, rng.standard_normal((n, ocp.nu))


CASES = {
    "arm": (arm(), "analytic"),
    "damped": (arm(damping=3.0), "analytic"),
    "floating": (arm(floating=True), "analytic"),
    "casadi": (arm(), "casadi_ad"),
}


@pytest.mark.parametrize("scheme, substeps", [("rk4", 1), ("rk4", 3), ("euler", 2)])
@pytest.mark.parametrize("name", CASES)
def test_of_both_orders_as_in_numpy(name, scheme, substeps):
    model, method = CASES[name]
    ocp = freed(model, scheme, substeps, method)
    xs, us = motion(ocp)
    compiled, plain = compiled_evaluator(ocp), StageEvaluator(ocp)
    actual, expected = (e.expand(xs, us).lq for e in (compiled, plain))
    for a, e in zip(actual, expected, strict=True):
        close(a, e)
    if method != "analytic":
        return
    lam = np.random.default_rng(3).standard_normal((ocp.horizon - 1, ocp.manifold.ndx))
    assert compiled.stages[1].second_orders[1]
    at = xs[1:-1], us[1:], xs[2:]
    for a, e in zip(*(s.stages[1].second(*at, 0.7, lam) for s in (compiled, plain)), strict=True):
        close(a, e)


@pytest.mark.parametrize("several, rows", [(True, 5), (False, 0)])
def test_rows_with_few_entries(several, rows):
    """An arm of free duration has them for the rates of its coordinates, and of the duration."""
    ocp = freed(CASES["arm"][0], "rk4", 1)
    text = dynamics_source(ocp.phases[1].dynamics.sampling.called, {}, several_stages=several).source
    assert [int(number) for number in re.findall(r"#define FEW_ROWS (\d+)", text)] == ([rows] if rows else [])


def test_rows_that_controls_move_are_full():
    x, y = ca.SX.sym("x"), ca.SX.sym("y")
    zero = ca.SX(0.0)
    fx = ca.vertcat(zero, x, zero, zero, *[zero] * 4, zero, zero, zero, y)
    text, (f, left, fu) = packed([ca.vertcat(x, y, x), fx, ca.vertcat(zero, x, zero)], 3)
    assert "FEW_ROWS 2" in text and "full_row[] = { 1 }" in text and "few_row[] = { 0, 2 }" in text
    assert "few_first[] = { 0, 1, 2 }" in text and "few_column[] = { 1, 3 }" in text
    expected = [*[zero] * 4, x, y]
    assert all(ca.is_equal(a, e) for a, e in zip(ca.vertsplit(left), expected, strict=True))
    assert ca.is_equal(fu, x) and f.numel() == 3
