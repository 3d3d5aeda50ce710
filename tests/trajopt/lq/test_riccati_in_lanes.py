"""Riccati sweeps with one problem per lane, compared with single sweeps: gains, failing knots, and directions."""

import ctypes
import struct

import numpy as np
import pytest
from numpy_lq import NumpyLQ, solve_riccati, stationarity

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, kernels, lanes_in_use
from trajopt.lq.lq import LQProblem

STEPS = 9
SIZES = [(5, 3), (2, 1), (13, 9), (24, 12)]
"""States and controls: with and without kernels for their number of controls."""


class Lane(ctypes.Structure):
    """lq_lane of riccati.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("p", "bounds", "to")),
        *((name, ctypes.c_double) for name in ("on_state", "on_control")),
        ("failed", ctypes.c_long),
    ]


def problem(rng, size, indefinite_at=None):
    N, (n, m) = STEPS, size
    A, B = np.eye(n) + 0.2 * rng.standard_normal((N, n, n)), 0.5 * rng.standard_normal((N, n, m))
    Q, R = (
        np.stack([np.eye(k) + min(0.1, 0.5 / k) * (W + W.T) for W in rng.standard_normal((K, k, k))])
        for K, k in ((N + 1, n), (N, m))
    )
    if indefinite_at is not None:
        R[indefinite_at] = -100.0 * np.eye(m)
    S, d = 0.1 * rng.standard_normal((N, m, n)), 0.1 * rng.standard_normal((N, n))
    return LQProblem(A, B, d, Q, rng.standard_normal((N + 1, n)), S, R, rng.standard_normal((N, m)), np.zeros(n))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("regularize", ["control", "state"])
def test_each_lane_equals_the_single_sweep(size, limited, regularize):
    """Lanes differ in numbers and damping; in two lanes Quu is indefinite at some knot."""
    rng, lanes = np.random.default_rng(0), lanes_in_use()
    library, (n, m) = kernels(lanes), size
    workspace = aligned(bound(library, "lq_in_lanes_workspace", "ii", ctypes.c_long)(n, m))
    problems = [problem(rng, size, {0: 4, lanes - 1: 7}.get(i)) for i in range(lanes)]
    damping = 0.3 * rng.random(lanes)
    references, asked, found = [], (Lane * lanes)(), []
    limits = [np.sort(rng.standard_normal((2, STEPS, m)), axis=0) for _ in range(lanes)]
    for i, lq in enumerate(problems):
        data = [np.ascontiguousarray(block) for block in lq[:8]]
        K, k = np.zeros((STEPS, m, n)), np.zeros((STEPS, m))
        own = [np.ascontiguousarray(limits[i][j]) for j in (0, 1)]
        texts = [
            struct.pack("8P l 2i", *map(address, data), STEPS, n, m),
            struct.pack("4P", address(K), address(k), 0, 0),
        ]
        texts.append(struct.pack("2P", *map(address, own)))
        p, to, bounds = map(ctypes.create_string_buffer, texts)
        on = (damping[i], 0.0) if regularize == "state" else (0.0, damping[i])
        asked[i] = Lane(
            ctypes.addressof(p), ctypes.addressof(bounds) if limited else None, ctypes.addressof(to), *on, 0
        )
        references += [data, own, p, to, bounds]
        found.append((K, k))
    bound(library, "lq_riccati_in_lanes", "pp")(ctypes.addressof(asked), address(workspace))
    for i, lq in enumerate(problems):
        expected = solve_riccati(lq, damping[i], regularize, tuple(limits[i]) if limited else None)
        assert asked[i].failed == (-1 if expected.failed_at is None else expected.failed_at)
        first = 0 if expected.failed_at is None else expected.failed_at + 1
        np.testing.assert_allclose(found[i][0][first:], expected.K[first:], rtol=0, atol=1e-11)
        np.testing.assert_allclose(found[i][1][first:], expected.k[first:], rtol=0, atol=1e-11)
    assert asked[0].failed == 4 and asked[lanes - 1].failed == 7


_GIVEN = ("d", "lambda", "g", "costs", "K", "k", "dx", "du", "held_lambda", "held_g", "under")


class Dims(ctypes.Structure):
    """lq_size of lq_types.h."""

    _fields_ = [("n", ctypes.c_int), ("m", ctypes.c_int)]


class Direction(ctypes.Structure):
    """lq_direction of lq_types.h."""

    _fields_ = [
        *((name, ctypes.c_double) for name in ("on_state", "on_control")),
        *((name, ctypes.c_long) for name in ("closed", "found")),
        *((name, ctypes.c_void_p) for name in _GIVEN),
        *((name, ctypes.c_double) for name in ("change", "slope", "defect", "kkt", "kkt_under")),
    ]


class Blocks(ctypes.Structure):
    """lq_vectors of lq_types.h."""

    _fields_ = [(name, ctypes.c_void_p) for name in (*LQProblem._fields[:8], "cost")]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("with_steps", [True, False])
@pytest.mark.parametrize("regularize", ["control", "state"])
def test_directions_are_sweep_costates_and_step_of_each_problem(size, regularize, with_steps):
    """Knots are expanded from the last to the first; one lane ignores its gaps, one has an indefinite Quu, one a NaN.

    Every second problem also provides other gains.
    """
    rng, lanes = np.random.default_rng(1), lanes_in_use()
    library, (N, n, m) = kernels(lanes), (STEPS, *size)
    problems = [problem(rng, size, 4 if i == 1 else None) for i in range(lanes)]
    problems[-1].Q[3, 0, 0] = np.nan
    problems[0].d[:] *= 1e-14
    damping, costs = 0.3 * rng.random(lanes), rng.standard_normal((N + 1, lanes))
    shapes = {"d": (N, n), "lambda": (N + 1, n), "g": (N, m), "costs": (N + 1,), "K": (N, m, n), "k": (N, m)}
    shapes |= {"dx": (N + 1, n), "du": (N, m), "held_lambda": (N + 1, n), "held_g": (N, m), "under": (N, m, n)}
    found = [{name: np.full(shape, 7.0) for name, shape in shapes.items()} for _ in range(lanes)]
    other = 0.3 * rng.standard_normal((lanes, N, m, n))
    asked = (Direction * lanes)()
    for i in range(lanes):
        on = (damping[i], 0.0) if regularize == "state" else (0.0, damping[i])
        found[i]["under"][:] = other[i]
        left_out = () if with_steps else ("dx", "du")
        left_out = left_out if i % 2 == 0 else (*left_out, "under")
        places = [None if name in left_out else address(found[i][name]) for name in _GIVEN]
        asked[i] = Direction(*on, i == 0, 0, *places, *5 * (0.0,))

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.POINTER(Blocks))
    def expand(_, knot, to):
        for name in (*LQProblem._fields[:8], "cost"):
            place = getattr(to.contents, name)
            if place is None:
                continue
            rows = costs[knot] if name == "cost" else np.array([getattr(p, name)[knot].ravel() for p in problems]).T
            values = np.ascontiguousarray(rows)
            ctypes.memmove(place, address(values), values.nbytes)

    workspace = aligned(bound(library, "lq_directions_workspace", "iil", ctypes.c_long)(n, m, N if with_steps else 1))
    library.lq_directions(
        ctypes.byref(asked), Dims(n, m), ctypes.c_long(N), expand, None, ctypes.c_void_p(address(workspace))
    )
    for i, lq in enumerate(problems):
        np.testing.assert_array_equal(found[i]["costs"], costs[:, i])
        np.testing.assert_array_equal(found[i]["d"], lq.d)
        assert asked[i].found == (i not in (1, lanes - 1))
        if not asked[i].found:
            continue
        lq = lq._replace(d=0.0 * lq.d) if i == 0 else lq
        policy = solve_riccati(lq, damping[i], regularize)
        step, (D1, D2) = NumpyLQ().forward(lq, policy)
        lam, g = NumpyLQ().adjoint(lq)
        held = stationarity(lq, policy.K)
        expected = {"lambda": lam, "g": g, "K": policy.K, "k": policy.k}
        expected |= {"dx": step.dx, "du": step.du} if with_steps else {}
        for name, value in expected.items():
            np.testing.assert_allclose(found[i][name], value, rtol=0, atol=1e-10 * max(1.0, np.abs(value).max()))
        assert asked[i].change == pytest.approx(D1 + 0.5 * D2, rel=1e-10)
        assert asked[i].slope == pytest.approx(D1, rel=1e-10)
        assert asked[i].defect == pytest.approx(np.abs(problems[i].d).max(), rel=1e-14)
        assert asked[i].kkt == pytest.approx((np.abs(held[1]) / held[2]).max(), rel=1e-9)
        if i % 2:
            assert (found[i]["held_lambda"] == 7.0).all() and (found[i]["held_g"] == 7.0).all()
            continue
        lam, g, size = stationarity(lq, other[i])
        np.testing.assert_allclose(found[i]["held_lambda"], lam, rtol=0, atol=1e-10 * np.abs(lam).max())
        np.testing.assert_allclose(found[i]["held_g"], g, rtol=0, atol=1e-10 * np.abs(g).max())
        assert asked[i].kkt_under == pytest.approx((np.abs(g) / size).max(), rel=1e-9)
