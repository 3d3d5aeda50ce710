"""Clearances and residuals along a step: analytic derivatives against dual numbers, compiled code against NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dynamics_backends.manifold import Manifold
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import frame_placement
from dynamics_backends.rigid_body.geometry.clearance import NUMBERS, Clearances, Slot
from problems.arms.scenes.joint_torques import Torques, torques_of
from problems.arms.scenes.scene_structure import Costs, SceneStructure
from problems.robots import load_robot
from trajopt.problem.along_step import STEP_OFFSET, AlongStep
from trajopt.problem.ocp import OCP
from trajopt.stage.engine import StageOperations, stages_of
from trajopt.stage.stages import Knots

MODEL = load_robot("irb4600", base="fixed")
SLOTS = (
    Slot(2, -1, "box"),
    Slot(5, -1, "box"),
    Slot(5, -1, "cylinder"),
    Slot(4, 0, "box"),
    Slot(5, 1, "cylinder"),
    Slot(5, -1, "triangle"),
)
N = 20


def pairs(rng):
    """Random capsules and bodies, apart from each other for most configurations."""
    rows = []
    for _ in SLOTS:
        a = rng.uniform(-0.2, 0.2, (N, 3))
        turn = Rotation.random(N, random_state=rng).as_matrix().reshape(N, 9)
        place = rng.choice([-1.0, 1.0], (N, 3)) * rng.uniform(1.0, 2.5, (N, 3))
        rows.append(np.hstack([a, a + rng.uniform(-0.3, 0.3, (N, 3)), turn, place, rng.uniform(0.05, 0.3, (N, 3))]))
    return np.hstack(rows)


def configurations(rng):
    return rng.uniform(-1.5, 1.5, (N, MODEL.nq))


def agree(residual, x, u, p):
    """The analytic derivatives equal those of dual numbers."""
    lam = np.random.default_rng(3).normal(size=(N, residual.n_out))
    own, dual = (make_backend(residual, method, engine="numpy") for method in ("analytic", "forward_ad"))
    for a, b in zip(own.jacobians(x, u, 0.0, p), dual.jacobians(x, u, 0.0, p), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    first, second = own.hessian_contraction(x, u, 0.0, p, lam)[1], dual.hessian_contraction(x, u, 0.0, p, lam)[1]
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(np.asarray(a).reshape(N, -1), np.asarray(b).reshape(N, -1), atol=1e-9)


def test_clearances_name_the_bodies():
    link, names = MODEL.body_names, Clearances(MODEL, SLOTS).output_names
    assert names[0] == f"{link[2]} to the surroundings (pair 0)" and names[4] == f"{link[5]} to {link[1]} (pair 4)"
    bodies = ["post", "shelf", "shelf", "", "", "post"]
    assert Clearances(MODEL, SLOTS, bodies=bodies).output_names[1] == f"{link[5]} to shelf (pair 1)"


def test_derivatives_of_clearances():
    rng = np.random.default_rng(0)
    residual, x, p = Clearances(MODEL, SLOTS), configurations(rng), {"pairs": pairs(rng)}
    assert make_backend(residual, "analytic", engine="numpy").f(x, np.zeros((N, 0)), 0.0, p).min() > 0.01
    agree(residual, x, np.zeros((N, 0)), p)


@pytest.mark.parametrize("duration", [None, 2 * MODEL.nv])
def test_derivatives_along_a_step(duration):
    rng = np.random.default_rng(1)
    n, size = MODEL.nv, 2 * MODEL.nv + (duration is not None)
    names = [f"a{i}" for i in range(n)]
    x = np.hstack([configurations(rng), rng.normal(size=(N, n)), rng.uniform(0.5, 2.0, (N, size - 2 * n))])
    u, offset = 3.0 * rng.normal(size=(N, n)), np.array([0.02])
    clear = AlongStep(Clearances(MODEL, SLOTS), Manifold.vector(size), names, duration)
    agree(clear, x, u, {"pairs": pairs(rng), STEP_OFFSET: offset})
    torques = AlongStep(Torques(MODEL, [1e3] * n), Manifold.vector(size), names, duration)
    agree(torques, x, u, {STEP_OFFSET: offset})


def test_a_clearance_does_not_depend_on_common_joints():
    """For a slot between two links, the joints below the nearer link have no effect."""
    rng = np.random.default_rng(2)
    residual = Clearances(MODEL, SLOTS)
    fx = make_backend(residual, "analytic", engine="numpy").jacobians(
        configurations(rng), np.zeros((N, 0)), 0.0, {"pairs": pairs(rng)}
    )[1]
    assert not fx[:, 3, :1].any() and fx[:, 3, 1:5].any()
    assert not fx[:, 4, :2].any() and fx[:, 4, 2:].any()


def test_a_point_of_the_last_link_against_a_wall():
    """The distance from a wall at x = 100 m is that of the frame's x coordinate."""
    q = configurations(np.random.default_rng(4))
    body = MODEL.frames[MODEL.frame_id("ee")].body
    wall = np.concatenate([np.zeros(6), np.eye(3).ravel(), [150.0, 0.0, 0.0], [50.0, 500.0, 500.0]])
    residual = Clearances(MODEL, [Slot(body, -1, "box")])
    value = make_backend(residual, "analytic", engine="numpy").f(q, np.zeros((N, 0)), 0.0, {"pairs": wall})
    joint = next(f.name for f in MODEL.frames if f.body == body and f.kind == "joint")
    np.testing.assert_allclose(value[:, 0], 100.0 - frame_placement(MODEL, q, joint)[1][:, 0], atol=1e-9)


def test_invalid_slots_are_refused():
    with pytest.raises(ValueError, match="at least one slot"):
        Clearances(MODEL, [])
    with pytest.raises(ValueError, match="not on the path"):
        Clearances(MODEL, [Slot(1, 3, "box")])
    assert NUMBERS == 21


def test_a_compiled_stage_has_the_distances_of_numpy():
    """Values and derivatives of both orders, at the knots and within the steps, for many slots with called distances."""
    rng, n = np.random.default_rng(5), MODEL.nv
    structure = SceneStructure(MODEL, 3 * SLOTS, (np.inf,) * n, Costs(1.0, 0.01, 0.0, 10.0), N, 2)
    phases = structure.phases(lambda system: make_backend(system, "analytic", engine="numpy"))
    bodies = np.hstack([pairs(rng) for _ in range(3)]).reshape(N, -1, NUMBERS)
    bodies[:, -len(SLOTS) :, 15:18] *= 0.2  # of the last slots some are entered
    bodies[:, -len(SLOTS) :, 18:] *= 4.0
    numbers = {"pairs": bodies.reshape(N, -1)}
    asked = [
        replace(c, parameters={**c.parameters, **numbers}) for c in phases[1].constraints if "pairs" in c.parameters
    ]
    ocp = OCP(phases, np.r_[np.zeros(2 * n), 1.0])
    xs = np.hstack([configurations(rng), rng.normal(size=(N, n)), rng.uniform(0.5, 2.0, (N, 1))])
    given = Knots(xs, rng.normal(size=(N, n)), xs + 0.1)
    wanted = StageOperations("exact", second=True, path=[(), tuple(asked)])
    numpy, compiled = (stages_of(ocp, wanted, engine)[1] for engine in ("numpy", "compiled"))
    assert compiled.compiled and compiled.second_orders[0]
    y = rng.normal(size=(N, 2 * len(structure.slots)))
    ours, theirs = (
        [s.values(given).g, d.values.g, d.gx, d.gu, *s.second(given, 0.0, None, y)]
        for s, d in ((s, s.first(given, quadratic=False)) for s in (compiled, numpy))
    )
    assert theirs[0].min() < 0.0 < theirs[0].max()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * max(1.0, np.abs(b).max()))


def test_torques_of_scenes_are_those_of_motors_beside_springs():
    """Values and first derivatives, by central differences."""
    rng, n = np.random.default_rng(3), MODEL.nv
    springy = MODEL.replace(stiffness=rng.uniform(0.0, 5.0, n), spring_reference=rng.standard_normal(n))
    torques, x, a = Torques(springy, np.ones(n)), rng.standard_normal(2 * n), rng.standard_normal(n)

    def value(x):
        return np.ravel(torques(x[:, None], a[:, None], np.zeros(1), {}))

    q, v = x[None, :n], x[None, n:]
    np.testing.assert_allclose(value(x), torques_of(springy, q, v, a[None])[0], atol=1e-12)
    bare = torques_of(MODEL, q, v, a[None])[0]
    np.testing.assert_allclose(value(x) - bare, springy.stiffness * (x[:n] - springy.spring_reference), atol=1e-12)
    fx = torques.partials(x[:, None], a[:, None], np.zeros(1), {}).fx
    slopes = np.array([(value(x + 1e-6 * e) - value(x - 1e-6 * e)) / 2e-6 for e in np.eye(2 * n)]).T
    np.testing.assert_allclose(np.array([np.ravel(row) for row in fx]), slopes, atol=1e-6)
