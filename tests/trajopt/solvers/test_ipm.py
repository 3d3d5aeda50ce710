"""The interior-point method: textbook programs, optima of other solvers, its linear systems, verdicts, multipliers, options."""

from dataclasses import replace

import numpy as np
import pytest
import textbook_systems as textbook
from hock_schittkowski import HOCK_SCHITTKOWSKI, Problem, TextbookNLP

import trajopt as to
from dynamics_backends.protocol import FunctionMap, Hessians
from trajopt import OCP, Guess, StatusCode, bounded, control_cost, interpolated_guess, state_bounds, state_cost
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.ipm.ipm import solve_program
from trajopt.solvers.ipm.stage_program import StageProgram
from trajopt.solvers.options import IPMOptions
from trajopt.stage.stages import StageValues

REST = np.r_[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


def solve(ocp, guess=None, options=None, **fields):
    return to.solve(ocp, guess, options, solver="ipm", **fields)


def sampled(system, substeps=1):
    return to.SampledSystem(to.make_backend(system, "forward_ad"), "rk4", substeps)


def mass(distance=1.0, limit=None, horizon=10, **fields):
    """A mass from rest to rest in one second with least effort."""
    dynamics = sampled(textbook.double_integrator())
    goal = bounded(state_cost(dynamics.manifold, [distance, 0.0]), name="goal")
    bounds = {} if limit is None else {"u_lower": [-limit], "u_upper": [limit]}
    fields = {"terminal_constraints": [goal]} | bounds | fields
    return OCP.single_phase(dynamics, np.zeros(2), horizon, 1.0 / horizon, [control_cost(1)], **fields)


def swing_up(track=0.5):
    dynamics = sampled(textbook.cart_pole(), 2)
    goal = np.array([0.0, np.pi, 0.0, 0.0])
    free = [np.inf] * 3
    fields = {
        "constraints": [state_bounds(dynamics.manifold, np.r_[-track, np.negative(free)], np.r_[track, free], "track")],
        "terminal_constraints": [bounded(state_cost(dynamics.manifold, goal), name="goal")],
    }
    ocp = OCP.single_phase(
        dynamics, np.zeros(4), 25, 0.06, [control_cost(1, 0.0, 0.1)], u_lower=[-20.0], u_upper=[20.0], **fields
    )
    return ocp, interpolated_guess(ocp, goal)


# -- textbook programs: one stage whose controls are the variables -------------------------------------------------------


class TextbookStages:
    """A program's functions at the one knot of a horizon; the state does not matter."""

    def __init__(self, nlp):
        self.nlp = nlp

    def values(self, x, u, nodes):
        f, g = self.nlp.evaluate(u[0])
        return StageValues(x, x - nodes, np.array([f]), g[None])

    def first(self, x, u, nodes, *, quadratic=True, out=None, pool=None):
        for own, new in zip(out.values, self.values(x, u, nodes), strict=True):
            own[:] = new
        gradient, J = self.nlp.differentiate(u[0])
        for block in (out.B, out.lx, out.gx):
            block[:] = 0.0
        out.A[:], out.lu[:], out.gu[:] = 1.0, gradient, J.toarray()
        return out

    def second(self, x, u, nodes, sigma, lam=None, y=None, first=0, out=None):
        m = u.shape[1]
        H = self.nlp.hessian(u[0], sigma, np.zeros(0) if y is None else y[0]).toarray()
        return Hessians(np.zeros((1, 1, 1)), np.zeros((1, m, 1)), H[None])


def textbook_solution(problem, **options):
    nlp = TextbookNLP(problem)
    m, rows = len(nlp.x_lower), len(nlp.g_lower)
    dynamics = sampled(FunctionMap(lambda x, u, t, p: [0.0 * x[0]], 1, m, second_order=True))
    constraints = []
    if rows:
        own = (lambda x, u, t, p: [0.0 * u[0]] * rows, dynamics.manifold, rows, nlp.g_lower, nlp.g_upper)
        constraints = [to.residual_constraint("rows", *own, nu=m)]
    bounds = {"u_lower": nlp.x_lower, "u_upper": nlp.x_upper, "constraints": constraints}
    ocp = OCP.single_phase(dynamics, np.zeros(1), 1, 1.0, [control_cost(m)], **bounds)
    program = StageProgram(ocp, np.zeros((1, m)), "exact")
    program.stages[0] = TextbookStages(nlp)
    guess = Guess(np.zeros((2, 1)), np.array(problem.start, dtype=float)[None])
    return solve_program(program, guess, IPMOptions(**options)), nlp


@pytest.mark.parametrize("strategy", ["adaptive", "monotone"])
@pytest.mark.parametrize("problem", HOCK_SCHITTKOWSKI, ids=lambda p: p.name)
def test_textbook_programs(problem: Problem, strategy):
    found, nlp = textbook_solution(problem, barrier_strategy=strategy)
    assert found.status.success, (found.status, found.cost, found.us)
    optima = (problem.optimum, *problem.others)
    nearest = min(optima, key=lambda value: abs(value - found.cost))
    assert found.cost == pytest.approx(nearest, rel=max(problem.digits, 1e-7), abs=max(problem.digits, 1e-6))
    _, g = nlp.evaluate(found.us[0])
    assert np.maximum(nlp.g_lower - g, g - nlp.g_upper).max(initial=0.0) <= 1e-7
