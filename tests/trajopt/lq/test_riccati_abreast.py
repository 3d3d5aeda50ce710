"""The backward sweep with one problem in each lane, against the sweeps of each alone: gains, and the knots where they fail."""

import ctypes
import struct

import numpy as np
import pytest

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, find_toolchain
from trajopt.lq import compiled_lq
from trajopt.lq.lq import LQProblem, solve_riccati

pytestmark = pytest.mark.needs_compiler
STEPS, STATES, CONTROLS = 9, 5, 3


class Lane(ctypes.Structure):
    """lq_lane of riccati.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("p", "bounds", "to")),
        *((name, ctypes.c_double) for name in ("on_state", "on_control")),
        ("failed", ctypes.c_long),
    ]


def problem(rng, indefinite_at=None):
    N, n, m = STEPS, STATES, CONTROLS
    A, B = np.eye(n) + 0.2 * rng.standard_normal((N, n, n)), 0.5 * rng.standard_normal((N, n, m))
    Q, R = (
        np.stack([np.eye(k) + 0.1 * (W + W.T) for W in rng.standard_normal((K, k, k))]) for K, k in ((N + 1, n), (N, m))
    )
    if indefinite_at is not None:
        R[indefinite_at] = -100.0 * np.eye(m)
    S, d = 0.1 * rng.standard_normal((N, m, n)), 0.1 * rng.standard_normal((N, n))
    return LQProblem(A, B, d, Q, rng.standard_normal((N + 1, n)), S, R, rng.standard_normal((N, m)), np.zeros(n))


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("regularize", ["control", "state"])
def test_each_lane_is_the_sweep_of_its_problem(limited, regularize):
    """Other numbers, other damping, and in two lanes a Quu that is indefinite at one knot or another."""
    rng, lanes = np.random.default_rng(0), find_toolchain().lanes
    library = compiled_lq.abreast(STATES, CONTROLS)
    room = aligned(bound(library, "lq_abreast_room", "", ctypes.c_long)())
    problems = [problem(rng, {1: 4, lanes - 1: 7}.get(i)) for i in range(lanes)]
    damping = 0.3 * rng.random(lanes)
    kept, asked, found = [], (Lane * lanes)(), []
    limits = [np.sort(rng.standard_normal((2, STEPS, CONTROLS)), axis=0) for _ in range(lanes)]
    for i, lq in enumerate(problems):
        data = [np.ascontiguousarray(block) for block in lq[:8]]
        K, k = np.zeros((STEPS, CONTROLS, STATES)), np.zeros((STEPS, CONTROLS))
        own = [np.ascontiguousarray(limits[i][j]) for j in (0, 1)]
        texts = [struct.pack("8P l", *map(address, data), STEPS), struct.pack("4P", address(K), address(k), 0, 0)]
        texts.append(struct.pack("2P", *map(address, own)))
        p, to, bounds = map(ctypes.create_string_buffer, texts)
        on = (damping[i], 0.0) if regularize == "state" else (0.0, damping[i])
        asked[i] = Lane(
            ctypes.addressof(p), ctypes.addressof(bounds) if limited else None, ctypes.addressof(to), *on, 0
        )
        kept += [data, own, p, to, bounds]
        found.append((K, k))
    bound(library, "lq_riccati_abreast", "pp")(ctypes.addressof(asked), address(room))
    for i, lq in enumerate(problems):
        expected = solve_riccati(lq, damping[i], regularize, tuple(limits[i]) if limited else None)
        assert asked[i].failed == (-1 if expected.failed_at is None else expected.failed_at)
        first = 0 if expected.failed_at is None else expected.failed_at + 1
        np.testing.assert_allclose(found[i][0][first:], expected.K[first:], rtol=0, atol=1e-11)
        np.testing.assert_allclose(found[i][1][first:], expected.k[first:], rtol=0, atol=1e-11)
    assert asked[1].failed == 4 and asked[lanes - 1].failed == 7
