"""Search directions with one problem per lane, compared with the sweeps of each problem."""

import ctypes

import numpy as np
import pytest
from numpy_lq import NumpyLQ, solve_riccati, stationarity

from dynamics_backends.compiled.runtime.memory import address, aligned, bound
from dynamics_backends.machine.library import kernels, lanes as lanes_in_use
from trajopt.lq.lq import LQProblem

STEPS, EXPANDED = 9, 8
SIZES = [(5, 3), (2, 1), (13, 9), (24, 12)]
"""States and controls: with and without kernels for their number of controls."""


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
    library, (N, n, m) = kernels(), (STEPS, *size)
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

    alive = {}

    @ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_long, ctypes.POINTER(Blocks))
    def expand(_, last, to):
        first = last - 1 if last > N else max(0, last - 3)
        for knot in range(first, last):
            for name in (*LQProblem._fields[:8], "cost"):
                if knot == N and name not in ("Q", "q", "cost"):
                    continue
                rows = costs[knot] if name == "cost" else np.array([getattr(p, name)[knot].ravel() for p in problems]).T
                values = aligned(rows.size)
                values[:] = rows.ravel()
                if name in ("A", "B", "d"):
                    ctypes.memmove(getattr(to[knot % EXPANDED], name), address(values), values.nbytes)
                else:
                    alive[name, knot % 3] = values  # overwritten by later knots, as in the kernels
                    setattr(to[knot % EXPANDED], name, address(values))
        return first

    workspace = aligned(bound(library, "lq_directions_workspace", "iill", ctypes.c_long)(n, m, N, with_steps))
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
