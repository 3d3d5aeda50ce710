"""Stages by finite differences on tapes, beside the same stages in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from contact_cases import hop
from stage_cases import close
from twin_cases import assert_same_expansion, trajectory

import trajopt as to
from dynamics_backends.manifold import SO3, Manifold, vector_space
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.rigid_body.model.sample_models import random_tree
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.evaluation import StageEvaluator
from trajopt.step.other_backend import with_backend

METHODS = {"central_difference": 1e-7, "forward_difference": 1e-5}
"""Rounding of the values over the step."""


def function(x, u, t, p):
    """A satellite with a wheel and a parameter."""
    w = [x[4], x[5], x[6]]
    turn = [u[0] * p["gain"][0] - w[1] * w[2], u[1] - w[2] * w[0] * np.cos(t), u[2] + x[0] * w[1]]
    return [*w, *turn]


def satellite() -> to.OCP:
    map = FunctionMap(function, Manifold([SO3, vector_space(3)]), nu=3, n_out=6)
    x0 = np.array([0.6, 0.0, 0.0, 0.8, 0.1, -0.2, 0.3])
    terms = [to.control_cost(3, reference=0.1, weight=1.0), to.state_cost(map.manifold, map.manifold.identity(), 2.0)]
    phase = to.Phase(
        to.SampledSystem(to.make_backend(map, "forward_ad"), "rk4"), np.full(9, 0.05), terms, {"gain": [0.7]}
    )
    return to.OCP((phase,), x0, (to.state_cost(map.manifold, map.manifold.identity(), 9.0),))


def robot(damping: float = 0.0) -> to.OCP:
    model = random_tree(3, 4)
    system = to.FreeBody(model.replace(damping=np.full(model.nv, damping)))
    dynamics = to.SampledSystem(to.make_backend(system), "semi_implicit_euler")
    x0 = system.manifold.identity() + 0.1
    return to.OCP.single_phase(
        dynamics,
        x0,
        9,
        0.02,
        [to.control_cost(system.nu, reference=0.1, weight=1.0)],
        [to.state_cost(system.manifold, x0)],
    )


def touching() -> to.OCP:
    """The hop without the cost of its contact forces."""
    ocp = hop()
    return replace(ocp, phases=tuple(replace(p, terms=p.terms[:2]) for p in ocp.phases))


PROBLEMS = {"function": satellite, "robot": robot, "damped robot": lambda: robot(5.0), "contacts": touching}


def in_numpy(ocp: to.OCP, method: str) -> to.OCP:
    return with_backend(ocp, {"name": method, "engine": "numpy"})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_expansion(problem, method):
    assert_same_expansion(in_numpy(PROBLEMS[problem](), method), tolerance=METHODS[method])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_expansion_by_the_default_engine(problem, method):
    ocp = PROBLEMS[problem]()
    taped = StageEvaluator(with_backend(ocp, {"name": method, "engine": "auto"}), engine="auto")
    assert all(isinstance(stages, CompiledStages) for stages in taped.stages[:-1])
    xs, us = trajectory(ocp)
    actual, expected = taped.expand(xs, us), StageEvaluator(in_numpy(ocp, method)).expand(xs, us)
    for a, e in zip((actual.x_next, *actual.lq), (expected.x_next, *expected.lq), strict=True):
        close(a, e, METHODS[method])


def test_another_backend_of_the_default_engine():
    function_map = FunctionMap(lambda x, u, t, p: [x[1], u[0] - np.sin(x[0])], 2, 1)
    step = to.SampledSystem(to.make_backend(function_map, "forward_ad", engine="auto"), "rk4")
    ocp = to.OCP.single_phase(
        step,
        [1.0, 0.0],
        20,
        0.1,
        [to.control_cost(1, reference=0.1, weight=1.0)],
        [to.state_cost(Manifold.vector(2), [0.0, 0.0], 10.0)],
    )
    for name in ("central_difference", "complex_step"):
        (phase,) = with_backend(ocp, name).phases
        assert phase.dynamics.backend.engine == "compiled"
    (phase,) = in_numpy(ocp, "central_difference").phases
    assert phase.dynamics.backend.engine == "numpy"
